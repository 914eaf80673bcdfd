"""Several rounds of gip, each from new random starts, while there is time: for best known margins. docs/gip.md"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin

from ._gip_passes import Passes
from .gip import Gip, automatic_starts, batch_of_starts


@dataclass(frozen=True)
class Multistart(TaskSolver):
    """The best of several rounds of gip; one that the time cuts short keeps what it has found.

    rounds    how many, if there is time
    """

    name = "multistart"
    drives = "gip, several rounds while there is time"
    citation = "qcqpbench, docs/gip.md"

    rounds: int = 4

    def build(self, problem: MaxMargin) -> RunFunction:
        gip, passes = Gip(), Passes(problem, mixed=True)

        def run(start: NDArray[np.float64], budget: Budget) -> Solution:
            points: list[tuple[float, Solution]] = []
            for number in range(self.rounds):
                W = batch_of_starts(start, automatic_starts(problem), number)
                best = max((margin for margin, _ in points), default=-np.inf)
                found = gip.climb(passes, W, budget, best)
                points.append((-np.inf if found.objective is None else found.objective, found))
                if found.termination is Termination.TIME_LIMIT:
                    break
            _, best_point = max(points, key=lambda each: each[0])
            return replace(best_point, iterations=sum(found.iterations or 0 for _, found in points))

        return run
