"""Assembly of a problem from dense arrays and sparse matrices; error messages name the argument."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from qcqpbench.errors import require

from .._arrays import check_real, real_array, real_number

Vector = NDArray[np.float64]
Indices = NDArray[np.int32]
Matrix: TypeAlias = ArrayLike | sparse.sparray | sparse.spmatrix
QuadraticConstraint: TypeAlias = tuple[Matrix | None, Matrix | None, float | None, float | None]
LinearConstraints: TypeAlias = tuple[Matrix, ArrayLike | None, ArrayLike | None]

_QUADRATIC_PARTS = ("Q", "q", "lower", "upper")
_LINEAR_PARTS = ("A", "lower", "upper")


class Assembled(NamedTuple):
    """The parts of a `QCQP` that its arrays and matrices determine, named as its attributes."""

    products: Indices
    quadratic: sparse.csr_array
    linear: sparse.csr_array
    lower: Vector
    upper: Vector
    x_lower: Vector
    x_upper: Vector
    start: Vector | None


class Argument(NamedTuple):
    """A dense or sparse argument, and its name in error messages; None stands for zero or for no bound."""

    name: str
    values: Any

    @classmethod
    def of(cls, name: str, values: Any) -> "Argument":
        """Return the argument `name` with these values; raise QcqpbenchError unless they are real numbers or None."""
        if values is None:
            return cls(name, None)
        if not sparse.issparse(values):
            return cls(name, real_array(values, name))
        check_real(values.dtype, name)
        return cls(name, values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values; () if there are none."""
        return () if self.values is None else self.values.shape

    def require_shape(self, required: str, fits: bool) -> None:
        """Raise QcqpbenchError unless `fits` is true; `required` is the required shape in words."""
        require(fits, f"{self.name} must have shape {required}, got {self.shape}")

    def to_csr(self) -> sparse.csr_array:
        """Return a copy of the matrix in CSR form, with sorted indices and without duplicates and zeros.

        Raise QcqpbenchError if an entry is not finite.
        """
        matrix = sparse.csr_array(self.values, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        wrong = matrix.data[~np.isfinite(matrix.data)]
        require(wrong.size == 0, f"{self.name} must be finite, got {next(iter(wrong), None)}")
        return matrix


class Function(NamedTuple):
    """The arguments Q and q of a function xᵀQx + q·x."""

    Q: Argument
    q: Argument


def assemble_arguments(
    objective: tuple[Matrix | None, Matrix | None],
    quadratic_constraints: Sequence[QuadraticConstraint],
    linear_constraints: LinearConstraints | None,
    points: tuple[ArrayLike | None, ArrayLike | None, ArrayLike | None],
    n_variables: int | None,
    variable_names: Sequence[str] | None,
) -> Assembled:
    """Return the parts of a problem, from the arguments of `QCQP`.

    Parameters
    ----------
    objective, quadratic_constraints, linear_constraints
        As in `QCQP`, without the constant of the objective.
    points
        The arguments x_lower, x_upper and start.
    n_variables, variable_names
        As in `QCQP`.
    """
    rows = _constraints(quadratic_constraints)
    A, *A_bounds = _linear_parts(linear_constraints)
    prefixes = ("", *(f"quadratic_constraints[{r}]." for r in range(len(rows))))
    functions = [_function(row, prefix) for row, prefix in zip((objective, *rows), prefixes, strict=True)]
    names = ("x_lower", "x_upper", "start")
    x_lower, x_upper, start = (Argument.of(name, values) for name, values in zip(names, points, strict=True))
    matrices = [argument for function in functions for argument in function]
    n = _count_variables(n_variables, [*matrices, A, x_lower, x_upper, start], variable_names)

    linear = _join_linear([function.q for function in functions], A, n)
    products, quadratic = _join_quadratic([function.Q for function in functions], linear.shape[0], n)
    ranges = [_scalar_range(row, f"quadratic_constraints[{r}]") for r, row in enumerate(rows)]
    ranges.append(_vector_range(A_bounds, linear.shape[0] - len(functions), lambda k: f"linear_constraints row {k}"))
    lower, upper = (np.concatenate(bounds) for bounds in zip(*ranges, strict=True))
    box = _vector_range([x_lower, x_upper], n, lambda k: f"variable {k} (x_lower, x_upper)")
    return Assembled(products, quadratic, linear, lower, upper, *box, _start(start, n))


def check_range(lower: Vector, upper: Vector, label: Callable[[int], str]) -> None:
    """Raise an error if a range [lower[k], upper[k]] contains no number; `label(k)` names range k in the message."""
    wrong = np.flatnonzero(~((lower <= upper) & (lower < np.inf) & (upper > -np.inf)))
    if wrong.size:
        k = wrong[0]
        require(False, f"the range of {label(k)} must contain a number, got [{lower[k]}, {upper[k]}]")


def _constraints(constraints: Any) -> list[QuadraticConstraint]:
    """Return the quadratic constraints as a list; raise an error unless each is a tuple (Q, q, lower, upper)."""
    requirement = "must be a list of tuples (Q, q, lower, upper)"
    require(isinstance(constraints, Sequence), f"quadratic_constraints {requirement}, got {type(constraints).__name__}")
    for r, row in enumerate(constraints):
        _check_parts(row, _QUADRATIC_PARTS, f"quadratic_constraints[{r}]")
    return list(constraints)


def _linear_parts(constraints: Any) -> list[Argument]:
    """Return the arguments [A, lower, upper] of the linear constraints; raise an error for other than three parts."""
    if constraints is None:
        constraints = (None, None, None)
    _check_parts(constraints, _LINEAR_PARTS, "linear_constraints")
    named = zip(_LINEAR_PARTS, constraints, strict=True)
    A, lower, upper = (Argument.of(f"linear_constraints.{name}", values) for name, values in named)
    bounded = lower.values is not None or upper.values is not None
    require(A.values is not None or not bounded, "linear_constraints.A must be a matrix if there are bounds, got None")
    return [A, lower, upper]


def _check_parts(parts: Any, names: tuple[str, ...], name: str) -> None:
    """Raise an error unless `parts`, the argument `name`, is a tuple or list with one entry for each of `names`."""
    is_tuple = isinstance(parts, tuple | list)
    got = f"{len(parts)} entries" if is_tuple else f"{type(parts).__name__}"
    require(is_tuple and len(parts) == len(names), f"{name} must be a tuple ({', '.join(names)}), got {got}")


def _function(parts: Sequence[Any], prefix: str) -> Function:
    """Return the function of Q = parts[0] and q = parts[1]; their names in messages begin with `prefix`."""
    return Function(Argument.of(f"{prefix}Q", parts[0]), Argument.of(f"{prefix}q", parts[1]))


def _count_variables(stated: Any, arguments: Sequence[Argument], names: Sequence[str] | None) -> int:
    """Return the stated number of variables, else the last dimension of the first array, else the number of names."""
    if stated is not None:
        is_count = isinstance(stated, int | np.integer) and not isinstance(stated, bool) and stated >= 0
        require(bool(is_count), f"n_variables must be a whole number, 0 or more, got {stated!r:.40}")
        return int(stated)
    counts = [argument.shape[-1] for argument in arguments if argument.shape]
    counts += [] if names is None else [len(names)]
    require(len(counts) > 0, "n_variables must be given if no matrix, vector or name is given, got None")
    return counts[0]


def _join_quadratic(squares: Sequence[Argument], rows: int, n: int) -> tuple[Indices, sparse.csr_array]:
    """Return the products (i, j), shape (K, 2), in the functions xᵀQx, and their coefficients, shape (rows, K).

    `squares` are the arguments Q, each (n, n). Row r holds the coefficients of squares[r]; further rows are empty.
    """
    entries = [_folded(square, n).tocoo() for square in squares]
    keys = [entry.row.astype(np.int64) * n + entry.col for entry in entries]
    products = np.unique(np.concatenate(keys))
    indices = np.concatenate([np.searchsorted(products, row_keys) for row_keys in keys]).astype(np.int32)
    counts = np.zeros(1 + rows, dtype=np.int64)
    counts[1 : 1 + len(keys)] = [len(row_keys) for row_keys in keys]
    data = np.concatenate([entry.data for entry in entries])
    matrix = sparse.csr_array((data, indices, np.cumsum(counts)), shape=(rows, len(products)))
    return np.stack(np.divmod(products, max(n, 1)), axis=1).astype(np.int32), matrix


def _folded(square: Argument, n: int) -> sparse.csr_array:
    """Return the lower triangular (n, n) matrix whose entry (i, j), i ≥ j, is the coefficient of x_i x_j in xᵀQx."""
    if square.values is None:
        return sparse.csr_array((n, n))
    square.require_shape(f"{(n, n)}", square.shape == (n, n))
    matrix = square.to_csr()
    with np.errstate(over="ignore"):
        total = sparse.tril(matrix, format="csr") + sparse.triu(matrix, 1, format="csr").T
    return Argument(square.name, total).to_csr()


def _join_linear(vectors: Sequence[Argument], matrix: Argument, n: int) -> sparse.csr_array:
    """Return the matrix with n columns whose rows are the `vectors`, each of n numbers, and then those of `matrix`."""
    blocks = [_row(vector, n) for vector in vectors]
    if matrix.values is not None:
        matrix.require_shape(f"(rows, {n})", len(matrix.shape) == 2 and matrix.shape[1] == n)
        blocks.append(matrix.to_csr())
    return sparse.vstack(blocks, format="csr")


def _row(vector: Argument, n: int) -> sparse.csr_array:
    """Return a dense vector of shape (n,), or a sparse one of shape (n,) or (1, n), as a (1, n) matrix."""
    if vector.values is None:
        return sparse.csr_array((1, n))
    is_row = sparse.issparse(vector.values) and vector.shape == (1, n)
    vector.require_shape(f"({n},)", vector.shape == (n,) or is_row)
    return Argument(vector.name, vector.values.reshape(1, n)).to_csr()


def _scalar_range(row: QuadraticConstraint, name: str) -> tuple[Vector, Vector]:
    """Return the lower and upper bounds, each of shape (1,), of a quadratic constraint called `name` in messages."""
    lower = -np.inf if row[2] is None else real_number(row[2], f"{name}.lower")
    upper = np.inf if row[3] is None else real_number(row[3], f"{name}.upper")
    bounds = np.array([lower]), np.array([upper])
    check_range(*bounds, lambda _: name)
    return bounds


def _vector_range(bounds: Sequence[Argument], count: int, label: Callable[[int], str]) -> tuple[Vector, Vector]:
    """Return the lower and upper bounds, each of shape (count,), from two numbers, vectors or None (no bound).

    `label(k)` names range k in error messages.
    """
    vectors = []
    for bound, missing in zip(bounds, (-np.inf, np.inf), strict=True):
        values = np.array(missing) if bound.values is None else bound.values
        fits = values.shape in ((), (count,)) and not sparse.issparse(values)
        require(fits, f"{bound.name} must be a number or a dense vector of shape ({count},), got shape {values.shape}")
        vectors.append(np.full(count, values, dtype=np.float64))
    lower, upper = vectors
    check_range(lower, upper, label)
    return lower, upper


def _start(start: Argument, n: int) -> Vector | None:
    """Return the starting point; raise QcqpbenchError unless it is None or n finite numbers."""
    if start.values is None:
        return None
    start.require_shape(f"({n},)", start.shape == (n,) and not sparse.issparse(start.values))
    point = np.array(start.values, dtype=np.float64)
    wrong = point[~np.isfinite(point)]
    require(wrong.size == 0, f"start must be finite, got {next(iter(wrong), None)}")
    return point
