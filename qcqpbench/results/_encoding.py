"""Encoding of values in results files.

An array is encoded as its number of axes, its shape and its values, all 64-bit little-endian, without compression: zlib
reduces the points of real runs by only 5 %.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.run.proposal import thin_trace

Array = NDArray[np.float64]

# The limit of NumPy 1; NumPy 2 has 64.
_MAX_AXES = 32


def pack(array: Array) -> bytes | None:
    """Encode an array as bytes; return None if its values are not real numbers."""
    try:
        numbers = np.asarray(array)
        if numbers.dtype.kind not in "fiub":
            return None
        numbers = numbers.astype("<f8")
    except (TypeError, ValueError):
        return None
    return struct.pack(f"<q{numbers.ndim}q", numbers.ndim, *numbers.shape) + numbers.tobytes()


def unpack(blob: bytes) -> Array:
    """Decode an array encoded by `pack`; raise ValueError if `blob` is malformed."""
    array, end = _read_array(blob, 0)
    if end != len(blob):
        raise ValueError(f"the array must fill all {len(blob)} bytes, got an array of {end} bytes")
    return array


def pack_trace(trace: Sequence[tuple[float, Array]]) -> bytes:
    """Encode (seconds, point) pairs as bytes, after thinning them with `thin_trace`."""
    packed = [(seconds, pack(point)) for seconds, point in thin_trace(trace)]
    return b"".join(struct.pack("<d", seconds) + blob for seconds, blob in packed if blob is not None)


def unpack_trace(blob: bytes) -> tuple[tuple[float, Array], ...]:
    """Decode the (seconds, point) pairs encoded by `pack_trace`; raise ValueError if `blob` is malformed."""
    pairs, position = [], 0
    while position < len(blob):
        (seconds,) = _numbers(blob, "d", 1, position)
        point, position = _read_array(blob, position + 8)
        pairs.append((float(seconds), point))
    return tuple(pairs)


def _read_array(blob: bytes, position: int) -> tuple[Array, int]:
    """Decode the array that begins at byte `position` of `blob`; return it and the position after it.

    Raise ValueError if the array does not fit into `blob`; this is checked before memory is allocated.
    """
    (axes,) = _numbers(blob, "q", 1, position)
    if not 0 <= axes <= _MAX_AXES:
        raise ValueError(f"the number of axes must be 0 to {_MAX_AXES}, got {axes}")
    shape = _numbers(blob, "q", axes, position + 8)
    begin = position + 8 * (1 + axes)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or 8 * count > len(blob) - begin:
        raise ValueError(f"the shape must be nonnegative and fit in {len(blob) - begin} bytes, got {shape!s:.100}")
    numbers = np.frombuffer(blob, "<f8", count, begin).astype(np.float64).reshape(shape)
    return numbers, begin + 8 * count


def _numbers(blob: bytes, kind: str, count: int, position: int) -> tuple[Any, ...]:
    if position + 8 * count > len(blob):
        raise ValueError(f"the size must be at least {position + 8 * count} bytes, got {len(blob)}")
    return struct.unpack_from(f"<{count}{kind}", blob, position)


def plain(value: Any) -> Any:
    """Return `value` as a number, text, JSON text (mappings) or None; NaN and integers beyond 64 bits become None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, Mapping):
        return json.dumps(_jsonable(value))
    return None if value is None else str(value).encode(errors="replace").decode()


def _jsonable(value: Any) -> Any:
    """Return `value` with types that JSON supports; non-finite numbers and integers beyond 64 bits become text."""
    if isinstance(value, Mapping):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def sorted_json(mapping: Mapping[str, Any]) -> str:
    """Return `mapping` as JSON text with sorted keys."""
    return json.dumps(_jsonable(mapping), sort_keys=True)
