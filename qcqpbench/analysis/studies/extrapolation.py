"""Means at several sizes → their limit for m → ∞, with an error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# ⅔ is the exponent of the largest singular value of a random m × m matrix, which the margin at low load is made of, and
# of the ground states of mean-field spin glasses (Aspelmeier, Billoire, Marinari, Moore 2008); the others are guesses
# to both sides.
EXPONENTS = (1 / 2, 2 / 3, 1.0)

# Sets that differ by less in κ̄ have one and the same margin, such as 0.
_SAME = 1e-5


@dataclass(frozen=True)
class Mean:
    """Of a value over pattern sets of size m; error: its standard error."""

    m: int
    sets: int
    value: float
    error: float


@dataclass(frozen=True)
class Limit:
    """value + slope · m^(−⅔), fitted by weighted least squares.

    error       statistical; multiplied by √(χ²/dof) if the points scatter more than their errors say
    low, high   the least and the largest limit with any of EXPONENTS, also without the smallest size if three others
                are left, less and plus its error
    mismatch    √(χ²/dof) with ⅔
    """

    value: float
    slope: float
    error: float
    low: float
    high: float
    mismatch: float


def means(values: Mapping[int, Sequence[float]]) -> list[Mean]:
    """The means of the values at each size, in the order of the sizes.

    The deviation of single sets is fitted by a power of m: at sizes with few sets it would be a guess, and a mean that
    seems too certain would rule the fit.
    """
    known = {m: float(np.std(each, ddof=1)) for m, each in values.items() if len(each) > 2}
    known = {m: deviation for m, deviation in known.items() if deviation > _SAME}
    if not known:
        return []
    x, y = np.log(list(known)), np.log(list(known.values()))
    power = np.polyfit(x, y, min(1, len(known) - 1), w=np.sqrt([len(values[m]) for m in known]))
    errors = {m: math.exp(np.polyval(power, math.log(m))) / math.sqrt(len(each)) for m, each in values.items()}
    return [Mean(m, len(values[m]), float(np.mean(values[m])), errors[m]) for m in sorted(values)]


def limit(sizes: Sequence[Mean]) -> Limit | None:
    """The limit of the means; None from fewer than three sizes."""
    if len(sizes) < 3:
        return None
    sizes = sorted(sizes, key=lambda size: size.m)
    value, slope, error, mismatch = _fit(sizes, 2 / 3)
    chosen = [sizes, sizes[1:]] if len(sizes) > 3 else [sizes]
    ends = [(found[0], found[2]) for some in chosen for found in (_fit(some, exponent) for exponent in EXPONENTS)]
    low, high = min(each - uncertain for each, uncertain in ends), max(each + uncertain for each, uncertain in ends)
    return Limit(value, slope, error, low, high, mismatch)


def _fit(sizes: Sequence[Mean], exponent: float) -> tuple[float, float, float, float]:
    errors = np.array([size.error for size in sizes])
    design = np.array([[1.0, size.m**-exponent] for size in sizes]) / errors[:, None]
    target = np.array([size.value for size in sizes]) / errors
    found, *_ = np.linalg.lstsq(design, target, rcond=None)
    misses = design @ found - target
    mismatch = math.sqrt(misses @ misses / (len(sizes) - 2))
    error = math.sqrt(np.linalg.inv(design.T @ design)[0, 0]) * max(1.0, mismatch)
    return float(found[0]), float(found[1]), error, mismatch
