"""The covariance perceptron as a scikit-learn classifier that trains with any solver (docs/howto/recordings.md)."""

import math
from collections.abc import Iterator
from itertools import combinations
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import QcqpbenchError, require
from .problem.maxmargin import MaxMargin, unit_rows
from .problem.recordings import checks
from .problem.recordings.task import Array, Normalize, covariances, in_channel_units, mean_of, normalized
from .run.attempt import solve
from .run.run_spec import random_start

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import assert_all_finite
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise QcqpbenchError(
        "scikit-learn must be installed for the classifier: pip install 'qcqpbench[sklearn]'"
    ) from error

_CHECKS: dict[str, Any] = {"dtype": np.float64, "allow_nd": True, "ensure_all_finite": "allow-nan"}
_Feature = Literal["zero_lag", "lag_integrated", "precomputed"]
_SHRINKAGES = (0.0, 0.25, 0.5, 0.75, 1.0)


class CovariancePerceptronClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier of trials by the sign of Q_12 = w_1ᵀ P w_2, with unit vectors w_1, w_2 that maximize the margin.

    X of shape (trials, channels, time) contains recordings, padded with NaN at the end. A list of arrays (channels,
    time), whose lengths may differ, is the same. P is the covariance matrix of a trial, computed and normalized as in
    `qcqpbench.recorded_task`. X of shape (samples, features) contains one sample x
    per trial. P is then the outer product of (1, x − x̄) with itself, where x̄ is the training mean, so that Q_12 is the
    product of two affine functions of x.

    For K > 2 classes, one pair of vectors is trained for each of the K(K−1)/2 pairs of classes, and the pairs vote.

    Parameters
    ----------
    solver
        Spec of any solver in `qcqpbench list solvers` that returns points.
    feature
        "zero_lag" or "lag_integrated" covariances; "precomputed" if X has shape (trials, channels, channels).
    max_lag, normalize
        As in `qcqpbench.recorded_task`.
    shrinkage
        Weight s from 0 to 1: training uses (1−s) P + s P̄ with the class mean P̄, which helps if the classes overlap.
        By default the smallest of 0, ¼, ½, ¾, 1 that gives a positive margin, or 1 if none does.
    starts
        Number of random starts. The result with the largest margin is used.
    time_limit
        Time limit in seconds of each run of the solver.

    Attributes
    ----------
    classes_
        Sorted class labels.
    W_, margins_, shrinkage_
        Weights in normalized units, shape (pairs, 2, inputs), and margins and shrinkages, shape (pairs,), for the
        pairs of classes (0, 1), (0, 2), …
    filters_
        Weights in channel units, shape (pairs, 2, inputs): ``filters_[k, 0] @ C @ filters_[k, 1]`` is the output Q_12
        of pair k for a covariance matrix C without normalization. None for normalize="trial", because the weights of
        the channels then differ between trials. For X of shape (samples, features), input 0 is the constant 1.
    S_
        The mean P of the training trials, shape (inputs, inputs).
    n_features_in_
        Number of channels or features.
    """

    def __init__(
        self,
        solver: str = "gip",
        feature: _Feature = "zero_lag",
        max_lag: int | None = None,
        normalize: Normalize = "channels",
        shrinkage: float | None = None,
        starts: int = 1,
        time_limit: float = math.inf,
    ) -> None:
        self.solver = solver
        self.feature = feature
        self.max_lag = max_lag
        self.normalize = normalize
        self.shrinkage = shrinkage
        self.starts = starts
        self.time_limit = time_limit

    def fit(self, X: ArrayLike, y: ArrayLike) -> "CovariancePerceptronClassifier":
        """Train the classifier.

        Parameters
        ----------
        X
            Trials, see the class.
        y
            Class label of each trial, shape (trials,).

        Returns
        -------
        CovariancePerceptronClassifier
            The classifier itself.

        Raises
        ------
        ValueError
            If a parameter or the data are invalid, as in `qcqpbench.recorded_task`. If every trial has more channels
            than samples, X is refused as transposed; give its covariances with feature="precomputed" instead.
        """
        self._check_parameters()
        X, y = _checked(*validate_data(self, _padded(X), y, **_CHECKS))
        check_classification_targets(y)
        self.classes_, class_numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must contain at least two classes, got only one class, {self.classes_[0]!r}")
        self.center_ = X.mean(axis=0) if X.ndim == 2 else None
        patterns = self._patterns(X, training=True)
        self.S_ = mean_of(patterns)
        patterns = normalized(patterns, self.S_, self.normalize)
        trained = []
        for first, second in self._pairs():
            both = (class_numbers == first) | (class_numbers == second)
            trained.append(self._train(patterns[both], np.where(class_numbers[both] == second, 1, -1)))
        W, margins, shrinkages = zip(*trained, strict=True)
        self.W_, self.margins_, self.shrinkage_ = np.stack(W), np.array(margins), np.array(shrinkages)
        self.filters_ = in_channel_units(self.W_, self.S_, self.normalize)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the scores of trials.

        Parameters
        ----------
        X
            Trials, see the class.

        Returns
        -------
        array
            For two classes Q_12, positive for the second class, shape (trials,). For more classes the number of votes
            for each class, plus a confidence between −1/3 and 1/3 that breaks ties, shape (trials, classes).
        """
        check_is_fitted(self)
        X, _ = _checked(validate_data(self, _padded(X), reset=False, **_CHECKS))
        if (X.ndim == 2) != (self.center_ is not None):
            raise ValueError(
                f"X must have {3 if self.center_ is None else 2} dimensions, as in fit, got shape {X.shape}"
            )
        patterns = normalized(self._patterns(X, training=False), self.S_, self.normalize)
        Q = np.einsum("ki,tij,kj->tk", self.W_[:, 0], patterns, self.W_[:, 1], optimize=True)
        if len(self.classes_) == 2:
            return Q[:, 0]
        votes, confidence = np.zeros((2, len(X), len(self.classes_)))
        for k, (first, second) in enumerate(self._pairs()):
            votes[:, second] += Q[:, k] > 0
            votes[:, first] += Q[:, k] <= 0
            confidence[:, second] += Q[:, k]
            confidence[:, first] -= Q[:, k]
        return votes + confidence / (3 * (1 + np.abs(confidence)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the predicted class label of each trial in X, shape (trials,)."""
        decision = self.decision_function(X)
        return self.classes_[(decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Return an iterator over the pairs of class numbers in lexicographic order."""
        return combinations(range(len(self.classes_)), 2)

    def _check_parameters(self) -> None:
        """Raise QcqpbenchError for an invalid parameter that no other function checks."""
        features, starts, shrinkage = get_args(_Feature), self.starts, self.shrinkage
        require(self.feature in features, f"feature must be one of {', '.join(features)}, got {self.feature!r}")
        is_count = isinstance(starts, Integral) and int(starts) >= 1
        require(is_count, f"starts must be a whole number, at least 1, got {starts!r}")
        is_share = shrinkage is None or (isinstance(shrinkage, Real) and 0 <= shrinkage <= 1)
        require(is_share, f"shrinkage must be None or from 0 to 1, got {shrinkage!r}")

    def _patterns(self, X: NDArray[Any], training: bool) -> Array:
        """Return the matrix P of each trial in X, before normalization, shape (trials, inputs, inputs).

        If `training`, X is also checked as in `recorded_task`.
        """
        is_square = X.ndim == 3 and X.shape[1] == X.shape[2]
        if self.feature == "precomputed":
            require(is_square, f"X must have shape (trials, channels, channels) if precomputed, got {X.shape}")
            assert_all_finite(X, input_name="X")
            checks.require_covariances(X, training)
            return X
        if self.center_ is not None:
            checks.require_room(len(X), X.shape[1] + 1)
            x = np.concatenate([np.ones((len(X), 1)), X - self.center_], axis=1)
            return x[:, :, None] * x[:, None, :]
        # The number of channels in predict is that of fit, so that few samples are no sign of a transposed array.
        return covariances(X, None, self.feature, self.max_lag, training=np.ones(len(X), bool) if training else None)

    def _train(self, patterns: Array, signs: NDArray[Any]) -> tuple[Array, float, float]:
        """Train one pair of classes; return W, its margin on `patterns` without shrinkage, and the shrinkage used.

        `patterns` has shape (trials, inputs, inputs) and `signs`, +1 or −1 for the two classes, shape (trials,).
        """
        task = MaxMargin(patterns, signs[:, None])
        means = np.empty_like(patterns)
        for sign in (1, -1):
            means[signs == sign] = mean_of(patterns[signs == sign])
        for shrinkage in _SHRINKAGES if self.shrinkage is None else (self.shrinkage,):
            shrunk = MaxMargin((1 - shrinkage) * patterns + shrinkage * means, task.labels)
            starts = (random_start(task, number) for number in range(self.starts))
            attempts = [solve(shrunk, self.solver, start, self.time_limit) for start in starts]
            best = max(attempts, key=lambda attempt: -math.inf if attempt.margin is None else attempt.margin)
            if best.margin is not None and best.margin > 0:
                break
        if best.point is None:
            raise QcqpbenchError(
                f"solver {self.solver} must return a point, got none: {best.message or best.termination.message}"
            )
        W = unit_rows(best.point)
        return W, float(task.margin(W)), shrinkage


def _checked(X: NDArray[Any], y: Any = None) -> tuple[NDArray[Any], Any]:
    """Check the dimensions of X, and that X contains no NaN if it has shape (samples, features); return X and y."""
    if X.ndim > 3:
        raise ValueError(f"X must have shape (trials, channels, time) or (samples, features), got {X.shape}")
    if X.ndim == 2:
        assert_all_finite(X, input_name="X")
    return X, y


def _padded(X: Any) -> Any:
    """Return a sequence of arrays (channels, time) as one array padded with NaN; return any other X unchanged."""
    is_sequence = isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1)
    if not is_sequence or len(X) == 0 or not all(isinstance(trial, (list, np.ndarray)) for trial in X):
        return X
    trials = checks.as_trials(X)
    if all(trial.ndim < 2 for trial in trials):
        return X
    channels = checks.count_channels(trials, range(len(trials)))
    padded = np.full((len(trials), channels, max(trial.shape[1] for trial in trials)), np.nan)
    for row, trial in zip(padded, trials, strict=True):
        row[:, : trial.shape[1]] = trial
    return padded
