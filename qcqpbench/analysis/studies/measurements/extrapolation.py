"""Extrapolation of means at several sizes to m → ∞, with error estimates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

# Finite-size corrections decay as m^(−2/3) for the largest singular value of a random m × m matrix, which determines
# the margin at low load, and for ground states of mean-field spin glasses (Aspelmeier, Billoire, Marinari, Moore 2008).
_EXPONENT = 2 / 3
# Exponents of the fits that bound the limit.
EXPONENTS = (1 / 2, _EXPONENT, 1.0)
# Range of fitted exponents. Outside it, data at a few sizes cannot tell the power law from a constant.
EXPONENT_RANGE = (0.2, 2.0)
_EXPONENT_GRID = np.linspace(*EXPONENT_RANGE, 91)
# An additional parameter of a fit lowers χ² by more than this with a probability of 5 %, if its true value is 0.
CHI2_LIMIT = 3.84

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


@dataclass(frozen=True)
class PowerLaw:
    """Weighted least-squares fit of limit − amplitude · m^(−exponent).

    Parameters
    ----------
    limit, amplitude, exponent
        The fitted or given coefficients.
    limit_error, amplitude_error, exponent_error
        Standard errors from the curvature of χ², 0 for given coefficients.
    chi2, dof
        χ² of the fit, and the number of sizes minus that of fitted coefficients.
    at_bound
        Whether the fitted exponent is an end of EXPONENT_RANGE. Then its error is infinite, and the other errors
        are those at this exponent.
    """

    limit: float
    limit_error: float
    amplitude: float
    amplitude_error: float
    exponent: float
    exponent_error: float
    chi2: float
    dof: int
    at_bound: bool


@dataclass(frozen=True)
class Comparison:
    """Fits of power laws to the same means.

    Parameters
    ----------
    fixed
        Fit with a given limit.
    free
        Fit with a fitted limit; None for fewer than four sizes.
    two_thirds
        Fit with the given limit and the exponent 2/3.
    """

    fixed: PowerLaw
    free: PowerLaw | None
    two_thirds: PowerLaw

    @property
    def delta_chi2(self) -> float | None:
        """The χ² of the given limit minus that of the fitted limit; None without the latter."""
        return None if self.free is None else self.fixed.chi2 - self.free.chi2

    @property
    def preferred(self) -> str | None:
        """Name of the preferred fit: "free" if it lowers χ² by more than CHI2_LIMIT, else "fixed"."""
        return None if self.delta_chi2 is None else "free" if self.delta_chi2 > CHI2_LIMIT else "fixed"


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


def mean_and_error(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return mean and mean ± standard error as columns: for name x these are x, x_low, x_high.

    The standard error of a single value is unknown, and counts as 0.
    """
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {name: mean, f"{name}_low": mean - error, f"{name}_high": mean + error}


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


def compare_limits(sizes: Sequence[Mean], limit: float) -> Comparison | None:
    """Return power laws with the given and with a fitted limit; None for fewer than three sizes."""
    if len(sizes) < 3:
        return None
    free = power_law(sizes) if len(sizes) > 3 else None
    return Comparison(power_law(sizes, limit), free, power_law(sizes, limit, _EXPONENT))


def power_law(sizes: Sequence[Mean], limit: float | None = None, exponent: float | None = None) -> PowerLaw:
    """Return the weighted least-squares fit of limit − amplitude · m^(−exponent).

    Parameters
    ----------
    sizes
        Means at different sizes, at least as many as fitted coefficients.
    limit, exponent
        Given coefficients; None if they are fitted.
    """
    fitted = exponent is None
    if exponent is None:
        # For a given exponent the fit is linear. So χ² is minimized over the exponent alone, first on a grid, because
        # it can have several minima.
        chi2s = [_linear_fit(sizes, limit, float(trial))[2] for trial in _EXPONENT_GRID]
        k = int(np.argmin(chi2s))
        ends = float(_EXPONENT_GRID[max(k - 1, 0)]), float(_EXPONENT_GRID[min(k + 1, len(_EXPONENT_GRID) - 1)])
        minimum = minimize_scalar(
            lambda trial: _linear_fit(sizes, limit, trial)[2], bounds=ends, method="bounded", options={"xatol": 1e-9}
        )
        exponent = float(minimum.x) if minimum.fun < chi2s[k] else float(_EXPONENT_GRID[k])
    at_bound = fitted and exponent in EXPONENT_RANGE
    value, amplitude, chi2 = _linear_fit(sizes, limit, exponent)
    free = {"limit": limit is None, "amplitude": True, "exponent": fitted and not at_bound}
    errors = _standard_errors(sizes, amplitude, exponent, free)
    return PowerLaw(
        limit=value,
        limit_error=errors["limit"],
        amplitude=amplitude,
        amplitude_error=errors["amplitude"],
        exponent=exponent,
        exponent_error=math.inf if at_bound else errors["exponent"],
        chi2=chi2,
        dof=len(sizes) - 1 - (limit is None) - fitted,
        at_bound=at_bound,
    )


def _linear_fit(sizes: Sequence[Mean], limit: float | None, exponent: float) -> tuple[float, float, float]:
    """Return limit, amplitude and χ² of the fit with a given exponent, and a given limit unless it is None."""
    weights = 1 / np.array([size.error for size in sizes])
    powers = -(np.array([size.m for size in sizes], dtype=np.float64) ** -exponent)
    target = np.array([size.value for size in sizes]) - (limit or 0.0)
    columns = [powers] if limit is not None else [powers, np.ones(len(sizes))]
    design = np.stack(columns, axis=1) * weights[:, None]
    coefficients, *_ = np.linalg.lstsq(design, target * weights, rcond=None)
    residuals = design @ coefficients - target * weights
    return float(coefficients[1]) if limit is None else limit, float(coefficients[0]), float(residuals @ residuals)


def _standard_errors(
    sizes: Sequence[Mean], amplitude: float, exponent: float, free: Mapping[str, bool]
) -> dict[str, float]:
    """Return the standard errors of the free coefficients, and 0 for the others."""
    m = np.array([size.m for size in sizes], dtype=np.float64)
    powers = m**-exponent
    derivatives = {"limit": np.ones(len(m)), "amplitude": -powers, "exponent": amplitude * np.log(m) * powers}
    names = [name for name, is_free in free.items() if is_free]
    weights = 1 / np.array([size.error for size in sizes])
    jacobian = np.stack([derivatives[name] * weights for name in names], axis=1)
    # Without an amplitude the exponent is not determined, and the matrix is singular.
    is_singular = free["exponent"] and amplitude == 0
    variances = np.full(len(names), math.inf) if is_singular else np.diag(np.linalg.inv(jacobian.T @ jacobian))
    return dict.fromkeys(free, 0.0) | dict(zip(names, np.sqrt(variances).tolist(), strict=True))
