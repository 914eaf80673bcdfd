"""POUNCE through pounce-solver: a port of IPOPT to Rust, with exact first and second derivatives."""

import importlib.metadata
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

from ._ipopt_interface import TERMINATION, IpoptCallbacks

Array = NDArray[np.float64]

_PACKAGE = "pounce-solver"


@dataclass(frozen=True)
class Pounce(QCQPSolver):
    """POUNCE, an interior-point method with filter line search, with exact first and second derivatives.

    Parameters
    ----------
    tol, max_iter, mu_strategy
        Options of POUNCE of the same names.
    """

    name = "pounce"
    drives = "POUNCE, interior point with filter line search, through pounce-solver"
    requires = ("pounce",)
    extra = "pounce"
    citation = "port of IPOPT: Wächter, Biegler, Math. Program. 106 (2006) 25, doi:10.1007/s10107-004-0559-y"

    tol: float = 1e-8
    max_iter: int = 3000
    mu_strategy: Literal["monotone", "adaptive"] = "monotone"

    def version(self) -> str:
        try:
            return f"{_PACKAGE} {importlib.metadata.version(_PACKAGE)}"
        except importlib.metadata.PackageNotFoundError:
            return super().version()

    def build(self, problem: QCQP) -> RunFunction:
        import pounce

        callbacks = _Callbacks(problem)
        nlp = pounce.Problem(
            n=problem.n_variables,
            m=problem.n_constraints,
            problem_obj=callbacks,
            lb=problem.x_lower,
            ub=problem.x_upper,
            cl=problem.lower,
            cu=problem.upper,
        )
        options: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "mu_strategy": self.mu_strategy}
        for name, value in {**options, "print_level": 0, "sb": "yes"}.items():
            nlp.add_option(name, value)

        def run(start: Array, budget: Budget) -> Solution:
            callbacks.begin(budget)
            if np.isfinite(budget.time_limit):
                nlp.add_option("max_wall_time", max(budget.remaining(), 1e-3))
            x, info = nlp.solve(np.array(start))
            termination = TERMINATION.get(int(info["status"]), Termination.FAILED)
            message = info["status_msg"]
            return callbacks.best.solution(
                termination,
                message.decode() if isinstance(message, bytes) else str(message),
                np.array(x),
                callbacks.iterations,
                {"callback_seconds": callbacks.seconds},
            )

        return run


class _Callbacks(IpoptCallbacks):
    """Callbacks whose iterate is the last point at which POUNCE evaluated the objective; POUNCE provides no other."""

    def __init__(self, problem: QCQP) -> None:
        super().__init__(problem)
        self._evaluated: Array | None = None
        self.current_iterate = lambda: None if self._evaluated is None else {"x": self._evaluated}

    def objective(self, x: Array) -> float:
        self._evaluated = np.array(x)
        return super().objective(x)
