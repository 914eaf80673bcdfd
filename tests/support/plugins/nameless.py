"""A solver that has forgotten its name."""

from dataclasses import dataclass

from qcqpbench import MaxMargin, Run, Solution, TaskSolver, Termination


@dataclass(frozen=True)
class Nameless(TaskSolver):
    drives = "nothing"
    citation = "none"

    def build(self, problem: MaxMargin) -> Run:
        return lambda start, budget: Solution(start, Termination.FINISHED)
