"""IPOPT through cyipopt: an interior-point method with exact first and second derivatives."""

import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, minimization_sign

Array = NDArray[np.float64]

_TERMINATION = {
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


@dataclass(frozen=True)
class Ipopt(QCQPSolver):
    """IPOPT, an interior-point method with filter line search, with exact first and second derivatives.

    Parameters
    ----------
    tol, max_iter, mu_strategy, linear_solver
        Options of IPOPT of the same names.
    warm_start
        If True, IPOPT stays close to the start instead of moving it away from the bounds.
    """

    name = "ipopt"
    drives = "IPOPT, interior point with filter line search, through cyipopt"
    requires = ("cyipopt",)
    extra = "ipopt"
    citation = "Wächter, Biegler, Math. Program. 106 (2006) 25, doi:10.1007/s10107-004-0559-y"

    tol: float = 1e-8
    max_iter: int = 3000
    mu_strategy: Literal["monotone", "adaptive"] = "monotone"
    linear_solver: str = "mumps"
    warm_start: bool = False

    def build(self, problem: QCQP) -> RunFunction:
        import cyipopt

        callbacks = _Callbacks(problem)
        nlp = cyipopt.Problem(
            n=problem.n_variables,
            m=problem.n_constraints,
            problem_obj=callbacks,
            lb=problem.x_lower,
            ub=problem.x_upper,
            cl=problem.lower,
            cu=problem.upper,
        )
        callbacks.nlp = nlp
        for name, value in self._options.items():
            try:
                nlp.add_option(name, value)
            except TypeError as error:
                raise QcqpbenchError(f"ipopt: {name} must be a value that IPOPT accepts, got {value!r}") from error
        version = ".".join(map(str, cyipopt.IPOPT_VERSION))

        def run(start: Array, budget: Budget) -> Solution:
            callbacks.begin(budget)
            if np.isfinite(budget.time_limit):
                nlp.add_option("max_wall_time", max(budget.remaining(), 1e-3))
            x, info = nlp.solve(start)
            termination = _TERMINATION.get(info["status"], Termination.FAILED)
            x = callbacks.best.choose(x, termination)
            return Solution(
                x=x,
                termination=termination,
                objective=float(problem.objective(x)),
                iterations=callbacks.iterations,
                message=info["status_msg"].decode(),
                details={
                    "ipopt": version,
                    "linear_solver": self.linear_solver,
                    "callback_seconds": callbacks.seconds,
                },
            )

        return run

    @property
    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "tol": self.tol,
            "max_iter": self.max_iter,
            "mu_strategy": self.mu_strategy,
            "linear_solver": self.linear_solver,
            "print_level": 0,
            "sb": "yes",
        }
        if self.warm_start:
            options |= {"warm_start_init_point": "yes", "mu_init": 1e-4} | dict.fromkeys(
                ("warm_start_bound_push", "warm_start_slack_bound_push", "warm_start_mult_bound_push"), 1e-6
            )
        return options


class _Callbacks:
    """Functions of the problem, as a minimization, that IPOPT calls. `seconds` is the time spent in them."""

    def __init__(self, problem: QCQP) -> None:
        self.problem = problem
        self.sign = minimization_sign(problem)
        self.nlp: Any = None
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
        iterate = None if in_restoration else self.nlp.get_current_iterate()
        if iterate is not None:
            self.budget.report(iterate["x"])
            self.best.rate(iterate["x"], inf_pr, self.sign * obj_value)
        return not self.budget.exhausted()

    def _timed(self, function: Any) -> Any:
        begin = time.perf_counter()
        result = function()
        self.seconds += time.perf_counter() - begin
        return result
