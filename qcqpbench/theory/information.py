"""Information capacities of classical and covariance perceptrons, in bits."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qcqpbench.errors import require

from .replica_symmetric import classical_capacity, covariance_capacity


def per_synapse(capacity: ArrayLike, m: ArrayLike, n: ArrayLike) -> Any:
    """Return a capacity divided by the number of synapses nm.

    Parameters
    ----------
    capacity
        Number of patterns P, or information 𝓘 in bits.
    m, n
        Numbers of inputs and outputs, at least 1; not checked.

    Returns
    -------
    float or array
        P̂ = P/(nm), or 𝓘̂ = 𝓘/(nm).
    """
    return np.asarray(capacity) / (np.asarray(n) * np.asarray(m))


def classical_information(kappa_bar: ArrayLike, m: ArrayLike, n: ArrayLike) -> Any:
    """Return the information capacity of n classical perceptrons.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.
    m, n
        Numbers of inputs and outputs.

    Returns
    -------
    float or array
        𝓘 = P (m + n) in bits, where P is `classical_capacity`.

    Raises
    ------
    QcqpbenchError
        If m < 1 or κ̄ is NaN.
    """
    return classical_capacity(kappa_bar, m) * (np.asarray(m) + np.asarray(n))


def covariance_information(kappa_bar: ArrayLike, m: ArrayLike, n: ArrayLike, f: ArrayLike = 1.0) -> Any:
    """Return the information capacity of a covariance perceptron.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.
    m, n
        Numbers of inputs and outputs.
    f
        Density of the patterns: probability that an off-diagonal entry is not zero, from 0 to 1; 1 (dense) by default.

    Returns
    -------
    float or array
        𝓘 = P (log₂K + N) in bits, where P is `covariance_capacity` and log₂K + N is `covariance_pattern_bits`.

    Raises
    ------
    QcqpbenchError
        If m < 1, n < 2, κ̄ is NaN, or f is not in [0, 1].
    """
    return covariance_capacity(kappa_bar, m, n) * covariance_pattern_bits(m, n, f)


def covariance_pattern_bits(m: ArrayLike, n: ArrayLike, f: ArrayLike = 1.0) -> Any:
    """Return the information of one covariance pattern and its labels.

    Parameters
    ----------
    m, n
        Numbers of inputs and outputs.
    f
        Density of the pattern: probability that an off-diagonal entry is not zero, from 0 to 1; 1 (dense) by default.

    Returns
    -------
    float or array
        log₂K + N in bits, for N = n(n−1)/2 labels and K possible patterns with M = m(m−1)/2 entries. log₂K is
        M (f − S(f)), see `bits_per_entry`.

    Raises
    ------
    QcqpbenchError
        If f is not in [0, 1].
    """
    m, n = np.asarray(m), np.asarray(n)
    return m * (m - 1) / 2 * bits_per_entry(f) + n * (n - 1) / 2


def bits_per_entry(f: ArrayLike) -> Any:
    """Return the information of one off-diagonal entry of a pattern, which is +, − or zero.

    Parameters
    ----------
    f
        Density of the pattern: probability that the entry is not zero, from 0 to 1 (dense).

    Returns
    -------
    float or array
        f − S(f) in bits, with S(f) = f log₂f + (1−f) log₂(1−f). This is 0 at f = 0 and 1 at f = 1.

    Raises
    ------
    QcqpbenchError
        If f is not in [0, 1].
    """
    f = np.asarray(f, dtype=np.float64)
    require(bool(((f >= 0) & (f <= 1)).all()), f"f must be from 0 to 1, got {f!s:.80}")
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = [np.where(q > 0, q * np.log2(q), 0.0) for q in (f, 1 - f)]
    return f - surprise[0] - surprise[1]


def information_ratio(m: ArrayLike, n: ArrayLike, f: ArrayLike = 1.0) -> Any:
    """Return the ratio of the information capacities of covariance and classical perceptrons.

    Parameters
    ----------
    m, n
        Numbers of inputs, at least 1, and of outputs, at least 2.
    f
        Density of the patterns: probability that an off-diagonal entry is not zero, from 0 to 1; 1 (dense) by default.

    Returns
    -------
    float or array
        𝓘_cov/𝓘_class, independent of the margin. For f = 1 it is 2[m(m−1) + n(n−1)]/((n−1)(m+n)): exactly 2 for n = m,
        close to 2 for n ≫ m, and close to 2(m−1)/(n−1) for m ≫ n.

    Raises
    ------
    QcqpbenchError
        If m < 1, n < 2, or f is not in [0, 1].
    """
    return covariance_information(0.0, m, n, f) / classical_information(0.0, m, n)
