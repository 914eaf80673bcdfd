"""What a report is about: rows of results files, with κ̄ along their traces, and pytest-benchmark's results."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import QcqpbenchError, require
from ..job import load_problem
from ..maxmargin import MaxMargin
from ..progress import labels
from ..spec import parse
from ..store import Row, Store


@dataclass(frozen=True)
class Results:
    """rows as `metrics` takes them, of each job the newest; invocations by their uid; micro: pytest-benchmark's."""

    files: tuple[str, ...]
    rows: list[Row]
    invocations: dict[str, dict[str, Any]]
    micro: list[dict[str, Any]] = field(default_factory=list)


def read(paths: Sequence[str | Path], traces: bool = True) -> Results:
    """Read results files and pytest-benchmark JSON files.

    traces   judge also what runs reported on the way; each problem with a trace is made anew for it
    """
    require(len(paths) > 0, "a report needs at least one results file")
    rows: dict[str, Row] = {}
    invocations: dict[str, dict[str, Any]] = {}
    micro: list[dict[str, Any]] = []
    for path in map(Path, paths):
        if path.suffix == ".json":
            micro += _pytest_benchmark(path)
            continue
        with Store(path) as store:
            calls = store.invocations()
            invocations |= {call["uid"]: call for call in calls.values()}
            new = []
            for row in store.rows():
                row["invocation"] = calls[row["invocation"]]["uid"]
                known = rows.get(row["key"])
                if known is None or known["termination"] == "skipped" or row["begun"] > known["begun"]:
                    rows[row["key"]] = row
                    new.append(row)
            if traces:
                _add_traces(store, new)
    found = list(rows.values())
    _add_senses(found)
    names = labels({row["solver"] for row in found if _is_spec(row["solver"])})
    for row in found:
        row["label"] = names.get(row["solver"], row["solver"])
    return Results(tuple(Path(path).name for path in paths), found, invocations, micro)


def _is_spec(text: str) -> bool:
    try:
        return bool(parse(text))
    except QcqpbenchError:
        return False


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
            task = load_problem(spec)
        except QcqpbenchError:
            # A file that is not here, a family that is not installed.
            continue
        if isinstance(task, MaxMargin):
            for row in group:
                if row["problem_id"] == task.id:
                    points = reported.get(row["id"], ())
                    row["trace"] = [(at, float(task.kappa_bar(W))) for at, W in points if W.shape == (task.n, task.m)]


def _add_senses(rows: Iterable[Row]) -> None:
    """Of general QCQPs; a row does not say whether less is better."""
    senses: dict[str, str] = {}
    for row in rows:
        if row["margin"] is None and row["objective"] is not None:
            if row["problem"] not in senses:
                try:
                    senses[row["problem"]] = getattr(load_problem(row["problem"]), "sense", "minimize")
                except QcqpbenchError:
                    senses[row["problem"]] = "minimize"
            row["sense"] = senses[row["problem"]]


def _pytest_benchmark(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
        return [
            {
                "name": str(each["name"]),
                "group": str(each.get("group") or ""),
                **{name: float(each["stats"][name]) for name in ("min", "median", "stddev")},
                "rounds": int(each["stats"]["rounds"]),
                "extra": ", ".join(f"{key} {value}" for key, value in (each.get("extra_info") or {}).items()),
            }
            for each in found
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise QcqpbenchError(f"{path}: this is no JSON of pytest-benchmark ({type(error).__name__})") from error
