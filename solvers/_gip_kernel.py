"""Newton steps of many paths of gip in compiled code; `_gip_stack.py` has the same steps in NumPy.

The library `_gip_library` is compiled from `_gip_kernel/kernel.c` when qcqpbench is installed with a C compiler.
"""

import ctypes
from functools import cache

import numpy as np

from ._gip_passes import Patterns
from ._gip_paths import Array, Paths, Rules, Steps
from ._gip_stack import Stack
from ._library import load

# Instructions by the size of a register in bytes.
_SETS = {16: "16-byte vectors", 32: "AVX2", 64: "AVX-512"}


class _Problem(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("n", "m", "p")),
        ("unit", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("patterns", "transposed", "by_entry", "labels")),
    )


class _Rules(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double if kind is float else ctypes.c_int64) for name, kind in Rules.__annotations__.items()),
        ("max_steps", ctypes.c_int64),
    )


_PATH_ARRAYS = "W", "t", "g", "weights", "mu", "shift", "residual", "arrived_t", "keep_shift", "age", "status"


class _Paths(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int64), *((name, ctypes.c_void_p) for name in _PATH_ARRAYS))


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library; None if there is none."""
    loaded = load("_gip")
    if loaded is not None:
        loaded.memory_bytes.restype = ctypes.c_int64
    return loaded


def instructions() -> str:
    """Return the name of the instructions that steps use: "NumPy" if there is no compiled library."""
    loaded = library()
    return "NumPy" if loaded is None else _SETS[loaded.vector_bytes()]


def newton_steps(patterns: Patterns, rules: Rules) -> Steps:
    """Return the compiled steps of paths, or those in NumPy if there is no compiled library."""
    loaded = library()
    return Stack(patterns, rules) if loaded is None else Kernel(loaded, patterns, rules)


class Kernel:
    """Compiled Newton steps of paths on the patterns of a task; `Stack` has the same steps in NumPy.

    Parameters
    ----------
    loaded
        The compiled library.
    patterns, rules
        As in `Stack`.
    """

    def __init__(self, loaded: ctypes.CDLL, patterns: Patterns, rules: Rules) -> None:
        self._library = loaded
        task, dtype = patterns.task, patterns.dtype
        self._is_double = int(dtype == np.float64)
        of_pattern: Array = np.ascontiguousarray(task.patterns, dtype)
        transposed = None if patterns.symmetric else np.ascontiguousarray(of_pattern.swapaxes(1, 2))
        by_entry, labels = np.ascontiguousarray(patterns.flat.T), np.ascontiguousarray(patterns.labels)
        # Arrays live as long as the pointers to them.
        self._arrays = of_pattern, transposed, by_entry, labels
        pointers = [None if array is None else array.ctypes.data for array in self._arrays]
        self._problem = _Problem(task.n, task.m, task.p, patterns.unit, *pointers)
        self._rules = _Rules(*rules, 0)
        # The memory begins at a multiple of 64 bytes.
        memory = np.empty(loaded.memory_bytes(ctypes.byref(self._problem), self._is_double) + 64, np.uint8)
        self._memory = memory[-memory.ctypes.data % 64 :]

    def follow(self, paths: Paths, steps: int) -> None:
        """Take steps on the paths that are running, as `Stack.follow` does."""
        self._rules.max_steps = steps
        arrays = [np.ascontiguousarray(getattr(paths, name)) for name in _PATH_ARRAYS]
        pointers = _Paths(len(paths.t), *(array.ctypes.data for array in arrays))
        memory = ctypes.c_void_p(self._memory.ctypes.data)
        references = (ctypes.byref(structure) for structure in (self._problem, self._rules, pointers))
        self._library.follow(*references, self._is_double, memory)
        for name, array in zip(_PATH_ARRAYS, arrays, strict=True):
            setattr(paths, name, array)
