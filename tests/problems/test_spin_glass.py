"""Spin glasses against brute force, theory and a global solver."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize
from scipy.special import log_ndtr

from qcqpbench import QCQP, QcqpbenchError, problem, rng, solve
from qcqpbench.catalog.registry import family


def spin_glass(n: int, seed: int = 0) -> QCQP:
    instance = problem(f"spin_glass[n={n},seed={seed}]")
    assert isinstance(instance, QCQP)
    return instance


def couplings(n: int, seed: int) -> NDArray[np.float64]:
    """Return the symmetric matrix of couplings; they are drawn by row of the strict lower triangle."""
    drawn = iter(rng.normals(rng.stream(seed, "patterns"), np.empty(n * (n - 1) // 2)).tolist())
    J = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            J[i, j] = J[j, i] = next(drawn) / math.sqrt(n)
    return J


@pytest.mark.parametrize(("n", "seed"), [(2, 0), (3, 4), (9, 1), (40, 7)])
def test_the_objective_is_the_energy_per_spin(n: int, seed: int) -> None:
    instance, J = spin_glass(n, seed), couplings(n, seed)
    x = np.random.default_rng(0).standard_normal(n)
    energy = -sum(J[i, j] * x[i] * x[j] for i in range(n) for j in range(i))
    assert instance.objective(x) == pytest.approx(energy / n, rel=1e-12)
    np.testing.assert_allclose(instance.values(x), x * x, rtol=1e-15)
    assert instance.sense == "minimize"
    np.testing.assert_array_equal([instance.lower, instance.upper], np.ones((2, n)))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_known_energy_is_that_of_brute_force(n: int, seed: int) -> None:
    instance, J = spin_glass(n, seed), couplings(n, seed)
    lowest = min(-0.5 * (x @ J @ x) / n for x in map(np.array, itertools.product((-1.0, 1.0), repeat=n)))
    facts = instance.metadata
    assert facts.best_known is not None and facts.reference is not None
    assert facts.best_known.value == pytest.approx(lowest, abs=1e-13)
    assert [bound.value for bound in facts.bounds] == [facts.best_known.value]
    assert instance.objective(facts.reference) == facts.best_known.value
    assert instance.violation(facts.reference) == 0


def test_two_spins_have_a_closed_form() -> None:
    for seed in range(5):
        best_known = spin_glass(2, seed).metadata.best_known
        assert best_known is not None
        assert best_known.value == pytest.approx(-abs(couplings(2, seed)[0, 1]) / 2, rel=1e-14)


def test_large_problems_have_no_proved_energy() -> None:
    assert spin_glass(20).metadata.best_known is not None
    assert spin_glass(21).metadata.best_known is None


def test_couplings_are_normal_with_variance_one_over_n() -> None:
    n = 200
    coefficients = spin_glass(n, 3).quadratic.toarray()[0] * n
    J = coefficients[coefficients != 0]
    assert len(J) == n * (n - 1) // 2
    assert stats.kstest(J * math.sqrt(n), "norm").pvalue > 0.01


def one_step_energy() -> float:
    """Return −min over m, q_0 of Parisi's functional at zero temperature with one step of RSB, for ξ(q) = q²/2."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()

    def functional(point: NDArray[np.float64]) -> float:
        m, q = math.exp(point[0]), 1 / (1 + math.exp(-point[1]))
        deviation, x = math.sqrt(1 - q), nodes * math.sqrt(q)
        shift = m * deviation
        sides = [sign * m * x + shift**2 / 2 + log_ndtr(sign * x / deviation + shift) for sign in (1, -1)]
        return float(weights @ np.logaddexp(*sides) / m - m * (1 - q * q) / 4)

    return -float(minimize(functional, np.zeros(2), method="Nelder-Mead", options={"fatol": 1e-12}).fun)


def test_theory_is_the_limit_of_full_breaking() -> None:
    """Check the order of the theories, and replica symmetry and one step against their formulas."""
    prediction = family("spin_glass[n=8]").theory()
    assert prediction is not None and prediction.objective is not None and prediction.objective_rs is not None
    assert prediction.objective_rs == pytest.approx(-math.sqrt(2 / math.pi), rel=1e-15)
    one_step = one_step_energy()
    assert one_step == pytest.approx(-0.76526, abs=1e-5)
    assert prediction.objective_rs < one_step < prediction.objective == pytest.approx(-0.763167, abs=1e-6)
    assert prediction.kappa_bar is None and prediction.kappa_bar_rs is None
    assert spin_glass(8).metadata.theory == prediction


@pytest.mark.parametrize("n", [8, 16])
def test_the_mean_energy_approaches_theory_as_n_to_the_minus_two_thirds(n: int) -> None:
    """Allow three standard errors of the mean of 200 energies beyond coefficients from 0.65 to 0.85."""
    energies = []
    for seed in range(200):
        best_known = spin_glass(n, seed).metadata.best_known
        assert best_known is not None
        energies.append(best_known.value)
    error = 3 * n ** (2 / 3) * np.std(energies) / math.sqrt(len(energies))
    coefficient = (np.mean(energies) + 0.763167) * n ** (2 / 3)
    assert 0.65 - error < coefficient < 0.85 + error


@pytest.mark.solver
def test_a_global_solver_proves_the_energy() -> None:
    pytest.importorskip("pyscipopt")
    instance = spin_glass(8)
    attempt = solve(instance, "scip", time_limit=60)
    assert instance.metadata.best_known is not None and attempt.bound is not None
    assert attempt.objective == pytest.approx(instance.metadata.best_known.value, abs=1e-5)
    assert attempt.bound == pytest.approx(instance.metadata.best_known.value, abs=1e-4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("spin_glass[n=1]", "n must be 2 or more, got 1"),
        ("spin_glass[n=0]", "n must be 2 or more, got 0"),
        ("spin_glass[n=5001]", "n must be at most 5000, got 5001"),
        ("spin_glass[n=2.5]", "n must be a whole number, got 2.5"),
        ("spin_glass[seed=-1]", "seed must be 0 or more, got -1"),
        ("spin_glass[m=3]", "unknown parameter of spin_glass 'm'"),
    ],
)
def test_wrong_specs_are_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message) as caught:
        problem(spec)
    assert "\n" not in str(caught.value)
