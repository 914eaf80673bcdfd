"""Minimization of Parisi's functional over profiles y(q): k-step and full replica-symmetry breaking (RSB).

Profiles stay non-decreasing, which keeps exp(−yG) smooth on the scale of the narrowest Gaussian, so that sums over the
grid of fields are accurate. Full RSB is approximated by many steps at fixed break points.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from qcqpbench.errors import require

from .closed_forms import one_step
from .parisi import Array, Evaluation, Grid, Profile, evaluate

# Numbers of steps of the successively refined profiles that approximate full RSB.
FULL_STEPS = (5, 10, 20)
# Margins between which the minimization was tested.
MARGIN_RANGE = (-2.5, 40.0)
# Distance of fields where no interval needs a smaller one.
GRID_STEP = 0.02
_SMALLEST_GRID_STEP = 1e-3
# Limits of an increment of y.
_INCREMENT_RANGE = (1e-6, 1e6)
# Lower limit of a q_0 that is optimized.
_SMALLEST_BREAK_POINT = 1e-3
# Largest number of rounds of a minimization, and the gain in ln α below which no further one is made.
_ROUNDS = 4
_ROUND_GAIN = 1e-8
# Largest change of ln α on a finer and wider grid that is tolerated.
_GRID_TOLERANCE = 3e-6

_Objective = Callable[[Array], tuple[float, Array]]


def full(kappa: float, power: int, steps: tuple[int, ...] = FULL_STEPS) -> Evaluation:
    """Return the approximation of full RSB at the margin `kappa` with the last of the numbers of `steps`."""
    return full_refinements(kappa, power, steps)[-1]


def full_refinements(kappa: float, power: int, steps: tuple[int, ...] = FULL_STEPS) -> list[Evaluation]:
    """Return the approximations of full RSB at the margin `kappa` with each of the numbers of `steps`."""
    results: list[Evaluation] = []
    for count in steps:
        start = refined(results[-1].profile, count, kappa) if results else _first_guess(kappa, power, count)
        results.append(minimize_values(start, power, kappa, rounds=_ROUNDS if count == steps[-1] else 1))
    grid_change(results[-1], power)
    return results


def full_at_load(alpha: float, power: int, steps: tuple[int, ...] = FULL_STEPS) -> Evaluation:
    """Return the approximation of full RSB with `alpha` constraints per direction.

    Each refinement is followed by a Newton step in the margin. The last result is evaluated at its margin again, with
    an unchanged profile, because ln α depends on errors of the profile in second order only.
    """
    kappa = one_step_margin(alpha, power)
    profile = _first_guess(kappa, power, steps[0])
    for count in steps:
        result = minimize_values(
            refined(profile, count, kappa), power, kappa, rounds=_ROUNDS if count == steps[-1] else 1
        )
        kappa += (np.log(alpha) - result.log_alpha) / result.slope
        profile = result.profile
    result = evaluate(profile, power, grid_for(profile, power, kappa))
    grid_change(result, power)
    return result


def few_steps(kappa: float, power: int, steps: int) -> Evaluation:
    """Return the optimum with `steps` ≥ 1 steps of RSB: y = 0 up to a free q_0, then free values and break points."""
    height = max(one_step(kappa, power)[1], 1e-2)
    starts = [
        Profile(np.array([0.0, f ** (1 / power), 1.0]), np.array([0.0, factor * height]))
        for f, factor in ((0.01, 1.0), (0.2, 1.0), (0.6, 2.0), (0.9, 10.0))
    ]
    best = _best(starts, power, kappa)
    for count in range(1, steps):
        # Up to three steps every interval may be divided; later on only those at the ends, where y varies most.
        intervals = range(count + 1) if count < 3 else (0, 1, count)
        best = _best([divided(best.profile, i, power) for i in intervals], power, kappa)
    return best


def few_steps_at_load(alpha: float, power: int, steps: int) -> Evaluation:
    """Return the optimum with `steps` ≥ 1 steps of RSB and `alpha` constraints per direction."""
    kappa = one_step_margin(alpha, power)
    result = few_steps(kappa, power, steps)
    for _ in range(20):
        change = (np.log(alpha) - result.log_alpha) / result.slope
        kappa += change
        result = minimize_steps(result.profile, power, kappa)
        if abs(change) < 1e-7:
            break
    return result


def one_step_margin(alpha: float, power: int) -> float:
    """Return the margin of one step of RSB with q_0 = 0 and `alpha` constraints per direction."""
    from scipy.optimize import brentq  # noqa: PLC0415 (slow to import)

    return float(brentq(lambda kappa: np.log(one_step(kappa, power)[0] / alpha), *MARGIN_RANGE, xtol=1e-6))


def break_points(steps: int, start: float, kappa: float) -> Array:
    """Return `steps`+1 break points from `start` to 1, denser at 1, where y diverges (faster for small margins)."""
    return 1.0 - (1.0 - start) * (1.0 - np.linspace(0.0, 1.0, steps + 1)) ** break_exponent(kappa)


def break_exponent(kappa: float) -> float:
    """Return the exponent c of the break points 1−q ~ (1−t)^c for uniform t."""
    return 2.0 if kappa > 0.5 else 2.5


def grid_for(profile: Profile, power: int, kappa: float) -> Grid:
    """Return a grid whose step is at most the standard deviation of every interval.

    The last interval has a closed form, but its width is the scale on which G varies; one and a half of it suffices.
    """
    deviations = np.sqrt(np.diff(profile.q**power))
    smallest = min(deviations[:-1].min(), 1.5 * deviations[-1])
    return Grid(kappa, float(np.clip(smallest, _SMALLEST_GRID_STEP, GRID_STEP)))


def refined(profile: Profile, steps: int, kappa: float) -> Profile:
    """Return `profile` interpolated to `steps` intervals with y > 0; ln y is piecewise linear in ln[x/(1−x)].

    x is q, rescaled to begin with 0 where y > 0 begins. The variable keeps power laws when it extrapolates at the ends.
    """
    zeros = int(profile.y[0] == 0)
    start = float(profile.q[zeros])
    q = break_points(steps, start, kappa)
    logs = np.log(profile.y[zeros:])
    old, new = (_logits((points - start) / (1 - start)) for points in (profile.q[zeros:], q))
    values = np.interp(new, old, logs)
    for end, inner, beyond in ((0, 1, new < old[0]), (-1, -2, new > old[-1])):
        rate = min((logs[inner] - logs[end]) / (old[inner] - old[end]), 1.0)
        values[beyond] = logs[end] + rate * (new[beyond] - old[end])
    padding = np.zeros(zeros)
    return Profile(np.append(padding, q), np.append(padding, np.exp(values)))


def divided(profile: Profile, interval: int, power: int) -> Profile:
    """Return `profile` with one interval halved in variance, and values on both halves that differ."""
    f = profile.q**power
    q = np.insert(profile.q, interval + 1, (0.5 * (f[interval] + f[interval + 1])) ** (1 / power))
    if interval == 0:
        return Profile(q, np.insert(profile.y, 1, 0.3 * profile.y[1]))
    y = np.insert(profile.y, interval, profile.y[interval])
    y[interval] = max(0.7 * y[interval], 0.5 * (y[interval - 1] + y[interval]))
    y[interval + 1] *= 1.4
    if interval + 2 < len(y):
        y[interval + 1] = min(y[interval + 1], 0.5 * (profile.y[interval] + y[interval + 2]))
    return Profile(q, y)


def minimize_values(profile: Profile, power: int, kappa: float, rounds: int = _ROUNDS) -> Evaluation:
    """Minimize ln α over the values y > 0 at fixed break points, and over q_0 if y[0] = 0, from those of `profile`.

    Rounds in the logarithms of the increments of y, which vary over orders of magnitude, alternate with rounds in the
    increments themselves, which can leave and reach 0.
    """
    grid = grid_for(profile, power, kappa)
    result = evaluate(profile, power, grid)
    for _ in range(rounds):
        before = result.log_alpha
        for logarithmic in (True, False):
            trial = _value_round(result.profile, power, grid, logarithmic)
            result = min(result, trial, key=_log_alpha)
        if before - result.log_alpha < _ROUND_GAIN:
            break
    return result


def _value_round(profile: Profile, power: int, grid: Grid, logarithmic: bool) -> Evaluation:
    """Return the result of one minimization over the increments of y or over their logarithms.

    If y = 0 up to a first break point q_0, then ln(1−q_0) is a variable too; it scales the distances of all break
    points from 1.
    """
    zeros = int(profile.y[0] == 0)
    values = profile.y[zeros:]
    increments = np.diff(values, prepend=0.0)
    scale = np.maximum(increments, (1e-3 if logarithmic else 3e-2) * values)
    lowest, highest = _INCREMENT_RANGE
    remainders = 1 - profile.q

    def profile_of(variables: Array) -> Profile:
        changes = variables[: len(values)]
        y = np.append(np.zeros(zeros), np.cumsum(np.exp(changes) if logarithmic else changes * scale))
        moved = 1 - remainders[zeros:] * np.exp(variables[-1]) if zeros else profile.q
        return Profile(np.append(np.zeros(zeros), moved), y)

    def objective(variables: Array) -> tuple[float, Array]:
        trial = profile_of(variables)
        result = evaluate(trial, power, grid, values_only=not zeros)
        factor = np.exp(variables[: len(values)]) if logarithmic else scale
        gradient = np.cumsum(result.y_gradient[::-1])[::-1][zeros:] * factor
        if zeros:
            gradient = np.append(gradient, -result.q_gradient @ (1 - trial.q[1:-1]))
        return result.log_alpha, gradient

    if logarithmic:
        limits = [(np.log(lowest), np.log(highest))] * len(scale)
        start = np.log(scale)
    else:
        # The first value stays positive.
        limits = [(lowest / scale[0], highest / scale[0]), *((0.0, highest / unit) for unit in scale[1:])]
        start = increments / scale
    if zeros:
        limits.append((-0.7, float(np.log((1 - _SMALLEST_BREAK_POINT) / remainders[1]))))
        start = np.append(start, 0.0)
    return evaluate(profile_of(_minimum(objective, start, limits)), power, grid)


def minimize_steps(profile: Profile, power: int, kappa: float) -> Evaluation:
    """Minimize ln α over the values y and the break points, with y[0] = 0 kept, from `profile`.

    The variances of the intervals are shares of a softmax with a lower limit, so that break points stay in order and
    apart.
    """
    grid = Grid(kappa)
    count = len(profile.y)
    floor = grid.step**2
    free = 1 - count * floor

    def profile_of(variables: Array) -> tuple[Profile, Array, Array]:
        increments = np.exp(variables[: count - 1])
        logits = np.append(variables[count - 1 :], 0.0)
        shares = np.exp(logits - logits.max())
        shares /= shares.sum()
        inner = np.cumsum(floor + free * shares)[:-1] ** (1 / power)
        return Profile(np.concatenate([[0.0], inner, [1.0]]), np.append(0.0, np.cumsum(increments))), increments, shares

    def objective(variables: Array) -> tuple[float, Array]:
        trial, increments, shares = profile_of(variables)
        result = evaluate(trial, power, grid)
        by_increment = np.cumsum(result.y_gradient[:0:-1])[::-1] * increments
        by_f = result.q_gradient / (power * trial.q[1:-1] ** (power - 1))
        # The share of an interval moves all break points from its right end on.
        by_share = np.append(np.cumsum(by_f[::-1])[::-1], 0.0)
        by_logit = free * shares * (by_share - shares @ by_share)
        return result.log_alpha, np.append(by_increment, by_logit[:-1])

    shares = np.maximum((np.diff(profile.q**power) - floor) / free, 1e-6)
    increments = np.maximum(np.diff(profile.y), 1e-3 * profile.y[1:])
    start = np.log(np.append(increments, shares[:-1] / shares[-1]))
    limits = [tuple(np.log(_INCREMENT_RANGE))] * (count - 1) + [(-14.0, 14.0)] * (count - 1)
    return evaluate(profile_of(_minimum(objective, start, limits))[0], power, grid)


def _first_guess(kappa: float, power: int, steps: int) -> Profile:
    """Return a profile around one step of RSB.

    For s = 1 the profile has y = 0 up to the q_0 of a single step.
    """
    start, height = 0.0, max(one_step(kappa, power)[1], 1e-3)
    if power == 1:
        single = few_steps(kappa, power, 1).profile
        start, height = float(single.q[1]), float(single.y[1])
    q = break_points(steps, start, kappa)
    x = 0.5 * (q[1:] + q[:-1]) - start
    y = height * x / (1 - start) / np.sqrt(1 - (x / (1 - start)) ** 2)
    padding = np.zeros(int(start > 0))
    return Profile(np.append(padding, q), np.append(padding, y))


def _best(starts: list[Profile], power: int, kappa: float) -> Evaluation:
    """Return the lowest of the minima that are reached from `starts`."""
    return min((minimize_steps(start, power, kappa) for start in starts), key=_log_alpha)


def grid_change(result: Evaluation, power: int) -> float:
    """Return the change of ln α on a grid of half the step and a wider window, after checking that it is small."""
    grid = grid_for(result.profile, power, result.kappa)
    finer = evaluate(result.profile, power, replace(grid, step=grid.step / 2, widening=2.0), values_only=True)
    change = abs(finer.log_alpha - result.log_alpha)
    require(
        change < _GRID_TOLERANCE,
        f"ln(alpha) must not depend on the grid at kappa_bar = {result.kappa:.4g}, got a change of {change:.1e}",
    )
    return change


def _log_alpha(result: Evaluation) -> float:
    """Return ln α of `result`, infinity if it is not a number."""
    return result.log_alpha if np.isfinite(result.log_alpha) else np.inf


def _logits(points: Array) -> Array:
    """Return ln[x/(1−x)] at the middles of the intervals between `points`."""
    middles = 0.5 * (points[1:] + points[:-1])
    return np.log(middles / (1 - middles))


def _minimum(objective: _Objective, start: Array, limits: list[tuple[float, float]]) -> Array:
    """Return the minimizer within `limits` of an `objective` that returns value and gradient."""
    from scipy.optimize import minimize  # noqa: PLC0415 (slow to import)

    options = {"maxiter": 150, "maxfun": 300, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 40}
    lowest, highest = np.array(limits).T
    result = minimize(
        objective, np.clip(start, lowest, highest), jac=True, method="L-BFGS-B", bounds=limits, options=options
    )
    return result.x
