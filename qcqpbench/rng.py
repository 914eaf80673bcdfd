"""Random numbers that are identical, bit for bit, on every machine and with every version of NumPy.

NumPy keeps the seeding and the raw output of its bit generators fixed, but not its distributions, and logarithms differ
between mathematical libraries. Therefore this module starts from raw bits and uses only operations whose rounding IEEE
754 specifies exactly: comparisons, + − × ÷ and √.
"""

from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from .errors import require

Array = NDArray[np.float64]

AXES = ("patterns", "labels", "starts", "split")
_LN2 = 0.6931471805599453
# Number of pairs of uniform numbers drawn at a time; another value changes the sequence of normal numbers.
_PAIRS_PER_DRAW = 1 << 13


def stream(seed: int, axis: str, *key: int) -> np.random.PCG64:
    """Return the bit generator for `seed`, `axis` and `key`; other axes and keys give independent streams."""
    require(isinstance(seed, Integral), f"seed must be a whole number, 0 or more, got {seed!r:.100}")
    require(seed >= 0, f"seed must be 0 or more, got {seed}")
    require(axis in AXES, f"axis must be one of {', '.join(AXES)}, got {axis!r}")
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(AXES.index(axis), *key)))


def signs(bits: np.random.PCG64, count: int) -> NDArray[np.int8]:
    """Return `count` random signs, +1 or −1; each consumes one 64-bit word of `bits`."""
    return np.where(bits.random_raw(count) >> np.uint64(63), np.int8(1), np.int8(-1))


def sparse_signs(bits: np.random.PCG64, rows: int, columns: int, f: float) -> NDArray[np.int8]:
    """Return a (rows, columns) array of +1 and −1, with probability f/2 each, and 0 otherwise.

    Each entry is drawn from 32 random bits, so `f` is rounded to a multiple of 2⁻³¹.
    """
    words = bits.random_raw(rows * ((columns + 1) // 2)).astype("<u8", copy=False)
    halves = words.view("<u4").reshape(rows, -1)[:, :columns]
    edge = round(f * 2.0**31)
    values = (halves < np.uint32(edge)).view(np.int8)
    values -= (halves > np.uint32(2**32 - 1 - edge)).view(np.int8)
    return values


def uniforms(bits: np.random.PCG64, count: int) -> Array:
    """Return `count` uniform random numbers in [0, 1); each consumes one 64-bit word of `bits`."""
    return (_signed_uniforms(bits.random_raw(count)) + 1) / 2


def normals(bits: np.random.PCG64, out: Array, deviation: float = 1.0) -> Array:
    """Fill `out` with normal random numbers of mean 0 and standard deviation `deviation`, and return `out`.

    The numbers are drawn by Marsaglia's polar method. A longer draw begins with the numbers of a shorter one.
    """
    result = out.reshape(-1)
    filled = 0
    while filled < result.size:
        u = _signed_uniforms(bits.random_raw(2 * _PAIRS_PER_DRAW)).reshape(2, _PAIRS_PER_DRAW)
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
        values = pairs.reshape(-1)[: result.size - filled]
        result[filled : filled + len(values)] = values
        filled += len(values)
    return out


def _signed_uniforms(words: NDArray[np.uint64]) -> Array:
    """Map random 64-bit words to multiples of 2⁻⁵² in [−1, 1)."""
    values = (words >> np.uint64(11)).astype(np.float64)
    values *= 2.0**-52
    values -= 1.0
    return values


def _log(x: Array) -> Array:
    """Return ln x for x > 0, accurate to about 2 ulp.

    With x = f 2^e and √½ ≤ f < √2, ln x = e ln 2 + 2 artanh(s) where s = (f−1)/(f+1).
    """
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
