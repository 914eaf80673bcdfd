"""Passes over the patterns for a batch of paths of gip, and how its paths begin."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]

_CYCLES, _ROW_STEPS, _TEMPERATURES, _PACE, _MOMENTUM, _LONGEST_STEP = 15, 8, (2.0, 0.3), 0.1, 0.9, 0.5
# Paths whose points overlap by more after the warm-up have, in 95 of 100 cases, the same optimum.
_ALIKE = 0.97
# In few dimensions n m, smoothed paths all miss some optima: every second one is smoothed less. In very few, none is
# given up.
_FEW, _VERY_FEW, _LESS = 60, 20, 0.05


class Passes:
    """What is computed by going through the patterns, for a batch of W at once; in float32 if told so."""

    def __init__(self, task: MaxMargin, mixed: bool) -> None:
        self.task = task
        squares = np.einsum("rkl,rkl->r", task.patterns, task.patterns)
        # The root mean square of a stability at random W.
        self.unit = float(np.sqrt(squares.mean())) / task.m
        fits = 1e-12 < self.unit < 1e12
        self.single = task.patterns.astype(np.float32) if mixed and fits else None
        self.symmetric = all(np.array_equal(pattern, pattern.T) for pattern in task.patterns)
        self.pairs = list(zip(*task.pairs, strict=True))
        self.few, self.very_few = (task.n * task.m <= limit for limit in (_FEW, _VERY_FEW))

    def smoothing(self, count: int) -> Array:
        """By what the first T and μ of paths are to be multiplied."""
        return np.where(self.few & (np.arange(count) % 2 == 1), _LESS, 1.0)

    def _patterns(self, double: bool) -> NDArray[Any]:
        return self.task.patterns if double or self.single is None else self.single

    def times(self, rows: Array, double: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """wᵀP^r and P^r w for rows w (k, m), shapes (p, k, m); one pass, two if the patterns are not symmetric."""
        patterns = self._patterns(double)
        w = rows.astype(patterns.dtype)
        # Stacks of small products run at the speed of memory where one product with few columns does not.
        right = np.matmul(w, patterns)
        return right, right if self.symmetric else np.matmul(patterns, w.T).swapaxes(1, 2)

    def products(self, W: Array, double: bool) -> tuple[NDArray[Any], NDArray[Any], Array]:
        """w_iᵀP^r and P^r w_i for a batch of W, shapes (p, b, n, m), and the stabilities (b, R), R = p N."""
        task, (b, n, m) = self.task, W.shape
        right, left = (each.reshape(task.p, b, n, m) for each in self.times(W.reshape(b * n, m), double))
        w = W.astype(right.dtype)
        g = np.empty((b, task.p, len(self.pairs)))
        for k, (i, j) in enumerate(self.pairs):
            g[:, :, k] = np.matmul(right[:, :, i].swapaxes(0, 1), w[:, j, :, None])[..., 0]
        return right, left, (g * task.labels).reshape(b, -1)

    def mixture(self, weights: Array, double: bool) -> NDArray[Any]:
        """Σ_r λ^r_k ζ^r_k P^r for each pair k and each row of weights (b, R), shape (b, N, m, m); one pass."""
        task, patterns = self.task, self._patterns(double)
        signed = (weights.reshape(-1, *task.labels.shape) * task.labels).swapaxes(1, 2).reshape(-1, task.p)
        mixed = signed.astype(patterns.dtype) @ patterns.reshape(task.p, -1)
        return mixed.reshape(len(weights), -1, task.m, task.m)


def warm_up(passes: Passes, W: Array) -> Iterator[tuple[Array, Array]]:
    """Towards the barrier's first optimum: gradient ascent with momentum on the soft minimum −T ln Σ exp(−g/T) of the
    stabilities, row by row, while T falls; a batch of W and their margins before each cycle over the rows, and after.

    While one row moves, the products of the others with the patterns stay: a cycle costs one pass.
    """
    task, pairs, (b, n, m) = passes.task, passes.pairs, W.shape
    right, left, g = passes.products(W, False)
    # In units of the typical stability.
    labels = task.labels.astype(right.dtype) / right.dtype.type(passes.unit)
    rows = [(right[:, :, i], left[:, :, i]) for i in range(n)]
    w, velocity, g = W.astype(right.dtype), np.zeros(W.shape, right.dtype), g.reshape(b, *labels.shape) / passes.unit
    temperatures = np.geomspace(*_TEMPERATURES, _CYCLES)[:, None, None] * passes.smoothing(b)[:, None]
    for T in temperatures.astype(right.dtype):
        yield unit_rows(w), g.min(axis=(1, 2)) * passes.unit
        for i in range(n):
            own = [k for k, pair in enumerate(pairs) if i in pair]
            slopes = np.empty((b, task.p, len(own), m), right.dtype)
            for place, k in enumerate(own):
                of_other = rows[pairs[k][1]][1] if i == pairs[k][0] else rows[pairs[k][0]][0]
                np.multiply(of_other.swapaxes(0, 1), labels[:, k, None], out=slopes[:, :, place])
            slopes = slopes.reshape(b, -1, m)
            others = np.delete(g, own, axis=2).reshape(b, -1)
            w[:, i], velocity[:, i], moved = _climb(slopes, others.astype(right.dtype), T, w[:, i], velocity[:, i])
            g[:, :, own] = moved.reshape(b, -1, len(own))
            rows[i] = passes.times(w[:, i], False)
    yield unit_rows(w), g.min(axis=(1, 2)) * passes.unit


def _climb(slopes: Any, others: Any, T: Any, w: Any, velocity: Any) -> tuple[Any, Any, Any]:
    """Some steps of one row w (b, m) of each path, with the slopes of its stabilities and with the other stabilities,
    that stay; the row, its velocity and its stabilities."""
    moved = np.matmul(slopes, w[:, :, None])[:, :, 0]
    for _ in range(_ROW_STEPS):
        g = np.concatenate([moved, others], axis=1)
        weights = np.exp((g.min(axis=1, keepdims=True) - g) / T)
        weights /= weights.sum(axis=1, keepdims=True)
        gradient = np.matmul(weights[:, None, : moved.shape[1]], slopes)[:, 0]
        gradient -= np.sum(gradient * w, axis=1, keepdims=True) * w
        velocity = _MOMENTUM * velocity + _PACE * T * gradient
        velocity *= np.minimum(1.0, _LONGEST_STEP / np.maximum(_lengths(velocity), 1e-30))
        w = w + velocity
        w /= _lengths(w)
        moved = np.matmul(slopes, w[:, :, None])[:, :, 0]
    return w, velocity, moved


def _lengths(rows: Any) -> Any:
    return np.sqrt(np.sum(rows**2, axis=1, keepdims=True))


def distinct(passes: Passes, W: Array) -> list[int]:
    """Which points of a batch are not near an earlier one, up to the task's symmetries: those would end alike."""
    overlaps = np.abs(np.einsum("aim,bim->ab", W, W))
    if passes.symmetric and passes.task.n == 2:
        overlaps = np.maximum(overlaps, np.abs(np.einsum("aim,bim->ab", W, W[:, ::-1])))
    kept: list[int] = []
    for k, overlap in enumerate(overlaps / passes.task.n):
        if passes.very_few or not (overlap[kept] > _ALIKE).any():
            kept.append(k)
    return kept
