"""Newton steps of many paths of gip: in NumPy, and compiled for registers of 16, 32 and 64 bytes."""

import copy
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import qcqpbench
from qcqpbench.catalog.registry import solver
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.run.attempt import solve
from qcqpbench.run.run_spec import random_start
from qcqpbench.solvers import _gip_kernel, _library
from qcqpbench.solvers._gip_kernel import Kernel, library
from qcqpbench.solvers._gip_passes import Passes, Patterns
from qcqpbench.solvers._gip_paths import Paths, Rules, Slopes, Status, Steps, continued, new_paths
from qcqpbench.solvers._gip_schedule import Schedule
from qcqpbench.solvers._gip_stack import Stack
from qcqpbench.solvers._gip_state import Batch
from qcqpbench.solvers._library import library_path
from qcqpbench.solvers.gip import batch_of_starts
from tests.conftest import MakeTask

Array = NDArray[np.float64]
MakeSteps = Callable[[Patterns, Rules], Steps]

EXPLORE = Rules(shrink=0.4, last_width=0.004, tol=1e-9, max_age=100)
HURRY = EXPLORE._replace(settle_width=0.05, hurry=0.5)
TO_THE_END = Rules(shrink=0.4, last_width=1e-10, tol=1e-9)


def compiled(patterns: Patterns, rules: Rules) -> Kernel:
    loaded = library()
    if loaded is None:
        pytest.skip("qcqpbench was installed without a C compiler")
    return Kernel(loaded, patterns, rules)


@pytest.fixture(params=["NumPy", 16, 32, 64])
def make_steps(request: pytest.FixtureRequest) -> Iterator[MakeSteps]:
    """Yield a maker of steps in NumPy, or of those compiled for registers of so many bytes."""
    if request.param == "NumPy":
        yield Stack
        return
    loaded = library()
    if loaded is None:
        pytest.skip("qcqpbench was installed without a C compiler")
    widest = ctypes.c_int32.in_dll(loaded, "max_vector_bytes")
    before, widest.value = widest.value, request.param
    if loaded.vector_bytes() == request.param:
        yield compiled
    widest.value = before
    if loaded.vector_bytes() < request.param:
        pytest.skip(f"the processor has no registers of {request.param} bytes")


def patterns_of(task: MaxMargin, single: bool = False) -> Patterns:
    passes = Passes(task, mixed=False)
    return Patterns(task, passes.unit, passes.symmetric, single)


def task_of(n: int, symmetric: bool, p: int = 10, m: int = 7) -> MaxMargin:
    """Return a task whose sizes are not multiples of those of registers, tiles and blocks."""
    ensemble = "paper" if symmetric else "gaussian"
    task = qcqpbench.problem(f"covariance_perceptron[m={m},p={p},n={n},ensemble={ensemble},seed=3]")
    assert isinstance(task, MaxMargin)
    return task


def follow_to_the_end(steps: Steps, paths: Paths) -> Paths:
    while (paths.status <= Status.ARRIVED).any():
        paths.status[paths.status == Status.ARRIVED] = Status.RUNNING
        steps.follow(paths, 50)
    return paths


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("rules", [EXPLORE, HURRY], ids=["explore", "hurry"])
def test_compiled_steps_are_those_in_numpy(
    make_steps: MakeSteps, n: int, symmetric: bool, single: bool, rules: Rules
) -> None:
    """Compare pairs of paths after each step; rounding may change decisions at a limit, and in float32 some moves."""
    patterns = patterns_of(task_of(n, symmetric), single)
    W, decisions, errors = batch_of_starts(random_start(patterns.task), 12), [], []
    for first in range(0, 12, 2):
        paths = new_paths(patterns, W[first : first + 2], 1.0)
        for _ in range(15):
            others = copy.deepcopy(paths)
            Stack(patterns, rules).follow(paths, 1)
            make_steps(patterns, rules).follow(others, 1)
            same = (others.status == paths.status) & (others.keep_shift == paths.keep_shift)
            decisions += same.tolist()
            assert (others.age == paths.age)[same].all()
            for name in ("W", "t", "g", "weights", "mu", "shift", "residual", "arrived_t"):
                one, other = (getattr(side, name)[same].reshape(same.sum(), -1) for side in (paths, others))
                assert (np.isnan(one) == np.isnan(other)).all()
                errors += (np.nan_to_num(np.abs(other - one)).max(axis=1) / (1e-9 + np.abs(one).max(axis=1))).tolist()
            paths.status[paths.status == Status.ARRIVED] = Status.RUNNING
    assert np.mean(decisions) > 0.95
    assert np.quantile(np.nan_to_num(errors), 0.98 if single else 1) < (3e-3 if single else 1e-8)


def test_width_falls_in_every_step_until_paths_settle(make_steps: MakeSteps) -> None:
    patterns = patterns_of(task_of(2, True))
    # The smallest registers hold two paths.
    paths = new_paths(patterns, batch_of_starts(random_start(patterns.task), 2), 0.7)
    steps = make_steps(patterns, HURRY)
    for width in (0.35, 0.175, 0.0875, 0.05, 0.05):
        steps.follow(paths, 1)
        np.testing.assert_allclose(paths.mu * patterns.labels.size / patterns.unit, width, rtol=1e-6)
        assert (paths.status == Status.RUNNING).all()


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("symmetric", [True, False])
def test_paths_end_where_paths_in_lockstep_do(make_steps: MakeSteps, n: int, symmetric: bool) -> None:
    """Compare with `Batch`, which computes each Newton step on its own and in other BLAS calls."""
    task = task_of(n, symmetric)
    # Starts close to one point, and a small width, so that both follow the same branch of optima.
    point = solve(task, "gip[starts=2]").point
    assert point is not None
    W = unit_rows(point + 1e-3 * batch_of_starts(random_start(task), 19))
    batch = Batch(Passes(task, mixed=False), W.copy(), Schedule(np.ones(19), 0.01, 0.4, ()), 1e-9)
    for _ in batch.run(200):
        pass
    patterns = patterns_of(task)
    paths = follow_to_the_end(make_steps(patterns, TO_THE_END), new_paths(patterns, W, 0.01))
    assert (paths.status == Status.ENDED).all() and paths.residual.max() < 1e-9
    assert paths.margins == pytest.approx(task.margin(paths.W), abs=1e-12)
    assert np.sort(paths.margins) == pytest.approx(np.sort(task.margin(batch.W)), abs=1e-7 * task.scale)


@pytest.mark.parametrize("single", [True, False])
def test_paths_in_single_precision_go_on_in_double_precision(make_steps: MakeSteps, single: bool) -> None:
    """Compare the ends of paths that were explored in either precision with the KKT conditions of the task."""
    task = task_of(3, True)
    patterns, double = patterns_of(task, single), patterns_of(task)
    W = batch_of_starts(random_start(task), 21)
    explored = follow_to_the_end(make_steps(patterns, EXPLORE), new_paths(patterns, W, 1.0))
    paths = follow_to_the_end(make_steps(double, TO_THE_END), continued(double, explored))
    ended = paths.only(paths.status == Status.ENDED)
    assert len(ended.t) > 15
    labels = task.labels.size
    for W_end, weights in zip(ended.W, ended.weights, strict=True):
        g = task.stabilities(W_end).ravel()
        assert weights @ (g - g.min()) < 1e-7 * task.scale and weights.sum() == pytest.approx(1)
        mixture = task.mixture(weights.reshape(1, labels // 3, 3))[0]
        for i in range(3):
            gradient = sum(
                (M @ W_end[b] if i == a else M.T @ W_end[a])
                for M, a, b in zip(mixture, *task.pairs, strict=True)
                if i in (a, b)
            )
            assert gradient - (gradient @ W_end[i]) * W_end[i] == pytest.approx(0, abs=1e-7 * task.scale)


def test_steps_raise_the_barrier_and_keep_the_starts(make_steps: MakeSteps) -> None:
    task = task_of(3, False)
    patterns, W = patterns_of(task), batch_of_starts(random_start(task), 2)
    kept, paths = W.copy(), new_paths(patterns, W, 0.5)
    steps = make_steps(patterns, TO_THE_END)
    for _ in range(12):
        before, mu = paths.t + paths.mu * np.log(paths.g - paths.t[:, None]).sum(axis=1), paths.mu.copy()
        steps.follow(paths, 1)
        assert paths.g == pytest.approx(task.stabilities(paths.W).reshape(2, -1), abs=1e-12)
        assert np.linalg.norm(paths.W, axis=2) == pytest.approx(1, abs=1e-14)
        after = paths.t + paths.mu * np.log(paths.g - paths.t[:, None]).sum(axis=1)
        assert (after >= before - 1e-12)[paths.mu == mu].all()
        paths.status[paths.status == Status.ARRIVED] = Status.RUNNING
    assert (kept == W).all()


def test_a_call_takes_at_most_the_given_number_of_steps(make_steps: MakeSteps) -> None:
    task = task_of(2, True)
    paths = new_paths(patterns_of(task), batch_of_starts(random_start(task), 40), 1.0)
    make_steps(patterns_of(task), TO_THE_END._replace(max_age=6)).follow(paths, 3)
    assert 1 <= paths.age.max() <= 3
    paths = follow_to_the_end(make_steps(patterns_of(task), TO_THE_END._replace(max_age=6)), paths)
    assert paths.age.max() == 6 and (paths.status[paths.age == 6] >= Status.ENDED).all()


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("symmetric", [True, False])
def test_products_and_stabilities_are_those_of_the_task(make_task: MakeTask, n: int, symmetric: bool) -> None:
    task = make_task(p=5, m=4, n=n)
    if symmetric:
        task = MaxMargin(task.patterns + task.patterns.swapaxes(1, 2), task.labels)
    patterns = Patterns(task, 1.0, symmetric)
    W = batch_of_starts(random_start(task), 3)
    wP, Pw = patterns.products(W)
    assert wP == pytest.approx(np.einsum("bik,rkl->birl", W, task.patterns))
    assert Pw == pytest.approx(np.einsum("rkl,bil->birk", task.patterns, W))
    assert patterns.stabilities(wP, W) == pytest.approx(task.stabilities(W).reshape(3, -1))
    weights = np.random.default_rng(0).random((3, task.labels.size))
    assert patterns.mixture(weights) == pytest.approx(task.mixture(weights.reshape(3, *task.labels.shape)))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("single", [False, True])
def test_slopes_and_newton_matrices_agree_with_finite_differences(
    make_task: MakeTask, n: int, symmetric: bool, single: bool
) -> None:
    """Compare first and second differences along great circles, in float64, of the stabilities and of Σλg."""
    task = make_task(p=5, m=4, n=n)
    if symmetric:
        task = MaxMargin(task.patterns + task.patterns.swapaxes(1, 2), task.labels)
    passes, rng = Passes(task, mixed=False), np.random.default_rng(3)
    patterns = Patterns(task, passes.unit, symmetric, single)
    paths = new_paths(patterns, batch_of_starts(random_start(task), 3), 0.3)
    W = paths.W.astype(np.float64)
    root = rng.uniform(0.5, 2, paths.g.shape)
    slopes = Slopes(patterns, paths, root.astype(patterns.dtype))
    moves = rng.normal(size=W.shape)
    moves -= np.sum(moves * W, axis=2, keepdims=True) * W
    lengths, angle = np.linalg.norm(moves, axis=2, keepdims=True), 1e-4

    def stabilities(step: int) -> Array:
        turned = [np.cos(step * angle * lengths) * W, np.sin(step * angle * lengths) / lengths * moves]
        values: Array = task.stabilities(sum(turned)).reshape(root.shape)
        return values

    before, at, after = (stabilities(step) for step in (-1, 0, 1))
    first, second = (after - before) / (2 * angle), (after - 2 * at + before) / angle**2
    flat, precision = moves.reshape(3, -1), 1e-3 if single else 1e-5
    assert slopes.along(flat) == pytest.approx(root * first, abs=precision * task.scale)
    (sums,) = slopes.sums([root]).swapaxes(0, 1)
    assert np.sum(sums * flat, axis=1) == pytest.approx(np.sum(root**2 * first, axis=1), abs=precision * task.scale)
    upper = np.triu(slopes.newton_matrices(sums))
    H = upper + np.triu(upper, 1).swapaxes(1, 2)
    forms = np.einsum("bi,bij,bj->b", flat, H[:, :-1, :-1], flat)
    expected = np.sum(root**2 * first**2 - paths.weights * second, axis=1)
    assert forms == pytest.approx(expected, abs=10 * precision * np.abs(expected).max())
    # The last row and column are those of t.
    assert np.einsum("bi,bi->b", H[:, -1, :-1], flat) == pytest.approx(
        -np.sum(root**2 * first, axis=1), abs=precision * task.scale
    )
    assert H[:, -1, -1] == pytest.approx(np.sum(root**2, axis=1))


@pytest.mark.parametrize("spec", ["m=8,load=1,seed=2", "m=7,n=3,p=6,ensemble=gaussian"])
def test_a_run_without_the_compiled_library_ends_at_the_same_margin(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = qcqpbench.problem(f"covariance_perceptron[{spec}]")
    with_library = solve(task, "gip")
    monkeypatch.setattr(_gip_kernel, "library", lambda: None)
    without = solve(task, "gip")
    assert without.details is not None and without.details["instructions"] == "NumPy"
    assert solver("gip").version().endswith("steps NumPy")
    assert without.margin == pytest.approx(with_library.margin, rel=1e-7)


@pytest.mark.parametrize("name", ["_gip", "_bnb"])
def test_a_library_that_is_older_than_its_source_is_not_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library_path(name)
    if path is None:
        pytest.skip("qcqpbench was installed without a C compiler")
    source = tmp_path / "solvers" / f"{name}_kernel" / "kernel.c"
    source.parent.mkdir(parents=True)
    source.touch()
    monkeypatch.setattr(_library, "__file__", str(tmp_path / "solvers" / "_library.py"))
    # Without pyproject.toml it is an installation, whose files have no order in time.
    assert library_path(name) == path
    (tmp_path / "pyproject.toml").touch()
    assert library_path(name) is None
    os.utime(source, (0, 0))
    assert library_path(name) == path
