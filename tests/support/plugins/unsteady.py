"""Solvers whose version is another one each time, or raises."""

import os
from dataclasses import dataclass

from qcqpbench import MaxMargin, RunFunction, Solution, TaskSolver, Termination


@dataclass(frozen=True)
class RandomVersion(TaskSolver):
    name = "random_version"
    drives = "nothing"
    citation = "none"

    def version(self) -> str:
        return os.urandom(4).hex()

    def build(self, problem: MaxMargin) -> RunFunction:
        return lambda start, budget: Solution(start, Termination.FINISHED)


@dataclass(frozen=True)
class RaisingVersion(RandomVersion):
    name = "raising_version"

    def version(self) -> str:
        raise RuntimeError("no version\n" * 5)


@dataclass(frozen=True)
class ExitingVersion(RandomVersion):
    name = "exiting_version"

    def version(self) -> str:
        raise SystemExit("no version")
