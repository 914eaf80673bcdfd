"""State shared by driver, supervisor and child process: a memory page, a pipe, and files in the child's folder.

Imports the standard library only. A solver can write to the pipe and to the files, so their readers accept any content;
a file that cannot be read is treated as empty. Only driver and supervisor share the memory page.
"""

import contextlib
import math
import mmap
import os
import shutil
import stat
import struct
import time
from pathlib import Path
from typing import NamedTuple

OUTPUT, REPORTS = "output", "reports"
# The phases of a request, in the order a child goes through them.
IDLE, PREPARING, BUILDING, SOLVING, FINISHING = range(5)
PHASES = ("waiting", "preparing", "building", "solving", "finishing")
TAIL_BYTES = 4000
MAX_REPORT_BYTES = 1 << 28
# Flags for a path that a solver may have replaced: by a link, or by a pipe that would block.
_CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Phases:
    """Pipe through which a child process announces its phases to its supervisor."""

    _RECORD = struct.Struct("<dd")
    _MAX_RECORDS = 256

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)

    def close_reader(self) -> None:
        """Close the reading end in the child, which could otherwise take its announcements from the supervisor."""
        os.close(self._reader)
        self._reader = -1

    def announce(self, phase: int) -> None:
        """Announce to the supervisor that `phase` begins."""
        with contextlib.suppress(OSError):
            os.write(self._writer, self._RECORD.pack(phase, time.monotonic()))

    def announced(self) -> list[tuple[float, float]]:
        """Return the phases announced since the last call, with the monotonic times that the child states."""
        try:
            data = os.read(self._reader, self._MAX_RECORDS * self._RECORD.size)
        except OSError:
            return []
        whole = len(data) // self._RECORD.size * self._RECORD.size
        return [(phase, since) for phase, since in self._RECORD.iter_unpack(data[:whole])]


class _Cell:
    """Descriptor of a number in a `ControlPage`."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __get__(self, page: "ControlPage", _: type) -> float:
        return page.cells[self._place]

    def __set__(self, page: "ControlPage", value: float) -> None:
        page.cells[self._place] = value


class Limits(NamedTuple):
    """Limits of a child process for one request: seconds per phase, bytes of memory, and threads."""

    prepare_seconds: float
    build_seconds: float = 0.0
    solve_seconds: float = 0.0
    finish_seconds: float = 0.0
    memory_bytes: float = math.inf
    threads: float = 1.0

    def seconds(self, phase: int) -> float:
        """Return the time limit of `phase`; that of IDLE is `prepare_seconds`."""
        return (
            self.prepare_seconds,
            self.prepare_seconds,
            self.build_seconds,
            self.solve_seconds,
            self.finish_seconds,
        )[phase]

    @property
    def total_seconds(self) -> float:
        return self.prepare_seconds + self.build_seconds + self.solve_seconds + self.finish_seconds


class Usage(NamedTuple):
    """Resource usage of one request, as observed by the supervisor.

    memory_bytes   peak memory
    threads        largest number of threads that used the CPU between two counts
    over, looks    number of counts with more threads than allowed, and number of all counts
    """

    memory_bytes: float = 0.0
    threads: float = 0.0
    over: float = 0.0
    looks: float = 0.0


class ControlPage:
    """Memory page that a supervisor shares with the driver but not with its child.

    The driver writes the limits of the pending request, and the supervisor writes the observed usage. Each of them
    writes the number of the request last. The heartbeat shows the driver that the supervisor is running.
    """

    heartbeat, finished, _request, begun, cpu_before, _observed = (_Cell(place) for place in range(6))
    _LIMITS = slice(8, 14)
    _USAGE = slice(16, 20)

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, mmap.PAGESIZE)
        self.cells = memoryview(self._memory).cast("d")

    def close(self) -> None:
        self.cells.release()
        self._memory.close()

    def begin_request(self, number: int, limits: Limits, cpu_before: float) -> None:
        """Start request `number` with the limits to enforce and `cpu_before`, the CPU time of the child so far."""
        self._request, self.begun, self.cpu_before = 0, time.monotonic(), cpu_before
        for place, value in enumerate(limits, self._LIMITS.start):
            self.cells[place] = value
        self._request = number

    def end_request(self) -> None:
        """Mark the request as complete, so that the supervisor stops enforcing its limits."""
        self._request = 0

    def request(self) -> int:
        """Return the number of the pending request; 0 if there is none."""
        return int(self._request)

    def limits(self) -> Limits:
        return Limits(*self.cells[self._LIMITS])

    def report(self, number: int, usage: Usage) -> None:
        """Write the observed usage of request `number` for the driver."""
        self._observed = 0
        for place, value in enumerate(usage, self._USAGE.start):
            self.cells[place] = value
        self._observed = number

    def usage(self, number: int) -> Usage:
        """Return the observed usage of request `number`; all zeros if there is none."""
        return Usage(*self.cells[self._USAGE]) if self._observed == number else Usage()

    def beat(self) -> None:
        self.heartbeat = time.monotonic()

    def finish(self) -> None:
        """Record that the child and all its descendants have ended."""
        self.finished = 1

    def has_finished(self) -> bool:
        return bool(self.finished)


def redirect_output(path: Path) -> None:
    """Redirect file descriptors 1 and 2 (stdout and stderr) to the file `path`, which is emptied first."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC | _CAREFULLY
    try:
        file = os.open(path, flags, 0o600)
        regular = stat.S_ISREG(os.fstat(file).st_mode)
    except OSError:
        file, regular = -1, False
    if not regular:
        if file >= 0:
            os.close(file)
        _remove(path)
        file = os.open(path, flags | os.O_EXCL, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
    if file > 2:
        os.close(file)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def read_tail(path: Path) -> str:
    """Return the last `TAIL_BYTES` bytes of a file as text; empty if it is not a readable regular file."""
    return _read(path, TAIL_BYTES, from_end=True).decode(errors="replace")


def read_reports(path: Path) -> bytes:
    """Return the first `MAX_REPORT_BYTES` bytes of a file of reports; empty if it is not a readable regular file."""
    return _read(path, MAX_REPORT_BYTES, from_end=False)


def _read(path: Path, max_bytes: int, from_end: bool) -> bytes:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | _CAREFULLY)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if stat.S_ISREG(status.st_mode):
                stream.seek(max(0, status.st_size - max_bytes) if from_end else 0)
                return stream.read(max_bytes)
    return b""


def cut_output(path: Path, max_bytes: int) -> None:
    """Truncate the output file to zero length if it is larger than `max_bytes`."""
    with contextlib.suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_size > max_bytes:
            file = os.open(path, os.O_WRONLY | _CAREFULLY)
            try:
                if stat.S_ISREG(os.fstat(file).st_mode):
                    os.ftruncate(file, 0)
            finally:
                os.close(file)
