"""Tests, intervals and sample sizes for the mean of paired differences.

A difference belongs to an instance, not to a run: runs on one problem are not independent. Two tests must agree. The
sign-flip test is exact if the two solvers have the same distribution of results on each instance, because a difference
then has either sign with the same probability; it also holds if most differences are zero. The bootstrap-t test
corrects for skewed differences (Hall, The Bootstrap and Edgeworth Expansion, 1992, section 3.10), for which the sign
flips reject too often. The level is 1 %, because both still err for few and strongly skewed differences;
`tests/analysis/test_compare_paired.py` measures how often.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from qcqpbench.analysis.intervals import Interval

Array = NDArray[np.float64]

LEVEL = 0.01
POWER = 0.8
RESAMPLES = 9999
# Up to this number of instances all sign flips are enumerated.
_MAX_ENUMERATED = 12
_RESAMPLES_PER_DRAW = 250
# Relative error of sums of differences.
_ROUNDING = 1e-9


class PairedTest(NamedTuple):
    """Mean of paired differences, its confidence interval, the p-value of "the mean is 0", and the spread.

    The interval has the confidence 1 − LEVEL. It is None if too many differences are equal for the bootstrap. `spread`
    is the standard deviation of the differences.
    """

    mean: float
    interval: Interval | None
    p_value: float
    spread: float


def paired_test(differences: ArrayLike, seed: int = 0) -> PairedTest:
    """Test whether the mean of `differences`, one per instance, is 0.

    Parameters
    ----------
    differences
        One value per instance, at least one.
    seed
        Seed of the sign flips and of the bootstrap.
    """
    values = np.asarray(differences, dtype=float)
    row = values[None, :]
    resampled = _resampled_t(row, RESAMPLES, seed)
    p_value = max(_sign_flip_p_values(row, RESAMPLES, seed)[0], _bootstrap_p_values(row, resampled)[0])
    mean, spread = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return PairedTest(mean, _interval(values, resampled[0]), float(p_value), spread)


def p_values(table: ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> Array:
    """Return the p-value of each row of `table`, whose columns are instances: the larger one of the two tests."""
    rows = np.asarray(table, dtype=float)
    bootstrap = _bootstrap_p_values(rows, _resampled_t(rows, resamples, seed))
    return np.maximum(_sign_flip_p_values(rows, resamples, seed), bootstrap)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for several tests by Holm's method, in the same order."""
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted


def fewest_instances(level: float = LEVEL) -> int:
    """Return the number of nonzero differences below which no test of signs reaches the level."""
    return math.ceil(1 - math.log2(level))


def instances_needed(spread: float, effect: float, level: float = LEVEL, power: float = POWER) -> int:
    """Return the number of instances with which a true mean of `effect` is found with probability `power`.

    Parameters
    ----------
    spread
        Standard deviation of the differences.
    effect
        Absolute value of the true mean.
    level, power
        Level of the two-sided test, and probability that it finds the effect.
    """
    quantile = float(norm.isf(level / 2))
    normal = ((quantile + float(norm.ppf(power))) * spread / effect) ** 2
    # Student's t needs quantile²/2 more instances than normal theory (Guenther, The American Statistician 35 (1981)
    # 243); two tests that must agree need about as many again, by simulation.
    return max(fewest_instances(level), math.ceil(normal + quantile**2))


# --- sign flips ---


def _sign_flip_p_values(rows: Array, resamples: int, seed: int) -> Array:
    observed = abs(rows.sum(axis=1))[:, None] * (1 - _ROUNDING)
    count = rows.shape[1]
    if count <= _MAX_ENUMERATED:
        # The other half has the opposite signs, and the same absolute sums.
        signs = 1.0 - 2.0 * (np.arange(2 ** (count - 1))[:, None] >> np.arange(count) & 1)
        shares: Array = (abs(rows @ signs.T) >= observed).mean(axis=1)
        return shares
    generator, extreme = np.random.default_rng(seed), np.ones(len(rows))
    for size in _draws(resamples):
        signs = 1.0 - 2.0 * generator.integers(0, 2, (size, count))
        extreme += (abs(rows @ signs.T) >= observed).sum(axis=1)
    return extreme / (resamples + 1)


# --- bootstrap ---


def _bootstrap_p_values(rows: Array, resampled: Array) -> Array:
    """Return the bootstrap p-value of each row from its `_resampled_t`."""
    means, errors = rows.mean(axis=1), rows.std(axis=1)
    constant = errors <= _ROUNDING * abs(means)
    observed = np.divide(means, errors, out=np.zeros_like(means), where=~constant)[:, None]
    tails = np.minimum((resampled <= observed).sum(axis=1), (resampled >= observed).sum(axis=1))
    # Resamples of equal differences say nothing; the sign flips decide alone.
    return np.where(constant, 0.0, np.minimum(1.0, 2 * (1 + tails) / (resampled.shape[1] + 1)))


def _resampled_t(rows: Array, resamples: int, seed: int) -> Array:
    """Return (mean − mean of the row) / standard deviation over resamples of the instances of each row.

    The value is infinite if a resample has no variance but another mean than the row.
    """
    count = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    squares, variances = centred**2, centred.var(axis=1, keepdims=True)
    generator, shares = np.random.default_rng(seed), np.full(count, 1 / count)
    parts = []
    for size in _draws(resamples):
        weights = generator.multinomial(count, shares, size).T / count
        means = centred @ weights
        resampled = squares @ weights - means**2
        is_constant = resampled <= _ROUNDING**2 * variances
        infinite = np.where(means == 0, 0.0, np.copysign(np.inf, means))
        parts.append(np.divide(means, np.sqrt(np.where(is_constant, 1.0, resampled)), out=infinite, where=~is_constant))
    return np.concatenate(parts, axis=1)


def _interval(values: Array, resampled: Array) -> Interval | None:
    """Return the interval that contains 0 if and only if the bootstrap p-value is above LEVEL; None if infinite."""
    tail = round(LEVEL / 2 * (RESAMPLES + 1))
    ordered, mean, error = np.sort(resampled), float(values.mean()), float(values.std())
    if error <= _ROUNDING * abs(mean):
        return Interval(mean, mean)
    low, high = float(ordered[-tail]), float(ordered[tail - 1])
    return Interval(mean - low * error, mean - high * error) if math.isfinite(low) and math.isfinite(high) else None


def _draws(resamples: int) -> Iterator[int]:
    """Yield the sizes of the parts in which resamples are drawn, which limits memory."""
    for begin in range(0, resamples, _RESAMPLES_PER_DRAW):
        yield min(_RESAMPLES_PER_DRAW, resamples - begin)
