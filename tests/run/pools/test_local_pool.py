"""Pools: outcomes of jobs as they finish, on workers of this machine, and the command `run`."""

import itertools
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Termination
from qcqpbench.cli._progress import Progress, Tally, table
from qcqpbench.cli.main import main
from qcqpbench.errors import QcqpbenchError
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import random_start, solve
from qcqpbench.run.isolation.protocol import VerifyRequest
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.job import Job, Outcome, labels
from qcqpbench.run.pools import dask_pool
from qcqpbench.run.pools.local_pool import MAX_TRIES, LocalPool, Running, run_job
from qcqpbench.run.proposal import Proposal
from tests.support.hostile import Hostile, Kind, install
from tests.support.processes import marking, none_left

SCRIPT = Path(sys.executable).with_name("qcqpbench")
SPEC = "covariance_perceptron[m=3,p=3,seed=1]"
TASK: Any = qcqpbench.problem(SPEC)
THIS_TEST = f"runner-{os.getpid()}"

pytestmark = pytest.mark.slow


def job(solver: Any, start: int = 0, **limits: Any) -> Job:
    return Job(SPEC, TASK.id, solver.spec, solver.identity(), solver.facts().formulation, start, **limits)


@pytest.fixture(autouse=True, scope="module")
def with_mark() -> Iterator[None]:
    with marking(THIS_TEST):
        yield
    assert none_left(THIS_TEST) == {}


@pytest.fixture(autouse=True)
def with_hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the hostile solver; check at the end that only fork servers of this process are left."""
    install(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[3]}")
    yield
    assert none_left(THIS_TEST) == {}


def test_outcomes_are_those_of_solve() -> None:
    jobs = [job(solver("slsqp"), start, seed=5, time_limit=20.0) for start in range(6)]
    outcomes = {outcome.job: outcome for outcome in LocalPool(2).outcomes(jobs)}
    assert set(outcomes) == set(jobs)
    assert {outcome.worker for outcome in outcomes.values()} <= {"local-0", "local-1"}
    for started, outcome in outcomes.items():
        here = solve(TASK, "slsqp", random_start(TASK, started.start, 5))
        # With another number of BLAS threads the last bits may differ.
        assert outcome.attempt.margin == pytest.approx(here.margin, abs=1e-12)
        assert abs(outcome.begun - time.time()) < 600


def test_crashes_become_rows_and_other_jobs_still_run() -> None:
    kinds: dict[Kind, Termination] = {
        "segfault": Termination.CRASHED,
        "exit": Termination.CRASHED,
        "spin_in_c": Termination.TIME_LIMIT,
        "grab": Termination.MEMORY_LIMIT,
        "child": Termination.FINISHED,
        "fine": Termination.FINISHED,
    }
    jobs = [job(Hostile(kind), start, time_limit=0.3, memory_limit=10**9) for start in range(2) for kind in kinds]
    outcomes = list(LocalPool(2).outcomes(jobs))
    terminations = sorted(
        (outcome.job.solver, outcome.job.start, str(outcome.attempt.termination)) for outcome in outcomes
    )
    expected = sorted((Hostile(kind).spec, start, str(kinds[kind])) for start in range(2) for kind in kinds)
    assert terminations == expected
    assert all(outcome.output == "begun\n" for outcome in outcomes if "segfault" not in outcome.job.solver)


def test_a_run_killed_from_outside_is_tried_again() -> None:
    """Let the solver kill its process, so that it happens every time."""
    (outcome,) = LocalPool().outcomes([job(Hostile("count_and_die"), time_limit=20.0)])
    assert outcome.attempt.termination is Termination.CRASHED
    assert Path("tries").read_text() == "x" * MAX_TRIES


def test_jobs_are_taken_as_they_are_needed() -> None:
    """Take the first outcomes of an endless suite, then close the generator."""
    taken = itertools.count()
    endless = (job(Hostile(), next(taken)) for _ in itertools.repeat(None))
    outcomes = LocalPool(2).outcomes(endless)
    assert len(list(itertools.islice(outcomes, 5))) == 5
    outcomes.close()
    assert next(taken) < 20


def test_closing_the_generator_ends_the_runs() -> None:
    pool = LocalPool(2)
    outcomes = pool.outcomes([job(Hostile("fine")), job(Hostile("spin_in_c")), job(Hostile("sleep_in_c"))])
    next(outcomes)
    begin = time.monotonic()
    while len(pool.running()) < 2 and time.monotonic() < begin + 20:
        time.sleep(0.01)
    assert {running.worker for running in pool.running()} == {"local-0", "local-1"}
    outcomes.close()
    assert none_left(THIS_TEST) == {} and pool.running() == []


def test_another_version_is_an_error_row_here_and_ends_the_run_on_another_machine() -> None:
    other = replace(job(solver("slsqp")), version="scipy 0.1")
    (outcome,) = LocalPool().outcomes([other])
    assert outcome.attempt.termination is Termination.ERROR and outcome.attempt.point is None
    assert "slsqp must have the version 'scipy 0.1', the worker got" in outcome.attempt.message
    with (
        Worker() as worker,
        pytest.raises(QcqpbenchError, match=r"slsqp must have the version 'scipy 0\.1', the worker got"),
    ):
        run_job(other, worker, "elsewhere", machine={})


def test_an_unknown_solver_ends_the_run() -> None:
    with pytest.raises(QcqpbenchError, match="did you mean 'slsqp'"):
        list(LocalPool().outcomes([replace(job(solver("slsqp")), solver="slqsp")]))


def test_another_problem_on_the_worker_is_an_error_of_the_run() -> None:
    (outcome,) = LocalPool().outcomes([replace(job(solver("slsqp")), problem_id="0" * 64)])
    assert outcome.attempt.termination is Termination.ERROR and outcome.attempt.point is None
    assert f"must have the id {'0' * 64}, the worker got {TASK.id}" in outcome.attempt.message
    assert outcome.attempt.solve_seconds is None


def test_another_problem_in_the_verifier_is_an_error_of_the_run() -> None:
    proposal = Proposal(Termination.OPTIMAL, x=random_start(TASK))
    with Worker() as worker:
        right, wrong = (
            worker._evaluate(VerifyRequest(SPEC, id, None, proposal, tolerance=1e-6)) for id in (TASK.id, "0" * 64)
        )
    assert right[0].termination is Termination.OPTIMAL and right[1].point is not None
    assert wrong[0].termination is Termination.ERROR and wrong[1].point is None
    assert f"must have the id {'0' * 64}, the verifier got {TASK.id}" in wrong[0].message


def test_an_error_in_the_jobs_is_raised() -> None:
    def jobs() -> Iterator[Job]:
        yield job(Hostile())
        raise QcqpbenchError("no more")

    with pytest.raises(QcqpbenchError, match="no more"):
        list(LocalPool(2).outcomes(jobs()))


def test_threads_of_a_job_reach_its_worker() -> None:
    jobs = [job(Hostile("say_threads"), threads=threads) for threads in (1, 3)]
    outputs = {outcome.job.threads: outcome.output for outcome in LocalPool().outcomes(jobs)}
    assert outputs == {1: "begun\n1 1\n", 3: "begun\n3 3\n"}


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), "run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def test_run_fills_a_file_and_resumes() -> None:
    words = ("-p", SPEC, "-s", "slsqp", "-s", "hostile", "--timeout", "9", "-j", "2", "-o", "r.db")
    first = run(*words, "-r", "2")
    assert first.returncode == 0 and "[4/4]" in first.stderr
    assert re.search(r"^slsqp +2 .*\nhostile +2 .*\nr.db: 4 runs$", first.stdout, re.MULTILINE)
    second = run(*words, "-r", "3")
    assert second.stderr.count("start 2") == 2 and "start 1" not in second.stderr
    assert re.search(r"^slsqp +3 ", second.stdout, re.MULTILINE) and "6 runs, 4 of them done before" in second.stdout
    assert run(*words, "-r", "3", "-f").stdout.endswith("r.db: 6 runs\n")
    with Store("r.db") as store:
        rows = list(store.rows(all_rows=True))
        assert len(rows) == 12 and len({row["key"] for row in rows}) == 6
        assert {(row["time_limit"], row["memory_limit"], row["worker"][:6]) for row in rows} == {(9, 4e9, "local-")}
        assert [invocation["command"].split()[:2] for invocation in store.invocations().values()] == [
            ["qcqpbench", "run"]
        ] * 3


def test_ctrl_c_keeps_what_is_finished() -> None:
    command = [
        str(SCRIPT),
        "run",
        "-p",
        SPEC,
        "-s",
        "hostile[kind=nap,seconds=0.2]",
        "-r",
        "200",
        "-j",
        "2",
        "-o",
        "r.db",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("[3/200]"):
            pass
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.splitlines()[-1].startswith("qcqpbench: interrupted;")
    with Store("r.db") as store:
        count = len(store.finished())
    assert 3 <= count < 200 and f" {count} new runs are in r.db" in rest


def test_runs_left_out_are_not_waited_for() -> None:
    """Run hostile, which takes max-margin tasks only, on a QCQP."""
    done = run("-p", SPEC, "-p", "classical_perceptron[m=5]", "-s", "slsqp", "-s", "hostile", "-j", "1", "-o", "r.db")
    assert "hostile accepts only max-margin tasks; it is left out" in done.stderr
    assert "r.db: 4 runs" in done.stderr and "[3/3]" in done.stderr.splitlines()[-1]


def test_a_run_without_any_point_fails() -> None:
    assert run("-p", SPEC, "-s", "hostile[kind=build_error]", "-o", "r.db").returncode == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smok"], "did you mean 'smoke'"),
        (["smoke", "-j", "0"], "-j must be at least 1, got 0"),
        (["smoke", "-r", "0"], "starts must be a whole number, at least 1, got 0"),
        (["smoke", "-s", "ipop"], "did you mean 'ipopt'"),
        (["smoke", "--memory", "0"], "memory_limit must be a finite positive number of GB, got 0.0"),
        (["-p", "missing.npz"], "missing.npz: no such file"),
        (["-p", SPEC, "--dask", "nonsense"], "--dask must be local or the tcp://HOST:PORT of a Dask scheduler"),
        (["-p", SPEC, "--dask", "nonsense://"], "of a Dask scheduler, got nonsense://: "),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *words]) == 2
    (error,) = capfd.readouterr().err.splitlines()
    assert message in error
    assert not Path("results.db").exists()


def test_a_dask_address_without_a_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try a port that is closed, and one that accepts connections and never answers."""
    monkeypatch.setattr(dask_pool, "_CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(QcqpbenchError, match=f"must be local or .* of a Dask scheduler, got {address}: .+"):
            dask_pool.DaskPool(address)
    with pytest.raises(QcqpbenchError, match=f"must be local or .* of a Dask scheduler, got {address}: .+"):
        dask_pool.DaskPool(address)


def test_without_dask_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["run", "smoke", "--dask", "local"]) == 2
    assert capfd.readouterr().err == "qcqpbench: --dask needs the package distributed: pip install 'qcqpbench[dask]'\n"
    with pytest.raises(QcqpbenchError):
        dask_pool.DaskPool("local")


def test_the_view_on_a_terminal() -> None:
    """Check 80 columns: nothing wider is drawn, the last frame is erased, the cursor is back, the table stays."""
    terminal, programs_end = pty.openpty()
    ioctl(programs_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [
        str(SCRIPT),
        "run",
        "-p",
        SPEC,
        "-s",
        "hostile[kind=nap,seconds=0.7]",
        "-s",
        "slsqp",
        "-r",
        "2",
        "-j",
        "2",
    ]
    process = subprocess.Popen(
        command, stdin=programs_end, stdout=programs_end, stderr=programs_end, start_new_session=True
    )
    os.close(programs_end)
    seen = []
    try:
        while part := os.read(terminal, 65536):
            seen.append(part)
    except OSError:
        # Linux raises it at the end.
        pass
    os.close(terminal)
    assert process.wait() == 0
    text = b"".join(seen).decode()
    frames = text.split("\x1b[J")
    assert any(re.search(r"local-\d +\d\.\d s  hostile.* on covariance", frame) for frame in frames)
    assert any("done, 0:0" in frame for frame in frames)
    plain = re.sub(r"\x1b\[[?\d]*[A-Za-z]", "", text)
    assert max(map(len, plain.splitlines())) < 80
    assert text.index("\x1b[?25l") < text.rindex("\x1b[?25h")
    assert "results.db: 4 runs" in frames[-1] and "local-" not in frames[-1]


def test_short_names() -> None:
    specs = ["a[m=1,x=2]", "a[m=1,x=3]", "b[m=1]", "c", "c[y=1]", "f/one.npz"]
    assert list(labels(specs).values()) == ["a[x=2]", "a[x=3]", "b", "c", "c[y=1]", "f/one.npz"]


def test_a_table_of_tallies() -> None:
    tally = Tally()
    for termination, point_status, margin in (
        ("finished", "feasible", 2.0),
        ("time_limit", "feasible", -1.0),
        ("crashed", "none", None),
    ):
        values = {"termination": termination, "point_status": point_status, "margin": margin}
        tally.add(values | {"kappa_bar": margin, "solve_seconds": 1.0})
    assert table({"x": tally, "long name": Tally()}) == [
        "solver    runs solved   best   mean median_s other_ends",
        "x            3      1 2.0000 0.5000        1 1 time_limit, 1 crashed",
        "long name    0      0",
    ]


def test_many_workers_do_not_fill_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "15")
    running = [Running(f"tcp://10.0.0.{k}:4000", job(Hostile()), time.monotonic() - k) for k in range(100)]
    view = Progress("t", 1000, {}, [Hostile().spec], lambda: running)
    view.add(Outcome(job(Hostile()), solve(TASK, Hostile())))
    lines = view._lines(running)
    assert len(lines) <= 14 and max(map(len, lines)) < 60
    assert lines[1].startswith("  tcp://10.0.0.99:4000   99.") and "and 92 more" in lines[9]


def test_threads_of_a_pool_end() -> None:
    before = threading.active_count()
    list(LocalPool(3).outcomes([]))
    assert threading.active_count() == before
