"""Read-only arrays, and a hash of arrays that is the same on every machine."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

_BLOCK_ENTRIES = 1 << 16


def locked(values: ArrayLike, dtype: Any, name: str) -> NDArray[Any]:
    """Return `values` as a contiguous read-only array of type `dtype`; copy unless `values` is one already."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous and _is_frozen(values):
        return values
    try:
        require(not np.iscomplexobj(values), f"{name} must be an array of real numbers, got complex numbers")
        array = np.array(values, dtype=dtype, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise QcqpbenchError(f"{name} must be an array of numbers, got {values!r:.40}: {error}") from error
    array.flags.writeable = False
    return array


def _is_frozen(array: NDArray[Any]) -> bool:
    """Return whether `array` and all arrays that it is a view of are read-only."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    return owner is None


def digest(kind: str, *parts: Any) -> str:
    """Return the sha256 of `kind` and `parts`.

    Arrays are hashed as shape and little-endian bytes, with −0.0 as 0.0; other parts are hashed as their repr.
    """
    sha = hashlib.sha256(kind.encode())
    for part in parts:
        if isinstance(part, np.ndarray):
            sha.update(f"{part.shape}".encode())
            flat = part.reshape(-1)
            for begin in range(0, flat.size, _BLOCK_ENTRIES):
                block = flat[begin : begin + _BLOCK_ENTRIES] + part.dtype.type(0)
                sha.update(block.astype(block.dtype.newbyteorder("<"), copy=False).data)
        else:
            sha.update(repr(part).encode())
    return sha.hexdigest()
