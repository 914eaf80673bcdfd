"""gip's point with a certified upper bound on the margin, by the dual of Shor's relaxation. docs/gip.md"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate import certify_margin
from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Scope, Termination
from qcqpbench.problem.maxmargin import MaxMargin

from .gip import Gip

# Of the time, for the iteration that is under way when it is over, and for the eigensolver.
_RESERVE = 0.2


@dataclass(frozen=True)
class CertificateSolver(TaskSolver):
    """What `qcqpbench certify` does, as a solver: its rows bring the bounds into results and reports.

    tol   how near to the relaxation's value the bound is to come, relative
    """

    name = "certificate"
    drives = "gip, then an interior-point method on the dual of Shor's relaxation"
    scope = Scope.BOUND
    citation = "qcqpbench, docs/gip.md"

    tol: float = 3e-3

    def build(self, problem: MaxMargin) -> RunFunction:
        solve = Gip().build(problem)

        def run(start: NDArray[np.float64], budget: Budget) -> Solution:
            found = solve(start, budget)
            seconds = budget.remaining() - _RESERVE * budget.time_limit if np.isfinite(budget.time_limit) else np.inf
            if found.x is None or seconds <= 0:
                return found
            proof = certify_margin(problem, found.x, found.multipliers, seconds, self.tol)
            termination = Termination.OPTIMAL if proof.proved_optimal else found.termination
            # Multipliers and offsets are the proof: whoever has the row can compute the bound again.
            offsets = {f"offset_{i}": float(y) for i, y in enumerate(proof.offsets)}
            return replace(
                found,
                termination=termination,
                bound=proof.bound,
                multipliers=proof.multipliers,
                details={**found.details, **offsets},
            )

        return run
