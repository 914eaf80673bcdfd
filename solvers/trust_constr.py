"""trust-constr of scipy.optimize: a trust-region interior-point method with exact, sparse second derivatives."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, OutOfTime, minimization_sign, minimize_with_scipy

Array = NDArray[np.float64]

_TERMINATION = {0: Termination.ITERATION_LIMIT, 1: Termination.LOCALLY_OPTIMAL}


@dataclass(frozen=True)
class TrustConstr(QCQPSolver):
    """Trust-region interior-point method of scipy.optimize, for larger problems.

    Parameters
    ----------
    gtol, xtol, barrier_tol
        Options of the method trust-constr: tolerances on the gradient of the Lagrangian, on the trust-region radius and
        on the barrier parameter.
    max_iter
        Iteration limit.
    """

    name = "trust_constr"
    drives = "scipy.optimize.minimize, method trust-constr"
    # trust-constr may stop at a small gradient while its barrier parameter is large; such a run counts as stalled.
    accuracy = 1e-3
    citation = "Byrd, Hribar, Nocedal, SIAM J. Optim. 9 (1999) 877, doi:10.1137/S1052623497325107"

    gtol: float = 1e-8
    xtol: float = 1e-8
    barrier_tol: float = 1e-8
    max_iter: int = 3000

    def build(self, problem: QCQP) -> RunFunction:
        sign = minimization_sign(problem)
        settings = self._settings(problem)

        def run(start: Array, budget: Budget) -> Solution:
            best = Best(problem, self.tolerance)

            def report(x: Array, state: Any) -> None:
                budget.report(x)
                best.rate(x, state.constr_violation, sign * state.fun)

            try:
                with warnings.catch_warnings():
                    # scipy warns of a singular Jacobian and continues with another factorization.
                    warnings.simplefilter("ignore")
                    result = minimize_with_scipy(problem, start, budget, callback=report, **settings)
            except OutOfTime:
                return best.solution(Termination.TIME_LIMIT)
            except ValueError as error:
                # scipy raises ValueError if the objective decreases without bound.
                return best.solution(Termination.FAILED, str(error))
            return best.solution(self._termination(result), result.message, result.x, result.nit)

        return run

    def _settings(self, problem: QCQP) -> dict[str, Any]:
        """Return the arguments of scipy.optimize.minimize that do not depend on the run."""
        from scipy.optimize import Bounds, NonlinearConstraint

        curvature = problem.hessian(np.zeros(problem.n_constraints), minimization_sign(problem))
        bounded = bool(np.isfinite(problem.x_lower).any() or np.isfinite(problem.x_upper).any())
        constraints = NonlinearConstraint(
            problem.values,
            problem.lower,
            problem.upper,
            jac=problem.jacobian,
            hess=lambda x, multipliers: problem.hessian(multipliers, 0.0),
        )
        return {
            "method": "trust-constr",
            "hess": lambda x: curvature,
            "bounds": Bounds(problem.x_lower, problem.x_upper) if bounded else None,
            "constraints": [constraints] if problem.n_constraints else [],
            "options": {
                "gtol": self.gtol,
                "xtol": self.xtol,
                "barrier_tol": self.barrier_tol,
                "maxiter": self.max_iter,
            },
        }

    def _termination(self, result: Any) -> Termination:
        """Return the termination of a run, given the result of scipy.optimize.minimize."""
        feasible = result.constr_violation <= self.tolerance
        if not feasible and result.status != 0:
            return Termination.LOCALLY_INFEASIBLE
        termination = _TERMINATION.get(result.status, Termination.STALLED)
        unfinished = result.get("barrier_parameter", 0.0) > 100 * self.barrier_tol
        return Termination.STALLED if termination.claims_a_solution and unfinished else termination
