"""Plug-ins that cheat: each leaves an honest row of its own, and no trace in the rows of others."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.registry import family
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.isolation import supervised_process
from qcqpbench.run.isolation.worker import Worker, solver_facts
from qcqpbench.run.job import Job, Outcome
from qcqpbench.run.local_pool import LocalPool
from tests.support.plugins import install
from tests.support.plugins.malicious import LAZY_SECONDS, Kind
from tests.support.processes import MARK, marked, none_left

# One process for all: the runs that most of them look at are made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("honesty")]

SPEC = family("covariance_perceptron[m=3,p=3,seed=1,ensemble=gaussian]").spec
TASK: Any = qcqpbench.problem(SPEC)
KINDS = [kind for kind in get_args(Kind) if kind != "stop_supervisor"]
ROOT = Path(__file__).parents[2]
QCQPBENCH = str(Path(sys.executable).with_name("qcqpbench"))
FINDINGS = ("margin", "kappa_bar", "overlap", "objective", "violation", "point_status", "termination", "message")
CHANGED = {
    "timer": "timers",
    "float_errors": "error handling of NumPy",
    "thread": "threads",
    "closed_stdout": "standard streams",
    "resource_limits": "resource limits",
    "import_path": "import path",
}


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("plugins")
    install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
        yield folder


def job(spec: str, start: int = 0) -> Job:
    facts = solver_facts(spec)
    return Job(SPEC, TASK.id, facts.spec, facts.version, facts.formulation, start, time_limit=20.0)


def margin(W: Any) -> float:
    """The smallest stability of the unit rows, by its definition."""
    W = np.asarray(W) / np.linalg.norm(W, axis=1, keepdims=True)
    return float(min(zeta[0] * W[0] @ P @ W[1] for P, zeta in zip(TASK.patterns, TASK.labels, strict=True)))


@pytest.fixture(scope="module")
def outcomes(plugins: Path) -> dict[tuple[str, int], Outcome]:
    """Two runs of each kind, with an honest solver in between, all by one worker."""
    honest = {"slsqp": job("slsqp"), "gip": job("gip[starts=1]")}
    jobs = []
    for number, kind in enumerate(KINDS):
        bad = job(f"malicious[kind={kind}]")
        jobs += [
            bad,
            replace(honest["slsqp"], start=number),
            replace(honest["gip"], start=number),
            replace(bad, start=1),
        ]
    return {(outcome.job.solver, outcome.job.start): outcome for outcome in LocalPool(1).run(jobs)}


def test_others_are_what_they_are_alone(outcomes: dict[tuple[str, int], Outcome]) -> None:
    for spec in ("slsqp", "gip[starts=1]"):
        jobs = [job(spec, start) for start in range(len(KINDS))]
        for alone in LocalPool(1).run(jobs):
            beside = outcomes[alone.job.solver, alone.job.start].attempt
            for name in FINDINGS:
                assert getattr(beside, name) == getattr(alone.attempt, name), (spec, name)
            assert np.array_equal(np.asarray(beside.point), np.asarray(alone.attempt.point))


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_honest(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    """A margin is that of the stored point, by its definition."""
    for start in (0, 1):
        attempt = outcomes[solver_facts(f"malicious[kind={kind}]").spec, start].attempt
        if attempt.point is None:
            assert (attempt.margin, attempt.kappa_bar, attempt.objective) == (None, None, None)
        else:
            assert attempt.margin == pytest.approx(margin(attempt.point), abs=1e-12)
            expected = qcqpbench.random_start(TASK, start)
            assert np.allclose(attempt.point, expected, rtol=1e-12, atol=0)
        assert len(attempt.message) < 5000 and len(json.dumps(attempt.details)) < 1_000_000
        assert len(attempt.trace) == 0
        with_point = kind not in ("object_array", "complex_array", "text_array", "wrong_shape", "build_error")
        assert (attempt.point is not None) == with_point, attempt.message


def attempt_of(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> qcqpbench.run.attempt.Attempt:
    return outcomes[solver_facts(f"malicious[kind={kind}]").spec, 0].attempt


@pytest.mark.parametrize("kind", ["object_array", "complex_array", "text_array"])
def test_what_is_not_real_is_refused(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    attempt = attempt_of(outcomes, kind)
    assert attempt.termination is Termination.ERROR
    assert "the point must hold real numbers, got an array of type" in attempt.message


@pytest.mark.parametrize("kind", ["lazy_array", "lazy_list"])
def test_the_clock_stops_after_the_conversion(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    seconds = attempt_of(outcomes, kind).solve_seconds
    assert seconds is not None and seconds >= LAZY_SECONDS / 6


def test_a_point_of_a_wrong_shape_is_invalid(outcomes: dict[tuple[str, int], Outcome]) -> None:
    attempt = attempt_of(outcomes, "wrong_shape")
    assert attempt.point_status is PointStatus.INVALID
    assert "the point must have the shape (2, 3), got (10000000,)" in attempt.message


def test_an_error_of_ours_in_a_plugin_is_a_row_that_names_it(outcomes: dict[tuple[str, int], Outcome]) -> None:
    attempt = attempt_of(outcomes, "build_error")
    assert (attempt.termination, attempt.message) == (Termination.ERROR, "this plug-in does not like the problem")
    assert attempt.solver == "malicious[kind=build_error]"


@pytest.mark.parametrize("kind", CHANGED)
def test_what_a_run_leaves_changed_is_noted(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    assert CHANGED[kind] in attempt_of(outcomes, kind).message


def test_no_plugin_is_imported_by_the_driver(outcomes: dict[tuple[str, int], Outcome]) -> None:
    """tests.support.plugins.malicious is, by this file."""
    assert not {
        "tests.support.plugins.patching",
        "tests.support.plugins.exiting",
        "tests.support.plugins.patching_family",
    } & set(sys.modules)


def command(words: list[str]) -> str:
    """Run a command of ours in a process of its own, which may import plug-ins of families; return what it prints."""
    done = subprocess.run([QCQPBENCH, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_patches_at_import_reach_nobody(plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a solver and a family that patch at import; verify sees the truth while they are installed."""
    monkeypatch.chdir(tmp_path)
    problems = ["-p", SPEC, "-p", "patching_family[seed=3]", "-p", "covariance_perceptron[m=3,p=3,seed=2]"]
    command([*["run", "-s", "patching", "-s", "slsqp", "-o", "patched.db", "-j", "1"], *problems])
    with Store("patched.db") as store:
        rows = list(store.rows())
        assert len(rows) == 6
        for row in rows:
            assert row["margin"] < 5
            if row["problem_id"] == TASK.id:
                assert row["margin"] == pytest.approx(margin(store.point(row["id"])), abs=1e-12)
    assert "all as stored" in command(["verify", "patched.db"])


def test_plugins_that_cannot_be_used_are_one_line(
    plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest goes on."""
    monkeypatch.chdir(tmp_path)
    assert main(["list", "solvers"]) == 0
    listed = capsys.readouterr().out
    assert "exiting cannot be loaded" in listed.replace(
        "exiting = tests.support.plugins.exiting:Exiting of qcqpbench.solvers", "exiting"
    )
    assert "must have the name of its class" in listed
    for name in ("exiting", "nameless"):
        assert main(["run", "-p", SPEC, "-s", name, "-s", "slsqp", "-o", f"{name}.db"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert name in line
    assert main(["run", "-p", SPEC, "-s", "slsqp", "-o", "fine.db", "-j", "1"]) == 0


def test_the_tolerance_is_the_suites(plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a solver declares; and the row says which it was."""
    monkeypatch.chdir(tmp_path)
    qcqp = qcqpbench.QCQP.from_matrices(
        (None, (1.0, 1.0), 0.0), [(((1.0, 0.0), (0.0, 1.0)), None, -np.inf, 1.0)], start=np.array([-0.5, -0.5])
    )
    qcqpbench.write(qcqp, "disk.npz")
    assert main(["run", "-p", "disk.npz", "-s", "lenient", "-o", "a.db"]) == 0
    assert main(["run", "-p", "disk.npz", "-s", "lenient", "--tolerance", "0.1", "-o", "a.db"]) == 0
    with Store("a.db") as store:
        strict, loose = store.rows(order="tolerance")
    assert (strict["tolerance"], strict["point_status"]) == (1e-6, "infeasible")
    assert (loose["tolerance"], loose["point_status"]) == (0.1, "feasible")
    assert strict["violation"] == loose["violation"] > 0.01
    (check,) = [each for each in qcqpbench.check_solver("lenient") if each.case.startswith("equality")]
    assert not check.passed


def test_a_stopped_supervisor_does_not_void_the_limits(plugins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised_process, "_TICK_SECONDS", 0.1)
    with Worker() as worker:
        attempt = worker.run(job("malicious[kind=stop_supervisor]")).attempt
        assert (attempt.termination, attempt.message) == (
            Termination.CRASHED,
            "its process died: its supervisor was stopped",
        )
        assert worker.run(job("slsqp")).attempt.termination is Termination.LOCALLY_OPTIMAL


def test_nothing_outlives_the_driver_even_if_the_supervisor_is_stopped(plugins: Path) -> None:
    """And nothing holds its stderr, which somebody may read to the end."""
    mark = f"stopped-{os.getpid()}"
    command = [QCQPBENCH, "solve", SPEC, "-s", "malicious[kind=stop_supervisor]"]
    with subprocess.Popen(
        command, env=os.environ | {MARK: mark}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as driver:
        deadline = time.monotonic() + 60
        while not any(is_stopped(pid) for pid in marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert any(is_stopped(pid) for pid in marked(mark))
        driver.send_signal(signal.SIGKILL)
        assert driver.stderr is not None
        driver.stderr.read()
    assert none_left(mark) == {}


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
