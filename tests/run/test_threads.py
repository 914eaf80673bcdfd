"""Numbers of BLAS threads during a run, in this process and in a worker."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

import qcqpbench
from qcqpbench.run.isolation.worker import Worker
from tests.support.thread_solvers import CountsThreads, blas_threads

ROOT = Path(__file__).parents[2]
TASK: Any = qcqpbench.problem("covariance_perceptron[m=3,p=3,seed=1,ensemble=gaussian]")
CORES = len(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(not blas_threads(), reason="threadpoolctl does not know the BLAS of NumPy")


def counts(details: Mapping[str, str | float] | None) -> set[float]:
    """Return the numbers of threads that `CountsThreads` saw, after a check that it saw some in `build` and `run`."""
    assert details is not None and {"build 0", "run 0"} <= set(details)
    return {float(value) for value in details.values()}


@pytest.mark.parametrize(("threads", "of_caller"), [(1, 2), (2, 1), (2, 3)])
def test_solve_limits_threads_and_restores_those_of_the_caller(threads: int, of_caller: int) -> None:
    with threadpool_limits(of_caller):
        before = blas_threads()
        assert set(before.values()) == {of_caller}
        attempt = qcqpbench.solve(TASK, CountsThreads(), threads=threads)
        assert counts(attempt.details) == {min(threads, CORES)}
        assert blas_threads() == before


def test_one_thread_is_the_default() -> None:
    with threadpool_limits(2):
        assert counts(qcqpbench.solve(TASK, CountsThreads()).details) == {1}


@pytest.mark.parametrize("solver", [CountsThreads(fails=True), CountsThreads(leaves_three=True)])
def test_the_threads_of_the_caller_are_restored_whatever_the_solver_does(solver: CountsThreads) -> None:
    with threadpool_limits(2):
        before = blas_threads()
        qcqpbench.solve(TASK, solver)
        assert blas_threads() == before


def test_no_more_threads_than_cores_are_used() -> None:
    assert counts(qcqpbench.solve(TASK, CountsThreads(), threads=CORES + 3).details) == {CORES}


def test_a_library_that_build_loads_is_limited_in_the_run(tmp_path: Path) -> None:
    """Load a copy of NumPy's BLAS in `build`, where one thread is its default, and give the run two."""
    numpys = next(path for path in sorted(blas_threads()) if "openblas" in path)
    copy = tmp_path / "libopenblas_copy.so"
    shutil.copy(numpys, copy)
    (tmp_path / "imported_by_build.py").write_text("")
    code = f"""
import qcqpbench
from tests.support.thread_solvers import CountsThreads
task = qcqpbench.problem("covariance_perceptron[m=3,p=3,seed=1,ensemble=gaussian]")
solver = CountsThreads(library={str(copy)!r}, module="imported_by_build")
details = qcqpbench.solve(task, solver, threads=2).details
print(len([name for name in details if name.startswith("run")]) - len([name for name in details if "build" in name]))
print(*sorted(set(details.values())))
"""
    path = os.pathsep.join(map(str, (ROOT, tmp_path, Path(numpys).parent)))
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path, "LD_LIBRARY_PATH": path}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert output == f"1\n{float(min(2, CORES))}\n"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_limits_the_threads_of_each_run(threads: int) -> None:
    """Run twice in one process; the first run leaves another number of threads behind."""
    with Worker(threads) as worker:
        outcomes = [worker.attempt(TASK, CountsThreads(leaves_three=True)) for _ in range(2)]
        assert [outcome.attempt.message for outcome in outcomes] == ["", ""]
        assert [counts(outcome.attempt.details) for outcome in outcomes] == [{min(threads, CORES)}] * 2
        assert not any(outcome.reply.fresh for outcome in outcomes)
