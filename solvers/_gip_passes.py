"""Products of the patterns with a batch of points W, and the warm-up of the paths of gip.

A pass reads all patterns once. Sizes: b paths, n rows of W, m inputs, p patterns, N pairs of rows, R = p N stabilities.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]

_CYCLES, _STEPS_PER_ROW = 15, 8
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 2.0, 0.3
# Step of one row: length for a unit gradient at T = 1, momentum factor, and largest length.
_STEP_LENGTH, _MOMENTUM, _MAX_STEP_LENGTH = 0.1, 0.9, 0.5
# Paths whose points overlap by more than this after the warm-up reach the same optimum in 95 of 100 cases.
_MAX_OVERLAP = 0.97


class Passes:
    """Products of the patterns of a task with a batch of W, in float32 if `mixed` and `double` is False."""

    def __init__(self, task: MaxMargin, mixed: bool) -> None:
        self.task = task
        squares = np.einsum("rkl,rkl->r", task.patterns, task.patterns)
        # The typical stability: the root mean square of a stability at random W.
        self.unit = float(np.sqrt(squares.mean())) / task.m
        # Products with much smaller or larger patterns could underflow or overflow in float32.
        fits = 1e-12 < self.unit < 1e12
        self.single = task.patterns.astype(np.float32) if mixed and fits else None
        self.symmetric = all(np.array_equal(pattern, pattern.T) for pattern in task.patterns)
        self.pairs = list(zip(*task.pairs, strict=True))

    def by_pair(self, factors: Array) -> Array:
        """Return factors[:, i] · factors[:, j], shape (b, R), for the pair of each stability; `factors` is (b, n)."""
        i, j = self.task.pairs
        return np.tile(factors[:, i] * factors[:, j], self.task.p)

    def _patterns(self, double: bool) -> NDArray[Any]:
        return self.task.patterns if double or self.single is None else self.single

    def times(self, rows: Array, double: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return wᵀP^r and P^r w for each of the k rows w of `rows`, shape (k, m), both of shape (p, k, m).

        This takes one pass if all patterns P^r are symmetric, else two.
        """
        patterns = self._patterns(double)
        w = rows.astype(patterns.dtype)
        # A stack of small products is limited by memory bandwidth only; one large product with few columns is slower.
        wP = np.matmul(w, patterns)
        return wP, wP if self.symmetric else np.matmul(patterns, w.T).swapaxes(1, 2)

    def products(self, W: Array, double: bool) -> tuple[NDArray[Any], NDArray[Any], Array]:
        """Return w_iᵀP^r and P^r w_i for a batch `W`, both of shape (p, b, n, m), and the stabilities, shape (b, R)."""
        task, (b, n, m) = self.task, W.shape
        wP, Pw = (product.reshape(task.p, b, n, m) for product in self.times(W.reshape(b * n, m), double))
        w = W.astype(wP.dtype)
        g = np.empty((b, task.p, len(self.pairs)))
        for k, (i, j) in enumerate(self.pairs):
            g[:, :, k] = np.matmul(wP[:, :, i].swapaxes(0, 1), w[:, j, :, None])[..., 0]
        return wP, Pw, (g * task.labels).reshape(b, -1)

    def mixture(self, weights: Array, double: bool) -> NDArray[Any]:
        """Return Σ_r λ^r_k ζ^r_k P^r for each row λ of `weights`, shape (b, R), and each pair k; shape (b, N, m, m)."""
        task, patterns = self.task, self._patterns(double)
        signed = (weights.reshape(-1, *task.labels.shape) * task.labels).swapaxes(1, 2).reshape(-1, task.p)
        mixed = signed.astype(patterns.dtype) @ patterns.reshape(task.p, -1)
        return mixed.reshape(len(weights), -1, task.m, task.m)


class Patterns:
    """Patterns of a task in the order in which the product with many rows of W is one matrix product.

    They are in float32 if `single` is true. All arrays that are computed from them have their type.

    Attributes
    ----------
    pairs
        The pair of rows i < j of each column of the labels.
    partners, pair_of_partner
        The other rows for each row of W, and the numbers of their pairs, shape (n, n − 1).
    places
        For the first rows of all pairs, and for the second ones: the row and its place among the partners of the other.
    """

    def __init__(self, task: MaxMargin, unit: float, symmetric: bool, single: bool = False) -> None:
        self.task, self.unit, self.symmetric = task, unit, symmetric
        self.dtype: Any = np.float32 if single else np.float64
        self.limits = np.finfo(self.dtype)
        patterns: Array = task.patterns.astype(self.dtype, copy=False)
        shape = task.m, task.p * task.m
        self.flat = patterns.reshape(task.p, -1)
        self.from_left = np.ascontiguousarray(patterns.swapaxes(0, 1)).reshape(shape)
        if not symmetric:
            self.from_right = np.ascontiguousarray(patterns.transpose(2, 0, 1)).reshape(shape)
        self.labels: Array = task.labels.astype(self.dtype)
        self.pairs = list(zip(*(index.tolist() for index in task.pairs), strict=True))
        rows = range(task.n)
        self.partners = [[j for j in rows if j != i] for i in rows]
        numbers = [[self.pairs.index((min(i, j), max(i, j))) for j in self.partners[i]] for i in rows]
        self.pair_of_partner = np.array(numbers)
        sides = self.pairs, [(j, i) for i, j in self.pairs]
        self.places = [np.array([(i, self.partners[i].index(j)) for i, j in side]) for side in sides]

    def products(self, W: Array) -> tuple[Array, Array]:
        """Return w_iᵀP^r and P^r w_i for a batch `W`, both of shape (b, n, p, m)."""
        b, n, m = W.shape
        rows = W.reshape(b * n, m)
        wP = (rows @ self.from_left).reshape(b, n, self.task.p, m)
        return wP, wP if self.symmetric else (rows @ self.from_right).reshape(b, n, self.task.p, m)

    def stabilities(self, wP: Array, W: Array) -> Array:
        """Return ζ^r_ij w_iᵀP^r w_j, shape (b, R), for a batch `W` and its products `wP`."""
        g = np.empty((len(W), self.task.p, len(self.pairs)), self.dtype)
        for k, (i, j) in enumerate(self.pairs):
            g[:, :, k] = np.matmul(wP[:, i], W[:, j, :, None])[:, :, 0]
        g *= self.labels
        return g.reshape(len(W), self.labels.size)

    def mixture(self, weights: Array) -> Array:
        """Return Σ_r λ^r_k ζ^r_k P^r for each row λ of `weights`, shape (b, R), and each pair k; shape (b, N, m, m)."""
        task = self.task
        signed = (weights.reshape(-1, *self.labels.shape) * self.labels).swapaxes(1, 2).reshape(-1, task.p)
        return (signed @ self.flat).reshape(len(weights), -1, task.m, task.m)


def warm_up(passes: Passes, W: Array, smoothing: Array) -> Iterator[tuple[Array, Array]]:
    """Move a batch `W` towards the optima at the first μ; yield W and margins before each cycle and after the last.

    A cycle takes gradient steps with momentum, row by row, on the soft minimum −T ln Σ exp(−g/T) of the stabilities g.
    The temperature T falls from cycle to cycle; `smoothing` holds a factor on T for each path. While one row moves, the
    products of the patterns with the other rows do not change, so a cycle costs one pass.
    """
    task, pairs, (b, n, _) = passes.task, passes.pairs, W.shape
    wP, Pw, g = passes.products(W, False)
    # Dividing the labels by the unit gives stabilities in units of the typical stability.
    labels = task.labels.astype(wP.dtype) / wP.dtype.type(passes.unit)
    rows = [(wP[:, :, i], Pw[:, :, i]) for i in range(n)]
    w, velocity, g = W.astype(wP.dtype), np.zeros(W.shape, wP.dtype), g.reshape(b, *labels.shape) / passes.unit
    temperatures = np.geomspace(_FIRST_TEMPERATURE, _LAST_TEMPERATURE, _CYCLES)[:, None, None]
    for T in (temperatures * smoothing[:, None]).astype(wP.dtype):
        yield unit_rows(w), g.min(axis=(1, 2)) * passes.unit
        for i in range(n):
            pairs_of_row = [k for k, pair in enumerate(pairs) if i in pair]
            slopes = _slopes(rows, labels, pairs, i, pairs_of_row)
            others = np.delete(g, pairs_of_row, axis=2).reshape(b, -1)
            w[:, i], velocity[:, i], moved = _climb(slopes, others.astype(wP.dtype), T, w[:, i], velocity[:, i])
            g[:, :, pairs_of_row] = moved.reshape(b, -1, len(pairs_of_row))
            rows[i] = passes.times(w[:, i], False)
    yield unit_rows(w), g.min(axis=(1, 2)) * passes.unit


def _slopes(rows: Any, labels: Any, pairs: list[Any], i: int, pairs_of_row: list[int]) -> Any:
    """Return the gradients with respect to row `i` of the stabilities of `pairs_of_row`, shape (b, stabilities, m)."""
    p, b, m = rows[i][0].shape
    slopes = np.empty((b, p, len(pairs_of_row), m), labels.dtype)
    for place, k in enumerate(pairs_of_row):
        of_other = rows[pairs[k][1]][1] if i == pairs[k][0] else rows[pairs[k][0]][0]
        np.multiply(of_other.swapaxes(0, 1), labels[:, k, None], out=slopes[:, :, place])
    return slopes.reshape(b, -1, m)


def _climb(slopes: Any, others: Any, T: Any, w: Any, velocity: Any) -> tuple[Any, Any, Any]:
    """Take gradient steps in one row `w` (b, m) of each path; return the row, its velocity and its stabilities.

    `slopes` are the gradients of the stabilities that depend on the row; the stabilities `others` are constant.
    """
    moved = np.matmul(slopes, w[:, :, None])[:, :, 0]
    for _ in range(_STEPS_PER_ROW):
        g = np.concatenate([moved, others], axis=1)
        weights = np.exp((g.min(axis=1, keepdims=True) - g) / T)
        weights /= weights.sum(axis=1, keepdims=True)
        gradient = np.matmul(weights[:, None, : moved.shape[1]], slopes)[:, 0]
        gradient -= np.sum(gradient * w, axis=1, keepdims=True) * w
        velocity = _MOMENTUM * velocity + _STEP_LENGTH * T * gradient
        velocity *= np.minimum(1.0, _MAX_STEP_LENGTH / np.maximum(_lengths(velocity), 1e-30))
        w = w + velocity
        w /= _lengths(w)
        moved = np.matmul(slopes, w[:, :, None])[:, :, 0]
    return w, velocity, moved


def _lengths(rows: Any) -> Any:
    return np.sqrt(np.sum(rows**2, axis=1, keepdims=True))


def distinct(passes: Passes, W: Array, max_overlap: float = _MAX_OVERLAP) -> list[int]:
    """Return the indices of the points of `W` that are not close to an earlier point, up to symmetries of the task.

    Paths from close points mostly reach the same optimum.
    """
    overlaps = np.abs(np.einsum("aim,bim->ab", W, W))
    if passes.symmetric and passes.task.n == 2:
        overlaps = np.maximum(overlaps, np.abs(np.einsum("aim,bim->ab", W, W[:, ::-1])))
    kept: list[int] = []
    for k, overlap in enumerate(overlaps / passes.task.n):
        if not (overlap[kept] > max_overlap).any():
            kept.append(k)
    return kept
