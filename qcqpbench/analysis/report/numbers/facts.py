"""What every part of a report needs to know of the rows."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from qcqpbench.analysis import metrics
from qcqpbench.analysis.metrics import Row
from qcqpbench.catalog.spec import parse, spell
from qcqpbench.errors import QcqpbenchError
from qcqpbench.run.job import is_file
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE

_VARIED = ("load", "p", "seed", "m")


class Facts:
    """The rows with what every part of the report needs: who runs what, and how well each problem can be solved."""

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
        """The solver's runs on those of the problems that it was run on."""
        return {id: self.runs[solver, id] for id in problems if (solver, id) in self.runs}

    def is_false(self, row: Row) -> bool:
        return metrics.is_false_claim(row, self.best, self.solved)


def place(problem: str) -> dict[str, Any]:
    """Where a problem stands in its family: the variant (what is not varied), m, load, p; a file has only a name."""
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
    """The limits of some runs in words."""
    values: dict[str, set[Any]] = {"time_limit": set(), "memory_limit": set(), "threads": set(), "tolerance": set()}
    for row in rows:
        for name, seen in values.items():
            seen.add(row[name])
    seconds, memory, threads, tolerances = (
        sorted(seen, key=lambda value: value or math.inf) for seen in values.values()
    )
    usual = {*tolerances} <= {None, FEASIBILITY_TOLERANCE}
    told = () if usual else (f"feasible to {' or '.join(f'{each:g}' for each in tolerances if each is not None)}",)
    return ", ".join(
        (
            " or ".join("no time limit" if each is None else f"{each:g} s" for each in seconds) + " a run",
            " or ".join("no memory limit" if each is None else f"{each / 1e9:.3g} GB" for each in memory),
            " or ".join(map(str, threads)) + (" thread" if threads == [1] else " threads"),
            *told,
        )
    )


def limits_of_solvers(facts: Facts) -> dict[str, str]:
    """The limits of each solver that competes."""
    return {name: limits(row for row in facts.rows if metrics.label(row) == name) for name in facts.solvers}


def problem_label(row: Row) -> str:
    return str(row.get("problem_label", row["problem"]))


def scores_of(rows: Iterable[Row]) -> list[float]:
    return [value for row in rows if (value := metrics.score(row)) is not None]


def median(values: Sequence[float], count: int) -> float | None:
    """Of count values, those not given being infinite; None if it is infinite itself."""
    padded = [*values, *[math.inf] * (count - len(values))]
    middle = statistics.median(padded) if padded else math.inf
    return middle if math.isfinite(middle) else None
