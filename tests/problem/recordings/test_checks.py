"""Mistakes in preparing recordings, each of which must be refused in one line."""

import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qcqpbench import QcqpbenchError, features, recorded_task
from tests.support.recorded_trials import recordings

Array = NDArray[np.float64]


def refusal(X: Any, y: Any, **parameters: Any) -> str:
    """Return the message of the ValueError that `recorded_task` raises."""
    with pytest.raises(ValueError, match=r"must") as caught:
        recorded_task(X, y, **parameters)
    assert isinstance(caught.value, QcqpbenchError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("feature", [features.zero_lag, lambda X: features.lag_integrated(X, 3)])
def test_covariances_in_place_of_recordings_are_refused(feature: Any, dtype: Any) -> None:
    """Include lag-integrated covariances: some have negative eigenvalues, and rounding makes them asymmetric."""
    content = recordings(trials=40, channels=6, time=30, classes=2)
    message = refusal(feature(content["X"]).astype(dtype), content["y"])
    assert "got symmetric matrices of shape (6, 6), such as covariances" in message
    assert "to the classifier with feature='precomputed', or to MaxMargin as patterns" in message
    assert "symmetric" in refusal(list(feature(content["X"])), content["y"])


def test_square_recordings_are_not_covariances() -> None:
    content = recordings(trials=10, channels=6, time=6, classes=2)
    content["X"][3] = content["X"][3] + content["X"][3].T
    assert recorded_task(**content).m == 6


def test_transposed_recordings_are_refused_at_once() -> None:
    content = recordings(trials=30, channels=8, time=2000, classes=2)
    begin = time.perf_counter()
    message = refusal(content["X"].swapaxes(1, 2), content["y"])
    # Time limit: the covariances of 2000 channels take minutes.
    assert time.perf_counter() - begin < 5
    assert message.startswith("X must have shape (trials, channels, time), got 2000 channels and at most 8 samples")
    assert "use X.swapaxes(1, 2)" in message
    padded = np.where(np.arange(2000)[:, None] < 1500, content["X"].swapaxes(1, 2), np.nan)
    assert "swapaxes" in refusal(padded, content["y"])
    message = refusal([x.T[: 900 + k] for k, x in enumerate(content["X"])], content["y"])
    assert message.endswith(": if time is the first axis, transpose each trial")


def test_more_channels_than_samples_are_accepted_with_lengths() -> None:
    content = recordings(trials=10, channels=6, time=5, classes=2)
    instance = recorded_task(**content, lengths=np.full(10, 5), normalize="none", test_share=0)
    np.testing.assert_allclose(instance.patterns, [np.cov(x, bias=True) for x in content["X"]], atol=1e-14)


def test_lengths_do_not_confirm_a_transposed_array() -> None:
    content = recordings(trials=10, channels=4, time=50, classes=2)
    message = refusal(content["X"].swapaxes(1, 2), content["y"], lengths=np.full(10, 50))
    assert "lengths must be whole numbers from 0 to the length of each trial" in message


def test_a_few_trials_may_have_fewer_samples_than_channels() -> None:
    content = recordings(trials=10, channels=6, time=9, classes=2)
    X = [x[:, : 4 + k % 6] for k, x in enumerate(content["X"])]
    assert recorded_task(X, content["y"], test_share=0).p == 10
    assert "got 6 channels and at most 5 samples" in refusal([x[:, :5] for x in X], content["y"])


@pytest.mark.parametrize(
    ("values", "got"),
    [(0.0, "zeros"), (0.1, "only constant channels"), ([[1.0], [2.0], [0.0], [4.0]], "only constant")],
)
def test_a_trial_that_does_not_vary_is_named(values: Any, got: str) -> None:
    content = recordings(classes=2)
    content["X"][17] = values
    assert refusal(**content).startswith(f"trial 17 must vary in time, got {got}")
    # Samples after the end of the trial are not part of it.
    content["X"][17, :, 12:] = np.arange(8)
    assert refusal(**content, lengths=np.full(30, 12)).startswith("trial 17 must vary")
    assert recorded_task(**content).m == 4


def test_a_channel_that_does_not_vary_is_named() -> None:
    """Use constants that differ between trials, and 0.1, whose covariance is not zero but 1e-34 after rounding."""
    content = recordings(classes=2)
    X = content["X"]
    X[:, 2] = 0.1 + np.arange(30)[:, None]
    message = refusal(**content)
    assert message.startswith("channel 2 must vary in at least one training trial")
    assert message.endswith("leave the channel out")
    held_out = np.arange(30) >= 28
    X[held_out, 2] = np.arange(20)
    assert refusal(**content, train=~held_out).startswith("channel 2 must vary")
    assert recorded_task(**content, train=held_out).m == 4
