"""Functions and classes shared by the adapters of nonlinear programming solvers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


class OutOfTime(Exception):  # noqa: N818 (not an error: the only way to stop some solvers)
    """Exception that a callback raises to stop a solver at the time limit."""


def minimization_sign(problem: QCQP) -> float:
    """Return the factor that makes the objective of `problem` one to minimize: −1 for maximization, else 1."""
    return -1.0 if problem.sense == "maximize" else 1.0


class Best:
    """Best point of a run so far: the smallest violation, then the best objective.

    Violations of at most `tolerance` count as 0.
    """

    def __init__(self, problem: QCQP, tolerance: float) -> None:
        self.x: Array | None = None
        self._problem = problem
        self._tolerance = tolerance
        self._sign = minimization_sign(problem)
        self._rank = (np.inf, np.inf)

    def see(self, x: Array) -> bool:
        """Evaluate `x`, keep it if it is the best point so far, and return True in that case."""
        return self.rate(x, self._problem.violation(x, relative=True), float(self._problem.objective(x)))

    def rate(self, x: Array, violation: float, objective: float) -> bool:
        """Keep `x`, which has the given violation and objective, if it is the best so far; return True in that case."""
        rank = (violation if violation > self._tolerance else 0.0, self._sign * objective)
        if not rank < self._rank:
            return False
        self._rank, self.x = rank, np.array(x)
        return True

    def choose(self, final: Array, termination: Termination) -> Array:
        """Return the point `final` of a run if the solver claims a solution, else the best point so far."""
        return final if termination.claims_a_solution or self.x is None else self.x

    def solution(
        self,
        termination: Termination,
        message: str = "",
        final: Array | None = None,
        iterations: int | None = None,
        details: Mapping[str, str | float] | None = None,
    ) -> Solution:
        """Return the solution of a run that ended at the point `final`, or that was interrupted if `final` is None."""
        x = self.x if final is None else self.choose(final, termination)
        objective = None if x is None else float(self._problem.objective(x))
        return Solution(x, termination, objective, iterations=iterations, message=message, details=details or {})


def minimize_with_scipy(problem: QCQP, start: Array, budget: Budget, **settings: Any) -> Any:
    """Minimize the objective of `problem` with scipy.optimize.minimize and return its result.

    The objective is negated if it is to be maximized. `settings` are further arguments of scipy.optimize.minimize.

    Raises
    ------
    OutOfTime
        If the time limit of `budget` is reached.
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
