"""Assembly of quadratic functions from their terms."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from qcqpbench.errors import require

from .._arrays import locked

Indices = NDArray[np.int32]


def assemble_quadratic(terms: Sequence[ArrayLike], count: int, n: int) -> tuple[Indices, sparse.csr_array]:
    """Return the products (i, j), i ≥ j, of quadratic terms, shape (K, 2), and their (count, K) coefficient matrix.

    `terms` is (rows, i, j, values), and term k adds values[k]·x[i[k]]·x[j[k]] to function rows[k]; x has n entries.
    """
    _check_count("quadratic", terms, ("rows", "i", "j", "values"))
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
    """Return the (count, n) coefficient matrix of linear terms.

    `terms` is (rows, i, values), and term k adds values[k]·x[i[k]] to function rows[k].
    """
    _check_count("linear", terms, ("rows", "i", "values"))
    rows, i = (_integers(part, "index of a linear term") for part in terms[:2])
    _check_indices(rows, count, "the row of a linear term")
    _check_indices(i, n, "the variable of a linear term")
    return _canonical(terms[2], rows, i, (count, n))


def _check_count(name: str, terms: object, parts: tuple[str, ...]) -> None:
    """Check that the terms `name` are as many arrays as `parts`."""
    fits = isinstance(terms, Sequence | np.ndarray) and len(terms) == len(parts)
    got = f"{len(terms)} of them" if isinstance(terms, Sequence | np.ndarray) else repr(terms)[:40]
    require(fits, f"{name} must be {len(parts)} arrays ({', '.join(parts)}), got {got}")


def _integers(values: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return `values` as int64; raise QcqpbenchError unless all are whole numbers."""
    numbers = locked(values, np.float64, f"an {name}")
    wrong = numbers[~((numbers == np.round(numbers)) & np.isfinite(numbers))]
    require(wrong.size == 0, f"an {name} must be a whole number, got {next(iter(wrong), None)}")
    array: NDArray[np.int64] = locked(numbers, np.int64, name)
    return array


def _check_indices(values: NDArray[np.int64], size: int, name: str) -> None:
    """Raise QcqpbenchError unless all `values` are from 0 to `size` − 1; `name` names a value in the message."""
    wrong = values[(values < 0) | (values >= size)]
    require(wrong.size == 0, f"{name} must be from 0 to {size - 1}, got {next(iter(wrong), None)}")


def _canonical(
    values: ArrayLike, rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> sparse.csr_array:
    """Return the CSR matrix with values[k] added at (rows[k], columns[k]), without duplicates and zeros."""
    data = locked(values, np.float64, "the coefficients").copy()
    require(
        data.shape == rows.shape == columns.shape,
        f"terms must have one shape, got {data.shape}, {rows.shape}, {columns.shape}",
    )
    matrix = sparse.csr_array((data, (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
