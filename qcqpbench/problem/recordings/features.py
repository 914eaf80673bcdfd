"""Features of recorded time series: means and covariances, and the linear network that maps one to the other.

Recordings are an array (trials, channels, time), with the number of valid samples of each trial in ``lengths`` if they
differ, or a sequence of arrays (channels, time). With C(τ) = ⟨x(t+τ) x(t)ᵀ⟩ about the trial's mean, a linear network
y(t) = Σ_s W(s) x(t−s) maps the covariance at angular frequency ω, P̂ = Σ_τ C(τ) e^{−iωτ}, to Q̂ = Ŵ P̂ Ŵ† with
Ŵ = Σ_s W(s) e^{−iωs}; at ω = 0 that is the lag-integrated covariance and Q = W P Wᵀ.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import require

Array = NDArray[np.float64]
Recordings = NDArray[Any] | Sequence[ArrayLike]
# Products that are held at a time, if a sample has no more.
_BLOCK = 1 << 16


def means(recordings: Recordings, lengths: ArrayLike | None = None) -> Array:
    """Temporal means X, shape (trials, channels)."""
    return np.stack([trial.mean(axis=1) for trial in _trials(recordings, lengths)])


def zero_lag(recordings: Recordings, lengths: ArrayLike | None = None) -> Array:
    """Covariances C(0), shape (trials, channels, channels)."""
    return _windowed(recordings, lengths, 0, 0.0)


def lag_integrated(recordings: Recordings, max_lag: int, lengths: ArrayLike | None = None) -> Array:
    """Covariances Σ_{|τ| ≤ max_lag} C(τ), shape (trials, channels, channels).

    max_lag should exceed the correlation time and stay far below the length of a trial: summed over all lags, every
    trial's covariance is exactly zero, because its own mean has been taken off.
    """
    return _windowed(recordings, lengths, max_lag, 0.0)


def at_frequency(
    recordings: Recordings, omega: float, max_lag: int, lengths: ArrayLike | None = None
) -> NDArray[np.complex128]:
    """Covariances Σ_{|τ| ≤ max_lag} C(τ) e^{−iωτ}, Hermitian, (trials, channels, channels); ω in radians a sample."""
    return _windowed(recordings, lengths, max_lag, omega).astype(np.complex128, copy=False)


def respond(kernel: ArrayLike, x: ArrayLike) -> Array:
    """The linear response y(t) = Σ_s W(s) x(t−s) to x (channels, time), x being zero before it starts.

    kernel   W(s), shape (steps, n, channels); the result has shape (n, time)
    """
    kernel, x = np.asarray(kernel, dtype=np.float64), np.asarray(x, dtype=np.float64)
    require(
        kernel.ndim == 3 and x.ndim == 2 and kernel.shape[2] == x.shape[0] and len(kernel) >= 1,
        f"kernel {kernel.shape} and x {x.shape} disagree, needed: (steps, n, channels) and (channels, time)",
    )
    y = kernel[0] @ x
    for s in range(1, min(len(kernel), x.shape[1])):
        y[:, s:] += kernel[s] @ x[:, :-s]
    return y


def _trials(recordings: Recordings, lengths: ArrayLike | None) -> list[Array]:
    trials = [np.asarray(trial, dtype=np.float64) for trial in recordings]
    require(len(trials) >= 1, "there are no recordings")
    channels = {trial.shape[0] if trial.ndim == 2 else None for trial in trials}
    require(len(channels) == 1 and None not in channels, "recordings need the shape (trials, channels, time)")
    if lengths is not None:
        counts = np.asarray(lengths)
        require(counts.shape == (len(trials),), f"lengths has shape {counts.shape}, needed: ({len(trials)},)")
        whole = all(
            count == int(count) and 0 <= count <= trial.shape[1] for count, trial in zip(counts, trials, strict=True)
        )
        require(whole, "lengths must be whole numbers, none above the length of its trial")
        trials = [trial[:, : int(count)] for trial, count in zip(trials, counts, strict=True)]
    for index, trial in enumerate(trials):
        require(trial.shape[1] >= 2, f"trial {index} has {trial.shape[1]} samples, at least 2 are needed")
        require(
            bool(np.isfinite(trial).all()),
            f"trial {index} holds a value that is not finite; give lengths if it is padded",
        )
    return trials


def _windowed(recordings: Recordings, lengths: ArrayLike | None, max_lag: int, omega: float) -> NDArray[Any]:
    """Σ_τ C(τ) e^{−iωτ} = (1/T) Σ_t z(t) x(t)ᵀ with z(t) = Σ_τ x(t+τ) e^{−iωτ} = e^{iωt} Σ_{|s−t| ≤ L} x(s) e^{−iωs}:
    a running sum, then a sum of products for each trial. At ω = 0 the same bits on every machine."""
    right = max_lag == int(max_lag) and max_lag >= 0
    require(right, f"max_lag={max_lag} is not allowed; right is 0 or more samples, a whole number")
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
    """Σ_t z(t) x(t)ᵀ, added one after the other: a BLAS adds in an order of its own on each machine."""
    z, x = np.ascontiguousarray(z.T), np.ascontiguousarray(x.T)
    total = np.zeros((z.shape[1], x.shape[1]), z.dtype)
    step = max(1, _BLOCK // total.size)
    for begin in range(0, len(x), step):
        block = slice(begin, begin + step)
        products = z[block, :, None] * x[block, None, :]
        products[0] += total
        total = products.sum(axis=0)
    return total
