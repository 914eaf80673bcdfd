"""Bootstrap intervals against Student's t, known coverage and ranks counted by hand."""

import numpy as np
import pytest
from scipy.stats import t

from qcqpbench.analysis.intervals import MIN_INSTANCES, RESAMPLES, mean_interval, rank_intervals, ranks, resampled_means


@pytest.mark.parametrize("count", [8, 20, 200])
def test_interval_of_a_mean_agrees_with_student_for_normal_values(count: int) -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, count)
    interval = mean_interval(values)
    assert interval is not None
    half = t.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count)
    assert interval == pytest.approx((values.mean() - half, values.mean() + half), abs=0.25 * half)


@pytest.mark.parametrize("count", [6, 30])
def test_intervals_cover_the_true_mean(count: int) -> None:
    """Check that at most 5 % of 400 intervals miss the mean, allowing three standard deviations of that count."""
    generator = np.random.default_rng(2)
    missed = 0
    for seed in range(400):
        interval = mean_interval(generator.uniform(-1, 1, count), seed=seed)
        assert interval is not None
        missed += not interval.low <= 0 <= interval.high
    assert missed <= 400 * 0.05 + 3 * np.sqrt(400 * 0.05 * 0.95)


def test_resampled_columns_stay_paired() -> None:
    values = np.random.default_rng(3).normal(size=(12, 1))
    means = resampled_means(np.hstack([values, 2 * values + 1]))
    assert means.shape == (RESAMPLES, 2)
    assert means[:, 1] == pytest.approx(2 * means[:, 0] + 1)
    assert means[:, 0].std() == pytest.approx(values.std() / np.sqrt(12), rel=0.1)


def test_few_instances_have_no_interval() -> None:
    assert mean_interval([1.0] * (MIN_INSTANCES - 1)) is None
    assert mean_interval([1.0] * MIN_INSTANCES) == (1.0, 1.0)
    assert rank_intervals([[0.0, 1.0]], 0.1) == [(1, None), (2, None)]


def test_ranks_with_ties() -> None:
    assert ranks([0.3, 0.1, 0.10001, 0.2], 1e-4).tolist() == [[4.0, 1.0, 1.0, 3.0]]


def test_intervals_of_ranks_tell_certain_from_uncertain_order() -> None:
    """Check two solvers that alternate in winning, and one that always loses."""
    losses = [[0.0, 1.0, 5.0] if k % 2 else [1.0, 0.0, 5.0] for k in range(20)]
    first, second, last = rank_intervals(losses, 1e-4)
    assert (first, second) == ((1, (1, 2)), (1, (1, 2)))
    assert last == (3, (3, 3))
