"""Labelled multivariate recordings as a max-margin task: covariances as patterns, classes as labels of output pairs.

Only operations with rounding specified by IEEE 754 are used, in a fixed order, so that the same recordings give the
same task, bit for bit, on every machine.
"""

from collections.abc import Iterable
from itertools import compress
from numbers import Real
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench import rng
from qcqpbench.errors import nearest, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata

from . import checks, features

Array = NDArray[np.float64]
Feature = Literal["zero_lag", "lag_integrated"]
Normalize = Literal["channels", "whiten", "trial", "none"]

# Share of the trials held out by default.
_TEST_SHARE = 0.3


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
    """Create the task of classifying recordings by their covariances, with the test trials held out.

    K classes take n = 1 + ⌈log₂ K⌉ outputs with the labels of `codes`. A trial is assigned to the class whose labels ζ
    have the largest Σ_{i<j} ζ_ij Q_ij; of two classes, to the first if Q_12 > 0.

    Parameters
    ----------
    X
        Recordings, shape (trials, channels, time), or a sequence of arrays (channels, time).
    y
        The class of each trial, shape (trials,): numbers or text.
    lengths
        Number of valid samples of each trial, shape (trials,); by default up to the last that is not NaN. Required if
        all trials have more channels than samples, because such an X is otherwise refused as transposed.
    train
        Booleans, shape (trials,), true for the trials to train on; the others are held out. By default a random share
        of each class is held out, see `test_share`.
    classes
        The classes to classify, at least two; by default all. Trials of other classes are left out.
    feature
        The covariances: "zero_lag", or "lag_integrated" over lags up to max_lag.
    max_lag
        Largest lag in samples, for "lag_integrated" only.
    normalize
        As in `normalized`, with S the mean covariance of the training trials.
    test_share
        Share of each class to hold out instead of `train`; 0.3 if neither is given.
    seed
        Seed of the random choice of held-out trials.

    Returns
    -------
    MaxMargin
        The task, with the names of the classes in its metadata.

    Raises
    ------
    QcqpbenchError
        If shapes disagree, samples are not finite, a trial or a channel does not vary, X contains covariances or seems
        transposed, or a class has no trial to train on.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((20, 3, 50))
    >>> task = recorded_task(X, y=[0, 1] * 10)
    >>> task.p, task.m, task.n, task.held_out.p
    (14, 3, 2, 6)
    """
    names = _names(y)
    class_names = _class_names(names, classes)
    trials = checks.as_trials(X)
    require(len(trials) == len(names), f"y must hold one label for each of {len(trials)} trials, got {len(names)}")
    is_training = _split(names, _TEST_SHARE if test_share is None else test_share, seed)
    if train is not None and test_share is None:
        is_training = np.asarray(train)
        fits = is_training.shape == (len(names),) and bool(np.isin(is_training, (0, 1)).all())
        require(fits, f"train must hold {len(names)} booleans, got {np.array2string(is_training, threshold=6)}")
    chosen = [trial for trial, name in enumerate(names) if name in class_names]
    is_training = is_training[chosen].astype(bool)
    class_numbers = np.array([class_names.index(names[trial]) for trial in chosen])
    for number, name in enumerate(class_names):
        require(
            bool(is_training[class_numbers == number].any()), f"class {name} must have a trial to train on, got none"
        )
    patterns = covariances(trials, lengths, feature, max_lag, chosen, is_training)
    patterns = normalized(patterns, mean_of(patterns[is_training]), normalize)
    labels = codes(len(class_names))[class_numbers]
    held_out = None if is_training.all() else MaxMargin(patterns[~is_training], labels[~is_training])
    notes: dict[str, str | float] = {"classes": ":".join(class_names)}
    return MaxMargin(patterns[is_training], labels[is_training], metadata=Metadata(notes=notes), held_out=held_out)


def _class_names(names: list[str], classes: Iterable[object] | None) -> list[str]:
    """Return `classes` as names, by default all classes in `names`; raise QcqpbenchError if a class has no trial."""
    is_list = classes is None or (isinstance(classes, Iterable) and not isinstance(classes, str))
    require(is_list, f"classes must be a list of classes or None, got {classes!r:.100}")
    present = set(names)
    class_names = _sorted(present) if classes is None else [_name(label) for label in classes]
    for name in class_names:
        if name not in present:
            raise nearest(name, present, "class")
    different = len(set(class_names)) == len(class_names) >= 2
    require(different, f"classes must be two or more, all different, got {':'.join(class_names)!r:.80}")
    return class_names


def codes(count: int) -> NDArray[np.int8]:
    """Return the labels of `count` classes, shape (count, n(n−1)/2) with n = 1 + ⌈log₂ count⌉.

    Class k = 0, 1, … gives each output a sign, + to the first and s_i = (−1)^(bit i−1 of k) to the others. Outputs of
    one sign are to be correlated positively, others negatively: ζ_ij = s_i s_j. Two classes then differ in at least
    n−1 pairs, and no labels contradict each other as (−, −, −) does, for which no covariance Q has a large margin.
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
    training: NDArray[np.bool_] | None = None,
) -> Array:
    """Return the covariances of recordings.

    Parameters
    ----------
    X, lengths, feature, max_lag
        As in `recorded_task`.
    chosen
        Indices of the trials to use; by default all.
    training
        Mask, shape (len(chosen),), of the chosen trials to train on. If given, X is refused if it seems transposed,
        unless `lengths` are given too, or if a channel is constant in every training trial.
    """
    _check_feature(feature, max_lag)
    trials = checks.as_trials(X)
    chosen = range(len(trials)) if chosen is None else list(chosen)
    channels = checks.count_channels(trials, chosen)
    if training is not None and lengths is None:
        checks.require_time_last([trials[trial] for trial in chosen])
    checks.require_room(len(chosen), channels)
    cut = checks.valid_samples(trials, chosen, lengths, 2 if max_lag is None else max(2, 2 * max_lag + 1))
    checks.require_recordings(cut, chosen)
    if training is not None:
        checks.require_varying_channels(list(compress(cut, training)))
    with np.errstate(over="ignore", invalid="ignore"):
        patterns = features.zero_lag(cut) if max_lag is None else features.lag_integrated(cut, max_lag)
    require(bool(np.isfinite(patterns).all()), "X must have finite covariances, got overflow: scale X down")
    return patterns


def _check_feature(feature: str, max_lag: object) -> None:
    """Raise QcqpbenchError unless `feature` is known and `max_lag` is given if and only if the feature needs it."""
    require(feature in get_args(Feature), f"feature must be one of {', '.join(get_args(Feature))}, got {feature!r}")
    if feature == "zero_lag":
        require(max_lag is None, f"max_lag must not be given for feature=zero_lag, got {max_lag}")
        return
    require(
        max_lag is not None,
        "max_lag must be given for feature=lag_integrated, above the correlation time and far below a trial, got None",
    )
    is_count = isinstance(max_lag, (int, np.integer)) and int(max_lag) >= 0
    require(is_count, f"max_lag must be a whole number of samples, 0 or more, got {max_lag}")


def normalized(patterns: Array, S: Array, normalize: Normalize) -> Array:
    """Return normalized covariances.

    Parameters
    ----------
    patterns
        Covariances P, shape (trials, channels, channels).
    S
        Mean covariance of the training trials, shape (channels, channels).
    normalize
        "channels": P_ij / √(S_ii S_jj), so that each channel has variance 1 on average.
        "whiten": L⁻¹ P L⁻ᵀ with S = L Lᵀ, so that the channels are also uncorrelated on average.
        "trial": P_ij / √(P_ii P_jj), the correlations of each trial.
        "none": P.
    """
    require(
        normalize in get_args(Normalize),
        f"normalize must be one of {', '.join(get_args(Normalize))}, got {normalize!r}",
    )
    if normalize == "none":
        return patterns
    if normalize == "whiten":
        return _whitened(patterns, _root(S))
    deviation = _deviations(S if normalize == "channels" else patterns)
    return patterns / (deviation[..., :, None] * deviation[..., None, :])


def in_channel_units(W: Array, S: Array, normalize: Normalize) -> Array | None:
    """Return weights V that give on a covariance P what W gives on the normalized P: V P Vᵀ = W N(P) Wᵀ.

    N(P) = D P Dᵀ with D = diag(1/√S_ii) for "channels", D = L⁻¹ with S = L Lᵀ for "whiten" and the identity for
    "none", so V = W D. Return None for "trial", where D differs between trials.

    Parameters
    ----------
    W
        Weights, shape (…, n, channels).
    S, normalize
        As in `normalized`.
    """
    if normalize == "trial":
        return None
    if normalize == "whiten":
        return np.linalg.solve(_root(S).T, W[..., None])[..., 0].astype(np.float64, copy=False)
    return W / _deviations(S) if normalize == "channels" else W.copy()


def _deviations(P: Array) -> Array:
    """Return √P_ii for each channel i of P, shape (…, channels, channels), but 1 where P_ii is 0.

    Raise QcqpbenchError if a P_ii is negative.
    """
    variances = np.diagonal(P, axis1=-2, axis2=-1)
    positive = bool((variances >= 0).all())
    remedy = "use a smaller max_lag or normalize=none"
    require(positive, f"variances (diagonals of covariances) must be 0 or more, got {variances.min():.3g}: {remedy}")
    return np.sqrt(np.where(variances > 0, variances, 1))


def mean_of(patterns: Array) -> Array:
    """Return the mean, shape (channels, channels), of `patterns`, shape (trials, channels, channels)."""
    return np.ascontiguousarray(patterns).sum(axis=0) / len(patterns)


def _root(S: Array) -> Array:
    """Return the lower triangular L with S = L Lᵀ, bit-identical on all machines, unlike that of LAPACK.

    Raise QcqpbenchError if S is singular to working precision.
    """
    L = S.copy()
    for k in range(len(S)):
        is_regular = bool(L[k, k] > 1e-12 * S[k, k])
        require(
            is_regular,
            f"channel {k} must be linearly independent of those before it, got a mixture of them: do not whiten",
        )
        L[k:, k] /= np.sqrt(L[k, k])
        L[k + 1 :, k + 1 :] -= L[k + 1 :, k, None] * L[None, k + 1 :, k]
    return np.tril(L)


def _whitened(patterns: Array, L: Array) -> Array:
    """Return L⁻¹ P L⁻ᵀ for each P of `patterns`, shape (trials, channels, channels); L is lower triangular."""
    P = patterns.copy()
    for _ in range(2):
        for k in range(len(L)):
            P[:, k] /= L[k, k]
            P[:, k + 1 :] -= L[k + 1 :, k, None] * P[:, None, k]
        P = np.swapaxes(P, 1, 2)
    return P


def _split(names: list[str], share: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask, shape (trials,), of the training trials; `names` are the classes of the trials.

    A random `share` of each class is held out, but never a whole class.
    """
    is_share = isinstance(share, Real) and 0 <= share < 1
    require(is_share, f"test_share must be 0 or more and less than 1, got {share!r:.100}")
    _, class_numbers, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.lexsort((rng.stream(seed, "split").random_raw(len(names)), class_numbers))
    rank = np.arange(len(names)) - (np.cumsum(counts) - counts)[class_numbers[order]]
    is_training = np.empty(len(names), dtype=bool)
    is_training[order] = rank >= np.minimum(np.round(share * counts), counts - 1)[class_numbers[order]]
    return is_training


def _names(y: ArrayLike) -> list[str]:
    """Return the classes `y` of the trials as text; raise QcqpbenchError unless y is one-dimensional and not empty."""
    labels = np.asarray(y)
    require(labels.ndim == 1 and labels.size > 0, f"y must be one-dimensional and not empty, got shape {labels.shape}")
    return [_name(label) for label in labels.tolist()]


def _name(label: object) -> str:
    """Return the name of a class, the same for 1, 1.0 and "1"."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return label.decode(errors="replace") if isinstance(label, bytes) else str(label)


def _sorted(names: set[str]) -> list[str]:
    """Return `names` in numerical order if all are numbers, otherwise in alphabetical order."""
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)
