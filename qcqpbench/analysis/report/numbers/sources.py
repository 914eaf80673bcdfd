"""Reading of results files, with κ̄ along the traces of runs, and of pytest-benchmark files for a report."""

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from qcqpbench.analysis.metrics import was_run
from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.catalog.registry import shipped_solvers
from qcqpbench.catalog.solver import Solver
from qcqpbench.catalog.spec import parse
from qcqpbench.catalog.status import Scope
from qcqpbench.errors import QcqpbenchError, describe_error, require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.results.store import Array, LeftOut, Row, Store
from qcqpbench.run.isolation.description import is_stored, problem_apart
from qcqpbench.run.job import is_file, labels

_ROW_ORDER = ("problem", "solver", "version", "seed", "start", "key")


@dataclass(frozen=True)
class Results:
    """Input of a report.

    Attributes
    ----------
    files
        Names of the files, without folders.
    rows
        The newest row of each job, with the keys that `metrics` uses, in an order independent of that of the runs.
    machines
        Facts about each machine and the commands run on it. The `machine` of a row is an index into this list.
    micro
        Results of pytest-benchmark.
    left_out
        Numbers of rows that were read and that other rows replace.
    repeated
        Number of rows omitted because an earlier file contains them.
    """

    files: tuple[str, ...]
    rows: list[Row]
    machines: list[dict[str, Any]]
    micro: list[dict[str, Any]] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    repeated: int = 0


def read(paths: Sequence[str | Path]) -> Results:
    """Read results files and JSON files of pytest-benchmark.

    The problems of runs with a trace are rebuilt, if possible, to evaluate the points of the trace.

    Raises
    ------
    QcqpbenchError
        If `paths` is empty, or a file cannot be read.
    """
    require(len(paths) > 0, "paths must name at least one file, got none")
    machines: list[dict[str, Any]] = []
    micro: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        stores: list[Store] = []
        for path in map(Path, paths):
            if path.suffix == ".json":
                benchmarks, machine, command = _pytest_benchmark(path)
                micro += benchmarks
                _place(machine, command, machines)
            else:
                stores.append(stack.enter_context(Store(path)))
        rows, repeated = _all_rows(stores)
        rows, left_out = _newest(rows)
        for row in rows:
            row["machine"] = _place(row["machine"], row["command"], machines)
        for number, store in enumerate(stores):
            _add_traces(store, [row for row in rows if row["file"] == number])
    rows.sort(key=lambda row: [row[name] for name in _ROW_ORDER])
    _add_kinds(rows)
    _add_names(rows)
    _add_best_known(rows)
    files = tuple(os.fsencode(Path(path).name).decode(errors="backslashreplace") for path in paths)
    return Results(files, rows, machines, micro, left_out, repeated)


def _all_rows(stores: Sequence[Store]) -> tuple[list[Row], int]:
    """Return the distinct rows of all files, with their `file` index and `command`, and the number of duplicates."""
    rows: dict[tuple[Any, ...], Row] = {}
    repeated = 0
    for number, store in enumerate(stores):
        calls = store.invocations()
        for row in store.rows(all_rows=True):
            call = calls[row["invocation"]]
            # These values stay the same when files are merged.
            identity = call["uid"], row["number"], row["key"], row["begun"]
            repeated += identity in rows
            rows.setdefault(identity, row | {"file": number, "command": call["command"]})
    return list(rows.values()), repeated


def _newest(rows: Sequence[Row]) -> tuple[list[Row], LeftOut]:
    """Apply the rules of the view `latest` of a results file; return the rows kept and the numbers of rows left out."""
    by_age = sorted(rows, key=lambda row: float(row["begun"]))
    by_key: dict[Any, Row] = {}
    by_run: dict[Any, Row] = {}
    for row in by_age:
        for newest, name in ((by_key, row["key"]), (by_run, _run(row))):
            if was_run(row) or name not in newest or not was_run(newest[name]):
                newest[name] = row
    counting = {id(row) for row in by_key.values() if was_run(row) or by_run[_run(row)] is row}
    kept = [row for row in rows if id(row) in counting]
    rest = [row for row in rows if id(row) not in counting]
    replaced = sum(map(was_run, rest))
    return kept, LeftOut(replaced=replaced, skipped=len(rest) - replaced)


def _run(row: Row) -> tuple[Any, ...]:
    """Return the columns that identify a run, without the version of its solver."""
    names = ("problem_id", "solver", "start", "seed", "threads", "time_limit", "memory_limit")
    return tuple(row[name] for name in names)


def _add_names(rows: Iterable[Row]) -> None:
    """Add labels of problems and solvers, with the version if a solver has several, and missing scopes of old rows."""
    problems = labels({row["problem"] for row in rows if is_file(row["problem"]) or _name(row["problem"])})
    names = {row["solver"]: _name(row["solver"]) for row in rows}
    short = labels({spec for spec, name in names.items() if name})
    # Rows before schema 6 have no scope. Solvers of other packages are not imported for a report.
    scopes = {name: str(kind.scope) for name, kind in _shipped_solvers(rows).items()}
    versions: dict[str, set[str]] = {}
    for row in rows:
        if was_run(row):
            versions.setdefault(row["solver"], set()).add(row["version"])
    for row in rows:
        several = len(versions.get(row["solver"], ())) > 1
        row["problem_label"] = problems.get(row["problem"], row["problem"])
        row["label"] = f"{short.get(row['solver'], row['solver'])}{' ' + row['version'] if several else ''}"
        row["scope"] = row["scope"] or scopes.get(names[row["solver"]], str(Scope.LOCAL))


def _shipped_solvers(rows: Iterable[Row]) -> Mapping[str, type[Solver]]:
    """Return the solvers shipped with qcqpbench by name, or an empty dict if all rows have a scope."""
    return {} if all(row["scope"] for row in rows) else shipped_solvers()


def _add_best_known(rows: Iterable[Row]) -> None:
    """Set `best_known` and `known_bound` of each row to the values in the shipped list of best known margins."""
    for row in rows:
        if (record := shipped_records().get(row["problem_id"])) is not None:
            row["best_known"], row["known_bound"] = record.margin, record.bound


def _name(spec: str) -> str:
    """Return the name in a spec, or an empty string if `spec` cannot be parsed."""
    try:
        return parse(spec)[0]
    except QcqpbenchError:
        return ""


def _place(facts: dict[str, Any], command: str, machines: list[dict[str, Any]]) -> int:
    """Return the index in `machines` of the machine with these facts; add the machine and the command if missing."""
    all_facts = [machine["facts"] for machine in machines]
    if facts not in all_facts:
        machines.append({"facts": facts, "commands": []})
    place = all_facts.index(facts) if facts in all_facts else len(all_facts)
    if command not in machines[place]["commands"]:
        machines[place]["commands"].append(command)
    return place


def _add_traces(store: Store, rows: Iterable[Row]) -> None:
    """Add the `trace` with κ̄ of reported points to the rows of tasks that can be rebuilt."""
    by_problem: dict[str, list[Row]] = {}
    for row in rows:
        if row["margin"] is not None:
            by_problem.setdefault(row["problem"], []).append(row)
    for spec, group in by_problem.items():
        reported = {row["id"]: trace for row in group if (trace := store.trace(row["id"]))}
        if not reported:
            continue
        try:
            task = problem_apart(spec)
        except QcqpbenchError:
            # The file is missing, or the family is not installed.
            continue
        if isinstance(task, MaxMargin):
            for row in group:
                if row["problem_id"] == task.id:
                    row["trace"] = _evaluated(task, reported.get(row["id"], ()))


def _evaluated(task: MaxMargin, trace: Iterable[tuple[float, Array]]) -> list[tuple[float, float]]:
    """Return (seconds, κ̄) of the valid points of a trace, with rows scaled to unit length."""
    points = [
        (at, W)
        for at, W in trace
        if W.shape == (task.n, task.m) and 0 <= at < math.inf and np.isfinite(W).all() and W.any(axis=1).all()
    ]
    if not points:
        return []
    margins = task.kappa_bar(unit_rows(np.stack([W for _, W in points])))
    return [(at, float(margin)) for (at, _), margin in zip(points, margins, strict=True)]


def _add_kinds(rows: Sequence[Row]) -> None:
    """Set sense, size and best known value of each row from its problem, if that can be rebuilt.

    If two files contain the same problem, the better value is used. If no problem can be rebuilt, the value of the
    newest row is used.
    """
    tasks = {row["problem_id"] for row in rows if row["margin"] is not None or row["formulation"] is not None}
    facts: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: float(row["begun"])):
        older = facts.setdefault(row["problem_id"], {"sense": None})
        older |= {"sense": row["sense"] or older["sense"], "best_known": row["best_known"]}
    published: dict[str, list[float]] = {}
    for spec, id in dict.fromkeys((row["problem"], row["problem_id"]) for row in rows):
        problem = _rebuilt(spec, id, id in tasks)
        if problem is None:
            continue
        if isinstance(problem, QCQP):
            size = {"variables": problem.n_variables, "constraints": problem.n_constraints}
            facts[id] |= {"sense": problem.sense, **size}
        best = problem.metadata.best_known
        published.setdefault(id, []).extend([best.value] if best is not None and math.isfinite(best.value) else [])
    for id, values in published.items():
        better = min if facts[id]["sense"] == "minimize" else max
        facts[id]["best_known"] = better(values, default=None)
    for row in rows:
        row.update(facts[row["problem_id"]])


def _rebuilt(spec: str, id: str, is_task: bool) -> MaxMargin | QCQP | None:
    """Return the problem if it can be rebuilt with the same id, else None. Generated tasks are not rebuilt."""
    try:
        problem = problem_apart(spec) if not is_task or is_stored(spec) else None
    except QcqpbenchError:
        # The file is missing, or the family is not installed.
        return None
    return problem if problem is not None and problem.id == id else None


def _pytest_benchmark(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Return the benchmarks of a JSON file, its machine facts as in results files, and a text in place of a command."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        machine, commit = content.get("machine_info") or {}, content.get("commit_info") or {}
        facts = {
            "cpu": (machine.get("cpu") or {}).get("brand_raw"),
            "system": machine.get("system"),
            "python": machine.get("python_version"),
            "commit": commit.get("id"),
            "dirty": commit.get("dirty"),
        }
        benchmarks = [_benchmark(entry) for entry in content["benchmarks"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise QcqpbenchError(f"{path}: must be JSON of pytest-benchmark: {describe_error(error)}") from error
    return benchmarks, facts, f"pytest-benchmark, {path.name}"


def _benchmark(entry: Mapping[str, Any]) -> dict[str, Any]:
    extra = {name: value for name, value in (entry.get("extra_info") or {}).items() if value is not None}
    return {
        "name": str(entry["name"]),
        "group": str(entry.get("group") or ""),
        **{name: float(entry["stats"][name]) for name in ("min", "median", "stddev")},
        "rounds": int(entry["stats"]["rounds"]),
        "extra": ", ".join(
            f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in extra.items()
        ),
    }
