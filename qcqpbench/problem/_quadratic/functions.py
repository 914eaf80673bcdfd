"""Values and derivatives of several quadratic functions of the same variables."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Vector = NDArray[np.float64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class QuadraticFunctions:
    """Some of the functions f_r of a QCQP, evaluated together.

    `products`, `quadratic` and `linear` are as in `QCQP`, with the rows of these functions only.
    """

    products: Indices
    quadratic: sparse.csr_array
    linear: sparse.csr_array

    def values(self, x: Vector) -> Vector:
        """Return the values at x: shape (rows,) for x of shape (n,), and (b, rows) for b points of shape (b, n)."""
        products = x.T[self.products[:, 0]] * x.T[self.products[:, 1]]
        return (self.quadratic @ products + self.linear @ x.T).T

    def derivatives(self, x: Vector) -> Vector:
        """Return the values at `x` of the E first derivatives that `derivative` lists, in its order, shape (E,)."""
        _, _, slope, offset = self.derivative
        return slope @ x + offset

    @cached_property
    def derivative(self) -> tuple[Indices, Indices, sparse.csr_array, Vector]:
        """Arrays (rows, columns, slope, offset) of the E first derivatives that are not identically zero.

        Entry e is ∂f_r/∂x_i = slope[e]·x + offset[e] with r = rows[e] and i = columns[e]; slope has shape (E, n). The
        entries are ordered by row, then column.
        """
        count, n = self.linear.shape
        nnz = self.quadratic.nnz
        row = np.repeat(np.arange(count), np.diff(self.quadratic.indptr))
        i, j = self.products[self.quadratic.indices].T
        linear = self.linear.tocoo()
        keys = np.concatenate([row * n + i, row * n + j, linear.row.astype(np.int64) * n + linear.col])
        entries, position = np.unique(keys, return_inverse=True)
        slope = sparse.csr_array(
            (np.tile(self.quadratic.data, 2), (position[: 2 * nnz], np.concatenate([j, i]))), shape=(len(entries), n)
        )
        offset = np.zeros(len(entries))
        offset[position[2 * nnz :]] = linear.data
        rows, columns = np.divmod(entries, max(n, 1))
        return rows.astype(np.int32), columns.astype(np.int32), slope, offset


def row_range(matrix: sparse.csr_array, begin: int, end: int) -> sparse.csr_array:
    """Return rows `begin` to `end` − 1 of `matrix` as a matrix that shares its data."""
    first, last = matrix.indptr[begin], matrix.indptr[end]
    parts = (matrix.data[first:last], matrix.indices[first:last], matrix.indptr[begin : end + 1] - first)
    return sparse.csr_array(parts, shape=(end - begin, matrix.shape[1]))
