"""Run pytest with the plug-in, as the author of a solver would."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from qcqpbench import problem
from qcqpbench.catalog.best_known import shipped_records

pytestmark = pytest.mark.slow

PROVED = "covariance_perceptron[m=4,load=0.5,ensemble=gaussian,seed=1]"
CONFIGURATION = f"""
[tool.pytest.ini_options]
addopts = ["--strict-markers", "--strict-config", "-p", "no:randomly"]
filterwarnings = ["error"]
qcqpbench_solvers = ["gip"]
qcqpbench_problems = ["{PROVED}", "packing[k=3]"]
qcqpbench_time_limit = "5"
"""
# Plug-ins with one fault each.
SOLVERS = """
import time
from dataclasses import dataclass
from qcqpbench import MaxMargin, QCQPSolver, Solution, TaskSolver, Termination

margin = MaxMargin.margin

@dataclass(frozen=True)
class Outside(QCQPSolver):
    name, drives, citation = "outside", "a point that violates constraints", "none"

    def build(self, problem):
        return lambda start, budget: Solution(0 * start + 7, Termination.OPTIMAL, 1.0)

@dataclass(frozen=True)
class Late(TaskSolver):
    name, drives, citation = "late", "a solver that ignores its time limit", "none"

    def build(self, problem):
        return lambda start, budget: time.sleep(1000)

@dataclass(frozen=True)
class Boasting(TaskSolver):
    name, drives, citation = "boasting", "the start, with margins that it falsifies in its process", "none"

    def build(self, problem):
        MaxMargin.margin = lambda self, W: 40 + margin(self, W)
        return lambda start, budget: Solution(start, Termination.OPTIMAL, 40.0)

@dataclass(frozen=True)
class Raising(TaskSolver):
    name, drives, citation = "raising", "an exception", "none"

    def build(self, problem):
        raise ValueError("cannot build")
"""
NAMES = ("Outside", "Late", "Boasting", "Raising")

Pytest = Callable[..., tuple[int, str]]


@pytest.fixture
def run_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pytest:
    """Return a function that writes tests and runs pytest on them; it returns the exit code and the output."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # pytest-benchmark measures nothing in a process of pytest-xdist, which it recognizes by this variable.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    (tmp_path / "faulty.py").write_text(SOLVERS)
    info = tmp_path / "faulty-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n")
    names = "".join(f"{name.lower()} = faulty:{name}\n" for name in NAMES)
    (info / "entry_points.txt").write_text(f"[qcqpbench.solvers]\n{names}")
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(CONFIGURATION)

    def run(text: str, *words: str) -> tuple[int, str]:
        (folder / "test_it.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "--benchmark-json=out.json", *words]
        if "no:benchmark" in words:
            command.remove("--benchmark-json=out.json")
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_extra_info_holds_what_the_suite_computes(run_pytest: Pytest, tmp_path: Path) -> None:
    """Compare with the list of best known margins, whose margin on this task is proved optimal."""
    code, text = run_pytest(
        """
import pytest

@pytest.mark.benchmark(min_rounds=1, max_time=0.1)
def test_solve(qcqpbench_solve):
    attempt = qcqpbench_solve()
    assert attempt.success and attempt.spec.time_limit == 5

@pytest.mark.benchmark(min_rounds=1, max_time=0.1)
@pytest.mark.qcqpbench(solvers=["slsqp"], problems=["packing[k=3]"], time_limit=3, tolerance=1e-5)
def test_marker(qcqpbench_solve, qcqpbench_solver, qcqpbench_problem):
    attempt = qcqpbench_solve()
    assert (qcqpbench_solver, qcqpbench_problem) == ("slsqp", "packing[k=3]")
    assert attempt.spec.time_limit == 3 and attempt.spec.tolerance == 1e-5
""",
    )
    assert code == 0, text
    assert "gip accepts only max-margin tasks; packing[k=3] is a general QCQP" in text
    saved = json.loads((tmp_path / "repository" / "out.json").read_text())["benchmarks"]
    infos = {entry["name"]: (entry["group"], entry["extra_info"]) for entry in saved}
    group, info = infos[f"test_solve[{PROVED}-gip]"]
    record = shipped_records()[problem(PROVED).id]
    assert group == PROVED
    assert info["margin"] == pytest.approx(record.margin, rel=1e-4)
    assert info["kappa_bar"] == pytest.approx(record.kappa_bar, rel=1e-4)
    assert info["gap_to_best_known"] == pytest.approx(1 - info["margin"] / record.margin)
    assert (info["point_status"], info["termination"]) == ("feasible", "locally_optimal")
    assert info["version"].startswith("qcqpbench ") and ", source " in info["version"]
    assert info["peak_memory_bytes"] > 1e6
    group, info = infos["test_marker[packing[k=3]-slsqp]"]
    assert group == "packing[k=3]" and "margin" not in info
    assert info["objective"] == pytest.approx(info["best_known"] * (1 - info["gap_to_best_known"]))


def test_points_are_verified_after_the_timed_part(run_pytest: Pytest, tmp_path: Path) -> None:
    code, text = run_pytest(
        f"""
import pytest

@pytest.mark.qcqpbench(solvers=["outside", "late", "raising"], problems=["{PROVED}"], time_limit=0.5)
def test_faulty(qcqpbench_solve):
    qcqpbench_solve()

@pytest.mark.qcqpbench(solvers=["outside"], problems=["{PROVED}"])
def test_own_condition(qcqpbench_solve):
    attempt = qcqpbench_solve(must_be_feasible=False)
    assert not attempt.success and attempt.relative_violation > 1

@pytest.mark.qcqpbench(solvers=["boasting"], problems=["{PROVED}"])
def test_falsified(qcqpbench_solve):
    assert qcqpbench_solve().margin < 1
""",
        "-W",
        "default::pytest_benchmark.logger.PytestBenchmarkWarning",
    )
    assert code == 1 and "3 failed, 2 passed" in text, text
    assert f"outside on {PROVED}: the point must be feasible to 1e-06, got an infeasible point" in text
    assert f"late on {PROVED}: the run must end by itself within 0.5 s, got time_limit: killed while solving" in text
    assert f"raising on {PROVED}: the run must end by itself within 0.5 s, got error: ValueError: cannot build" in text
    assert "Traceback" not in text and "pytest_plugin.py" not in text
    saved = json.loads((tmp_path / "repository" / "out.json").read_text())["benchmarks"]
    (info,) = (entry["extra_info"] for entry in saved if entry["name"].startswith("test_falsified"))
    assert info["margin"] < 1


def test_without_pytest_benchmark_the_solver_runs_once(run_pytest: Pytest) -> None:
    code, text = run_pytest(
        "def test_solve(qcqpbench_solve): assert qcqpbench_solve().peak_memory_bytes", "-p", "no:benchmark"
    )
    assert code == 0 and "1 passed, 1 skipped" in text, text


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("solvers=['gipp']", "unknown solver 'gipp'; did you mean 'gip'?"),
        ("problems=['parity[m=x]']", "parity: m must be a whole number, got x"),
        (
            "problems=[]",
            "the setting qcqpbench_problems or the marker qcqpbench must name at least one of the problems",
        ),
        ("solvers='gip'", "solvers must be a list, got 'gip'"),
        ("time_limt=3", "unknown argument of the marker qcqpbench 'time_limt'; did you mean 'time_limit'?"),
        ("time_limit=-1", "time_limit must be a positive number of seconds, got -1"),
        ("'gip'", "the marker qcqpbench must have named arguments only, got ('gip',)"),
    ],
)
def test_wrong_settings_are_one_line(run_pytest: Pytest, marker: str, message: str) -> None:
    code, text = run_pytest(
        f"import pytest\n@pytest.mark.qcqpbench({marker})\ndef test_solve(qcqpbench_solve): ...", "-p", "no:benchmark"
    )
    assert code == 2 and f"test_it.py::test_solve: {message}" in text, text
    assert "Traceback" not in text and "pytest_plugin.py" not in text


def test_the_time_limit_of_the_configuration_must_be_a_number(run_pytest: Pytest) -> None:
    code, text = run_pytest(
        "def test_solve(qcqpbench_solve): ...", "-p", "no:benchmark", "-o", "qcqpbench_time_limit=soon"
    )
    assert code == 2 and "time_limit must be a positive number of seconds, got 'soon'" in text, text


def test_tests_that_do_not_use_the_plug_in_load_nothing_of_qcqpbench(run_pytest: Pytest) -> None:
    (entry,) = entry_points(group="pytest11", name="qcqpbench")
    assert entry.value == "qcqpbench.integrations.pytest_plugin"
    code, text = run_pytest(
        """
import sys

def test_other(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("qcqpbench")
    names = {name for name in sys.modules if name.split(".")[0] in ("qcqpbench", "numpy", "scipy")}
    assert names == {"qcqpbench", "qcqpbench.integrations", "qcqpbench.integrations.pytest_plugin"}
""",
        *("-p", "no:benchmark", "-p", "no:hypothesispytest"),
    )
    assert code == 0, text
