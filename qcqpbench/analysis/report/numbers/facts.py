"""Quantities derived from result rows that all parts of a report use."""

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from qcqpbench.analysis import metrics
from qcqpbench.analysis.rows import ReportRow, place
from qcqpbench.results.row import Row
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE


class Spread(NamedTuple):
    """Mean or median of some values, and their minimum and maximum."""

    middle: float
    low: float
    high: float


class Location(NamedTuple):
    """Number of problems, and the range of their loads; None if a problem has no load."""

    problems: int
    loads: tuple[float, float] | None


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
    proved
        Ids of the problems whose best known score is proved optimal, see `metrics.PROVED_GAP`.
    limits
        Time limit in seconds by problem id, see `metrics.limits_of`.
    solvers
        Labels of the solvers that compete, see `metrics.competes`: sorted, or in the order given to `order_solvers`.
    problems
        Ids of all problems.
    solved
        Ids of the problems that some run solved.
    places
        Variant, m, load and p by problem id, see `rows.place`.
    """

    def __init__(self, rows: Sequence[ReportRow]) -> None:
        self.rows = rows
        self.runs = metrics.group(rows)
        self.best = metrics.best_known(rows)
        self.bounds = metrics.bounds(rows, self.best)
        self.proved = {
            id for id, bound in self.bounds.least.items() if metrics.gap(self.best[id], bound) <= metrics.PROVED_GAP
        }
        self.limits = metrics.limits_of(row for row in rows if metrics.was_run(row))
        self.solvers = sorted({row.label for row in rows if metrics.competes(row)})
        self.problems = list(dict.fromkeys(row.problem_id for row in rows))
        self.solved = {row.problem_id for row in rows if metrics.is_solved(row)}
        self.places = {row.problem_id: place(row.problem) for row in rows}

    def order_solvers(self, order: Iterable[str]) -> None:
        """Sort `solvers` like `order`; solvers that are not in it come last."""
        places = {name: k for k, name in enumerate(order)}
        self.solvers.sort(key=lambda name: places.get(name, len(places)))

    def of(self, solver: str, problems: Iterable[str]) -> dict[str, list[ReportRow]]:
        """Return the runs of `solver` by problem id, for those of `problems` that have any."""
        return {id: self.runs[solver, id] for id in problems if (solver, id) in self.runs}

    def location(self, problems: Collection[str]) -> Location:
        """Return the number of problems and the range of their loads."""
        loads = [load for id in problems if (load := self.places[id].load) is not None]
        return Location(len(problems), (min(loads), max(loads)) if len(loads) == len(problems) > 0 else None)

    def is_false(self, row: ReportRow) -> bool:
        """Return whether the solver's claim in a row is false, see `metrics.is_false_claim`."""
        return metrics.is_false_claim(row, self.best, self.solved)


def limits(rows: Iterable[Row]) -> str:
    """Return a text with the time, memory and thread limits of runs, and unusual feasibility tolerances."""
    rows = list(rows)
    seconds = sorted({row.time_limit for row in rows})
    memory = sorted({math.inf if row.memory_limit_bytes is None else row.memory_limit_bytes for row in rows})
    threads, tolerances = sorted({row.threads for row in rows}), sorted({row.tolerance for row in rows})
    parts = [
        " or ".join("no time limit" if math.isinf(limit) else f"{limit:g} s" for limit in seconds) + " a run",
        " or ".join("no memory limit" if math.isinf(limit) else f"{limit / 1e9:.3g} GB" for limit in memory),
        " or ".join(map(str, threads)) + (" thread" if threads == [1] else " threads"),
    ]
    if not {*tolerances} <= {FEASIBILITY_TOLERANCE}:
        parts.append(f"feasible to {' or '.join(f'{tolerance:g}' for tolerance in tolerances)}")
    return ", ".join(parts)


def limits_of_solvers(facts: Facts) -> dict[str, str]:
    """Return the text of `limits` for the runs of each competing solver."""
    return {name: limits(row for row in facts.rows if row.label == name) for name in facts.solvers}


def scores_of(rows: Iterable[ReportRow]) -> list[float]:
    """Return the scores of the rows, without those that are None."""
    return [score for row in rows if (score := metrics.score(row)) is not None]


def median(values: Sequence[float], count: int) -> float | None:
    """Return the median of `count` values, where missing values count as +inf; None if the median is infinite."""
    padded = [*values, *[math.inf] * (count - len(values))]
    middle = statistics.median(padded) if padded else math.inf
    return middle if math.isfinite(middle) else None
