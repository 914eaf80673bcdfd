"""Read-only arrays, a hash of arrays that is the same on every machine, and a base class of values with such a hash."""

import hashlib
import html
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

_BLOCK_ENTRIES = 1 << 16
_REAL_KINDS = "biuf"
# Number of digits of an id in a repr.
_ID_DIGITS = 12


def locked(values: ArrayLike, dtype: Any, name: str) -> NDArray[Any]:
    """Return `values` as a C-contiguous read-only array of type `dtype`; copy unless `values` is such an array.

    Error messages call the array `name`.
    """
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous and _is_frozen(values):
        return values
    array = np.array(real_array(values, name), dtype=dtype, order="C")
    array.flags.writeable = False
    return array


def real_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return `values` as an array; raise QcqpbenchError unless its type is boolean, integer or real floating point."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise QcqpbenchError(f"{name} must be an array of numbers, got {values!r:.40}: {error}") from error
    check_real(array.dtype, name)
    return array


def float_array(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return `values` as a float64 array, without a copy if they are one; refuse what `real_array` refuses."""
    # Solvers evaluate points thousands of times, so the usual case comes first.
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    return real_array(values, name).astype(np.float64, copy=False)


def check_real(dtype: Any, name: str) -> None:
    """Raise QcqpbenchError unless `dtype`, the type of the entries of the array `name`, is a type of real numbers."""
    require(dtype.kind != "c", f"{name} must be an array of real numbers, got complex numbers")
    require(dtype.kind in _REAL_KINDS, f"{name} must be an array of numbers, got entries of type {dtype}")


def real_number(value: Any, name: str) -> float:
    """Return `value`, a real number or a zero-dimensional array of one, as a float; otherwise raise QcqpbenchError."""
    if type(value) is float:
        return value
    array = np.asarray(value) if isinstance(value, int | float | complex | np.generic | np.ndarray) else None
    is_number = array is not None and array.ndim == 0 and array.dtype.kind in _REAL_KINDS
    require(is_number, f"{name} must be a real number, got {value!r:.40}")
    return float(value)


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


class Hashed(ABC):
    """Base class of frozen dataclasses that compare equal if their ids, the hashes of their content, are equal."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Hash (sha256) of the content."""

    @abstractmethod
    def replace(self, **changes: Any) -> Self:
        """Return a copy with the given attributes replaced."""

    @abstractmethod
    def _summary(self) -> dict[str, str]:
        """Return the facts that a notebook shows, by name."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hashed) or type(other) is not type(self):
            return NotImplemented
        return self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __getstate__(self) -> dict[str, Any]:
        names = {*(field.name for field in fields(self)), "id"}  # type: ignore[arg-type]
        return {name: value for name, value in vars(self).items() if name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def _short_id(self) -> str:
        return f"{self.id[:_ID_DIGITS]}…"

    def _repr_html_(self) -> str:
        facts = {"": type(self).__name__, **self._summary()}
        lines = (f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table>{''.join(lines)}</table>"
