"""The covariance perceptron as a classifier of scikit-learn, with any solver inside. docs/recorded.md"""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import QcqpbenchError, require
from .problem.maxmargin import MaxMargin, unit_rows
from .problem.recordings.task import Array, Normalize, covariances, mean_of, normalized, require_room
from .run.attempt import random_start, solve

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import assert_all_finite
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise QcqpbenchError("the classifier needs the package scikit-learn: pip install 'qcqpbench[sklearn]'") from error

_CHECKS: dict[str, Any] = {"dtype": np.float64, "allow_nd": True, "ensure_all_finite": "allow-nan"}
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


class CovariancePerceptronClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Tells trials apart by the sign of Q_12 = w_1ᵀ P w_2, with unit vectors w of the largest margin.

    X of shape (trials, channels, time) are recordings, the end of shorter ones filled with NaN. P are covariances, made
    and normalized as in `qcqpbench.recorded_task`. With feature="precomputed", X are the covariances themselves,
    (trials, channels, channels). X of shape (samples, features) has trials of a single sample x: P is the second moment
    of (1, x − x̄), x̄ the mean in training, so that Q_12 is the product of two affine functions of x.

    K > 2 classes are told apart two by two, by the votes of K(K−1)/2 pairs of outputs.

    solver       any of `qcqpbench list solvers` that gives points, as a spec
    shrinkage    from 0 to 1: to train, each P is moved by this share towards the mean of its class, which allows for
                 classes that overlap; by default the least of 0, ¼, ½, ¾, 1 with which they are told apart
    starts       the best of so many random starts
    time_limit   seconds for each run of the solver

    After fit: classes_; for the pairs (0,1), (0,2), … of classes W_, shape (pairs, 2, inputs), in normalized units, and
    margins_ and shrinkage_, (pairs,); S_, the mean P in training; n_features_in_, the channels or features.
    """

    def __init__(
        self,
        solver: str = "gip",
        feature: Literal["zero_lag", "lag_integrated", "precomputed"] = "zero_lag",
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
        """Train on trials X with the classes y."""
        share = self.shrinkage
        require(self.starts >= 1, f"starts={self.starts} is not allowed; right is at least one")
        require(share is None or 0 <= share <= 1, f"shrinkage={share} is not allowed; right is from 0 to 1")
        X, y = _checked(*validate_data(self, X, y, **_CHECKS))
        check_classification_targets(y)
        self.classes_, kind = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there is only one class in y, {self.classes_[0]!r}; right are two or more")
        self.center_ = X.mean(axis=0) if X.ndim == 2 else None
        patterns = self._patterns(X)
        self.S_ = mean_of(patterns)
        patterns = normalized(patterns, self.S_, self.normalize)
        trained = []
        for first, second in self._pairs():
            both = (kind == first) | (kind == second)
            trained.append(self._train(patterns[both], np.where(kind[both] == second, 1, -1)))
        W, margins, shares = zip(*trained, strict=True)
        self.W_, self.margins_, self.shrinkage_ = np.stack(W), np.array(margins), np.array(shares)
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Of two classes: Q_12, positive for the second, shape (trials,); else votes, (trials, classes), with what is
        left of a vote, less than a third, for how clear they were."""
        check_is_fitted(self)
        X, _ = _checked(validate_data(self, X, reset=False, **_CHECKS))
        if (X.ndim == 2) != (self.center_ is not None):
            raise ValueError(f"X has {X.ndim} dimensions, which is not what it had in fit")
        patterns = normalized(self._patterns(X), self.S_, self.normalize)
        Q = np.einsum("ki,tij,kj->tk", self.W_[:, 0], patterns, self.W_[:, 1], optimize=True)
        if len(self.classes_) == 2:
            return Q[:, 0]
        votes, clear = np.zeros((2, len(X), len(self.classes_)))
        for k, (first, second) in enumerate(self._pairs()):
            votes[:, second] += Q[:, k] > 0
            votes[:, first] += Q[:, k] <= 0
            clear[:, second] += Q[:, k]
            clear[:, first] -= Q[:, k]
        return votes + clear / (3 * (1 + np.abs(clear)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class of each trial."""
        decision = self.decision_function(X)
        return self.classes_[(decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _pairs(self) -> Iterator[tuple[int, int]]:
        return combinations(range(len(self.classes_)), 2)

    def _patterns(self, X: NDArray[Any]) -> Array:
        if self.center_ is not None:
            require_room(len(X), X.shape[1] + 1)
            x = np.concatenate([np.ones((len(X), 1)), X - self.center_], axis=1)
            return x[:, :, None] * x[:, None, :]
        if self.feature != "precomputed":
            return covariances(X, None, self.feature, self.max_lag)
        require(X.shape[1] == X.shape[2], f"X has shape {X.shape}, needed: (trials, channels, channels) of covariances")
        assert_all_finite(X, input_name="X")
        return X

    def _train(self, patterns: Array, signs: NDArray[Any]) -> tuple[Array, float, float]:
        """W, its margin on the patterns as they are, and the shrinkage."""
        task = MaxMargin(patterns, signs[:, None])
        means = np.empty_like(patterns)
        for sign in (1, -1):
            means[signs == sign] = mean_of(patterns[signs == sign])
        for share in _SHARES if self.shrinkage is None else (self.shrinkage,):
            shrunk = MaxMargin((1 - share) * patterns + share * means, task.labels)
            starts = (random_start(task, number) for number in range(self.starts))
            attempts = [solve(shrunk, self.solver, start, self.time_limit) for start in starts]
            best = max(attempts, key=lambda attempt: -math.inf if attempt.margin is None else attempt.margin)
            if best.margin is not None and best.margin > 0:
                break
        if best.point is None:
            raise QcqpbenchError(f"{self.solver} found no point: {best.message or best.termination.message}")
        W = unit_rows(best.point)
        return W, float(task.margin(W)), share


def _checked(X: NDArray[Any], y: Any = None) -> tuple[NDArray[Any], Any]:
    """Only recordings may be padded with NaN."""
    if X.ndim > 3:
        raise ValueError(f"X has {X.ndim} dimensions; right is (trials, channels, time) or (samples, features)")
    if X.ndim == 2:
        assert_all_finite(X, input_name="X")
    return X, y
