"""Assembly, values and derivatives of several quadratic functions of the same variables."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from qcqpbench.errors import require

from ._arrays import locked

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
        """Return the values at x, shape (rows,), or at a batch of points (b, n), shape (b, rows)."""
        products = x.T[self.products[:, 0]] * x.T[self.products[:, 1]]
        return (self.quadratic @ products + self.linear @ x.T).T

    def derivatives(self, x: Vector) -> Vector:
        """Return the first derivatives at `x` that are not always zero, in the order of `derivative`."""
        _, _, slope, offset = self.derivative
        return slope @ x + offset

    @cached_property
    def derivative(self) -> tuple[Indices, Indices, sparse.csr_array, Vector]:
        """Rows and columns of the first derivatives that are not always zero, and their slopes and offsets in x.

        The entries are ordered by row, then column. One sparse product with x gives every gradient.
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


def assemble_quadratic(terms: Sequence[ArrayLike], count: int, n: int) -> tuple[Indices, sparse.csr_array]:
    """Return the products in the terms (rows, i, j, values) of `count` functions, and the matrix of coefficients."""
    rows, i, j = (_integers(part, "index of a quadratic term") for part in terms[:3])
    _check_indices(rows, count, "the row of a quadratic term")
    require(i.shape == j.shape == rows.shape, f"terms must have one shape, got {rows.shape}, {i.shape}, {j.shape}")
    _check_indices(np.concatenate([i, j]), n, "the variable of a quadratic term")
    keys, columns = np.unique(np.maximum(i, j) * n + np.minimum(i, j), return_inverse=True)
    products = np.stack(np.divmod(keys, max(n, 1)), axis=1).astype(np.int32)
    matrix = _canonical(terms[3], rows, columns, (count, len(keys)))
    used = np.unique(matrix.indices)
    if len(used) < len(keys):
        products, matrix = products[used], sparse.csr_array(matrix[:, used])
    return products, matrix


def assemble_linear(terms: Sequence[ArrayLike], count: int, n: int) -> sparse.csr_array:
    """Return the matrix of coefficients of the linear terms (rows, i, values) of `count` functions."""
    rows, i = (_integers(part, "index of a linear term") for part in terms[:2])
    _check_indices(rows, count, "the row of a linear term")
    _check_indices(i, n, "the variable of a linear term")
    return _canonical(terms[2], rows, i, (count, n))


def _integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return `values` as int64; raise QcqpbenchError unless all are whole numbers."""
    numbers = locked(values, np.float64, f"an {name}")
    wrong = numbers[~((numbers == np.round(numbers)) & np.isfinite(numbers))]
    require(wrong.size == 0, f"an {name} must be a whole number, got {next(iter(wrong), None)}")
    array: NDArray[np.int64] = locked(numbers, np.int64, name)
    return array


def _check_indices(values: NDArray[np.int64], size: int, name: str) -> None:
    """Check that `values` are from 0 to `size` − 1."""
    wrong = values[(values < 0) | (values >= size)]
    require(wrong.size == 0, f"{name} must be from 0 to {size - 1}, got {next(iter(wrong), None)}")


def _canonical(
    values: ArrayLike, rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> sparse.csr_array:
    """Return the matrix of the given entries in canonical form: duplicates are summed, zeros are removed."""
    data = locked(values, np.float64, "the coefficients").copy()
    require(
        data.shape == rows.shape == columns.shape,
        f"terms must have one shape, got {data.shape}, {rows.shape}, {columns.shape}",
    )
    matrix = sparse.csr_array((data, (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
