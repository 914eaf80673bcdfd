"""Information capacities of classical and covariance perceptrons, in bits."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qcqpbench.errors import require

from .replica_symmetric import classical_capacity, covariance_capacity


def per_synapse(capacity: ArrayLike, m: ArrayLike, n: ArrayLike) -> Any:
    """A capacity per synapse: P̂ = P/(nm) of patterns, 𝓘̂ = 𝓘/(nm) of information."""
    return np.asarray(capacity) / (np.asarray(n) * np.asarray(m))


def classical_information(kappa_bar: ArrayLike, m: ArrayLike, n: ArrayLike) -> Any:
    """𝓘 = P (m + n) in bits."""
    return classical_capacity(kappa_bar, m) * (np.asarray(m) + np.asarray(n))


def covariance_information(kappa_bar: ArrayLike, m: ArrayLike, n: ArrayLike, f: ArrayLike = 1.0) -> Any:
    """𝓘 = P (log2 K + N) in bits, M = m(m−1)/2, N = n(n−1)/2, log2 K = M (f − S(f)) for patterns of sparseness f."""
    return covariance_capacity(kappa_bar, m, n) * covariance_pattern_bits(m, n, f)


def covariance_pattern_bits(m: ArrayLike, n: ArrayLike, f: ArrayLike = 1.0) -> Any:
    """log2 K + N, the bits of one pattern and its labels."""
    m, n = np.asarray(m), np.asarray(n)
    return m * (m - 1) / 2 * bits_per_entry(f) + n * (n - 1) / 2


def bits_per_entry(f: ArrayLike) -> Any:
    """log2 K / M = f − S(f) with S(f) = f log2 f + (1−f) log2(1−f): 0 at f = 0, 1 at f = 1."""
    f = np.asarray(f, dtype=np.float64)
    require(bool(((f >= 0) & (f <= 1)).all()), f"f={f} is not allowed; right is 0 <= f <= 1")
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = [np.where(q > 0, q * np.log2(q), 0.0) for q in (f, 1 - f)]
    return f - surprise[0] - surprise[1]


def information_ratio(m: ArrayLike, n: ArrayLike, f: ArrayLike = 1.0) -> Any:
    """𝓘_cov/𝓘_class, the same for every margin; for f = 1 it is 2[m(m−1)+n(n−1)]/((n−1)(m+n)),
    which tends to 2 for n ≫ m, to 2 for n = m ≫ 1 and to 2(m−1)/(n−1) for n ≪ m."""
    return covariance_information(0.0, m, n, f) / classical_information(0.0, m, n)
