"""Tests of the licences of commercial solvers: too small, missing or invalid. Each gives one clear line."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from qcqpbench import QCQP
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.run.attempt import Attempt
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.run_spec import RunOptions

pytestmark = pytest.mark.solver


def skip_unless_available(name: str) -> None:
    status, reason = solver(name).availability()
    if status is not Availability.AVAILABLE:
        pytest.skip(reason)


def boxed_product(n_variables: int, n_constraints: int) -> QCQP:
    """Return a problem on a box with the constraint x₀x₁ ≤ k for k = 1, …, n_constraints."""
    zeros = np.zeros(n_constraints, dtype=int)
    return QCQP.from_terms(
        n_variables,
        quadratic=(np.arange(1, n_constraints + 1), zeros, zeros + 1, zeros + 1.0),
        linear=([0], [0], [1.0]),
        lower=np.full(n_constraints, -np.inf),
        upper=np.arange(1.0, n_constraints + 1),
        x_lower=np.zeros(n_variables),
        x_upper=np.ones(n_variables),
    )


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Yield a worker: coptpy in the process of the tests would break the plug-ins of CasADi there."""
    with Worker() as worker:
        yield worker


def run(worker: Worker, name: str, problem: QCQP) -> Attempt:
    start = np.zeros(problem.n_variables)
    return worker.attempt(problem, name, start, RunOptions(time_limit=10)).attempt


@pytest.mark.parametrize(
    ("name", "n_variables", "n_constraints", "limit"),
    [
        ("gurobi", 201, 1, "200 variables with quadratic terms"),
        ("copt", 2, 2001, "2,000 of each"),
        ("xpress", 150, 51, "200 rows and columns together"),
    ],
)
def test_a_licence_that_is_too_small_skips_the_run(
    name: str, n_variables: int, n_constraints: int, limit: str, worker: Worker
) -> None:
    skip_unless_available(name)
    attempt = run(worker, name, boxed_product(n_variables, n_constraints))
    if attempt.termination.claims_a_solution:
        pytest.skip(f"{name}: a licence without this limit is installed")
    assert attempt.termination is Termination.SKIPPED
    assert attempt.message.startswith(f"{name}: the licence in use does not allow {n_variables} variables and")
    assert limit in attempt.message
    assert "\n" not in attempt.message


@pytest.mark.parametrize(("name", "n_variables", "n_constraints"), [("gurobi", 200, 1), ("xpress", 150, 50)])
def test_a_problem_at_the_limit_of_the_licence_is_solved(
    name: str, n_variables: int, n_constraints: int, worker: Worker
) -> None:
    skip_unless_available(name)
    attempt = run(worker, name, boxed_product(n_variables, n_constraints))
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.objective == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("path", ["/none/none.lic", "relative.lic"])
@pytest.mark.parametrize(
    ("name", "variable"),
    [("gurobi", "GRB_LICENSE_FILE"), ("copt", "COPT_LICENSE_DIR"), ("xpress", "XPAUTH_PATH")],
)
def test_a_licence_that_the_process_of_the_solver_cannot_find_makes_the_solver_unavailable(
    name: str, variable: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Check a missing file, and a relative path: it exists here, but not where solvers run."""
    skip_unless_available(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative.lic").write_text("TYPE=UNKNOWN\n")
    monkeypatch.setenv(variable, path)
    status, reason = solver(name).availability()
    assert status is Availability.UNSUPPORTED
    assert reason.startswith(f"{variable} must be the absolute path of ") and reason.endswith(f", got {path}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variable", "names_of_files"),
    [
        ("gurobi", "GRB_LICENSE_FILE", ["bad.lic"]),
        ("copt", "COPT_LICENSE_DIR", ["license.dat", "license.key"]),
        ("xpress", "XPAUTH_PATH", ["bad.lic"]),
    ],
)
def test_an_invalid_licence_is_explained_in_one_line(
    name: str, variable: str, names_of_files: list[str], tmp_path: Path
) -> None:
    skip_unless_available(name)
    for file in names_of_files:
        (tmp_path / file).write_text("TYPE=UNKNOWN\n")
    licence = tmp_path / names_of_files[0] if len(names_of_files) == 1 else tmp_path
    result = subprocess.run(
        [Path(sys.executable).with_name("qcqpbench"), "solve", "covariance_perceptron[m=2,p=2]", "-s", name],
        env=os.environ | {variable: str(licence)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    _, row, reason = result.stdout.splitlines()
    assert "skipped" in row
    assert reason.startswith(f"  {name}: no valid licence: ")
    assert result.stderr == ""
