"""Reading of results files, with κ̄ along the traces of runs, and of pytest-benchmark files for a report."""

import contextlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from qcqpbench.analysis.metrics import was_run
from qcqpbench.analysis.report.pytest_benchmark import MicroBenchmark, read_pytest_benchmark
from qcqpbench.analysis.rows import (
    ReportRow,
    extend_row,
    labels_of_problems,
    labels_of_solvers,
    labels_of_versions,
)
from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.registry import shipped_solvers
from qcqpbench.catalog.status import Scope
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.results.row import Row
from qcqpbench.results.store import Array, LeftOut, Store
from qcqpbench.run.isolation.description import is_stored, problem_apart

Trace = tuple[tuple[float, float], ...]
_ROW_ORDER = ("problem", "solver", "version", "start_seed", "start", "key")


@dataclass(frozen=True)
class ReportMachine:
    """Machine on which runs were made, and the commands that made them."""

    facts: Machine
    commands: tuple[str, ...]


@dataclass(frozen=True)
class ReportInput:
    """Input of a report.

    Attributes
    ----------
    files
        Names of the files, without folders.
    rows
        The newest row of each run, in an order independent of that of the runs.
    machines
        Machines of the runs. The `machine_number` of a row is an index into them.
    micro
        Results of pytest-benchmark.
    left_out
        Numbers of rows that were read and that other rows replace.
    repeated
        Number of rows omitted because an earlier file contains them.
    """

    files: tuple[str, ...]
    rows: tuple[ReportRow, ...]
    machines: tuple[ReportMachine, ...]
    micro: tuple[MicroBenchmark, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    repeated: int = 0


def read(paths: Sequence[str | Path]) -> ReportInput:
    """Read results files and JSON files of pytest-benchmark.

    The problems of runs with a trace are rebuilt, if possible, to evaluate the points of the trace.

    Raises
    ------
    QcqpbenchError
        If `paths` is empty, or a file cannot be read.
    """
    require(len(paths) > 0, "paths must name at least one file, got none")
    machines, micro = _Machines(), list[MicroBenchmark]()
    with contextlib.ExitStack() as stack:
        stores: list[Store] = []
        for path in map(Path, paths):
            if path.suffix == ".json":
                benchmarks, machine = read_pytest_benchmark(path)
                micro += benchmarks
                machines.number(machine, f"pytest-benchmark, {path.name}")
            else:
                stores.append(stack.enter_context(Store(path)))
        stored, repeated = _all_rows(stores)
        stored, left_out, repeated_solvers = _newest(stored)
        numbers = {entry.row: machines.number(entry.row.machine, entry.command) for entry in stored}
        traces: dict[Row, Trace] = {}
        for number, store in enumerate(stores):
            traces |= _traces(store, [entry.row for entry in stored if entry.file == number])
    rows = [entry.row for entry in stored]
    files = _file_names(paths)
    in_files = _file_names([store.path for store in stores])
    files_of_rows = {entry.row: in_files[entry.file] for entry in stored if entry.row.solver in repeated_solvers}
    facts = _facts_of_problems(rows), _names(rows, files_of_rows)
    report_rows = [_report_row(row, *facts, traces.get(row, ()), numbers[row]) for row in rows]
    report_rows.sort(key=lambda row: [getattr(row, name) for name in _ROW_ORDER])
    return ReportInput(files, tuple(report_rows), machines.all(), tuple(micro), left_out, repeated)


def _report_row(
    row: Row, problems: Mapping[str, "_ProblemFacts"], names: "_Names", trace: Trace, machine_number: int
) -> ReportRow:
    problem = problems[row.problem_id]
    facts = {
        "label": names.solver_label(row),
        "problem_label": names.problems[row.problem],
        "scope": row.scope or names.scopes.get(row.solver_name, Scope.LOCAL),
        "trace": trace,
        "machine_number": machine_number,
    }
    return extend_row(ReportRow, row, {**vars(problem), **facts})


class _Machines:
    """Distinct machines in the order of their first use, with their commands."""

    def __init__(self) -> None:
        self._commands: list[tuple[Machine, dict[str, None]]] = []

    def number(self, machine: Machine, command: str) -> int:
        """Return the number of a machine, and add the machine and the command if they are new."""
        for number, (known, commands) in enumerate(self._commands):
            if machine is known or machine == known:
                commands[command] = None
                return number
        self._commands.append((machine, {command: None}))
        return len(self._commands) - 1

    def all(self) -> tuple[ReportMachine, ...]:
        return tuple(ReportMachine(machine, tuple(commands)) for machine, commands in self._commands)


@dataclass(frozen=True)
class _Stored:
    """A row, the number of its file, and the command that made it."""

    row: Row
    file: int
    command: str


def _all_rows(stores: Sequence[Store]) -> tuple[list[_Stored], int]:
    """Return the distinct rows of all files, and the number of duplicates."""
    rows: dict[tuple[str, int, str, float], _Stored] = {}
    repeated = 0
    for number, store in enumerate(stores):
        calls = store.invocations()
        for row in store.rows(all_rows=True):
            call = calls[row.invocation]
            # These values stay the same when files are merged.
            identity = call.uid, row.number, row.key, row.begun
            repeated += identity in rows
            rows.setdefault(identity, _Stored(row, number, call.command))
    return list(rows.values()), repeated


def _file_names(paths: Sequence[str | Path]) -> tuple[str, ...]:
    """Return the names of the files without folders; different files with the same name are numbered."""
    names = [os.fsencode(Path(path).name).decode(errors="backslashreplace") for path in paths]
    distinct = {name: list(dict.fromkeys(p for n, p in zip(names, paths, strict=True) if n == name)) for name in names}
    return tuple(
        name if len(distinct[name]) == 1 else f"{name} ({distinct[name].index(path) + 1})"
        for name, path in zip(names, paths, strict=True)
    )


def _newest(stored: Sequence[_Stored]) -> tuple[list[_Stored], LeftOut, set[str]]:
    """Keep the newest row of each run.

    A solver with different rows of the same run in several files is kept once per file: the files are compared.

    Returns
    -------
    list of _Stored
        The rows that are kept.
    LeftOut
        Numbers of the other rows.
    set of str
        Specs of the solvers that are kept once per file.
    """
    files_by_run: dict[tuple[str, str], set[int]] = {}
    for entry in stored:
        if was_run(entry.row):
            files_by_run.setdefault((entry.row.solver, entry.row.key), set()).add(entry.file)
    repeated = {solver for (solver, _), files in files_by_run.items() if len(files) > 1}
    parts: dict[tuple[str, int], list[_Stored]] = {}
    for entry in stored:
        file = entry.file if entry.row.solver in repeated else -1
        parts.setdefault((entry.row.solver, file), []).append(entry)
    kept, left_out = [], LeftOut()
    for part in parts.values():
        newest, rest = _newest_of_one_solver(part)
        kept += newest
        left_out = LeftOut(left_out.replaced + rest.replaced, left_out.skipped + rest.skipped)
    return kept, left_out, repeated


def _newest_of_one_solver(stored: Sequence[_Stored]) -> tuple[list[_Stored], LeftOut]:
    """Apply the rules of the view `latest` of a results file; return the rows kept and the numbers of rows left out."""
    by_key: dict[str, Row] = {}
    by_run: dict[tuple[object, ...], Row] = {}
    for row in sorted((entry.row for entry in stored), key=lambda row: row.begun):
        if was_run(row) or row.key not in by_key or not was_run(by_key[row.key]):
            by_key[row.key] = row
        run = _run(row)
        if was_run(row) or run not in by_run or not was_run(by_run[run]):
            by_run[run] = row
    counting = {row for row in by_key.values() if was_run(row) or by_run[_run(row)] is row}
    kept = [entry for entry in stored if entry.row in counting]
    rest = [entry.row for entry in stored if entry.row not in counting]
    replaced = sum(map(was_run, rest))
    return kept, LeftOut(replaced=replaced, skipped=len(rest) - replaced)


def _run(row: Row) -> tuple[object, ...]:
    """Return the columns that identify a run, without the version of its solver."""
    options = row.start_seed, row.threads, row.time_limit, row.memory_limit_bytes
    return row.problem_id, row.solver, row.start, *options


@dataclass(frozen=True)
class _Names:
    """Labels of problems, solvers and solver versions, and scopes of shipped solvers by name.

    `files` has the name of the file of each row whose solver is kept once per file.
    """

    problems: Mapping[str, str]
    solvers: Mapping[str, str]
    versions: Mapping[tuple[str, str], str]
    scopes: Mapping[str, Scope]
    files: Mapping[Row, str]

    def solver_label(self, row: Row) -> str:
        version = self.versions.get((row.solver, row.version), "")
        return ", ".join(filter(None, [f"{self.solvers[row.solver]} {version}".strip(), self.files.get(row)]))


def _names(rows: Sequence[Row], files: Mapping[Row, str]) -> _Names:
    # Rows before schema 6 have no scope. Solvers of other packages are not imported for a report.
    shipped = {} if all(row.scope for row in rows) else shipped_solvers()
    return _Names(
        problems=labels_of_problems(row.problem for row in rows),
        solvers=labels_of_solvers(rows),
        versions=labels_of_versions((row.solver, row.version) for row in rows if was_run(row)),
        scopes={name: kind.scope for name, kind in shipped.items()},
        files=files,
    )


def _traces(store: Store, rows: Iterable[Row]) -> dict[Row, Trace]:
    """Return (seconds, κ̄) along the trace of each row of a run on a task that can be rebuilt."""
    by_problem: dict[str, list[Row]] = {}
    for row in rows:
        if row.margin is not None:
            by_problem.setdefault(row.problem, []).append(row)
    traces: dict[Row, Trace] = {}
    for spec, group in by_problem.items():
        reported = {row: points for row in group if (points := store.trace(row.id))}
        if not reported:
            continue
        try:
            task = problem_apart(spec)
        except QcqpbenchError:
            # The file is missing, or the family is not installed.
            continue
        if isinstance(task, MaxMargin):
            traces |= {row: _evaluated(task, points) for row, points in reported.items() if row.problem_id == task.id}
    return traces


def _evaluated(task: MaxMargin, trace: Iterable[tuple[float, Array]]) -> Trace:
    """Return (seconds, κ̄) of the valid points of a trace, with rows scaled to unit length."""
    points = [
        (at, W)
        for at, W in trace
        if W.shape == (task.n, task.m) and 0 <= at < math.inf and np.isfinite(W).all() and W.any(axis=1).all()
    ]
    if not points:
        return ()
    margins = task.kappa_bar(unit_rows(np.stack([W for _, W in points])))
    return tuple((at, float(margin)) for (at, _), margin in zip(points, margins, strict=True))


@dataclass(frozen=True)
class _ProblemFacts:
    """Facts about a problem that its rows take over, see `ReportRow`."""

    sense: str | None = None
    best_known: float | None = None
    known_bound: float | None = None
    variables: int | None = None
    constraints: int | None = None
    objective_theory: float | None = None


def _facts_of_problems(rows: Sequence[Row]) -> dict[str, _ProblemFacts]:
    """Return facts about the problems by their ids, from the problems that can be rebuilt.

    If two files contain the same problem, the better value is used. If no problem can be rebuilt, the value of the
    newest row is used. Values of the shipped list of best known margins take precedence.
    """
    tasks = {row.problem_id for row in rows if row.margin is not None or row.formulation is not None}
    facts: dict[str, _ProblemFacts] = {}
    for row in sorted(rows, key=lambda row: row.begun):
        older = facts.get(row.problem_id, _ProblemFacts())
        facts[row.problem_id] = _ProblemFacts(sense=row.sense or older.sense, best_known=row.best_known)
    published: dict[str, list[float]] = {}
    for spec, id in dict.fromkeys((row.problem, row.problem_id) for row in rows):
        problem = _rebuilt(spec, id, id in tasks)
        if problem is None:
            continue
        if isinstance(problem, QCQP):
            facts[id] = replace(facts[id], **_facts_of_qcqp(problem))
        best = problem.metadata.best_known
        published.setdefault(id, []).extend([best.value] if best is not None and math.isfinite(best.value) else [])
    for id, values in published.items():
        better = min if facts[id].sense == "minimize" else max
        facts[id] = replace(facts[id], best_known=better(values, default=None))
    records = shipped_records()
    for id in facts.keys() & records.keys():
        facts[id] = replace(facts[id], best_known=records[id].margin, known_bound=records[id].bound)
    return facts


def _facts_of_qcqp(problem: QCQP) -> dict[str, Any]:
    """Return the sense, size, tightest bound and predicted objective of a problem."""
    bounds = [bound.value for bound in problem.metadata.bounds if math.isfinite(bound.value)]
    return {
        "sense": problem.sense,
        "variables": problem.n_variables,
        "constraints": problem.n_constraints,
        "known_bound": (max if problem.sense == "minimize" else min)(bounds, default=None),
        "objective_theory": problem.metadata.theory.objective,
    }


def _rebuilt(spec: str, id: str, is_task: bool) -> MaxMargin | QCQP | None:
    """Return the problem if it can be rebuilt with the same id, else None. Generated tasks are not rebuilt."""
    try:
        problem = problem_apart(spec) if not is_task or is_stored(spec) else None
    except QcqpbenchError:
        # The file is missing, or the family is not installed.
        return None
    return problem if problem is not None and problem.id == id else None
