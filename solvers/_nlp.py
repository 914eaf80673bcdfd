"""Shared by the adapters of nonlinear programming solvers."""

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


class OutOfTime(Exception):  # noqa: N818 (no error: the way out of a solver that offers no other)
    """Raised in a callback when the budget is used up."""


class Best:
    """The best point seen so far: feasible before infeasible, then the better objective or the smaller violation."""

    def __init__(self, problem: QCQP, tolerance: float) -> None:
        self.x: Array | None = None
        self._problem = problem
        self._tolerance = tolerance
        self._sign = -1.0 if problem.sense == "maximize" else 1.0
        self._rank = (np.inf, np.inf)

    def solution(self, termination: Termination, message: str = "") -> Solution:
        """The best point as what a run returns that ended early."""
        objective = None if self.x is None else float(self._problem.objective(self.x))
        return Solution(self.x, termination, objective, message=message)

    def see(self, x: Array) -> bool:
        """Look at a point; says whether it is the best so far."""
        return self.rate(x, self._problem.violation(x, relative=True), float(self._problem.objective(x)))

    def rate(self, x: Array, violation: float, objective: float) -> bool:
        """The same for a point whose violation and objective are known."""
        rank = (violation if violation > self._tolerance else 0.0, self._sign * objective)
        if not rank < self._rank:
            return False
        self._rank, self.x = rank, np.array(x)
        return True
