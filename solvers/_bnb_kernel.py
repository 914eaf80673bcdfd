"""Interior-point method of branch and bound in compiled code; `_bnb_interior_point.py` has the same steps in NumPy."""

import ctypes
import threading
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_lapack

from ._bnb_interior_point import InteriorPoint
from ._bnb_node import Clock, Node, NodeResult, NodeSolver, Settings, Verdict, first_point
from ._bnb_relaxation import Relaxation
from ._library import load

Array = NDArray[np.float64]

# Cython's name of the type double.
_DOUBLE = "__pyx_t_5scipy_6linalg_13cython_lapack_d"
# The routines that the library gets, in its order, with the types of their arguments.
_ROUTINES = {
    "dpotrf": "void (char *, int *, d *, int *, int *)",
    "dpotri": "void (char *, int *, d *, int *, int *)",
    "dposv": "void (char *, int *, int *, d *, int *, d *, int *, int *)",
}


class _Task(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("is_symmetric", "n", "m", "p", "pair_count")),
        *((name, ctypes.c_void_p) for name in ("patterns", "columns", "labels", "pairs")),
    )


class _Settings(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_double if kind is float else ctypes.c_int64) for name, kind in Settings.__annotations__.items()
    )


class _Node(ctypes.Structure):
    _fields_ = (
        ("cut_counts", ctypes.c_int32 * 2),
        *((name, ctypes.c_void_p) for name in ("first", "second", "is_new", "x", "matrices")),
        *((name, ctypes.c_double) for name in ("target", "looseness", "remaining_seconds", "longest_seconds")),
        *((name, ctypes.c_int32) for name in ("verdict", "steps", "is_out_of_time")),
    )


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library with the routines of SciPy; None if there is none, or if SciPy has other routines."""
    loaded, pointers = load("_bnb"), [_pointer(*pair) for pair in _ROUTINES.items()]
    if loaded is None or not all(pointers):
        return None
    loaded.set_routines((ctypes.c_void_p * len(pointers))(*pointers))
    loaded.memory_bytes.restype = ctypes.c_int64
    return loaded


def _pointer(name: str, signature: str) -> int | None:
    """Return the pointer to a routine that SciPy hands to compiled code; None if its arguments are others."""
    capsule = cython_lapack.__pyx_capi__.get(name)
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    if capsule is None:
        return None
    label: bytes = get_name(capsule)
    pointer: int = get_pointer(capsule, label)
    return pointer if label.decode().replace(_DOUBLE, "d") == signature else None


def node_solver(relaxation: Relaxation) -> NodeSolver:
    """Return the compiled method, or the one in NumPy if there is no compiled library."""
    loaded = library()
    return InteriorPoint(relaxation, Settings()) if loaded is None else Kernel(loaded, relaxation, Settings())


class Kernel:
    """Compiled interior-point method for the relaxations of the nodes of a task, which runs without Python's lock.

    Parameters
    ----------
    loaded
        The compiled library.
    relaxation, settings
        As in `InteriorPoint`.
    """

    def __init__(self, loaded: ctypes.CDLL, relaxation: Relaxation, settings: Settings) -> None:
        self._library, self.relaxation, self.settings = loaded, relaxation, settings
        task = relaxation.task
        labels, pairs = task.labels.astype(np.float64), np.array(task.pairs, dtype=np.int32).T.copy()
        # Arrays live as long as the pointers to them.
        self._arrays = relaxation.patterns, relaxation.columns, labels, pairs
        sizes = relaxation.formulation == "symmetric", task.n, task.m, task.p, len(pairs)
        self._task = _Task(*sizes, *(array.ctypes.data for array in self._arrays))
        self._settings = _Settings(*settings)
        self._memory = threading.local()

    def solve(self, node: Node, target: float, looseness: float, clock: Clock) -> NodeResult:
        """Compare the value of the relaxation of a node with `target`, see `NodeSolver`."""
        d, (x, is_new) = self.relaxation.order, first_point(self.relaxation, node, self.settings)
        matrices = np.empty((self.relaxation.matrix_count, d, d))
        counts = (ctypes.c_int32 * 2)()
        for k, cuts in node.cuts_of_matrices:
            counts[k] = cuts.stop - cuts.start
        arrays = node.first, node.second, is_new, x, matrices
        pointers = (array.ctypes.data for array in arrays)
        limits = target, looseness, clock.remaining(), clock.longest_seconds
        its = _Node(counts, *pointers, *limits)
        self._library.solve(
            ctypes.byref(self._task), ctypes.byref(self._settings), ctypes.byref(its), self._memory_for(len(is_new))
        )
        clock.longest_seconds, clock.is_out_of_time = its.longest_seconds, bool(its.is_out_of_time)
        free, known = self.relaxation.offset_count, self.relaxation.offset_count + self.relaxation.stability_count
        return NodeResult(Verdict(its.verdict), x[:free], x[free:known], x[known:], matrices, its.steps)

    def _memory_for(self, cut_count: int) -> ctypes.c_void_p:
        """Return memory of this thread for a node with so many cuts."""
        size = self._library.memory_bytes(ctypes.byref(self._task), cut_count) + 64
        if getattr(self._memory, "size", 0) < size:
            self._memory.size, self._memory.array = size, np.empty(size, np.uint8)
        # The memory begins at a multiple of 64 bytes.
        address = self._memory.array.ctypes.data
        return ctypes.c_void_p(address + -address % 64)
