"""Solvers that report how many threads BLAS has; in a module of their own, so that worker processes can import it."""

import ctypes
import importlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin

Array = NDArray[np.float64]


def blas_threads() -> dict[str, int]:
    """Return the number of threads of each loaded BLAS library that can have several, by file.

    Some packages of solvers bring a library that was built for one thread, which no limit changes.
    """
    return {
        library["filepath"]: library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas" and library.get("threading_layer") != "disabled"
    }


@dataclass(frozen=True)
class CountsThreads(TaskSolver):
    """Report the number of BLAS threads in `build` and in the run as details, such as "build 0" for a first library.

    leaves_three   whether `build` and the run set the number of threads to 3 and leave it so
    library         file of a library to load in `build`
    module          name of a module to import in `build`
    fails           whether the run raises an exception
    """

    name = "counts_threads"
    drives = "nothing"
    citation = "none"

    leaves_three: bool = False
    library: str = ""
    module: str = ""
    fails: bool = False

    def build(self, problem: MaxMargin) -> RunFunction:
        details = {f"build {place}": float(count) for place, count in enumerate(blas_threads().values())}
        if self.leaves_three:
            threadpool_limits(3)
        if self.library:
            ctypes.CDLL(self.library)
            importlib.import_module(self.module)

        def run(start: Array, budget: Budget) -> Solution:
            counts = {f"run {place}": float(count) for place, count in enumerate(blas_threads().values())}
            if self.leaves_three:
                threadpool_limits(3)
            if self.fails:
                raise ValueError("cannot run")
            return Solution(start, Termination.FINISHED, details=details | counts)

        return run
