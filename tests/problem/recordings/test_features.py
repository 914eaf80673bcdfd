from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qcqpbench import MaxMargin, QcqpbenchError, features

Array = NDArray[np.float64]


def recordings(trials: int = 3, channels: int = 4, time: int = 30, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((trials, channels, time)) + 2.0


def lagged(x: Array, tau: int) -> Array:
    """Return C(τ)_kl = (1/T) Σ_t x_k(t+τ) x_l(t) about the means, summed one product at a time."""
    channels, T = x.shape
    x = x - x.mean(axis=1, keepdims=True)
    result = np.zeros((channels, channels))
    for k, l in np.ndindex(channels, channels):  # noqa: E741
        result[k, l] = sum(x[k, t + tau] * x[l, t] for t in range(T) if 0 <= t + tau < T) / T
    return result


def test_means_and_zero_lag_agree_with_numpy() -> None:
    x = recordings()
    np.testing.assert_allclose(features.means(x), [[np.mean(row) for row in trial] for trial in x], rtol=1e-14)
    np.testing.assert_allclose(features.zero_lag(x), [np.cov(trial, bias=True) for trial in x], rtol=1e-12)


@pytest.mark.parametrize("max_lag", [0, 1, 5, 29, 100])
@pytest.mark.parametrize("omega", [0.0, 0.7, -2.0])
def test_covariances_agree_with_a_loop(max_lag: int, omega: float) -> None:
    x = recordings(trials=2, channels=3)
    lags = range(-max_lag, max_lag + 1)
    expected = [sum(lagged(trial, tau) * np.exp(-1j * omega * tau) for tau in lags) for trial in x]
    covariances = features.at_frequency(x, omega, max_lag)
    np.testing.assert_allclose(covariances, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(covariances, np.conj(np.swapaxes(covariances, 1, 2)), rtol=1e-11, atol=1e-12)
    if omega == 0:
        np.testing.assert_allclose(features.lag_integrated(x, max_lag), np.real(expected), rtol=1e-11, atol=1e-12)


def test_sum_over_all_lags_is_zero() -> None:
    x = recordings()
    np.testing.assert_allclose(features.lag_integrated(x, 10**9), 0, atol=1e-12)


def every_feature(x: Any, lengths: Any = None) -> list[NDArray[Any]]:
    return [
        features.means(x, lengths),
        features.zero_lag(x, lengths),
        features.lag_integrated(x, 3, lengths),
        features.at_frequency(x, 0.4, 3, lengths),
    ]


def test_padded_trials_agree_with_a_list_and_with_single_trials() -> None:
    """Compare a list of trials with the same trials padded with NaN, and with each trial by itself."""
    lengths = [30, 12, 21]
    padded = recordings()
    listed = [trial[:, :length].copy() for trial, length in zip(padded, lengths, strict=True)]
    for trial, length in zip(padded, lengths, strict=True):
        trial[:, length:] = np.nan
    single = [every_feature([trial]) for trial in listed]
    for k, (a, b) in enumerate(zip(every_feature(listed), every_feature(padded, lengths), strict=True)):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, np.concatenate([values[k] for values in single]))


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 6))
def test_respond_agrees_with_a_loop(seed: int, steps: int, time: int) -> None:
    rng = np.random.default_rng(seed)
    kernel, x = rng.standard_normal((steps, 2, 3)), rng.standard_normal((3, time))
    expected = np.zeros((2, time))
    for t in range(time):
        for s in range(min(steps, t + 1)):
            expected[:, t] += kernel[s] @ x[:, t - s]
    np.testing.assert_allclose(features.respond(kernel, x), expected, rtol=1e-12, atol=1e-13)


class Network:
    """A linear network: white noise through a random filter A makes correlated inputs x, and x through W outputs y.

    With the Fourier transforms Â and Ŵ at ω, P̂ = ÂÂ† and Q̂ = ŴP̂Ŵ† hold exactly, and no covariance exceeds the lengths
    of the filters. The transients are cut off, so that the processes are stationary.
    """

    inputs, outputs, reach, trials = 4, 3, 5, 40

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        decay = 0.6 ** np.arange(self.reach)[:, None, None]
        self.A = decay * self.rng.standard_normal((self.reach, self.inputs, self.inputs))
        self.W = decay * self.rng.standard_normal((self.reach, self.outputs, self.inputs))

    def simulate(self, lengths: list[int]) -> tuple[list[Array], list[Array]]:
        cut = 2 * self.reach
        x = [features.respond(self.A, self.rng.standard_normal((self.inputs, T + cut))) for T in lengths]
        y = [features.respond(self.W, trial) for trial in x]
        return [trial[:, cut:] for trial in x], [trial[:, cut:] for trial in y]

    def transform(self, kernel: Array, omega: float) -> NDArray[Any]:
        turning = np.exp(-1j * omega * np.arange(self.reach)) if omega else np.ones(self.reach)
        return np.tensordot(turning, kernel, 1)


def integrated(recordings: list[Array], omega: float, max_lag: int) -> NDArray[Any]:
    return features.at_frequency(recordings, omega, max_lag) if omega else features.lag_integrated(recordings, max_lag)


def z_scores(samples: NDArray[Any], expected: NDArray[Any]) -> Array:
    """Return the deviation of the mean over trials in standard errors, of the real and imaginary upper triangle."""
    upper = np.triu_indices(samples.shape[1])
    scores = []
    for part in ("real", "imag") if np.iscomplexobj(samples) else ("real",):
        values, exact = getattr(samples, part)[:, *upper], getattr(expected, part)[upper]
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        varies = error > 1e-12
        np.testing.assert_allclose(values.mean(axis=0)[~varies], exact[~varies], atol=1e-9)
        scores.append((values.mean(axis=0) - exact)[varies] / error[varies])
    return np.concatenate(scores)


@pytest.mark.slow
@pytest.mark.parametrize("omega", [0.0, 0.9])
def test_linear_network_maps_covariances_bilinearly(omega: float) -> None:
    """Check Q̂ = ŴP̂Ŵ† within the statistical error, for exact and measured P̂, and that zero-lag P does not fit."""
    scores, wrong = [], []
    for seed in range(4):
        network = Network(seed)
        x, y = network.simulate(network.rng.integers(15_000, 25_000, network.trials).tolist())
        A, W = (network.transform(kernel, omega) for kernel in (network.A, network.W))
        P = A @ A.conj().T
        measured_P, measured_Q = (integrated(trials, omega, 2 * network.reach) for trials in (x, y))
        mapped = W @ measured_P @ W.conj().T
        scores += [
            z_scores(measured_P, P),
            z_scores(measured_Q, W @ P @ W.conj().T),
            z_scores(measured_Q - mapped, 0 * mapped[0]),
        ]
        wrong.append(z_scores(measured_Q, W @ np.mean(features.zero_lag(x), axis=0) @ W.conj().T))
        if omega == 0:
            task = MaxMargin(measured_P, np.ones((network.trials, 3), dtype=np.int8))
            np.testing.assert_allclose(task.covariances(W), mapped, rtol=1e-10, atol=1e-10)
    z = np.concatenate(scores)
    assert np.abs(z).max() < 4.5
    assert 0.6 < np.mean(z**2) < 1.6
    assert abs(z.mean()) < 0.5
    for z in wrong:
        assert np.abs(z).max() > 20


@pytest.mark.parametrize(
    ("x", "lengths", "message"),
    [
        (recordings()[0], None, "shape"),
        (recordings()[:0], None, "recordings must hold at least one trial"),
        ([recordings()[0], recordings()[0][:2]], None, "shape"),
        (np.full((1, 2, 5), np.nan), None, "trial 0 must be finite, got inf or NaN; give lengths"),
        (np.full((1, 2, 5), np.inf), None, "trial 0 must be finite"),
        (recordings(), [30, 12], r"lengths must have shape \(3,\), got \(2,\)"),
        (recordings(), [30, 1, 30], "trial 1 must have at least 2 samples, got 1"),
        (recordings(), [30, 0, 30], "trial 1 must have at least 2 samples, got 0"),
        (recordings(), [30, -2, 30], "length"),
        (recordings(), [30, 31, 30], "length"),
        (recordings(), [30, 12.5, 30], "length"),
        (recordings()[:, :, :1], None, "trial 0 must have at least 2 samples, got 1"),
    ],
)
def test_wrong_recordings_are_refused(x: Any, lengths: Any, message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message):
        features.lag_integrated(x, 2, lengths)


def test_wrong_lags_and_kernels_are_refused() -> None:
    with pytest.raises(QcqpbenchError, match="max_lag must be a whole number of samples, 0 or more, got -1"):
        features.lag_integrated(recordings(), -1)
    with pytest.raises(QcqpbenchError, match=r"max_lag must be a whole number of samples, 0 or more, got 2\.5"):
        features.lag_integrated(recordings(), 2.5)  # type: ignore[arg-type]
    for kernel in (np.ones((1, 2, 3)), np.ones((2, 4)), np.ones((0, 2, 4))):
        with pytest.raises(QcqpbenchError, match="kernel"):
            features.respond(kernel, np.ones((4, 10)))
