"""Shor's semidefinite relaxation with cvxpy: a certified bound, and a point from randomized rounding."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

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
        Semidefinite solver that cvxpy calls. CLARABEL checks the time limit only between iterations, which are long
        for matrices with more than 100 rows.
    tol
        Tolerance of the semidefinite solver.
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
        if self.solver == "SCS":
            limit = {"time_limit_secs": seconds} if np.isfinite(seconds) else {}
            return {"eps_abs": self.tol, "eps_rel": self.tol, "max_iters": self.max_iter, **limit}
        limit = {"time_limit": seconds} if np.isfinite(seconds) else {}
        gaps = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), self.tol)
        return {**gaps, "max_iter": min(self.max_iter, 1000), **limit}


class _Bounds(NamedTuple):
    """Constraint of the relaxation: bounds on the rows `rows` of the functions f_r (kind 0) or variables x_i (kind 1).

    `sign` times the dual value of cvxpy is the multiplier in the convention of `_Relaxation.bound`.
    """

    constraint: Any
    kind: int
    rows: NDArray[np.intp]
    sign: float


class _Relaxation:
    """Relaxation of a problem, as a minimization. Only the variables in products are lifted to the matrix Y."""

    def __init__(self, problem: QCQP) -> None:
        import cvxpy

        cp: Any = cvxpy
        self.problem = problem = _with_boxes_as_constraints(problem)
        self.sign = minimization_sign(problem)
        self.lifted = np.unique(problem.products)
        self.size = len(self.lifted)
        self.others = np.setdiff1d(np.arange(problem.n_variables), self.lifted)
        self.Y = cp.Variable((self.size + 1, self.size + 1), PSD=True)
        self.z = cp.Variable(len(self.others)) if len(self.others) else None
        functions, x = self._functions(cp.vec(self.Y, order="C"))
        # Each kind of bound is one vector constraint, so that its dual value has one multiplier per row of f or x.
        self.bounds = [
            *_bounds(functions[1:], 0, problem.lower, problem.upper),
            *_bounds(x, 1, problem.x_lower, problem.x_upper),
        ]
        constraints = [bounds.constraint for bounds in self.bounds] + [self.Y[0, 0] == 1]
        self.program = cp.Problem(cp.Minimize(self.sign * functions[0]), constraints)
        self.iterations: int | None = None
        self.value: float | None = None

    def _functions(self, flat: Any) -> tuple[Any, Any]:
        """Return f_0, f_1, … and x as expressions in the entries `flat` of Y and in z."""
        problem, n, k = self.problem, self.problem.n_variables, self.size
        place = np.zeros(n, dtype=int)
        place[self.lifted] = 1 + np.arange(k)
        i, j = place[problem.products].T
        products = sparse.csr_array(
            (np.ones(len(i)), (np.arange(len(i)), i * (k + 1) + j)), shape=(len(i), (k + 1) ** 2)
        )
        points = sparse.csr_array((np.ones(k), (self.lifted, 1 + np.arange(k))), shape=(n, (k + 1) ** 2))
        x = points @ flat
        if self.z is not None:
            count = len(self.others)
            x = x + sparse.csr_array((np.ones(count), (self.others, np.arange(count))), shape=(n, count)) @ self.z
        return (problem.quadratic @ products) @ flat + problem.linear @ x, x

    def solve(self, options: dict[str, Any], solver: str) -> str:
        """Solve the relaxation and return the status of cvxpy; `value` stays None if cvxpy returns no point."""
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
        has_point = self.Y.value is not None and np.isfinite(self.Y.value).all()
        self.value = float(self.program.value) + self.sign * self.problem.constant if has_point else None
        return str(self.program.status)

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
        y = [np.zeros(problem.n_constraints), np.zeros(problem.n_variables)]
        for constraint, kind, rows, sign in self.bounds:
            dual = np.asarray(constraint.dual_value, dtype=float).reshape(-1)
            y[kind][rows] += sign * (dual if constraint.__class__.__name__ == "Equality" else np.maximum(dual, 0.0))
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
        Y = self.Y.value
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
        if self.z is None:
            return x
        from scipy.optimize import LinearConstraint, milp

        problem, others = self.problem, self.others
        fixed = problem.values(np.where(np.isin(np.arange(len(x)), others), 0.0, x))
        rows = LinearConstraint(problem.linear[1:][:, others], problem.lower - fixed, problem.upper - fixed)
        cost = self.sign * problem.linear[[0]].toarray()[0, others]
        box = (problem.x_lower[others], problem.x_upper[others])
        result = milp(cost, constraints=rows, bounds=box)
        x = x.copy()
        x[others] = result.x if result.x is not None else self.z.value
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


def _bounds(expression: Any, kind: int, low: Array, high: Array) -> Iterator[_Bounds]:
    """Yield the equalities, lower bounds and upper bounds that make up `low` ≤ `expression` ≤ `high`."""
    equal = np.flatnonzero(low == high)
    above = np.flatnonzero(np.isfinite(low) & (low < high))
    below = np.flatnonzero(np.isfinite(high) & (low < high))
    if equal.size:
        yield _Bounds(expression[equal] == low[equal], kind, equal, -1.0)
    if above.size:
        yield _Bounds(expression[above] >= low[above], kind, above, 1.0)
    if below.size:
        yield _Bounds(expression[below] <= high[below], kind, below, -1.0)


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
