"""SLSQP of scipy.optimize: sequential least-squares quadratic programming with dense matrices."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, OutOfTime, minimize_with_scipy

Array = NDArray[np.float64]

_TERMINATION = {
    0: Termination.LOCALLY_OPTIMAL,
    4: Termination.LOCALLY_INFEASIBLE,
    8: Termination.STALLED,
    9: Termination.ITERATION_LIMIT,
}


@dataclass(frozen=True)
class Slsqp(QCQPSolver):
    """Sequential least-squares quadratic programming of scipy.optimize, for small problems.

    Parameters
    ----------
    ftol
        Tolerance on the objective at which the method stops.
    max_iter
        Iteration limit.
    """

    name = "slsqp"
    drives = "scipy.optimize.minimize, method SLSQP"
    citation = "Kraft, DFVLR-FB 88-28 (1988)"

    ftol: float = 1e-9
    max_iter: int = 1000

    def build(self, problem: QCQP) -> RunFunction:
        constraints = _constraints(problem)

        def run(start: Array, budget: Budget) -> Solution:
            best = Best(problem, self.tolerance)

            def report(x: Array) -> None:
                budget.report(x)
                best.see(x)

            try:
                result = minimize_with_scipy(
                    problem,
                    start,
                    budget,
                    bounds=np.stack([problem.x_lower, problem.x_upper], axis=1),
                    constraints=constraints,
                    method="SLSQP",
                    callback=report,
                    options={"ftol": self.ftol, "maxiter": self.max_iter},
                )
            except OutOfTime:
                return best.solution(Termination.TIME_LIMIT)
            termination = _TERMINATION.get(result.get("status", 0), Termination.FAILED)
            return best.solution(termination, result.message, result.x, result.get("nit", 0))

        return run


def _constraints(problem: QCQP) -> list[dict[str, Any]]:
    """Return the constraints as dictionaries of scipy.optimize: functions that must be zero or nonnegative."""
    equal = np.flatnonzero(problem.lower == problem.upper)
    above = np.flatnonzero(np.isfinite(problem.lower) & (problem.lower < problem.upper))
    below = np.flatnonzero(np.isfinite(problem.upper) & (problem.lower < problem.upper))

    def residual(x: Array) -> Array:
        return (problem.values(x) - problem.lower)[equal]

    def residual_jacobian(x: Array) -> Array:
        return problem.jacobian(x).toarray()[equal]

    def slack(x: Array) -> Array:
        values = problem.values(x)
        return np.concatenate([(values - problem.lower)[above], (problem.upper - values)[below]])

    def slack_jacobian(x: Array) -> Array:
        dense = problem.jacobian(x).toarray()
        return np.concatenate([dense[above], -dense[below]])

    constraints: list[dict[str, Any]] = []
    if equal.size:
        constraints.append({"type": "eq", "fun": residual, "jac": residual_jacobian})
    if above.size + below.size:
        constraints.append({"type": "ineq", "fun": slack, "jac": slack_jacobian})
    return constraints
