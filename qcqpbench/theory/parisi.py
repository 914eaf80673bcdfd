"""Parisi's functional of a spherical perceptron at capacity, for profiles y(q) of finitely many steps.

A perceptron with α constraints per direction and the kernel f(q) = q^s has, for a non-decreasing y(q) ≥ 0 on [0, 1],

    λ(q) = 1 + ∫_q^1 y,    S = ½ ∫_0^1 dq/λ,    ∂_q G = −(f'/2) [G'' − y G'²],    G(1, h) = (κ−h)₊²/(2 f'(1)),

and its capacity at the margin κ is the minimum of α = S/G(0,0) over y. On an interval of constant y, S is a logarithm,
G a Gaussian average of exp(−y G), and the last interval has a closed form. `evaluate` returns ln α for one profile
with its derivatives with respect to κ, to each y and to each break point. docs/background/theory.md derives it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Reach of a discretized Gaussian in standard deviations; the weight beyond it is below rounding error.
_KERNEL_REACH = 8.5
# Distances from the outermost of 0 and κ to the ends of the grid.
_WINDOW_LEFT, _WINDOW_RIGHT = 7.5, 7.0
# Gaussian averages below this are replaced by the quadratic tail of G, before they underflow.
_SMALLEST_AVERAGE = 1e-250
# Relative deficit from the tail's average above which an average counts as truncated.
_TRUNCATION_TOLERANCE = 1e-9
# Below this y the difference quotient in ∂G/∂y cancels, and its limit −Var[G]/2 is used.
_SMALL_Y = 1e-4


@dataclass(frozen=True, eq=False)
class Profile:
    """Step function y(q): the value y[i] on the interval from q[i] to q[i+1], with q[0] = 0 and q[−1] = 1.

    Only y[0] may be 0; the values do not decrease.
    """

    q: Array
    y: Array

    @cached_property
    def lengths(self) -> Array:
        """Return the lengths of the intervals."""
        return np.diff(self.q)

    @cached_property
    def stiffness(self) -> Array:
        """Return λ(q) = 1 + ∫_q^1 y at the break points."""
        areas = self.y * self.lengths
        return 1.0 + np.append(np.cumsum(areas[::-1])[::-1], 0.0)

    @cached_property
    def compliance(self) -> Array:
        """Return ∫_0^q λ^{−2} at the break points."""
        return np.append(0.0, np.cumsum(self.lengths / (self.stiffness[:-1] * self.stiffness[1:])))

    def entropy(self) -> float:
        """Return S = ½ ∫_0^1 dq/λ."""
        return float(0.5 * np.sum(self.lengths / self.stiffness[1:] * _log1p_ratio(self._growth())))

    def entropy_gradient(self) -> Array:
        """Return ∂S/∂y[i] = −½ ∫ dq ∫_0^q λ^{−2} over interval i."""
        inner = (self.lengths / self.stiffness[1:]) ** 2 * _log_excess(self._growth())
        return -0.5 * (self.lengths * self.compliance[:-1] + inner)

    def _growth(self) -> Array:
        """Return the relative increase of λ over each interval, from right to left."""
        return self.y * self.lengths / self.stiffness[1:]


@dataclass(frozen=True, eq=False)
class Grid:
    """Uniform grid of fields h for one margin.

    Parameters
    ----------
    kappa
        Margin κ.
    step
        Distance of neighbouring fields.
    widening
        Additional width at both ends.
    """

    kappa: float
    step: float = 0.02
    widening: float = 0.0

    @cached_property
    def h(self) -> Array:
        """Return the fields, 0 among them."""
        low = min(0.0, self.kappa) - _WINDOW_LEFT - self.widening
        high = max(0.0, self.kappa) + _WINDOW_RIGHT + self.widening
        return self.step * np.arange(
            int(np.floor(low / self.step)), int(np.ceil(high / self.step)) + 1, dtype=np.float64
        )

    def weights(self, variance: float) -> Array:
        """Return the discretized normal density of `variance`, centred in an array of odd length."""
        reach = max(3, int(np.ceil(_KERNEL_REACH * np.sqrt(variance) / self.step)))
        weights = np.exp(-((self.step * np.arange(-reach, reach + 1)) ** 2) / (2 * variance))
        return weights / weights.sum()


@dataclass(frozen=True, eq=False)
class LastStep:
    """Closed form of the last interval, from q to 1, at the fields h.

    With d = κ−h, σ² = 1−f(q), a = f'(1) and A = a + yσ²:
    exp(−yG) = Φ(−d/σ) + √(a/A) exp(−y d²/(2A)) Φ((d/σ) √(a/A)), the parts that end above and below κ.
    """

    distance: Array
    y: float
    variance: float
    end_slope: float
    log_above: Array
    log_below: Array
    log_total: Array

    @classmethod
    def of(cls, distance: Array, y: float, variance: float, end_slope: float) -> "LastStep":
        """Return the closed form for d = `distance` and f'(1) = `end_slope`."""
        from scipy.special import log_ndtr  # noqa: PLC0415 (slow to import)

        width = end_slope + y * variance
        above = log_ndtr(-distance / np.sqrt(variance))
        below = 0.5 * np.log(end_slope / width) - y * distance**2 / (2 * width)
        below += log_ndtr(distance * np.sqrt(end_slope / (variance * width)))
        return cls(distance, y, variance, end_slope, above, below, np.logaddexp(above, below))

    @property
    def value(self) -> Array:
        """Return G(q, h)."""
        return -self.log_total / self.y

    @property
    def slope(self) -> Array:
        """Return ∂G/∂h; the terms with the normal density cancel."""
        width = self.end_slope + self.y * self.variance
        correction = np.exp(-(self.distance**2) / (2 * self.variance) - self.log_total) / np.sqrt(
            2 * np.pi * self.variance
        )
        # ∂h of the lower part is y d/A times it, minus its density at κ, times a/A; the upper part adds that density.
        lower = self.y * self.distance / width * self.below
        return -(lower + correction * (1 - self.end_slope / width)) / self.y

    @property
    def below(self) -> Array:
        """Return the probability that the field at q = 1 is below κ."""
        return np.exp(self.log_below - self.log_total)

    @property
    def y_derivative(self) -> Array:
        """Return ∂G/∂y."""
        from scipy.special import log_ndtr  # noqa: PLC0415 (slow to import)

        width = self.end_slope + self.y * self.variance
        argument = self.distance * np.sqrt(self.end_slope / (self.variance * width))
        hazard = np.exp(-0.5 * argument**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(argument))
        half = self.variance / (2 * width)
        log_derivative = -half * (1 + hazard * argument) - self.distance**2 * self.end_slope / (2 * width**2)
        return (self.log_total / self.y - self.below * log_derivative) / self.y


@dataclass(frozen=True, eq=False)
class Level:
    """G and the tilted average that gave it at one break point.

    `tilt` is exp(−yG) of the level above and `average` its Gaussian average, both on the grid of fields. The average is
    infinite where G is its quadratic tail. From there, a field at the distance d below κ moves to the distance
    `contraction` times d, with the standard deviation `spread`.
    """

    value: Array
    slope: Array
    weights: Array
    tilt: Array
    average: Array
    contraction: float
    spread: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Value and derivatives of ln α for one margin and one profile.

    `density` holds the probabilities of the fields at the last break point before 1, `last` the closed form from there.
    """

    kappa: float
    profile: Profile
    alpha: float
    slope: float
    y_gradient: Array
    q_gradient: Array
    h: Array
    density: Array
    last: LastStep

    @property
    def log_alpha(self) -> float:
        """Return ln α."""
        return float(np.log(self.alpha))

    @property
    def active_probability(self) -> float:
        """Return the probability of a stability equal to κ, which is the mass of ρ(1, h) below κ."""
        return float(self.density @ self.last.below)

    @property
    def share_bracket(self) -> tuple[float, float]:
        """Return a lower and an upper estimate of the share of active stabilities per direction.

        The lower one is 1 − ∫(λ(1)/λ)², the upper one α times the active probability. They coincide for full RSB.
        """
        return 1.0 - float(self.profile.compliance[-1]), self.alpha * self.active_probability

    def tail(self, excess: float) -> float:
        """Return the probability of a stability above κ + `excess`, for `excess` ≥ 0."""
        from scipy.special import log_ndtr  # noqa: PLC0415 (slow to import)

        reach = -(self.last.distance + excess) / np.sqrt(self.last.variance)
        return float(self.density @ np.exp(log_ndtr(reach) - self.last.log_total))

    def density_above(self, excess: float) -> float:
        """Return the density of stabilities at κ + `excess`, for `excess` ≥ 0."""
        deviation = (self.last.distance + excess) ** 2 / (2 * self.last.variance)
        scale = np.sqrt(2 * np.pi * self.last.variance)
        return float(self.density @ np.exp(-deviation - self.last.log_total) / scale)


def evaluate(profile: Profile, power: int, grid: Grid, values_only: bool = False) -> Evaluation:
    """Return ln α of `profile` for the kernel q^power at the margin of `grid`, with its derivatives.

    Parameters
    ----------
    profile
        Step function y(q) of at least two intervals. The variance f(q[i+1]) − f(q[i]) of each interval must be at
        least the square of the grid's step, so that sums over the grid have spectral accuracy.
    power
        Exponent s of the kernel f(q) = q^s.
    grid
        Fields at which G is tabulated.
    values_only
        Skip the derivatives with respect to κ and the break points, which are NaN then.
    """
    variances = np.diff(profile.q**power)
    last = LastStep.of(grid.kappa - grid.h, float(profile.y[-1]), float(variances[-1]), float(power))
    levels = _descend(profile, variances, last, grid, values_only)
    value, slope, density = _first_step(profile, float(variances[0]), levels[0], grid)
    y_gradient, moments, density = _ascend(profile, levels, last, (value, density))
    compliance, entropy = profile.compliance, profile.entropy()
    jumps = np.diff(profile.y)
    # Moving a break point changes y next to it, so its derivative is the functional derivative there times the jump.
    f_slopes = power * profile.q[1:-1] ** (power - 1)
    return Evaluation(
        kappa=grid.kappa,
        profile=profile,
        alpha=entropy / value,
        slope=slope / value,
        y_gradient=profile.entropy_gradient() / entropy - y_gradient / value,
        q_gradient=0.5 * jumps * (compliance[1:-1] / entropy - f_slopes * moments / value),
        h=grid.h,
        density=density,
        last=last,
    )


def _descend(profile: Profile, variances: Array, last: LastStep, grid: Grid, values_only: bool) -> list[Level]:
    """Return G at the inner break points, the first one first, by Gaussian averages from the last step down.

    Left of κ, G approaches (κ−h)²/(2A) + C from below, with A and C that each interval changes in closed form. The grid
    is padded with this tail. It replaces averages that underflow or whose kernel is truncated: far left of κ, exp(−yG)
    shifts the weight of a Gaussian by many standard deviations.
    """
    empty, unknown = np.empty(0), np.full(len(grid.h), np.nan)
    levels = [Level(last.value, unknown if values_only else last.slope, empty, empty, empty, 1.0, 0.0)]
    width = last.end_slope + last.y * last.variance
    offset = np.log(width / last.end_slope) / (2 * last.y)
    for y, variance in zip(profile.y[-2:0:-1], variances[-2:0:-1], strict=True):
        weights = grid.weights(variance)
        reach = len(weights) // 2
        left = grid.kappa - grid.h[0] + grid.step * np.arange(reach, 0, -1)
        right = np.zeros(reach)
        tilt = np.exp(-y * np.concatenate([left**2 / (2 * width) + offset, levels[-1].value, right]))
        average = np.convolve(tilt, weights, "valid")
        contraction = width / (width + y * variance)
        far = -last.distance / (width + y * variance)
        tilted = tilt * np.concatenate([-left / width, levels[-1].slope, right]) if not values_only else None
        offset += np.log1p(y * variance / width) / (2 * y)
        width += y * variance
        tail = last.distance**2 / (2 * width) + offset
        # The tail bounds G from above, so an average below the tail's was truncated with the kernel.
        safe = (average > _SMALLEST_AVERAGE) & (average > (1 - _TRUNCATION_TOLERANCE) * np.exp(-y * tail))
        divisor = np.where(safe, average, 1.0)
        value = np.where(safe, np.minimum(-np.log(divisor) / y, tail), tail)
        slope = unknown if tilted is None else np.where(safe, np.convolve(tilted, weights, "valid") / divisor, far)
        spread = float(np.sqrt(variance * contraction))
        average = np.where(safe, average, np.inf)
        levels.append(Level(value, slope, weights, tilt[reach:-reach], average, contraction, spread))
    return levels[::-1]


def _first_step(profile: Profile, variance: float, level: Level, grid: Grid) -> tuple[float, float, Array]:
    """Return G(0, 0), its derivative in h, and the density of the fields at the first inner break point."""
    weights = np.exp(-(grid.h**2) / (2 * variance))
    weights /= weights.sum()
    y = float(profile.y[0])
    if y == 0:
        return float(weights @ level.value), float(weights @ level.slope), weights
    tilted = weights * np.exp(-y * level.value)
    total = float(tilted.sum())
    density = tilted / total
    return -float(np.log(total)) / y, float(density @ level.slope), density


def _ascend(
    profile: Profile, levels: list[Level], last: LastStep, start: tuple[float, Array]
) -> tuple[Array, Array, Array]:
    """Return ∂G(0,0)/∂y, E[G'²] at the inner break points, and the density at the last of them."""
    gradient = np.zeros(len(profile.y))
    moments = np.zeros(len(levels))
    value, density = start
    below = np.array([value, value**2])
    for i, level in enumerate(levels):
        if i > 0:
            lower = levels[i - 1]
            density = _moved(density, lower, last.distance)
        here = np.array([density @ level.value, density @ level.value**2])
        y = profile.y[i]
        gradient[i] = (here[0] - below[0]) / y if y > _SMALL_Y else -0.5 * (here[1] - below[1])
        moments[i] = density @ level.slope**2
        below = here
    gradient[-1] = density @ last.y_derivative
    return gradient, moments, density


def _moved(density: Array, level: Level, distance: Array) -> Array:
    """Return the probabilities of the fields at the next break point.

    Where G is its quadratic tail, the Gaussian transition is replaced by three points of the grid with the same mean
    and variance, which is exact for the quadratic G of that region.
    """
    reach = len(level.weights) // 2
    moved = level.tilt * np.convolve(density / level.average, level.weights, "full")[reach:-reach]
    far = np.flatnonzero(np.isinf(level.average) & (density > 0))
    if len(far) == 0:
        return moved
    step = distance[0] - distance[1]
    stride = max(1, int(np.ceil(1.5 * level.spread / step)))
    position = (distance[0] - level.contraction * distance[far]) / step
    middle = np.clip(np.rint(position).astype(np.int64), stride, len(density) - 1 - stride)
    mean = (position - middle) / stride
    square = mean**2 + (level.spread / (stride * step)) ** 2
    for offset, weight in ((-stride, (square - mean) / 2), (0, 1 - square), (stride, (square + mean) / 2)):
        np.add.at(moved, middle + offset, density[far] * weight)
    return moved


def _log1p_ratio(x: Array) -> Array:
    """Return ln(1+x)/x, continued to x = 0."""
    return np.log1p(x) / np.where(x == 0, 1.0, x) + (x == 0)


def _log_excess(x: Array) -> Array:
    """Return [ln(1+x) − x/(1+x)]/x², continued to x = 0."""
    series = 0.5 - x * (2 / 3 - x * (3 / 4 - x * (4 / 5 - x * 5 / 6)))
    small = x < 1e-3
    divisor = np.where(small, 1.0, x)
    return np.where(small, series, (np.log1p(x) - x / (1 + x)) / divisor**2)
