"""SLSQP of scipy.optimize: sequential least-squares quadratic programming, dense."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, OutOfTime

Array = NDArray[np.float64]

_TERMINATION = {
    0: Termination.LOCALLY_OPTIMAL,
    4: Termination.LOCALLY_INFEASIBLE,
    8: Termination.STALLED,
    9: Termination.ITERATION_LIMIT,
}


@dataclass(frozen=True)
class Slsqp(QCQPSolver):
    """What a scipy user would try first on a small problem."""

    name = "slsqp"
    drives = "scipy.optimize.minimize, method SLSQP"
    citation = "Kraft, DFVLR-FB 88-28 (1988)"

    ftol: float = 1e-9
    max_iter: int = 1000

    def build(self, problem: QCQP) -> RunFunction:
        from scipy.optimize import minimize

        sign = -1.0 if problem.sense == "maximize" else 1.0
        equal = np.flatnonzero(problem.lower == problem.upper)
        above = np.flatnonzero(np.isfinite(problem.lower) & (problem.lower < problem.upper))
        below = np.flatnonzero(np.isfinite(problem.upper) & (problem.lower < problem.upper))

        def jacobian(x: Array) -> Array:
            return problem.jacobian(x).toarray()

        constraints: list[dict[str, Any]] = []
        if equal.size:
            constraints.append(
                {
                    "type": "eq",
                    "fun": lambda x: (problem.values(x) - problem.lower)[equal],
                    "jac": lambda x: jacobian(x)[equal],
                }
            )
        if above.size + below.size:

            def slack(x: Array) -> Array:
                values = problem.values(x)
                return np.concatenate([(values - problem.lower)[above], (problem.upper - values)[below]])

            def slack_jacobian(x: Array) -> Array:
                dense = jacobian(x)
                return np.concatenate([dense[above], -dense[below]])

            constraints.append({"type": "ineq", "fun": slack, "jac": slack_jacobian})

        def run(start: Array, budget: Budget) -> Solution:
            best = Best(problem, self.tolerance)

            def objective(x: Array) -> float:
                if budget.exhausted():
                    raise OutOfTime
                return sign * float(problem.objective(x))

            def seen(x: Array) -> None:
                budget.report(x)
                best.see(x)

            try:
                found = minimize(
                    objective,
                    np.clip(start, problem.x_lower, problem.x_upper),
                    jac=lambda x: sign * problem.gradient(x),
                    bounds=np.stack([problem.x_lower, problem.x_upper], axis=1),
                    constraints=constraints,
                    method="SLSQP",
                    callback=seen,
                    options={"ftol": self.ftol, "maxiter": self.max_iter},
                )
            except OutOfTime:
                return best.solution(Termination.TIME_LIMIT)
            termination = _TERMINATION.get(found.get("status", 0), Termination.FAILED)
            x = found.x if termination.claims_a_solution or best.x is None else best.x
            return Solution(
                x, termination, float(problem.objective(x)), iterations=found.get("nit", 0), message=found.message
            )

        return run
