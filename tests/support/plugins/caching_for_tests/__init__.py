"""A solver that writes a file to its own package, which makes it another solver."""

import os
from dataclasses import dataclass
from pathlib import Path

from qcqpbench import MaxMargin, RunFunction, Solution, TaskSolver, Termination


@dataclass(frozen=True)
class Caching(TaskSolver):
    name = "caching"
    drives = "nothing"
    citation = "none"

    def build(self, problem: MaxMargin) -> RunFunction:
        Path(__file__).with_name("cache.py").write_text(f"problem, process = {problem.id!r}, {os.getpid()}\n")
        return lambda start, budget: Solution(start, Termination.FINISHED)
