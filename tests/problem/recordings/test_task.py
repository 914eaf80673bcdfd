from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qcqpbench import MaxMargin, QcqpbenchError, random_start, recorded_task
from qcqpbench.problem.recordings import features
from qcqpbench.problem.recordings.task import Normalize, codes, in_channel_units, normalized
from tests.support.recorded_trials import held_out, numpy_covariances, recordings

Array = NDArray[np.float64]


@pytest.mark.parametrize(("channels", "time", "block"), [(2, 3000, None), (3, 150, None), (3, 150, 640), (3, 150, 1)])
def test_covariances_are_sums_in_the_order_of_time(
    channels: int, time: int, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare every bit with sums in plain Python, for every block size."""
    if block is not None:
        monkeypatch.setattr(features, "_MAX_PRODUCTS", block)
    x = np.random.default_rng(1).standard_normal((2, channels, time))
    instance = recorded_task(x, [0, 1], normalize="none", test_share=0)
    for trial, pattern in zip(x.tolist(), instance.patterns.tolist(), strict=True):
        centred = []
        for channel in trial:
            total = 0.0
            for value in channel:
                total += value
            centred.append([value - total / time for value in channel])
        for i, j in product(range(channels), repeat=2):
            total = 0.0
            for a, b in zip(centred[i], centred[j], strict=True):
                total += a * b
            assert pattern[i][j] == total / time


def test_lag_integrated_is_the_sum_over_lags() -> None:
    content = recordings(trials=6, time=15, classes=2)
    instance = recorded_task(**content, feature="lag_integrated", max_lag=2, normalize="none", test_share=0)
    for x, P in zip(content["X"], instance.patterns, strict=True):
        z = x - x.mean(axis=1, keepdims=True)
        lags = [z[:, max(0, -lag) : 15 - max(0, lag)] @ z[:, max(0, lag) : 15 + min(0, lag)].T for lag in range(-2, 3)]
        np.testing.assert_allclose(P, sum(lags) / 15, atol=1e-14)


def test_whitening_makes_the_mean_the_identity() -> None:
    """Compare with S^(−½)PS^(−½), which is L⁻¹PL⁻ᵀ in another basis: differences of trials have its eigenvalues."""
    content = recordings(trials=40)
    instance = recorded_task(**content, normalize="whiten", seed=4)
    np.testing.assert_allclose(instance.patterns.mean(axis=0), np.eye(4), atol=1e-13)
    plain = recorded_task(**content, normalize="none", seed=4)
    values, vectors = np.linalg.eigh(plain.patterns.mean(axis=0))
    root = vectors / np.sqrt(values) @ vectors.T
    for white, raw in ((instance, plain), (held_out(instance), held_out(plain))):
        for k in range(1, white.p):
            difference = white.patterns[k] - white.patterns[0]
            expected = root @ (raw.patterns[k] - raw.patterns[0]) @ root
            np.testing.assert_allclose(np.linalg.eigvalsh(difference), np.linalg.eigvalsh(expected), atol=1e-12)


def test_trial_normalization_gives_correlations() -> None:
    content = recordings()
    instance = recorded_task(**content, normalize="trial", test_share=0)
    np.testing.assert_allclose(instance.patterns, [np.corrcoef(x) for x in content["X"]], atol=1e-14)


def test_a_channel_that_is_silent_in_a_trial_has_zeros_there() -> None:
    """Use a channel that is constant in all trials but one, as the spike counts of a neuron that is mostly silent."""
    content = recordings()
    content["X"][1:, 2] = 7.5
    for normalize in ("channels", "trial", "none", "whiten"):
        instance = recorded_task(**content, normalize=normalize, train=np.ones(30))
        assert np.isfinite(instance.patterns).all()
        if normalize != "whiten":
            assert (instance.patterns[1:, 2] == 0).all()
            assert (instance.patterns[0, 2] != 0).all()


def test_whitening_refuses_linearly_dependent_channels() -> None:
    """Subtract the mean of all channels, the average reference of EEG, so that the channels have sum zero."""
    content = recordings()
    content["X"] -= content["X"].mean(axis=1, keepdims=True)
    with pytest.raises(QcqpbenchError, match="channel 3 must be linearly independent of those before it"):
        recorded_task(**content, normalize="whiten")
    assert recorded_task(**content, normalize="channels").m == 4


@pytest.mark.parametrize("normalize", ["channels", "whiten", "none"])
def test_weights_in_channel_units_give_the_outputs_of_raw_covariances(normalize: Normalize) -> None:
    rng = np.random.default_rng(2)
    P = np.stack([np.cov(rng.standard_normal((4, 4)) @ rng.standard_normal((4, 9))) for _ in range(6)])
    W, S = rng.standard_normal((3, 2, 4)), P.mean(axis=0)
    V = in_channel_units(W, S, normalize)
    assert V is not None
    for w, v in zip(W, V, strict=True):
        for raw, scaled in zip(P, normalized(P, S, normalize), strict=True):
            np.testing.assert_allclose(v @ raw @ v.T, w @ scaled @ w.T, rtol=1e-9, atol=1e-12)
    assert in_channel_units(W, S, "trial") is None


@pytest.mark.parametrize("count", range(2, 18))
def test_codes_of_classes_are_consistent_and_far_apart(count: int) -> None:
    """Check that codes are signs s_i s_j of outputs, differ in n−1 pairs or more, and use all pairs."""
    labels = codes(count)
    n = next(n for n in range(2, 10) if 2 ** (n - 1) >= count)
    assert labels.shape == (count, n * (n - 1) // 2)
    pairs = list(combinations(range(n), 2))
    consistent = {tuple(s[i] * s[j] for i, j in pairs) for s in product((1, -1), repeat=n)}
    assert {tuple(word) for word in labels.tolist()} <= consistent
    assert min((a != b).sum() for a, b in combinations(labels, 2)) >= n - 1
    assert (np.abs(labels.sum(axis=0)) < count).all()


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_accuracy_counts_the_nearest_code(classes: int) -> None:
    content = recordings(trials=60, classes=classes)
    instance = recorded_task(**content, seed=1)
    W = random_start(instance)
    words, pairs = codes(classes), list(combinations(range(instance.n), 2))
    correct = 0
    for P, labels in zip(held_out(instance).patterns, held_out(instance).labels, strict=True):
        Q = W @ P @ W.T
        scores = [sum(word[k] * Q[i, j] for k, (i, j) in enumerate(pairs)) for word in words]
        correct += bool((words[int(np.argmax(scores))] == labels).all())
    assert instance.test_accuracy(W) == correct / held_out(instance).p
    assert 0 < correct < held_out(instance).p


def trials_of(instance: MaxMargin, content: dict[str, Any]) -> list[int]:
    """Return the numbers of the trials of a task without normalization."""
    P = numpy_covariances(content)
    trials = [int(np.argmin(np.abs(P - pattern).sum(axis=(1, 2)))) for pattern in instance.patterns]
    assert np.allclose(P[trials], instance.patterns)
    return trials


def test_the_split_takes_its_share_of_each_class() -> None:
    content = recordings(trials=45, classes=3)
    instance = recorded_task(**content, test_share=0.4, normalize="none", seed=3)
    trained, tested = trials_of(instance, content), trials_of(held_out(instance), content)
    assert sorted(trained + tested) == list(range(45))
    assert np.bincount(content["y"][tested]).tolist() == [6, 6, 6]
    again = recorded_task(**content, test_share=0.4, normalize="none", seed=3)
    other = recorded_task(**content, test_share=0.4, normalize="none", seed=4)
    assert again.id == instance.id != other.id
    two = recorded_task(**content, test_share=0.4, normalize="none", seed=3, classes=[0, 2])
    assert trials_of(two, content) == [trial for trial in trained if content["y"][trial] != 1]


def test_file_and_test_share_determine_the_held_out_trials() -> None:
    content = recordings(trials=20, classes=2)
    train = np.arange(20) < 14
    published = recorded_task(**content, train=train, normalize="none")
    assert trials_of(published, content) == list(range(14))
    asked = recorded_task(**content, train=train, normalize="none", test_share=0.5)
    assert asked.p == 10
    assert held_out(recorded_task(**content)).p == 6
    for whole in (recorded_task(**content, test_share=0), recorded_task(**content, train=np.ones(20))):
        assert whole.held_out is None
        assert whole.test_accuracy(random_start(whole)) is None
    assert recorded_task(**recordings(trials=2, classes=2), test_share=0.9).p == 2


def test_labels_of_the_same_number_are_sorted() -> None:
    """Sort labels whose order in a set would differ between processes."""
    content = recordings(trials=40, classes=4)
    names = np.array(["1", "01", "1.0", "001"])
    instance = recorded_task(content["X"], names[content["y"].astype(int)])
    assert instance.metadata.notes["classes"] == "001:01:1:1.0"


def test_a_negative_variance_is_refused_with_a_remedy() -> None:
    x = np.tile([1.0, -1.0], (4, 2, 6)) + 0.1 * np.random.default_rng(0).standard_normal((4, 2, 12))
    for normalize in ("channels", "trial"):
        with pytest.raises(QcqpbenchError, match=r"must be 0 or more, got -.*: use a smaller max_lag or norm"):
            recorded_task(x, [0, 1, 0, 1], feature="lag_integrated", max_lag=1, normalize=normalize)


def test_too_many_channels_are_refused_before_memory_is_allocated() -> None:
    with pytest.raises(QcqpbenchError, match=r"covariances must take under 8 GB, got 25\.6 GB of 40000 channels"):
        recorded_task(np.zeros((2, 40_000, 2)), [0, 1], lengths=[2, 2], test_share=0)
