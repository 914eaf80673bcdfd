"""Detection of process state that a run has changed and that the next run would inherit."""

import contextlib
import gc
import locale
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from qcqpbench.run.isolation._linux import is_busy, thread_ids

# Time for threads of a library to become idle: some wait for their next task by spinning.
_REST_SECONDS = 0.3
_POLL_SECONDS = 0.005
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = tuple(getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_"))


# Signals that programs handle in Python; the masks of the system show all that are caught or ignored.
_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGINT", "SIGPIPE", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")
)
_MASKS = ("SigBlk", "SigIgn", "SigCgt")
# The C library handles the signals 32 and 33 itself, from the first thread of the process on.
_OF_C_LIBRARY = 1 << 31 | 1 << 32


def _signals() -> Any:
    masks = []
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        masks = [int(line.split()[1], 16) & ~_OF_C_LIBRARY for line in file if line.startswith(_MASKS)]
    return masks, [signal.getsignal(number) for number in _SIGNALS]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _streams() -> Any:
    """Return the identities of the files behind descriptors 0 to 2, and of Python's three standard stream objects."""
    files = []
    for number in (0, 1, 2):
        try:
            status = os.fstat(number)
            files.append((status.st_dev, status.st_ino))
        except OSError:
            files.append((0, 0))
    objects = (sys.stdin, sys.stdout, sys.stderr)
    return files, [(id(stream), getattr(stream, "closed", True)) for stream in objects]


_LOOKS: dict[str, Callable[[], Any]] = {
    "environment variables": lambda: dict(os.environ),
    "error handling of NumPy": lambda: (np.geterr(), np.geterrcall()),
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "garbage collection": lambda: (gc.isenabled(), gc.get_threshold()),
    "import path": lambda: list(sys.path),
    "nice value": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "recursion limit": sys.getrecursionlimit,
    "resource limits": lambda: [resource.getrlimit(limit) for limit in _LIMITS],
    "signal handlers": _signals,
    "standard streams": _streams,
    "switch interval": sys.getswitchinterval,
    "timers": lambda: [signal.getitimer(timer) != (0.0, 0.0) for timer in _TIMERS],
    "trace function": lambda: (sys.gettrace(), sys.getprofile()),
    "umask": _umask,
}


# Importing a package may change these for good (Pyomo does). The process serves one solver, so no other is affected.
_BY_IMPORT = ("environment variables", "signal handlers")


class Snapshot:
    """State of this process before a run. If `first`, the state that imports may change is left out."""

    def __init__(self, first: bool = False) -> None:
        self._state = {name: look() for name, look in _LOOKS.items() if not (first and name in _BY_IMPORT)}
        self._threads = set(threading.enumerate())
        self._system_threads = thread_ids()

    def changes(self) -> tuple[str, ...]:
        """Return the names of the parts of the state that differ from the snapshot."""
        changed = []
        for name, state in self._state.items():
            same = False
            with contextlib.suppress(Exception):
                same = _LOOKS[name]() == state
            if not same:
                changed.append(name)
        if set(threading.enumerate()) - self._threads or self._has_busy_threads():
            changed.append("threads")
        return tuple(changed)

    def _has_busy_threads(self) -> bool:
        """Return whether a thread started after the snapshot is still busy after `_REST_SECONDS`."""
        give_up = time.monotonic() + _REST_SECONDS
        while any(map(is_busy, thread_ids() - self._system_threads)):
            if time.monotonic() > give_up:
                return True
            time.sleep(_POLL_SECONDS)
        return False
