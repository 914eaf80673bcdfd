"""Quadratically constrained quadratic problems (QCQPs), the common representation of problems."""

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from qcqpbench.errors import nearest, require

from ._arrays import float_array, locked, real_number
from ._quadratic.arguments import LinearConstraints, Matrix, QuadraticConstraint, assemble_arguments
from ._quadratic.canonical_form import CanonicalForm, Indices, Sense, Vector, text_names
from ._quadratic.functions import QuadraticFunctions, row_range
from ._quadratic.terms import assemble_linear, assemble_quadratic
from .metadata import Metadata

__all__ = ["QCQP", "Sense", "Vector"]


class QCQP(CanonicalForm):
    """A quadratically constrained quadratic problem in x ∈ ℝⁿ, from dense arrays or sparse matrices.

    ::

        minimize or maximize   xᵀQx + q·x + constant
        subject to             lower ≤ xᵀQx + q·x ≤ upper   with a Q and a q for each quadratic constraint
                               lower ≤ Ax ≤ upper
                               x_lower ≤ x ≤ x_upper

    There is no factor ½: the function of Q = [[1]] is x². A matrix need not be symmetric, and may be a NumPy array or a
    SciPy sparse matrix of any format. None in place of Q or q stands for zero, and in place of a bound for no bound.

    Parameters
    ----------
    Q, q, constant
        The objective xᵀQx + q·x + constant, with Q of shape (n, n), q of shape (n,), and constant 0 by default.
    quadratic_constraints
        A tuple (Q, q, lower, upper) for each quadratic constraint, where lower and upper are numbers or None.
    linear_constraints
        A tuple (A, lower, upper) with A of shape (rows, n); each bound is a number or a vector. The linear constraints
        follow the quadratic ones.
    x_lower, x_upper
        Bounds of the variables, each a number or a vector; variables are free by default.
    sense
        "minimize" (default) or "maximize".
    start
        A starting point, shape (n,); None (default) if there is none.
    n_variables
        The number of variables n; required only if no other argument states it.
    variable_names, constraint_names
        Unique names of the n variables and of all c constraints, the quadratic ones first; None (default) for none.
    metadata
        Origin and reference values.

    Attributes
    ----------
    products
        Each product of two variables that occurs in the problem, once, as (i, j) with i ≥ j, in increasing order; shape
        (K, 2).
    quadratic, linear
        Coefficients of the products and of the variables, shapes (1+c, K) and (1+c, n); row 0 is the objective, row r
        the r-th of all c constraints.
    lower, upper
        Bounds of all constraints, shape (c,); infinite where there is none.

    Raises
    ------
    QcqpbenchError
        If an argument has a wrong shape or type, a coefficient is not finite, or a range is empty.

    Notes
    -----
    The attributes are a unique form of the problem, so that ``id`` does not depend on how it was constructed. Problems
    with the same id compare equal; names, start and metadata are not part of it.

    Examples
    --------
    Minimize x² + y² subject to x + y ≥ 2 and x ≤ 3:

    >>> inf = float("inf")
    >>> problem = QCQP([[1, 0], [0, 1]], linear_constraints=([[1, 1]], 2, None), x_upper=[3, inf])
    >>> problem
    <QCQP: minimize, 2 variables, 1 constraint (0 quadratic), id cdc0d88767d6…>
    >>> float(problem.objective([1, 1])), problem.violation([0, 0])
    (2.0, 2.0)
    """

    def __init__(
        self,
        Q: Matrix | None = None,
        q: Matrix | None = None,
        constant: float = 0.0,
        *,
        quadratic_constraints: Sequence[QuadraticConstraint] = (),
        linear_constraints: LinearConstraints | None = None,
        x_lower: ArrayLike | None = None,
        x_upper: ArrayLike | None = None,
        sense: Sense = "minimize",
        start: ArrayLike | None = None,
        n_variables: int | None = None,
        variable_names: Sequence[str] | None = None,
        constraint_names: Sequence[str] | None = None,
        metadata: Metadata | None = None,
    ) -> None:
        names = text_names(variable_names, "variable_names")
        points = (x_lower, x_upper, start)
        parts = assemble_arguments((Q, q), quadratic_constraints, linear_constraints, points, n_variables, names)
        super().__init__(
            sense=sense,
            constant=constant,
            variable_names=names,
            constraint_names=text_names(constraint_names, "constraint_names"),
            metadata=Metadata() if metadata is None else metadata,
            **parts._asdict(),
        )

    @classmethod
    def _canonical(cls, **parts: Any) -> Self:
        """Return a problem with the fields `parts` of `CanonicalForm`; matrices and read-only arrays are not copied."""
        problem = cls.__new__(cls)
        CanonicalForm.__init__(problem, **parts)
        return problem

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
            Four arrays (rows, i, j, values) of the same length; term k adds values[k]·x[i[k]]·x[j[k]] to the function
            rows[k], where 0 is the objective and r = 1, …, c the r-th constraint.
        linear
            Three arrays (rows, i, values) of the same length; term k adds values[k]·x[i[k]] to the function rows[k].
        lower, upper
            Bounds of the c constraints f_1..f_c, each of shape (c,).
        constant, sense, x_lower, x_upper, **rest
            As in `QCQP`; variables are free by default.

        Raises
        ------
        QcqpbenchError
            If an index is out of range, or the arguments do not define a valid `QCQP`.
        """
        n = variables
        is_whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
        require(is_whole and n >= 0, f"variables must be a whole number, 0 or more, got {n!r}")
        lower = locked(lower, np.float64, "lower")
        products, coefficients = assemble_quadratic(quadratic, 1 + lower.size, n)
        return cls._canonical(
            sense=sense,
            products=products,
            quadratic=coefficients,
            linear=assemble_linear(linear, 1 + lower.size, n),
            constant=constant,
            lower=lower,
            upper=locked(upper, np.float64, "upper"),
            x_lower=np.full(n, -np.inf) if x_lower is None else locked(x_lower, np.float64, "x_lower"),
            x_upper=np.full(n, np.inf) if x_upper is None else locked(x_upper, np.float64, "x_upper"),
            **rest,
        )

    def replace(self, **changes: Any) -> Self:
        """Return a copy of the problem with the given attributes replaced.

        Parameters
        ----------
        **changes
            New values by name of the attribute, such as start, sense, x_lower, constant, metadata or variable_names.

        Raises
        ------
        QcqpbenchError
            If there is no such attribute, or the values do not define a valid problem.

        Examples
        --------
        >>> QCQP(q=[1.0, 1.0]).replace(x_lower=[0.0, 0.0]).x_lower.tolist()
        [0.0, 0.0]
        """
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in changes:
            if name not in parts:
                raise nearest(name, parts, "attribute of a QCQP")
        return self._canonical(**parts | changes)

    def objective(self, x: ArrayLike) -> Any:
        """Return the objective f_0 at x, shape (n,), or its values, shape (b,), at a batch of points, shape (b, n)."""
        return self._objective.values(self._point(x))[..., 0] + self.constant

    def values(self, x: ArrayLike) -> Vector:
        """Return the constraint values f_1(x)..f_c(x), shape (c,), or (b, c) for a batch of points of shape (b, n)."""
        return self._constraints.values(self._point(x))

    def violation(self, x: ArrayLike, relative: bool = False) -> float:
        """Return the largest violation of a constraint or a bound at x.

        Parameters
        ----------
        x
            A point, shape (n,).
        relative
            Whether to divide each violation by max(1, abs(bound)); false by default.

        Returns
        -------
        float
            The largest violation: 0 if x is feasible, inf if a constraint value is not finite.
        """
        x = self._single_point(x)
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
        """Return the gradient of the objective f_0 at x, shape (n,)."""
        gradient = np.zeros(self.n_variables)
        gradient[self._objective.derivative[1]] = self._objective.derivatives(self._single_point(x))
        return gradient

    @property
    def jacobian_structure(self) -> tuple[Indices, Indices]:
        """Rows r − 1 and columns i of the entries ∂f_r/∂x_i that are not identically zero, by row, then column."""
        rows, columns, _, _ = self._constraints.derivative
        return rows, columns

    def jacobian_values(self, x: ArrayLike) -> Vector:
        """Return the Jacobian entries ∂f_r/∂x_i at `x`, in the order of `jacobian_structure`."""
        return self._constraints.derivatives(self._single_point(x))

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

        `multipliers` has shape (c,), multiplier r − 1 for constraint f_r. The entries do not depend on x.
        """
        multipliers = float_array(multipliers, "multipliers")
        shape = self.lower.shape
        require(multipliers.shape == shape, f"multipliers must have shape {shape}, got {multipliers.shape}")
        weights = np.concatenate([[real_number(objective_factor, "objective_factor")], multipliers])
        return (weights @ self.quadratic) * np.where(self.products[:, 0] == self.products[:, 1], 2.0, 1.0)

    def hessian(self, multipliers: ArrayLike, objective_factor: float = 1.0) -> sparse.csr_array:
        """Return the symmetric Hessian objective_factor·∇²f_0 + Σ_r multipliers_r ∇²f_r, shape (n, n)."""
        n = self.n_variables
        lower = sparse.csr_array(
            (self.hessian_values(multipliers, objective_factor), self.hessian_structure), shape=(n, n)
        )
        return sparse.csr_array(lower + sparse.tril(lower, -1).T)

    def _summary(self) -> dict[str, str]:
        facts = {
            "sense": self.sense,
            "variables": f"{self.n_variables}",
            "constraints": f"{self.n_constraints} ({self._count_quadratic()} quadratic)",
            "quadratic terms": f"{self.quadratic.nnz}",
            "linear terms": f"{self.linear.nnz}",
            "id": self._short_id(),
        }
        return facts if self.metadata.spec is None else {"spec": self.metadata.spec, **facts}

    def __repr__(self) -> str:
        n, c = self.n_variables, self.n_constraints
        variables = f"{n} variable{'s' * (n != 1)}"
        constraints = f"{c} constraint{'s' * (c != 1)} ({self._count_quadratic()} quadratic)"
        return f"<QCQP: {self.sense}, {variables}, {constraints}, id {self._short_id()}>"

    def _count_quadratic(self) -> int:
        """Return the number of constraints with a quadratic term."""
        return int(np.count_nonzero(np.diff(self.quadratic.indptr)[1:]))

    def _point(self, x: ArrayLike) -> Vector:
        """Return a point or a batch of points as an array."""
        x = float_array(x, "x")
        require(x.shape[-1:] == (self.n_variables,), f"x must have shape (…, {self.n_variables}), got {x.shape}")
        return x

    def _single_point(self, x: ArrayLike) -> Vector:
        x = self._point(x)
        require(x.ndim == 1, f"x must have shape ({self.n_variables},), got {x.shape}")
        return x

    @cached_property
    def _objective(self) -> QuadraticFunctions:
        return QuadraticFunctions(self.products, row_range(self.quadratic, 0, 1), row_range(self.linear, 0, 1))

    @cached_property
    def _constraints(self) -> QuadraticFunctions:
        end = 1 + self.n_constraints
        return QuadraticFunctions(self.products, row_range(self.quadratic, 1, end), row_range(self.linear, 1, end))
