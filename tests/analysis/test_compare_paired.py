"""Tests of paired differences on simulated truth: level, coverage and power, and the tests that they consist of."""

import itertools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from qcqpbench.analysis.compare import paired

Array = NDArray[np.float64]
Draw = Callable[[Generator, tuple[int, int]], Array]

_COMPARISONS, _RESAMPLES = 1000, 999
_SIZES = (5, 10, 20, 50)


def two_solvers(one: Draw) -> Draw:
    """Return the differences of two solvers whose results have the same distribution."""
    return lambda rng, size: one(rng, size) - one(rng, size)


def sometimes(share: float, one: Draw) -> Draw:
    """Return differences that are 0 except on a share of the instances."""
    return lambda rng, size: one(rng, size) * (rng.random(size) < share)


def skewed(rng: Generator, size: tuple[int, int]) -> Array:
    return rng.exponential(size=size) - 1


# Differences with the true mean 0.
EQUAL: Mapping[str, Draw] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "heavy tails": lambda rng, size: rng.standard_t(3, size),
    "two solvers, lognormal times": two_solvers(lambda rng, size: rng.lognormal(0, 1, size)),
    "two solvers that fail on 10 %": two_solvers(
        lambda rng, size: rng.normal(0.8, 0.05, size) * (rng.random(size) > 0.1)
    ),
    "80 % ties": sometimes(0.2, lambda rng, size: rng.normal(size=size)),
    "skewed": skewed,
    "skewed, 70 % ties": sometimes(0.3, skewed),
    "strongly skewed": lambda rng, size: rng.lognormal(0, 1, size) - math.exp(0.5),
    "60 % ties, small losses, rare large wins": lambda rng, size: rng.choice([0.0, -1.0, 3.0], size, p=[0.6, 0.3, 0.1]),
}


def share_called_different(draw: Draw, instances: int, comparisons: int = _COMPARISONS, seed: int = 0) -> float:
    """Return the share of simulated comparisons that the tests call different."""
    table = draw(np.random.default_rng([seed, instances]), (comparisons, instances))
    return float((paired.p_values(table, _RESAMPLES) <= paired.LEVEL).mean())


@pytest.mark.parametrize("instances", _SIZES)
@pytest.mark.parametrize("name", EQUAL)
def test_equal_solvers_are_called_different_in_at_most_5_percent(name: str, instances: int) -> None:
    assert share_called_different(EQUAL[name], instances) <= 0.05


@pytest.mark.parametrize("instances", [5, 7])
def test_few_instances_are_never_called_different(instances: int) -> None:
    assert paired.fewest_instances() == 8
    assert paired.p_values(np.ones((1, instances))) > paired.LEVEL
    assert paired.p_values(np.ones((1, 8))) <= paired.LEVEL


@pytest.mark.parametrize("effect", [0.3, 0.5, 0.8, 1.2])
def test_a_true_difference_is_found_at_the_stated_power(effect: float) -> None:
    instances = paired.instances_needed(1.0, effect)
    found = share_called_different(lambda rng, size: rng.normal(effect, 1, size), instances)
    # A solver that is called worse although it is better would count as found too.
    assert paired.POWER - 0.03 <= found <= paired.POWER + 0.1


@pytest.mark.parametrize("name", ["heavy tails", "strongly skewed"])
def test_intervals_contain_the_true_mean(name: str) -> None:
    rng = np.random.default_rng(1)
    intervals = [paired.paired_test(values).interval for values in EQUAL[name](rng, (150, 15))]
    assert sum(ends is None or ends.low <= 0 <= ends.high for ends in intervals) >= 0.95 * 150


# --- the two tests ---


@pytest.mark.parametrize("instances", [1, 2, 9, 12])
def test_sign_flips_are_enumerated_for_few_instances(instances: int) -> None:
    values = np.random.default_rng(instances).normal(0.5, 1, instances)
    sums = [abs(np.dot(signs, values)) for signs in itertools.product((-1, 1), repeat=instances)]
    expected = np.mean([total >= abs(values.sum()) - 1e-12 for total in sums])
    assert paired._sign_flip_p_values(values[None, :], 0, 0) == pytest.approx([expected])


def test_random_sign_flips_agree_with_scipy() -> None:
    values = np.random.default_rng(3).normal(0.4, 1, 20)
    expected = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=20_000, random_state=np.random.default_rng(4)
    )
    assert paired._sign_flip_p_values(values[None, :], 20_000, 0)[0] == pytest.approx(expected.pvalue, abs=0.01)


def test_interval_contains_zero_if_and_only_if_the_bootstrap_does_not_reject() -> None:
    rng = np.random.default_rng(5)
    decisions = set()
    for shift in np.linspace(0, 2, 40):
        values = rng.exponential(size=12) - 1 + shift
        ends = paired.paired_test(values).interval
        assert ends is not None
        resampled = paired._resampled_t(values[None, :], paired.RESAMPLES, 0)
        rejects = bool(paired._bootstrap_p_values(values[None, :], resampled)[0] <= paired.LEVEL)
        assert rejects == (not ends.low <= 0 <= ends.high)
        decisions.add(rejects)
    assert decisions == {True, False}


def test_bootstrap_t_agrees_with_a_loop_over_resamples() -> None:
    values = np.random.default_rng(6).exponential(size=9)
    weights = np.random.default_rng(0).multinomial(9, np.full(9, 1 / 9), 20)
    expected = []
    for counts in weights:
        resample = np.repeat(values, counts)
        expected.append((resample.mean() - values.mean()) / resample.std())
    assert paired._resampled_t(values[None, :], 20, 0)[0] == pytest.approx(expected)


# --- ties ---


def test_ties_on_all_instances_are_no_difference() -> None:
    assert paired.paired_test(np.zeros(12)) == (0.0, (0.0, 0.0), 1.0, 0.0)


def test_equal_differences_are_judged_by_their_signs() -> None:
    test = paired.paired_test(np.full(10, 0.1) + np.random.default_rng(0).uniform(-1e-17, 1e-17, 10))
    assert test.p_value == pytest.approx(2 / 2**10)
    assert test.interval == pytest.approx((0.1, 0.1))


def test_few_differences_among_many_ties_have_no_interval() -> None:
    test = paired.paired_test([1.0, *[0.0] * 20])
    assert test.interval is None and test.p_value == 1.0


def test_a_single_instance_is_no_evidence() -> None:
    test = paired.paired_test([0.3])
    assert (test.mean, test.p_value, test.spread) == (0.3, 1.0, 0.0)


# --- several comparisons ---


def test_holm_by_hand() -> None:
    assert paired.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert paired.holm([0.9, 0.8]) == [1.0, 1.0]
    assert paired.holm([]) == []


def test_holm_keeps_the_rate_of_any_false_verdict() -> None:
    rng = np.random.default_rng(7)
    tables = rng.normal(size=(5, 400, 12))
    by_comparison = np.array([paired.p_values(table, _RESAMPLES) for table in tables]).T
    false = [min(paired.holm(list(p_values))) <= paired.LEVEL for p_values in by_comparison]
    unadjusted = (by_comparison.min(axis=1) <= paired.LEVEL).mean()
    assert np.mean(false) <= 0.02 < unadjusted
