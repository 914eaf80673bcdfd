"""Print the tables of docs/howto/recordings.md: classifiers on recordings, and normalize="channels" against "whiten".

Usage: python docs/recorded_benchmark.py [FOLDER]

The folder contains the recordings fsdd_mfcc_3v8.npz and japanesevowels.npz. Without it, only the rows on synthetic
recordings are printed.
"""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.svm import LinearSVC

from qcqpbench import features
from qcqpbench.classifier import CovariancePerceptronClassifier

RECORDINGS = ("fsdd_mfcc_3v8", "japanesevowels")
CHANNELS, SAMPLES, TRAINING_TRIALS, TEST_TRIALS, INSTANCES = 20, 50, 40, 400, 20
# Ratio of the standard deviations of a source in the two classes, and of the strongest source to the weakest.
GAIN, RANGE = 1.3, 10

# Training data, training labels, test data, test labels.
Split = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def compare_classifiers(folder: Path) -> None:
    """Print accuracies, margins and times of classifiers on the recordings of a folder."""
    print(f"{'recordings':<16}{'classifier':<59}{'train':>7}{'test':>7}{'smallest margin':>17}{'seconds':>9}")
    for name in RECORDINGS:
        with np.load(folder / f"{name}.npz") as archive:
            X, y, lengths = archive["X"], archive["y"], archive["lengths"]
            train = archive["train"] if "train" in archive else np.arange(len(y)) % 10 < 7
        P = features.zero_lag(X, lengths)
        deviation = np.sqrt(np.diagonal(P[train].mean(axis=0)))
        vectors = (P / np.outer(deviation, deviation))[:, *np.triu_indices(X.shape[1])]
        for classifier in (
            CovariancePerceptronClassifier(),
            CovariancePerceptronClassifier(normalize="whiten"),
            CovariancePerceptronClassifier("soft_margin[method=lbfgs]", normalize="whiten"),
            LinearSVC(),
        ):
            data = vectors if isinstance(classifier, LinearSVC) else X
            begin = time.process_time()
            classifier.fit(data[train], y[train])
            seconds = time.process_time() - begin
            scores = [classifier.score(data[part], y[part]) for part in (train, ~train)]
            margin = (
                f"{classifier.margins_.min():.4f}" if isinstance(classifier, CovariancePerceptronClassifier) else ""
            )
            words = "".join(str(classifier).split()).removeprefix("CovariancePerceptronClassifier")
            print(f"{name:<16}{words:<59}{scores[0]:7.3f}{scores[1]:7.3f}{margin:>17}{seconds:9.1f}", flush=True)


def compare_normalizations(folder: Path | None) -> None:
    """Print test accuracies of both normalizations, and their difference with its standard error over splits."""
    print(f"{'recordings':<44}{'splits':>7}{'channels':>10}{'whiten':>8}{'difference':>18}")
    _compare("synthetic, independent channels", (_synthetic(seed, None) for seed in range(INSTANCES)))
    _compare("synthetic, mixed, strongest sources differ", (_synthetic(seed, 0) for seed in range(INSTANCES)))
    _compare("synthetic, mixed, medium sources differ", (_synthetic(seed, 9) for seed in range(INSTANCES)))
    _compare("synthetic, mixed, weakest sources differ", (_synthetic(seed, 18) for seed in range(INSTANCES)))
    for name in RECORDINGS if folder is not None else ():
        with np.load(folder / f"{name}.npz") as archive:
            X, y = archive["X"], archive["y"]
        splits = StratifiedShuffleSplit(10, test_size=0.3, random_state=0).split(y, y)
        _compare(f"{name}, 30 % held out", ((X[train], y[train], X[test], y[test]) for train, test in splits))


def _synthetic(seed: int, first: int | None) -> Split:
    """Return trials of independent sources, of which `first` varies more in class 1, and the next one in class 0.

    The standard deviations of the sources decrease from 1 to 1/RANGE, and a random rotation maps sources to channels.
    If `first` is None, each channel is a source of unit standard deviation, and sources 0 and 1 differ.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(TRAINING_TRIALS + TEST_TRIALS) % 2
    sources = rng.standard_normal((len(y), CHANNELS, SAMPLES))
    sources[y == 1, first or 0] *= GAIN
    sources[y == 0, (first or 0) + 1] *= GAIN
    rotation, _ = np.linalg.qr(rng.standard_normal((CHANNELS, CHANNELS)))
    X = sources if first is None else rotation * np.geomspace(1, 1 / RANGE, CHANNELS) @ sources
    return X[:TRAINING_TRIALS], y[:TRAINING_TRIALS], X[TRAINING_TRIALS:], y[TRAINING_TRIALS:]


def _compare(name: str, splits: Iterable[Split]) -> None:
    scores = np.array(
        [
            [
                CovariancePerceptronClassifier(normalize=normalize).fit(X, y).score(X_test, y_test)
                for normalize in ("channels", "whiten")
            ]
            for X, y, X_test, y_test in splits
        ]
    )
    difference = scores[:, 1] - scores[:, 0]
    error = difference.std(ddof=1) / np.sqrt(len(scores))
    channels, whiten = scores.mean(axis=0)
    print(f"{name:<44}{len(scores):7}{channels:10.3f}{whiten:8.3f}{difference.mean():+10.3f} ± {error:.3f}", flush=True)


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if chosen is not None:
        compare_classifiers(chosen)
        print()
    compare_normalizations(chosen)
