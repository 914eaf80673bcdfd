"""Extrapolation of means at several sizes to m → ∞, with error estimates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

# Finite-size corrections decay as m^(−2/3) for the largest singular value of a random m × m matrix, which determines
# the margin at low load, and for ground states of mean-field spin glasses (Aspelmeier, Billoire, Marinari, Moore 2008).
_EXPONENT = 2 / 3
# Exponents of the fits that bound the limit.
EXPONENTS = (1 / 2, _EXPONENT, 1.0)

# A smaller standard deviation of κ̄ means that all sets have the same margin, such as 0.
_MIN_DEVIATION = 1e-5


@dataclass(frozen=True)
class Mean:
    """Mean of a value over `sets` pattern sets with m inputs, and its standard error."""

    m: int
    sets: int
    value: float
    error: float


@dataclass(frozen=True)
class Limit:
    """Weighted least-squares fit of value + slope · m^(−2/3), whose limit for m → ∞ is `value`.

    Parameters
    ----------
    value, slope
        The fitted coefficients.
    error
        Standard error of `value`, multiplied by √(χ²/dof) if that is larger than 1.
    low, high
        Smallest limit minus its error and largest limit plus its error, over fits with each of EXPONENTS to all sizes
        and, if at least three remain, to all but the smallest size.
    mismatch
        √(χ²/dof) of the fit.
    """

    value: float
    slope: float
    error: float
    low: float
    high: float
    mismatch: float


def means(values: Mapping[int, Sequence[float]]) -> list[Mean]:
    """Return the mean of the values at each size and its standard error, sorted by size.

    Standard errors use a power law in m fitted to the standard deviations, because estimates from a few sets are
    unreliable, and a mean with an underestimated error would dominate the extrapolation. The result is empty if no
    size has more than two sets with different values.
    """
    deviations = {m: float(np.std(group, ddof=1)) for m, group in values.items() if len(group) > 2}
    deviations = {m: deviation for m, deviation in deviations.items() if deviation > _MIN_DEVIATION}
    if not deviations:
        return []
    x, y = np.log(list(deviations)), np.log(list(deviations.values()))
    power = np.polyfit(x, y, min(1, len(deviations) - 1), w=np.sqrt([len(values[m]) for m in deviations]))
    errors = {m: math.exp(np.polyval(power, math.log(m))) / math.sqrt(len(group)) for m, group in values.items()}
    return [Mean(m, len(values[m]), float(np.mean(values[m])), errors[m]) for m in sorted(values)]


def limit(sizes: Sequence[Mean]) -> Limit | None:
    """Return the fit to the means at several `sizes`, which extrapolates them to m → ∞; None for fewer than three."""
    if len(sizes) < 3:
        return None
    sizes = sorted(sizes, key=lambda size: size.m)
    value, slope, error, mismatch = _fit(sizes, _EXPONENT)
    selections = [sizes, sizes[1:]] if len(sizes) > 3 else [sizes]
    fits = [_fit(selection, exponent) for selection in selections for exponent in EXPONENTS]
    low, high = min(end - spread for end, _, spread, _ in fits), max(end + spread for end, _, spread, _ in fits)
    return Limit(value, slope, error, low, high, mismatch)


def _fit(sizes: Sequence[Mean], exponent: float) -> tuple[float, float, float, float]:
    """Fit value + slope · m^(−exponent); return value, slope, error of the value, and √(χ²/dof)."""
    errors = np.array([size.error for size in sizes])
    design = np.array([[1.0, size.m**-exponent] for size in sizes]) / errors[:, None]
    target = np.array([size.value for size in sizes]) / errors
    coefficients, *_ = np.linalg.lstsq(design, target, rcond=None)
    residuals = design @ coefficients - target
    mismatch = math.sqrt(residuals @ residuals / (len(sizes) - 2))
    error = math.sqrt(np.linalg.inv(design.T @ design)[0, 0]) * max(1.0, mismatch)
    return float(coefficients[0]), float(coefficients[1]), error, mismatch
