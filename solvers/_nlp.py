"""Code shared by the adapters of nonlinear programming solvers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


class OutOfTime(Exception):  # noqa: N818 (no error: the way out of a solver that offers no other)
    """Signal, raised in a callback, that the budget is used up."""


def minimization_sign(problem: QCQP) -> float:
    """Return the factor that turns the objective into one to minimize: −1 for maximization, else 1."""
    return -1.0 if problem.sense == "maximize" else 1.0


class Best:
    """The best point seen so far: feasible before infeasible, then the better objective or the smaller violation."""

    def __init__(self, problem: QCQP, tolerance: float) -> None:
        self.x: Array | None = None
        self._problem = problem
        self._tolerance = tolerance
        self._sign = minimization_sign(problem)
        self._rank = (np.inf, np.inf)

    def see(self, x: Array) -> bool:
        """Evaluate a point and return True if it is the best so far."""
        return self.rate(x, self._problem.violation(x, relative=True), float(self._problem.objective(x)))

    def rate(self, x: Array, violation: float, objective: float) -> bool:
        """Return True if a point of this violation and objective is the best so far."""
        rank = (violation if violation > self._tolerance else 0.0, self._sign * objective)
        if not rank < self._rank:
            return False
        self._rank, self.x = rank, np.array(x)
        return True

    def choose(self, final: Array, termination: Termination) -> Array:
        """Return the final point of a run if the solver claims a solution, else the best point seen."""
        return final if termination.claims_a_solution or self.x is None else self.x

    def solution(
        self, termination: Termination, message: str = "", final: Array | None = None, iterations: int | None = None
    ) -> Solution:
        """Return the solution of a run; one that was interrupted has no final point."""
        x = self.x if final is None else self.choose(final, termination)
        objective = None if x is None else float(self._problem.objective(x))
        return Solution(x, termination, objective, iterations=iterations, message=message)


def minimize_with_scipy(problem: QCQP, start: Array, budget: Budget, **settings: Any) -> Any:
    """Return the result of scipy.optimize.minimize, called with these settings and the problem's objective.

    Raises
    ------
    OutOfTime
        When the budget is used up.
    """
    from scipy.optimize import minimize

    sign = minimization_sign(problem)

    def objective(x: Array) -> float:
        if budget.exhausted():
            raise OutOfTime
        return sign * float(problem.objective(x))

    return minimize(
        objective,
        np.clip(start, problem.x_lower, problem.x_upper),
        jac=lambda x: sign * problem.gradient(x),
        **settings,
    )
