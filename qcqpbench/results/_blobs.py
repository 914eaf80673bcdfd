"""Arrays as bytes of a results file: number of axes, shape, then the numbers, all little-endian with 64 bits.

They are not compressed: zlib saves 5 % of the points of real runs.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.run.proposal import thin_trace

Array = NDArray[np.float64]

# The limit of NumPy 1; NumPy 2 has 64.
_MAX_AXES = 32


def pack(array: Array) -> bytes | None:
    """Return an array as bytes; None if it does not hold real numbers, as the claims of a bad solver may."""
    try:
        numbers = np.asarray(array)
        if numbers.dtype.kind not in "fiub":
            return None
        numbers = numbers.astype("<f8")
    except (TypeError, ValueError):
        return None
    return struct.pack(f"<q{numbers.ndim}q", numbers.ndim, *numbers.shape) + numbers.tobytes()


def unpack(blob: bytes) -> Array:
    """Return the array that `pack` wrote; raise ValueError for bytes of another form."""
    array, end = _read_array(blob, 0)
    if end != len(blob):
        raise ValueError(f"its array must end the {len(blob)} bytes, got an array of {end}")
    return array


def pack_trace(trace: Sequence[tuple[float, Array]]) -> bytes:
    """Return (seconds, point) pairs as bytes; a long trace is thinned to 100 points, evenly in log(seconds)."""
    packed = [(seconds, pack(point)) for seconds, point in thin_trace(trace)]
    return b"".join(struct.pack("<d", seconds) + blob for seconds, blob in packed if blob is not None)


def unpack_trace(blob: bytes) -> tuple[tuple[float, Array], ...]:
    """Return the pairs that `pack_trace` wrote; raise ValueError for bytes of another form."""
    pairs, position = [], 0
    while position < len(blob):
        (seconds,) = _numbers(blob, "d", 1, position)
        point, position = _read_array(blob, position + 8)
        pairs.append((float(seconds), point))
    return tuple(pairs)


def _read_array(blob: bytes, position: int) -> tuple[Array, int]:
    """Return the array at a position and the position after it; allocate no more than there are bytes."""
    (axes,) = _numbers(blob, "q", 1, position)
    if not 0 <= axes <= _MAX_AXES:
        raise ValueError(f"its number of axes must be 0 to {_MAX_AXES}, got {axes}")
    shape = _numbers(blob, "q", axes, position + 8)
    begin = position + 8 * (1 + axes)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or 8 * count > len(blob) - begin:
        raise ValueError(f"its shape must fit {len(blob) - begin} bytes, got {shape}")
    numbers = np.frombuffer(blob, "<f8", count, begin).astype(np.float64).reshape(shape)
    return numbers, begin + 8 * count


def _numbers(blob: bytes, kind: str, count: int, position: int) -> tuple[Any, ...]:
    if position + 8 * count > len(blob):
        raise ValueError(f"its end is missing after {len(blob)} bytes")
    return struct.unpack_from(f"<{count}{kind}", blob, position)
