"""Solvers, problems and results for the wrong uses of the Python API."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP, MaxMargin, Results, Row, TaskSolver
from tests.support.results_files import CONVEX, TASK, add_runs

GIP = "gip[starts=1]"
SQUARE = [[1.0, 0.0], [0.0, 1.0]]


@dataclass(frozen=True)
class Start(TaskSolver):
    """Solver that returns its start."""

    name = "start"
    drives = "nothing"
    citation = "none"

    def build(self, problem: MaxMargin) -> qcqpbench.RunFunction:
        return lambda start, budget: qcqpbench.Solution(start, qcqpbench.Termination.FINISHED)


class Undecorated(Start):
    """Solver whose class is not a dataclass."""

    step: float = 0.5


@dataclass(frozen=True)
class Nameless(TaskSolver):
    """Solver whose class has no name, no package and no citation."""

    def build(self, problem: MaxMargin) -> qcqpbench.RunFunction:
        return Start().build(problem)


@dataclass(frozen=True)
class Disc(qcqpbench.Family):
    """Family of linear problems on a disc."""

    name = "disc"
    radius: float = 1.0

    def generate(self) -> QCQP:
        return QCQP(q=[1.0, 1.0], quadratic_constraints=[(np.eye(2), None, None, self.radius**2)])


class Inputs:
    """Problems and results for the wrong uses, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.task: Any = qcqpbench.problem("covariance_perceptron[m=4,load=0.25]")
        self.qcqp: Any = QCQP(SQUARE, x_lower=-1, x_upper=1)
        self.W = np.ones((2, 4))
        (folder / "folder").mkdir()
        (folder / "text.db").write_text("no results\n" * 50)
        (folder / "page.html").write_text("<p>the page of another program</p>")
        (folder / "notes.npz").write_text("notes")
        (folder / "notes.txt").write_text("notes")
        add_runs(folder / "tasks.db", [TASK], [GIP])
        add_runs(folder / "qcqps.db", [CONVEX], ["slsqp"])
        self.results: Any = Results.open(folder / "tasks.db")
        self.other: Any = Results.open(folder / "qcqps.db")

    @property
    def other_row(self) -> Row:
        return next(iter(self.other))

    def solve(self, **changes: Any) -> object:
        arguments: dict[str, Any] = {"problem": self.task, "solver": GIP, **changes}
        return qcqpbench.solve(**arguments)

    def run(self, **changes: Any) -> object:
        arguments: dict[str, Any] = {"problems": [TASK], "solvers": [GIP], "output": "new.db", **changes}
        return qcqpbench.run(**arguments)


@contextlib.contextmanager
def without(module: str) -> Iterator[None]:
    """Let the import of `module` fail, as if it were not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == module]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, module, None)
        yield


def dataframe_without_pandas(use: Inputs) -> object:
    with without("pandas"):
        return use.results.to_dataframe()


def plot_without_matplotlib(use: Inputs) -> object:
    with without("matplotlib"):
        return use.results.plot_capacity()


def dataframe() -> Any:
    return pytest.importorskip("pandas").DataFrame({"problem": [TASK]})


def several_axes() -> Any:
    return np.array([None, None])


def declare_tuple() -> object:
    @dataclass(frozen=True)
    class Tuple(Start):
        sizes: tuple[int, ...] = (1, 2)

    return Tuple()
