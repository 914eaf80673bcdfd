"""Families of general QCQPs: content hashes, derivatives, files of every format, and generation from the spec."""

from pathlib import Path

import numpy as np
import pytest

from qcqpbench import QCQP, check_family, problem, read, write
from qcqpbench.problem.formats.by_suffix import FORMATS

# sha256 of the content, the same on every platform.
IDS = {
    "classical_perceptron[m=5,p=20,formulation=epigraph]": (
        "1b19606b28eeb2e4891675a5fb1fdc4a9e1a1e201601865bb04953ad1a449696"
    ),
    "optimal_power_flow[case=case9]": "f294e1fdd8c51c3601b8fcd13c1fc244cbe89e0bb9ceebb83d36374b0ad38e23",
    "optimal_power_flow[case=case14]": "16a23b238ea73f6f1ba6e09335f9abec295e8ff0364d05ab297529767c7534f3",
    "optimal_power_flow[case=case30pwl]": "79fcef0ba658bdf91450b63a0a8cc5085d95c22163a9597f0057a4c52b903f16",
    "optimal_power_flow[case=case118]": "a6f5d3cd4cb1f1f9aa9b2cb391f88526d21823f5b5d79e30a57a83877ab34b21",
    "packing[k=4]": "96ad56e6206436e811a970c465fbf5547c0c1d217c2312afc87bfb6f527a106b",
    "packing[k=5,shape=circle]": "83d4cdf540560ed20f64d5d48915c4639166eac72e7737d5b508e4b4b14f667e",
    "spin_glass[n=7]": "1586316e5dac05ba49e6a3e82b80d73a0ff5d171cc46955b6dd9dae365d1bf0b",
    "spin_glass[n=30,seed=5]": "b3eca44a23dc78f9b113d8f49aed567cf13c09ef1daa2d59736c5fadba141a67",
}


def general(spec: str) -> QCQP:
    instance = problem(spec)
    assert isinstance(instance, QCQP)
    return instance


@pytest.mark.parametrize(("spec", "expected"), IDS.items())
def test_instance_ids_never_change(spec: str, expected: str) -> None:
    assert problem(spec).id == expected


@pytest.mark.parametrize("spec", IDS)
def test_the_spec_of_an_instance_makes_it_again(spec: str) -> None:
    check_family(spec)
    instance = general(spec)
    assert instance.metadata.spec is not None
    assert problem(instance.metadata.spec).id == instance.id


@pytest.mark.parametrize("spec", IDS)
def test_derivatives_agree_with_finite_differences(spec: str) -> None:
    """Compare at a random point; central differences of quadratic functions have rounding errors only."""
    instance = general(spec)
    n, step = instance.n_variables, 1e-3
    x = np.random.default_rng(1).uniform(-1, 1, n)
    forward, backward = x + step * np.eye(n), x - step * np.eye(n)
    gradient = (instance.objective(forward) - instance.objective(backward)) / (2 * step)
    jacobian = (instance.values(forward) - instance.values(backward)).T / (2 * step)
    scale = 1 + np.abs(gradient).max(), 1 + np.abs(jacobian).max()
    np.testing.assert_allclose(instance.gradient(x), gradient, atol=1e-9 * scale[0])
    np.testing.assert_allclose(instance.jacobian(x).toarray(), jacobian, atol=1e-9 * scale[1])
    multipliers = np.random.default_rng(2).standard_normal(instance.n_constraints)
    direction = np.random.default_rng(3).standard_normal(n)

    def slope(point: np.ndarray) -> np.ndarray:
        return instance.gradient(point) + instance.jacobian(point).T @ multipliers

    expected = (slope(x + step * direction) - slope(x - step * direction)) / (2 * step)
    product = instance.hessian(multipliers) @ direction
    np.testing.assert_allclose(product, expected, atol=1e-9 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("spec", IDS)
def test_every_format_keeps_the_problem(spec: str, suffix: str, tmp_path: Path) -> None:
    instance = general(spec)
    write(instance, tmp_path / f"a{suffix}")
    copy = read(tmp_path / f"a{suffix}")
    assert copy.id == instance.id
    if suffix == ".npz":
        assert copy.metadata.best_known == instance.metadata.best_known
        assert copy.metadata.theory == instance.metadata.theory
