"""IPOPT through cyipopt: an interior-point method with exact first and second derivatives."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.qcqp import QCQP

from ._ipopt_interface import TERMINATION, IpoptCallbacks

Array = NDArray[np.float64]


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

        callbacks = IpoptCallbacks(problem)
        nlp = cyipopt.Problem(
            n=problem.n_variables,
            m=problem.n_constraints,
            problem_obj=callbacks,
            lb=problem.x_lower,
            ub=problem.x_upper,
            cl=problem.lower,
            cu=problem.upper,
        )
        callbacks.current_iterate = nlp.get_current_iterate
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
            termination = TERMINATION.get(info["status"], Termination.FAILED)
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
