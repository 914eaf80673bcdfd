"""Several rounds of gip, each from new random starts, within the time limit; for best known margins (docs/gip.md)."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin

from ._gip_passes import Passes
from .gip import Climb, Gip, automatic_starts, batch_of_starts


@dataclass(frozen=True)
class Multistart(TaskSolver):
    """Best solution of several rounds of gip, each from new random starts.

    If the time limit ends a round, its best point is included.

    Parameters
    ----------
    rounds
        Limit on the number of rounds.
    """

    name = "multistart"
    drives = "gip, several rounds while there is time"
    citation = "qcqpbench, docs/gip.md"

    rounds: int = 4

    def build(self, problem: MaxMargin) -> RunFunction:
        gip, passes = Gip(), Passes(problem, mixed=True)

        def run(start: NDArray[np.float64], budget: Budget) -> Solution:
            climbs: list[Climb] = []
            for number in range(self.rounds):
                count = automatic_starts(problem)
                W = batch_of_starts(start, count, number)
                best = max((_margin(climb.solution) for climb in climbs), default=-np.inf)
                climbs.append(gip.climb(passes, W, budget, best))
                if climbs[-1].solution.termination is Termination.TIME_LIMIT:
                    break
            solutions = [climb.solution for climb in climbs]
            iterations = sum(solution.iterations or 0 for solution in solutions)
            return replace(max(solutions, key=_margin), iterations=iterations)

        return run


def _margin(solution: Solution) -> float:
    return -np.inf if solution.objective is None else solution.objective
