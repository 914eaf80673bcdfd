"""Interface of IPOPT as in cyipopt, which other packages imitate: callbacks and status codes."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, minimization_sign

Array = NDArray[np.float64]

TERMINATION = {
    0: Termination.LOCALLY_OPTIMAL,
    1: Termination.STALLED,
    2: Termination.LOCALLY_INFEASIBLE,
    3: Termination.STALLED,
    4: Termination.UNBOUNDED,
    5: Termination.TIME_LIMIT,
    6: Termination.FINISHED,
    -1: Termination.ITERATION_LIMIT,
    -4: Termination.TIME_LIMIT,
    -5: Termination.TIME_LIMIT,
}


class IpoptCallbacks:
    """Functions of the problem, as a minimization, that IPOPT calls.

    Attributes
    ----------
    current_iterate
        Function that returns the iterate as {"x": point}, or None; the adapter sets it.
    best
        Best point of the run so far.
    iterations
        Number of iterations.
    seconds
        Time spent in the functions.
    """

    def __init__(self, problem: QCQP) -> None:
        self.problem = problem
        self.sign = minimization_sign(problem)
        self.current_iterate: Callable[[], Mapping[str, Array] | None] = lambda: None
        # Computed here, so that their time counts as build time and not as part of the first iteration.
        self.structures = problem.jacobian_structure, problem.hessian_structure
        self.begin(Budget())

    def begin(self, budget: Budget) -> None:
        """Reset the state for a new run with the limits `budget`."""
        self.budget = budget
        self.best = Best(self.problem, 1e-6)
        self.iterations = 0
        self.seconds = 0.0

    def objective(self, x: Array) -> float:
        return self._timed(lambda: self.sign * float(self.problem.objective(x)))

    def gradient(self, x: Array) -> Array:
        return self._timed(lambda: self.sign * self.problem.gradient(x))

    def constraints(self, x: Array) -> Array:
        return self._timed(lambda: self.problem.values(x))

    def jacobian(self, x: Array) -> Array:
        return self._timed(lambda: self.problem.jacobian_values(x))

    def jacobianstructure(self) -> Any:
        return self.structures[0]

    def hessian(self, x: Array, multipliers: Array, objective_factor: float) -> Array:
        return self._timed(lambda: self.problem.hessian_values(multipliers, self.sign * objective_factor))

    def hessianstructure(self) -> Any:
        return self.structures[1]

    def intermediate(self, alg_mod: int, iter_count: int, obj_value: float, inf_pr: float, *_: float) -> bool:
        self.iterations = iter_count
        in_restoration = alg_mod != 0
        iterate = None if in_restoration else self.current_iterate()
        if iterate is not None:
            self.budget.report(iterate["x"])
            self.best.rate(iterate["x"], inf_pr, self.sign * obj_value)
        return not self.budget.exhausted()

    def _timed(self, function: Any) -> Any:
        begin = time.perf_counter()
        result = function()
        self.seconds += time.perf_counter() - begin
        return result
