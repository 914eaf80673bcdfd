"""The leaderboard: tables of all submissions in Markdown, for a page of the documentation.

Only values that were checked again count: margins and objectives of points, and bounds that a proof in a submission or
in the list of best known margins proves. Bounds without a proof are shown as claims. Times are compared within one
model of machine.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.spec import parse, spell
from qcqpbench.catalog.status import Scope
from qcqpbench.results.public.submission import Entry, Submission, read_folder
from qcqpbench.run.suite import problem_labels

from . import metrics
from .report.render.markdown import markdown_table
from .report.table import PreciseFloat, ReportTable, percent
from .rows import AnalysisRow, extend_row, labels_of_solvers

T = TypeVar("T")
K = TypeVar("K")

# Parameters in which the instances of one size differ.
_VARIED = ("load", "p", "seed")
# Parameters that are the size of an instance.
_SIZES = ("k", "m")
_HASH_CHARACTERS = 6


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PublicRow(AnalysisRow):
    """Submitted row.

    Attributes
    ----------
    submission
        Name of the file.
    size
        Family and size of the problem: its label without load, p and seed.
    has_proof
        Whether the submission proves the bound of the row.
    """

    submission: str
    size: str
    has_proof: bool


@dataclass(frozen=True)
class _Instance:
    """Best score of an instance, the runs that reach it, and the best bound on it."""

    rows: Sequence[PublicRow]
    best: float
    proved: float | None
    claimed: float | None

    @property
    def is_proved(self) -> bool:
        return _meets(self.best, self.proved)

    def leaders(self) -> list[PublicRow]:
        """Return the rows that reach the best score, the best first."""
        scored = [(row_score, row) for row in self.rows if (row_score := metrics.score(row)) is not None]
        scored.sort(key=lambda item: (-item[0], item[1].label))
        return [row for row_score, row in scored if metrics.gap(row_score, self.best) <= metrics.SAME]


def _meets(best: float, bound: float | None) -> bool:
    return bound is not None and metrics.gap(best, bound) <= metrics.PROVED_GAP


def leaderboard(folder: Path) -> str:
    """Return the leaderboard of a folder of submissions as Markdown.

    The submissions are read, not checked: `qcqpbench.results.public.check_submission` checks them.
    """
    submissions = read_folder(folder)
    rows = _rows(submissions)
    instances = _instances(rows)
    machines: dict[str, list[PublicRow]] = defaultdict(list)
    for row in rows:
        machines[_machine_name(row.machine)].append(row)
    tables = [
        _solver_table(rows, instances),
        *_family_tables(instances),
        *(_time_table(name, machines[name], instances) for name in sorted(machines)),
        _submission_table(submissions),
    ]
    proved = sum(instance.is_proved for instance in instances.values())
    about = (
        f"Submissions: {len(submissions)}; runs: {len(rows)}; instances: {len(instances)}, of which {proved} have a "
        "proved optimum."
    )
    lines = [about]
    for table in tables:
        lines += ["", *markdown_table(table)]
    return "\n".join(lines) + "\n"


def _rows(submissions: dict[str, Submission]) -> list[PublicRow]:
    entries = [(name, entry) for name, submission in submissions.items() for entry in submission.entries]
    rows = [entry.row for _, entry in entries]
    solvers, problems = labels_of_solvers(rows), problem_labels({row.problem for row in rows})
    versions: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        versions[row.solver].add(row.version)
    records = shipped_records()

    def public(name: str, entry: Entry) -> PublicRow:
        row, record = entry.row, records.get(entry.row.problem_id)
        version = f" ({row.version[-12:][:_HASH_CHARACTERS]})" if len(versions[row.solver]) > 1 else ""
        facts = {
            "label": f"{solvers[row.solver]}{version}",
            "problem_label": problems[row.problem],
            "trace": (),
            "known_bound": None if record is None else record.bound,
            "best_known": row.best_known if record is None else record.margin,
            "submission": name,
            "size": _size(problems[row.problem]),
            "has_proof": not {"tree", "offsets"}.isdisjoint(entry.arrays),
        }
        return extend_row(PublicRow, row, facts)

    return [public(name, entry) for name, entry in entries]


def _size(label: str) -> str:
    name, parameters = parse(label)
    return spell(name, {key: text for key, text in parameters.items() if key not in _VARIED})


def _instances(rows: Sequence[PublicRow]) -> dict[str, _Instance]:
    """Return the instances with a score, by problem id, sorted by label."""
    best, to_score = metrics.best_known(rows), metrics.units(rows)
    by_problem: dict[str, list[PublicRow]] = defaultdict(list)
    for row in rows:
        if row.problem_id in best:
            by_problem[row.problem_id].append(row)
    instances = {}
    for id, group in sorted(by_problem.items(), key=lambda item: _natural(item[1][0].problem_label)):
        unit = to_score.get(id)
        known = [row.known_bound for row in group]
        proofs = [row.bound for row in group if row.has_proof]
        claims = [row.bound for row in group if row.scope is not Scope.LOCAL]
        proved, claimed = (
            min((unit * bound for bound in bounds if bound is not None and unit is not None), default=None)
            for bounds in ([*known, *proofs], claims)
        )
        instances[id] = _Instance(group, best[id], proved, claimed)
    return instances


def _natural(label: str) -> tuple[str, list[tuple[bool, str, float, str]]]:
    """Return a sort key of a spec: by its size, then by its other parameters, numbers by their values."""
    name, parameters = parse(label)

    def key(text: str) -> tuple[float, str]:
        try:
            return float(text), ""
        except ValueError:
            return math.inf, text

    return name, sorted((parameter not in _SIZES, parameter, *key(text)) for parameter, text in parameters.items())


def _solver_table(rows: Sequence[PublicRow], instances: dict[str, _Instance]) -> ReportTable:
    lines = []
    for label, group in _by(rows, lambda row: row.label).items():
        tried = {row.problem_id: instances[row.problem_id] for row in group if row.problem_id in instances}
        reached = {id for id, instance in tried.items() if any(row.label == label for row in instance.leaders())}
        proved = {id for id, instance in tried.items() if instance.is_proved}
        points = sum(metrics.value(row) is not None for row in group)
        shares = f"{len(reached)} of {len(tried)}", f"{len(reached & proved)} of {len(proved)}"
        lines.append((label, group[0].scope, len(group), points, *shares))
    lines.sort(key=lambda line: (-int(line[4].split()[0]), line[0]))
    note = (
        f"A run reaches the best value if it is within {percent(metrics.SAME)} of the best value that is known, and a "
        f"proved optimum if that value is within {percent(metrics.SAME)} of a proved bound. Not all solvers were run "
        "on the same instances."
    )
    columns = "solver", "scope", "runs", "feasible points", "best values reached", "proved optima reached"
    return ReportTable("solvers", "Solvers", columns, lines, note)


def _family_tables(instances: dict[str, _Instance]) -> list[ReportTable]:
    tables = []
    families = _by(instances.values(), lambda instance: parse(instance.rows[0].problem_label)[0])
    for family, group in families.items():
        quantity = "κ̄" if group[0].rows[0].kappa_bar is not None or group[0].rows[0].sense is None else "objective"
        lines = [_instance_line(instance) for instance in group]
        note = (
            f"Best {quantity} of the submissions, the solvers that reach it, the best known value, and the gap of the "
            "better one to the best bound: proved, or claimed by a solver without a proof that can be checked."
        )
        columns = "instance", f"best {quantity}", "status", "gap", "reached by", "best known", "bound", "submission"
        tables.append(ReportTable(family, f"Best values: {family}", columns, lines, note))
    return tables


def _instance_line(instance: _Instance) -> tuple[object, ...]:
    some_row = instance.rows[0]
    sign = next((each for row in instance.rows if (each := metrics.sign(row)) is not None), 1.0)
    scored = [score for row in instance.rows if (score := metrics.score(row)) is not None]
    own, leaders = max(scored, default=None), instance.leaders()
    is_proof = instance.proved is not None
    bound = instance.proved if is_proof else instance.claimed
    status = "" if bound is None else "bounded" if is_proof else "bound claimed"
    if _meets(instance.best, bound):
        status = "proved optimal" if is_proof else "optimality claimed"
    return (
        some_row.problem_label,
        None if own is None else PreciseFloat(sign * own),
        status,
        "" if bound is None else percent(max(0.0, metrics.gap(instance.best, bound))),
        ", ".join(dict.fromkeys(row.label for row in leaders)),
        PreciseFloat(sign * instance.best),
        None if bound is None else PreciseFloat(sign * bound),
        ", ".join(dict.fromkeys(row.submission for row in leaders)),
    )


def _time_table(machine: str, rows: Sequence[PublicRow], instances: dict[str, _Instance]) -> ReportTable:
    """Return the median times of the runs on one machine, by family and size, time limit and solver."""
    lines = []
    for (size, limit, threads, label), group in _by(
        rows, lambda row: (row.size, row.time_limit, row.threads, row.label)
    ).items():
        best = [(row, instances[row.problem_id].best) for row in group if row.problem_id in instances]
        reached = [row for row, value in best if (score := metrics.score(row)) is not None
                   and metrics.gap(score, value) <= metrics.SAME]  # fmt: skip
        wall, cpu = (_median(getattr(row, name) for row in group) for name in ("solve_seconds", "cpu_seconds"))
        limit_text = "none" if math.isinf(limit) else f"{limit:g} s"
        lines.append((size, limit_text, threads, label, len(group), len(reached), wall, cpu))
    lines.sort(key=lambda line: (_natural(line[0]), line[1], line[2], -line[5] / line[4], line[7] or math.inf))
    note = (
        "Median seconds of all runs of a solver, also of those that do not reach the best value. Wall times depend on "
        "other work of the machine; times of different machines must not be compared."
    )
    columns = "family and size", "time limit", "threads", "solver", "runs", "best reached", "median s", "median CPU s"
    return ReportTable("times", f"Times: {machine}", columns, lines, note)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _submission_table(submissions: dict[str, Submission]) -> ReportTable:
    lines = []
    for name, submission in submissions.items():
        commits = {f"{(row.machine.commit or '')[:12]}{'+' if row.machine.dirty else ''}" for row in submission.rows}
        machines = {_machine_name(row.machine) for row in submission.rows}
        commands = ("; ".join(sorted(texts)) for texts in (commits, machines))
        lines.append((name, len(submission.rows), *commands))
    note = "The first line of a file holds its commands and all facts about the machines. + marks changed files."
    return ReportTable("submissions", "Submissions", ("file", "rows", "commit", "machine"), lines, note)


def _machine_name(machine: Machine) -> str:
    """Return the facts that comparable machines share."""
    return f"{machine.cpu}, {machine.logical_cores} cores"


def _by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)
