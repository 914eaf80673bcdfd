"""Several rounds of gip within the time limit, for best known margins (docs/background/gip.md)."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin

from . import _gip_kernel
from ._gip_crossings import Crossings, best_first, seed_of
from ._gip_passes import Passes
from ._library import steps_version
from .gip import Climb, Gip, automatic_starts, batch_of_starts, margin_of

# A round that reaches the optimum of an earlier one again, with another rounding, is not better.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Multistart(TaskSolver):
    """Best solution of several rounds of gip, from new random starts and from crossings of earlier optima.

    If the time limit ends a round, its best point is included.

    Parameters
    ----------
    rounds
        Limit on the number of rounds.
    """

    name = "multistart"
    drives = "gip, several rounds while there is time"
    citation = "qcqpbench, docs/background/gip.md"

    rounds: int = 4

    def version(self) -> str:
        return f"{super().version()}, {steps_version(_gip_kernel.library())}"

    def build(self, problem: MaxMargin) -> RunFunction:
        gip, passes = Gip(), Passes(problem, mixed=True)

        def run(start: NDArray[np.float64], budget: Budget) -> Solution:
            climbs: list[Climb] = []
            optima = np.empty((0, problem.n, problem.m))
            for number in range(self.rounds):
                count, crossed = automatic_starts(problem), optima[:0]
                if len(optima):
                    crossings = Crossings(passes, seed_of(start), number, count // 2)
                    crossed = crossings.take(optima, count // 2)
                W = batch_of_starts(start, count - len(crossed), number)
                best = max((margin_of(climb.solution) for climb in climbs), default=-np.inf)
                climbs.append(gip.climb(passes, W, budget, best, crossed))
                if climbs[-1].solution.termination is Termination.TIME_LIMIT:
                    break
                optima = best_first(passes, np.concatenate([optima, climbs[-1].optima]))
            best_solution = climbs[0].solution
            for climb in climbs:
                if margin_of(climb.solution) > margin_of(best_solution) + _ROUNDING * problem.scale:
                    best_solution = climb.solution
            return replace(best_solution, iterations=sum(climb.solution.iterations or 0 for climb in climbs))

        return run
