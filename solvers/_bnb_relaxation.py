"""Semidefinite relaxations of max-margin tasks, for the interior-point method of branch and bound.

`qcqpbench.catalog.certificate.leaf` has the relaxation, its two formulations, and the proof of its bound. The dual
matrices F_k are linear in x = (y, λ, μ). Let E_i be their derivatives with respect to y_i and λ_r. A step of the method
needs ⟨E_i, X E_j Z⟩ for symmetric matrices X and Z, summed over k. These numbers, which are symmetric in i and j, are
computed from the blocks of order m, because most blocks of the E_i are zero or equal.

Matrices X_k have the shape (K, d, d).
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Formulation
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]
# Pairs of left and right factors, each of shape (rows, d).
Products = tuple[tuple[Array, Array], ...]


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
    def equations(self, X: Array, Z: Array) -> tuple[Array, Array]:
        """Return ⟨E_i, X E_j Z⟩ and ⟨E_i, Z⟩, summed over k, shapes (c, c) and (c,) for c entries of y and λ."""

    @abstractmethod
    def along_products(self, matrix: int, products: Products) -> Array:
        """Return Σ⟨E_i, l rᵀ⟩ over the `products` (l, r) for one of the matrices, shape (rows, c)."""

    @abstractmethod
    def weights_of(self, leading: Array) -> Array:
        """Return W, with rows of any length, for the vectors that the matrices stand for."""

    def point(self, values: Array, vectors: Array) -> Array | None:
        """Return the W, with unit rows, of the leading eigenvectors of matrices; None if a row would be zero."""
        W = self.weights_of(np.sqrt(np.maximum(values[:, -1:], 0.0)) * vectors[:, :, -1])
        largest = np.abs(W).max(axis=1)
        return unit_rows(W) if np.isfinite(largest).all() and largest.min() > 0 else None

    def _gram(self, terms: list[tuple[Array, Array, Array]]) -> Array:
        """Return ⟨P^r, Σ L P^s R⟩ over the terms (L, patterns, R), shape (p, p), s before r.

        The patterns of a term are side by side, as in `columns`.
        """
        m, p = self.task.m, self.task.p
        products = sum(((left @ columns).reshape(-1, m) @ right for left, columns, right in terms), np.zeros(()))
        gram: Array = products.reshape(m, p, m).swapaxes(0, 1).reshape(p, -1) @ self.flat.T
        return gram


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

    def equations(self, X: Array, Z: Array) -> tuple[Array, Array]:
        p = self.task.p
        gram = self._gram([(X[k], self.columns, Z[k]) for k in range(2)])
        XZ = X @ Z
        H, traces = np.empty((p + 1, p + 1)), np.empty(p + 1)
        H[0, 0] = np.einsum("kaa->", XZ)
        H[0, 1:] = H[1:, 0] = self.flat @ (XZ[1] - XZ[0]).ravel()
        H[1:, 1:] = 0.5 * (gram + gram.T)
        traces[0] = np.einsum("kaa->", Z)
        traces[1:] = self.flat @ (Z[1] - Z[0]).ravel()
        return H, traces

    def along_products(self, matrix: int, products: Products) -> Array:
        rows = len(products[0][0])
        outer = sum((left[:, :, None] * right[:, None] for left, right in products), np.zeros(()))
        result = np.empty((rows, 1 + self.stability_count))
        result[:, 0] = np.einsum("caa->c", outer)
        result[:, 1:] = (1.0 if matrix else -1.0) * (outer.reshape(rows, -1) @ self.flat.T)
        return result

    def weights_of(self, leading: Array) -> Array:
        return np.stack([leading[0] + leading[1], leading[0] - leading[1]])


class StackedRelaxation(Relaxation):
    """Relaxation in the stacked formulation, for every task."""

    formulation = "stacked"
    matrix_count = 1

    def __init__(self, task: MaxMargin) -> None:
        super().__init__(task)
        n, m = task.n, task.m
        self.offset_count, self.trace, self.order = n, n, n * m
        self.labels = task.labels.astype(np.float64)
        self.pairs = list(zip(*task.pairs, strict=True))
        self.transposed = np.ascontiguousarray(self.patterns.transpose(2, 0, 1)).reshape(m, -1)

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

    def equations(self, X: Array, Z: Array) -> tuple[Array, Array]:
        """Return the entries of all pairs of stabilities and offsets.

        For the stabilities of the pattern P and the rows i, j, and of the pattern Q and the rows u, v, 4⟨E, X E' Z⟩ is
        ⟨P, X_iu Q Z_vj + Z_iu Q X_vj + X_iv Qᵀ Z_uj + Z_iv Qᵀ X_uj⟩ times both labels. If the rows are the same, the
        last two terms are the transposes of each other, as matrices in P and Q.
        """
        n, R = self.task.n, self.stability_count
        x, z = self._blocks(X), self._blocks(Z)
        N, labels = len(self.pairs), self.labels
        H, traces = np.empty((n + R, n + R)), np.empty(n + R)
        for a, (i, j) in enumerate(self.pairs):
            for b, (u, v) in enumerate(self.pairs[: a + 1]):
                terms = [(x[i, u], self.columns, z[v, j]), (z[i, u], self.columns, x[v, j])]
                if a == b:
                    terms.append((x[i, v], self.transposed, 2.0 * z[u, j]))
                else:
                    terms += [(x[i, v], self.transposed, z[u, j]), (z[i, v], self.transposed, x[u, j])]
                block = 0.25 * np.outer(labels[:, b], labels[:, a]) * self._gram(terms)
                if a == b:
                    block = 0.5 * (block + block.T)
                H[n + b :: N, n + a :: N] = block
                H[n + a :: N, n + b :: N] = block.T
            mixed = np.array([x[i, k] @ z[k, j] + z[i, k] @ x[k, j] for k in range(n)]).reshape(n, -1)
            H[:n, n + a :: N] = -0.5 * labels[:, a] * (mixed @ self.flat.T)
            traces[n + a :: N] = -labels[:, a] * (self.flat @ z[i, j].ravel())
        H[n:, :n] = H[:n, n:].T
        H[:n, :n] = np.einsum("ikac,ikac->ik", x, z)
        traces[:n] = np.einsum("iiaa->i", z)
        return H, traces

    def along_products(self, matrix: int, products: Products) -> Array:
        n, m, N = self.task.n, self.task.m, len(self.pairs)
        rows = len(products[0][0])
        outer = sum((left[:, :, None] * right[:, None] for left, right in products), np.zeros(()))
        blocks = outer.reshape(rows, n, m, n, m)
        result = np.empty((rows, n + self.stability_count))
        result[:, :n] = np.einsum("ciaia->ci", blocks)
        for a, (i, j) in enumerate(self.pairs):
            both = blocks[:, i, :, j] + blocks[:, j, :, i].swapaxes(1, 2)
            result[:, n + a :: N] = -0.5 * self.labels[:, a] * (both.reshape(rows, -1) @ self.flat.T)
        return result

    def weights_of(self, leading: Array) -> Array:
        return leading.reshape(self.task.n, self.task.m)
