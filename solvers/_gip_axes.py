"""Points on few axes, whose stabilities are exactly zero for many patterns; smoothed paths seldom end there."""

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import MaxMargin

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Largest number of entries of the stabilities of all pairs of rows, in `zero_point_on_axes`.
_MAX_ENTRIES = 40_000_000
_ROUNDING, _PATTERNS_PER_CHECK = 1e-12, 8


def best_pair_of_axes(task: MaxMargin) -> Array:
    """Return the W of largest margin with rows (e_a + e_b)/√2 and (e_a − e_b)/√2, e_a being unit vectors.

    The task must have n = 2. The stabilities are ½ ζ^r (P^r_aa − P^r_bb − P^r_ab + P^r_ba). They vanish for symmetric
    patterns with equal diagonals, so that no margin below zero is optimal. Smoothed paths seldom end at such a point.
    """
    worst = np.full((task.m, task.m), np.inf)
    for pattern, label in zip(task.patterns, task.labels[:, 0].tolist(), strict=True):
        diagonal = np.diag(pattern)
        np.minimum(worst, label * (diagonal[:, None] - diagonal - pattern + pattern.T), out=worst)
    np.fill_diagonal(worst, -np.inf)
    a, b = np.unravel_index(worst.argmax(), worst.shape)
    W = np.zeros((2, task.m))
    W[:, a], W[:, b] = np.sqrt(0.5), (np.sqrt(0.5), -np.sqrt(0.5))
    return W


def zero_point_on_axes(task: MaxMargin) -> Array | None:
    """Return a W without negative stabilities whose rows are e_a, (e_a + e_b)/√2 or (e_a − e_b)/√2, up to their signs.

    Return None if there is none, or if the task is too large for the search. Among sparse patterns with equal diagonals
    there often is such a point, and it is optimal if the load is above capacity.
    """
    if task.p * task.m**4 > _MAX_ENTRIES:
        return None
    a, b = np.triu_indices(task.m, 1)
    axes = np.eye(task.m)
    rows = np.concatenate([axes, np.sqrt(0.5) * (axes[a] + axes[b]), np.sqrt(0.5) * (axes[a] - axes[b])])
    fits = _fits(task, rows)
    if fits is None:
        return None
    signed = np.concatenate([rows, -rows])

    def complete(chosen: list[int], allowed: list[Mask]) -> list[int] | None:
        """Return the rows of a point that begins with the rows `chosen`; `allowed` has the masks of the other rows."""
        if not allowed:
            return chosen
        row = len(chosen)
        for choice in np.flatnonzero(allowed[0]).tolist():
            others = [mask & fits[row, row + k][choice] for k, mask in enumerate(allowed[1:], 1)]
            if all(mask.any() for mask in others):
                found = complete([*chosen, choice], others)
                if found is not None:
                    return found
        return None

    everything = np.ones(len(signed), dtype=bool)
    # All rows can change their signs together.
    point = complete([], [np.arange(len(signed)) < len(rows), *[everything] * (task.n - 1)])
    return None if point is None else signed[point]


def _fits(task: MaxMargin, rows: Array) -> dict[tuple[int, int], Mask] | None:
    """Return, for each pair of rows of W, a mask of the choices from `rows` and −`rows` without negative stabilities.

    Return None if a pair has no such choice.
    """
    pairs = list(zip(*(index.tolist() for index in task.pairs), strict=True))
    least, largest = (np.full((len(pairs), len(rows), len(rows)), value) for value in (np.inf, -np.inf))
    limit = _ROUNDING * task.scale
    for r, (pattern, labels) in enumerate(zip(task.patterns, task.labels, strict=True)):
        stabilities = rows @ pattern @ rows.T
        for k, label in enumerate(labels.tolist()):
            signed = stabilities if label == 1 else -stabilities
            np.minimum(least[k], signed, out=least[k])
            np.maximum(largest[k], signed, out=largest[k])
        if r % _PATTERNS_PER_CHECK == 0 and not ((least >= -limit) | (largest <= limit)).any(axis=(1, 2)).all():
            return None
    return {
        pair: np.block([[least[k], -largest[k]], [-largest[k], least[k]]]) >= -limit for k, pair in enumerate(pairs)
    }
