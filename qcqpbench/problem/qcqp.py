"""QCQP, the common problem format: one frozen value, all constraints in one sparse matrix."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from qcqpbench.errors import require

from ._arrays import digest, locked
from .metadata import Metadata

Sense = Literal["minimize", "maximize"]
Vector = NDArray[np.float64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class QCQP:
    """A quadratically constrained quadratic problem in x ∈ ℝⁿ.

        minimize or maximize   f_0(x)
        subject to             lower_r ≤ f_r(x) ≤ upper_r,   r = 1..c
                               x_lower ≤ x ≤ x_upper

        f_r(x) = Σ_k quadratic[r, k] · x_i x_j + Σ_i linear[r, i] · x_i (+ constant for r = 0),   (i, j) = products[k]

    Row 0 of ``quadratic`` (1+c, K) and ``linear`` (1+c, n) is the objective, row r the r-th constraint. ``products``
    (K, 2) lists each product of two variables that occurs anywhere once, with i ≥ j, in increasing order. An entry is
    the coefficient of x_i x_j in the polynomial: no factor ½, nothing counted twice. This form is unique: ``id`` does
    not depend on how a problem was made. Make one with `from_matrices` or `from_terms`.
    """

    sense: Sense
    products: Indices
    quadratic: sparse.csr_array
    linear: sparse.csr_array
    constant: float
    lower: Vector
    upper: Vector
    x_lower: Vector
    x_upper: Vector
    start: Vector | None = None
    variable_names: tuple[str, ...] | None = None
    constraint_names: tuple[str, ...] | None = None
    metadata: Metadata = field(default_factory=Metadata)

    def __post_init__(self) -> None:
        require(self.sense in get_args(Sense), f"sense={self.sense!r}: right is minimize or maximize")
        for name in ("lower", "upper", "x_lower", "x_upper"):
            self._lock(name, np.float64)
            shape = getattr(self, name).shape
            require(len(shape) == 1, f"{name} has shape {shape}, needed: one number for each")
        self._lock("products", np.int32)
        if self.start is not None:
            self._lock("start", np.float64)
        c, n = len(self.lower), len(self.x_lower)
        shapes = {
            "products": (self.quadratic.shape[1], 2),
            "quadratic": (1 + c, len(self.products)),
            "linear": (1 + c, n),
            "upper": (c,),
            "x_upper": (n,),
        } | ({} if self.start is None else {"start": (n,)})
        for name, shape in shapes.items():
            found = getattr(self, name).shape
            require(found == shape, f"{name} has shape {found}, {n} variables and {c} constraints need {shape}")
        for name, count in (("variable_names", n), ("constraint_names", c)):
            names = getattr(self, name)
            require(names is None or len(names) == count, f"{name} must hold {count} names")
            require(names is None or len(set(names)) == count, f"{name} must differ from each other")
        for name, matrix in (("quadratic", self.quadratic), ("linear", self.linear)):
            require(matrix.has_canonical_format, f"{name} is not in canonical form; use QCQP.from_terms")
            require(bool(np.isfinite(matrix.data).all()), f"a coefficient of {name} is not finite")
            for part in (matrix.data, matrix.indices, matrix.indptr):
                part.flags.writeable = False
        require(bool(np.isfinite(self.constant)), f"constant={self.constant} is not finite")
        i, j = self.products.T.astype(np.int64)
        increasing = bool((np.diff(i * n + j) > 0).all())
        require(
            increasing and bool((j >= 0).all() and (j <= i).all() and (i < n).all()),
            "products are not canonical",
        )
        _check_range(self.lower, self.upper, "constraint")
        _check_range(self.x_lower, self.x_upper, "variable")

    @classmethod
    def from_terms(
        cls,
        variables: int,
        *,
        quadratic: Sequence[ArrayLike] = ((), (), (), ()),
        linear: Sequence[ArrayLike] = ((), (), ()),
        lower: ArrayLike = (),
        upper: ArrayLike = (),
        constant: float = 0.0,
        sense: Sense = "minimize",
        x_lower: ArrayLike | None = None,
        x_upper: ArrayLike | None = None,
        **rest: Any,
    ) -> "QCQP":
        """A problem from its terms, in any order, repeated ones added up; row 0 is the objective.

        quadratic    rows, i, j, values: adds value · x_i x_j to f_row
        linear       rows, i, values: adds value · x_i to f_row
        """
        n = variables
        require(isinstance(n, int | np.integer) and n >= 0, f"variables={n!r} is not allowed; right is 0 or more")
        lower = locked(lower, np.float64, "lower")
        rows, i, j = (_integers(part, "index of quadratic") for part in quadratic[:3])
        _check_indices(rows, 1 + lower.size, "row of a quadratic term")
        require(i.shape == j.shape == rows.shape, f"terms disagree in length: {rows.shape}, {i.shape}, {j.shape}")
        _check_indices(np.concatenate([i, j]), n, "variable of a quadratic term")
        keys, columns = np.unique(np.maximum(i, j) * n + np.minimum(i, j), return_inverse=True)
        products = np.stack(np.divmod(keys, max(n, 1)), axis=1).astype(np.int32)
        matrix = _canonical(quadratic[3], rows, columns, (1 + lower.size, len(keys)))
        used = np.unique(matrix.indices)
        if len(used) < len(keys):
            products, matrix = products[used], sparse.csr_array(matrix[:, used])

        rows, i = (_integers(part, "index of linear") for part in linear[:2])
        _check_indices(rows, 1 + lower.size, "row of a linear term")
        _check_indices(i, n, "variable of a linear term")
        return cls(
            sense=sense,
            products=products,
            quadratic=matrix,
            linear=_canonical(linear[2], rows, i, (1 + lower.size, n)),
            constant=float(constant),
            lower=lower,
            upper=locked(upper, np.float64, "upper"),
            x_lower=np.full(n, -np.inf) if x_lower is None else locked(x_lower, np.float64, "x_lower"),
            x_upper=np.full(n, np.inf) if x_upper is None else locked(x_upper, np.float64, "x_upper"),
            **rest,
        )

    @classmethod
    def from_matrices(
        cls,
        objective: tuple[ArrayLike | None, ArrayLike | None, float],
        constraints: Sequence[tuple[ArrayLike | None, ArrayLike | None, float, float]] = (),
        **rest: Any,
    ) -> "QCQP":
        """A problem from dense matrices: the objective xᵀQx + q·x + constant as (Q, q, constant), a constraint
        lower ≤ xᵀQx + q·x ≤ upper as (Q, q, lower, upper); Q need not be symmetric, None stands for zero."""
        rows = [(objective[0], objective[1]), *((Q, q) for Q, q, _, _ in constraints)]
        sizes = {np.shape(part)[-1] for row in rows for part in row if part is not None}
        require(len(sizes) == 1, f"the matrices and vectors must share one size, found {sorted(sizes)}")
        n = sizes.pop()
        Q, q = np.zeros((len(rows), n, n)), np.zeros((len(rows), n))
        for r, (matrix, vector) in enumerate(rows):
            for target, part, shape in ((Q, matrix, (n, n)), (q, vector, (n,))):
                if part is not None:
                    require(np.shape(part) == shape, f"a matrix or vector has shape {np.shape(part)}, needed: {shape}")
                    target[r] = locked(part, np.float64, "a matrix or vector")
        return cls.from_terms(
            n,
            quadratic=(*np.nonzero(Q), Q[np.nonzero(Q)]),
            linear=(*np.nonzero(q), q[np.nonzero(q)]),
            constant=objective[2],
            lower=[low for _, _, low, _ in constraints],
            upper=[high for _, _, _, high in constraints],
            **rest,
        )

    @property
    def n_variables(self) -> int:
        return len(self.x_lower)

    @property
    def n_constraints(self) -> int:
        return len(self.lower)

    @cached_property
    def id(self) -> str:
        """sha256 of the mathematical problem: not of its names, start or metadata."""
        quadratic, linear = self.quadratic, self.linear
        return digest(
            "qcqp",
            self.sense,
            np.array(self.constant),
            quadratic.indptr.astype(np.int64),
            self.products[quadratic.indices],
            quadratic.data,
            linear.indptr.astype(np.int64),
            linear.indices.astype(np.int32),
            linear.data,
            self.lower,
            self.upper,
            self.x_lower,
            self.x_upper,
        )

    def objective(self, x: ArrayLike) -> Any:
        """f_0(x); for a batch of points (b, n) one value each."""
        return self._objective.values(self._point(x))[..., 0] + self.constant

    def values(self, x: ArrayLike) -> Vector:
        """f_1(x)..f_c(x), shape (c,); for a batch of points (b, n) shape (b, c)."""
        return self._constraints.values(self._point(x))

    def violation(self, x: ArrayLike, relative: bool = False) -> float:
        """The largest amount by which x misses a constraint or a bound; 0 when feasible, inf when not a number.

        relative: each amount divided by max(1, |bound|).
        """
        x = self._point(x)
        values = np.concatenate([self.values(x), x])
        worst = 0.0
        for bound, sign in (
            (np.concatenate([self.lower, self.x_lower]), 1),
            (np.concatenate([self.upper, self.x_upper]), -1),
        ):
            there = np.isfinite(bound)
            misses = sign * (bound - values)[there]
            if relative:
                misses /= np.maximum(1.0, np.abs(bound[there]))
            worst = np.maximum(worst, misses.max(initial=0.0))
        return float(worst) if np.isfinite(values).all() else np.inf

    def gradient(self, x: ArrayLike) -> Vector:
        """∇f_0(x), shape (n,)."""
        gradient = np.zeros(self.n_variables)
        gradient[self._objective.derivative[1]] = self._objective.derivatives(self._point(x))
        return gradient

    @property
    def jacobian_structure(self) -> tuple[Indices, Indices]:
        """Rows and columns of the entries of the Jacobian that are not always zero, by row, then column."""
        rows, columns, _, _ = self._constraints.derivative
        return rows, columns

    def jacobian_values(self, x: ArrayLike) -> Vector:
        """The entries ∂f_r/∂x_i at `jacobian_structure`."""
        return self._constraints.derivatives(self._point(x))

    def jacobian(self, x: ArrayLike) -> sparse.csr_array:
        """∂f_r/∂x_i, shape (c, n)."""
        return sparse.csr_array(
            (self.jacobian_values(x), self.jacobian_structure), shape=(self.n_constraints, self.n_variables)
        )

    @property
    def hessian_structure(self) -> tuple[Indices, Indices]:
        """Rows and columns (row ≥ column) of the Lagrangian Hessian's lower triangle: the products."""
        return self.products[:, 0], self.products[:, 1]

    def hessian_values(self, multipliers: ArrayLike, objective_factor: float = 1.0) -> Vector:
        """Entries of objective_factor·∇²f_0 + Σ_r multipliers_r ∇²f_r at `hessian_structure`; the same for all x."""
        multipliers = np.asarray(multipliers, dtype=np.float64)
        shape = self.lower.shape
        require(multipliers.shape == shape, f"multipliers have shape {multipliers.shape}, needed: {shape}")
        weights = np.concatenate([[objective_factor], multipliers])
        return (weights @ self.quadratic) * np.where(self.products[:, 0] == self.products[:, 1], 2.0, 1.0)

    def hessian(self, multipliers: ArrayLike, objective_factor: float = 1.0) -> sparse.csr_array:
        """The Lagrangian Hessian, both triangles, shape (n, n)."""
        n = self.n_variables
        lower = sparse.csr_array(
            (self.hessian_values(multipliers, objective_factor), self.hessian_structure), shape=(n, n)
        )
        return sparse.csr_array(lower + sparse.tril(lower, -1).T)

    def _lock(self, name: str, dtype: Any) -> None:
        object.__setattr__(self, name, locked(getattr(self, name), dtype, name))

    def _point(self, x: ArrayLike) -> Vector:
        x = np.asarray(x, dtype=np.float64)
        require(x.shape[-1:] == (self.n_variables,), f"x has shape {x.shape}, needed: (…, {self.n_variables})")
        return x

    @cached_property
    def _objective(self) -> "_Functions":
        return _Functions(self.products, _rows(self.quadratic, 0, 1), _rows(self.linear, 0, 1))

    @cached_property
    def _constraints(self) -> "_Functions":
        end = 1 + self.n_constraints
        return _Functions(self.products, _rows(self.quadratic, 1, end), _rows(self.linear, 1, end))


@dataclass(frozen=True, eq=False)
class _Functions:
    """Some of the functions f_r, evaluated together."""

    products: Indices
    quadratic: sparse.csr_array
    linear: sparse.csr_array

    def values(self, x: Vector) -> Vector:
        products = x.T[self.products[:, 0]] * x.T[self.products[:, 1]]
        return (self.quadratic @ products + self.linear @ x.T).T

    def derivatives(self, x: Vector) -> Vector:
        _, _, slope, offset = self.derivative
        return slope @ x + offset

    @cached_property
    def derivative(self) -> tuple[Indices, Indices, sparse.csr_array, Vector]:
        """All first derivatives that are not always zero: (row, column) of each, by row, then column, and the affine
        map from x to them, so that one sparse product with x gives every gradient."""
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


def _rows(matrix: sparse.csr_array, begin: int, end: int) -> sparse.csr_array:
    """Rows begin..end−1 of a matrix, sharing its memory."""
    first, last = matrix.indptr[begin], matrix.indptr[end]
    parts = (matrix.data[first:last], matrix.indices[first:last], matrix.indptr[begin : end + 1] - first)
    return sparse.csr_array(parts, shape=(end - begin, matrix.shape[1]))


def _integers(values: ArrayLike, what: str) -> NDArray[np.int64]:
    given = locked(values, np.float64, f"an {what}")
    require(bool((given == np.round(given)).all() and np.isfinite(given).all()), f"an {what} is no whole number")
    array: NDArray[np.int64] = locked(given, np.int64, what)
    return array


def _check_indices(values: NDArray[np.int64], size: int, what: str) -> None:
    wrong = values[(values < 0) | (values >= size)]
    require(wrong.size == 0, f"{what} out of range: {wrong[:1]} is not in 0..{size - 1}")


def _check_range(lower: Vector, upper: Vector, what: str) -> None:
    wrong = np.flatnonzero(~((lower <= upper) & (lower < np.inf) & (upper > -np.inf)))
    if wrong.size:
        first = wrong[0]
        require(False, f"{what} {first} has the range [{lower[first]}, {upper[first]}], which holds no number")


def _canonical(
    values: ArrayLike, rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> sparse.csr_array:
    data = locked(values, np.float64, "the coefficients").copy()
    require(
        data.shape == rows.shape == columns.shape,
        f"terms disagree in length: {data.shape}, {rows.shape}, {columns.shape}",
    )
    matrix = sparse.csr_array((data, (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix
