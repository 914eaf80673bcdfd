"""What a report is about: rows of results files, with κ̄ along their traces, and pytest-benchmark's results."""

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
from qcqpbench.catalog.best_known import known as best_known
from qcqpbench.catalog.registry import shipped_solvers
from qcqpbench.catalog.solver import Solver
from qcqpbench.catalog.spec import parse
from qcqpbench.catalog.status import Scope
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.results.store import Array, LeftOut, Row, Store
from qcqpbench.run.isolation.worker import problem_apart
from qcqpbench.run.job import is_file, is_stored, labels


@dataclass(frozen=True)
class Results:
    """What was read.

    rows       as `metrics` takes them, of each job the newest, in the same order whatever order they were run in
    machines   what is known of each (facts), and the commands given there; a row's `machine` is its place here
    micro      pytest-benchmark's results
    left_out   rows that were read and do not count
    repeated   rows that stand in several of the files
    """

    files: tuple[str, ...]
    rows: list[Row]
    machines: list[dict[str, Any]]
    micro: list[dict[str, Any]] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    repeated: int = 0


def read(paths: Sequence[str | Path]) -> Results:
    """Read results files and pytest-benchmark JSON files.

    What runs reported on the way is judged too; each problem with a trace is made anew for it.
    """
    require(len(paths) > 0, "a report needs at least one results file")
    rows: dict[tuple[Any, ...], Row] = {}
    machines: list[dict[str, Any]] = []
    micro: list[dict[str, Any]] = []
    repeated = 0
    with contextlib.ExitStack() as stack:
        stores: list[Store] = []
        for path in map(Path, paths):
            if path.suffix == ".json":
                benchmarks, machine, command = _pytest_benchmark(path)
                micro += benchmarks
                _place(machine, command, machines)
                continue
            stores.append(stack.enter_context(Store(path)))
            calls = stores[-1].invocations()
            for row in stores[-1].rows(all_rows=True):
                call = calls[row["invocation"]]
                # The same in every file that the run was merged into.
                name = call["uid"], row["number"], row["key"], row["begun"]
                repeated += name in rows
                rows.setdefault(name, row | {"file": len(stores) - 1, "command": call["command"]})
        kept, left_out = _newest(list(rows.values()))
        for row in kept:
            row["machine"] = _place(row["machine"], row["command"], machines)
        for number, store in enumerate(stores):
            _add_traces(store, [row for row in kept if row["file"] == number])
    order = ("problem", "solver", "version", "seed", "start", "key")
    ordered = sorted(kept, key=lambda row: [row[name] for name in order])
    _add_kinds(ordered)
    _add_names(ordered)
    _add_best_known(ordered)
    files = tuple(os.fsencode(Path(path).name).decode(errors="backslashreplace") for path in paths)
    return Results(files, ordered, machines, micro, left_out, repeated)


def _newest(rows: Sequence[Row]) -> tuple[list[Row], LeftOut]:
    """Return the rows that count, by the rules of the view `latest` of a results file, and how many do not."""
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
    """Return what tells a run from others, whatever the version of its solver."""
    names = ("problem_id", "solver", "start", "seed", "threads", "time_limit", "memory_limit")
    return tuple(row[name] for name in names)


def _add_names(rows: Iterable[Row]) -> None:
    """What problems and solvers are called, with the version where there are several, and what solvers are after."""
    problems = labels({row["problem"] for row in rows if is_file(row["problem"]) or _name(row["problem"])})
    names = {row["solver"]: _name(row["solver"]) for row in rows}
    short = labels({spec for spec, name in names.items() if name})
    # Rows before schema 6 do not say it. Solvers of other packages are not imported for a report.
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
    """Return the solvers that come with qcqpbench, if a row does not say its solver's scope."""
    return {} if all(row["scope"] for row in rows) else shipped_solvers()


def _add_best_known(rows: Iterable[Row]) -> None:
    """Margins and bounds of the list as it is now; the rows may be older."""
    for row in rows:
        if (record := best_known().get(row["problem_id"])) is not None:
            row["best_known"], row["known_bound"] = record.margin, record.bound


def _name(spec: str) -> str:
    """What a spec begins with; empty if this is no spec."""
    try:
        return parse(spec)[0]
    except QcqpbenchError:
        return ""


def _place(facts: dict[str, Any], command: str, machines: list[dict[str, Any]]) -> int:
    """Return where a machine stands among the machines, adding it and the command if they are new."""
    known = [each["facts"] for each in machines]
    if facts not in known:
        machines.append({"facts": facts, "commands": []})
    place = known.index(facts) if facts in known else len(known)
    if command not in machines[place]["commands"]:
        machines[place]["commands"].append(command)
    return place


def _add_traces(store: Store, rows: Iterable[Row]) -> None:
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
            # A file that is not here, a family that is not installed.
            continue
        if isinstance(task, MaxMargin):
            for row in group:
                if row["problem_id"] == task.id:
                    row["trace"] = _evaluated(task, reported.get(row["id"], ()))


def _evaluated(task: MaxMargin, trace: Iterable[tuple[float, Array]]) -> list[tuple[float, float]]:
    """(seconds, κ̄) of the points of a trace whose rows have directions; their lengths are not what counts."""
    points = [
        (at, W)
        for at, W in trace
        if W.shape == (task.n, task.m) and np.isfinite([at, *W.flat]).all() and W.any(axis=1).all()
    ]
    if not points:
        return []
    margins = task.kappa_bar(unit_rows(np.stack([W for _, W in points])))
    return [(at, float(margin)) for (at, _), margin in zip(points, margins, strict=True)]


def _add_kinds(rows: Sequence[Row]) -> None:
    """Sense, size and best known value as they are now, as far as problems can be read; the rows may be older.

    Of two files with the same problem the better value counts; where none can be read, that of the newest row.
    """
    tasks = {row["problem_id"] for row in rows if row["margin"] is not None or row["formulation"] is not None}
    known: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: float(row["begun"])):
        own = known.setdefault(row["problem_id"], {"sense": None})
        own |= {"sense": row["sense"] or own["sense"], "best_known": row["best_known"]}
    published: dict[str, list[float]] = {}
    for problem, id in dict.fromkeys((row["problem"], row["problem_id"]) for row in rows):
        made = _made(problem, id, id in tasks)
        if made is None:
            continue
        if isinstance(made, QCQP):
            known[id] |= {"sense": made.sense, "variables": made.n_variables, "constraints": made.n_constraints}
        best = made.metadata.best_known
        published.setdefault(id, []).extend([best.value] if best is not None and math.isfinite(best.value) else [])
    for id, values in published.items():
        better = min if known[id]["sense"] == "minimize" else max
        known[id]["best_known"] = better(values, default=None)
    for row in rows:
        row.update(known[row["problem_id"]])


def _made(problem: str, id: str, is_task: bool) -> MaxMargin | QCQP | None:
    """The problem, if it can be made here and is still the same; a task only if it is read from a file."""
    try:
        made = problem_apart(problem) if not is_task or is_stored(problem) else None
    except QcqpbenchError:
        # A file that is not here, a family that is not installed.
        return None
    return made if made is not None and made.id == id else None


def _pytest_benchmark(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """Return its benchmarks, the machine as a results file has it, and what stands for the command."""
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
        benchmarks = [
            {
                "name": str(each["name"]),
                "group": str(each.get("group") or ""),
                **{name: float(each["stats"][name]) for name in ("min", "median", "stddev")},
                "rounds": int(each["stats"]["rounds"]),
                "extra": ", ".join(
                    f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {value}"
                    for key, value in (each.get("extra_info") or {}).items()
                    if value is not None
                ),
            }
            for each in content["benchmarks"]
        ]
        return benchmarks, facts, f"pytest-benchmark, {path.name}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise QcqpbenchError(f"{path}: this is no JSON of pytest-benchmark ({type(error).__name__})") from error
