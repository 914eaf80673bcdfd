"""Arrays that stay as they are: made contiguous, checked once, locked, and hashed alike on every machine."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

_BLOCK = 1 << 16


def locked(values: ArrayLike, dtype: Any, what: str) -> NDArray[Any]:
    """The values as a contiguous array that nobody can write to: themselves if they are one, otherwise a copy."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous and _is_frozen(values):
        return values
    try:
        require(not np.iscomplexobj(values), f"{what} cannot be read as an array of numbers: some are complex")
        array = np.array(values, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise QcqpbenchError(f"{what} cannot be read as an array of numbers: {error}") from error
    array.flags.writeable = False
    return array


def _is_frozen(array: NDArray[Any]) -> bool:
    owner: Any = array
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    return owner is None


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
