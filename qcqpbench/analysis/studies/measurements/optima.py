"""The best optima found in the finite-size study, with their active stabilities, gaps and multipliers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    multiplier_ratio
        κ̄² (Σl)²/(4m Σl²), where l are the multipliers of the active stabilities.
    """

    gaps: Array = field(default_factory=lambda: np.empty(0))
    active: int = 0
    multiplier_ratio: float = 0.0


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
            examined = _examine(row.problem, np.asarray(point_of(row), np.float64).tobytes())
            optima.append(extend_row(Optimum, row, examined._asdict()))
    return require_rows([row for row in optima if row.active <= 2 * row.facts["m"]])


def _margin(row: MeasuredRow) -> float:
    return -math.inf if row.margin is None else row.margin


class _Examined(NamedTuple):
    """Values of an `Optimum` that follow from patterns and point."""

    gaps: Array
    active: int
    multiplier_ratio: float


@cache
def _examine(problem: str, point: bytes) -> _Examined:
    """Compute the values from the patterns of `problem` and the point, given as bytes."""
    task = problem_apart(problem)
    assert isinstance(task, MaxMargin)
    W = unit_rows(np.frombuffer(point).reshape(task.n, task.m))
    stabilities = task.stabilities(W).ravel()
    gaps = (stabilities - stabilities.min()) / task.scale
    is_active = gaps < ACTIVE_TOLERANCE
    weights = multipliers(task, W, is_active)
    kappa_bar = stabilities.min() / task.scale
    ratio = float(kappa_bar**2 * weights.sum() ** 2 / (4 * task.m * (weights @ weights)))
    return _Examined(np.sort(gaps), int(is_active.sum()), ratio)


def multipliers(task: MaxMargin, W: Array, is_active: NDArray[np.bool_]) -> Array:
    """Return the multipliers of the active stabilities at an optimum of a task with n = 2, scaled to sum to one.

    The sum of the gradients of the stabilities on the unit spheres, weighted with the multipliers, is zero. They are
    determined by this if no more stabilities are active than generic patterns allow. They do not depend on the solver.

    Parameters
    ----------
    task
        The task.
    W
        Optimum with unit rows, shape (2, m).
    is_active
        Whether a pattern's stability is active, shape (p,).
    """
    patterns, labels = task.patterns[is_active], task.labels[is_active]
    first, second = labels * (patterns @ W[1]), labels * (W[0] @ patterns)
    tangents = [gradient - np.outer(gradient @ w, w) for gradient, w in zip((first, second), W, strict=True)]
    equations = np.vstack([np.hstack(tangents).T / task.scale, np.ones(len(labels))])
    solution, *_ = np.linalg.lstsq(equations, np.eye(len(equations))[-1], rcond=None)
    return np.asarray(solution / solution.sum())
