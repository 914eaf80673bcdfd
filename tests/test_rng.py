import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from qcqpbench import QcqpbenchError, rng


def words(seed: int, axis: int, count: int) -> list[int]:
    """Return the raw words, which NumPy keeps fixed, as integers."""
    bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(axis,)))
    return [int(bits.random_raw()) for _ in range(count)]


def test_signs_are_the_top_bits() -> None:
    expected = [1 if word >= 2**63 else -1 for word in words(3, 1, 50)]
    assert rng.signs(rng.stream(3, "labels"), 50).tolist() == expected


@pytest.mark.parametrize("f", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("columns", [6, 7])
def test_sparse_signs_agree_with_a_loop(f: float, columns: int) -> None:
    rows = []
    source = iter(words(5, 0, 40))
    for _ in range(9):
        halves = [
            half for _ in range((columns + 1) // 2) for word in [next(source)] for half in (word % 2**32, word >> 32)
        ]
        rows.append([(half < f * 2**31) - (half >= 2**32 - round(f * 2**31)) for half in halves[:columns]])
    assert rng.sparse_signs(rng.stream(5, "patterns"), 9, columns, f).tolist() == rows


def test_normals_agree_with_a_loop() -> None:
    pairs = 1 << 13
    raw = words(7, 0, 4 * pairs)
    expected: list[float] = []
    for block in (raw[: 2 * pairs], raw[2 * pairs :]):
        u = [(word >> 11) / 2**52 - 1 for word in block]
        couples = [(a, b, a * a + b * b) for a, b in zip(u[:pairs], u[pairs:], strict=True)]
        scaled = [(a, b, math.sqrt(-2 * math.log(s) / s)) for a, b, s in couples if 0 < s < 1]
        expected += [a * factor for a, _, factor in scaled] + [b * factor for _, b, factor in scaled]
    out = rng.normals(rng.stream(7, "patterns"), np.empty((2, 10_000)))
    np.testing.assert_allclose(out.ravel(), expected[:20_000], rtol=1e-14)


def test_normals_have_the_normal_distribution() -> None:
    z = rng.normals(rng.stream(1, "patterns"), np.empty(200_000))
    moments = [z.mean(), z.var() - 1, (z**3).mean(), (z**4).mean() - 3]
    errors = np.sqrt(np.array([1, 2, 15, 96]) / z.size)
    assert (np.abs(moments) < 4 * errors).all()
    assert stats.kstest(z, "norm").pvalue > 0.01
    neighbours = stats.pearsonr(z[:-1], z[1:])
    assert neighbours.pvalue > 0.01


@pytest.mark.parametrize("count", [1, 2, 12_871, 12_872, 40_000])
def test_longer_draw_begins_with_the_shorter(count: int) -> None:
    short = rng.normals(rng.stream(1, "patterns"), np.empty(count))
    long = rng.normals(rng.stream(1, "patterns"), np.empty(50_000))
    np.testing.assert_array_equal(short, long[:count])


def test_streams_are_independent() -> None:
    streams = [rng.stream(seed, axis, *key) for seed in (0, 1) for axis in rng.AXES for key in ((), (0,), (1,))]
    draws = [rng.signs(bits, 4000).astype(float) for bits in streams]
    correlations = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlations).max() < 5 / math.sqrt(4000)
    for first, second in pairwise(draws):
        assert (first != second).any()


def test_seeds_may_be_large_but_not_negative() -> None:
    assert rng.stream(2**100, "labels").random_raw() != rng.stream(2**100 + 1, "labels").random_raw()
    with pytest.raises(QcqpbenchError, match="seed must be 0 or more, got -1"):
        rng.stream(-1, "labels")


def test_axes_have_fixed_names() -> None:
    with pytest.raises(QcqpbenchError, match="axis must be one of patterns, labels, starts, split, got 'weights'"):
        rng.stream(0, "weights")
