"""Labelled multivariate recordings as a max-margin task: covariances as patterns, classes as labels of output pairs.

Nothing is used here but operations that IEEE 754 rounds in one way, in an order of our own: the same recordings give
the same task, bit for bit, on every machine.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench import rng
from qcqpbench.errors import QcqpbenchError, nearest, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata

from . import features

Array = NDArray[np.float64]
Feature = Literal["zero_lag", "lag_integrated"]
Normalize = Literal["channels", "whiten", "trial", "none"]

# What is held out where nobody says which trials, or how many.
TEST_SHARE = 0.3
# Numbers in the covariances, 8 GB of them.
_MOST = 1 << 30
_NEEDED = "X needs real numbers of the shape (trials, channels, time), the same channels in all trials"


def recorded_task(
    X: features.Recordings,
    y: ArrayLike,
    lengths: ArrayLike | None = None,
    train: ArrayLike | None = None,
    classes: Iterable[object] | None = None,
    feature: Feature = "zero_lag",
    max_lag: int | None = None,
    normalize: Normalize = "channels",
    test_share: float | None = None,
    seed: int = 0,
) -> MaxMargin:
    """The task of telling classes of recordings apart by their covariances, the test trials held out.

    X            recordings, shape (trials, channels, time), or a sequence of arrays (channels, time)
    y            the class of each trial: numbers or text
    lengths      valid samples of each trial; by default up to the last that is not NaN
    train        booleans, the trials to train on; the others are held out
    classes      those to tell apart; by default all there are
    feature      the covariances: zero_lag, or lag_integrated over lags up to max_lag samples
    normalize    see `normalized`, with S the mean covariance of the training trials
    test_share   hold out this share of each class instead, drawn by the seed; 0.3 if neither it nor train is given

    K classes take n = 1 + ⌈log₂ K⌉ outputs with the labels of `codes`. A trial is taken for the class whose labels ζ
    have the largest Σ_{i<j} ζ_ij Q_ij; of two classes, for the first if Q_12 > 0.
    """
    names = _names(y)
    known = set(names)
    wanted = _sorted(known) if classes is None else [_name(each) for each in classes]
    for name in wanted:
        if name not in known:
            raise nearest(name, known, "class")
    place = {name: index for index, name in enumerate(wanted)}
    different = len(place) == len(wanted) >= 2
    require(different, f"the classes are {':'.join(wanted)}; right are two or more, all different")
    trials = _trials(X)
    require(
        len(trials) == len(names), f"there are {len(trials)} trials and {len(names)} labels in y; right is one each"
    )

    is_training = _split(names, TEST_SHARE if test_share is None else test_share, seed)
    if train is not None and test_share is None:
        is_training = np.asarray(train)
        right = is_training.shape == (len(names),) and bool(np.isin(is_training, (0, 1)).all())
        require(right, f"train needs {len(names)} booleans, one for each trial")
    chosen = [trial for trial, name in enumerate(names) if name in place]
    is_training = is_training[chosen].astype(bool)
    kind = np.array([place[names[trial]] for trial in chosen])
    for index, name in enumerate(wanted):
        require(bool(is_training[kind == index].any()), f"class {name} has no trial to train on")

    patterns = covariances(trials, lengths, feature, max_lag, chosen)
    patterns = normalized(patterns, mean_of(patterns[is_training]), normalize)
    labels = codes(len(wanted))[kind]
    held_out = None if is_training.all() else MaxMargin(patterns[~is_training], labels[~is_training])
    notes: dict[str, str | float] = {"classes": ":".join(wanted)}
    return MaxMargin(patterns[is_training], labels[is_training], metadata=Metadata(notes=notes), held_out=held_out)


def codes(count: int) -> NDArray[np.int8]:
    """The labels of so many classes, shape (count, n(n−1)/2) with n = 1 + ⌈log₂ count⌉.

    Class k = 0, 1, … gives each output a sign, + to the first and s_i = (−1)^(bit i−1 of k) to the others: outputs of
    one sign are to be positively correlated, others negatively, ζ_ij = s_i s_j. Two classes then differ in at least
    n−1 pairs, and no labels contradict each other as (−, −, −) would, where a covariance Q cannot be large.
    """
    n = 1 + (count - 1).bit_length()
    signs = np.array([[1, *(1 - 2 * (k >> i & 1) for i in range(n - 1))] for k in range(count)], dtype=np.int8)
    i, j = np.triu_indices(n, 1)
    return signs[:, i] * signs[:, j]


def covariances(
    X: features.Recordings,
    lengths: ArrayLike | None = None,
    feature: Feature = "zero_lag",
    max_lag: int | None = None,
    chosen: Iterable[int] | None = None,
) -> Array:
    """The covariances of recordings, or of the chosen trials among them, as `recorded_task` has them."""
    require(feature in get_args(Feature), f"feature={feature}: right is one of {', '.join(get_args(Feature))}")
    if feature == "zero_lag":
        require(max_lag is None, "max_lag is for feature=lag_integrated; zero_lag has none")
    elif max_lag is None:
        raise QcqpbenchError("feature=lag_integrated needs max_lag, above the correlation time and far below a trial's")
    trials = _trials(X)
    chosen = range(len(trials)) if chosen is None else list(chosen)
    shapes = {trials[trial].shape[:-1] for trial in chosen}
    right = (
        all(trial.ndim == 2 for trial in trials)
        and len(shapes) == 1
        and all(trials[trial].dtype.kind in "fiu" for trial in chosen)
    )
    require(right, _NEEDED)
    ((channels,),) = shapes
    require(channels >= 2, f"the recordings have {channels} channel, at least 2 are needed")
    require_room(len(chosen), channels)
    counts = _counts(trials, lengths)
    least = 2 if max_lag is None else max(2, 2 * max_lag + 1)
    cut = []
    for trial in chosen:
        count = counts[trial]
        require(count >= least, f"trial {trial} has {count} samples, at least {least} are needed")
        cut.append(trials[trial][:, :count])
        finite = bool(np.isfinite(cut[-1]).all())
        require(finite, f"trial {trial} holds a value that is not finite among its {count} samples")
    with np.errstate(over="ignore", invalid="ignore"):
        found = features.zero_lag(cut) if max_lag is None else features.lag_integrated(cut, max_lag)
    require(bool(np.isfinite(found).all()), "the recordings are so large that their covariances overflow: scale them")
    return found


def require_room(trials: int, channels: int) -> None:
    """Refuse covariances that are too large before memory is taken."""
    size = trials * channels**2
    require(size < _MOST, f"the covariances of {channels} channels need {8e-9 * size:.3g} GB; right is at most 8")


def normalized(patterns: Array, S: Array, normalize: Normalize) -> Array:
    """Covariances in other units.

    channels   P_ij / √(S_ii S_jj): each channel has variance 1 on average
    whiten     L⁻¹ P L⁻ᵀ with S = L Lᵀ: the channels are uncorrelated on average, too
    trial      P_ij / √(P_ii P_jj): the correlations of each trial
    none       P
    """
    require(
        normalize in get_args(Normalize), f"normalize={normalize}: right is one of {', '.join(get_args(Normalize))}"
    )
    if normalize == "none":
        return patterns
    if normalize == "whiten":
        return _whitened(patterns, _root(S))
    variances = np.diagonal(S) if normalize == "channels" else np.diagonal(patterns, axis1=1, axis2=2)
    positive = bool((variances >= 0).all())
    require(positive, "a lag-integrated variance is negative; right is a smaller max_lag, or normalize=none")
    # A channel that does not vary stays zero.
    deviation = np.sqrt(np.where(variances > 0, variances, 1))
    return patterns / (deviation[..., :, None] * deviation[..., None, :])


def mean_of(patterns: Array) -> Array:
    """S, the mean covariance."""
    return np.ascontiguousarray(patterns).sum(axis=0) / len(patterns)


def _root(S: Array) -> Array:
    """L of S = L Lᵀ, lower triangular; LAPACK's differs from machine to machine."""
    L = S.copy()
    for k in range(len(S)):
        regular = bool(L[k, k] > 1e-12 * S[k, k])
        require(regular, f"channel {k} is a mixture of the others in all trials, so that they cannot be whitened")
        L[k:, k] /= np.sqrt(L[k, k])
        L[k + 1 :, k + 1 :] -= L[k + 1 :, k, None] * L[None, k + 1 :, k]
    return np.tril(L)


def _whitened(patterns: Array, L: Array) -> Array:
    P = patterns.copy()
    for _ in range(2):
        for k in range(len(L)):
            P[:, k] /= L[k, k]
            P[:, k + 1 :] -= L[k + 1 :, k, None] * P[:, None, k]
        P = np.swapaxes(P, 1, 2)
    return P


def _split(names: list[str], share: float, seed: int) -> NDArray[np.bool_]:
    """The trials to train on: of each class, a random share is held out, but never all of it."""
    require(0 <= share < 1, f"test_share={share} is not allowed; right is 0 or more and less than 1")
    _, kind, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.lexsort((rng.stream(seed, "split").random_raw(len(names)), kind))
    place = np.arange(len(names)) - (np.cumsum(counts) - counts)[kind[order]]
    is_training = np.empty(len(names), dtype=bool)
    is_training[order] = place >= np.minimum(np.round(share * counts), counts - 1)[kind[order]]
    return is_training


def _trials(X: features.Recordings) -> list[NDArray[Any]]:
    try:
        return [np.asarray(trial) for trial in X]
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(_NEEDED) from error


def _counts(trials: list[NDArray[Any]], lengths: ArrayLike | None) -> list[int]:
    """How many samples of each trial are valid."""
    longest = [trial.shape[-1] for trial in trials]
    if lengths is None:
        return [_until_nan(trial) for trial in trials]
    given = np.asarray(lengths)
    right = given.shape == (len(trials),) and given.dtype.kind in "fiu"
    require(right, f"lengths needs {len(trials)} numbers of samples, one for each trial")
    fit = bool(((given == np.floor(given)) & (given >= 0) & (given <= longest)).all())
    require(fit, f"lengths needs whole numbers from 0 to {max(longest)}, none above the length of its trial")
    return [int(count) for count in given]


def _until_nan(trial: NDArray[Any]) -> int:
    is_padding = np.isnan(trial).all(axis=0)
    return len(is_padding) - int(np.argmin(is_padding[::-1])) if not is_padding.all() else 0


def _names(y: ArrayLike) -> list[str]:
    labels = np.asarray(y)
    require(labels.ndim == 1 and labels.size > 0, f"y has shape {labels.shape}, needed: a label for each trial")
    return [_name(label) for label in labels.tolist()]


def _name(label: object) -> str:
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return label.decode(errors="replace") if isinstance(label, bytes) else str(label)


def _sorted(names: set[str]) -> list[str]:
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)
