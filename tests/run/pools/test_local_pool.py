"""Pools: outcomes of runs as they finish, on workers of this machine."""

import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Termination
from qcqpbench.cli.main import main
from qcqpbench.errors import QcqpbenchError
from qcqpbench.run.attempt import solve
from qcqpbench.run.isolation.protocol import VerifyRequest
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.pools import dask_pool
from qcqpbench.run.pools.local_pool import MAX_TRIES, LocalPool, run_on
from qcqpbench.run.proposal import Proposal
from qcqpbench.run.run_spec import RunSpec, random_start
from tests.support.hostile import Hostile, Kind, install
from tests.support.processes import marking, none_left

SPEC = "covariance_perceptron[m=3,p=3,seed=1]"
TASK: Any = qcqpbench.problem(SPEC)
THIS_TEST = f"runner-{os.getpid()}"

pytestmark = pytest.mark.slow


def run_spec(solver: Any, start: int = 0, **options: Any) -> RunSpec:
    return RunSpec(
        problem=SPEC,
        problem_id=TASK.id,
        solver=solver.spec,
        version=solver.identity(),
        formulation=solver.facts().formulation,
        start=start,
        **options,
    )


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
    specs = [run_spec(solver("slsqp"), start, start_seed=5, time_limit=20.0) for start in range(6)]
    outcomes = {outcome.spec: outcome for outcome in LocalPool(2).outcomes(specs)}
    assert set(outcomes) == set(specs)
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
    specs = [
        run_spec(Hostile(kind), start, time_limit=0.3, memory_limit_bytes=10**9) for start in range(2) for kind in kinds
    ]
    outcomes = list(LocalPool(2).outcomes(specs))
    terminations = sorted(
        (outcome.spec.solver, outcome.spec.start, str(outcome.attempt.termination)) for outcome in outcomes
    )
    expected = sorted((Hostile(kind).spec, start, str(kinds[kind])) for start in range(2) for kind in kinds)
    assert terminations == expected
    assert all(outcome.reply.output == "begun\n" for outcome in outcomes if "segfault" not in outcome.spec.solver)


def test_a_run_killed_from_outside_is_tried_again() -> None:
    """Let the solver kill its process, so that it happens every time."""
    (outcome,) = LocalPool().outcomes([run_spec(Hostile("count_and_die"), time_limit=20.0)])
    assert outcome.attempt.termination is Termination.CRASHED
    assert Path("tries").read_text() == "x" * MAX_TRIES


def test_jobs_are_taken_as_they_are_needed() -> None:
    """Take the first outcomes of an endless suite, then close the generator."""
    taken = itertools.count()
    endless = (run_spec(Hostile(), next(taken)) for _ in itertools.repeat(None))
    outcomes = LocalPool(2).outcomes(endless)
    assert len(list(itertools.islice(outcomes, 5))) == 5
    outcomes.close()
    assert next(taken) < 20


def test_closing_the_generator_ends_the_runs() -> None:
    pool = LocalPool(2)
    outcomes = pool.outcomes(
        [run_spec(Hostile("fine")), run_spec(Hostile("spin_in_c")), run_spec(Hostile("sleep_in_c"))]
    )
    next(outcomes)
    begin = time.monotonic()
    while len(pool.running()) < 2 and time.monotonic() < begin + 20:
        time.sleep(0.01)
    assert {running.worker for running in pool.running()} == {"local-0", "local-1"}
    outcomes.close()
    assert none_left(THIS_TEST) == {} and pool.running() == []


def test_another_version_is_an_error_row_here_and_ends_the_run_on_another_machine() -> None:
    other = replace(run_spec(solver("slsqp")), version="scipy 0.1")
    (outcome,) = LocalPool().outcomes([other])
    assert outcome.attempt.termination is Termination.ERROR and outcome.attempt.point is None
    assert "slsqp must have the version 'scipy 0.1', the worker got" in outcome.attempt.message
    with (
        Worker() as worker,
        pytest.raises(QcqpbenchError, match=r"slsqp must have the version 'scipy 0\.1', the worker got"),
    ):
        run_on(worker, other, "elsewhere", machine=Machine())


def test_an_unknown_solver_ends_the_run() -> None:
    with pytest.raises(QcqpbenchError, match="did you mean 'slsqp'"):
        list(LocalPool().outcomes([replace(run_spec(solver("slsqp")), solver="slqsp")]))


def test_another_problem_on_the_worker_is_an_error_of_the_run() -> None:
    (outcome,) = LocalPool().outcomes([replace(run_spec(solver("slsqp")), problem_id="0" * 64)])
    assert outcome.attempt.termination is Termination.ERROR and outcome.attempt.point is None
    assert f"must have the id {'0' * 64}, the worker got {TASK.id}" in outcome.attempt.message
    assert outcome.attempt.solve_seconds is None


def test_another_problem_in_the_verifier_is_an_error_of_the_run() -> None:
    spec, proposal = run_spec(solver("gip")), Proposal(Termination.OPTIMAL, x=random_start(TASK))
    with Worker() as worker:
        right, wrong = (
            worker._evaluate(VerifyRequest(replace(spec, problem_id=id), SPEC, proposal)) for id in (TASK.id, "0" * 64)
        )
    assert right[0].termination is Termination.OPTIMAL and right[1].point is not None
    assert wrong[0].termination is Termination.ERROR and wrong[1].point is None
    assert f"must have the id {'0' * 64}, the verifier got {TASK.id}" in wrong[0].message


def test_an_error_in_the_jobs_is_raised() -> None:
    def specs() -> Iterator[RunSpec]:
        yield run_spec(Hostile())
        raise QcqpbenchError("no more")

    with pytest.raises(QcqpbenchError, match="no more"):
        list(LocalPool(2).outcomes(specs()))


def test_threads_of_a_job_reach_its_worker() -> None:
    specs = [run_spec(Hostile("say_threads"), threads=threads) for threads in (1, 3)]
    outputs = {outcome.spec.threads: outcome.reply.output for outcome in LocalPool().outcomes(specs)}
    assert outputs == {1: "begun\n1 1\n", 3: "begun\n3 3\n"}


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
    assert capfd.readouterr().err == "qcqpbench: dask needs the package distributed: pip install 'qcqpbench[dask]'\n"
    with pytest.raises(QcqpbenchError):
        dask_pool.DaskPool("local")


def test_threads_of_a_pool_end() -> None:
    before = threading.active_count()
    list(LocalPool(3).outcomes([]))
    assert threading.active_count() == before
