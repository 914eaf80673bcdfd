"""Computation of all numbers of a report."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qcqpbench.analysis import metrics
from qcqpbench.analysis.profiles import Profile
from qcqpbench.analysis.report.pytest_benchmark import MicroBenchmark
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.catalog.status import Termination

from .accuracy import Accuracy, accuracies
from .capacity import CapacityPanel, capacity
from .facts import Facts, Location, limits, limits_of_solvers, median, scores_of
from .general import GeneralContents, general_problems
from .ranking import Ranking, ranking
from .sources import ReportInput, ReportMachine
from .statuses import MessageCount, StatusCount, messages, statuses
from .timing import AnytimePanel, SizePanel, Target, timing


@dataclass(frozen=True)
class ReportSolver:
    """Solver of a report.

    Attributes
    ----------
    name, spec, version, formulation, limits
        Label, spec, versions in words, formulation in which the solver is given tasks, and limits in words.
    ran, competes
        Whether the solver was run, and whether it searches for points rather than bounds.
    skipped
        Number of problems on which all runs were skipped, by the message of the first one.
    """

    name: str
    spec: str
    version: str
    formulation: str | None
    limits: str
    ran: bool
    competes: bool
    skipped: Mapping[str, int]


@dataclass(frozen=True)
class Failures:
    """Failed runs among `of` runs on problems that some run solved, their terminations and their location."""

    runs: int
    of: int
    ways: Mapping[Termination, int]
    where: Location


@dataclass(frozen=True)
class SolverSummary:
    """Margins of one solver on all tasks.

    Attributes
    ----------
    solver
        Label of the solver.
    problems, missing, starts, runs
        Number of problems with runs, of problems without runs, of starts per problem at most, and of runs.
    solved, failed
        Number of runs with a positive margin, and the failed ones.
    best, no_point
        Number of problems with the best known margin, and without a point.
    gap_median, gap_max
        Median and largest gap of the best start to the best known margin; the median is None if it is infinite.
    gap_bound, bounded
        Median gap to the upper bound, and number of problems with a point and a bound.
    optimal, proved
        Number of problems with the best known margin, of those whose best known margin is proved optimal, and number of
        the latter.
    false_claims
        Number of false claims.
    """

    solver: str
    problems: int
    missing: int
    starts: int
    runs: int
    solved: int
    failed: Failures
    best: int
    no_point: int
    gap_median: float | None
    gap_max: float | None
    gap_bound: float | None
    bounded: int
    optimal: int
    proved: int
    false_claims: int


@dataclass(frozen=True)
class SolverBounds:
    """Bounds of one solver.

    Attributes
    ----------
    solver, limits
        Label of the solver, and limits of its runs in words.
    problems, bounded, least, tight
        Number of problems, of those with a bound, with the tightest bound of all solvers, and with proved optimality.
    gap_median, gap_max
        Median and largest gap between the bound and the best known value.
    refuted
        Number of refuted bounds.
    median
        Median seconds of a run.
    """

    solver: str
    problems: int
    bounded: int
    least: int
    gap_median: float | None
    gap_max: float | None
    tight: int
    refuted: int
    median: float
    limits: str


@dataclass(frozen=True)
class RefutedBound:
    """Bound of a solver that a verified point refutes."""

    solver: str
    problem: str
    bound: float | None


@dataclass(frozen=True)
class ReportContents:
    """All numbers of a report.

    Attributes
    ----------
    files, solvers, machines, micro
        Names of the files, and the solvers, machines and results of pytest-benchmark in them.
    problems, tasks
        Number of problems, and of max-margin tasks among them.
    limits, task_limits, limits_of_solvers
        Limits in words: of all runs, of all runs on tasks, and of the runs on tasks by solver.
    ranking, summary, bounds, accuracy, unsolved, capacity
        Order of the solvers on the tasks, their margins in this order, bounds, accuracies on held-out data, and the
        tasks without a positive margin.
    sizes, anytime, shift, common, targets, profiles
        Times on the tasks, see `timing.Timing`.
    general, general_bounds
        Results on general QCQPs, and bounds on them.
    unknown_sense
        Problems that are not ranked because their sense is unknown.
    statuses, messages, refuted, false_rows
        Claims and messages of the solvers, refuted bounds, and the numbers of the rows with false claims.
    left_out
        Number of rows left out of the report, in words by reason; empty if there are none.
    """

    files: tuple[str, ...]
    solvers: tuple[ReportSolver, ...]
    problems: int
    tasks: int
    limits: str
    task_limits: str
    limits_of_solvers: Mapping[str, str]
    ranking: Ranking
    summary: tuple[SolverSummary, ...]
    bounds: tuple[SolverBounds, ...]
    accuracy: tuple[Accuracy, ...]
    unsolved: Location
    capacity: tuple[CapacityPanel, ...]
    sizes: tuple[SizePanel, ...]
    anytime: tuple[AnytimePanel, ...]
    shift: float
    common: int
    targets: tuple[Target, ...]
    profiles: tuple[Profile, ...]
    general: GeneralContents
    general_bounds: tuple[SolverBounds, ...]
    unknown_sense: tuple[str, ...]
    statuses: tuple[StatusCount, ...]
    messages: tuple[MessageCount, ...]
    refuted: tuple[RefutedBound, ...]
    false_rows: tuple[int, ...]
    machines: tuple[ReportMachine, ...]
    micro: tuple[MicroBenchmark, ...]
    left_out: str


def contents(report_input: ReportInput) -> ReportContents:
    """Return all numbers of a report."""
    rows = report_input.rows
    facts, general = Facts(rows), metrics.general(rows)
    unknown = general - {row.problem_id for row in rows if row.sense}
    tasks = Facts([row for row in rows if row.problem_id not in general])
    ranked_general = Facts([row for row in rows if row.problem_id in general - unknown])
    order = ranking(tasks, tasks.best)
    tasks.order_solvers(line.solver for line in order.solvers)
    times, general_contents = timing(tasks), general_problems(ranked_general)
    return ReportContents(
        files=report_input.files,
        solvers=_solvers(facts, [*tasks.solvers, *ranked_general.solvers]),
        problems=len(facts.problems),
        tasks=len(tasks.problems),
        limits=limits(facts.rows),
        task_limits=limits(tasks.rows),
        limits_of_solvers=limits_of_solvers(tasks),
        ranking=order,
        summary=tuple(_summary_line(tasks, name) for name in tasks.solvers),
        bounds=_bounds(tasks),
        accuracy=accuracies(tasks),
        unsolved=tasks.location([id for id in tasks.limits if id not in tasks.solved]),
        capacity=capacity(tasks),
        sizes=times.sizes,
        anytime=times.anytime,
        shift=times.shift,
        common=times.common,
        targets=times.targets,
        profiles=times.profiles,
        general=general_contents,
        general_bounds=_bounds(ranked_general),
        unknown_sense=tuple({row.problem: None for row in rows if row.problem_id in unknown}),
        statuses=statuses(facts),
        messages=messages(facts),
        refuted=tuple(RefutedBound(row.label, row.problem_label, row.bound) for row in facts.bounds.refuted),
        false_rows=tuple(k for k, row in enumerate(facts.rows) if facts.is_false(row)),
        machines=report_input.machines,
        micro=report_input.micro,
        left_out=left_out(report_input),
    )


def left_out(report_input: ReportInput) -> str:
    """Return a text with the number of rows left out of the report, by reason; empty if there are none."""
    repeated = f"{report_input.repeated} present in several files" if report_input.repeated else ""
    return ", ".join(filter(None, [str(report_input.left_out), repeated]))


def _solvers(facts: Facts, order: Sequence[str]) -> tuple[ReportSolver, ...]:
    """Return the solvers in the given order, then the others by name."""
    rows_by_solver: dict[str, list[ReportRow]] = defaultdict(list)
    for row in facts.rows:
        rows_by_solver[row.label].append(row)
    place = {name: k for k, name in reversed([*enumerate(order)])}
    return tuple(
        ReportSolver(
            name=name,
            spec=rows[0].solver,
            version=", ".join(sorted({row.version for row in rows})),
            formulation=rows[0].formulation,
            limits=limits(rows),
            ran=any(map(metrics.was_run, rows)),
            competes=name in facts.solvers,
            skipped=_skipped(facts, name, rows),
        )
        for name, rows in sorted(rows_by_solver.items(), key=lambda item: (place.get(item[0], len(order)), item[0]))
    )


def _skipped(facts: Facts, name: str, rows: Sequence[ReportRow]) -> dict[str, int]:
    first = {row.problem_id: row for row in reversed(rows) if (name, row.problem_id) not in facts.runs}
    return dict(Counter(" ".join(row.message.split()) for row in first.values()))


# --- margins and bounds ---


def _summary_line(facts: Facts, name: str) -> SolverSummary:
    runs = facts.of(name, facts.problems)
    rows = [row for group in runs.values() for row in group]
    best = {id: max(scores) for id, group in runs.items() if (scores := scores_of(group))}
    gaps = [metrics.gap(score, facts.best[id]) for id, score in best.items()]
    bounds = facts.bounds.least
    optimality_gaps = [metrics.gap(score, bounds[id]) for id, score in best.items() if id in bounds]
    return SolverSummary(
        solver=name,
        problems=len(runs),
        missing=len(facts.problems) - len(runs),
        starts=max(map(len, runs.values())),
        runs=len(rows),
        solved=sum(map(metrics.is_solved, rows)),
        failed=_failed(facts, runs),
        best=sum(gap <= metrics.SAME for gap in gaps),
        no_point=len(runs) - len(best),
        gap_median=median(gaps, len(runs)),
        gap_max=max(gaps, default=None),
        gap_bound=median(optimality_gaps, len(runs.keys() & bounds.keys())),
        bounded=len(optimality_gaps),
        optimal=sum(
            metrics.gap(score, facts.best[id]) <= metrics.SAME for id, score in best.items() if id in facts.proved
        ),
        proved=len(runs.keys() & facts.proved),
        false_claims=sum(map(facts.is_false, rows)),
    )


def _failed(facts: Facts, runs: Mapping[str, Sequence[ReportRow]]) -> Failures:
    """Return the number of failed runs on problems that some run solved, with their terminations and location."""
    attempts = [row for id, group in runs.items() if id in facts.solved for row in group]
    failed = [row for row in attempts if not metrics.is_solved(row)]
    return Failures(
        runs=len(failed),
        of=len(attempts),
        ways=dict(Counter(row.termination for row in failed).most_common()),
        where=facts.location({row.problem_id for row in failed}),
    )


def _bounds(facts: Facts) -> tuple[SolverBounds, ...]:
    """Return one line per solver with bounds in its rows or of scope `Scope.BOUND`."""
    rows_by_solver: dict[str, list[ReportRow]] = defaultdict(list)
    for row in facts.rows:
        if metrics.was_run(row) and (row.bound is not None or not metrics.competes(row)):
            rows_by_solver[row.label].append(row)
    return tuple(_bound_line(facts, name, rows) for name, rows in sorted(rows_by_solver.items()))


def _bound_line(facts: Facts, name: str, rows: Sequence[ReportRow]) -> SolverBounds:
    """Return the number of bounds of a solver and their gaps to the best known scores."""
    bounds = facts.bounds.of_solvers.get(name, {})
    gaps = [metrics.gap(facts.best[id], bound) for id, bound in bounds.items()]
    return SolverBounds(
        solver=name,
        problems=len({row.problem_id for row in rows}),
        bounded=len(gaps),
        least=sum(metrics.gap(facts.bounds.least[id], bound) <= metrics.SAME for id, bound in bounds.items()),
        gap_median=statistics.median(gaps) if gaps else None,
        gap_max=max(gaps, default=None),
        tight=sum(gap <= metrics.SAME for gap in gaps),
        refuted=sum(row.label == name for row in facts.bounds.refuted),
        median=statistics.median(map(metrics.seconds, rows)),
        limits=limits(rows),
    )
