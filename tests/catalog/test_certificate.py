import tracemalloc
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.certificate.shor import _Bound, certify_margin, proved_bound
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.run.attempt import certify, solve
from tests.conftest import MakeTask
from tests.support.duality import stacked_matrix


def test_one_pattern_is_proved_optimal() -> None:
    pattern = np.array([[[2.0, 1.0, 0.0], [-1.0, 1.0, 0.5], [0.0, 1.0, 1.0]]])
    proof = certify(MaxMargin(pattern, np.ones((1, 1), dtype=np.int8)))
    assert proof.bound == pytest.approx(np.linalg.norm(pattern[0], 2), rel=1e-9)
    assert proof.proved_optimal


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_any_multipliers_give_a_bound(make_task: MakeTask, n: int, seed: int) -> None:
    """Check that no random W and no solver exceeds the bound, and that λ and y prove it."""
    task = make_task(p=6, m=4, n=n, seed=seed)
    rng = np.random.default_rng(seed)
    multipliers = rng.dirichlet(np.ones(task.labels.size)).reshape(task.labels.shape)
    proof = certify_margin(task, multipliers=multipliers)
    best = max(float(task.margin(unit_rows(rng.normal(size=(500, n, 4)))).max()), solve(task, "gip").margin or -np.inf)
    assert proof.bound >= best
    S = stacked_matrix(task, proof.multipliers)
    assert proof.multipliers.min() >= 0 and proof.multipliers.sum() == pytest.approx(1)
    top = np.linalg.eigvalsh(S - np.diag(np.repeat(proof.offsets, task.m)))[-1]
    assert proof.bound == pytest.approx(0.5 * proof.offsets.sum() + 0.5 * n * max(0.0, top), abs=1e-9)


def whole_number_task(copies: int) -> MaxMargin:
    """Return a task of equal patterns P = u vᵀ with ‖u‖ = 3 and ‖v‖ = 7, whose largest margin is exactly 21."""
    pattern = np.zeros((50, 50))
    pattern[:3, :3] = np.outer([1, 2, 2], [2, 3, 6])
    return MaxMargin(np.repeat(pattern[None], copies, axis=0), np.ones((copies, 1), dtype=np.int8))


@pytest.mark.parametrize("offset", [0.0, 1000.0, -1000.0])
def test_bound_holds_if_eigenvalues_are_rounded_down(offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower every eigenvalue by 8 · size · 2⁻⁵³ · norm, more than LAPACK's error."""
    exact = np.linalg.eigvalsh

    def rounded_down(matrix: Any) -> Any:
        return exact(matrix) - 8 * len(matrix) * 2.0**-53 * np.abs(matrix).sum(axis=1).max()

    monkeypatch.setattr(np.linalg, "eigvalsh", rounded_down)
    bound = proved_bound(whole_number_task(1), np.ones((1, 1)), np.full(2, offset))
    assert 21 <= bound <= 21 * (1 + 1e-9)


@pytest.mark.parametrize("total", [1 - 1e-9, 1 + 1e-9])
def test_bound_holds_if_the_multipliers_do_not_sum_to_one_exactly(total: float) -> None:
    best = _Bound(whole_number_task(2))
    best.update(np.full((2, 1), total / 2))
    assert 21 <= best.value <= 21 * (1 + 1e-8)


@pytest.mark.parametrize("wrong", [[1.0, -0.5], [1.0, np.inf], [1.0, np.nan], [0.0, 0.0]])
def test_multipliers_that_prove_nothing_give_no_bound(wrong: list[float]) -> None:
    """Try among others λ with a negative entry and a positive sum, for which weak duality does not hold."""
    task = whole_number_task(2)
    assert proved_bound(task, np.array(wrong)[:, None]) == np.inf
    assert certify_margin(task, multipliers=np.array(wrong)[:, None]).bound >= 21


@pytest.mark.parametrize(("distance", "is_proved"), [(1e-7, True), (1e-5, False)])
def test_a_point_is_proved_optimal_up_to_a_gap_of_1e_6(distance: float, is_proved: bool) -> None:
    """Turn the first row by the angle at which the margin is 21 · (1 − distance)."""
    task, point = whole_number_task(1), np.zeros((2, 50))
    u, orthogonal, v = np.array([1, 2, 2]) / 3, np.array([2, 1, -2]) / 3, np.array([2, 3, 6]) / 7
    point[0, :3] = (1 - distance) * u + np.sqrt(1 - (1 - distance) ** 2) * orthogonal
    point[1, :3] = v
    proof = certify_margin(task, point)
    assert proof.gap == pytest.approx(distance, rel=0.1) and proof.proved_optimal is is_proved


@pytest.mark.solver
@pytest.mark.parametrize("spec", ["m=3,p=4,seed=1", "m=3,p=5,seed=2", "m=2,n=3,p=3,seed=1", "m=3,p=12,seed=4"])
def test_bound_is_above_the_optimum_and_the_optimum_above_the_margin(spec: str) -> None:
    task = qcqpbench.problem(f"covariance_perceptron[{spec},ensemble=gaussian]")
    assert isinstance(task, MaxMargin)
    optimum = solve(task, "scip", time_limit=60)
    proof = certify(task)
    assert optimum.bound is not None and optimum.margin is not None and proof.margin is not None
    assert proof.bound >= optimum.margin - 1e-7
    assert optimum.bound >= proof.margin - 1e-7


_RELAXED_SPECS = (
    "m=10,n=2,p=12,seed=3",
    "m=30,n=2,p=30,seed=3",
    "m=10,n=3,p=12,seed=3",
    "m=8,n=5,p=4,ensemble=gaussian",
)


# On the last, a path that starts at a small ν, far from its centre, ends 15 % above the relaxation.
@pytest.mark.solver
@pytest.mark.parametrize("spec", [*_RELAXED_SPECS, "m=10,n=5,load=0.35,ensemble=psd"])
def test_bound_is_the_value_of_the_semidefinite_relaxation(spec: str) -> None:
    task = qcqpbench.problem(f"covariance_perceptron[{spec}]")
    assert isinstance(task, MaxMargin)
    relaxed = solve(task, "sdr[solver=CLARABEL,tol=1e-9]")
    assert certify(task).bound == pytest.approx(relaxed.bound, rel=1e-3)


def test_search_needs_little_more_memory_than_patterns_and_hessian() -> None:
    task = qcqpbench.problem("covariance_perceptron[m=40,n=5,p=20]")
    assert isinstance(task, MaxMargin)
    tracemalloc.start()
    proof = certify_margin(task)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert proof.iterations > 5
    assert peak < 8 * task.patterns.nbytes + 6 * 8 * (task.labels.size + 5) ** 2 + 8 * 8 * (task.n * task.m) ** 2


def test_wrong_arguments_are_refused() -> None:
    task: Any = qcqpbench.problem("covariance_perceptron[m=3,p=4]")
    other: Any = qcqpbench.problem("classical_perceptron[m=3,p=4]")
    with pytest.raises(QcqpbenchError, match=r"multipliers must have shape \(4, 1\), got \(3,\)"):
        certify_margin(task, multipliers=np.ones(3))
    with pytest.raises(QcqpbenchError, match="task must be a MaxMargin, got <QCQP: "):
        certify(other)
