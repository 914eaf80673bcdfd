import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

import qcqpbench
from qcqpbench import theory
from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import solve
from qcqpbench.run.run_spec import random_start
from tests.support.bad_solvers import (
    ClaimsWithoutNumbers,
    Fine,
    NeedsWhatIsMissing,
    Raises,
    RaisesQcqpbenchError,
    ReturnsNaN,
    ReturnsNumPyTypes,
    ReturnsWrongTypes,
)

TASK: Any = qcqpbench.problem("covariance_perceptron[m=4,p=3,seed=1,ensemble=gaussian]")
BOXED = QCQP(np.eye(2), x_lower=[1.0, -np.inf], x_upper=[np.inf, -2.0])


@dataclass(frozen=True)
class Echo(QCQPSolver):
    """A solver that returns its start with false claims."""

    name = "echo"
    drives = "nothing"
    citation = "none"

    def build(self, problem: QCQP) -> RunFunction:
        def run(start: Any, budget: Budget) -> Solution:
            budget.report(start)
            return Solution(start, Termination.OPTIMAL, objective=1e9, bound=-0.25, iterations=7)

        return run


def test_findings_are_computed_and_not_claimed() -> None:
    W = random_start(TASK, 3)
    attempt = solve(TASK, Echo(), start=5 * W)
    assert attempt.claimed_objective == 1e9
    assert attempt.margin == pytest.approx(float(TASK.margin(W)), abs=1e-14)
    assert attempt.objective == pytest.approx(attempt.margin, abs=1e-14)
    assert attempt.point == pytest.approx(W)
    assert (attempt.termination, attempt.iterations, attempt.spec.formulation) == (Termination.OPTIMAL, 7, "epigraph")
    assert attempt.bound == -0.25
    assert [point == pytest.approx(W) for _, point in attempt.trace] == [True]


@pytest.mark.parametrize(("bound", "margin_bound"), [(4.0, 0.25), (-1.0, None)])
def test_a_bound_on_the_norm_is_a_bound_on_the_margin(bound: float, margin_bound: float | None) -> None:
    form = qcqpbench.formulation("min_norm")
    assert form.margin(bound) == (np.inf if margin_bound is None else margin_bound)
    assert np.isnan(form.objective(-1.0)) and form.objective(0.25) == 4.0


def test_starts_differ_and_repeat() -> None:
    starts = [random_start(TASK, number) for number in range(3)]
    assert np.linalg.norm(starts[0], axis=1) == pytest.approx([1, 1])
    assert not np.allclose(starts[0], starts[1])
    assert np.array_equal(starts[2], random_start(TASK, 2))
    assert BOXED.violation(random_start(BOXED, 5)) == 0


def test_starts_of_a_qcqp_fill_the_box_and_keep_off_a_single_bound() -> None:
    inf, wide = np.inf, np.finfo(float).max
    lower = [10.0, -inf, 0.0, 5.0, -inf, -2.0, -wide, 1.5]
    upper = [90.0, inf, inf, inf, -7.0, inf, wide, 1.5]
    problem = QCQP(np.eye(8), x_lower=lower, x_upper=upper)
    starts = np.array([random_start(problem, number) for number in range(1000)])
    corners, starts = starts[1::2], starts[::2]
    assert 200 < (corners[:, 0] == 10).sum() < 300 and set(corners[:, 0]) == {10, 90}
    assert (starts >= lower).all() and (starts <= upper).all()
    assert stats.kstest(starts[:, 0], "uniform", (10, 80)).pvalue > 0.01
    for k, draw in ((1, starts[:, 1]), (2, starts[:, 2]), (3, starts[:, 3] - 5), (4, -7 - starts[:, 4])):
        assert stats.kstest(draw, "norm" if k == 1 else "halfnorm").pvalue > 0.01, k
    assert stats.kstest(starts[:, 5].clip(-1.9), lambda x: np.where(x < -1.9, 0, stats.norm.cdf(x))).pvalue > 0.01
    assert stats.kstest(starts[:, 6], "norm").pvalue > 0.01
    assert set(starts[:, 7]) == {1.5}
    assert abs(np.corrcoef(starts[:, :7].T) - np.eye(7)).max() < 0.2


def test_the_start_of_a_problem_comes_first() -> None:
    problem = QCQP(np.eye(2), start=np.array([3.0, 4.0]))
    assert random_start(problem).tolist() == [3.0, 4.0]
    assert random_start(problem, 1).tolist() != [3.0, 4.0]


@pytest.mark.parametrize(
    ("solver", "termination", "point_status", "message"),
    [
        (Raises(), Termination.ERROR, PointStatus.NONE, "KeyError: 'my own'"),
        (RaisesQcqpbenchError(), Termination.ERROR, PointStatus.NONE, "from inside a run"),
        (ReturnsNaN(), Termination.LOCALLY_OPTIMAL, PointStatus.INVALID, ""),
        (NeedsWhatIsMissing(), Termination.SKIPPED, PointStatus.NONE, "a_package_nobody_has missing: pip install"),
    ],
)
def test_failures_are_attempts(
    solver: TaskSolver, termination: Termination, point_status: PointStatus, message: str
) -> None:
    attempt = solve(TASK, solver)
    assert (attempt.termination, attempt.point_status, attempt.margin) == (termination, point_status, None)
    assert attempt.message.startswith(message)
    json.dumps(attempt.record())


def test_a_skipped_run_has_no_usage() -> None:
    attempt = solve(TASK, NeedsWhatIsMissing())
    assert (attempt.peak_memory_bytes, attempt.details, attempt.solve_seconds) == (None, None, None)
    finished = solve(TASK, Fine())
    assert (finished.peak_memory_bytes or 0) > 1_000_000 and finished.details == {}


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_claims_that_are_not_finite_are_unknown(value: str) -> None:
    attempt = solve(TASK, ClaimsWithoutNumbers(value))
    assert (attempt.claimed_objective, attempt.bound, attempt.gap) == (None, None, None)
    assert attempt.termination is Termination.FINISHED and attempt.margin is not None


@pytest.mark.parametrize("part", ["objective", "details", "termination", "iterations"])
def test_wrong_types_are_an_error_of_the_solver(part: str) -> None:
    attempt = solve(TASK, ReturnsWrongTypes(part=part))
    assert attempt.termination is Termination.ERROR
    json.dumps(attempt.record())


def test_types_of_numpy_become_plain() -> None:
    record = json.loads(json.dumps(solve(TASK, ReturnsNumPyTypes()).record()))
    assert (record["iterations"], record["message"]) == (3, "bytes")
    assert record["details"] == {"a": "[1. 1.]", "b": 1.0}


def test_a_record_is_json() -> None:
    record = json.loads(json.dumps(solve(TASK, Fine()).record()))
    assert record["termination"] == "finished"
    assert record["kappa_bar"] == pytest.approx(record["margin"] / TASK.scale)
    predictions = [theory.covariance_kappa_bar(TASK.p, TASK.m, rsb=rsb) for rsb in ("full", 0)]
    assert [record["kappa_bar_theory"], record["kappa_bar_rs"]] == pytest.approx(predictions, abs=1e-9)
    assert record["build_seconds"] >= 0 and record["solve_seconds"] > 0 and record["peak_memory_bytes"] > 1e6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": "ipop"}, "unknown solver 'ipop'; did you mean 'ipopt'?"),
        ({"solver": "ipopt[tolerance=1]"}, "unknown parameter of ipopt 'tolerance'"),
        ({"solver": "ipopt[mu_strategy=fast]"}, r"mu_strategy must be monotone\|adaptive, got fast"),
        ({"solver": Fine(), "start": np.ones((3, 3))}, r"start must have the shape \(2, 4\), got \(3, 3\)"),
        (
            {"solver": Fine(), "start": np.full((2, 4), np.inf)},
            r"start must hold finite numbers, got \[inf, inf, inf\]",
        ),
        ({"solver": Fine(), "start": "here"}, r"start must be an array of shape \(2, 4\), got 'here'"),
        ({"solver": Fine(), "start": np.zeros((2, 4))}, "start must have no row of zeros"),
        ({"solver": Fine(), "start": 1j * np.ones((2, 4))}, "start must hold real numbers, got an array of complex128"),
        ({"solver": None}, "solver must be a spec such as 'gip' or a solver, got None"),
        ({"solver": "slsqp[ftol=-1]"}, "slsqp: ftol must be a positive number, got -1.0"),
        (
            {"problem": "covariance_perceptron", "solver": Fine()},
            "problem must be a MaxMargin or a QCQP, got 'covariance_perceptron'",
        ),
        ({"solver": Fine(), "time_limit": "5"}, "time_limit must be a positive number of seconds, got '5'"),
        ({"solver": Fine(), "time_limit": 0}, "time_limit must be a positive number of seconds, got 0"),
        ({"problem": BOXED, "solver": Fine()}, "problem must be a max-margin task for fine, got a general QCQP"),
    ],
)
def test_wrong_usage_is_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message):
        solve(**{"problem": TASK, **arguments})


def test_a_long_trace_is_thinned_evenly_in_the_logarithm_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget()
    clock = iter(np.geomspace(1e-3, 1e3, 50_000))
    monkeypatch.setattr(budget, "seconds", lambda: float(next(clock)))
    for number in range(50_000):
        budget.report(np.array([float(number)]))
    seconds = np.array([seconds for seconds, _ in budget.trace])
    assert len(seconds) <= 1000 and seconds[0] == 1e-3 and seconds[-1] == pytest.approx(1e3)
    assert [int(x[0]) for _, x in budget.trace][-1] == 49_999
    counts, _ = np.histogram(np.log10(seconds), 6)
    assert counts.min() > 20
