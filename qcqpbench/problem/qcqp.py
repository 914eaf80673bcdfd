"""Quadratically constrained quadratic problems (QCQPs), the common representation of problems."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from qcqpbench.errors import require

from ._arrays import digest, locked
from ._quadratic_functions import QuadraticFunctions, assemble_linear, assemble_quadratic, row_range
from .metadata import Metadata

Sense = Literal["minimize", "maximize"]
Vector = NDArray[np.float64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class QCQP:
    """A quadratically constrained quadratic problem in x ∈ ℝⁿ. Create one with `from_matrices` or `from_terms`.

        minimize or maximize   f_0(x)
        subject to             lower_r ≤ f_r(x) ≤ upper_r,   r = 1..c
                               x_lower ≤ x ≤ x_upper

        f_r(x) = Σ_k quadratic[r, k] · x_i x_j + Σ_i linear[r, i] · x_i (+ constant for r = 0),   (i, j) = products[k]

    An entry of ``quadratic`` is the coefficient of x_i x_j in the polynomial, without a factor ½. This form is
    unique, so that ``id`` does not depend on how a problem was constructed.

    Parameters
    ----------
    sense
        "minimize" or "maximize".
    products
        Each product of two variables that occurs in the problem, once, as (i, j) with i ≥ j, in increasing order; shape
        (K, 2).
    quadratic, linear
        Coefficients, shapes (1+c, K) and (1+c, n); row 0 is the objective, row r the r-th constraint.
    constant
        Constant of the objective.
    lower, upper
        Bounds of the constraints, shape (c,); infinite where there is none.
    x_lower, x_upper
        Bounds of the variables, shape (n,); infinite where there is none.
    start
        A starting point, shape (n,).
    variable_names, constraint_names
        Unique names of the variables and of the constraints.
    metadata
        Origin and reference values.

    Raises
    ------
    QcqpbenchError
        If shapes disagree, the matrices are not in canonical form, a coefficient is not finite, or a range is empty.

    Examples
    --------
    >>> problem = QCQP.from_matrices(([[1.0, 0.0], [0.0, 1.0]], None, 0.0), [(None, [1.0, 1.0], 2.0, float("inf"))])
    >>> float(problem.objective([1.0, 1.0])), problem.violation([0.0, 0.0])
    (2.0, 2.0)
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
        require(self.sense in get_args(Sense), f"sense must be 'minimize' or 'maximize', got {self.sense!r}")
        for name in ("lower", "upper", "x_lower", "x_upper"):
            self._lock(name, np.float64)
            shape = getattr(self, name).shape
            require(len(shape) == 1, f"{name} must have one dimension, got shape {shape}")
        self._lock("products", np.int32)
        if self.start is not None:
            self._lock("start", np.float64)
        self._check_shapes()
        self._check_names()
        self._check_coefficients()
        _check_range(self.lower, self.upper, "constraint")
        _check_range(self.x_lower, self.x_upper, "variable")

    def _check_shapes(self) -> None:
        c, n = len(self.lower), len(self.x_lower)
        shapes = {
            "products": (self.quadratic.shape[1], 2),
            "quadratic": (1 + c, len(self.products)),
            "linear": (1 + c, n),
            "upper": (c,),
            "x_upper": (n,),
        } | ({} if self.start is None else {"start": (n,)})
        for name, shape in shapes.items():
            got = getattr(self, name).shape
            require(got == shape, f"{name} must have shape {shape} for {n} variables and {c} constraints, got {got}")

    def _check_names(self) -> None:
        for name, count in (("variable_names", len(self.x_lower)), ("constraint_names", len(self.lower))):
            names = getattr(self, name)
            require(names is None or len(names) == count, f"{name} must hold {count} names, got {len(names or ())}")
            require(
                names is None or len(set(names)) == count,
                f"{name} must be unique, got {len(set(names or ()))} different names of {count}",
            )

    def _check_coefficients(self) -> None:
        for name, matrix in (("quadratic", self.quadratic), ("linear", self.linear)):
            require(
                matrix.has_canonical_format,
                f"{name} must be in canonical form, got duplicate or unsorted entries; use QCQP.from_terms",
            )
            require(bool(np.isfinite(matrix.data).all()), f"coefficients of {name} must be finite, got inf or NaN")
            for part in (matrix.data, matrix.indices, matrix.indptr):
                part.flags.writeable = False
        require(bool(np.isfinite(self.constant)), f"constant must be finite, got {self.constant}")
        n = len(self.x_lower)
        i, j = self.products.T.astype(np.int64)
        increasing = bool((np.diff(i * n + j) > 0).all())
        canonical = increasing and bool((j >= 0).all() and (j <= i).all() and (i < n).all())
        requirement = f"pairs (i, j) with {n} > i >= j >= 0 in increasing order"
        beginning = self.products[:3].tolist()
        require(canonical, f"products must be {requirement}, got {beginning} at the beginning; use QCQP.from_terms")

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
        """Create a problem from its terms, in any order; repeated terms are summed.

        Parameters
        ----------
        variables
            Number n of variables.
        quadratic
            Arrays (rows, i, j, values); each entry adds value · x_i x_j to f_row, where row 0 is the objective.
        linear
            Arrays (rows, i, values); each entry adds value · x_i to f_row.
        lower, upper
            Bounds of the constraints.
        constant, sense, x_lower, x_upper, **rest
            As in `QCQP`; variables are free by default.

        Raises
        ------
        QcqpbenchError
            If an index is out of range, or the arguments do not define a valid `QCQP`.
        """
        n = variables
        require(isinstance(n, int | np.integer) and n >= 0, f"variables must be a whole number, 0 or more, got {n!r}")
        lower = locked(lower, np.float64, "lower")
        products, coefficients = assemble_quadratic(quadratic, 1 + lower.size, n)
        return cls(
            sense=sense,
            products=products,
            quadratic=coefficients,
            linear=assemble_linear(linear, 1 + lower.size, n),
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
        """Create a problem from dense matrices, which need not be symmetric; None stands for zero.

        Parameters
        ----------
        objective
            xᵀQx + q·x + constant as (Q, q, constant).
        constraints
            lower ≤ xᵀQx + q·x ≤ upper as (Q, q, lower, upper).
        **rest
            As in `from_terms`.

        Raises
        ------
        QcqpbenchError
            If the matrices and vectors disagree in size.
        """
        rows = [(objective[0], objective[1]), *((Q, q) for Q, q, _, _ in constraints)]
        sizes = {np.shape(part)[-1] for row in rows for part in row if part is not None}
        require(len(sizes) == 1, f"all matrices and vectors must have one size, got sizes {sorted(sizes)}")
        n = sizes.pop()
        Q, q = np.zeros((len(rows), n, n)), np.zeros((len(rows), n))
        for r, (matrix, vector) in enumerate(rows):
            for target, part, shape in ((Q, matrix, (n, n)), (q, vector, (n,))):
                if part is not None:
                    require(
                        np.shape(part) == shape,
                        f"row {r} (0 is the objective) must have shape {shape}, got {np.shape(part)}",
                    )
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
        """Number of variables n."""
        return len(self.x_lower)

    @property
    def n_constraints(self) -> int:
        """Number of constraints c."""
        return len(self.lower)

    @cached_property
    def id(self) -> str:
        """Hash (sha256) of the mathematical problem, without names, start and metadata."""
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
        """Return f_0(x), or the values at a batch of points of shape (b, n), as shape (b,)."""
        return self._objective.values(self._point(x))[..., 0] + self.constant

    def values(self, x: ArrayLike) -> Vector:
        """Return f_1(x)..f_c(x), shape (c,), or shape (b, c) for a batch of points (b, n)."""
        return self._constraints.values(self._point(x))

    def violation(self, x: ArrayLike, relative: bool = False) -> float:
        """Return the largest violation of a constraint or a bound at x.

        Parameters
        ----------
        x
            A point.
        relative
            Whether to divide each violation by max(1, |bound|).

        Returns
        -------
        float
            0 if x is feasible, inf if a value is not finite.
        """
        x = self._point(x)
        values = np.concatenate([self.values(x), x])
        worst = 0.0
        for bound, sign in (
            (np.concatenate([self.lower, self.x_lower]), 1),
            (np.concatenate([self.upper, self.x_upper]), -1),
        ):
            is_finite = np.isfinite(bound)
            violations = sign * (bound - values)[is_finite]
            if relative:
                violations /= np.maximum(1.0, np.abs(bound[is_finite]))
            worst = np.maximum(worst, violations.max(initial=0.0))
        return float(worst) if np.isfinite(values).all() else np.inf

    def gradient(self, x: ArrayLike) -> Vector:
        """Return ∇f_0(x), shape (n,)."""
        gradient = np.zeros(self.n_variables)
        gradient[self._objective.derivative[1]] = self._objective.derivatives(self._point(x))
        return gradient

    @property
    def jacobian_structure(self) -> tuple[Indices, Indices]:
        """Rows and columns of the Jacobian entries that are not always zero, sorted by row, then column."""
        rows, columns, _, _ = self._constraints.derivative
        return rows, columns

    def jacobian_values(self, x: ArrayLike) -> Vector:
        """Return the Jacobian entries ∂f_r/∂x_i at `x`, in the order of `jacobian_structure`."""
        return self._constraints.derivatives(self._point(x))

    def jacobian(self, x: ArrayLike) -> sparse.csr_array:
        """Return the Jacobian ∂f_r/∂x_i of the constraints at `x`, shape (c, n)."""
        return sparse.csr_array(
            (self.jacobian_values(x), self.jacobian_structure), shape=(self.n_constraints, self.n_variables)
        )

    @property
    def hessian_structure(self) -> tuple[Indices, Indices]:
        """Rows and columns (row ≥ column) of the lower triangle of the Lagrangian Hessian, as in `products`."""
        return self.products[:, 0], self.products[:, 1]

    def hessian_values(self, multipliers: ArrayLike, objective_factor: float = 1.0) -> Vector:
        """Return the entries of objective_factor·∇²f_0 + Σ_r multipliers_r ∇²f_r, ordered as in `hessian_structure`.

        They do not depend on x.
        """
        multipliers = np.asarray(multipliers, dtype=np.float64)
        shape = self.lower.shape
        require(multipliers.shape == shape, f"multipliers must have shape {shape}, got {multipliers.shape}")
        weights = np.concatenate([[objective_factor], multipliers])
        return (weights @ self.quadratic) * np.where(self.products[:, 0] == self.products[:, 1], 2.0, 1.0)

    def hessian(self, multipliers: ArrayLike, objective_factor: float = 1.0) -> sparse.csr_array:
        """Return the Hessian of the Lagrangian, as in `hessian_values`, with both triangles, shape (n, n)."""
        n = self.n_variables
        lower = sparse.csr_array(
            (self.hessian_values(multipliers, objective_factor), self.hessian_structure), shape=(n, n)
        )
        return sparse.csr_array(lower + sparse.tril(lower, -1).T)

    def _lock(self, name: str, dtype: Any) -> None:
        object.__setattr__(self, name, locked(getattr(self, name), dtype, name))

    def _point(self, x: ArrayLike) -> Vector:
        x = np.asarray(x, dtype=np.float64)
        require(x.shape[-1:] == (self.n_variables,), f"x must have shape (…, {self.n_variables}), got {x.shape}")
        return x

    @cached_property
    def _objective(self) -> QuadraticFunctions:
        return QuadraticFunctions(self.products, row_range(self.quadratic, 0, 1), row_range(self.linear, 0, 1))

    @cached_property
    def _constraints(self) -> QuadraticFunctions:
        end = 1 + self.n_constraints
        return QuadraticFunctions(self.products, row_range(self.quadratic, 1, end), row_range(self.linear, 1, end))


def _check_range(lower: Vector, upper: Vector, name: str) -> None:
    wrong = np.flatnonzero(~((lower <= upper) & (lower < np.inf) & (upper > -np.inf)))
    if wrong.size:
        k = wrong[0]
        require(False, f"the range of {name} {k} must contain a number, got [{lower[k]}, {upper[k]}]")
