"""A solver that falsifies margins for every process which imports it."""

from dataclasses import dataclass
from typing import Any

from qcqpbench import MaxMargin, RunFunction, Solution, TaskSolver, Termination

_margin = MaxMargin.margin


def _falsified(self: MaxMargin, W: Any) -> Any:
    return 40 + _margin(self, W)


MaxMargin.margin = _falsified  # type: ignore[method-assign]


@dataclass(frozen=True)
class Patching(TaskSolver):
    name = "patching"
    drives = "nothing"
    citation = "none"

    def build(self, problem: MaxMargin) -> RunFunction:
        return lambda start, budget: Solution(start, Termination.OPTIMAL, float(problem.margin(start)))
