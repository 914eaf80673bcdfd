"""Random numbers that are the same bits on every machine and under every NumPy.

NumPy keeps the raw output of its bit generators and the seeding fixed, but not what its distributions make of it, and
logarithms differ between mathematical libraries. So we take raw bits and use nothing but operations that IEEE 754
rounds in one way: comparisons, + − × ÷ and √.
"""

import numpy as np
from numpy.typing import NDArray

from .errors import require

Array = NDArray[np.float64]

AXES = ("patterns", "labels", "starts", "split")
_LN2 = 0.6931471805599453
# Pairs of uniform numbers drawn at a time; part of what defines the stream of normal numbers.
_PAIRS = 1 << 13


def stream(seed: int, axis: str, *key: int) -> np.random.PCG64:
    """The stream of raw bits of one axis of a seed, independent of the other axes' and keys'."""
    require(seed >= 0, f"seed={seed} is not allowed; right is a whole number from 0 up")
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(AXES.index(axis), *key)))


def signs(bits: np.random.PCG64, count: int) -> NDArray[np.int8]:
    """count values of +1 or −1, one word of the stream for each."""
    return np.where(bits.random_raw(count) >> np.uint64(63), np.int8(1), np.int8(-1))


def sparse_signs(bits: np.random.PCG64, rows: int, columns: int, f: float) -> NDArray[np.int8]:
    """Rows of +1 and −1 with probability f/2 each, 0 otherwise, half a word of the stream each; f to within 2⁻³²."""
    words = bits.random_raw(rows * ((columns + 1) // 2)).astype("<u8", copy=False)
    halves = words.view("<u4").reshape(rows, -1)[:, :columns]
    edge = round(f * 2.0**31)
    values = (halves < np.uint32(edge)).view(np.int8)
    values -= (halves > np.uint32(2**32 - 1 - edge)).view(np.int8)
    return values


def uniforms(bits: np.random.PCG64, count: int) -> Array:
    """count values in [0, 1), one word of the stream for each."""
    return (_signed_uniforms(bits.random_raw(count)) + 1) / 2


def normals(bits: np.random.PCG64, out: Array, deviation: float = 1.0) -> Array:
    """Fill out with normal numbers of mean 0 by Marsaglia's polar method; a longer draw begins with the shorter one."""
    result = out.reshape(-1)
    filled = 0
    while filled < result.size:
        u = _signed_uniforms(bits.random_raw(2 * _PAIRS)).reshape(2, _PAIRS)
        square = u[0] * u[0]
        square += u[1] * u[1]
        inside = np.flatnonzero((square < 1) & (square > 0))
        square = square.take(inside)
        factor = _log(square)
        factor *= -2
        factor /= square
        np.sqrt(factor, out=factor)
        pairs = u.take(inside, axis=1)
        pairs *= factor
        pairs *= deviation
        found = pairs.reshape(-1)[: result.size - filled]
        result[filled : filled + len(found)] = found
        filled += len(found)
    return out


def _signed_uniforms(words: NDArray[np.uint64]) -> Array:
    """Multiples of 2⁻⁵² in [−1, 1)."""
    values = (words >> np.uint64(11)).astype(np.float64)
    values *= 2.0**-52
    values -= 1.0
    return values


def _log(x: Array) -> Array:
    """ln x for x > 0, to 2 ulp or so: ln x = e ln 2 + 2 artanh(s), s = (f−1)/(f+1), x = f 2^e, √½ ≤ f < √2."""
    f, e = np.frexp(x)
    low = f < 0.7071067811865476
    np.multiply(f, 2, out=f, where=low)
    e = e - low
    s = f - 1
    f += 1
    s /= f
    square = s * s
    series = np.full_like(s, 1 / 21)
    for k in range(19, 0, -2):
        series *= square
        series += 1 / k
    s *= 2
    series *= s
    return e * _LN2 + series
