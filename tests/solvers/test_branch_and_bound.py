"""Compare branch and bound with exhaustive searches, other global solvers and semidefinite programs by Clarabel."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

import qcqpbench
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.run.attempt import solve
from qcqpbench.run.run_spec import random_start
from tests.conftest import MakeTask
from tests.support.odd_tasks import odd_task
from tests.support.perceptrons import perceptron, random_points

Array = NDArray[np.float64]


def angle_grid_maximum(task: MaxMargin, count: int) -> tuple[float, float]:
    """Return the largest margin on a grid of angles of the rows of W in the plane, and the most that it can miss."""
    angles = np.pi * np.arange(2 * count) / count
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    P = np.einsum("ak,rkl,bl->rab", rows, task.patterns, rows)
    if task.n == 2:
        best = (task.labels[:, 0, None, None] * P).min(axis=0).max()
    else:
        zeta = task.labels[:, :, None, None]
        one, two, three = ((zeta[:, k] * P).min(axis=0) for k in range(3))
        best = max(float(np.minimum(np.minimum(row[:, None], two[a]), three).max()) for a, row in enumerate(one))
    # Each angle is at most half a grid step off, and a stability changes by at most |P| for each.
    missed = np.pi / count * float(np.linalg.norm(task.patterns, 2, axis=(1, 2)).max())
    return float(best), missed


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("p", [1, 2, 3, 6])
def test_optimum_of_two_inputs_agrees_with_a_grid_of_all_angles(make_task: MakeTask, p: int, symmetric: bool) -> None:
    for seed in range(3):
        task = make_task(p=p, m=2, n=2, seed=seed)
        if symmetric:
            task = MaxMargin(task.patterns + task.patterns.swapaxes(1, 2), task.labels)
        best, missed = angle_grid_maximum(task, 700)
        attempt = solve(task, "branch_and_bound[gap=1e-6]", time_limit=20)
        assert attempt.termination is Termination.OPTIMAL
        assert attempt.margin is not None and attempt.bound is not None
        assert best - 1e-9 <= attempt.bound
        assert attempt.margin <= best + missed
        assert attempt.bound - attempt.margin <= 1e-6 * max(abs(attempt.margin), 0.1)


def test_optimum_of_three_outputs_agrees_with_a_grid_of_all_angles() -> None:
    task = perceptron("m=2,n=3,p=2,seed=0,ensemble=gaussian,f=1,c=1")
    best, missed = angle_grid_maximum(task, 150)
    attempt = solve(task, "branch_and_bound", time_limit=20)
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.margin is not None and attempt.bound is not None
    assert best <= attempt.bound and attempt.margin <= best + missed


def test_optimum_of_one_pattern_is_its_largest_singular_value(make_task: MakeTask) -> None:
    for seed in range(3):
        task = make_task(p=1, m=3, n=2, seed=seed)
        attempt = solve(task, "branch_and_bound")
        assert attempt.bound == pytest.approx(np.linalg.norm(task.patterns[0], 2), rel=1e-4)
        assert attempt.termination is Termination.OPTIMAL


def test_optimum_of_diagonal_patterns_is_that_of_a_linear_program() -> None:
    """Compare with max min_r Σ_k d_rk x_k for x with Σ|x_k| ≤ 1, as x_k = w_1k w_2k are all such vectors."""
    for seed in range(3):
        diagonals = np.random.default_rng(seed).standard_normal((3, 3))
        forms = np.hstack([-diagonals, diagonals, np.ones((3, 1))])
        program = linprog(
            np.append(np.zeros(6), -1.0),
            A_ub=np.vstack([forms, np.append(np.ones(6), 0.0)]),
            b_ub=np.append(np.zeros(3), 1.0),
            bounds=[(0, None)] * 6 + [(None, None)],
        )
        task = MaxMargin(np.array([np.diag(d) for d in diagonals]), np.ones((3, 1)))
        attempt = solve(task, "branch_and_bound", time_limit=20)
        assert attempt.termination is Termination.OPTIMAL
        assert attempt.margin == pytest.approx(-program.fun, abs=1e-4)
        assert attempt.bound is not None and attempt.bound >= -program.fun - 1e-9


@pytest.mark.slow
@pytest.mark.solver
@pytest.mark.skipif(solver("scip").availability()[0] is not Availability.AVAILABLE, reason="scip is not available")
@pytest.mark.parametrize(
    "spec",
    [
        "m=3,load=0.5,seed=0,ensemble=gaussian",
        "m=3,load=1,seed=1,ensemble=gaussian",
        "m=4,load=0.5,seed=2,ensemble=gaussian",
        "m=4,load=0.5,seed=0",
        "m=4,load=0.75,seed=2",
    ],
)
def test_scip_proves_the_same_optimum(spec: str) -> None:
    task = perceptron(spec)
    ours, scip = (solve(task, name, time_limit=60) for name in ("branch_and_bound[gap=1e-6]", "scip"))
    assert ours.termination is scip.termination is Termination.OPTIMAL
    assert ours.margin == pytest.approx(scip.margin, rel=1e-5, abs=1e-6)
    assert ours.bound == pytest.approx(scip.bound, rel=1e-5, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["m=8,load=1,seed=3", "m=6,load=1,seed=3,ensemble=gaussian", "m=16,load=0.5,seed=5"])
def test_no_local_solver_exceeds_the_bound(spec: str) -> None:
    task = perceptron(spec)
    attempt = solve(task, "branch_and_bound", time_limit=60)
    assert attempt.termination is Termination.OPTIMAL and attempt.bound is not None
    names = ["gip", *(["ipopt"] if solver("ipopt").availability()[0] is Availability.AVAILABLE else [])]
    margins = [solve(task, name, random_start(task, k)).margin or -np.inf for name in names for k in range(5)]
    assert max(margins) <= attempt.bound
    assert attempt.bound == pytest.approx(max(margins), rel=1.1e-4)


@pytest.mark.slow
def test_relaxations_of_nodes_improve_the_incumbent() -> None:
    """Solve a task on which gip with its default starts reaches 0.29112155 or 0.29114261 only."""
    task = perceptron("m=12,load=0.5,seed=4")
    attempt = solve(task, "branch_and_bound", time_limit=60)
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.margin == pytest.approx(0.29180764, abs=1e-8)
    margins = [float(task.margin(W)) for _, W in attempt.trace]
    assert min(np.diff(margins)) > -1e-9
    assert margins[-1] == pytest.approx(attempt.margin, rel=1e-12)


@pytest.mark.slow
def test_recorded_task_is_proved() -> None:
    attempt = solve(qcqpbench.problem("recorded"), "branch_and_bound", time_limit=60)
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.gap is not None and attempt.gap <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(6))
def test_no_bound_of_odd_tasks_is_below_a_margin(
    make_task: MakeTask, request: pytest.FixtureRequest, kind: int
) -> None:
    for seed in range(kind, request.config.getoption("--odd-tasks"), 6):
        task = odd_task(make_task, seed)
        attempt = solve(task, "branch_and_bound", time_limit=0.6)
        assert attempt.termination in (Termination.OPTIMAL, Termination.TIME_LIMIT), (seed, attempt.message)
        assert attempt.margin is not None and attempt.bound is not None, seed
        margins = [attempt.margin, solve(task, "gip[starts=3]", random_start(task, 1), time_limit=5).margin or -np.inf]
        margins.append(float(task.margin(random_points(task, 1000)).max()))
        assert attempt.bound >= max(margins) - 1e-12 * abs(max(margins)), seed


@pytest.mark.parametrize("scale", [1e-160, 1e-8, 1e8, 1e149])
def test_the_scale_of_the_patterns_does_not_matter(scale: float) -> None:
    task = perceptron("m=6,load=1,seed=3")
    scaled = MaxMargin(task.patterns * scale, task.labels)
    one, other = (solve(problem, "branch_and_bound", time_limit=20) for problem in (task, scaled))
    assert one.termination is other.termination is Termination.OPTIMAL
    assert one.margin is not None and one.bound is not None and other.bound is not None
    assert one.margin * scale <= other.bound <= one.margin * scale * (1 + 1.01e-4)


@pytest.mark.parametrize(
    ("patterns", "labels"),
    [
        (np.zeros((2, 3, 3)), [[1], [1]]),
        (np.tile(np.eye(3), (2, 1, 1)), [[1], [-1]]),
        (np.tile(np.arange(9.0).reshape(1, 3, 3), (2, 1, 1)), [[1], [-1]]),
    ],
    ids=["zero patterns", "contradictory labels", "contradictory labels, not symmetric"],
)
def test_an_optimum_of_zero_is_proved(patterns: Array, labels: list[list[int]]) -> None:
    attempt = solve(MaxMargin(patterns, labels), "branch_and_bound", time_limit=20)
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.margin == pytest.approx(0, abs=1e-6)
    assert attempt.bound is not None and 0 <= attempt.bound <= 1e-5
