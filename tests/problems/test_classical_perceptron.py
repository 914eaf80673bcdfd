"""Classical perceptrons in the epigraph formulation, below and beyond capacity."""

import numpy as np
import pytest

from qcqpbench import QCQP, QcqpbenchError, problem, random_start, solve, theory
from qcqpbench.catalog.registry import family


def classical(parameters: str, formulation: str = "epigraph") -> QCQP:
    instance = problem(f"classical_perceptron[{parameters},formulation={formulation}]")
    assert isinstance(instance, QCQP)
    return instance


def best_of(instance: QCQP, starts: int) -> float:
    attempts = [solve(instance, "slsqp", start=random_start(instance, number)) for number in range(starts)]
    return max(attempt.objective for attempt in attempts if attempt.success and attempt.objective is not None)


def test_the_default_formulation_keeps_spec_and_content() -> None:
    default, stated = problem("classical_perceptron[m=5,p=3]"), classical("m=5,p=3", "min_norm")
    assert default.id == stated.id
    assert default.metadata.spec == stated.metadata.spec == "classical_perceptron[m=5,p=3,seed=0]"


def test_the_epigraph_is_the_margin_of_unit_vectors() -> None:
    """Compare the functions with those of the patterns in the convex program."""
    instance, patterns = classical("m=6,p=20"), classical("m=6,p=20", "min_norm").linear.toarray()[1:]
    x = np.random.default_rng(0).standard_normal(7)
    assert instance.sense == "maximize"
    assert instance.objective(x) == x[6]
    np.testing.assert_allclose(instance.values(x), [*(patterns @ x[:6] - x[6]), x[:6] @ x[:6]], rtol=1e-12)
    np.testing.assert_array_equal(instance.lower, [0] * 20 + [1])
    np.testing.assert_array_equal(instance.upper, [np.inf] * 20 + [1])


@pytest.mark.parametrize("seed", [0, 1])
def test_both_formulations_agree_below_capacity(seed: int) -> None:
    convex = solve(classical(f"m=12,load=0.7,seed={seed}", "min_norm"), "slsqp").objective
    assert convex is not None
    assert best_of(classical(f"m=12,load=0.7,seed={seed}"), 3) == pytest.approx(convex**-0.5, rel=1e-5)


def test_the_margin_of_all_patterns_of_two_inputs() -> None:
    """Check that all four signed patterns occur; one of them is at most 45° from −w, so the margin is at most −1."""
    assert len(np.unique(classical("m=2,p=40", "min_norm").linear.toarray()[1:], axis=0)) == 4
    assert best_of(classical("m=2,p=40"), 6) == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(("m", "p"), [(3, 12), (3, 20)])
def test_negative_margins_against_a_grid(m: int, p: int) -> None:
    patterns = classical(f"m={m},p={p}", "min_norm").linear.toarray()[1:]
    u, v = np.meshgrid(np.linspace(-1, 1, 401), np.linspace(0, 2 * np.pi, 801))
    radius = np.sqrt(1 - u**2)
    points = np.stack([u, radius * np.cos(v), radius * np.sin(v)], axis=-1).reshape(-1, m)
    grid = (points @ patterns.T).min(axis=1).max()
    best = best_of(classical(f"m={m},p={p}"), 12)
    assert grid - 1e-9 <= best <= grid + 0.02


@pytest.mark.parametrize("load", [0.5, 1, 2, 3, 4, 8])
def test_the_predicted_objective_is_that_of_the_margin(load: float) -> None:
    margin = theory.classical_kappa_bar(load * 100, 100, rsb="full")
    prediction = family(f"classical_perceptron[m=100,load={load},formulation=epigraph]").theory()
    convex = family(f"classical_perceptron[m=100,load={load}]").theory()
    assert prediction is not None and convex is not None
    assert prediction.objective == prediction.kappa_bar == pytest.approx(margin, abs=1e-9)
    assert prediction.objective_rs == prediction.kappa_bar_rs
    if load < 2:
        assert convex.objective == pytest.approx(margin**-2)
    else:
        assert convex.objective is None
    if load > 2:
        assert prediction.objective is not None and prediction.objective_rs is not None
        assert prediction.objective < prediction.objective_rs < 0


def test_replica_symmetry_breaking_at_a_published_margin() -> None:
    """Check κ̄ = −1.5, where α is 43.77 with replica symmetry, 36.57 with one step, and 36.40 with two or more."""
    symmetric = theory.classical_kappa_bar(43.77, 1)
    assert symmetric == pytest.approx(-1.5, abs=2e-4)
    prediction = family("classical_perceptron[m=100,p=3640,formulation=epigraph]").theory()
    assert prediction is not None
    assert prediction.objective == pytest.approx(-1.5, abs=2e-3)


def test_an_unknown_formulation_is_refused() -> None:
    with pytest.raises(QcqpbenchError, match=r"formulation must be epigraph\|min_norm, got dual"):
        classical("m=5", "dual")
