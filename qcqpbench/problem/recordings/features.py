"""Means and covariances of recorded time series, and the response of a linear network to them.

Recordings are an array (trials, channels, time), with the number of valid samples of each trial in ``lengths`` if it
differs, or a sequence of arrays (channels, time). With C(τ) = ⟨x(t+τ) x(t)ᵀ⟩ about the trial's mean, a linear network
y(t) = Σ_s W(s) x(t−s) maps the covariance at angular frequency ω, P̂ = Σ_τ C(τ) e^{−iωτ}, to Q̂ = Ŵ P̂ Ŵ† with
Ŵ = Σ_s W(s) e^{−iωs}; at ω = 0, P̂ is the lag-integrated covariance P, and Q = W P Wᵀ.
"""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

Array = NDArray[np.float64]
Recordings = NDArray[Any] | Sequence[ArrayLike]
# Largest number of products held in memory at a time, unless one sample alone has more.
_MAX_PRODUCTS = 1 << 16


def means(recordings: Recordings, lengths: ArrayLike | None = None) -> Array:
    """Return the temporal mean of each trial, shape (trials, channels); the module describes the arguments."""
    return np.stack([trial.mean(axis=1) for trial in _trials(recordings, lengths)])


def zero_lag(recordings: Recordings, lengths: ArrayLike | None = None) -> Array:
    """Return the covariances C(0), shape (trials, channels, channels); the module describes the arguments."""
    return _windowed(recordings, lengths, 0, 0.0)


def lag_integrated(recordings: Recordings, max_lag: int, lengths: ArrayLike | None = None) -> Array:
    """Return the lag-integrated covariances Σ_{|τ| ≤ max_lag} C(τ), shape (trials, channels, channels).

    `max_lag` is in samples. It should exceed the correlation time and stay far below the length of a trial: the sum
    over all lags is exactly zero for every trial, because the mean of the trial is subtracted.
    """
    return _windowed(recordings, lengths, max_lag, 0.0)


def at_frequency(
    recordings: Recordings, omega: float, max_lag: int, lengths: ArrayLike | None = None
) -> NDArray[np.complex128]:
    """Return the Hermitian covariances Σ_{|τ| ≤ max_lag} C(τ) e^{−iωτ}, shape (trials, channels, channels).

    `omega` is ω in radians per sample, and `max_lag` is in samples.
    """
    return _windowed(recordings, lengths, max_lag, omega).astype(np.complex128, copy=False)


def respond(kernel: ArrayLike, x: ArrayLike) -> Array:
    """Return the linear response y(t) = Σ_s W(s) x(t−s), shape (n, time), where x is zero before its start.

    Parameters
    ----------
    kernel
        W(s), shape (steps, n, channels).
    x
        Input, shape (channels, time).
    """
    kernel, x = np.asarray(kernel, dtype=np.float64), np.asarray(x, dtype=np.float64)
    require(
        kernel.ndim == 3 and x.ndim == 2 and kernel.shape[2] == x.shape[0] and len(kernel) >= 1,
        f"kernel and x must have shapes (steps, n, channels) and (channels, time), got {kernel.shape} and {x.shape}",
    )
    y = kernel[0] @ x
    for s in range(1, min(len(kernel), x.shape[1])):
        y[:, s:] += kernel[s] @ x[:, :-s]
    return y


def _trials(recordings: Recordings, lengths: ArrayLike | None) -> list[Array]:
    """Return the first lengths[k] samples, by default all, of each trial k as a float64 array (channels, time).

    Raise QcqpbenchError if shapes disagree, or a trial has fewer than 2 samples or values that are not finite.
    """
    try:
        trials = [np.asarray(trial, dtype=np.float64) for trial in recordings]
    except (TypeError, ValueError) as error:
        shape = "(trials, channels, time)"
        raise QcqpbenchError(f"recordings must hold numbers of shape {shape}, got {recordings!r:.40}") from error
    require(len(trials) >= 1, "recordings must hold at least one trial, got none")
    channels = {trial.shape[0] if trial.ndim == 2 else None for trial in trials}
    shapes = ", ".join(sorted({str(trial.shape) for trial in trials})[:3])
    same = len(channels) == 1 and None not in channels
    require(same, f"recordings must have shape (trials, channels, time), got trials of shape {shapes}")
    if lengths is not None:
        counts = np.asarray(lengths)
        require(counts.shape == (len(trials),), f"lengths must have shape ({len(trials)},), got {counts.shape}")
        fit = all(
            count == int(count) and 0 <= count <= trial.shape[1] for count, trial in zip(counts, trials, strict=True)
        )
        shown = np.array2string(counts, threshold=6)
        require(fit, f"lengths must be whole numbers from 0 to the length of each trial, got {shown}")
        trials = [trial[:, : int(count)] for trial, count in zip(trials, counts, strict=True)]
    for index, trial in enumerate(trials):
        require(trial.shape[1] >= 2, f"trial {index} must have at least 2 samples, got {trial.shape[1]}")
        require(
            bool(np.isfinite(trial).all()),
            f"trial {index} must be finite, got inf or NaN; give lengths if it is padded",
        )
    return trials


def _windowed(recordings: Recordings, lengths: ArrayLike | None, max_lag: int, omega: float) -> NDArray[Any]:
    """Return Σ_{|τ| ≤ max_lag} C(τ) e^{−iωτ} for each trial; at ω = 0, it is bit-identical on every machine.

    The result is (1/T) Σ_t z(t) x(t)ᵀ with z(t) = Σ_τ x(t+τ) e^{−iωτ} = e^{iωt} Σ_{|s−t| ≤ max_lag} x(s) e^{−iωs},
    computed as a running sum, then a sum of products.
    """
    is_count = isinstance(max_lag, Real) and max_lag == int(max_lag) and max_lag >= 0
    require(is_count, f"max_lag must be a whole number of samples, 0 or more, got {max_lag!r:.100}")
    result = []
    for trial in _trials(recordings, lengths):
        T = trial.shape[1]
        x = trial - np.cumsum(trial, axis=1)[:, -1:] / T
        time = np.arange(T)
        turning = np.exp(-1j * omega * time) if omega else np.ones(T)
        z: NDArray[Any] = x
        if max_lag > 0:
            sums = np.concatenate([np.zeros((len(x), 1)), np.cumsum(x * turning, axis=1)], axis=1)
            z = (sums[:, np.minimum(time + max_lag + 1, T)] - sums[:, np.maximum(time - max_lag, 0)]) / turning
        result.append(_products(z, x) / T)
    return np.stack(result)


def _products(z: NDArray[Any], x: Array) -> NDArray[Any]:
    """Return Σ_t z(t) x(t)ᵀ, shape (channels, channels), for z and x of shape (channels, time).

    The sum is taken in the order of t; BLAS sums in an order that differs between machines.
    """
    z, x = np.ascontiguousarray(z.T), np.ascontiguousarray(x.T)
    total = np.zeros((z.shape[1], x.shape[1]), z.dtype)
    step = max(1, _MAX_PRODUCTS // total.size)
    for begin in range(0, len(x), step):
        block = slice(begin, begin + step)
        products = z[block, :, None] * x[block, None, :]
        products[0] += total
        total = products.sum(axis=0)
    return total
