"""Random search, a solver for max-margin tasks: try a step in a random direction, keep it if the margin grows."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import Array, Budget, MaxMargin, RunFunction, Solution, TaskSolver, Termination, unit_rows


@dataclass(frozen=True)
class RandomSearch(TaskSolver):
    name, drives, citation, accuracy = "random_search", "random steps in NumPy", "Rastrigin (1963)", 1e-2
    steps: int = 5000

    def build(self, problem: MaxMargin) -> RunFunction:
        def run(start: Array, budget: Budget) -> Solution:
            best, margin, rng = unit_rows(start), -np.inf, np.random.default_rng(0)
            for step in range(self.steps):
                W = unit_rows(best + rng.normal(size=best.shape) * 0.5 * 0.998**step)
                if problem.margin(W) > margin:
                    best, margin = W, problem.margin(W)
                    budget.report(best)
                if budget.exhausted():
                    return Solution(best, Termination.TIME_LIMIT, margin, iterations=step)
            return Solution(best, Termination.FINISHED, margin, iterations=self.steps)

        return run
