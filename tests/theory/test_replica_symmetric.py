import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from qcqpbench import QcqpbenchError, theory

# Computed once with mpmath to 60 digits, by quadrature of the definition.
INTEGRAL = {
    -10: 1.452927695711980294e-25,
    -8: 1.8075064471458499252e-17,
    -5: 1.9343295187553163976e-8,
    -3.5: 0.000027945864560546502032,
    -2.5: 0.0011993223779556365552,
    -2.0001: 0.0057670288014798895656,
    -2: 0.0057687267145199321003,
    -1.9999: 0.0057704250825626153983,
    -1.5: 0.022847010624951123093,
    -1: 0.075339783343770753032,
    -0.5: 0.20963926002533388157,
    -0.1: 0.42507862960249955217,
    0: 0.5,
    0.1: 0.58492137039750044783,
    0.5: 1.0403607399746661184,
    1: 1.924660216656229247,
    2: 4.9942312732854800679,
    3.7: 14.689988108916254947,
    5: 25.999999980656704812,
    8: 64.999999999999999982,
    20: 401,
    37.5: 1407.25,
    60: 3601,
}
# κ̄ by P̂ for n = 2, computed with mpmath by bisection.
KAPPA_BAR = {
    0.001: 44.7101778122163142,
    0.01: 14.106735979665884425,
    0.1: 4.358899007195788532,
    0.25: 2.645889290410312642,
    0.5: 1.7355777028354601503,
    1.0: 1.034314061368960934,
    1.5: 0.69123436092244085164,
    2.0: 0.47065535261832459512,
    2.5: 0.31057844770281177414,
    3.0: 0.18610815067476284154,
    3.5: 0.08490318137600098369,
    4.0: 0.0,
    5.0: -0.13660016553543777364,
    8.0: -0.40523380736278681655,
    100.0: -1.5514964698381201225,
    1e6: -4.0932493066743816636,
    1e25: -9.9688950895800158516,
}
# To four digits, from the specification.
PUBLISHED = {0.1: 4.3589, 0.25: 2.6459, 0.5: 1.7356, 1: 1.0343, 1.5: 0.6912, 2: 0.4707, 2.5: 0.3106, 3: 0.1861}

kappas = st.floats(-10, 60)


def test_integral_agrees_with_mpmath() -> None:
    np.testing.assert_allclose(theory.margin_integral(list(INTEGRAL)), list(INTEGRAL.values()), rtol=1e-13)


@pytest.mark.parametrize("kappa", np.linspace(-6, 12, 37))
def test_integral_agrees_with_quadrature(kappa: float) -> None:
    density = np.exp(-(kappa**2) / 2) / np.sqrt(2 * np.pi) if kappa < 0 else 1 / np.sqrt(2 * np.pi)

    def integrand(s: float) -> float:
        """Return s² φ(s−κ̄), without the factor e^{−κ̄²/2} where it is small."""
        return s * s * np.exp(-s * s / 2 + s * kappa if kappa < 0 else -((s - kappa) ** 2) / 2)

    expected, _ = quad(integrand, 0, max(kappa, 0) + 15, epsabs=0, epsrel=1e-13, limit=200, points=[max(kappa, 0.5)])
    assert theory.margin_integral(kappa) == pytest.approx(density * expected, rel=1e-12)


@given(kappas)
def test_integrals_of_opposite_margins_add_up(kappa: float) -> None:
    """Check I(κ̄) + I(−κ̄) = 1 + κ̄²."""
    total = theory.margin_integral(kappa) + theory.margin_integral(-kappa)
    assert total == pytest.approx(1 + kappa**2, rel=1e-13)


@given(kappas, st.floats(1e-6, 5))
def test_integral_increases_with_the_margin(kappa: float, step: float) -> None:
    assert theory.margin_integral(kappa + step) > theory.margin_integral(kappa)


@pytest.mark.parametrize(("load", "expected"), KAPPA_BAR.items())
@pytest.mark.parametrize("m", [100, 37])
def test_kappa_bar_agrees_with_mpmath(load: float, expected: float, m: int) -> None:
    """Use p patterns of load P̂ = p/(nm) for n = 2, and a quarter of them for n = 5 and the classical perceptron."""
    kappa_bars = [
        theory.covariance_kappa_bar(2 * m * load, m),
        theory.covariance_kappa_bar(2 * m * load / 4, m, 5),
        theory.classical_kappa_bar(2 * m * load / 4, m),
    ]
    np.testing.assert_allclose(kappa_bars, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("load", "expected"), PUBLISHED.items())
def test_kappa_bar_agrees_with_published_values(load: float, expected: float) -> None:
    assert theory.covariance_kappa_bar(200 * load, 100) == pytest.approx(expected, abs=5.1e-5)


@given(kappas, st.integers(1, 10**6), st.integers(2, 1000))
def test_kappa_bar_inverts_capacity(kappa: float, m: int, n: int) -> None:
    kappa_bars = [
        theory.covariance_kappa_bar(theory.covariance_capacity(kappa, m, n), m, n),
        theory.classical_kappa_bar(theory.classical_capacity(kappa, m), m),
    ]
    np.testing.assert_allclose(kappa_bars, kappa, rtol=1e-12, atol=1e-12)


def test_capacities_at_zero_margin_are_the_published_ones() -> None:
    assert theory.classical_capacity(0, 50) == pytest.approx(100)
    assert theory.covariance_capacity(0, 50) == pytest.approx(400)
    assert theory.covariance_capacity(0, 50, 5) == pytest.approx(100)
    assert theory.per_synapse(theory.covariance_capacity(0, 50), 50, 2) == pytest.approx(4)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_covariances_carry_more_patterns_for_few_outputs(n: int) -> None:
    covariance, classical = theory.covariance_capacity(0.7, 80, n), theory.classical_capacity(0.7, 80)
    assert covariance / classical == pytest.approx(4 / (n - 1), rel=1e-13)


def test_functions_are_vectorized() -> None:
    kappa, m, n = np.array([[0.0], [1.0], [-3.0]]), np.array([10, 20]), np.array([2, 3])
    for function in (theory.covariance_capacity, theory.covariance_information, theory.classical_information):
        table = function(kappa, m, n)
        expected = [[function(k, a, b) for a, b in ((10, 2), (20, 3))] for k in (0.0, 1.0, -3.0)]
        np.testing.assert_allclose(table, expected, rtol=1e-14)
    p = theory.covariance_capacity(kappa, m, n)
    np.testing.assert_allclose(theory.covariance_kappa_bar(p, m, n), np.broadcast_to(kappa, (3, 2)), atol=1e-12)
    assert np.ndim(theory.covariance_kappa_bar(10.0, 10)) == 0


# f − S(f), computed with mpmath.
@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (0, 0.0),
        (1e-300, 9.9757842846620872932e-298),
        (1e-12, 4.2305832179536589412e-11),
        (0.01, 0.090793135895911174413),
        (0.2, 0.92192809488736238118),
        (0.5, 1.5),
        (0.75, 1.5612781244591328639),
        (1, 1.0),
    ],
)
def test_bits_per_entry_agree_with_mpmath(f: float, expected: float) -> None:
    assert theory.bits_per_entry(f) == pytest.approx(expected, rel=1e-12)


def test_information_is_capacity_times_bits_of_a_pattern() -> None:
    """Use three inputs, so 3 entries with a sign each at f = 1, and two outputs, so one label; P = 4·3/(1/2) = 24."""
    assert theory.covariance_pattern_bits(3, 2) == pytest.approx(3 + 1)
    assert theory.covariance_information(0, 3, 2) == pytest.approx(24 * 4)
    assert theory.covariance_information(0, 3, 2, 0.5) == pytest.approx(24 * (3 * 1.5 + 1))
    assert theory.classical_information(0, 3, 2) == pytest.approx(6 * (3 + 2))


@given(st.integers(2, 2000), st.integers(2, 2000))
def test_information_ratio_agrees_with_its_closed_form(m: int, n: int) -> None:
    expected = 2 * (m * (m - 1) + n * (n - 1)) / ((n - 1) * (m + n))
    assert theory.information_ratio(m, n) == pytest.approx(expected, rel=1e-13)
    both = theory.covariance_information(1.3, m, n, 0.2), theory.classical_information(1.3, m, n)
    assert theory.information_ratio(m, n, 0.2) == pytest.approx(both[0] / both[1], rel=1e-13)


@pytest.mark.parametrize(
    ("m", "n", "limit"),
    [(10, 10**9, 2), (10**9, 10**9, 2), (10**9, 3, 2 * (10**9 - 1) / 2), (10**9, 2, 2 * (10**9 - 1))],
)
def test_information_ratio_has_the_limits_of_the_paper(m: int, n: int, limit: float) -> None:
    assert theory.information_ratio(m, n) == pytest.approx(limit, rel=1e-7)


def test_extreme_loads_neither_overflow_nor_warn() -> None:
    """Compare with I = κ̄², which holds to rounding at tiny loads."""
    p = np.array([1e-300, 1e-100, 1e-10])
    np.testing.assert_allclose(theory.covariance_kappa_bar(p, 100), np.sqrt(400 / p), rtol=1e-10)
    assert -38 < theory.covariance_kappa_bar(1e300, 100) < -36


@pytest.mark.parametrize("kappa", [np.inf, -1000.0, 1e300])
def test_extreme_margins_do_not_warn(kappa: float) -> None:
    assert theory.covariance_capacity(kappa, 100) == (np.inf if kappa < 0 else 0)


@pytest.mark.parametrize("p", [0, -1, np.nan, np.inf, [1.0, 0.0]])
def test_wrong_numbers_of_patterns_are_refused(p: float) -> None:
    for function in (theory.covariance_kappa_bar, theory.classical_kappa_bar):
        with pytest.raises(QcqpbenchError, match="p must be positive and finite"):
            function(p, 100)


@pytest.mark.parametrize("f", [-0.1, 1.1, np.nan])
def test_wrong_sparseness_is_refused(f: float) -> None:
    with pytest.raises(QcqpbenchError, match="f must be from 0 to 1"):
        theory.bits_per_entry(f)


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(QcqpbenchError, match="m must be at least 1, got 0"):
        theory.covariance_capacity(0, 0)
    with pytest.raises(QcqpbenchError, match="n must be at least 2 for covariances, got 1"):
        theory.covariance_capacity(0, 10, 1)
    with pytest.raises(QcqpbenchError, match="kappa_bar must be a number, got NaN"):
        theory.margin_integral([0.0, np.nan])
