"""Point of gip with a certified bound on the margin, from the dual of Shor's relaxation (docs/background/gip.md)."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.shor import certify_margin
from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Scope, Termination
from qcqpbench.problem.maxmargin import MaxMargin

from .gip import Gip

# Share of the time limit reserved for the last iteration of the interior-point method and for the eigensolver.
_RESERVED_SHARE = 0.2


@dataclass(frozen=True)
class CertificateSolver(TaskSolver):
    """Solver that runs gip and then proves an upper bound on the margin, as `qcqpbench certify` does.

    Its rows bring the bounds into results and reports.

    Parameters
    ----------
    tol
        Relative distance of the bound to the value of the relaxation at which the search for the bound stops.
    """

    name = "certificate"
    drives = "gip, then an interior-point method on the dual of Shor's relaxation"
    scope = Scope.BOUND
    citation = "qcqpbench, docs/background/gip.md"

    tol: float = 3e-3

    def build(self, problem: MaxMargin) -> RunFunction:
        solve = Gip().build(problem)

        def run(start: NDArray[np.float64], budget: Budget) -> Solution:
            solution = solve(start, budget)
            seconds = np.inf
            if np.isfinite(budget.time_limit):
                seconds = budget.remaining() - _RESERVED_SHARE * budget.time_limit
            if solution.x is None or seconds <= 0:
                return solution
            proof = certify_margin(problem, solution.x, solution.multipliers, seconds, self.tol)
            # Multipliers and offsets are the proof: the bound can be recomputed from the row.
            return replace(
                solution,
                termination=Termination.OPTIMAL if proof.proved_optimal else solution.termination,
                bound=proof.bound,
                multipliers=proof.multipliers,
                offsets=proof.offsets,
            )

        return run
