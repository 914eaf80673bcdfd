"""Solvers that misbehave, one way each; in a module of their own, so that worker processes can import it."""

import os
import random
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fine(TaskSolver):
    """A well-behaved solver, the base of the others: Nelder–Mead on the margin."""

    name = "fine"
    drives = "Nelder–Mead of scipy.optimize"
    citation = "none"
    accuracy = 1e-2

    def build(self, problem: MaxMargin) -> RunFunction:
        def run(start: Array, budget: Budget) -> Solution:
            def descend(v: Array) -> float:
                W = v.reshape(start.shape)
                return -float(problem.margin(W / np.linalg.norm(W, axis=1, keepdims=True)))

            result = minimize(descend, start.ravel(), method="Nelder-Mead", options={"maxfev": 600})
            return self.finish(Solution(result.x.reshape(start.shape), Termination.FINISHED, -result.fun), budget)

        return run

    def finish(self, solution: Solution, budget: Budget) -> Solution:
        return solution


@dataclass(frozen=True)
class LiesAboutItsObjective(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        return Solution(solution.x, Termination.FINISHED, (solution.objective or 0.0) + 0.1)


@dataclass(frozen=True)
class IgnoresTheTimeLimit(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        # Only where time is short, so that the other cases do not take long.
        if budget.time_limit < 5:
            time.sleep(60)
        return solution


@dataclass(frozen=True)
class Prints(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        os.write(1, b"iteration 1\n")
        return solution


@dataclass(frozen=True)
class PrintsALot(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        lines = [f"line {number}" for number in range(1, 30)]
        os.write(1, "\n".join([*lines, "the line that matters", ""]).encode())
        return solution


@dataclass(frozen=True)
class LeavesFiles(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        Path("solver.log").write_text("left behind")
        return solution


@dataclass(frozen=True)
class LeavesOddName(Fine):
    """A solver that leaves a file whose name is not UTF-8."""

    def finish(self, solution: Solution, budget: Budget) -> Solution:
        Path(os.fsdecode(b"solver\xff.log")).write_text("left behind")
        return solution


@dataclass(frozen=True)
class Raises(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        raise KeyError("my own")


@dataclass(frozen=True)
class ReturnsNaN(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        assert solution.x is not None
        return Solution(np.full_like(solution.x, np.nan), Termination.LOCALLY_OPTIMAL, 1.0)


@dataclass(frozen=True)
class ClaimsWithoutNumbers(Fine):
    """A solver whose objective and bound are not finite."""

    value: str = "inf"
    name = "claims_without_numbers"

    def finish(self, solution: Solution, budget: Budget) -> Solution:
        return replace(solution, objective=float(self.value), bound=float(self.value))


@dataclass(frozen=True)
class ReturnsNothing(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Any:
        return None


@dataclass(frozen=True)
class ReturnsWrongTypes(Fine):
    part: str = "objective"
    name = "returns_wrong_types"

    def finish(self, solution: Solution, budget: Budget) -> Solution:
        wrong: dict[str, Any] = {"objective": "much", "details": None, "termination": "done", "iterations": "few"}
        return replace(solution, **{self.part: wrong[self.part]})


@dataclass(frozen=True)
class ReturnsNumPyTypes(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        odd: dict[str, Any] = {
            "iterations": np.int64(3),
            "message": b"bytes",
            "details": {"a": np.ones(2), "b": np.int8(1)},
        }
        return replace(solution, **odd)


@dataclass(frozen=True)
class RaisesQcqpbenchError(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        raise QcqpbenchError("from inside a run")


@dataclass(frozen=True)
class Exits(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        raise SystemExit(3)


@dataclass(frozen=True)
class Interrupts(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        raise KeyboardInterrupt("by the solver")


@dataclass(frozen=True)
class DrawsNumbers(Fine):
    """A solver that prints numbers of the global generators."""

    def finish(self, solution: Solution, budget: Budget) -> Solution:
        os.write(1, f"{random.random()} {np.random.rand()}\n".encode())
        return solution


@dataclass(frozen=True)
class IsKilled(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        os.kill(os.getpid(), signal.SIGKILL)
        return solution


@dataclass(frozen=True)
class StopsTooEarly(Fine):
    def build(self, problem: MaxMargin) -> RunFunction:
        return lambda start, budget: Solution(start, Termination.FINISHED, float(problem.margin(start)))


@dataclass(frozen=True)
class ProvesTooMuch(Fine):
    def finish(self, solution: Solution, budget: Budget) -> Solution:
        return Solution(solution.x, Termination.OPTIMAL, solution.objective, bound=(solution.objective or 0.0) - 0.1)


@dataclass(frozen=True)
class ClaimsTheInfeasible(QCQPSolver):
    """A solver that returns its start as solved."""

    name = "claims_the_infeasible"
    drives = "nothing"
    citation = "none"

    def build(self, problem: QCQP) -> RunFunction:
        return lambda start, budget: Solution(start, Termination.LOCALLY_OPTIMAL, float(problem.objective(start)))


@dataclass(frozen=True)
class ReportsWrongShapes(ClaimsTheInfeasible):
    """A solver that reports arrays which are no points of its problem, and returns its start."""

    name = "reports_wrong_shapes"

    def build(self, problem: QCQP) -> RunFunction:
        def run(start: Array, budget: Budget) -> Solution:
            for shape in (3, (2, 2), start.size + 1, 0):
                budget.report(np.ones(shape))
            return Solution(start, Termination.LOCALLY_OPTIMAL, float(problem.objective(start)))

        return run


@dataclass(frozen=True)
class NeedsWhatIsMissing(Fine):
    name = "needs_what_is_missing"
    requires = ("a_package_nobody_has",)
    extra = "missing"
