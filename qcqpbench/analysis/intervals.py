"""Bootstrap intervals over instances, and ranks with such intervals.

An instance is a problem, not a run: runs on one problem are not independent. The intervals are percentile intervals,
widened for few instances (Hesterberg, The American Statistician 69 (2015) 371): for normal values of n instances they
agree with Student's t up to O(1/n).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, t

Array = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
# Intervals of fewer instances would promise what the data do not hold.
MIN_INSTANCES = 5
_RESAMPLES_PER_DRAW = 100


class Interval(NamedTuple):
    """Ends of a confidence interval."""

    low: float
    high: float


def resampled_means(values: ArrayLike, seed: int = 0) -> Array:
    """Return the means of `values` over RESAMPLES random draws of the instances with replacement.

    Parameters
    ----------
    values
        One row per instance; all columns are drawn together, so that they stay paired.
    seed
        Seed of the draws.

    Returns
    -------
    array, shape (RESAMPLES, columns)
        One row per draw.
    """
    array = np.asarray(values, dtype=float)
    table = array.reshape(len(array), -1)
    generator, count = np.random.default_rng(seed), len(table)
    shares = np.full(count, 1 / count)
    draws = [generator.multinomial(count, shares, _RESAMPLES_PER_DRAW) for _ in range(RESAMPLES // _RESAMPLES_PER_DRAW)]
    return np.concatenate([draw @ table / count for draw in draws])


def interval(resampled: ArrayLike, instances: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of a statistic from its values on resamples of `instances` instances."""
    tail = (1 - confidence) / 2
    if instances > 1:
        tail = float(norm.cdf(math.sqrt(instances / (instances - 1)) * t.ppf(tail, instances - 1)))
    low, high = np.quantile(np.asarray(resampled, dtype=float), [tail, 1 - tail])
    return Interval(float(low), float(high))


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE, seed: int = 0) -> Interval | None:
    """Return the interval of the mean of one value per instance; None for fewer than MIN_INSTANCES instances."""
    array = np.asarray(values, dtype=float)
    if len(array) < MIN_INSTANCES:
        return None
    return interval(resampled_means(array, seed)[:, 0], len(array), confidence)


def ranks(means: ArrayLike, tie: float) -> Array:
    """Return the rank of each column in each row: 1 plus the number of columns that are smaller by more than `tie`."""
    table = np.atleast_2d(np.asarray(means, dtype=float))
    smaller = [(table < column[:, None] - tie).sum(axis=1) for column in table.T]
    return 1.0 + np.stack(smaller, axis=1) if smaller else table


def rank_intervals(losses: ArrayLike, tie: float, seed: int = 0) -> list[tuple[int, Interval | None]]:
    """Return the rank by mean loss of each column, and its interval over instances.

    Parameters
    ----------
    losses
        One row per instance, one column per solver; less is better.
    tie
        Columns whose mean losses differ by at most this have the same rank.
    seed
        Seed of the resamples.

    Returns
    -------
    list of (int, Interval or None)
        Rank 1 is the best. The interval is None for fewer than MIN_INSTANCES instances.
    """
    table = np.asarray(losses, dtype=float)
    (places,) = ranks(table.mean(axis=0), tie)
    if len(table) < MIN_INSTANCES:
        return [(int(place), None) for place in places]
    resampled = ranks(resampled_means(table, seed), tie)
    intervals = [interval(column, len(table)) for column in resampled.T]
    # The ends of an interval of ranks are ranks.
    return [
        (int(place), Interval(math.floor(ends.low), math.ceil(ends.high)))
        for place, ends in zip(places, intervals, strict=True)
    ]
