import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench.errors import QcqpbenchError
from qcqpbench.isolate import Worker
from qcqpbench.status import Termination
from qcqpbench.worker import GRACE
from tests.bad_solvers import Exits, Fine, IgnoresTheTimeLimit, IsKilled, LeavesFiles, Prints

TASK = qcqpbench.problem("covariance_perceptron[m=3,p=3,seed=1,ensemble=gaussian]")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


def test_the_same_as_in_this_process(worker: Worker) -> None:
    isolated, here = worker.attempt(TASK, Fine()), qcqpbench.solve(TASK, Fine())
    assert isolated.attempt.margin == here.margin
    assert np.array_equal(np.asarray(isolated.attempt.point), np.asarray(here.point))
    assert (isolated.output, isolated.files) == ("", ())


def test_output_and_files_are_contained(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path.cwd().iterdir())
    assert worker.attempt(TASK, Prints()).output == "iteration 1\n"
    assert worker.attempt(TASK, LeavesFiles()).files == ("solver.log",)
    assert capfd.readouterr().out == ""
    assert sorted(Path.cwd().iterdir()) == before


def test_a_crash_costs_one_attempt(worker: Worker) -> None:
    crashed = worker.attempt(TASK, IsKilled()).attempt
    assert (crashed.termination, crashed.message) == (Termination.CRASHED, "its process died: SIGKILL")
    assert crashed.problem_id == TASK.id and crashed.solver == "fine"
    assert worker.attempt(TASK, Fine()).attempt.termination is Termination.FINISHED


def test_a_solver_that_exits_is_an_error(worker: Worker) -> None:
    assert worker.attempt(TASK, Exits()).attempt.message == "SystemExit: 3"


def test_a_limit_of_centuries_is_none(worker: Worker) -> None:
    assert worker.attempt(TASK, Fine(), time_limit=1e300).attempt.termination is Termination.FINISHED


def test_a_hang_is_ended_after_the_limit(worker: Worker) -> None:
    begin = time.monotonic()
    late = worker.attempt(TASK, IgnoresTheTimeLimit(), time_limit=0.5).attempt
    assert late.termination is Termination.TIME_LIMIT
    assert late.message == f"killed while solving, {GRACE:g} s past its limit of 0.5 s"
    # A limit on the harness' own promise, far from what a busy machine adds.
    assert time.monotonic() - begin < 30


def test_a_wrong_start_is_wrong_usage(worker: Worker) -> None:
    with pytest.raises(QcqpbenchError, match="the start has shape"):
        worker.attempt(TASK, Fine(), np.ones(5))


def test_no_process_is_left() -> None:
    with Worker() as worker:
        worker.attempt(TASK, Fine())
        process = worker._process
        assert process is not None and process.poll() is None
    assert process.poll() is not None


def test_a_worker_dies_with_its_parent() -> None:
    program = """
import os, signal, qcqpbench
from qcqpbench.isolate import Worker
from tests.bad_solvers import Fine
worker = Worker()
worker.attempt(qcqpbench.problem("covariance_perceptron[m=3,p=3]"), Fine())
print(worker._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    pid = done.stdout.strip()
    deadline = time.monotonic() + 20
    while Path("/proc", pid).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert pid and not Path("/proc", pid).exists()
