"""Tests of the qcqp adapter beyond conformance: an old package with current versions of its dependencies."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from qcqpbench import QCQP
from qcqpbench.catalog.registry import problem, solver
from qcqpbench.catalog.solver import Budget
from qcqpbench.catalog.status import Availability, PointStatus, Termination
from qcqpbench.run.attempt import solve
from qcqpbench.run.run_spec import random_start
from qcqpbench.solvers import _qcqp_compat

cvxpy = pytest.importorskip("cvxpy")

METHODS = ("admm", "coord_descent", "ipopt")
DISK = ((1.0, 0.0), (0.0, 1.0))

pytestmark = [
    pytest.mark.solver,
    pytest.mark.skipif(
        solver("qcqp").availability()[0] is not Availability.AVAILABLE, reason=solver("qcqp").availability()[1]
    ),
]


def general(sense: Any = "minimize", seed: int = 0) -> QCQP:
    """Return a problem with constraints (one-sided, two-sided, equal, empty, free) and bounds of every kind."""
    rng = np.random.default_rng(seed)
    n, inf = 4, np.inf
    ranges = [(-inf, 2.0), (-1.0, inf), (-1.0, 1.5), (0.5, 0.5), (-inf, inf)]
    rows: list[Any] = [(rng.standard_normal((n, n)), rng.standard_normal(n), *bounds) for bounds in ranges]
    rows += [(None, rng.standard_normal(n), -2.0, 0.5), (None, np.zeros(n), -1.0, 1.0)]
    return QCQP(
        rng.standard_normal((n, n)),
        rng.standard_normal(n),
        0.75,
        quadratic_constraints=rows,
        sense=sense,
        x_lower=[-inf, -0.5, 0.25, -inf],
        x_upper=[inf, 0.5, 0.25, 1.0],
    )


def global_state() -> list[Any]:
    """Return the state of other packages that the adapter changes for a while."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return [
        sorted(vars(cvxpy)),
        sorted(vars(cvxpy.utilities)),
        sparse.bmat,
        "pyipopt" in sys.modules,
        list(logging.getLogger().handlers),
        logging.getLogger().level,
        (kind, np.array(keys).tolist(), rest),
    ]


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_the_package_sees_the_values_of_the_problem(sense: str) -> None:
    case = general(sense)
    form = _qcqp_compat.load().QCQP(_qcqp_compat.problem_for_qcqp(case)).qcqp_form
    sign = 1 if sense == "minimize" else -1
    for x in np.random.default_rng(1).standard_normal((20, case.n_variables)):
        assert form.f0.eval(x) == pytest.approx(sign * case.objective(x))
        assert max(form.violations(x)) == pytest.approx(case.violation(x), abs=1e-12)


@pytest.mark.parametrize("improve", METHODS)
def test_global_state_is_restored(improve: str) -> None:
    before = global_state()
    attempt = solve(general(), f"qcqp[improve={improve},suggest=sdr,max_iter=5]")
    assert attempt.termination is not Termination.ERROR
    assert global_state() == before


def test_importing_the_package_leaves_no_log_and_no_logging(tmp_path: Path) -> None:
    script = """
import logging
from qcqpbench.run.attempt import solve
from qcqpbench.catalog.registry import problem
attempt = solve(problem("covariance_perceptron[m=3,p=2]"), "qcqp[max_iter=5]")
assert attempt.point is not None, attempt
assert logging.getLogger().handlers == [] and logging.getLogger().level == logging.WARNING
import cvxpy.utilities
assert not hasattr(cvxpy.utilities, "QuadCoeffExtractor")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_dccp_is_skipped_with_a_reason() -> None:
    status, reason = solver("qcqp[improve=dccp]").availability()
    assert status is Availability.UNSUPPORTED
    assert "dccp 1.x" in reason
    attempt = solve(general(), "qcqp[improve=dccp]")
    assert attempt.termination is Termination.SKIPPED


def test_the_install_command_adds_the_package_to_the_extra() -> None:
    assert solver("qcqp").install_command == "pip install 'qcqpbench[qcqp]' && pip install --no-deps qcqp"


@pytest.mark.parametrize("improve", METHODS)
def test_suggest_random_begins_at_the_start(improve: str) -> None:
    task = problem("covariance_perceptron[m=4,p=6]")
    start = random_start(task, 3)
    attempt = solve(task, f"qcqp[improve={improve},max_iter=3]", start)
    np.testing.assert_allclose(attempt.trace[0][1], start)


@pytest.mark.parametrize("improve", METHODS)
def test_methods_improve_a_point(improve: str) -> None:
    disk = QCQP(q=(1.0, 1.0), quadratic_constraints=[(DISK, None, -np.inf, 1.0)], x_lower=[0.0, -np.inf])
    attempt = solve(disk, f"qcqp[improve={improve}]", [0.3, -0.2])
    assert attempt.point_status is PointStatus.FEASIBLE
    assert attempt.objective == pytest.approx(-1, abs=1e-2)
    assert attempt.iterations


@pytest.mark.parametrize("suggest", ["spectral", "sdr"])
def test_relaxations_suggest_a_point_and_bound_the_optimum(suggest: str) -> None:
    circle = QCQP(q=(1.0, 1.0), quadratic_constraints=[(DISK, None, -np.inf, 2.0)])
    attempt = solve(circle, f"qcqp[suggest={suggest}]", [0.9, 0.9])
    assert attempt.details is not None
    assert attempt.details[f"{suggest}_relaxation"] == pytest.approx(-2, abs=1e-3)
    assert attempt.objective == pytest.approx(-2, abs=2e-2)


def test_runs_are_repeatable() -> None:
    """Check that neither factorizations and relaxations that the package keeps nor NumPy's random state matter."""
    case = problem("covariance_perceptron[m=3,p=4]")
    for spec in ("qcqp[suggest=sdr,max_iter=20]", "qcqp[improve=coord_descent,max_iter=5]"):
        first, second = (solve(case, spec).point for _ in range(2))
        np.testing.assert_array_equal(first, second)
    run = solver("qcqp[max_iter=20]").build(general())
    first, second = (run(np.ones(4), Budget()).x for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_an_exception_of_the_package_is_a_failed_run() -> None:
    apart = QCQP(q=(1.0, 1.0), quadratic_constraints=[(DISK, None, -np.inf, 1.0)], x_lower=[2.0, -np.inf])
    attempt = solve(apart, "qcqp[suggest=sdr]", [0.0, 0.0])
    assert attempt.termination is Termination.FAILED
    assert "infeasible" in attempt.message


def test_a_variable_may_be_in_no_constraint() -> None:
    case = QCQP(np.eye(3), (0.0, 0.0, -2.0), 1.0, quadratic_constraints=[(np.diag([1.0, 1.0, 0.0]), None, 1.0, np.inf)])
    for improve in METHODS:
        attempt = solve(case, f"qcqp[improve={improve}]", [1.0, 1.0, 0.5])
        assert attempt.termination in (Termination.FINISHED, Termination.ITERATION_LIMIT)
        assert attempt.point_status is PointStatus.FEASIBLE


def test_iteration_limit_holds() -> None:
    task = problem("covariance_perceptron[m=10,p=20]")
    attempt = solve(task, "qcqp[max_iter=4]")
    assert attempt.termination is Termination.ITERATION_LIMIT
    assert attempt.iterations == 8


@pytest.mark.parametrize("improve", METHODS)
def test_time_limit_holds(improve: str) -> None:
    task = problem("covariance_perceptron[m=40,load=2]")
    attempt = solve(task, f"qcqp[improve={improve}]", time_limit=0.2)
    assert attempt.termination is Termination.TIME_LIMIT
    assert attempt.solve_seconds is not None and attempt.solve_seconds < 1.2
    assert attempt.point is not None
