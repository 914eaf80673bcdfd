"""Print the table of classifiers in docs/recorded.md.

Usage: python docs/recorded_benchmark.py FOLDER

The folder contains the recordings fsdd_mfcc_3v8.npz and japanesevowels.npz.
"""

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.svm import LinearSVC

from qcqpbench import features
from qcqpbench.classifier import CovariancePerceptronClassifier


def main(folder: Path) -> None:
    """Print accuracies, margins and times of classifiers on the recordings of a folder."""
    print(f"{'recordings':<16}{'classifier':<59}{'train':>7}{'test':>7}{'smallest margin':>17}{'seconds':>9}")
    for name in ("fsdd_mfcc_3v8", "japanesevowels"):
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
