"""Attempts in processes of their own: limits, crashes and cleaning up."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.run.attempt import solve
from qcqpbench.run.isolation import fork_server, supervised_process
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.isolation.fork_server import close_servers
from qcqpbench.run.isolation.protocol import GRACE_SECONDS
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.run_spec import RunOptions, random_start
from tests.support.bad_solvers import (
    DrawsNumbers,
    Exits,
    Fine,
    IgnoresTheTimeLimit,
    Interrupts,
    IsKilled,
    LeavesFiles,
    LeavesOddName,
    Prints,
    ReportsWrongShapes,
)
from tests.support.hostile import Hostile, Kind
from tests.support.processes import MARK, children, is_running, marked, marking, none_left

pytestmark = pytest.mark.slow

TASK: Any = qcqpbench.problem("covariance_perceptron[m=3,p=3,seed=1,ensemble=gaussian]")

THIS_TEST = f"isolate-{os.getpid()}"


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with marking(THIS_TEST), Worker() as worker:
        yield worker


def test_an_attempt_is_the_same_as_in_this_process(worker: Worker) -> None:
    outcome, here = worker.attempt(TASK, Fine()), qcqpbench.solve(TASK, Fine())
    assert outcome.attempt.margin == here.margin
    assert np.array_equal(np.asarray(outcome.attempt.point), np.asarray(here.point))
    assert (outcome.reply.output, outcome.reply.files) == ("", ())


def test_reported_points_of_a_wrong_shape_do_not_cost_the_point(worker: Worker) -> None:
    start = random_start(TASK)
    for attempt in (solve(TASK, ReportsWrongShapes()), worker.attempt(TASK, ReportsWrongShapes()).attempt):
        assert (attempt.termination, attempt.trace) == (Termination.LOCALLY_OPTIMAL, ())
        assert attempt.point == pytest.approx(start)
        assert attempt.margin == pytest.approx(float(TASK.margin(start)), abs=1e-12)


def test_every_solver_has_a_process_of_its_own() -> None:
    """Check that no solver's imports, patches or caches reach another's times or digits."""
    with Worker() as worker:
        for name in ("slsqp", "gip", "slsqp"):
            worker.attempt(TASK, name)
        gip, slsqp, verifier = worker.processes()
        assert len({gip.process_id, slsqp.process_id, verifier.process_id}) == 3


def test_output_and_files_are_contained(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path.cwd().iterdir())
    assert worker.attempt(TASK, Prints()).reply.output == "iteration 1\n"
    assert worker.attempt(TASK, LeavesFiles()).reply.files == ("solver.log",)
    assert worker.attempt(TASK, LeavesOddName()).reply.files == ("solver?.log",)
    assert capfd.readouterr().out == ""
    assert sorted(Path.cwd().iterdir()) == before


def test_a_crash_costs_one_attempt(worker: Worker) -> None:
    crashed = worker.attempt(TASK, IsKilled()).attempt
    assert (crashed.termination, crashed.message) == (Termination.CRASHED, "its process died: SIGKILL")
    assert crashed.spec.problem_id == TASK.id and crashed.solver == "fine"
    assert worker.attempt(TASK, Fine()).attempt.termination is Termination.FINISHED


def test_a_solver_that_exits_is_an_error(worker: Worker) -> None:
    assert worker.attempt(TASK, Exits()).attempt.message == "SystemExit: 3"


def test_a_solver_that_interrupts_is_an_error(worker: Worker) -> None:
    attempt = worker.attempt(TASK, Interrupts()).attempt
    assert (attempt.termination, attempt.message) == (Termination.ERROR, "KeyboardInterrupt: by the solver")


def test_every_run_begins_with_the_same_state_of_the_global_generators(worker: Worker) -> None:
    (first, numpys), *others = (worker.attempt(TASK, DrawsNumbers()).reply.output.split() for _ in range(3))
    assert 0 < float(first) < 1 and 0 < float(numpys) < 1
    assert others == [[first, numpys]] * 2


def test_a_time_limit_of_centuries_is_no_limit(worker: Worker) -> None:
    assert (
        worker.attempt(TASK, Fine(), options=RunOptions(time_limit=1e300)).attempt.termination is Termination.FINISHED
    )


def test_a_hang_is_ended_after_the_limit(worker: Worker) -> None:
    begin = time.monotonic()
    late = worker.attempt(TASK, IgnoresTheTimeLimit(), options=RunOptions(time_limit=0.5)).attempt
    assert late.termination is Termination.TIME_LIMIT
    assert late.message == f"killed while solving, {GRACE_SECONDS:g} s past its limit of 0.5 s"
    # Far above the delays of a busy machine.
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("kind", "termination", "message"),
    [
        ("segfault", Termination.CRASHED, "its process died: SIGSEGV"),
        ("exit", Termination.CRASHED, "its process died: exit code 3"),
        ("abort", Termination.CRASHED, "its process died: SIGABRT"),
        ("spin", Termination.TIME_LIMIT, "killed while solving"),
        ("spin_in_c", Termination.TIME_LIMIT, "killed while solving"),
        ("sleep_in_c", Termination.TIME_LIMIT, "killed while solving"),
        ("stop", Termination.TIME_LIMIT, "killed while solving"),
        ("chatter", Termination.TIME_LIMIT, "killed while solving"),
        ("grab", Termination.MEMORY_LIMIT, "MemoryError: Unable to allocate 46.6 GiB"),
        ("grab_less", Termination.MEMORY_LIMIT, "MemoryError: Unable to allocate 2.79 GiB"),
        ("fill", Termination.MEMORY_LIMIT, "killed while solving: used"),
        ("child", Termination.FINISHED, "left 1 process behind: sleep"),
        ("daemon", Termination.FINISHED, "left 1 process behind: sleep"),
        ("daemon_and_crash", Termination.CRASHED, "its process died: SIGSEGV; left 1 process behind: sleep"),
    ],
)
def test_a_hostile_solver_costs_one_attempt(worker: Worker, kind: Kind, termination: Termination, message: str) -> None:
    """Check status, output and reported point; no process is left, and the next run is unaffected."""
    limit = 20.0 if kind == "fill" else 0.4
    options = RunOptions(time_limit=limit, memory_limit_bytes=600_000_000)
    outcome = worker.attempt(TASK, Hostile(kind), options=options)
    attempt = outcome.attempt
    assert (attempt.termination, attempt.message[: len(message)]) == (termination, message)
    assert (outcome.reply.output[:6] == "begun\n") != (kind == "chatter") and len(outcome.reply.output) <= 4000
    assert attempt.margin == pytest.approx(float(TASK.margin(random_start(TASK))), abs=1e-14)
    assert worker.attempt(TASK, Hostile()).attempt.termination is Termination.FINISHED
    assert none_left(THIS_TEST, but=all_processes(worker)) == {}


def test_a_segfault_leaves_a_traceback(worker: Worker) -> None:
    assert "Segmentation fault" in worker.attempt(TASK, Hostile("segfault")).reply.output


def test_an_endless_build_is_ended(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Worker.__module__], "BUILD_SECONDS", 0.5)
    attempt = worker.attempt(TASK, Hostile("build"), options=RunOptions(time_limit=0.1)).attempt
    assert attempt.termination is Termination.TIME_LIMIT
    assert attempt.message == "killed while building, after 0.5 s" and attempt.build_seconds is not None


def test_more_threads_than_given_are_noted_and_gain_nothing(worker: Worker) -> None:
    attempt = worker.attempt(TASK, Hostile("threads", seconds=1.5)).attempt
    assert attempt.termination is Termination.FINISHED
    assert "was given 1" in attempt.message and attempt.details is not None
    assert float(attempt.details["threads_seen"]) > 1
    # Eight threads, one CPU.
    assert attempt.cpu_seconds is not None and attempt.solve_seconds is not None
    assert len(os.sched_getaffinity(0)) == 1 or attempt.cpu_seconds < 1.2 * attempt.solve_seconds


def test_threads_are_not_noted_where_they_are_given() -> None:
    with Worker(threads=8) as worker:
        assert worker.attempt(TASK, Hostile("threads", seconds=0.5)).attempt.message == ""


def test_workers_have_cpus_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use another folder than the claims of other processes of this user."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 CPUs")
    with Worker() as one, Worker() as two:
        cpus = []
        for worker in (one, two):
            worker.attempt(TASK, Fine())
            cpus.append(os.sched_getaffinity(process_of(worker)))
    assert [len(of_worker) for of_worker in cpus] == [1, 1] and cpus[0] != cpus[1]


def process_of(worker: Worker) -> int:
    """Return the process that ran the last solver, a child of its supervisor."""
    last = list(worker._solvers.values())[-1]
    assert last.supervisor_id is not None
    (pid,) = children(last.supervisor_id)
    assert pid == last.process_id
    return pid


def all_processes(worker: Worker) -> set[int]:
    """Return the supervisors and their children."""
    supervisors = {child.supervisor_id for child in worker.processes()} - {None}
    return {pid for supervisor in supervisors if supervisor for pid in (supervisor, *children(supervisor))}


@pytest.mark.solver
@pytest.mark.parametrize(
    "name",
    ["ipopt", "scip", "cvxpy_alternating", "pyomo", "qcqp", "uno", "gurobi", "copt", "casadi", "pounce", "xpress"],
)
def test_a_shipped_solver_keeps_its_process(worker: Worker, name: str) -> None:
    """Run it three times: threads that a library keeps are no reason for a new process."""
    if solver_facts(name).availability is not Availability.AVAILABLE:
        pytest.skip(solver_facts(name).reason)
    processes = set()
    for start in range(3):
        outcome = worker.attempt(TASK, name, random_start(TASK, start), RunOptions(time_limit=20.0))
        assert outcome.reply.notes == ()
        processes.add(process_of(worker))
    assert len(processes) == 1


def test_the_peak_of_memory_is_that_of_the_run(worker: Worker) -> None:
    before = worker.attempt(TASK, Hostile()).attempt.peak_memory_bytes
    large = worker.attempt(TASK, Hostile("fill_a_little")).attempt.peak_memory_bytes
    after = worker.attempt(TASK, Hostile()).attempt.peak_memory_bytes
    assert before is not None and large is not None and after is not None
    assert large > before + 150_000_000 and after < before + 50_000_000


def test_a_worker_whose_supervisor_is_killed_is_lost_and_replaced(worker: Worker) -> None:
    lost = worker.attempt(TASK, Hostile("kill_supervisor"))
    assert lost.reply.lost and lost.attempt.termination is Termination.CRASHED
    assert worker.attempt(TASK, Hostile()).attempt.termination is Termination.FINISHED


def test_a_worker_that_died_between_runs_is_replaced(worker: Worker) -> None:
    worker.attempt(TASK, Hostile())
    os.kill(process_of(worker), signal.SIGKILL)
    assert worker.attempt(TASK, Hostile()).attempt.termination is Termination.FINISHED


def test_a_worker_that_cannot_start_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Raise one error instead of a crash of every run."""
    (tmp_path / "numpy.py").write_text("raise ImportError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    close_servers()
    with Worker() as worker, pytest.raises(QcqpbenchError, match="died at its start: ImportError: broken"):
        worker.attempt(TASK, Fine())


def test_a_supervisor_killed_at_its_start_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give the process a role in which it never starts, so that the supervisor is killed before, however busy it is."""

    def fork_and_kill(threads: int, request: Any, *descriptors: int) -> fork_server.ForkedProcess:
        silent = replace(request, role="tests.support.silent_role")
        supervisor = fork_server.fork(threads, silent, *descriptors)
        supervisor.send_signal(signal.SIGKILL)
        return supervisor

    monkeypatch.setattr(supervised_process, "fork", fork_and_kill)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Worker() as worker, pytest.raises(QcqpbenchError, match="died at its start: its supervisor was killed"):
        worker.attempt(TASK, Fine())
    assert [path.name for path in tmp_path.glob("qcqpbench-*") if "cpus" not in path.name] == []


@pytest.mark.parametrize(
    ("guard", "outcome"), [("if __name__ == '__main__':", "finished"), ("if True:", "a worker must not start workers")]
)
def test_a_solver_of_the_main_script(tmp_path: Path, guard: str, outcome: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
import qcqpbench
from dataclasses import dataclass
from qcqpbench.run.isolation.worker import Worker
from tests.support.bad_solvers import Fine

@dataclass(frozen=True)
class Mine(Fine):
    name = "mine"

{guard}
    with Worker() as worker:
        attempt = worker.attempt(qcqpbench.problem("covariance_perceptron[m=3,p=3]"), Mine()).attempt
        print(attempt.termination, attempt.message)
""")
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, script], env=variables, capture_output=True, text=True, check=False)
    assert outcome in done.stdout + done.stderr


def test_a_wrong_start_is_wrong_usage(worker: Worker) -> None:
    with pytest.raises(QcqpbenchError, match="start must have the shape"):
        worker.attempt(TASK, Fine(), np.ones(5))


def test_no_process_is_left() -> None:
    with Worker() as worker:
        worker.attempt(TASK, Fine())
        processes = all_processes(worker)
        assert len(processes) == 4
    assert not any(map(is_running, processes))


def test_all_processes_die_with_the_driver() -> None:
    """Kill the driver while a solver hangs in C; its process and its daemon have sessions of their own."""
    program = """
import qcqpbench
from qcqpbench.run.isolation.worker import Worker
from tests.support.hostile import Hostile
Worker().attempt(qcqpbench.problem("covariance_perceptron[m=3,p=3]"), Hostile("daemon_and_spin"))
"""
    mark = f"driver-{os.getpid()}"
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, env=os.environ | {MARK: mark}) as driver:
        deadline = time.monotonic() + 60
        while "sleep" not in marked(mark).values() and time.monotonic() < deadline:
            time.sleep(0.02)
        # The driver, its fork server, the supervisor, the solver's process and its daemon.
        assert len(marked(mark)) == 5
        driver.kill()
    assert none_left(mark) == {}
