"""Public functions with broken replica symmetry: known values, the shipped table, brackets, errors."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from qcqpbench import QcqpbenchError, theory
from qcqpbench.theory import replica_symmetric, tabulate_full_rsb
from qcqpbench.theory.broken_symmetry import full, full_at_load
from qcqpbench.theory.lookup import TABLE_PATH, read, table, write

LOADS = np.array([0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5])
FULL = np.array([4.35769, 2.64059, 1.71978, 0.99501, 0.63135, 0.39376, 0.21956, 0.08319, -0.02820])
ONE = np.array([4.35771, 2.64066, 1.72000, 0.99568, 0.63250, 0.39531, 0.22141, 0.08525, -0.02601])
SHARES = np.array([0.100, 0.248, 0.465, 0.741, 0.880, 0.949, 0.983, 0.996, 1])
# P(g > κ̄ + δ) for these δ, from an independent program with 20 steps, to ±.003.
EXCESSES = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.2])
TAILS = {
    0.5: [0.062, 0.056, 0.044, 0.027, 0.009, 0.003],
    1: [0.237, 0.218, 0.182, 0.125, 0.054, 0.021],
    2: [0.488, 0.456, 0.399, 0.302, 0.160, 0.075],
    3: [0.622, 0.587, 0.525, 0.418, 0.245, 0.128],
}


def test_full_breaking_has_the_known_margins() -> None:
    np.testing.assert_allclose(theory.covariance_kappa_bar(200 * LOADS, 100, rsb="full"), FULL, atol=1e-5)
    assert theory.covariance_capacity(0.0, 100, rsb="full") / 200 == pytest.approx(3.3645, abs=1e-4)


@pytest.mark.slow
def test_one_step_has_the_known_margins() -> None:
    np.testing.assert_allclose(theory.covariance_kappa_bar(200 * LOADS, 100, rsb=1), ONE, atol=6e-6)
    assert theory.covariance_capacity(0.0, 100, rsb=1) / 200 == pytest.approx(3.3747, abs=5e-5)


def test_zero_steps_are_replica_symmetry_to_the_last_bit() -> None:
    p, kappa = 100 * LOADS, np.linspace(-5, 8, 50)
    for name in ("covariance_kappa_bar", "classical_kappa_bar"):
        assert np.array_equal(getattr(theory, name)(p, 50), getattr(replica_symmetric, name)(p, 50))
    for name in ("covariance_capacity", "classical_capacity"):
        assert np.array_equal(getattr(theory, name)(kappa, 50, rsb=0), getattr(replica_symmetric, name)(kappa, 50))


def test_all_numbers_of_outputs_share_one_curve() -> None:
    kappa = [theory.covariance_kappa_bar(200 * LOADS / (n - 1), 100, n, rsb="full") for n in (2, 3, 5)]
    np.testing.assert_allclose(kappa[1:], [kappa[0]] * 2, atol=1e-12)
    capacities = theory.covariance_capacity(0.3, 100, np.array([2, 3, 5]), rsb="full")
    np.testing.assert_allclose(capacities * [1, 2, 4], capacities[0], rtol=1e-14)


def test_margin_inverts_capacity() -> None:
    kappa = np.linspace(-2.4, 15, 200)
    np.testing.assert_allclose(
        theory.covariance_kappa_bar(theory.covariance_capacity(kappa, 10, rsb="full"), 10, rsb="full"),
        kappa,
        atol=1e-11,
    )
    kappa = np.linspace(-2.4, 3, 50)
    np.testing.assert_allclose(
        theory.classical_kappa_bar(theory.classical_capacity(kappa, 10, rsb="full"), 10, rsb="full"), kappa, atol=1e-11
    )


def test_table_agrees_with_new_computations_of_entries() -> None:
    entries = [
        entry for entry in read(TABLE_PATH) if (entry.power, entry.kappa_bar) in {(2, 1.2), (2, -0.2), (1, -0.7)}
    ]
    assert len(entries) == 3
    for entry in entries:
        again = tabulate_full_rsb.tabulate(entry.kappa_bar, entry.power)
        assert again.log_alpha == pytest.approx(entry.log_alpha, abs=1e-7)
        assert again.slope == pytest.approx(entry.slope, abs=1e-4)
        assert again.share == pytest.approx(entry.share, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.13, 0.77, 1.83, 3.2, 4.2])
def test_table_agrees_with_computations_between_entries(load: float) -> None:
    computed = full_at_load(load, 2).kappa
    assert theory.covariance_kappa_bar(2 * load, 1, rsb="full") == pytest.approx(computed, abs=5e-7)


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [0.0, 0.7])
def test_error_bars_hold_for_twice_the_steps(kappa: float) -> None:
    change = table(2).log_alpha(np.array(kappa))[0] - full(kappa, 2, (5, 10, 20, 40)).log_alpha
    assert -1e-8 < change < table(2).error(np.array(kappa))


def test_error_bars_are_small_at_the_loads_of_the_suite() -> None:
    errors = theory.covariance_kappa_bar_error(2 * np.linspace(0.1, 4.25, 100), 1)
    assert (errors > 0).all()
    assert (errors < 1.2e-5).all()
    assert np.isnan(theory.covariance_kappa_bar_error(1e9, 1))


def test_table_covers_more_than_the_loads_of_the_suite() -> None:
    low, high = np.exp(table(2).log_alpha_range)
    assert low < 0.01
    assert high > 500
    for power in (1, 2):
        columns = np.array([(entry.kappa_bar, -entry.log_alpha) for entry in table(power).entries])
        assert (np.diff(columns, axis=0) > 0).all()


def test_table_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    write(read(TABLE_PATH), path)
    assert path.read_bytes() == TABLE_PATH.read_bytes()


def test_margins_from_the_table_take_milliseconds() -> None:
    theory.covariance_kappa_bar(200.0, 100, rsb="full")
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        theory.covariance_kappa_bar(200.0, 100, rsb="full")
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 5e-3


def test_margins_beyond_the_table_are_computed() -> None:
    load = 0.004
    kappa = theory.covariance_kappa_bar(2 * load, 1, rsb="full")
    symmetric = theory.covariance_kappa_bar(2 * load, 1)
    assert kappa == pytest.approx(symmetric - 1 / (10 * symmetric**3), abs=1e-6)
    assert theory.covariance_capacity(kappa, 1, rsb="full") == pytest.approx(2 * load, rel=1e-6)


def test_classical_perceptrons_break_symmetry_at_negative_margins_only() -> None:
    p = np.array([10.0, 100.0, 200.0])
    for rsb in (1, "full"):
        assert np.array_equal(theory.classical_kappa_bar(p, 100, rsb=rsb), theory.classical_kappa_bar(p, 100))
        kappa = np.array([0.0, 0.5, 3.0])
        assert np.array_equal(theory.classical_capacity(kappa, 7, rsb=rsb), theory.classical_capacity(kappa, 7))
    capacities = theory.classical_capacity(np.array([-1.5, -0.05, 0.0]), 1, rsb="full")
    # Two steps give 36.398 at −1.5; at −.05 the closed form of replica symmetry gives 2.16760.
    assert 36.3 < capacities[0] < 36.40
    assert 2.1675 < capacities[1] < 2.16760
    assert capacities[2] == pytest.approx(2)
    assert theory.classical_capacity(-1.5, 1) == pytest.approx(43.77, abs=5e-3)


@pytest.mark.parametrize("kappa", [-0.15, -0.02])
def test_classical_table_agrees_with_computations_between_entries(kappa: float) -> None:
    computed = full(kappa, 1).alpha
    assert theory.classical_capacity(kappa, 1, rsb="full") == pytest.approx(computed, rel=1e-6)


def test_shares_are_the_known_ones_and_inside_their_brackets() -> None:
    shares = theory.active_share(200 * LOADS, 100)
    lower, upper = theory.active_share_bracket(200 * LOADS, 100)
    np.testing.assert_allclose(shares, SHARES, atol=2e-3)
    assert (lower - 1e-9 <= shares).all()
    assert (shares <= upper + 1e-9).all()
    assert (upper - lower < 0.025).all()
    assert theory.active_share(1e3, 100) == 1
    # Replica symmetry and few steps put too many stabilities on the margin.
    assert theory.active_share(600, 100, rsb=0) > theory.active_share(600, 100, rsb=1) > shares[7]


@pytest.mark.parametrize("load", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_distribution_of_stabilities_is_the_known_one(load: float) -> None:
    distribution = theory.stability_density(200 * load, 100)
    assert distribution.kappa_bar == pytest.approx(theory.covariance_kappa_bar(200 * load, 100, rsb="full"), abs=1e-5)
    np.testing.assert_allclose(distribution.tail(distribution.kappa_bar + EXCESSES), TAILS[load], atol=3e-3)
    assert distribution.mass == pytest.approx(theory.active_share(200 * load, 100) / load, abs=5e-3)
    assert distribution.tail(distribution.kappa_bar) + distribution.mass == pytest.approx(1, abs=1e-9)
    assert distribution.tail(distribution.kappa_bar - 0.1) == 1
    assert distribution.density(distribution.kappa_bar - 0.1) == 0
    ends = distribution.kappa_bar + np.array([0.3, 1.1])
    integral = quad(distribution.density, *ends, epsabs=1e-10)[0]
    assert integral == pytest.approx(distribution.tail(ends[0]) - distribution.tail(ends[1]), abs=1e-8)
    assert repr(distribution).startswith("StabilityDistribution(kappa_bar=")


def test_profiles_increase() -> None:
    profile = theory.overlap_profile(200, 100)
    assert profile.q[0] == 0
    assert profile.q[-1] == 1
    assert (np.diff(profile.y) >= 0).all()
    assert theory.overlap_profile(200, 100, rsb=1).y[0] == 0


def test_ergodic_margin_is_a_function_of_the_constraints_per_direction() -> None:
    assert theory.ergodic_margin(200, 100) == pytest.approx(-0.14635, abs=1e-5)
    assert theory.ergodic_margin(50, 100, 5) == pytest.approx(theory.ergodic_margin(200, 100), abs=1e-12)


def test_arguments_are_broadcast() -> None:
    p, m, n = np.array([[100.0], [300.0]]), np.array([50, 100, 200]), np.array([2, 2, 3])
    for function in (theory.covariance_kappa_bar, theory.active_share):
        values = function(p, m, n, rsb="full")
        expected = [[function(a, b, c, rsb="full") for b, c in zip(m, n, strict=True)] for a in (100.0, 300.0)]
        np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert theory.classical_kappa_bar(p, m, rsb="full").shape == (2, 3)
    assert theory.classical_capacity(p / 300 - 0.5, m, rsb="full").shape == (2, 3)
    assert np.ndim(theory.covariance_kappa_bar(100, 50, rsb="full")) == 0


@pytest.mark.parametrize("rsb", [-1, 7, "half", None, 1.5, True])
def test_unknown_theories_are_refused(rsb: int) -> None:
    with pytest.raises(QcqpbenchError, match="rsb must be 'full' or a number of steps from 0 to 6, got"):
        theory.covariance_kappa_bar(100, 100, rsb=rsb)


def test_values_out_of_range_are_refused_in_one_line() -> None:
    with pytest.raises(QcqpbenchError, match=r"^p must be positive and finite, got 0.0$"):
        theory.covariance_kappa_bar(0, 100, rsb="full")
    with pytest.raises(
        QcqpbenchError, match=r"^p\(n-1\)/\(2m\) must be from 0.00125 to \d+ for rsb='full', got 5e\+06$"
    ):
        theory.covariance_kappa_bar(1e7, 1, rsb="full")
    with pytest.raises(QcqpbenchError, match=r"^p\(n-1\)/\(2m\) must be from 0.00125 to \d+ for rsb=1, got 5e-06$"):
        theory.active_share(1e-5, 1, rsb=1)
    with pytest.raises(QcqpbenchError, match=r"^p/m must be from .* for rsb='full', got 1e\+07$"):
        theory.classical_kappa_bar(1e7, 1, rsb="full")
    with pytest.raises(QcqpbenchError, match=r"^kappa_bar must be from -2.5 to 40 for rsb='full', got -3$"):
        theory.covariance_capacity(-3, 100, rsb="full")
    with pytest.raises(QcqpbenchError, match="n must be at least 2 for covariances, got 1"):
        theory.active_share(100, 100, 1)
    with pytest.raises(QcqpbenchError, match="rsb must be 'full' or at least 1 for a profile, got 0"):
        theory.overlap_profile(100, 100, rsb=0)


def test_table_command_names_its_argument() -> None:
    command = [sys.executable, "-W", "error", "-m", "qcqpbench.theory.tabulate_full_rsb"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "usage: python -m qcqpbench.theory.tabulate_full_rsb OUTPUT\n"


def test_importing_theory_imports_no_scipy() -> None:
    code = "import sys, qcqpbench.theory; print([name for name in sys.modules if name.startswith('scipy')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("power", [1, 2])
def test_full_breaking_from_the_symmetric_margin_is_that_at_the_same_load(power: int) -> None:
    kappa_bar: Any = [theory.classical_kappa_bar, theory.covariance_kappa_bar][power - 1]
    for p in (1, 10, 20, 21, 80, 500):
        full = theory.full_rsb_from_table(float(kappa_bar(p, 10)), power)
        assert full == pytest.approx(kappa_bar(p, 10, rsb="full"), abs=1e-11)


@pytest.mark.parametrize("kappa_bar_rs", [20.1, 1e300, np.inf, -2.6, -1e300, -np.inf])
def test_full_breaking_beyond_the_table_is_not_looked_up(kappa_bar_rs: float) -> None:
    assert theory.full_rsb_from_table(kappa_bar_rs, 2) is None
