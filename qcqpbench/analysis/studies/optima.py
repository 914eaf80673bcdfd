"""The best optima found in the finite-size study, with their active stabilities and gaps."""

from collections.abc import Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from qcqpbench.analysis.figures.base import group_by
from qcqpbench.analysis.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.results.store import Row
from qcqpbench.run.isolation.description import problem_apart

from .runs import require_rows, with_nominal_load

Array = NDArray[np.float64]

COLORS = (PURPLE, BLUE, GREEN, ORANGE, VERMILION, SKY)
# In units of √(fc²). gip leaves active stabilities 10⁻⁹ to 10⁻⁵ above the margin; the next ones are at 10⁻⁴ or more.
ACTIVE_TOLERANCE = 1e-4
# Patterns of larger problems take minutes to generate.
_LARGEST_M = 200


def best_optima(rows: Iterable[Row]) -> list[Row]:
    """Return the row with the largest margin of each problem with n = 2, with its `gaps` and number of `active` ones.

    Problems with m > _LARGEST_M and points that are not optimal to full precision are omitted. So are points such as
    (e_a ± e_b)/√2, where all stabilities of symmetric patterns are 0.
    """
    candidates = [row for row in rows if row["facts"]["n"] == 2 and row["facts"]["m"] <= _LARGEST_M]
    candidates = [with_nominal_load(row) for row in candidates if row["point"] is not None]
    best = [max(group, key=lambda row: row["margin"]) for group in group_by(candidates, "problem_id").values()]
    optima = []
    for row in best:
        if row["termination"] == str(Termination.LOCALLY_OPTIMAL):
            gaps = _gaps(row["problem"], np.asarray(row["point"], np.float64).tobytes())
            optima.append(row | {"gaps": gaps, "active": int((gaps < ACTIVE_TOLERANCE).sum())})
    return require_rows([row for row in optima if row["active"] <= 2 * row["facts"]["m"]])


@cache
def _gaps(problem: str, point: bytes) -> Array:
    """Return the differences between stabilities and margin in units of √(fc²), in increasing order."""
    task = problem_apart(problem)
    assert isinstance(task, MaxMargin)
    stabilities = task.stabilities(unit_rows(np.frombuffer(point).reshape(task.n, task.m))).ravel()
    return np.sort(stabilities - stabilities.min()) / task.scale
