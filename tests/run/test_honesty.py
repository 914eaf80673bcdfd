"""Plug-ins that cheat: each leaves an honest row of its own, and no trace in the rows of others."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Attempt, Outcome
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.pools.local_pool import LocalPool
from tests.support.plugins.malicious import LAZY_SECONDS, Kind
from tests.support.plugins.runs import SPEC, TASK, installed, margin, run_spec

# One process for all of them: the runs that most of them look at are made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("honesty")]

# They return no point, or only a reported one, or do not return.
WITHOUT_POINT = (
    "endless_array",
    "lazy_trace",
    "change_trace_late",
    "drain_phases",
    "forge_times",
    "forge_late_reply",
    "replace_reports_by_pipe",
    "replace_reports_by_link",
    "replace_reports_by_folder",
    "lift_time_limit",
    "finish_in_the_future",
    "lift_memory_limit",
    "hide_child_and_kill_supervisor",
    "hide_child_and_wait",
    "stop_supervisor",
)
KINDS = [kind for kind in get_args(Kind) if kind not in WITHOUT_POINT]
QCQPBENCH = str(Path(sys.executable).with_name("qcqpbench"))
FINDINGS = ("margin", "kappa_bar", "overlap", "objective", "violation", "point_status", "termination", "message")
CHANGED = {
    "timer": "timers",
    "float_errors": "error handling of NumPy",
    "thread": "threads",
    "native_thread": "threads",
    "closed_stdout": "standard streams",
    "resource_limits": "resource limits",
    "import_path": "import path",
}


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("plugins")
    with installed(folder):
        yield folder


@pytest.fixture(scope="module")
def outcomes(plugins: Path) -> dict[tuple[str, int], Outcome]:
    """Make two runs of each kind, with honest solvers in between, all by one worker."""
    honest = {"slsqp": run_spec("slsqp"), "gip": run_spec("gip[starts=1]")}
    specs = []
    for number, kind in enumerate(KINDS):
        bad = run_spec(f"malicious[kind={kind}]")
        specs += [
            bad,
            replace(honest["slsqp"], start=number),
            replace(honest["gip"], start=number),
            replace(bad, start=1),
        ]
    return {(outcome.spec.solver, outcome.spec.start): outcome for outcome in LocalPool(1).outcomes(specs)}


def test_rows_of_honest_solvers_are_the_same_without_malicious_ones(outcomes: dict[tuple[str, int], Outcome]) -> None:
    for spec in ("slsqp", "gip[starts=1]"):
        specs = [run_spec(spec, start) for start in range(len(KINDS))]
        for alone in LocalPool(1).outcomes(specs):
            beside = outcomes[alone.spec.solver, alone.spec.start].attempt
            for name in FINDINGS:
                assert getattr(beside, name) == getattr(alone.attempt, name), (spec, name)
            assert np.array_equal(np.asarray(beside.point), np.asarray(alone.attempt.point))


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_honest(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    """Check that a margin is that of the stored point, by its definition."""
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


def attempt_of(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> Attempt:
    return outcomes[solver_facts(f"malicious[kind={kind}]").spec, 0].attempt


@pytest.mark.parametrize("kind", ["object_array", "complex_array", "text_array"])
def test_a_point_without_real_numbers_is_an_error(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    attempt = attempt_of(outcomes, kind)
    assert attempt.termination is Termination.ERROR
    assert "the point must hold real numbers, got an array of type" in attempt.message


@pytest.mark.parametrize("kind", ["lazy_array", "lazy_list"])
def test_the_clock_stops_after_the_conversion(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    seconds = attempt_of(outcomes, kind).solve_seconds
    assert seconds is not None and seconds >= LAZY_SECONDS / 6


@pytest.mark.parametrize("kind", ["fork_and_return", "fork_and_reply", "forge_replies"])
def test_replies_of_other_processes_and_requests_are_ignored(
    outcomes: dict[tuple[str, int], Outcome], kind: Kind
) -> None:
    attempt = attempt_of(outcomes, kind)
    assert (attempt.termination, attempt.bound) == (Termination.FINISHED, None)
    assert attempt.claimed_objective == pytest.approx(margin(qcqpbench.random_start(TASK, 0)), abs=1e-12)


def test_a_point_of_a_wrong_shape_is_invalid(outcomes: dict[tuple[str, int], Outcome]) -> None:
    attempt = attempt_of(outcomes, "wrong_shape")
    assert attempt.point_status is PointStatus.INVALID
    assert "the point must have the shape (2, 3), got (10000000,)" in attempt.message


def test_an_error_in_a_plugin_is_a_row_that_names_it(outcomes: dict[tuple[str, int], Outcome]) -> None:
    attempt = attempt_of(outcomes, "build_error")
    assert (attempt.termination, attempt.message) == (Termination.ERROR, "this plug-in does not like the problem")
    assert attempt.solver == "malicious[kind=build_error]"


@pytest.mark.parametrize("kind", CHANGED)
def test_changed_state_is_noted(outcomes: dict[tuple[str, int], Outcome], kind: Kind) -> None:
    assert CHANGED[kind] in attempt_of(outcomes, kind).message


def test_no_plugin_is_imported_by_the_driver(
    outcomes: dict[tuple[str, int], Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run, list and convert a family, and run a solver; tests.support.plugins.malicious is imported by this file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.toml").write_text(
        '[[problem]]\nname = "patching_family"\nseed = [0, 1]\n[[solver]]\nname = "slsqp"\nwhere.seed = [1]\n'
    )
    assert main(["run", "suite.toml", "-o", "a.db", "-j", "1"]) == 0
    assert main(["run", "-p", "patching_family[seed=1]", "-s", "patching", "-o", "a.db", "-j", "1"]) == 0
    assert main(["list", "problems"]) == main(["list", "solvers"]) == 0
    assert main(["convert", "patching_family", "a.npz"]) == 0
    # The metadata of the file has the spec of the family.
    (row,) = qcqpbench.run(problems=[qcqpbench.read("a.npz")], solvers=["slsqp"], jobs=1, output="b.db")
    assert row.problem == "patching_family[seed=0]" and row.margin is not None and row.margin < 5
    assert main(["solve", "patching_family", "-s", "patching"]) == 0
    assert main(["certify", "patching_family", "-s", "patching"]) == 0
    assert main(["verify", "a.db"]) == main(["report", "a.db", "-o", "a.html"]) == 0
    with Store("a.db") as store:
        rows = list(store.rows())
        assert len(rows) == 2 and {row.problem for row in rows} == {"patching_family[seed=1]"}
        assert all(row.margin is not None and row.margin < 5 for row in rows)
    assert not {
        "tests.support.plugins.patching",
        "tests.support.plugins.exiting",
        "tests.support.plugins.patching_family",
    } & set(sys.modules)


def command(words: list[str]) -> str:
    """Run a command in a process of its own; return its output."""
    done = subprocess.run([QCQPBENCH, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_patches_at_import_change_no_row(plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a solver and a family that patch at import, and verify the rows while they are installed."""
    monkeypatch.chdir(tmp_path)
    problems = ["-p", SPEC, "-p", "patching_family[seed=3]", "-p", "covariance_perceptron[m=3,p=3,seed=2]"]
    command([*["run", "-s", "patching", "-s", "slsqp", "-o", "patched.db", "-j", "1"], *problems])
    with Store("patched.db") as store:
        rows = list(store.rows())
        assert len(rows) == 6
        for row in rows:
            assert row.margin is not None and row.margin < 5
            if row.problem_id == TASK.id:
                assert row.margin == pytest.approx(margin(store.point(row.id)), abs=1e-12)
    assert "all as stored" in command(["verify", "patched.db"])


def test_plugins_that_cannot_be_used_are_one_line(
    plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that others can still be used."""
    monkeypatch.chdir(tmp_path)
    assert main(["list", "solvers"]) == 0
    listed = capsys.readouterr().out
    assert "exiting cannot be loaded" in listed.replace(
        "exiting = tests.support.plugins.exiting:Exiting of qcqpbench.solvers", "exiting"
    )
    assert "must lead to a class with name = " in listed
    for name in ("exiting", "nameless"):
        assert main(["run", "-p", SPEC, "-s", name, "-s", "slsqp", "-o", f"{name}.db"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert name in line
    assert main(["run", "-p", SPEC, "-s", "slsqp", "-o", "fine.db", "-j", "1"]) == 0


def test_feasibility_depends_on_the_suites_tolerance_alone(
    plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a solver's own tolerance does not count, and that the row has the suite's."""
    monkeypatch.chdir(tmp_path)
    qcqp = qcqpbench.QCQP(
        q=(1.0, 1.0),
        quadratic_constraints=[(((1.0, 0.0), (0.0, 1.0)), None, -np.inf, 1.0)],
        start=np.array([-0.5, -0.5]),
    )
    qcqpbench.write(qcqp, "disk.npz")
    assert main(["run", "-p", "disk.npz", "-s", "lenient", "-o", "a.db"]) == 0
    assert main(["run", "-p", "disk.npz", "-s", "lenient", "--tolerance", "0.1", "-o", "a.db"]) == 0
    with Store("a.db") as store:
        strict, loose = store.rows(order="tolerance")
    assert (strict.tolerance, strict.point_status) == (1e-6, PointStatus.INFEASIBLE)
    assert (loose.tolerance, loose.point_status) == (0.1, PointStatus.FEASIBLE)
    assert strict.violation == loose.violation and (loose.violation or 0.0) > 0.01
    (check,) = [check for check in qcqpbench.check_solver("lenient") if check.case.startswith("equality")]
    assert not check.passed


def test_a_solver_that_changes_costs_its_own_rows_only(plugins: Path) -> None:
    """Run solvers that write to their package, and that have another version each time."""
    specs = [run_spec("caching"), run_spec("random_version"), run_spec("slsqp")]
    first, again = ([outcome.attempt for outcome in LocalPool(1).outcomes(specs)] for _ in range(2))
    assert first[0].termination is Termination.FINISHED
    for attempt in (first[1], again[0], again[1]):
        assert attempt.termination is Termination.ERROR and attempt.point is None
        assert f"{attempt.solver} must have the version {attempt.spec.version!r}, the worker got" in attempt.message
    assert first[2].termination is again[2].termination is Termination.LOCALLY_OPTIMAL


@pytest.mark.parametrize(
    ("name", "reason"),
    [("raising_version", "RuntimeError: no version"), ("exiting_version", "SystemExit: no version")],
)
def test_a_solver_without_a_version_is_one_line_and_others_still_run(
    plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [QCQPBENCH, "run", "-p", SPEC, "-s", name, "-s", "slsqp", "-o", "a.db", "-j", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("qcqpbench: ")]
    assert f"{name} has no known version" in line and reason in line
    with Store("a.db") as store:
        assert {row.solver.partition("[")[0]: row.termination for row in store.rows()} == {
            name: Termination.ERROR,
            "slsqp": Termination.LOCALLY_OPTIMAL,
        }


def test_the_sizes_of_a_forged_reply_are_limited(outcomes: dict[tuple[str, int], Outcome]) -> None:
    attempt = attempt_of(outcomes, "forge_sizes")
    output = outcomes[attempt.solver, 0].reply.output
    assert len(output) <= 4000 and len(attempt.message) <= 4000 and attempt.details is not None
    assert len(attempt.details) <= 1000 and max(map(len, map(str, attempt.details.values()))) <= 500
    assert attempt.multipliers is None and attempt.trace == ()
