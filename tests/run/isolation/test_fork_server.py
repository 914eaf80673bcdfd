"""The fork server: its processes have the surroundings of the driver, and a server that ends is replaced."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench.catalog.solver import Budget, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.run.attempt import spec_of_objects
from qcqpbench.run.isolation import fork_server
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.pools.local_pool import LocalPool
from qcqpbench.run.run_spec import RunOptions
from tests.support.bad_solvers import Fine
from tests.support.processes import is_running, marked, marking, none_left

pytestmark = pytest.mark.slow

SPEC = "covariance_perceptron[m=3,p=3,seed=1]"
TASK: Any = qcqpbench.problem(SPEC)
THIS_TEST = f"forkserver-{os.getpid()}"


@pytest.fixture(autouse=True, scope="module")
def with_mark() -> Iterator[None]:
    with marking(THIS_TEST):
        yield
    assert none_left(THIS_TEST) == {}


@dataclass(frozen=True)
class SaysWhereItIs(Fine):
    """A solver that prints a variable of its environment, its import path, and its parent's parent."""

    def finish(self, solution: Solution, budget: Budget) -> Solution:
        stat = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        print(os.environ["A_VARIABLE"], sys.path[0], stat[1], flush=True)
        return solution


@dataclass(frozen=True)
class ForksAndKillsItsSupervisor(Fine):
    """A solver that leaves a fork with a session of its own, which its dead supervisor cannot adopt."""

    def finish(self, solution: Solution, budget: Budget) -> Solution:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000.0)
            os._exit(0)
        os.wait()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000.0)
        return solution


def server() -> int:
    (process,) = fork_server.server_ids()
    assert process in marked(THIS_TEST)
    return process


def test_processes_have_the_surroundings_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Worker() as worker:
        worker.attempt(TASK, Fine())
    before = server()
    for value in ("first", "second\udcff"):
        folder = tmp_path / value
        monkeypatch.setenv("A_VARIABLE", value)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        with Worker() as worker:
            output = worker.attempt(TASK, SaysWhereItIs()).reply.output
        assert output.encode(errors="replace").decode().split() == [
            value.encode(errors="surrogateescape").decode(errors="replace"),
            str(folder).encode(errors="surrogateescape").decode(errors="replace"),
            str(before),
        ]


def test_no_solver_and_no_family_is_loaded_in_the_server() -> None:
    program = f"""
import importlib, sys
for name in {fork_server._IMPORTS}:
    importlib.import_module(name)
print([name for name in sys.modules if name.startswith(("qcqpbench.solvers.", "qcqpbench.problems."))])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_server_that_was_killed_is_replaced() -> None:
    with Worker() as worker:
        worker.attempt(TASK, Fine())
        before = server()
        os.kill(before, signal.SIGKILL)
        assert none_left(THIS_TEST) == {} and not is_running(before)
        assert worker.attempt(TASK, Fine()).attempt.termination is Termination.FINISHED
        assert server() != before


def test_a_server_that_was_stopped_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker() as worker:
        worker.attempt(TASK, Fine())
    before = server()
    os.kill(before, signal.SIGSTOP)
    monkeypatch.setattr(fork_server, "_FORK_SECONDS", 0.2)
    with Worker() as worker:
        assert worker.attempt(TASK, Fine()).attempt.termination is Termination.FINISHED
    assert not is_running(before)


def test_a_run_whose_server_is_killed_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.hostile import Hostile, install  # noqa: PLC0415 (known to the processes by this test only)

    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    nap = Hostile("nap", 1.0)
    spec = spec_of_objects(TASK, nap.facts(), RunOptions())
    specs = [replace(spec, start=start) for start in range(3)]
    outcomes = []
    for number, outcome in enumerate(LocalPool().outcomes(specs)):
        outcomes.append(outcome.attempt.termination)
        if number == 0:
            os.kill(server(), signal.SIGKILL)
    assert outcomes == [Termination.FINISHED] * 3


def test_a_fork_does_not_outlive_a_killed_supervisor() -> None:
    with Worker() as worker:
        assert worker.attempt(TASK, ForksAndKillsItsSupervisor()).reply.lost
    assert none_left(THIS_TEST) == {}
