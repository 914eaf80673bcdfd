import numpy as np
import pytest
from numpy.typing import NDArray

import qcqpbench
from qcqpbench.catalog.certificate.shor import certify_margin
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.solver import Budget
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.run.attempt import solve
from qcqpbench.run.run_spec import random_start
from qcqpbench.solvers._gip_passes import Passes, distinct, warm_up
from qcqpbench.solvers._gip_schedule import schedule
from qcqpbench.solvers.gip import batch_of_starts
from tests.conftest import MakeTask
from tests.support.odd_tasks import odd_task

Array = NDArray[np.float64]


SPECS = ["m=20,p=30", "m=12,p=40,n=3", "m=15,p=60,ensemble=gaussian", "m=10,p=80,n=4", "m=20,p=20,n=4", "m=120,p=30"]


@pytest.mark.parametrize("spec", SPECS)
def test_kkt_conditions_hold(spec: str) -> None:
    """Recompute Σλ = 1, complementarity and stationarity on the spheres from the point and the multipliers."""
    task = qcqpbench.problem(f"covariance_perceptron[{spec},seed=5]")
    assert isinstance(task, MaxMargin)
    solution = solver("gip").build(task)(random_start(task), Budget())
    assert solution.termination is Termination.LOCALLY_OPTIMAL
    assert solution.x is not None and solution.multipliers is not None
    W, weights = solution.x, solution.multipliers
    stabilities = task.stabilities(W)
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1)
    assert (weights * (stabilities - stabilities.min())).max() < 1e-8
    gradient = task.stability_gradient(W, weights)
    tangent = gradient - np.sum(gradient * W, axis=1, keepdims=True) * W
    assert np.abs(tangent).max() < 1e-8 * task.scale * 10
    assert np.linalg.norm(W, axis=1) == pytest.approx(1)


def test_no_small_step_improves_the_margin() -> None:
    task = qcqpbench.problem("covariance_perceptron[m=10,p=15,seed=2]")
    assert isinstance(task, MaxMargin)
    attempt = solve(task, "gip")
    assert attempt.point is not None and attempt.margin is not None
    steps = np.random.default_rng(0).normal(size=(2000, *attempt.point.shape)) * 1e-4
    near = attempt.point + steps
    near /= np.linalg.norm(near, axis=-1, keepdims=True)
    assert task.margin(near).max() <= attempt.margin + 1e-9


@pytest.mark.solver
@pytest.mark.parametrize("precision", ["mixed", "double"])
def test_both_precisions_agree_with_ipopt(precision: str) -> None:
    task = qcqpbench.problem("covariance_perceptron[m=30,load=0.25,seed=1]")
    best = max(solve(task, "ipopt", random_start(task, k)).margin or -np.inf for k in range(5))
    assert solve(task, f"gip[precision={precision}]").margin == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_warm_up_climbs_and_returns_its_margins(make_task: MakeTask, n: int, symmetric: bool) -> None:
    task = make_task(p=15, m=12, n=n)
    if symmetric:
        task = MaxMargin(task.patterns + task.patterns.swapaxes(1, 2), task.labels)
    passes = Passes(task, mixed=True)
    assert passes.symmetric == symmetric
    points = list(warm_up(passes, batch_of_starts(random_start(task), 5), np.ones(5)))
    for W, margins in points:
        assert np.linalg.norm(W, axis=2) == pytest.approx(1)
        assert margins == pytest.approx(task.margin(W), abs=1e-5 * passes.unit)
    first, last = (slope(task, points[k][0], passes.unit) for k in (0, -1))
    assert last.mean() < 0.2 * first.mean()


def slope(task: MaxMargin, W: Array, unit: float) -> Array:
    """Return the length of the soft margin's gradient on the spheres, at the warm-up's last T."""
    _, gradient = task.soft_margin_gradient(W, 1 / (0.3 * unit))
    return np.linalg.norm(gradient - np.sum(gradient * W, axis=2, keepdims=True) * W, axis=(1, 2))


def test_close_paths_are_followed_once(make_task: MakeTask) -> None:
    """Include the symmetries of the stabilities: the sign of all rows, their exchange if patterns are symmetric."""
    task = make_task(p=5, m=12, n=2)
    both = MaxMargin(task.patterns + task.patterns.swapaxes(1, 2), task.labels)
    one, other = batch_of_starts(random_start(task), 2)
    W = np.array([one, -one, other, one[::-1], one * [[1], [-1]]])
    assert task.stabilities(W[1]) == pytest.approx(task.stabilities(one))
    assert both.stabilities(W[3]) == pytest.approx(both.stabilities(one))
    assert distinct(Passes(task, mixed=True), W) == [0, 2, 3, 4]
    assert distinct(Passes(both, mixed=True), W) == [0, 2, 4]


@pytest.mark.parametrize(
    ("m", "smoothing", "shrink", "first_gate"),
    [
        (40, [1, 1, 1], 0.4, 0.1),
        (199, [1, 1, 1], 0.4, 0.1),
        (200, [4, 4, 4], 0.55, 1.0),
        (400, [8, 8, 8], 0.55, 2.0),
        (800, [8, 8, 8], 0.55, 2.0),
    ],
)
def test_schedule_follows_the_size(m: int, smoothing: list[float], shrink: float, first_gate: float) -> None:
    plan = schedule(2, m, 3)
    assert plan.smoothing.tolist() == smoothing
    assert (plan.width, plan.shrink) == (0.5, shrink)
    widths = [gate.width for gate in plan.gates]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] == first_gate
    chosen = schedule(2, m, 3, 2.0, 0.7)
    assert (chosen.width, chosen.shrink, chosen.smoothing.max()) == (2.0, 0.7, 1)


def test_smoother_paths_of_large_tasks_reach_the_same_optimum_at_low_load() -> None:
    task = qcqpbench.problem("covariance_perceptron[m=200,load=0.1,seed=1]")
    smooth, usual = (solve(task, spec) for spec in ("gip", "gip[mu0=0.5,shrink=0.4]"))
    assert smooth.termination is Termination.LOCALLY_OPTIMAL
    assert smooth.margin == pytest.approx(usual.margin, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(6))
def test_odd_tasks_are_solved(make_task: MakeTask, request: pytest.FixtureRequest, kind: int) -> None:
    for seed in range(kind, request.config.getoption("--odd-tasks"), 6):
        task = odd_task(make_task, seed)
        attempt = solve(task, "gip[starts=3]", time_limit=20)
        assert attempt.termination is not Termination.ERROR, (seed, attempt.message)
        assert attempt.margin is not None and np.isfinite(attempt.margin), seed
        assert attempt.margin >= float(task.margin(random_start(task))) - 1e-9 * task.scale, seed
        proof = certify_margin(task, attempt.point, attempt.multipliers, time_limit=1, tol=1e-2)
        assert proof.bound >= attempt.margin - 1e-12 * abs(attempt.margin), seed


@pytest.mark.slow
def test_multistart_is_at_least_as_good_as_its_first_round_also_with_a_time_limit() -> None:
    task = qcqpbench.problem("covariance_perceptron[m=30,load=2]")
    one, several = solve(task, "multistart[rounds=1]"), solve(task, "multistart[rounds=4]")
    assert one.margin is not None and one.margin == solve(task, "gip").margin
    assert several.margin is not None and several.margin >= one.margin
    assert one.solve_seconds is not None
    cut = solve(task, "multistart[rounds=100000]", time_limit=1 + 5 * one.solve_seconds)
    assert cut.margin is not None and cut.margin >= one.margin
