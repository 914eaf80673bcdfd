"""State of a process that a run may leave changed: whatever the next run would inherit is found and named."""

import contextlib
import gc
import locale
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = tuple(getattr(resource, name) for name in sorted(vars(resource)) if name.startswith("RLIMIT_"))


# Those that programs set in Python; the masks of the system show all that are caught or ignored.
_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGINT", "SIGPIPE", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU")
)
_MASKS = ("SigBlk", "SigIgn", "SigCgt")


def _signals() -> Any:
    masks = []
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        masks = [line for line in file if line.startswith(_MASKS)]
    return masks, [signal.getsignal(number) for number in _SIGNALS]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _streams() -> Any:
    """Return what stands behind stdin, stdout and stderr, for Python and for the system."""
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


# What the import of a package may change for good (Pyomo does); its process serves one solver, so nobody else sees it.
_BY_IMPORT = ("environment variables", "signal handlers")


class Snapshot:
    """The state of this process before a run; in the first one, imports may change part of it."""

    def __init__(self, first: bool = False) -> None:
        self._state = {name: look() for name, look in _LOOKS.items() if not (first and name in _BY_IMPORT)}
        self._threads = set(threading.enumerate())

    def changes(self) -> tuple[str, ...]:
        """Return the names of what differs now."""
        changed = []
        for name, state in self._state.items():
            same = False
            with contextlib.suppress(Exception):
                same = _LOOKS[name]() == state
            if not same:
                changed.append(name)
        if set(threading.enumerate()) - self._threads:
            changed.append("threads")
        return tuple(changed)
