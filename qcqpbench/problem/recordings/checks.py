"""Checks of recordings and the valid samples of their trials; every refusal is one line that names trial or channel."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

from .features import Recordings

# Largest number of entries of all covariances, 8 GB of float64.
_MAX_ENTRIES = 1 << 30
# Largest asymmetry of a covariance matrix that rounding explains, relative to its largest entry; float32 has 1e-7.
_MAX_ASYMMETRY = 1e-5
_WRONG_SHAPE = "X must hold real numbers of shape (trials, channels, time), with the same channels in all trials"


def as_trials(X: Recordings) -> list[NDArray[Any]]:
    """Return the trials as a list of arrays of any type and shape; raise QcqpbenchError if X is no sequence of them."""
    try:
        return [np.asarray(trial) for trial in X]
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(f"{_WRONG_SHAPE}, got {X!r:.40}") from error


def count_channels(trials: Sequence[NDArray[Any]], chosen: Sequence[int]) -> int:
    """Return the number of channels of the trials numbered `chosen`.

    Raise QcqpbenchError unless all of them are real matrices with the same number of channels, at least 2.
    """
    shapes = {trials[trial].shape[:-1] for trial in chosen}
    fits = (
        all(trial.ndim == 2 for trial in trials)
        and len(shapes) == 1
        and all(trials[trial].dtype.kind in "fiu" for trial in chosen)
    )
    got = ", ".join(sorted({f"{trial.shape} of {trial.dtype}" for trial in trials})[:3])
    is_transposed = len({trial.shape[1:] for trial in trials if trial.ndim == 2}) == 1 < len(shapes)
    hint = ": if time is the first axis, transpose each trial" if is_transposed else ""
    require(fits, f"{_WRONG_SHAPE}, got trials of shape {got or 'none'}{hint}")
    ((channels,),) = shapes
    require(channels >= 2, f"X must have at least 2 channels, got {channels}")
    return int(channels)


def require_time_last(trials: Sequence[NDArray[Any]]) -> None:
    """Raise QcqpbenchError if every trial has more channels than samples, which is typical of transposed arrays.

    A single short trial is no reason: among spoken words, some have fewer samples than channels.
    """
    channels, samples = len(trials[0]), max(trial.shape[1] for trial in trials)
    require(
        channels <= samples,
        f"X must have shape (trials, channels, time), got {channels} channels and at most {samples} samples a trial: "
        "if time is the second axis, use X.swapaxes(1, 2); if there are so many channels, give recorded_task the "
        "lengths of the trials, or the classifier features.zero_lag(X) with feature='precomputed'",
    )


def require_room(trials: int, channels: int) -> None:
    """Raise QcqpbenchError if the covariances of `trials` trials would take 8 GB or more."""
    size = trials * channels**2
    require(size < _MAX_ENTRIES, f"covariances must take under 8 GB, got {8e-9 * size:.3g} GB of {channels} channels")


def valid_samples(
    trials: Sequence[NDArray[Any]], chosen: Sequence[int], lengths: ArrayLike | None, least: int
) -> list[NDArray[Any]]:
    """Return the first lengths[k] samples of each trial k in `chosen`; by default those up to the last that is not NaN.

    Raise QcqpbenchError if a trial has fewer than `least` valid samples, or if one of them is not finite.
    """
    counts = _counts(trials, lengths)
    cut = []
    for trial in chosen:
        count = counts[trial]
        require(count >= least, f"trial {trial} must have at least {least} samples, got {count}")
        cut.append(trials[trial][:, :count])
        is_finite = bool(np.isfinite(cut[-1]).all())
        require(is_finite, f"trial {trial} must be finite, got inf or NaN among its {count} samples")
    return cut


def require_recordings(cut: Sequence[NDArray[Any]], chosen: Sequence[int]) -> None:
    """Raise QcqpbenchError if a trial is constant in all channels, or if all trials are symmetric matrices.

    `cut` holds the valid samples (channels, time) of the trials numbered `chosen`.
    """
    for trial, samples in zip(chosen, cut, strict=True):
        if not _varies(samples).any():
            got = "zeros" if not samples.any() else "only constant channels"
            raise QcqpbenchError(f"trial {trial} must vary in time, got {got}: leave the trial out")
    shape = cut[0].shape
    require(
        not all(_is_symmetric(samples) for samples in cut),
        f"X must hold recordings of shape (trials, channels, time), got symmetric matrices of shape {shape}, such as "
        "covariances: give them to the classifier with feature='precomputed', or to MaxMargin as patterns",
    )


def require_varying_channels(cut: Sequence[NDArray[Any]]) -> None:
    """Raise QcqpbenchError if a channel is constant in every trial.

    A channel may be constant in some trials, as the spike counts of a neuron that is silent in them.
    """
    varies = np.any([_varies(samples) for samples in cut], axis=0)
    _require_all_vary(varies, "constant")


def require_covariances(patterns: NDArray[Any], training: bool) -> None:
    """Raise QcqpbenchError if a matrix of `patterns`, shape (trials, channels, channels), is zero.

    If `training`, also raise it if all entries of a channel are zero in all trials.
    """
    for trial, pattern in enumerate(patterns):
        require(
            bool(pattern.any()), f"the covariance of trial {trial} must not be zero, got zeros: leave the trial out"
        )
    if training:
        is_entry: NDArray[np.bool_] = np.any(patterns, axis=0)
        _require_all_vary(np.logical_or(is_entry.any(axis=0), is_entry.any(axis=1)), "without covariance")


def _require_all_vary(varies: NDArray[np.bool_], state: str) -> None:
    channel = int(np.argmin(varies))
    require(
        bool(varies[channel]),
        f"channel {channel} must vary in at least one training trial, got a channel that is {state} in all of them: "
        "leave the channel out",
    )


def _varies(samples: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask, shape (channels,), of the channels that are not constant in `samples`, shape (channels, time)."""
    varies: NDArray[np.bool_] = samples.max(axis=1) > samples.min(axis=1)
    return varies


def _is_symmetric(samples: NDArray[Any]) -> bool:
    if samples.shape[0] != samples.shape[1]:
        return False
    values = samples.astype(np.float64)
    return bool(np.abs(values - values.T).max() <= _MAX_ASYMMETRY * np.abs(values).max())


def _counts(trials: Sequence[NDArray[Any]], lengths: ArrayLike | None) -> list[int]:
    """Return `lengths` as a list after checks; by default, for each trial, the number of samples before NaN padding."""
    longest = [trial.shape[-1] for trial in trials]
    if lengths is None:
        return [_until_nan(trial) for trial in trials]
    counts = np.asarray(lengths)
    are_numbers = counts.shape == (len(trials),) and counts.dtype.kind in "fiu"
    require(
        are_numbers, f"lengths must hold {len(trials)} numbers of samples, got {np.array2string(counts, threshold=6)}"
    )
    fit = bool(((counts == np.floor(counts)) & (counts >= 0) & (counts <= longest)).all())
    shown = np.array2string(counts, threshold=6)
    require(fit, f"lengths must be whole numbers from 0 to the length of each trial, got {shown}")
    return [int(count) for count in counts]


def _until_nan(trial: NDArray[Any]) -> int:
    """Return the number of samples up to the last one that is not NaN in all channels."""
    is_padding = np.isnan(trial).all(axis=0)
    return len(is_padding) - int(np.argmin(is_padding[::-1])) if not is_padding.all() else 0
