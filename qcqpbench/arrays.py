"""Arrays that stay as they are: made contiguous, checked once, locked, and hashed alike on every machine."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import QcqpbenchError

_BLOCK = 1 << 16


def locked(values: ArrayLike, dtype: Any, what: str) -> NDArray[Any]:
    """The values as a read-only contiguous array; copied unless they are one already and nobody else may write."""
    try:
        array = np.asarray(values, dtype=dtype, order="C")
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(f"{what} cannot be read as an array of numbers: {error}") from error
    if array.flags.writeable:
        if array is values or array.base is not None:
            array = array.copy()
        array.flags.writeable = False
    return array


def digest(kind: str, *parts: Any) -> str:
    """sha256 of the parts, arrays as little-endian bytes with their shape, the rest as text; -0.0 counts as 0.0."""
    sha = hashlib.sha256(kind.encode())
    for part in parts:
        if isinstance(part, np.ndarray):
            sha.update(f"{part.shape}".encode())
            flat = part.reshape(-1)
            for begin in range(0, flat.size, _BLOCK):
                block = flat[begin : begin + _BLOCK] + part.dtype.type(0)
                sha.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data)
        else:
            sha.update(repr(part).encode())
    return sha.hexdigest()
