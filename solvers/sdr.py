"""Shor's semidefinite relaxation with cvxpy: a certified bound, and a point from randomized rounding."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qcqpbench import rng
from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Scope, Termination
from qcqpbench.problem.qcqp import QCQP

from ._boxes import balls
from ._nlp import Best, minimization_sign

Array = NDArray[np.float64]

# Relative allowance for rounding errors of the eigensolver and of the sums over the multipliers.
_ROUNDING = 1e-12

_TERMINATION = {
    "optimal": Termination.FINISHED,
    "optimal_inaccurate": Termination.STALLED,
    "infeasible": Termination.INFEASIBLE,
    "unbounded": Termination.FINISHED,
    "user_limit": Termination.ITERATION_LIMIT,
}


# Statuses of the dual without a solution, in terms of the relaxation.
_STATUS_OF_DUAL = {"infeasible": "unbounded", "unbounded": "infeasible"}


@dataclass(frozen=True)
class Sdr(QCQPSolver):
    """Shor's semidefinite relaxation: every product x_i x_j is replaced by X_ij, with [[1, xᵀ], [x, X]] ⪰ 0.

    A variable in a product with bounds l ≤ x_i ≤ u adds the constraint X_ii ≤ (l + u) x_i − l u.

    The bound is recomputed from the multipliers by weak duality. For any multipliers, the minimum of the Lagrangian is
    a lower bound on the objective (as a minimization), so an inaccurate solution gives a looser bound, not a wrong one.
    If the Lagrangian is not convex, for instance because of rounding, its minimum is bounded over a ball that contains
    the feasible set. If the constraints imply no such ball, the bound is the value of the relaxation less an allowance,
    and ``details`` says so.

    The point is the best of the mean x and `samples` draws from N(x, X − xxᵀ).

    Parameters
    ----------
    solver
        Semidefinite solver that cvxpy calls. CLARABEL uses the sparsity of the problem. It checks the time limit only
        between iterations, which are long for dense matrices with more than 100 rows.
    tol
        Tolerance of the semidefinite solver; CLARABEL gets a hundredth of it, which takes few iterations more.
    max_iter
        Iteration limit of the semidefinite solver; at most 1000 for CLARABEL.
    samples
        Number of random draws.
    seed
        Seed of the draws.
    """

    name = "sdr"
    drives = "cvxpy with a semidefinite solver"
    scope = Scope.BOUND
    requires = ("cvxpy",)
    extra = "cvxpy"
    citation = "Park, Boyd, arXiv:1703.07870 (2017); Shor, Sov. J. Comput. Syst. Sci. 25 (1987) 1"
    tolerance = 1e-5
    accuracy = 1e-5

    solver: Literal["SCS", "CLARABEL"] = "SCS"
    tol: float = 1e-7
    max_iter: int = 100_000
    samples: int = 100
    seed: int = 0

    def build(self, problem: QCQP) -> RunFunction:
        relaxation = _Relaxation(problem)

        def run(start: Array, budget: Budget) -> Solution:
            status = relaxation.solve(self._options(budget), self.solver)
            termination = _TERMINATION.get(status, Termination.FAILED)
            if budget.exhausted():
                termination = Termination.TIME_LIMIT
            if relaxation.value is None:
                return Solution(None, termination, message=f"the relaxation is {status}")
            bound, certainty = relaxation.bound()
            x = self._best_rounding(problem, relaxation, budget)
            return Solution(
                x=x,
                termination=termination,
                objective=float(problem.objective(x)),
                bound=bound,
                iterations=relaxation.iterations,
                message=f"the relaxation is {status}",
                details={"solver": self.solver, "certified": certainty},
            )

        return run

    def _best_rounding(self, problem: QCQP, relaxation: "_Relaxation", budget: Budget) -> Array:
        best = Best(problem, self.tolerance)
        draws = rng.normals(rng.stream(self.seed, "starts"), np.empty((self.samples, relaxation.size)))
        for x in relaxation.round(draws):
            if best.see(x):
                budget.report(x)
            if budget.exhausted():
                break
        assert best.x is not None
        return best.x

    def _options(self, budget: Budget) -> dict[str, Any]:
        seconds = max(budget.remaining(), 1e-2)
        is_limited = bool(np.isfinite(seconds))
        if self.solver == "SCS":
            limit = {"time_limit_secs": seconds} if is_limited else {}
            return {"eps_abs": self.tol, "eps_rel": self.tol, "max_iters": self.max_iter, **limit}
        limit = {"time_limit": seconds} if is_limited else {}
        gaps = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), self.tol / 100)
        # For optimal power flow, the default method merges the small matrices ten times more slowly.
        merge = {"chordal_decomposition_merge_method": "parent_child"}
        return {**gaps, **merge, "max_iter": min(self.max_iter, 1000), **limit}


class _Relaxation:
    """Relaxation of a problem, as a minimization. Only the variables in products are lifted to the matrix Y.

    cvxpy gets its dual: maximize the minimum of the Lagrangian of `bound` over the multipliers y and θ, subject to
    M ⪰ 0. Y is the dual value of this constraint. M is as sparse as the products of the problem, and CLARABEL
    decomposes it into small matrices.
    """

    def __init__(self, problem: QCQP) -> None:
        import cvxpy

        cp: Any = cvxpy
        self.problem = problem = _with_boxes_as_constraints(problem)
        self.sign = minimization_sign(problem)
        self.lifted = np.unique(problem.products)
        self.size = len(self.lifted)
        self.others = np.setdiff1d(np.arange(problem.n_variables), self.lifted)
        self.multipliers = [
            _Multipliers(problem.lower, problem.upper),
            _Multipliers(problem.x_lower, problem.x_upper),
        ]
        y = [multipliers.expression for multipliers in self.multipliers]
        theta = cp.Variable()
        products = self.sign * problem.quadratic[[0]].toarray()[0] - problem.quadratic[1:].T @ y[0]
        slope = self.sign * problem.linear[[0]].toarray()[0] - problem.linear[1:].T @ y[0] - y[1]
        # Without it, the Lagrangian is not bounded in the variables that are not lifted; their bounds are in y[1].
        self.stationarity = slope[self.others] == 0 if len(self.others) else None
        self.semidefinite = self._matrix(products, slope, theta) >> 0
        signs = [constraint for multipliers in self.multipliers for constraint in multipliers.signs]
        constraints = [self.semidefinite, *signs, *([] if self.stationarity is None else [self.stationarity])]
        offset = sum(multipliers.offset for multipliers in self.multipliers)
        self.program = cp.Problem(cp.Maximize(theta + offset), constraints)
        self.iterations: int | None = None
        self.value: float | None = None

    def _matrix(self, products: Any, slope: Any, theta: Any) -> Any:
        """Return M as an expression in the coefficients of products and of variables and θ."""
        import cvxpy

        cp: Any = cvxpy
        problem, k, n = self.problem, self.size, self.size + 1
        place = np.zeros(problem.n_variables, dtype=int)
        place[self.lifted] = 1 + np.arange(k)
        i, j = place[problem.products].T
        both = np.flatnonzero(i != j)
        columns = np.concatenate([np.arange(len(i)), both])
        entries = np.concatenate([i * n + j, j[both] * n + i[both]])
        values = np.where(i == j, 1.0, 0.5)
        quadratic = sparse.csr_array((np.append(values, values[both]), (entries, columns)), shape=(n * n, len(i)))
        border = 1 + np.arange(k)
        linear = sparse.csr_array(
            (np.full(2 * k, 0.5), (np.append(border, border * n), np.append(self.lifted, self.lifted))),
            shape=(n * n, problem.n_variables),
        )
        corner = sparse.csr_array(([1.0], ([0], [0])), shape=(n * n, 1))
        flat = quadratic @ products + linear @ slope - corner @ cp.reshape(theta, (1,), order="C")
        return cp.reshape(flat, (n, n), order="C")

    def solve(self, options: dict[str, Any], solver: str) -> str:
        """Solve the relaxation and return its status; `value` stays None if cvxpy returns no point."""
        with warnings.catch_warnings():
            # cvxpy warns "Solution may be inaccurate"; the bound holds for multipliers of any accuracy.
            warnings.simplefilter("ignore")
            try:
                self.program.solve(solver=solver, **options)
            except Exception as error:
                if type(error).__name__ != "SolverError":
                    raise
                return f"not solved: {error}"
        stats = self.program.solver_stats
        self.iterations = None if stats is None or stats.num_iters is None else int(stats.num_iters)
        status = str(self.program.status)
        if status in _STATUS_OF_DUAL:
            return _STATUS_OF_DUAL[status]
        duals = [constraint.dual_value for constraint in self.program.constraints]
        if all(dual is not None and np.isfinite(dual).all() for dual in duals) and np.isfinite(self.program.value):
            self.value = float(self.program.value) + self.sign * self.problem.constant
        return status

    def bound(self) -> tuple[float, str]:
        """Return a bound on the objective by weak duality, and a text that says how the bound is certified.

        Let y_r ≥ 0 be the multiplier of a lower bound and y_r ≤ 0 that of an upper bound, and let f_0 be minimized.
        Then L(x) = f_0 − Σ y_r (f_r − bound_r) ≤ f_0 at every feasible x. For any number θ, let M be the matrix with
        L(x) − θ = (1, x)ᵀ M (1, x), which is at least λ_min(M) (1 + ‖x‖²). If ‖x‖ ≤ R on the feasible set, then
        f_0 ≥ θ + min(0, λ_min(M)) (1 + R²).
        """
        problem, value = self.problem, self.value
        assert value is not None
        y = self._multipliers()
        slope = self._slope(y)
        offset = self.sign * problem.constant
        for part, low, high in ((y[0], problem.lower, problem.upper), (y[1], problem.x_lower, problem.x_upper)):
            offset += float(part[part > 0] @ low[part > 0] + part[part < 0] @ high[part < 0])
        loss = self._loss(slope)
        linear = slope[self.lifted]
        matrix = problem.hessian(-y[0], self.sign)[self.lifted][:, self.lifted].toarray() / 2
        theta, radius = 0.0, self._squared_radius
        if linear.any():
            theta, radius = value - offset, radius + 1.0
            matrix = np.block([[np.full((1, 1), -theta), linear[None] / 2], [linear[:, None] / 2, matrix]])
        lowest = float(np.linalg.eigvalsh(matrix)[0]) if self.size else 0.0
        lowest = min(0.0, lowest - _ROUNDING * float(np.abs(matrix).max(initial=0.0)))
        if (lowest < 0 and np.isinf(radius)) or np.isinf(loss):
            return self.sign * (value - 1e-6 * max(1.0, abs(value))), "to the solver's tolerance"
        certain = theta + offset - loss + (lowest * radius if lowest < 0 else 0.0)
        return self.sign * (certain - _ROUNDING * max(1.0, abs(certain))), "by weak duality"

    def _multipliers(self) -> list[Array]:
        """Return the multipliers [of the c constraints, of the n bounds on variables], with the signs of `bound`."""
        problem = self.problem
        y = [multipliers.value for multipliers in self.multipliers]
        free = self.others[np.isinf(problem.x_lower[self.others]) & np.isinf(problem.x_upper[self.others])]
        if len(free) == 1:
            # L is bounded below only if it does not depend on a variable without bounds, such as t of an epigraph
            # formulation. The multipliers are scaled to make the coefficient of this variable zero.
            cost = self.sign * float(problem.linear[0, free[0]])
            paid = cost - self._slope(y)[free[0]]
            if paid * cost > 0:
                return [part * (cost / paid) for part in y]
        return y

    def round(self, draws: Array) -> Iterator[Array]:
        """Yield the mean of the relaxation and a point for each standard normal draw in `draws`.

        A draw is transformed to the mean and covariance of the relaxation and moved into the balls and the bounds of
        the variables. A linear program then determines the variables that are not lifted.
        """
        problem = self.problem
        Y = np.asarray(self.semidefinite.dual_value)
        mean = Y[1:, 0] if np.abs(Y[1:, 0]).max(initial=0.0) > 1e-6 else np.zeros(self.size)
        spectrum, basis = np.linalg.eigh(Y[1:, 1:] - np.outer(mean, mean))
        root = basis * np.sqrt(np.maximum(spectrum, 0.0))
        for draw in (np.zeros(self.size), *draws):
            x = np.zeros(problem.n_variables)
            x[self.lifted] = mean + root @ draw
            for variables, values, lower, upper in balls(problem):
                length = float(values @ x[variables] ** 2)
                if length > 0:
                    x[variables] *= np.sqrt(np.clip(length, lower, upper) / length)
            x = np.clip(x, problem.x_lower, problem.x_upper)
            yield self._complete(x)

    def _complete(self, x: Array) -> Array:
        """Return `x` with optimal values of the variables that are not lifted, for the given lifted ones."""
        if self.stationarity is None:
            return x
        from scipy.optimize import LinearConstraint, milp

        problem, others = self.problem, self.others
        fixed = problem.values(np.where(np.isin(np.arange(len(x)), others), 0.0, x))
        rows = LinearConstraint(problem.linear[1:][:, others], problem.lower - fixed, problem.upper - fixed)
        cost = self.sign * problem.linear[[0]].toarray()[0, others]
        box = (problem.x_lower[others], problem.x_upper[others])
        result = milp(cost, constraints=rows, bounds=box)
        x = x.copy()
        x[others] = result.x if result.x is not None else -np.ravel(self.stationarity.dual_value)
        return x

    def _slope(self, y: list[Array]) -> Array:
        """Return the linear coefficients, shape (n,), of the Lagrangian L for the multipliers `y` of `_multipliers`."""
        return self.sign * self.problem.linear[[0]].toarray()[0] - y[0] @ self.problem.linear[1:] - y[1]

    def _loss(self, slope: Array) -> float:
        """Return minus the minimum of the linear terms of L in the variables that are not lifted, over their bounds."""
        slopes = slope[self.others]
        slopes = np.where(np.abs(slopes) <= 1e-12, 0.0, slopes)
        box = np.where(slopes > 0, self.problem.x_lower[self.others], self.problem.x_upper[self.others])
        return float(-np.sum(slopes[slopes != 0] * box[slopes != 0]))

    @cached_property
    def _squared_radius(self) -> float:
        """Bound R² on Σ x_i² over the lifted variables of all feasible points; inf if the constraints imply none."""
        limits = np.maximum(self.problem.x_lower**2, self.problem.x_upper**2)
        total, covered = 0.0, np.zeros(self.problem.n_variables, dtype=bool)
        for variables, values, _, limit in balls(self.problem):
            if not covered[variables].any():
                total += limit / float(values.min())
                covered[variables] = True
        rest = self.lifted[~covered[self.lifted]]
        return total + float(limits[rest].sum())


class _Multipliers:
    """Multipliers y of `low` ≤ f ≤ `high`: y_r ≥ 0 of a lower bound, y_r ≤ 0 of an upper one, any of an equality."""

    def __init__(self, low: Array, high: Array) -> None:
        import cvxpy

        cp: Any = cvxpy
        kinds = (
            (low == high, low, 0),
            (np.isfinite(low) & (low < high), low, 1),
            (np.isfinite(high) & (low < high), high, -1),
        )
        self.expression: Any = np.zeros(len(low))
        self.offset: Any = 0.0
        self.signs: list[Any] = []
        self._parts: list[tuple[Any, NDArray[np.intp], int]] = []
        for is_bounded, bounds, sign in kinds:
            rows = np.flatnonzero(is_bounded)
            if not rows.size:
                continue
            variable = cp.Variable(len(rows))
            place = sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(len(low), len(rows)))
            self.expression = self.expression + place @ variable
            self.offset = self.offset + bounds[rows] @ variable
            self.signs += [sign * variable >= 0] if sign else []
            self._parts.append((variable, rows, sign))

    @property
    def value(self) -> Array:
        """The multipliers that cvxpy found, with those of the wrong sign set to 0."""
        y = np.zeros(self.expression.shape)
        for variable, rows, sign in self._parts:
            y[rows] += sign * np.maximum(sign * variable.value, 0.0) if sign else variable.value
        return y


def _with_boxes_as_constraints(problem: QCQP) -> QCQP:
    """Return `problem` with (x_i − l)(u − x_i) ≥ 0 added for each variable in a product with finite bounds l and u."""
    lower, upper = problem.x_lower, problem.x_upper
    boxed = np.intersect1d(problem.products, np.flatnonzero(np.isfinite(lower) & np.isfinite(upper)))
    rows = 1 + problem.n_constraints + np.arange(len(boxed))
    quadratic, linear = problem.quadratic.tocoo(), problem.linear.tocoo()
    i, j = problem.products[quadratic.col].T
    return QCQP.from_terms(
        problem.n_variables,
        quadratic=(
            np.concatenate([quadratic.row, rows]),
            np.concatenate([i, boxed]),
            np.concatenate([j, boxed]),
            np.concatenate([quadratic.data, np.ones(len(boxed))]),
        ),
        linear=(
            np.concatenate([linear.row, rows]),
            np.concatenate([linear.col, boxed]),
            np.concatenate([linear.data, -(lower[boxed] + upper[boxed])]),
        ),
        lower=np.concatenate([problem.lower, np.full(len(boxed), -np.inf)]),
        upper=np.concatenate([problem.upper, -lower[boxed] * upper[boxed]]),
        constant=problem.constant,
        sense=problem.sense,
        x_lower=lower,
        x_upper=upper,
    )
