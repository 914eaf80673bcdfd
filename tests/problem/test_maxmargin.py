from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qcqpbench import MaxMargin, QcqpbenchError, unit_rows

Array = NDArray[np.float64]
MakeTask = Callable[..., MaxMargin]

seeds = st.integers(0, 2**32)
outputs = st.integers(2, 4)


def task_of(patterns: Any, labels: Any, scale: Any = 1.0) -> MaxMargin:
    return MaxMargin(patterns, labels, scale)


def weights(task: MaxMargin, seed: int = 0, *batch: int) -> Array:
    return np.random.default_rng(seed).standard_normal((*batch, task.n, task.m))


def stability(task: MaxMargin, W: Array, r: int, column: int) -> float:
    """Return ζ^r_ij Σ_kl W_ik P^r_kl W_jl, summed one product at a time."""
    i, j = list(combinations(range(task.n), 2))[column]
    terms = (W[i, k] * task.patterns[r, k, l] * W[j, l] for k in range(task.m) for l in range(task.m))  # noqa: E741
    return float(task.labels[r, column] * sum(terms))


def differences(function: Callable[[Array], float], W: Array, h: float) -> Array:
    result = np.zeros(W.shape)
    for place in np.ndindex(W.shape):
        step = np.zeros(W.shape)
        step[place] = h
        result[place] = (function(W + step) - function(W - step)) / (2 * h)
    return result


@pytest.mark.parametrize("n", [2, 3, 4])
def test_quantities_agree_with_loops(make_task: MakeTask, n: int) -> None:
    task = make_task(p=5, m=4, n=n)
    W = weights(task)
    N = n * (n - 1) // 2
    expected = np.array([[stability(task, W, r, column) for column in range(N)] for r in range(5)])
    assert (task.p, task.m, task.n, task.load) == (5, 4, n, 5 / (4 * n))
    np.testing.assert_allclose(task.stabilities(W), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(task.covariances(W), [W @ P @ W.T for P in task.patterns], rtol=1e-12, atol=1e-13)
    assert task.margin(W) == pytest.approx(expected.min(), rel=1e-13)
    assert task.kappa_bar(W) == pytest.approx(expected.min() / 0.5, rel=1e-13)
    soft = -np.log(sum(np.exp(-1.5 * value) for value in expected.ravel())) / 1.5
    assert task.soft_margin(W, 1.5) == pytest.approx(soft, rel=1e-13)
    overlaps = [W[i] @ W[j] for i, j in combinations(range(n), 2)]
    np.testing.assert_allclose(task.overlaps(W), overlaps, rtol=1e-13)
    first, second, third = np.sort(expected.ravel())[:3]
    active = task.active(W, tolerance=((second + third) / 2 - first) / task.scale)
    np.testing.assert_array_equal(active, expected < (second + third) / 2)
    assert task.active(W).sum() == 1


@pytest.mark.parametrize("n", [2, 3, 4])
def test_batch_gives_the_results_of_its_members(make_task: MakeTask, n: int) -> None:
    task = make_task(p=6, m=5, n=n)
    batch = weights(task, 0, 3)
    methods: list[Callable[[Array], Any]] = [
        task.covariances,
        task.stabilities,
        task.margin,
        task.kappa_bar,
        task.overlaps,
        task.active,
        lambda W: task.soft_margin(W, 2.0),
        lambda W: task.soft_margin_gradient(W, 2.0)[0],
        lambda W: task.soft_margin_gradient(W, 2.0)[1],
    ]
    for method in methods:
        np.testing.assert_allclose(method(batch), [method(W) for W in batch], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("eta", [0.1, 4.0])
def test_soft_margin_gradient_agrees_with_differences(make_task: MakeTask, n: int, eta: float) -> None:
    task = make_task(p=5, m=4, n=n)
    W = weights(task) / 2
    value, gradient = task.soft_margin_gradient(W, eta)
    assert value == task.soft_margin(W, eta)
    expected = differences(lambda V: task.soft_margin(V, eta), W, 1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_stability_gradient_agrees_with_differences(make_task: MakeTask, n: int) -> None:
    task = make_task(p=5, m=4, n=n)
    W = weights(task)
    multipliers = np.random.default_rng(1).standard_normal(task.labels.shape)
    expected = differences(lambda V: float((multipliers * task.stabilities(V)).sum()), W, 0.5)
    np.testing.assert_allclose(task.stability_gradient(W, multipliers), expected, rtol=1e-11, atol=1e-12)


def test_mixture_agrees_with_a_loop(make_task: MakeTask) -> None:
    task = make_task(p=5, m=3, n=3)
    multipliers = np.random.default_rng(1).standard_normal(task.labels.shape)
    for column in range(3):
        expected = sum(multipliers[r, column] * task.labels[r, column] * task.patterns[r] for r in range(5))
        np.testing.assert_allclose(task.mixture(multipliers)[column], expected, rtol=1e-12, atol=1e-13)


@given(seeds, outputs, st.floats(1e-3, 1e3))
def test_margin_scales_with_the_square_of_the_weights(make_task: MakeTask, seed: int, n: int, a: float) -> None:
    task = make_task(p=4, m=3, n=n, seed=seed)
    W = weights(task, seed)
    assert task.margin(a * W) == pytest.approx(a**2 * task.margin(W), rel=1e-11)


@given(seeds, outputs)
def test_margin_is_the_same_for_opposite_weights(make_task: MakeTask, seed: int, n: int) -> None:
    task = make_task(p=4, m=3, n=n, seed=seed)
    W = weights(task, seed)
    assert task.margin(-W) == task.margin(W)
    assert task.soft_margin(-W, 3.0) == task.soft_margin(W, 3.0)
    np.testing.assert_array_equal(task.soft_margin_gradient(-W, 3.0)[1], -task.soft_margin_gradient(W, 3.0)[1])


@given(seeds, outputs, st.randoms(use_true_random=False))
def test_rows_may_be_permuted_with_their_labels(make_task: MakeTask, seed: int, n: int, chance: Any) -> None:
    """Use symmetric patterns; output order[i] takes the place i, and the label of each pair moves with it."""
    some = make_task(p=4, m=3, n=n, seed=seed)
    order = chance.choice(list(permutations(range(n))))
    symmetric = some.patterns + np.swapaxes(some.patterns, 1, 2)
    column = {frozenset(pair): k for k, pair in enumerate(combinations(range(n), 2))}
    moved = [column[frozenset((order[i], order[j]))] for i, j in combinations(range(n), 2)]
    task, other = MaxMargin(symmetric, some.labels), MaxMargin(symmetric, some.labels[:, moved])
    W = weights(some, seed)
    assert other.margin(W[list(order)]) == pytest.approx(task.margin(W), rel=1e-12)


@given(seeds, outputs, st.data())
def test_row_may_be_flipped_with_its_labels(make_task: MakeTask, seed: int, n: int, data: st.DataObject) -> None:
    task = make_task(p=4, m=3, n=n, seed=seed)
    row = data.draw(st.integers(0, n - 1))
    flip = [-1 if row in pair else 1 for pair in combinations(range(n), 2)]
    W = weights(task, seed)
    flipped = W.copy()
    flipped[row] *= -1
    assert MaxMargin(task.patterns, task.labels * flip).margin(flipped) == pytest.approx(task.margin(W), rel=1e-13)
    opposite = MaxMargin(task.patterns, -task.labels)
    assert opposite.margin(W) == pytest.approx(-task.stabilities(W).max(), rel=1e-13)


@given(seeds, outputs, st.floats(0.01, 1e6))
def test_soft_margin_bounds_the_margin(make_task: MakeTask, seed: int, n: int, eta: float) -> None:
    task = make_task(p=4, m=3, n=n, seed=seed)
    W = weights(task, seed)
    margin, rounding = task.margin(W), 1e-12 * (1 + abs(task.margin(W)))
    assert margin - np.log(task.labels.size) / eta - rounding <= task.soft_margin(W, eta) <= margin + rounding


@pytest.mark.parametrize("size", [1e-160, 1e3, 1e150])
def test_soft_margin_does_not_overflow(make_task: MakeTask, size: float) -> None:
    task = make_task(p=5, m=4, n=3)
    W = size * weights(task)
    value, gradient = task.soft_margin_gradient(W, 4.0)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert value <= task.margin(W) or size < 1


@given(seeds)
def test_margins_do_not_exceed_the_dual_bound(make_task: MakeTask, seed: int) -> None:
    """Check κ(W) ≤ σ_max(Σ_r λ_r ζ^r P^r) for unit rows and λ in the simplex, with equality for one pattern."""
    task = make_task(p=4, m=3, n=2, seed=seed)
    simplex = np.random.default_rng(seed).dirichlet(np.ones(4))[:, None]
    bound = np.linalg.norm(task.mixture(simplex)[0], 2)
    assert task.margin(unit_rows(weights(task, seed, 50))).max() <= bound * (1 + 1e-12)
    single = task_of(task.patterns[:1], [[-1]])
    left, values, right = np.linalg.svd(task.patterns[0])
    assert single.margin([left[:, 0], -right[0]]) == pytest.approx(values[0], rel=1e-12)


def test_smallest_eigenvalue_is_the_least_of_all_patterns(make_task: MakeTask) -> None:
    for seed in range(5):
        task = make_task(p=40, m=6, n=2, seed=seed)
        expected = min(np.linalg.eigvalsh((P + P.T) / 2)[0] for P in task.patterns)
        assert task.smallest_eigenvalue == pytest.approx(expected, rel=1e-12)
    assert task_of([np.diag([3.0, 2.0]), np.diag([5.0, 4.0])], [[1], [1]]).smallest_eigenvalue == pytest.approx(2.0)


def test_id_depends_on_the_content_alone() -> None:
    P, labels = np.arange(18.0).reshape(2, 3, 3), [[1], [-1]]
    task = task_of(P, labels)
    same = [task_of(P.tolist(), np.array(labels, dtype=float)), task_of(np.asfortranarray(P), labels, scale=1)]
    assert {copy.id for copy in same} == {task.id}
    other = P.copy()
    other[1, 2, 0] += 1e-9
    others = [task_of(other, labels), task_of(P, [[1], [1]]), task_of(P, labels, scale=2.0)]
    others.append(task_of(np.swapaxes(P, 1, 2), labels))
    assert len({task.id, *(task.id for task in others)}) == 5


def test_task_cannot_be_changed() -> None:
    P, labels = np.ones((2, 3, 3)), np.ones((2, 1), dtype=np.int8)
    task = task_of(P, labels)
    P[:], labels[:] = 2, -1
    assert (task.patterns == 1).all()
    assert (task.labels == 1).all()
    with pytest.raises(FrozenInstanceError):
        task.scale = 2.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        task.patterns[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        task.labels[0] = 1


P2, L2 = np.ones((2, 3, 3)), np.ones((2, 1))


@pytest.mark.parametrize(
    ("patterns", "labels", "scale", "message"),
    [
        (np.where(np.arange(3) == 1, np.nan, P2), L2, 1, "patterns must be finite"),
        (np.where(np.arange(3) == 1, np.inf, P2), L2, 1, "patterns must be finite"),
        (np.array([P2[0] * np.inf, -P2[0] * np.inf]), L2, 1, "patterns must be finite"),
        (P2[0], L2, 1, r"patterns must have shape \(p, m, m\), got \(3, 3\)"),
        (P2[:, :2], L2, 1, r"patterns must have shape \(p, m, m\), got \(2, 2, 3\)"),
        (P2[:0], L2[:0], 1, "patterns must hold at least one pattern"),
        (P2[:, :1, :1], L2, 1, "patterns must have at least 2 channels, got 1"),
        ([[[1]], [[1, 2]]], L2, 1, "patterns must be an array of numbers"),
        (P2, L2[:1], 1, r"labels must have shape \(2, n\(n-1\)/2\), got \(1, 1\)"),
        (P2, L2[:, 0], 1, r"labels must have shape \(2, n\(n-1\)/2\), got \(2,\)"),
        (P2, np.ones((2, 2)), 1, r"labels must have n\(n-1\)/2 columns .* got 2"),
        (P2, np.ones((2, 0)), 1, r"labels must have n\(n-1\)/2 columns .* got 0"),
        (P2, 0 * L2, 1, r"labels must be \+1 or -1"),
        (P2, 257 * L2, 1, r"labels must be \+1 or -1"),
        (P2, np.nan * L2, 1, r"labels must be \+1 or -1"),
        (P2, [["a"], ["b"]], 1, "labels must be an array of numbers"),
        (P2, [[1], [1, 1]], 1, "labels"),
        (P2, L2[:, 0], 1, r"got \(2,\); use labels\[:, None\] for two outputs"),
        (P2.astype(object), L2, 1, "patterns must be an array of numbers, got entries of type object"),
        (P2 * 1j, L2, 1, "patterns must be an array of real numbers, got complex numbers"),
        (P2.astype(str), L2, 1, "patterns must be an array of numbers, got entries of type <U"),
        (P2, [["1"], ["-1"]], 1, "labels must be an array of numbers, got entries of type <U2"),
        (P2, L2, "1", "scale must be a real number, got '1'"),
        (P2, L2, None, "scale must be a real number, got None"),
        (P2, L2, [1, 2], r"scale must be a real number, got \[1, 2\]"),
        (P2, L2, 0, "scale must be positive and finite, got 0"),
        (P2, L2, np.nan, "scale must be positive and finite, got nan"),
        (P2, L2, np.inf, "scale must be positive and finite, got inf"),
    ],
)
def test_wrong_tasks_are_refused(patterns: Any, labels: Any, scale: Any, message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message):
        task_of(patterns, labels, scale)


def test_patterns_whose_sum_overflows_are_accepted() -> None:
    assert task_of(np.full((2, 3, 3), 1e308), [[1], [1]]).p == 2


def test_wrong_weights_are_refused(make_task: MakeTask) -> None:
    task = make_task(p=2, m=3, n=2)
    for W in (np.ones((3, 3)), np.ones((2, 4)), np.ones(6), np.ones((1, 1, 2, 3))):
        for method in (task.margin, task.covariances, task.overlaps):
            with pytest.raises(QcqpbenchError, match=r"W must have shape \(2, 3\)"):
                method(W)
    for eta in (0.0, -1.0, np.nan):
        with pytest.raises(QcqpbenchError, match="eta must be positive"):
            task.soft_margin(np.ones((2, 3)), eta)
    with pytest.raises(QcqpbenchError, match="weights"):
        task.mixture(np.ones((5, 1)))


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1.0, 1e308])
def test_unit_rows_have_unit_length_at_any_scale(size: float) -> None:
    W = unit_rows([[size, 0.0, -size], [0.0, size, 0.0]])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(W, [[half, 0, -half], [0, 1, 0]], rtol=1e-15)
    batch = np.random.default_rng(0).standard_normal((4, 2, 3))
    np.testing.assert_allclose((unit_rows(batch) ** 2).sum(axis=-1), 1, rtol=1e-15)


@pytest.mark.parametrize("row", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_row_without_direction_is_refused(row: list[float]) -> None:
    with pytest.raises(QcqpbenchError, match="must be finite and not zero"):
        unit_rows([[1.0, 0.0], row])


@pytest.mark.parametrize("n", [2, 3])
def test_accuracy_counts_held_out_trials_assigned_to_their_class(make_task: MakeTask, n: int) -> None:
    """Assign each trial to the labels that agree best with its outputs."""
    seen, unseen = make_task(p=9, m=4, n=n), make_task(p=40, m=4, n=n, seed=1)
    task = MaxMargin(seen.patterns, seen.labels, 0.5, held_out=unseen)
    W = weights(task)
    classes = {tuple(row) for row in [*seen.labels.tolist(), *unseen.labels.tolist()]}
    correct = 0
    for P, true_labels in zip(unseen.patterns, unseen.labels.tolist(), strict=True):
        Q = [W[i] @ P @ W[j] for i, j in combinations(range(n), 2)]
        agreement = {labels: sum(a * b for a, b in zip(labels, Q, strict=True)) for labels in classes}
        correct += max(agreement, key=lambda labels: agreement[labels]) == tuple(true_labels)
    assert task.test_accuracy(W) == correct / 40
    assert 0 < correct < 40
    assert seen.test_accuracy(W) is None
    assert task.margin(W) == seen.margin(W)
    assert len({task.id, seen.id, MaxMargin(seen.patterns, seen.labels, 0.5, held_out=seen).id}) == 3


def test_a_trial_between_two_classes_is_not_correct() -> None:
    """Use a trial whose output is exactly 0, and one of each class whose output is not."""
    patterns, labels = np.stack([np.zeros((2, 2)), np.eye(2), -np.eye(2)]), np.array([[1], [1], [-1]], dtype=np.int8)
    held_out = MaxMargin(patterns, labels)
    task = MaxMargin(patterns[1:], labels[1:], held_out=held_out)
    assert task.test_accuracy(np.array([[1.0, 0.0], [1.0, 0.0]])) == pytest.approx(2 / 3)


def test_wrong_held_out_trials_are_refused(make_task: MakeTask) -> None:
    task = make_task(p=3, m=4, n=3)
    for other in (make_task(p=3, m=5, n=3), make_task(p=3, m=4, n=2)):
        with pytest.raises(QcqpbenchError, match=r"held_out must have \(inputs, pairs of outputs\) = \(4, 3\)"):
            MaxMargin(task.patterns, task.labels, held_out=other)
    wrong: Any = (task.patterns, task.labels)
    with pytest.raises(QcqpbenchError, match="held_out must be a MaxMargin with the held-out trials, got tuple"):
        MaxMargin(task.patterns, task.labels, held_out=wrong)
    with pytest.raises(QcqpbenchError, match="metadata must be a Metadata, got str"):
        MaxMargin(task.patterns, task.labels, metadata="covariance_perceptron")  # type: ignore[arg-type]
