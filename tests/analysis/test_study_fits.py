"""Arithmetic of the finite-size study: means, extrapolations and power laws against closed forms and repeated fits."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import curve_fit

from qcqpbench.analysis.studies.margins import margin_lines, size_means, theory_curves
from qcqpbench.analysis.studies.measurements.extrapolation import (
    Comparison,
    Mean,
    compare_limits,
    limit,
    mean_and_error,
    means,
    power_law,
)
from tests.support.figure_runs import measured_row

SIZES = (25, 50, 100, 200, 400)


def exact_means(true: float, slope: float, exponent: float, error: float = 1e-3) -> list[Mean]:
    return [Mean(m, 4, true + slope * m**-exponent, error) for m in SIZES]


def noisy_means(rng: np.random.Generator, exponent: float, error: float) -> list[Mean]:
    """Return means around 0.4 − 1.3 m^(−exponent)."""
    exact = exact_means(0.4, -1.3, exponent, error)
    return [Mean(size.m, size.sets, size.value + rng.normal(0, error), error) for size in exact]


@pytest.mark.parametrize("exponent", [1 / 2, 2 / 3, 1])
def test_limit_of_exact_means_is_recovered(exponent: float) -> None:
    fit = limit(exact_means(0.4, -1.3, exponent))
    assert fit is not None
    assert fit.low <= 0.4 <= fit.high
    if exponent == 2 / 3:
        assert fit.value == pytest.approx(0.4, abs=1e-12)
        assert fit.slope == pytest.approx(-1.3, abs=1e-10)
        assert fit.mismatch < 1e-8


def test_error_of_a_limit_is_the_scatter_of_repeated_fits() -> None:
    rng = np.random.default_rng(3)
    repeated = []
    for _ in range(400):
        fit = limit(noisy_means(rng, 2 / 3, 1e-3))
        assert fit is not None
        repeated.append((fit.value, fit.error if fit.mismatch < 1 else fit.error / fit.mismatch))
    values, errors = np.array(repeated).T
    assert np.std(values) == pytest.approx(errors[0], rel=0.12)
    assert np.mean(values) == pytest.approx(0.4, abs=4 * errors[0] / math.sqrt(400))


def test_two_sizes_have_no_limit() -> None:
    two = exact_means(0.4, 1, 1)[:2]
    assert limit(two) is None
    assert compare_limits(two, 0.4) is None


def test_deviations_follow_a_power_of_m() -> None:
    pair = np.array([-1.0, 1.0]) / math.sqrt(2)
    values = {m: (np.tile(pair, 8) / m).tolist() for m in (10, 20, 40)} | {80: [0.1]}
    sizes = means(values)
    deviation = float(np.std(np.tile(pair, 8), ddof=1))
    assert [size.m for size in sizes] == [10, 20, 40, 80]
    assert sizes[0].error == pytest.approx(deviation / 10 / 4)
    assert sizes[-1].error == pytest.approx(deviation / 80)


def test_standard_error_is_the_deviation_over_the_root_of_the_number() -> None:
    columns = mean_and_error("x", [1.0, 2.0, 3.0, 6.0])
    error = math.sqrt((4 + 1 + 0 + 9) / 3) / 2
    assert columns == pytest.approx({"x": 3, "x_low": 3 - error, "x_high": 3 + error})
    assert mean_and_error("x", [2.0]) == {"x": 2, "x_low": 2, "x_high": 2}


def compared(sizes: list[Mean], given_limit: float) -> Comparison:
    fits = compare_limits(sizes, given_limit)
    assert fits is not None
    return fits


@pytest.mark.parametrize("exponent", [0.4, 2 / 3, 1.2])
def test_power_law_of_exact_means_is_recovered(exponent: float) -> None:
    fits = compared(exact_means(0.4, -1.3, exponent), 0.4)
    assert fits.free is not None
    for fit in (fits.fixed, fits.free):
        assert fit.exponent == pytest.approx(exponent, abs=1e-5)
        assert fit.amplitude == pytest.approx(1.3, abs=1e-4)
        assert fit.limit == pytest.approx(0.4, abs=1e-5)
        assert fit.chi2 < 1e-6
        assert not fit.at_bound
    assert (fits.fixed.dof, fits.free.dof, fits.two_thirds.dof) == (3, 2, 4)
    assert fits.preferred == "fixed"


def test_power_laws_agree_with_curve_fit() -> None:
    sizes = noisy_means(np.random.default_rng(8), 0.7, 1e-3)
    fits = compared(sizes, 0.4)
    assert fits.free is not None
    m, values = np.array(SIZES, dtype=float), np.array([size.value for size in sizes])

    def fitted(function: Any, start: list[float]) -> tuple[list[float], list[float]]:
        best, covariance = curve_fit(function, m, values, start, np.full(5, 1e-3), absolute_sigma=True, ftol=1e-14)
        return best.tolist(), np.sqrt(np.diag(covariance)).tolist()

    best, errors = fitted(lambda m, a, omega: 0.4 - a * m**-omega, [1, 0.6])
    assert [fits.fixed.amplitude, fits.fixed.exponent] == pytest.approx(best, rel=1e-4)
    assert [fits.fixed.amplitude_error, fits.fixed.exponent_error] == pytest.approx(errors, rel=1e-3)
    assert fits.fixed.limit_error == 0
    best, errors = fitted(lambda m, end, a, omega: end - a * m**-omega, [0.4, 1, 0.6])
    free = fits.free
    assert [free.limit, free.amplitude, free.exponent] == pytest.approx(best, rel=1e-4)
    assert [free.limit_error, free.amplitude_error, free.exponent_error] == pytest.approx(errors, rel=1e-3)
    x = m ** (-2 / 3)
    amplitude = x @ (0.4 - values) / (x @ x)
    assert fits.two_thirds.amplitude == pytest.approx(amplitude)
    assert fits.two_thirds.chi2 == pytest.approx(((0.4 - amplitude * x - values) ** 2).sum() / 1e-6)


def test_errors_of_power_laws_are_the_scatter_of_repeated_fits() -> None:
    """Check the errors where the fits are nearly linear, and that a true limit is rejected in 5 % of the cases."""
    rng = np.random.default_rng(5)
    repeated = [compared(noisy_means(rng, 2 / 3, 2e-4), 0.4) for _ in range(300)]
    frees = [fits.free for fits in repeated if fits.free is not None]
    for fits in ([each.fixed for each in repeated], frees):
        assert np.std([fit.exponent for fit in fits]) == pytest.approx(fits[0].exponent_error, rel=0.15)
        assert np.std([fit.amplitude for fit in fits]) == pytest.approx(fits[0].amplitude_error, rel=0.15)
        assert np.mean([fit.chi2 for fit in fits]) == pytest.approx(fits[0].dof, rel=0.2)
    assert np.std([fit.limit for fit in frees]) == pytest.approx(frees[0].limit_error, rel=0.15)
    assert 0.02 < np.mean([fits.preferred == "free" for fits in repeated]) < 0.09


def test_wrong_limit_is_rejected() -> None:
    sizes = noisy_means(np.random.default_rng(2), 2 / 3, 1e-3)
    right, wrong = compared(sizes, 0.4), compared(sizes, 0.43)
    assert (right.preferred, wrong.preferred) == ("fixed", "free")
    assert wrong.delta_chi2 is not None
    assert wrong.delta_chi2 > 3.84
    assert wrong.free == right.free
    assert wrong.free is not None
    assert wrong.free.limit == pytest.approx(0.4, abs=4 * wrong.free.limit_error)


@pytest.mark.parametrize(("exponent", "bound"), [(3, 2), (0.1, 0.2)])
def test_exponent_at_its_bound_is_flagged(exponent: float, bound: float) -> None:
    fit = power_law(exact_means(0.4, -1.3, exponent), 0.4)
    assert fit.at_bound
    assert fit.exponent == bound
    assert math.isinf(fit.exponent_error)


def test_three_sizes_have_no_fitted_limit() -> None:
    fits = compared(exact_means(0.4, -1.3, 0.5)[:3], 0.4)
    assert (fits.free, fits.delta_chi2, fits.preferred) == (None, None, None)
    assert fits.fixed.exponent == pytest.approx(0.5, abs=1e-5)


def rows_with(kappa_bars: dict[str, list[float]], **values: Any) -> list[Any]:
    common: dict[str, Any] = {"kappa_bar_theory": 1.0, "label": "gip", "facts": {"m": 9}} | values
    return [
        measured_row(**common, problem_id=id, kappa_bar=value) for id, group in kappa_bars.items() for value in group
    ]


def test_agreement_is_counted_over_pairs_of_runs() -> None:
    """Check that the best run is not compared with itself."""
    rows = rows_with({"a": [0.5, 0.5, 0.4], "b": [0.3, 0.2, 0.1], "c": [0.2, 0.2, 0.2]})
    (line,) = margin_lines(rows, ensemble="gaussian", kappa_bar_theory=1.0)
    assert line["agree"] == pytest.approx((1 + 0 + 3) / 9)
    assert line["missed"] == pytest.approx((0.1 + 0.1 + 0.2) / 9)
    assert line["deficit"] == pytest.approx(1 - (0.5 + 0.3 + 0.2) / 3)


def test_margins_are_corrected_where_p_is_rounded() -> None:
    """Check that rows whose prediction is 0.01 above that of the nominal load lose 0.01."""
    rows = rows_with({"a": [0.5], "b": [0.3], "c": [0.2]}, kappa_bar_theory=1.01)
    (line,) = margin_lines(rows, ensemble="gaussian", kappa_bar_theory=1.0)
    assert line["kappa_bar"] == pytest.approx(1 / 3 - 0.01)
    assert line["deficit"] == pytest.approx(1.01 - 1 / 3)
    assert line["deficit_low"] < line["deficit"] < line["deficit_high"]


def test_sizes_with_a_set_at_an_attainable_margin_are_not_fitted() -> None:
    """Check that one set at margin 0 leaves out its size, unless 0 is attainable by no trivial point."""
    rows = rows_with({"a": [0.0], "b": [0.3], "c": [0.2]}) + rows_with(
        {"d": [0.1], "e": [0.3], "f": [0.2]}, facts={"m": 18}
    )
    for ensemble, fitted in (("gaussian", [9, 18]), ("paper", [18])):
        sizes = size_means(rows, ensemble, 1.0)
        assert [size.m for size in sizes.all] == [9, 18]
        assert [size.m for size in sizes.fitted] == fitted


def test_theories_are_those_of_the_page_about_theory() -> None:
    first, *_, last = theory_curves(0.5, 3)
    assert first["kappa_bar_theory"] == pytest.approx(1.71978, abs=1e-5)
    assert last["kappa_bar_theory"] == pytest.approx(0.08319, abs=1e-5)
    assert first["difference"] == pytest.approx(1.7356 - 1.71978, abs=1e-4)
    assert last["kappa_bar_rs"] == pytest.approx(0.1861, abs=1e-4)
