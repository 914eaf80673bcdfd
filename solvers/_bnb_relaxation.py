"""Semidefinite relaxations of max-margin tasks, for the interior-point method of branch and bound.

`qcqpbench.catalog.certificate.leaf` has the relaxation, its two formulations, and the proof of its bound. The dual
matrices F_k are linear in x = (y, λ, μ). Let E_i be their derivatives with respect to y_i and λ_r. A step of the method
needs ⟨E_i, X E_j Z⟩ for symmetric matrices X and Z, summed over k. These numbers, which are symmetric in i and j, are
computed from the blocks of order m, because most blocks of the E_i are zero or equal.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Formulation
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]
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
        The number of matrices, and their order d.
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

    @abstractmethod
    def dual_matrices(self, y: Array, weights: Array) -> list[Array]:
        """Return F_k without cuts for y and λ = `weights`; it is linear in both."""

    @abstractmethod
    def equations(self, X: list[Array], Z: list[Array]) -> tuple[Array, Array]:
        """Return ⟨E_i, X E_j Z⟩ and ⟨E_i, Z⟩, summed over k, shapes (c, c) and (c,) for c entries of y and λ."""

    @abstractmethod
    def along_products(self, matrix: int, products: Products) -> Array:
        """Return Σ⟨E_i, l rᵀ⟩ over the `products` (l, r), each of shape (rows, d); shape (c, rows), for one matrix."""

    @abstractmethod
    def weights_of(self, leading: list[Array]) -> Array:
        """Return W, shape (n, m), with rows of any length, for the vectors that the matrices stand for."""

    def point(self, matrices: list[Array]) -> Array | None:
        """Return the W, with unit rows, of the leading eigenvectors of the matrices X_k; None if a row is zero."""
        leading = []
        for X in matrices:
            values, vectors = np.linalg.eigh(X)
            leading.append(np.sqrt(max(float(values[-1]), 0.0)) * vectors[:, -1])
        W = self.weights_of(leading)
        largest = np.abs(W).max(axis=1)
        return unit_rows(W) if np.isfinite(largest).all() and largest.min() > 0 else None

    def _products(self, columns: Array, lefts: list[Array], rights: list[Array]) -> Array:
        """Return Σ L P^r R over the matrices L and R for each pattern P^r of `columns`, shape (m p, m)."""
        m = self.task.m
        left_products = np.concatenate(lefts) @ columns
        products = left_products[:m].reshape(-1, m) @ rights[0]
        for k, right in enumerate(rights[1:], 1):
            products += left_products[k * m : (k + 1) * m].reshape(-1, m) @ right
        return products

    def _gram(self, products: Array) -> Array:
        """Return ⟨P^r, Q^s⟩ for the patterns P^r and the matrices Q^s of `products`, shape (p, p)."""
        m, p = self.task.m, self.task.p
        return self.flat @ products.reshape(m, p, m).swapaxes(0, 1).reshape(p, -1).T


class SymmetricRelaxation(Relaxation):
    """Relaxation in the symmetric formulation: n = 2, symmetric patterns, positive margins."""

    formulation = "symmetric"
    matrix_count, offset_count, trace = 2, 1, 1

    def __init__(self, task: MaxMargin) -> None:
        super().__init__(task, task.labels[:, 0, None, None].astype(np.float64))
        self.order = task.m
        self.identity = np.eye(task.m)

    def dual_matrices(self, y: Array, weights: Array) -> list[Array]:
        M = (weights @ self.flat).reshape(self.order, self.order)
        offset = y[0] * self.identity
        return [offset - M, offset + M]

    def equations(self, X: list[Array], Z: list[Array]) -> tuple[Array, Array]:
        p = self.task.p
        gram = self._gram(self._products(self.columns, X, Z))
        XZ = [X[0] @ Z[0], X[1] @ Z[1]]
        H, traces = np.empty((p + 1, p + 1)), np.empty(p + 1)
        H[0, 0] = float(XZ[0].trace() + XZ[1].trace())
        H[0, 1:] = H[1:, 0] = self.flat @ (XZ[1] - XZ[0]).ravel()
        H[1:, 1:] = 0.5 * (gram + gram.T)
        traces[0] = float(Z[0].trace() + Z[1].trace())
        traces[1:] = self.flat @ (Z[1] - Z[0]).ravel()
        return H, traces

    def along_products(self, matrix: int, products: Products) -> Array:
        sign = -1.0 if matrix == 0 else 1.0
        outer = _outer(products, slice(None), slice(None))
        result = np.empty((1 + self.stability_count, len(outer)))
        np.einsum("kaa->k", outer, out=result[0])
        np.matmul(self.flat, sign * outer.reshape(len(outer), -1).T, out=result[1:])
        return result

    def weights_of(self, leading: list[Array]) -> Array:
        return np.array([leading[0] + leading[1], leading[0] - leading[1]])


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
        """Return the blocks of a matrix, shape (n, n, m, m)."""
        n, m = self.task.n, self.task.m
        return X.reshape(n, m, n, m).swapaxes(1, 2)

    def dual_matrices(self, y: Array, weights: Array) -> list[Array]:
        n, m = self.task.n, self.task.m
        F = np.zeros((n * m, n * m))
        halves = (0.5 * weights.reshape(self.labels.shape) * self.labels).T @ self.flat
        for M, (i, j) in zip(halves.reshape(-1, m, m), self.rows_of_pairs, strict=True):
            F[i, j], F[j, i] = -M, -M.T
        F.ravel()[:: n * m + 1] = np.repeat(y, m)
        return [F]

    def equations(self, X: list[Array], Z: list[Array]) -> tuple[Array, Array]:
        """Return the entries of all pairs of stabilities and offsets.

        For the stabilities of the pattern P and the rows i, j, and of the pattern Q and the rows u, v, 4⟨E, X E' Z⟩ is
        ⟨P, X_iu Q Z_vj + Z_iu Q X_vj + X_iv Qᵀ Z_uj + Z_iv Qᵀ X_uj⟩ times both labels. If the rows are the same, the
        last two terms are the transposes of each other, as matrices in P and Q.
        """
        n, R = self.task.n, self.stability_count
        x, z = self._blocks(X[0]), self._blocks(Z[0])
        N, labels = len(self.pairs), self.labels
        H, traces = np.empty((n + R, n + R)), np.empty(n + R)
        for a, (i, j) in enumerate(self.pairs):
            for b, (u, v) in enumerate(self.pairs[: a + 1]):
                products = self._products(self.columns, [x[i, u], z[i, u]], [z[v, j], x[v, j]])
                if a == b:
                    products += self._products(self.transposed, [x[i, v]], [2.0 * z[u, j]])
                else:
                    products += self._products(self.transposed, [x[i, v], z[i, v]], [z[u, j], x[u, j]])
                block = self._gram(products)
                block *= 0.25 * np.outer(labels[:, a], labels[:, b])
                H[n + a :: N, n + b :: N] = block
                if a != b:
                    H[n + b :: N, n + a :: N] = block.T
            mixed = np.array([x[i, k] @ z[k, j] + z[i, k] @ x[k, j] for k in range(n)]).reshape(n, -1)
            H[n + a :: N, :n] = -0.5 * labels[:, a, None] * (self.flat @ mixed.T)
            traces[n + a :: N] = -labels[:, a] * (self.flat @ z[i, j].ravel())
        H[:n, n:] = H[n:, :n].T
        H[:n, :n] = np.einsum("ikab,ikab->ik", x, z)
        H[n:, n:] = 0.5 * (H[n:, n:] + H[n:, n:].T)
        traces[:n] = np.einsum("iiaa->i", z)
        return H, traces

    def along_products(self, matrix: int, products: Products) -> Array:
        n, m, N = self.task.n, self.task.m, len(self.pairs)
        both = (*products, *((right, left) for left, right in products))
        count = len(products[0][0])
        result = np.empty((n + self.stability_count, count))
        diagonal = sum((left * right for left, right in products[1:]), products[0][0] * products[0][1])
        result[:n] = diagonal.reshape(count, n, m).sum(axis=2).T
        for a, (i, j) in enumerate(self.rows_of_pairs):
            outer = _outer(both, i, j).reshape(count, -1)
            result[n + a :: N] = (-0.5 * self.labels[:, a])[:, None] * (self.flat @ outer.T)
        return result

    def weights_of(self, leading: list[Array]) -> Array:
        return leading[0].reshape(self.task.n, self.task.m)


def _outer(products: Products, rows: slice, columns: slice) -> Array:
    """Return Σ l rᵀ over the `products` (l, r), restricted to `rows` of l and `columns` of r; shape (count, …, …)."""
    first, *others = products
    outer = first[0][:, rows, None] * first[1][:, None, columns]
    for left, right in others:
        outer += left[:, rows, None] * right[:, None, columns]
    return outer
