"""Gradient ascent on the soft margin, in a repository with benchmarks of its own."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import Array, Budget, MaxMargin, RunFunction, Solution, TaskSolver, Termination, unit_rows


@dataclass(frozen=True)
class Ascent(TaskSolver):
    name, drives, citation, accuracy = "ascent", "gradient ascent in NumPy", "none", 1e-2
    steps: int = 500

    def build(self, problem: MaxMargin) -> RunFunction:
        def run(start: Array, budget: Budget) -> Solution:
            W = best = unit_rows(start)
            for step in range(self.steps):
                # The soft margin tends to the margin as the steps become short.
                sharpness = 2 * 1.005**step / problem.scale
                _, gradient = problem.soft_margin_gradient(W, sharpness)
                W = unit_rows(W + 0.5 * 0.99**step * gradient / np.linalg.norm(gradient))
                if problem.margin(W) > problem.margin(best):
                    best = W
                    budget.report(best)
                if budget.exhausted():
                    return Solution(best, Termination.TIME_LIMIT, problem.margin(best), iterations=step)
            return Solution(best, Termination.FINISHED, problem.margin(best), iterations=self.steps)

        return run
