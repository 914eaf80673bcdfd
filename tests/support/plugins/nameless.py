"""A solver that has forgotten its name."""

from dataclasses import dataclass

from qcqpbench import MaxMargin, RunFunction, Solution, TaskSolver, Termination


@dataclass(frozen=True)
class Nameless(TaskSolver):
    drives = "nothing"
    citation = "none"

    def build(self, problem: MaxMargin) -> RunFunction:
        return lambda start, budget: Solution(start, Termination.FINISHED)
