"""Semidefinite relaxations of max-margin tasks, for the interior-point method of branch and bound.

`qcqpbench.catalog.certificate.leaf` has the relaxation, its two formulations, and the proof of its bound. The dual
matrices F_k are linear in x = (y, λ, μ). Let E_i be their derivatives with respect to y_i and λ_r. A step of the method
needs ⟨E_i, X E_j Z⟩ for symmetric matrices X and Z, summed over k. These numbers, which are symmetric in i and j, are
computed from the blocks of order m, because most blocks of the E_i are zero or equal.

All arrays have the nodes of a batch as their first axis, of length b, and then matrices X_k the shape (K, d, d).
"""

import math
import threading
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Formulation
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]
# Pairs of left and right factors, each of shape (b, K, rows, d).
Products = tuple[tuple[Array, Array], ...]


class _Buffers(threading.local):
    """Arrays that each thread uses again: the pages of new ones take as long as the products that they hold."""

    def __init__(self) -> None:
        self._by_name: dict[str, Array] = {}

    def array(self, name: str, *shape: int) -> Array:
        """Return an array with any entries, which the next call with the same name overwrites."""
        size = math.prod(shape)
        if name not in self._by_name or self._by_name[name].size < size:
            self._by_name[name] = np.empty(size)
        return self._by_name[name][:size].reshape(shape)


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
        patterns = signs * (task.patterns / self.unit)
        self.flat = patterns.reshape(task.p, -1)
        # All patterns side by side, shape (m, p m).
        self.columns = np.ascontiguousarray(patterns.swapaxes(0, 1)).reshape(task.m, -1)
        self._buffers = _Buffers()

    @abstractmethod
    def dual_matrices(self, y: Array, weights: Array) -> Array:
        """Return F_k without cuts for y, shape (b, ny), and λ = `weights`, shape (b, R); it is linear in both."""

    @abstractmethod
    def equations(self, X: Array, Z: Array) -> tuple[Array, Array]:
        """Return ⟨E_i, X E_j Z⟩ and ⟨E_i, Z⟩, summed over k, shapes (b, c, c) and (b, c) for c entries of y and λ."""

    @abstractmethod
    def along_products(self, products: Products) -> Array:
        """Return Σ⟨E_i, l rᵀ⟩ over the `products` (l, r) and k, shape (b, rows, c). Only one k of a row is not zero."""

    @abstractmethod
    def weights_of(self, leading: Array) -> Array:
        """Return W, shape (b, n, m), with rows of any length, for the vectors that the matrices stand for."""

    def points(self, matrices: Array) -> Array:
        """Return the W, with unit rows, of the leading eigenvectors of matrices; those with zero rows are left out."""
        values, vectors = np.linalg.eigh(matrices)
        W = self.weights_of(np.sqrt(np.maximum(values[:, :, -1:], 0.0)) * vectors[:, :, :, -1])
        largest = np.abs(W).max(axis=2)
        return unit_rows(W[np.isfinite(largest).all(axis=1) & (largest.min(axis=1) > 0)])

    def _products(self, terms: list[tuple[Array, Array, Array]]) -> Array:
        """Return Σ L P^r R over the terms (L, patterns, R) for each pattern P^r, shape (b, m p, m), in a buffer.

        L and R have the shape (b, m, m). The patterns are side by side, as in `columns`.
        """
        m, p, batch = self.task.m, self.task.p, len(terms[0][0])
        left_products = self._buffers.array("left_products", batch * m, p * m)
        products, summand = (self._buffers.array(name, batch, m * p, m) for name in ("products", "summand"))
        for k, (left, columns, right) in enumerate(terms):
            np.matmul(left.reshape(-1, m), columns, out=left_products)
            np.matmul(left_products.reshape(batch, -1, m), right, out=summand if k else products)
            if k:
                np.add(products, summand, out=products)
        return products

    def _gram(self, products: Array) -> Array:
        """Return ⟨P^r, Q^s⟩ for the patterns P^r and the matrices Q^s of `products`, shape (b, p, p), s before r."""
        m, p = self.task.m, self.task.p
        by_pattern = self._buffers.array("by_pattern", len(products), p, m, m)
        np.copyto(by_pattern, products.reshape(-1, m, p, m).swapaxes(1, 2))
        return (by_pattern.reshape(-1, m * m) @ self.flat.T).reshape(-1, p, p)

    def _outer(self, products: list[tuple[Array, Array]], rows: slice, columns: slice) -> Array:
        """Return Σ l rᵀ over the `products` (l, r), restricted to `rows` of l and `columns` of r, in a buffer.

        Its shape is (b, cuts, rows, columns).
        """
        for k, (left, right) in enumerate(products):
            column, row = left[:, :, rows, None], right[:, :, None, columns]
            if k == 0:
                shape = (*column.shape[:3], row.shape[3])
                outer, summand = (self._buffers.array(name, *shape) for name in ("outer", "term"))
            np.multiply(column, row, out=summand if k else outer)
            if k:
                np.add(outer, summand, out=outer)
        return outer


class SymmetricRelaxation(Relaxation):
    """Relaxation in the symmetric formulation: n = 2, symmetric patterns, positive margins."""

    formulation = "symmetric"
    matrix_count, offset_count, trace = 2, 1, 1

    def __init__(self, task: MaxMargin) -> None:
        super().__init__(task, task.labels[:, 0, None, None].astype(np.float64))
        self.order = task.m
        self.identity = np.eye(task.m)

    def dual_matrices(self, y: Array, weights: Array) -> Array:
        M = (weights @ self.flat).reshape(-1, self.order, self.order)
        offset = y[:, :, None] * self.identity
        F = np.empty((len(y), 2, self.order, self.order))
        np.subtract(offset, M, out=F[:, 0])
        np.add(offset, M, out=F[:, 1])
        return F

    def equations(self, X: Array, Z: Array) -> tuple[Array, Array]:
        batch, p = len(X), self.task.p
        gram = self._gram(self._products([(X[:, k], self.columns, Z[:, k]) for k in range(2)]))
        XZ = X @ Z
        H, traces = np.empty((batch, p + 1, p + 1)), np.empty((batch, p + 1))
        H[:, 0, 0] = np.einsum("bkaa->b", XZ)
        H[:, 0, 1:] = H[:, 1:, 0] = (XZ[:, 1] - XZ[:, 0]).reshape(batch, -1) @ self.flat.T
        np.add(gram, gram.swapaxes(1, 2), out=H[:, 1:, 1:])
        H[:, 1:, 1:] *= 0.5
        traces[:, 0] = np.einsum("bkaa->b", Z)
        traces[:, 1:] = (Z[:, 1] - Z[:, 0]).reshape(batch, -1) @ self.flat.T
        return H, traces

    def along_products(self, products: Products) -> Array:
        batch, _, rows, d = products[0][0].shape
        signed = [(left[:, 1] - left[:, 0], right.sum(axis=1)) for left, right in products]
        outer = self._outer(signed, slice(None), slice(None))
        result = np.empty((batch, rows, 1 + self.stability_count))
        result[:, :, 0] = sum(np.einsum("bkca,bkca->bc", left, right) for left, right in products)
        np.matmul(outer.reshape(batch, rows, d * d), self.flat.T, out=result[:, :, 1:])
        return result

    def weights_of(self, leading: Array) -> Array:
        return np.stack([leading[:, 0] + leading[:, 1], leading[:, 0] - leading[:, 1]], axis=1)


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
        self.rows_of_pairs = [(slice(i * m, (i + 1) * m), slice(j * m, (j + 1) * m)) for i, j in self.pairs]
        self.transposed = np.ascontiguousarray(self.flat.reshape(-1, m, m).transpose(2, 0, 1)).reshape(m, -1)

    def _blocks(self, X: Array) -> Array:
        """Return the blocks of matrices, shape (n, n, b, m, m)."""
        n, m = self.task.n, self.task.m
        return np.ascontiguousarray(X.reshape(-1, n, m, n, m).transpose(1, 3, 0, 2, 4))

    def dual_matrices(self, y: Array, weights: Array) -> Array:
        n, m = self.task.n, self.task.m
        batch, d = len(y), n * m
        F = np.zeros((batch, 1, d, d))
        signed = 0.5 * weights.reshape(batch, *self.labels.shape) * self.labels
        halves = (signed.swapaxes(1, 2) @ self.flat).reshape(batch, -1, m, m)
        for pair, (i, j) in enumerate(self.rows_of_pairs):
            F[:, 0, i, j] = -halves[:, pair]
            F[:, 0, j, i] = -halves[:, pair].swapaxes(1, 2)
        F.reshape(batch, -1)[:, :: d + 1] = np.repeat(y, m, axis=1)
        return F

    def equations(self, X: Array, Z: Array) -> tuple[Array, Array]:
        """Return the entries of all pairs of stabilities and offsets.

        For the stabilities of the pattern P and the rows i, j, and of the pattern Q and the rows u, v, 4⟨E, X E' Z⟩ is
        ⟨P, X_iu Q Z_vj + Z_iu Q X_vj + X_iv Qᵀ Z_uj + Z_iv Qᵀ X_uj⟩ times both labels. If the rows are the same, the
        last two terms are the transposes of each other, as matrices in P and Q.
        """
        n, R, batch = self.task.n, self.stability_count, len(X)
        x, z = self._blocks(X), self._blocks(Z)
        N, labels = len(self.pairs), self.labels
        H, traces = np.empty((batch, n + R, n + R)), np.empty((batch, n + R))
        for a, (i, j) in enumerate(self.pairs):
            for b, (u, v) in enumerate(self.pairs[: a + 1]):
                terms = [(x[i, u], self.columns, z[v, j]), (z[i, u], self.columns, x[v, j])]
                if a == b:
                    terms.append((x[i, v], self.transposed, 2.0 * z[u, j]))
                else:
                    terms += [(x[i, v], self.transposed, z[u, j]), (z[i, v], self.transposed, x[u, j])]
                block = self._gram(self._products(terms))
                block *= 0.25 * np.outer(labels[:, b], labels[:, a])
                H[:, n + b :: N, n + a :: N] = block
                if a != b:
                    H[:, n + a :: N, n + b :: N] = block.swapaxes(1, 2)
            mixed = np.stack([x[i, k] @ z[k, j] + z[i, k] @ x[k, j] for k in range(n)], axis=1).reshape(batch, n, -1)
            H[:, :n, n + a :: N] = -0.5 * labels[:, a] * (mixed @ self.flat.T)
            traces[:, n + a :: N] = -labels[:, a] * (z[i, j].reshape(batch, -1) @ self.flat.T)
        H[:, n:, :n] = H[:, :n, n:].swapaxes(1, 2)
        H[:, :n, :n] = np.einsum("ikbac,ikbac->bik", x, z)
        among = H[:, n:, n:]
        H[:, n:, n:] = 0.5 * (among + among.swapaxes(1, 2))
        traces[:, :n] = np.einsum("iibaa->bi", z)
        return H, traces

    def along_products(self, products: Products) -> Array:
        n, m, N = self.task.n, self.task.m, len(self.pairs)
        batch, _, rows, _ = products[0][0].shape
        ordered = [(left[:, 0], right[:, 0]) for left, right in products]
        both = [*ordered, *((right, left) for left, right in ordered)]
        result = np.empty((batch, rows, n + self.stability_count))
        diagonal = sum((left * right for left, right in ordered[1:]), ordered[0][0] * ordered[0][1])
        result[:, :, :n] = diagonal.reshape(batch, rows, n, m).sum(axis=3)
        for a, (i, j) in enumerate(self.rows_of_pairs):
            outer = self._outer(both, i, j).reshape(batch, rows, -1)
            result[:, :, n + a :: N] = -0.5 * self.labels[:, a] * (outer @ self.flat.T)
        return result

    def weights_of(self, leading: Array) -> Array:
        return leading.reshape(-1, self.task.n, self.task.m)
