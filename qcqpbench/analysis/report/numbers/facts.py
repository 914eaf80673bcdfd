"""Quantities derived from result rows that all parts of a report use."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from qcqpbench.analysis import metrics
from qcqpbench.catalog.spec import parse, spell
from qcqpbench.errors import QcqpbenchError
from qcqpbench.results.store import Row
from qcqpbench.run.job import is_file
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE

# Parameters in which the problems of one variant differ.
_VARIED = ("load", "p", "seed", "m")


class Facts:
    """Result rows of a report and quantities derived from them.

    Attributes
    ----------
    rows
        All rows, including those of skipped runs.
    runs
        Rows that were run, by (solver label, problem id).
    best
        Best known score by problem id.
    bounds
        Upper bounds on scores.
    limits
        Time limit in seconds by problem id, see `metrics.limits_of`.
    solvers
        Sorted labels of the solvers that compete, see `metrics.competes`.
    problems
        Ids of all problems.
    solved
        Ids of the problems that some run solved.
    places
        Variant, m, load and p by problem id, see `place`.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.runs = metrics.group(rows)
        self.best = metrics.best_known(rows)
        self.bounds = metrics.bounds(rows, self.best)
        self.limits = metrics.limits_of(row for row in rows if metrics.was_run(row))
        self.solvers = sorted({metrics.label(row) for row in rows if metrics.competes(row)})
        self.problems = list(dict.fromkeys(row["problem_id"] for row in rows))
        self.solved = {row["problem_id"] for row in rows if metrics.is_solved(row)}
        self.places = {row["problem_id"]: place(row["problem"]) for row in rows}

    def of(self, solver: str, problems: Iterable[str]) -> dict[str, list[Row]]:
        """Return the runs of `solver` by problem id, for those of `problems` that have any."""
        return {id: self.runs[solver, id] for id in problems if (solver, id) in self.runs}

    def is_false(self, row: Row) -> bool:
        """Return whether the solver's claim in a row is false, see `metrics.is_false_claim`."""
        return metrics.is_false_claim(row, self.best, self.solved)


def place(problem: str) -> dict[str, Any]:
    """Parse a problem's spec into variant (the spec without m, p, load, seed), m, load and p; None if not given."""
    try:
        name, parameters = (problem, {}) if is_file(problem) else parse(problem)
    except QcqpbenchError:
        name, parameters = problem, {}
    rest = {key: value for key, value in parameters.items() if key not in _VARIED}
    try:
        m = int(parameters["m"])
        inputs = m * int(parameters.get("n", 1))
        load = float(parameters["load"]) if "load" in parameters else float(parameters["p"]) / inputs
    except (KeyError, ValueError):
        return {"variant": problem if is_file(problem) else spell(name, parameters), "m": None, "load": None, "p": None}
    return {"variant": spell(name, rest), "m": m, "load": load, "p": round(load * inputs)}


def limits(rows: Iterable[Row]) -> str:
    """Return a text with the time, memory and thread limits of runs, and unusual feasibility tolerances."""
    values: dict[str, set[Any]] = {"time_limit": set(), "memory_limit": set(), "threads": set(), "tolerance": set()}
    for row in rows:
        for name, distinct in values.items():
            distinct.add(row[name])
    seconds, memory, threads, tolerances = (
        sorted(distinct, key=lambda value: value or math.inf) for distinct in values.values()
    )
    parts = [
        " or ".join("no time limit" if limit is None else f"{limit:g} s" for limit in seconds) + " a run",
        " or ".join("no memory limit" if limit is None else f"{limit / 1e9:.3g} GB" for limit in memory),
        " or ".join(map(str, threads)) + (" thread" if threads == [1] else " threads"),
    ]
    if not {*tolerances} <= {None, FEASIBILITY_TOLERANCE}:
        stated = (f"{tolerance:g}" for tolerance in tolerances if tolerance is not None)
        parts.append(f"feasible to {' or '.join(stated)}")
    return ", ".join(parts)


def limits_of_solvers(facts: Facts) -> dict[str, str]:
    """Return the text of `limits` for the runs of each competing solver."""
    return {name: limits(row for row in facts.rows if metrics.label(row) == name) for name in facts.solvers}


def problem_label(row: Row) -> str:
    """Return the label of the row's problem, by default its spec."""
    return str(row.get("problem_label", row["problem"]))


def scores_of(rows: Iterable[Row]) -> list[float]:
    """Return the scores of the rows, without those that are None."""
    return [score for row in rows if (score := metrics.score(row)) is not None]


def median(values: Sequence[float], count: int) -> float | None:
    """Return the median of `count` values, where missing values count as +inf; None if the median is infinite."""
    padded = [*values, *[math.inf] * (count - len(values))]
    middle = statistics.median(padded) if padded else math.inf
    return middle if math.isfinite(middle) else None
