"""Augmented Lagrangian, a solver for general QCQPs: L-BFGS-B on a penalty function, whose multipliers are updated."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from qcqpbench import QCQP, Array, Budget, QCQPSolver, RunFunction, Solution, Termination, parameter


@dataclass(frozen=True)
class AugmentedLagrangian(QCQPSolver):
    name, drives = "augmented_lagrangian", "scipy.optimize.minimize, method L-BFGS-B"
    citation, accuracy = "Hestenes, J. Optim. Theory Appl. 4 (1969)", 1e-2
    rounds: int = 40
    penalty: float = 10.0
    growth: float = parameter(4.0, minimum=1)

    def build(self, problem: QCQP) -> RunFunction:
        sign = 1.0 if problem.sense == "minimize" else -1.0
        bounds = np.stack([problem.x_lower, problem.x_upper], axis=1)

        def excess(x: Array, multipliers: Array, penalty: float) -> Array:
            shifted = problem.values(x) + multipliers / penalty
            return shifted - np.clip(shifted, problem.lower, problem.upper)

        def merit(x: Array, multipliers: Array, penalty: float) -> tuple[float, Array]:
            outside = excess(x, multipliers, penalty)
            value = sign * problem.objective(x) + penalty / 2 * outside @ outside
            return value, sign * problem.gradient(x) + penalty * (problem.jacobian(x).T @ outside)

        def improve(x: Array, multipliers: Array, penalty: float, budget: Budget) -> Array:
            def watch(x: Array) -> None:
                budget.report(x)
                if budget.exhausted():
                    raise StopIteration

            arguments = (multipliers, penalty)
            best: Array = minimize(merit, x, arguments, "L-BFGS-B", jac=True, bounds=bounds, callback=watch).x
            return best

        def run(start: Array, budget: Budget) -> Solution:
            x, multipliers, penalty, last = start, np.zeros(problem.n_constraints), self.penalty, np.inf
            for _ in range(self.rounds):
                x = improve(x, multipliers, penalty, budget)
                updated = penalty * excess(x, multipliers, penalty)
                error = np.abs(updated - multipliers).max(initial=0.0) / penalty
                if budget.exhausted():
                    return Solution(x, Termination.TIME_LIMIT)
                if not np.abs(x).max() < 1e20:
                    return Solution(None, Termination.STALLED, message="the iterates diverge")
                if error <= 0.1 * self.tolerance:
                    return Solution(x, Termination.LOCALLY_OPTIMAL, float(problem.objective(x)))
                multipliers, last, penalty = updated, error, penalty * (self.growth if error > last / 2 else 1.0)
            return Solution(x, Termination.ITERATION_LIMIT)

        return np.errstate(all="ignore")(run)
