"""trust-constr of scipy.optimize: trust-region interior point with exact second derivatives, sparse."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, OutOfTime

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TrustConstr(QCQPSolver):
    """What a scipy user would try first on a larger problem."""

    name = "trust_constr"
    drives = "scipy.optimize.minimize, method trust-constr"
    # It stops when the gradient is small, also while its barrier is not; then it is said to have stalled.
    accuracy = 1e-3
    citation = "Byrd, Hribar, Nocedal, SIAM J. Optim. 9 (1999) 877, doi:10.1137/S1052623497325107"

    gtol: float = 1e-8
    xtol: float = 1e-8
    barrier_tol: float = 1e-8
    max_iter: int = 3000

    def build(self, problem: QCQP) -> RunFunction:
        from scipy.optimize import Bounds, NonlinearConstraint, minimize

        sign = -1.0 if problem.sense == "maximize" else 1.0
        zero = np.zeros(problem.n_constraints)
        curvature = problem.hessian(zero, sign)
        bounded = bool(np.isfinite(problem.x_lower).any() or np.isfinite(problem.x_upper).any())
        constraints = NonlinearConstraint(
            problem.values,
            problem.lower,
            problem.upper,
            jac=problem.jacobian,
            hess=lambda x, multipliers: problem.hessian(multipliers, 0.0),
        )

        def run(start: Array, budget: Budget) -> Solution:
            best = Best(problem, self.tolerance)

            def objective(x: Array) -> float:
                if budget.exhausted():
                    raise OutOfTime
                return sign * float(problem.objective(x))

            def seen(x: Array, state: Any) -> None:
                budget.report(x)
                best.rate(x, state.constr_violation, sign * state.fun)

            try:
                with warnings.catch_warnings():
                    # It warns of a singular Jacobian and goes on with another factorization.
                    warnings.simplefilter("ignore")
                    found = minimize(
                        objective,
                        np.clip(start, problem.x_lower, problem.x_upper),
                        jac=lambda x: sign * problem.gradient(x),
                        hess=lambda x: curvature,
                        bounds=Bounds(problem.x_lower, problem.x_upper) if bounded else None,
                        constraints=[constraints] if problem.n_constraints else [],
                        method="trust-constr",
                        callback=seen,
                        options={
                            "gtol": self.gtol,
                            "xtol": self.xtol,
                            "barrier_tol": self.barrier_tol,
                            "maxiter": self.max_iter,
                        },
                    )
            except OutOfTime:
                return best.solution(Termination.TIME_LIMIT)
            except ValueError as error:
                # From inside scipy, where the objective falls without end.
                return best.solution(Termination.FAILED, str(error))
            feasible = found.constr_violation <= self.tolerance
            termination = {0: Termination.ITERATION_LIMIT, 1: Termination.LOCALLY_OPTIMAL}.get(
                found.status, Termination.STALLED
            )
            if not feasible and found.status != 0:
                termination = Termination.LOCALLY_INFEASIBLE
            elif termination.claims_a_solution and found.get("barrier_parameter", 0.0) > 100 * self.barrier_tol:
                termination = Termination.STALLED
            x = found.x if termination.claims_a_solution or best.x is None else best.x
            return Solution(x, termination, float(problem.objective(x)), iterations=found.nit, message=found.message)

        return run
