"""Semidefinite relaxations of max-margin tasks, for the interior-point method of branch and bound.

`qcqpbench.catalog.certificate.leaf` has the relaxation, its two formulations, and the proof of its bound. The dual
matrices F_k are linear in x = (y, λ, μ). Let E_i be their derivatives with respect to y_i and λ_r. A step of the method
needs ⟨E_i, V E_j V⟩ for symmetric matrices V, summed over k. With V = LLᵀ, these are the inner products of LᵀE_iL and
LᵀE_jL, which are computed from the blocks of order m, because most blocks of the E_i are zero.

Matrices X_k have the shape (K, d, d).
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Formulation
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]


class Relaxation(ABC):
    """Coefficients of the relaxation of a task without cuts, in multiples of `unit`.

    Parameters
    ----------
    task
        The task.
    signs
        Factor on the patterns, of a shape that broadcasts to theirs.

    Attributes
    ----------
    formulation
        The formulation.
    unit
        The largest absolute entry of the patterns, or 1 if all are zero.
    stability_count, offset_count
        The number R of stabilities, and the length of y.
    matrix_count, order
        The number K of matrices, and their order d.
    trace
        The sum T of the traces of all matrices.
    patterns, columns
        The patterns in multiples of `unit`, and all of them side by side, shape (m, p m).
    """

    formulation: Formulation
    matrix_count: int
    offset_count: int
    order: int
    trace: int

    def __init__(self, task: MaxMargin, signs: Array | float = 1.0) -> None:
        self.task = task
        self.unit = float(np.abs(task.patterns).max()) or 1.0
        self.stability_count = task.labels.size
        self.patterns: Array = np.ascontiguousarray(signs * (task.patterns / self.unit))
        self.flat = self.patterns.reshape(task.p, -1)
        self.columns = np.ascontiguousarray(self.patterns.swapaxes(0, 1)).reshape(task.m, -1)

    @abstractmethod
    def dual_matrices(self, y: Array, weights: Array) -> Array:
        """Return F_k without cuts for y and λ = `weights`; it is linear in both."""

    @abstractmethod
    def congruences(self, L: Array) -> Array:
        """Return LᵀE_iL for lower triangular matrices L, shape (c, K, d, d) for c entries of y and λ."""

    @abstractmethod
    def traces(self, Z: Array) -> Array:
        """Return ⟨E_i, Z⟩ for symmetric matrices Z, summed over k, shape (c,)."""

    @abstractmethod
    def weights_of(self, leading: Array) -> Array:
        """Return W, with rows of any length, for the vectors that the matrices stand for."""

    def point(self, values: Array, vectors: Array) -> Array | None:
        """Return the W, with unit rows, of the leading eigenvectors of matrices; None if a row would be zero."""
        W = self.weights_of(np.sqrt(np.maximum(values[:, -1:], 0.0)) * vectors[:, :, -1])
        largest = np.abs(W).max(axis=1)
        return unit_rows(W) if np.isfinite(largest).all() and largest.min() > 0 else None

    def _products(self, left: Array, right: Array) -> Array:
        """Return leftᵀ P right for all patterns P, shape (p, columns of left, columns of right)."""
        m, p = self.task.m, self.task.p
        products: Array = (left.T @ self.columns).reshape(-1, m) @ right
        return products.reshape(-1, p, right.shape[1]).swapaxes(0, 1)


class SymmetricRelaxation(Relaxation):
    """Relaxation in the symmetric formulation: n = 2, symmetric patterns, positive margins."""

    formulation = "symmetric"
    matrix_count, offset_count, trace = 2, 1, 1

    def __init__(self, task: MaxMargin) -> None:
        super().__init__(task, task.labels[:, 0, None, None].astype(np.float64))
        self.order = task.m
        self.identity = np.eye(task.m)

    def dual_matrices(self, y: Array, weights: Array) -> Array:
        M = (weights @ self.flat).reshape(self.order, self.order)
        return np.stack([y[0] * self.identity - M, y[0] * self.identity + M])

    def congruences(self, L: Array) -> Array:
        result = np.empty((1 + self.task.p, 2, self.order, self.order))
        result[0] = L.swapaxes(1, 2) @ L
        for k, sign in enumerate((-1.0, 1.0)):
            result[1:, k] = self._products(sign * L[k], L[k])
        return result

    def traces(self, Z: Array) -> Array:
        return np.concatenate([[np.einsum("kaa->", Z)], self.flat @ (Z[1] - Z[0]).ravel()])

    def weights_of(self, leading: Array) -> Array:
        return np.stack([leading[0] + leading[1], leading[0] - leading[1]])


class StackedRelaxation(Relaxation):
    """Relaxation in the stacked formulation, for every task."""

    formulation = "stacked"
    matrix_count = 1

    def __init__(self, task: MaxMargin) -> None:
        super().__init__(task)
        n = task.n
        self.offset_count, self.trace, self.order = n, n, n * task.m
        self.labels = task.labels.astype(np.float64)
        self.pairs = list(zip(*task.pairs, strict=True))

    def _blocks(self, X: Array) -> Array:
        """Return the blocks of a matrix, shape (n, n, m, m)."""
        n, m = self.task.n, self.task.m
        return X.reshape(n, m, n, m).transpose(0, 2, 1, 3)

    def dual_matrices(self, y: Array, weights: Array) -> Array:
        n, m = self.task.n, self.task.m
        F = np.zeros((1, n * m, n * m))
        blocks = self._blocks(F)
        halves = ((0.5 * weights.reshape(self.labels.shape) * self.labels).T @ self.flat).reshape(-1, m, m)
        for (i, j), half in zip(self.pairs, halves, strict=True):
            blocks[i, j], blocks[j, i] = -half, -half.T
        F[0].reshape(-1)[:: n * m + 1] = np.repeat(y, m)
        return F

    def congruences(self, L: Array) -> Array:
        """Return LᵀE_iL; if L_i are rows of L, that is −½ζ(L_iᵀPL_j + L_jᵀPᵀL_i) for the label ζ of the rows i, j."""
        n, m, d = self.task.n, self.task.m, self.order
        rows = L.reshape(n, m, d)
        result = np.zeros((n + self.stability_count, 1, d, d))
        result[:n, 0] = rows.swapaxes(1, 2) @ rows
        stabilities = result[n:].reshape(self.task.p, -1, d, d)
        for a, (i, j) in enumerate(self.pairs):
            # The other columns of these rows are zero.
            left, right = (i + 1) * m, (j + 1) * m
            halves = -0.5 * self.labels[:, a, None, None] * self._products(rows[i, :, :left], rows[j, :, :right])
            stabilities[:, a, :left, :right] = halves
            stabilities[:, a, :right, :left] += halves.swapaxes(1, 2)
        return result

    def traces(self, Z: Array) -> Array:
        n, blocks = self.task.n, self._blocks(Z)
        result = np.empty(n + self.stability_count)
        result[:n] = np.einsum("iiaa->i", blocks)
        for a, (i, j) in enumerate(self.pairs):
            result[n + a :: len(self.pairs)] = -self.labels[:, a] * (self.flat @ blocks[i, j].ravel())
        return result

    def weights_of(self, leading: Array) -> Array:
        return leading.reshape(self.task.n, self.task.m)
