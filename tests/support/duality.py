"""The matrix of the weighted stabilities, built from the patterns entry by entry."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from qcqpbench import MaxMargin

Array = NDArray[np.float64]


def stacked_matrix(task: MaxMargin, weights: Array) -> Array:
    """Return the symmetric S with Σ λ^r_ij ζ^r_ij w_iᵀP^r w_j = ½ wᵀSw for all w = (w_1, …, w_n).

    It is checked on random w against that sum, written as a loop over the patterns and the pairs i < j of outputs.
    """
    m, n = task.patterns.shape[1], task.n
    pairs = list(combinations(range(n), 2))
    S = np.zeros((n * m, n * m))
    for pattern, signs, row in zip(task.patterns, task.labels, weights, strict=True):
        for (i, j), sign, weight in zip(pairs, signs, row, strict=True):
            for k in range(m):
                for l in range(m):  # noqa: E741
                    S[i * m + k, j * m + l] += weight * sign * pattern[k, l]
                    S[j * m + l, i * m + k] += weight * sign * pattern[k, l]
    for w in np.random.default_rng(0).normal(size=(3, n, m)):
        total = sum(
            weights[r, k] * task.labels[r, k] * (w[i] @ task.patterns[r] @ w[j])
            for r in range(task.p)
            for k, (i, j) in enumerate(pairs)
        )
        assert np.isclose(0.5 * w.ravel() @ S @ w.ravel(), total, rtol=1e-10, atol=1e-12)
    return S
