"""Suppression of the output of native libraries, for packages whose options cannot turn it off."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discard all that this process writes to the file descriptors 1 and 2 until the context ends."""
    with contextlib.ExitStack() as stack:
        null = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, null)
        _flush()
        for descriptor in (1, 2):
            copy = os.dup(descriptor)
            stack.callback(os.close, copy)
            stack.callback(os.dup2, copy, descriptor)
            os.dup2(null, descriptor)
        # Before the descriptors are restored, so that buffered output is discarded too.
        stack.callback(_flush)
        yield


def _flush() -> None:
    """Flush the output buffers of Python and of the C library."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    ctypes.CDLL(None).fflush(None)
