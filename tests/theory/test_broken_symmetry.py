"""Minima of Parisi's functional against published values, asymptotics and refinement."""

import numpy as np
import pytest

from qcqpbench.theory import margin_integral
from qcqpbench.theory.broken_symmetry import (
    divided,
    few_steps,
    full,
    full_at_load,
    full_refinements,
    grid_change,
    minimize_values,
    one_step_margin,
    refined,
)
from qcqpbench.theory.closed_forms import ergodic_limit, one_step, replicon
from qcqpbench.theory.parisi import Profile

# Margins of one step with q_0 = 0 by load, computed independently.
ONE_STEP = {0.1: 4.35777, 0.25: 2.64090, 0.5: 1.72065, 1: 0.99700, 1.5: 0.63413, 2: 0.39699, 3: 0.08671, 3.5: -0.02471}


@pytest.mark.parametrize(("load", "expected"), ONE_STEP.items())
def test_closed_form_of_one_step_has_the_known_margins(load: float, expected: float) -> None:
    assert one_step_margin(load, 2) == pytest.approx(expected, abs=6e-6)


def test_closed_form_of_one_step_has_the_known_capacities() -> None:
    assert one_step(0.0, 2)[0] == pytest.approx(3.3810, abs=5e-5)
    assert one_step(-1.5, 1)[0] == pytest.approx(37.36, abs=5e-3)
    assert one_step(0.5, 1)[0] == pytest.approx(1 / margin_integral(0.5), rel=1e-5)


@pytest.mark.parametrize(("steps", "expected"), [(1, 36.57), (2, 36.40)])
def test_few_steps_give_the_known_classical_capacities(steps: int, expected: float) -> None:
    result = few_steps(-1.5, 1, steps)
    assert result.alpha == pytest.approx(expected, abs=5e-3)
    # At the optimum no value and no break point can improve.
    np.testing.assert_allclose(result.y_gradient[1:] * result.profile.y[1:], 0, atol=1e-6)
    np.testing.assert_allclose(result.q_gradient, 0, atol=1e-5)


@pytest.mark.parametrize(("kappa", "tolerance"), [(0.0, 1e-4), (0.995, 1e-4)])
def test_every_step_lowers_the_capacity_towards_full_breaking(kappa: float, tolerance: float) -> None:
    alphas = [2 / margin_integral(kappa), one_step(kappa, 2)[0], few_steps(kappa, 2, 1).alpha]
    alphas += [few_steps(kappa, 2, 2).alpha, full(kappa, 2).alpha]
    assert alphas == sorted(alphas, reverse=True)
    assert alphas[2] - alphas[4] > tolerance


def test_full_breaking_has_the_known_capacity() -> None:
    assert full(0.0, 2).alpha == pytest.approx(3.3645, abs=1e-4)


@pytest.mark.slow
def test_classical_refinement_with_a_free_first_break_point_converges() -> None:
    """Check that full breaking is below four steps with free break points, and that y jumps to a plateau at q_0."""
    results = full_refinements(-1.5, 1, (5, 10, 20))
    changes = -np.diff([result.log_alpha for result in results])
    assert (changes > 0).all()
    assert changes[1] < changes[0] / 3
    assert results[-1].alpha < few_steps(-1.5, 1, 4).alpha
    assert results[-1].profile.y[0] == 0
    assert 0.36 < results[-1].profile.q[1] < 0.39


def test_refinement_converges_from_above() -> None:
    results = full_refinements(0.2, 2, (5, 10, 20))
    changes = -np.diff([result.log_alpha for result in results])
    assert (changes > 0).all()
    assert changes[1] < changes[0] / 4
    assert grid_change(results[-1], 2) < 1e-8


@pytest.mark.parametrize("kappa", [6.0, 9.0])
def test_large_margins_have_the_asymptotic_profile(kappa: float) -> None:
    """Check y → 3q/κ² and ln α → ln α_RS − 1/(5κ⁴), derived in docs/background/theory.md for κ → ∞."""
    result = full(kappa, 2)
    correction = np.log(result.alpha * margin_integral(kappa) / 2)
    assert correction == pytest.approx(-1 / (5 * kappa**4), rel=6 / kappa**2)
    middles = 0.5 * (result.profile.q[1:] + result.profile.q[:-1])
    inner = (middles > 0.2) & (middles < 0.9)
    np.testing.assert_allclose(result.profile.y[inner] * kappa**2, 3 * middles[inner], rtol=0.1)


def test_solution_at_a_load_has_that_load() -> None:
    result = full_at_load(1.0, 2)
    assert result.alpha == pytest.approx(1.0, abs=1e-9)
    assert result.kappa == pytest.approx(0.99501, abs=1e-5)
    assert (np.diff(result.profile.y) >= 0).all()
    # Full breaking is the stationary point of the functional.
    np.testing.assert_allclose(result.y_gradient * result.profile.y, 0, atol=1e-5)


def test_minimization_does_not_depend_on_the_start() -> None:
    q = 1 - (1 - np.linspace(0, 1, 11)) ** 2
    results = [
        minimize_values(Profile(q, height * np.linspace(0.1, 1, 11)[1:] ** power), 2, 0.7)
        for height, power in ((0.3, 0), (3.0, 1), (60.0, 3))
    ]
    np.testing.assert_allclose([result.log_alpha for result in results], results[0].log_alpha, atol=1e-8)


def test_profiles_keep_their_shape_when_refined_and_divided() -> None:
    profile = full(0.7, 2, (5, 10)).profile
    finer = refined(profile, 40, 0.7)
    assert (np.diff(finer.y) > 0).all()
    assert (finer.y * finer.lengths).sum() == pytest.approx((profile.y * profile.lengths).sum(), rel=0.15)
    profile = few_steps(0.7, 2, 2).profile
    for interval in range(3):
        parts = divided(profile, interval, 2)
        assert len(parts.y) == 4
        assert (np.diff(parts.q) > 0).all()
        assert (np.diff(parts.y) >= 0).all()


def test_ergodic_limits_are_the_known_ones() -> None:
    limits = ergodic_limit([0.1, 0.25, 0.5, 1, 2, 3])
    np.testing.assert_allclose(limits, [1.844, 0.860, 0.303, -0.146, -0.518, -0.708], atol=6e-4)
    # φ/Φ(−κ) = 1/√(2α) at the limit; at κ = 0 the hazard is √(2/π).
    assert ergodic_limit(np.pi / 4) == pytest.approx(0, abs=1e-12)
    assert np.isfinite(ergodic_limit([1e-12, 1e-3, 1e3, 1e12])).all()


def test_replicon_changes_sign_at_zero_margin_for_means_and_never_for_covariances() -> None:
    kappa = np.linspace(-3, 6, 50)
    assert (replicon(kappa, 2) > 0).all()
    assert ((replicon(kappa, 1) < 0) == (kappa > 0)).all()
    assert replicon(0.0, 1) == pytest.approx(0, abs=1e-14)
