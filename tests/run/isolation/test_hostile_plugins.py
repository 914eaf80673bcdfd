"""Plug-ins that attack the isolation: limits, verification and cleaning up hold nevertheless."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import qcqpbench
from qcqpbench.catalog.registry import family
from qcqpbench.catalog.status import Termination
from qcqpbench.run.isolation import supervised_process
from qcqpbench.run.isolation import worker as isolation_worker
from qcqpbench.run.isolation import worker as worker_module
from qcqpbench.run.isolation._linux import cpu_seconds
from qcqpbench.run.isolation.worker import Worker
from tests.support.plugins.malicious import HIDDEN_SECONDS, LAZY_SECONDS, SPIN_PIPE
from tests.support.plugins.runs import SPEC, TASK, installed, margin, run_spec
from tests.support.processes import MARK, is_running, marked, none_left

pytestmark = pytest.mark.slow

QCQPBENCH = str(Path(sys.executable).with_name("qcqpbench"))


@pytest.fixture(autouse=True, scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with installed(tmp_path_factory.mktemp("plugins")):
        yield


@pytest.mark.parametrize("form", ["pipe", "link", "folder"])
def test_a_replaced_file_of_reports_costs_its_content_only(form: str) -> None:
    with Worker() as worker:
        attempt = worker.run(run_spec(f"malicious[kind=replace_reports_by_{form}]")).attempt
        assert (attempt.termination, attempt.message) == (Termination.CRASHED, "its process died: exit code 3")
        assert attempt.point is None
        assert worker.run(run_spec("slsqp")).attempt.termination is Termination.LOCALLY_OPTIMAL


@pytest.mark.parametrize("kind", ["lift_time_limit", "drain_phases", "endless_array"])
def test_a_solver_cannot_lift_its_time_limit(kind: str) -> None:
    begin = time.monotonic()
    with Worker() as worker:
        attempt = worker.run(replace(run_spec(f"malicious[kind={kind}]"), time_limit=0.2)).attempt
    assert attempt.termination is Termination.TIME_LIMIT
    assert attempt.message.startswith("killed while solving")
    # Far below the time that the solver wants, and far above the delays of a busy machine.
    assert time.monotonic() - begin < 60


def test_a_phase_begins_when_it_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the other limits as well, after whose sum the driver would end the run."""
    for name, seconds in (("FINISH_SECONDS", 0.5), ("PREPARE_SECONDS", 20.0), ("BUILD_SECONDS", 5.0)):
        monkeypatch.setattr(worker_module, name, seconds)
    monkeypatch.setattr(supervised_process, "_ENFORCE_SECONDS", 5.0)
    with Worker() as worker:
        attempt = worker.run(replace(run_spec("malicious[kind=finish_in_the_future]"), time_limit=5.0)).attempt
    assert (attempt.termination, attempt.message) == (Termination.TIME_LIMIT, "killed while finishing, after 0.5 s")


def test_a_solver_cannot_lift_its_memory_limit() -> None:
    with Worker() as worker:
        limited = replace(
            run_spec("malicious[kind=lift_memory_limit]"), time_limit=60.0, memory_limit_bytes=400_000_000
        )
        attempt = worker.run(limited).attempt
    assert attempt.termination is Termination.MEMORY_LIMIT, attempt.message
    assert attempt.message.startswith("killed while solving: used")


def test_a_verification_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give no time to the verification of a problem that takes some tenths of a second to make."""
    spec = family("covariance_perceptron[m=60,p=4000,seed=1,ensemble=gaussian]").spec
    large = replace(run_spec("malicious[kind=honest]"), problem=spec, problem_id=qcqpbench.problem(spec).id)
    limits = isolation_worker._limits
    monkeypatch.setattr(isolation_worker, "PREPARE_SECONDS", 0.0)
    # The solver's process makes the problem, too.
    monkeypatch.setattr(isolation_worker, "_limits", lambda request: limits(request)._replace(prepare_seconds=60.0))
    with Worker() as worker:
        attempt = worker.run(large).attempt
    assert (attempt.termination, attempt.margin, attempt.point) == (Termination.ERROR, None, None)
    assert attempt.message.startswith("could not be verified: the verifier's process ended: deadline")


def test_a_claim_past_the_time_limit_is_a_time_limit() -> None:
    with Worker() as worker:
        attempt = worker.run(run_spec("malicious[kind=forge_late_reply]")).attempt
    assert attempt.termination is Termination.TIME_LIMIT
    assert attempt.message == "says optimal, but returned 980 s past its limit"


def test_impossible_times_are_an_error() -> None:
    with Worker() as worker:
        attempt = worker.run(run_spec("malicious[kind=forge_times]")).attempt
    assert attempt.termination is Termination.ERROR and attempt.solve_seconds is None
    assert "seconds must be finite and at least 0, got inf" in attempt.message


def test_the_trace_is_converted_before_the_clock_stops() -> None:
    """Leave out a point that a solver put into the trace itself."""
    begin = time.monotonic()
    with Worker() as worker:
        attempt = worker.run(run_spec("malicious[kind=lazy_trace]")).attempt
    assert (attempt.termination, len(attempt.trace)) == (Termination.MEMORY_LIMIT, 1)
    assert attempt.margin == pytest.approx(margin(qcqpbench.random_start(TASK, 0)), abs=1e-12)
    assert attempt.solve_seconds is not None
    assert attempt.solve_seconds >= 100 * LAZY_SECONDS or time.monotonic() - begin < 100 * LAZY_SECONDS


def test_points_of_the_trace_cannot_change_after_the_clock() -> None:
    with Worker() as worker:
        attempt = worker.run(run_spec("malicious[kind=change_trace_late]")).attempt
    assert (attempt.termination, len(attempt.trace)) == (Termination.MEMORY_LIMIT, 1)
    assert attempt.margin == pytest.approx(margin(qcqpbench.random_start(TASK, 0)), abs=1e-12)


@pytest.mark.parametrize("which", ["solver", "verifier"])
def test_an_idle_process_that_was_stopped_is_continued(which: str) -> None:
    with Worker() as worker:
        worker.run(run_spec("slsqp"))
        solver_process, verifier_process = worker.processes()
        stopped = solver_process if which == "solver" else verifier_process
        os.kill(stopped.process_id, signal.SIGSTOP)
        begin = time.monotonic()
        assert worker.run(run_spec("slsqp", 1)).attempt.termination is Termination.LOCALLY_OPTIMAL
        # Far below the minutes that a request may take.
        assert time.monotonic() - begin < 60


def test_a_process_that_works_while_it_is_idle_is_replaced() -> None:
    with Worker() as worker:
        worker.run(run_spec("slsqp"))
        (child, _) = worker.processes()
        before = child.process_id
        worker.run(run_spec("slsqp", 1))
        assert child.process_id == before
        # As if it had used the CPU meanwhile.
        child._cpu_seconds -= 1.0
        worker.run(run_spec("slsqp", 2))
        assert child.process_id != before


def test_a_process_that_computes_after_its_run_does_not_disturb_another_solver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wake a thread that a solver has left asleep, then run another solver, which has a process of its own."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv(SPIN_PIPE, str(pipe))
    with Worker() as worker:
        worker.run(run_spec("slsqp"))
        isolated = worker.run(run_spec("malicious[kind=spin_late]"))
        assert (isolated.attempt.termination, isolated.reply.notes) == (Termination.FINISHED, ())
        _, left, _ = worker.processes()
        spinning = left.process_id
        assert is_running(spinning)
        used = cpu_seconds(spinning)
        # Blocks until the thread has opened its end.
        with pipe.open("wb"):
            assert wait_until(lambda: cpu_seconds(spinning) > used + 0.2)
        assert worker.run(run_spec("slsqp", 1)).attempt.termination is Termination.LOCALLY_OPTIMAL
        assert not is_running(spinning)


def hidden() -> list[int]:
    """Return the processes that hide from their supervisor."""
    command, pids = f"sleep\0{os.environ[HIDDEN_SECONDS]}\0".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes() == command:
                pids.append(int(folder.name))
    return pids


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Return whether a condition holds in time."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_child_without_environment_does_not_outlive_a_killed_supervisor() -> None:
    with Worker() as worker:
        assert worker.run(run_spec("malicious[kind=hide_child_and_kill_supervisor]")).reply.lost
        assert wait_until(lambda: not hidden())


def test_a_child_without_environment_does_not_outlive_driver_and_supervisor() -> None:
    mark = f"both-{os.getpid()}"
    command = [QCQPBENCH, "solve", SPEC, "-s", "malicious[kind=hide_child_and_wait]"]
    with subprocess.Popen(
        command, env=os.environ | {MARK: mark}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        assert wait_until(lambda: bool(hidden()))
        (child,) = hidden()
        solver_process = parent(child)
        supervisor = parent(solver_process)
        assert parent(parent(supervisor)) == driver.pid
        os.kill(driver.pid, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
        os.kill(driver.pid, signal.SIGKILL)
    assert wait_until(lambda: not hidden())
    assert none_left(mark) == {}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_stopped_supervisor_does_not_void_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_process, "_TICK_SECONDS", 0.1)
    with Worker() as worker:
        attempt = worker.run(run_spec("malicious[kind=stop_supervisor]")).attempt
        assert (attempt.termination, attempt.message) == (
            Termination.CRASHED,
            "its process died: its supervisor was stopped",
        )
        assert worker.run(run_spec("slsqp")).attempt.termination is Termination.LOCALLY_OPTIMAL


def test_nothing_outlives_the_driver_even_if_the_supervisor_is_stopped() -> None:
    """Read the driver's stderr to its end, too: nothing else holds it."""
    mark = f"stopped-{os.getpid()}"
    command = [QCQPBENCH, "solve", SPEC, "-s", "malicious[kind=stop_supervisor]"]
    with subprocess.Popen(
        command, env=os.environ | {MARK: mark}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as driver:
        assert wait_until(lambda: any(map(is_stopped, marked(mark))))
        driver.send_signal(signal.SIGKILL)
        assert driver.stderr is not None
        driver.stderr.read()
    assert none_left(mark) == {}


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
