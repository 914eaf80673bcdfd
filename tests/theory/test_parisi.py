"""Parisi's functional against quadrature, Monte Carlo, closed forms and finite differences."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from qcqpbench.theory import margin_integral
from qcqpbench.theory.closed_forms import one_step
from qcqpbench.theory.parisi import Array, Grid, LastStep, Profile, evaluate

STEPS = Profile(np.array([0.0, 0.3, 0.6, 0.85, 1.0]), np.array([0.2, 0.7, 1.5, 4.0]))
GRID = Grid(0.5)


def differences(function: Callable[[Array], float], point: Array, step: float = 1e-5) -> Array:
    """Return the central differences of a function of several variables."""
    units = step * np.eye(len(point))
    return np.array([(function(point + unit) - function(point - unit)) / (2 * step) for unit in units])


def nested_quadrature(kappa: float, q: float, heights: tuple[float, float], power: int) -> float:
    """Return G(0, 0) of a profile of two steps, with Gauss–Hermite sums over the kinked G(1, h) itself."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    fine = np.linspace(-9, 9, 20001)
    density = norm.pdf(fine) * (fine[1] - fine[0])
    outer = []
    for node in nodes:
        h = node * np.sqrt(q**power)
        ends = np.maximum(kappa - h - fine * np.sqrt(1 - q**power), 0.0)
        outer.append(-np.log(density @ np.exp(-heights[1] * ends**2 / (2 * power))) / heights[1])
    return float(-np.log(weights @ np.exp(-heights[0] * np.array(outer))) / heights[0])


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kappa", [-1.5, 0.0, 0.7, 3.0])
def test_vanishing_y_gives_replica_symmetry(kappa: float, power: int) -> None:
    profile = Profile(np.array([0.0, 0.5, 1.0]), np.array([0.0, 1e-7]))
    result = evaluate(profile, power, Grid(kappa))
    assert result.alpha == pytest.approx(power / margin_integral(kappa), rel=1e-6)
    # Replica symmetry has α = s/I, so its slope is −I'/I.
    slope = -2 * (kappa * norm.cdf(kappa) + norm.pdf(kappa)) / margin_integral(kappa)
    assert result.slope == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kappa", [-0.8, 0.3, 2.0])
def test_two_steps_agree_with_nested_quadrature(kappa: float, power: int) -> None:
    q, heights = 0.6, (0.8, 3.0)
    result = evaluate(Profile(np.array([0.0, q, 1.0]), np.array(heights)), power, Grid(kappa))
    inner = 1 + heights[1] * (1 - q)
    entropy = 0.5 * (np.log(inner) / heights[1] + np.log(1 + heights[0] * q / inner) / heights[0])
    assert result.alpha == pytest.approx(entropy / nested_quadrature(kappa, q, heights, power), rel=1e-7)


def test_three_steps_agree_with_monte_carlo() -> None:
    """Estimate G(0, 0) of three steps by nested sampling of the fields, which knows no grid and no closed form."""
    profile = Profile(np.array([0.0, 0.4, 0.7, 1.0]), np.array([0.5, 1.0, 2.0]))
    rng = np.random.default_rng(3)
    deviations = np.sqrt(np.diff(profile.q**2))
    h = np.zeros(1)
    for deviation, count in zip(deviations, (1000, 80, 80), strict=True):
        samples = rng.standard_normal((*h.shape, count // 2))
        h = h[..., None] + deviation * np.concatenate([samples, -samples], axis=-1)
    value = np.maximum(0.3 - h, 0.0) ** 2 / 4
    for y in profile.y[::-1]:
        value = -np.log(np.exp(-y * value).mean(axis=-1)) / y
    result = evaluate(profile, 2, Grid(0.3))
    assert profile.entropy() / result.alpha == pytest.approx(float(value[0]), rel=0.01)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kappa", [-1.5, -0.5, 1.2])
def test_equal_values_give_the_closed_form_of_one_step(kappa: float, power: int) -> None:
    # Where replica symmetry is stable the height is tiny, and rounding errors are divided by it.
    alpha, height = one_step(kappa, power)
    for q in ([0.0, 0.5, 1.0], [0.0, 0.2, 0.5, 0.6, 0.9, 1.0]):
        profile = Profile(np.array(q), np.full(len(q) - 1, height))
        assert evaluate(profile, power, Grid(kappa)).alpha == pytest.approx(alpha, rel=1e-9)


@pytest.mark.parametrize("interval", range(4))
def test_dividing_an_interval_of_equal_y_changes_nothing(interval: int) -> None:
    q = np.insert(STEPS.q, interval + 1, STEPS.q[interval : interval + 2].mean())
    divided = Profile(q, np.insert(STEPS.y, interval, STEPS.y[interval]))
    before, after = evaluate(STEPS, 2, GRID), evaluate(divided, 2, GRID)
    assert after.log_alpha == pytest.approx(before.log_alpha, abs=1e-11)
    assert after.slope == pytest.approx(before.slope, abs=1e-10)
    np.testing.assert_allclose(after.share_bracket, before.share_bracket, atol=1e-10)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kappa", [-0.5, 0.0, 0.5, 2.5])
def test_gradients_agree_with_finite_differences(kappa: float, power: int) -> None:
    grid = Grid(kappa)
    result = evaluate(STEPS, power, grid)
    by_y = differences(lambda y: evaluate(Profile(STEPS.q, y), power, grid).log_alpha, STEPS.y)
    np.testing.assert_allclose(result.y_gradient, by_y, atol=1e-8)

    def at_break_points(inner: Array) -> float:
        return evaluate(Profile(np.concatenate([[0.0], inner, [1.0]]), STEPS.y), power, grid).log_alpha

    np.testing.assert_allclose(result.q_gradient, differences(at_break_points, STEPS.q[1:-1]), atol=1e-8)
    by_kappa = differences(lambda x: evaluate(STEPS, power, Grid(float(x[0]))).log_alpha, np.array([kappa]))
    assert result.slope == pytest.approx(float(by_kappa[0]), abs=1e-8)


def test_gradients_of_large_values_agree_with_finite_differences() -> None:
    """Use values that shift the weight of the Gaussians by more than the reach of their discretization."""
    q, y = np.array([0.0, 0.982, 0.990, 0.995, 0.998, 0.9997, 1.0]), np.array([0.0, 40.0, 130.0, 250.0, 500.0, 1400.0])
    grid = Grid(-0.1, 0.015)
    result = evaluate(Profile(q, y), 1, grid)
    assert result.density.sum() == pytest.approx(1, abs=1e-10)

    def of_logarithms(logs: Array) -> float:
        return evaluate(Profile(q, np.append(0.0, np.exp(logs))), 1, grid).log_alpha

    expected = differences(of_logarithms, np.log(y[1:]), step=1e-3)
    np.testing.assert_allclose(result.y_gradient[1:] * y[1:], expected, atol=1e-9)
    finer = evaluate(Profile(q, y), 1, Grid(-0.1, 0.004, 2.0))
    np.testing.assert_allclose(result.y_gradient[1:] * y[1:], finer.y_gradient[1:] * y[1:], atol=1e-9)


def test_gradients_of_small_values_agree_with_finite_differences() -> None:
    """Use a value of y for which the difference quotient of G would cancel."""
    y = np.array([5e-5, 8e-5, 1.0, 2.0])
    by_y = differences(lambda y: evaluate(Profile(STEPS.q, y), 2, GRID).log_alpha, y, step=2e-5)
    np.testing.assert_allclose(evaluate(Profile(STEPS.q, y), 2, GRID).y_gradient, by_y, atol=1e-5)


def test_skipping_slopes_leaves_the_value() -> None:
    full, short = evaluate(STEPS, 2, GRID), evaluate(STEPS, 2, GRID, values_only=True)
    assert full.log_alpha == short.log_alpha
    assert np.array_equal(full.y_gradient, short.y_gradient)
    assert np.isnan(short.slope)


@pytest.mark.parametrize("kappa", [-2.0, 0.0, 6.0])
def test_grid_and_window_do_not_matter(kappa: float) -> None:
    """Use large values as well, for which exp(−yG) underflows left of the margin."""
    for y in (STEPS.y, np.array([20.0, 50.0, 100.0, 900.0])):
        profile = Profile(STEPS.q, y)
        reference = evaluate(profile, 2, Grid(kappa, 0.005, 4.0))
        result = evaluate(profile, 2, Grid(kappa))
        assert result.log_alpha == pytest.approx(reference.log_alpha, abs=1e-9)
        assert result.density.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("kappa", [-1.0, 0.0, 0.4, 2.0])
def test_last_step_agrees_with_quadrature(kappa: float) -> None:
    y, variance, slope = 3.0, 0.4, 2.0
    step = LastStep.of(np.array([kappa]), y, variance, slope)

    def tilted(z: float) -> float:
        return norm.pdf(z) * np.exp(-y * max(kappa - z * np.sqrt(variance), 0) ** 2 / (2 * slope))

    border = kappa / np.sqrt(variance)
    below, above = quad(tilted, -12, border, epsabs=1e-14)[0], quad(tilted, border, 12, epsabs=1e-14)[0]
    assert step.value[0] == pytest.approx(-np.log(below + above) / y, abs=1e-11)
    assert step.below[0] == pytest.approx(below / (below + above), abs=1e-11)
    moved = differences(lambda d: float(LastStep.of(d, y, variance, slope).value[0]), np.array([kappa]))
    assert step.slope[0] == pytest.approx(-moved[0], abs=1e-9)


def test_distribution_of_stabilities_is_normalized_and_consistent() -> None:
    result = evaluate(STEPS, 2, GRID)
    assert result.active_probability + result.tail(0.0) == pytest.approx(1, abs=1e-10)
    integral = quad(result.density_above, 0.2, 0.9, epsabs=1e-12)[0]
    assert integral == pytest.approx(result.tail(0.2) - result.tail(0.9), abs=1e-10)


@pytest.mark.parametrize("kappa", [0.0, 0.2, 1.0, 3.0])
def test_any_y_raises_the_classical_capacity_bound_for_positive_margins(kappa: float) -> None:
    """Check that replica symmetry is exact for s = 1 and κ ≥ 0: δlnα/δy ≥ 0 at y = 0, and α grows with any y."""
    q = np.linspace(0, 1, 12)
    flat = evaluate(Profile(q, np.full(11, 1e-4)), 1, Grid(kappa))
    assert (flat.y_gradient > -1e-8).all()
    rng = np.random.default_rng(0)
    for _ in range(10):
        profile = Profile(q, np.cumsum(rng.exponential(10 ** rng.uniform(-2, 1), 11)))
        assert evaluate(profile, 1, Grid(kappa)).alpha > 1 / margin_integral(kappa)


@pytest.mark.parametrize("kappa", [-1.0, 0.0, 1.0, 4.0])
def test_replica_symmetry_of_the_covariance_perceptron_is_unstable(kappa: float) -> None:
    """Compare δlnα/δy at y = 0 with its closed form at the end q = 1, where the replicon is the derivative."""
    q = np.linspace(0, 1, 41)
    gradient = evaluate(Profile(q, np.full(40, 1e-6)), 2, Grid(kappa)).y_gradient / np.diff(q)
    assert (gradient < 0).all()
    # The functional derivative is 0 at q = 1 and has the slope of the replicon there.
    replicon = 2 * norm.cdf(kappa) / margin_integral(kappa)
    slope = (gradient[-1] - gradient[-2]) / (q[1] - q[0])
    assert slope == pytest.approx(replicon, rel=0.15)
