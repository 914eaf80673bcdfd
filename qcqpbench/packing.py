"""Arrays as bytes for the results file: number of axes, shape, then the numbers, all little-endian, 64 bits each.

Not compressed: zlib takes 5 % off the points of real runs.
"""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# A solver that reports every step of gradient ascent at the paper's size makes 20 MB a run.
_LONGEST_TRACE = 100


def pack(array: Array) -> bytes | None:
    """An array as bytes; None if it holds no real numbers, as the claims of a bad solver may."""
    try:
        numbers = np.asarray(array)
        if numbers.dtype.kind not in "fiub":
            return None
        numbers = numbers.astype("<f8")
    except (TypeError, ValueError):
        return None
    return struct.pack(f"<q{numbers.ndim}q", numbers.ndim, *numbers.shape) + numbers.tobytes()


def unpack(blob: bytes) -> Array:
    return _next(blob, 0)[0]


def pack_trace(trace: Sequence[tuple[float, Array]]) -> bytes:
    """(seconds, point) pairs as bytes: of a long trace the first, the last and 98 between, evenly in log(seconds)."""
    if len(trace) > _LONGEST_TRACE:
        seconds = np.maximum.accumulate(np.maximum([seconds for seconds, _ in trace], 1e-6))
        wanted = np.searchsorted(seconds, np.geomspace(seconds[0], seconds[-1], _LONGEST_TRACE))
        trace = [trace[k] for k in sorted({0, len(trace) - 1, *np.minimum(wanted, len(trace) - 1)[1:-1].tolist()})]
    packed = [(seconds, pack(point)) for seconds, point in trace]
    return b"".join(struct.pack("<d", seconds) + blob for seconds, blob in packed if blob is not None)


def unpack_trace(blob: bytes) -> tuple[tuple[float, Array], ...]:
    found, position = [], 0
    while position < len(blob):
        (seconds,) = struct.unpack_from("<d", blob, position)
        point, position = _next(blob, position + 8)
        found.append((seconds, point))
    return tuple(found)


def _next(blob: bytes, position: int) -> tuple[Array, int]:
    """The array at a position, and where the next thing begins."""
    (axes,) = struct.unpack_from("<q", blob, position)
    shape = struct.unpack_from(f"<{axes}q", blob, position + 8)
    begin = position + 8 * (1 + axes)
    count = int(np.prod(shape, dtype=np.int64))
    numbers = np.frombuffer(blob, "<f8", count, begin).astype(np.float64).reshape(shape)
    return numbers, begin + 8 * count
