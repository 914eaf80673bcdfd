"""The best optima found in the finite-size study, with their active stabilities and gaps."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from qcqpbench.analysis.figures.base import Array, MeasuredRow, group_by, point_of, with_points
from qcqpbench.analysis.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from qcqpbench.analysis.rows import extend_row
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.run.isolation.description import problem_apart

from .runs import require_rows, with_nominal_load

COLORS = (PURPLE, BLUE, GREEN, ORANGE, VERMILION, SKY)
# In units of √(fc²). gip leaves active stabilities 10⁻⁹ to 10⁻⁵ above the margin; the next ones are at 10⁻⁴ or more.
ACTIVE_TOLERANCE = 1e-4
# Patterns of larger problems take minutes to generate.
_LARGEST_M = 200


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Optimum(MeasuredRow):
    """Row with the largest margin of a problem.

    Attributes
    ----------
    gaps
        Differences between stabilities and margin in units of √(fc²), in increasing order.
    active
        Number of gaps below ACTIVE_TOLERANCE.
    """

    gaps: Array = field(default_factory=lambda: np.empty(0))
    active: int = 0


def best_optima(rows: Iterable[MeasuredRow]) -> list[Optimum]:
    """Return the row with the largest margin of each problem with n = 2, without unsuitable ones.

    Problems with m > _LARGEST_M and points that are not optimal to full precision are omitted. So are points such as
    (e_a ± e_b)/√2, where all stabilities of symmetric patterns are 0.
    """
    candidates = [row for row in rows if row.facts["n"] == 2 and row.facts["m"] <= _LARGEST_M]
    candidates = [with_nominal_load(row) for row in with_points(candidates)]
    best = [max(group, key=_margin) for group in group_by(candidates, "problem_id").values()]
    optima = []
    for row in best:
        if row.termination is Termination.LOCALLY_OPTIMAL:
            gaps = _gaps(row.problem, np.asarray(point_of(row), np.float64).tobytes())
            optima.append(extend_row(Optimum, row, {"gaps": gaps, "active": int((gaps < ACTIVE_TOLERANCE).sum())}))
    return require_rows([row for row in optima if row.active <= 2 * row.facts["m"]])


def _margin(row: MeasuredRow) -> float:
    return -math.inf if row.margin is None else row.margin


@cache
def _gaps(problem: str, point: bytes) -> Array:
    """Return the differences between stabilities and margin in units of √(fc²), in increasing order."""
    task = problem_apart(problem)
    assert isinstance(task, MaxMargin)
    stabilities = task.stabilities(unit_rows(np.frombuffer(point).reshape(task.n, task.m))).ravel()
    return np.sort(stabilities - stabilities.min()) / task.scale
