import pickle
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qcqpbench import MaxMargin, QcqpbenchError, problem, recorded_task, solve

sklearn = pytest.importorskip("sklearn", reason="needs scikit-learn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.svm import LinearSVC  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from qcqpbench.classifier import CovariancePerceptronClassifier  # noqa: E402
from tests.support.outside import TIME_SERIES, absence  # noqa: E402

Array = NDArray[np.float64]

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "problems" / "data" / "japanesevowels.npz"


def load(path: Path) -> dict[str, Any]:
    if not path.exists():
        pytest.skip(absence(path))
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def recordings(trials: int = 40, classes: int = 2, seed: int = 0) -> tuple[Array, NDArray[Any]]:
    """Return trials of three channels, with another correlated pair in each class."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((trials, 3, 60)), np.arange(trials) % classes
    pairs = list(combinations(range(3), 2))
    for x, number in zip(X, y, strict=True):
        i, j = pairs[number]
        x[i] += x[j]
    return X, y


X = recordings()[0]
EVERY = slice(None)
MIXING = np.array([[3.0, 1.0, 0.0], [0.0, 20.0, 5.0], [1.0, 0.0, 0.4]])


def covariances(X: Array) -> Array:
    return np.stack([np.cov(x, bias=True) for x in X])


def with_zeros(*index: int | slice) -> Array:
    """Return the recordings with zeros at `index`."""
    changed = X.copy()
    changed[index] = 0
    return changed


def filters(fitted: CovariancePerceptronClassifier) -> Array:
    assert fitted.filters_ is not None
    return fitted.filters_


@pytest.mark.slow
@parametrize_with_checks([CovariancePerceptronClassifier("gip[starts=2]")])
def test_estimator_passes_the_checks_of_scikit_learn(
    estimator: Any, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without it, scikit-learn skips the check of array API dispatch.
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    check(estimator)


def test_fit_solves_the_task_that_the_family_makes() -> None:
    content, task = load(SHIPPED), problem("recorded")
    attempt = solve(task, "gip")
    X, y, train = content["X"], content["y"], content["train"]
    fitted = CovariancePerceptronClassifier().fit(X[train], y[train])
    assert fitted.margins_ == pytest.approx([attempt.margin], rel=1e-9)
    assert fitted.score(X[~train], y[~train]) == attempt.test_accuracy
    assert fitted.shrinkage_.tolist() == [0]
    assert (fitted.W_.shape, fitted.n_features_in_, fitted.classes_.tolist()) == ((1, 2, 12), 12, [1, 2])
    assert fitted.predict(X[:3]).dtype == y.dtype


@pytest.mark.parametrize("solver", ["gip", "slsqp", "soft_margin[eta_max=1000]"])
def test_any_solver_finds_the_margin_of_two_points(solver: str) -> None:
    """Use x = ±1, so that P = [[1, ±1], [±1, 1]].

    With w = (cos α, sin α), (cos β, sin β) the margin is sin(α+β) − |cos(α−β)|, at most 1.
    """
    fitted = CovariancePerceptronClassifier(solver, starts=3).fit([[-1.0], [1.0]], ["a", "b"])
    assert fitted.margins_ == pytest.approx([1], abs=0.01)
    assert fitted.decision_function([[-1.0], [1.0]]) == pytest.approx([-1, 1], abs=0.02)
    assert fitted.predict([[-0.7], [0.7], [0.1]]).tolist() == ["a", "b", "b"]


def test_several_starts_give_a_larger_margin() -> None:
    content = load(SHIPPED)
    X, y = content["X"][content["train"]], content["y"][content["train"]]
    one, six = (CovariancePerceptronClassifier("slsqp", starts=starts).fit(X, y) for starts in (1, 6))
    assert six.margins_[0] > one.margins_[0] + 0.01


def test_exclusive_or_is_classified() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    X = X[np.abs(X).min(axis=1) > 0.1]
    y = X[:, 0] * X[:, 1] > 0
    assert CovariancePerceptronClassifier().fit(X, y).score(X, y) == 1
    assert LinearSVC().fit(X, y).score(X, y) < 0.8


def test_margin_does_not_depend_on_units_and_origin_of_features() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)), np.arange(30) % 2
    X[:, 0] += 3 * y
    first = CovariancePerceptronClassifier().fit(X, y)
    second = CovariancePerceptronClassifier().fit(X * [1e-3, 1, 1e6] + [5, -7, 1e5], y)
    assert second.margins_ == pytest.approx(first.margins_, rel=1e-6)


@pytest.mark.slow
def test_several_classes_are_classified_by_votes_of_pairs() -> None:
    X, y = recordings(60, 3)
    fitted = CovariancePerceptronClassifier().fit(X, y)
    assert (fitted.W_.shape, fitted.margins_.shape) == ((3, 2, 3), (3,))
    S = np.mean([np.cov(x, bias=True) for x in X], axis=0)
    new, truth = recordings(50, 3, seed=1)
    for x, votes in zip(new, fitted.decision_function(new), strict=True):
        P = np.cov(x, bias=True) / np.sqrt(np.outer(np.diag(S), np.diag(S)))
        won, confidence = np.zeros(3), np.zeros(3)
        for W, (first, second) in zip(fitted.W_, combinations(range(3), 2), strict=True):
            Q = W[0] @ P @ W[1]
            won[second if Q > 0 else first] += 1
            confidence += Q * (np.arange(3) == second) - Q * (np.arange(3) == first)
        np.testing.assert_allclose(votes, won + confidence / (3 * (1 + abs(confidence))), atol=1e-12)
    assert fitted.score(new, truth) > 0.9


@pytest.mark.slow
def test_overlapping_classes_are_shrunk_to_their_means() -> None:
    """Use a trial that is in both classes, so that only the means have a positive margin."""
    X, y = recordings(40)
    same = np.concatenate([X, X[:1]]), np.append(y, 1 - y[0])
    fitted = CovariancePerceptronClassifier().fit(*same)
    assert fitted.shrinkage_[0] in (0.25, 0.5)
    assert fitted.margins_[0] < 0
    assert fitted.score(X, y) > 0.9
    assert CovariancePerceptronClassifier("slsqp[formulation=min_norm]", starts=3).fit(*same).shrinkage_[0] >= 0.25
    hard = CovariancePerceptronClassifier(shrinkage=0).fit(*same)
    assert fitted.margins_[0] < hard.margins_[0] <= 0
    means = [np.mean([np.cov(x, bias=True) for x in X[y == number]], axis=0) for number in (0, 1)]
    S = np.mean([np.cov(x, bias=True) for x in X], axis=0)
    means = [mean / np.sqrt(np.outer(np.diag(S), np.diag(S))) for mean in means]
    of_means = solve(MaxMargin(np.array(means), np.array([[-1], [1]])), "gip").point
    assert of_means is not None
    whole = CovariancePerceptronClassifier(shrinkage=1).fit(X, y).W_[0]
    outputs, expected = (np.einsum("i,rij,j->r", W[0], means, W[1]) for W in (whole, of_means))
    np.testing.assert_allclose(outputs, expected, rtol=1e-6)


def test_padded_recordings_agree_with_precomputed_covariances() -> None:
    X, y = recordings()
    lengths = 30 + np.arange(40) % 20
    padded = np.where(np.arange(60) < lengths[:, None, None], X, np.nan)
    first = CovariancePerceptronClassifier().fit(padded, y)
    P = np.stack([np.cov(x[:, :count], bias=True) for x, count in zip(X, lengths, strict=True)])
    second = CovariancePerceptronClassifier(feature="precomputed").fit(P, y)
    assert second.margins_ == pytest.approx(first.margins_, rel=1e-9)
    np.testing.assert_array_equal(first.predict(padded), second.predict(P))


def test_classifier_works_in_pipelines_and_searches() -> None:
    X, y = recordings()
    pipeline = make_pipeline(
        FunctionTransformer(lambda X: X[:, :, 10:]), CovariancePerceptronClassifier("gip[starts=2]")
    )
    assert cross_val_score(pipeline, X, y, cv=4).mean() > 0.9
    grid = {"normalize": ["channels", "whiten"], "shrinkage": [0, 0.5]}
    search = GridSearchCV(CovariancePerceptronClassifier("gip[starts=2]"), grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert clone(again).get_params() == again.get_params()
    lagged = CovariancePerceptronClassifier(feature="lag_integrated", max_lag=2).fit(X, y)
    assert lagged.score(X, y) > 0.9


@pytest.mark.parametrize(
    ("parameters", "X", "error", "message"),
    [
        ({"solver": "gap"}, None, QcqpbenchError, "unknown solver 'gap'; did you mean 'gip'"),
        ({"normalize": "all"}, None, QcqpbenchError, "normalize must be one of channels, .*, none, got 'all'"),
        ({"feature": "mean"}, None, QcqpbenchError, "feature must be one of zero_lag, .*, precomputed, got 'mean'"),
        ({"feature": "precomputed"}, None, QcqpbenchError, r"X must have shape .* if precomputed, got \(40, 3, 60\)"),
        ({"starts": 0}, None, QcqpbenchError, "starts must be a whole number, at least 1, got 0"),
        ({"shrinkage": 2}, None, QcqpbenchError, "shrinkage must be None or from 0 to 1, got 2"),
        ({"time_limit": -1}, None, QcqpbenchError, "time_limit must be a positive number of seconds, got -1"),
        ({}, np.full((40, 3, 60), np.nan), QcqpbenchError, "trial 0 must have at least 2 samples, got 0"),
        ({}, np.full((40, 3, 60), np.inf), ValueError, "infinity"),
        ({"feature": "precomputed"}, np.full((40, 3, 3), np.nan), ValueError, "NaN"),
        ({}, np.ones((40, 3, 3, 3)), ValueError, r"X must have shape .*, got \(40, 3, 3, 3\)"),
        ({}, np.full((40, 3), np.nan), ValueError, "NaN"),
        ({}, np.zeros((40, 9_999)), QcqpbenchError, "covariances must take under 8 GB, got 32 GB of 10000 channels"),
        ({"solver": "sdr", "time_limit": 1e-9}, None, QcqpbenchError, "solver sdr must return a point, got none: "),
    ],
)
def test_wrong_usage_is_refused(parameters: dict[str, Any], X: Any, error: type[Exception], message: str) -> None:
    recorded, y = recordings()
    with pytest.raises(error, match=message):
        CovariancePerceptronClassifier(**parameters).fit(recorded if X is None else X, y)


@pytest.mark.parametrize(
    "parameters",
    [
        {"solver": 3},
        {"starts": "3"},
        {"starts": 1.5},
        {"shrinkage": "a"},
        {"shrinkage": np.nan},
        {"time_limit": "a"},
        {"time_limit": None},
        {"normalize": 3},
        {"feature": ["zero_lag"]},
        {"max_lag": 3},
        {"feature": "lag_integrated"},
        {"feature": "lag_integrated", "max_lag": "3"},
        {"feature": "lag_integrated", "max_lag": 2.5},
    ],
)
def test_wrong_parameters_are_value_errors_of_one_line(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must .*, got ") as caught:
        CovariancePerceptronClassifier(**parameters).fit(*recordings())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("feature", "X", "message"),
    [
        ("zero_lag", covariances(X), r"got symmetric .* covariances: .* the classifier with feature='precomputed'"),
        ("zero_lag", X.swapaxes(1, 2), r"got 60 channels and at most 3 samples a trial: .* X.swapaxes\(1, 2\)"),
        ("zero_lag", with_zeros(7), "trial 7 must vary in time, got zeros: leave the trial out"),
        ("zero_lag", with_zeros(EVERY, 1), "channel 1 must vary in at least one training trial, .* constant"),
        ("zero_lag", [x.T[: 30 + k] for k, x in enumerate(X)], "the same channels .*: .* transpose each trial"),
        ("zero_lag", [x[: 2 + (k > 3), k:] for k, x in enumerate(X)], "the same channels in all trials, got"),
        ("zero_lag", [x[:, k:] * 1j for k, x in enumerate(X)], "X must hold real numbers .* of complex128"),
        ("precomputed", X[:, 0], r"X must have shape .* if precomputed, got \(40, 60\)"),
        ("precomputed", covariances(with_zeros(7)), "the covariance of trial 7 must not be zero, got zeros"),
        ("precomputed", covariances(with_zeros(EVERY, 1)), "channel 1 must vary .* without covariance in all"),
    ],
)
def test_wrong_recordings_are_value_errors_of_one_line(feature: Any, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        CovariancePerceptronClassifier(feature=feature).fit(X, np.arange(40) % 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (covariances(X), "got symmetric matrices"),
        (X.swapaxes(1, 2), "X has 60 features, but .* is expecting 3 features"),
        (with_zeros(7), "trial 7 must vary in time, got zeros"),
        ([X[0], X[1, :2]], "the same channels in all trials"),
    ],
)
def test_wrong_recordings_are_refused_in_predict(new: Any, message: str) -> None:
    fitted = CovariancePerceptronClassifier("gip[starts=2]").fit(*recordings())
    with pytest.raises(ValueError, match=message) as caught:
        fitted.predict(new)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("new", [X[:1, :, :2], with_zeros(0, 1)[:1]])
def test_short_and_silent_trials_are_predicted(new: Array) -> None:
    """Predict a trial with fewer samples than channels, and one with a constant channel: neither alone is a mistake."""
    fitted = CovariancePerceptronClassifier("gip[starts=2]").fit(*recordings())
    expected = filters(fitted)[0, 0] @ np.cov(new[0], bias=True) @ filters(fitted)[0, 1]
    assert fitted.decision_function(new) == pytest.approx([expected], rel=1e-9)


def test_lists_of_unequal_trials_are_those_of_the_task() -> None:
    """Compare with `recorded_task` on the same list, and with the array that is padded by hand."""
    X, y = recordings()
    trials = [x[:, : 30 + number % 20] for number, x in enumerate(X)]
    objects = np.empty(len(trials), dtype=object)
    objects[:] = trials
    margin = solve(recorded_task(trials, y, test_share=0), "gip").margin
    padded = np.where(np.arange(60) < 30 + np.arange(40)[:, None, None] % 20, X, np.nan)
    expected = CovariancePerceptronClassifier().fit(padded, y)
    for several in (trials, tuple(trials), objects, [trial.tolist() for trial in trials]):
        fitted = CovariancePerceptronClassifier().fit(several, y)
        assert fitted.margins_ == pytest.approx([margin], rel=1e-9)
        assert fitted.n_features_in_ == 3
        np.testing.assert_array_equal(fitted.W_, expected.W_)
        np.testing.assert_array_equal(fitted.decision_function(several), expected.decision_function(padded))
    assert cross_val_score(CovariancePerceptronClassifier("gip[starts=2]"), trials, y, cv=4).mean() > 0.9


@pytest.mark.parametrize("normalize", ["channels", "whiten", "none"])
@pytest.mark.parametrize("classes", [2, 3])
def test_filters_apply_to_recordings_in_their_units(normalize: Any, classes: int) -> None:
    """Compare the outputs with covariances of filtered signals, mixed and in microvolts, without normalization."""
    X, y = recordings(60, classes)
    fitted = CovariancePerceptronClassifier("gip[starts=2]", normalize=normalize).fit(1e-6 * MIXING @ X, y)
    assert filters(fitted).shape == fitted.W_.shape == (classes * (classes - 1) // 2, 2, 3)
    new = 1e-6 * MIXING @ recordings(30, classes, seed=1)[0]
    Q = np.array([[np.cov(V @ x, bias=True)[0, 1] for V in filters(fitted)] for x in new])
    if classes == 2:
        np.testing.assert_allclose(fitted.decision_function(new), Q[:, 0], rtol=1e-7, atol=1e-9 * np.abs(Q).max())
        return
    votes = np.zeros((30, classes))
    for k, pair in enumerate(combinations(range(classes), 2)):
        votes[np.arange(30), np.where(Q[:, k] > 0, pair[1], pair[0])] += 1
    np.testing.assert_array_equal(np.round(fitted.decision_function(new)), votes)


def test_filters_are_not_defined_for_correlations_of_trials() -> None:
    assert CovariancePerceptronClassifier("gip[starts=2]", normalize="trial").fit(*recordings()).filters_ is None


def test_filters_of_features_begin_with_the_constant() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3)) * [1, 10, 100] + 5, np.arange(30) % 2
    X[:, 0] += 3 * y
    fitted = CovariancePerceptronClassifier().fit(X, y)
    affine = np.concatenate([np.ones((30, 1)), X - X.mean(axis=0)], axis=1)
    outputs = (affine @ filters(fitted)[0, 0]) * (affine @ filters(fitted)[0, 1])
    np.testing.assert_allclose(fitted.decision_function(X), outputs, rtol=1e-9, atol=1e-12)


def test_margin_does_not_depend_on_mixtures_of_whitened_channels() -> None:
    X, y = recordings()
    one, other = (CovariancePerceptronClassifier(normalize="whiten").fit(data, y) for data in (X, MIXING @ X))
    assert other.margins_ == pytest.approx(one.margins_, rel=1e-6)


def test_other_dimensions_than_in_fit_are_refused() -> None:
    X, y = recordings()
    fitted = CovariancePerceptronClassifier("gip[starts=2]").fit(X, y)
    with pytest.raises(ValueError, match="X must have 3 dimensions, as in fit, got shape"):
        fitted.predict(X[:, :, 0])


def test_missing_scikit_learn_is_an_error_with_a_remedy() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import qcqpbench.classifier"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("scikit-learn must be installed for the classifier: pip install 'qcqpbench[sklearn]'")


def test_spoken_digits_are_classified() -> None:
    """Classify three against eight with 420 training trials; a linear SVM on the vectorised covariances scores 1.0."""
    content = load(TIME_SERIES / "fsdd_mfcc_3v8.npz")
    X, y = content["X"], content["y"]
    train = np.arange(len(y)) % 10 < 7
    fitted = CovariancePerceptronClassifier().fit(X[train], y[train])
    assert fitted.shrinkage_.tolist() == [0]
    assert fitted.score(X[~train], y[~train]) > 0.95


def test_nine_speakers_are_classified() -> None:
    """Classify nine speakers; a linear SVM on the vectorised covariances scores .811."""
    content = load(TIME_SERIES / "japanesevowels.npz")
    X, y, train = content["X"], content["y"], content["train"]
    fitted = CovariancePerceptronClassifier("gip[starts=4]", normalize="whiten").fit(X[train], y[train])
    assert fitted.score(X[train], y[train]) == 1
    assert fitted.score(X[~train], y[~train]) > 0.75
