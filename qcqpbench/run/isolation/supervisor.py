"""The supervisor: a small process between the driver and a child process, which ends the child and all it has started.

It ends the child at its deadline, over its memory limit, when the driver asks for it, and when the driver is gone. It
adopts what the child leaves behind, also daemons with a session of their own, so nothing outlives it. Its heartbeat
tells the driver that it is at work: a supervisor that was stopped enforces no limit. If the driver dies while the supervisor is
stopped, the system continues the supervisor, which then ends everything. It needs the standard library only, and starts the
child by a fork before anything else is imported.
"""

import contextlib
import math
import mmap
import os
import select
import shutil
import signal
import struct
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ._linux import (
    IS_LINUX,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    descendants,
    prctl,
    process_name,
    resident_bytes,
    thread_ticks,
)

POLL = 0.05
OUTPUT, REPORTS = "output", "reports"
IDLE, PREPARING, BUILDING, SOLVING, VERIFYING = range(5)
PHASES = ("waiting", "preparing", "building", "solving", "verifying")
TAIL = 4000
# What a solver may have printed before the beginning of it is dropped.
_MOST_OUTPUT = 1 << 24


class _Cell:
    def __init__(self, place: int) -> None:
        self.place = place

    def __get__(self, board: "Board", _: type) -> float:
        return board.cells[self.place]

    def __set__(self, board: "Board", value: float) -> None:
        board.cells[self.place] = value


class Board:
    """Numbers in memory that the worker and its supervisor share.

    By the worker: the phase, since when, its deadline (both of time.monotonic), its memory limit in bytes, the threads
    it was given, and the CPU seconds it had used before this run. By the supervisor: the most memory seen, the most threads
    seen running at once, how often they were more than given, and how often it looked.
    """

    phase, since, deadline, memory_limit, given, cpu = (_Cell(place) for place in range(6))
    memory, threads, over, looks = (_Cell(place) for place in range(6, 10))

    def __init__(self) -> None:
        self.cells = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("d")
        self.begin(IDLE)

    def begin(self, phase: int, deadline: float = math.inf) -> None:
        # In this order, so that no new phase meets an old deadline.
        self.deadline = math.inf
        self.phase, self.since = phase, time.monotonic()
        self.deadline = deadline

    def clear(self, memory_limit: float = math.inf, given: int = 1) -> None:
        self.memory_limit, self.given, self.cpu = memory_limit, given, time.process_time()
        self.memory = self.threads = self.over = self.looks = 0


@dataclass(frozen=True)
class Ended:
    """How a worker ended.

    reason          deadline, memory, died, or lost: we do not know
    how             a signal's name or an exit code
    phase           of PHASES, and the seconds it was in it, until all was dead
    left            the names of processes it had started that still ran
    output          the end of what it printed
    reports         the points it had reported, as `qcqpbench.run.isolation.solver_process` writes them
    """

    reason: str
    how: str
    phase: str = PHASES[SOLVING]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    left: tuple[str, ...] = ()
    output: str = ""
    reports: bytes = b""


class Heartbeat:
    """The time of a supervisor's last look, in memory that it shares with the driver and not with its child."""

    _TIME = struct.Struct("<d")
    _FINISHED = struct.Struct("<?")

    def __init__(self, file: int) -> None:
        self._memory = mmap.mmap(file, mmap.PAGESIZE)

    def beat(self) -> None:
        self._TIME.pack_into(self._memory, 0, time.monotonic())

    def last(self) -> float:
        """Return the time of the last beat, of time.monotonic; 0 before the first."""
        return float(self._TIME.unpack_from(self._memory)[0])

    def finish(self) -> None:
        """Say that the child and all it had started have ended."""
        self._FINISHED.pack_into(self._memory, self._TIME.size, True)

    def has_finished(self) -> bool:
        return bool(self._FINISHED.unpack_from(self._memory, self._TIME.size)[0])

    def close(self) -> None:
        self._memory.close()


def wake_at_death_of_parent() -> None:
    """Let the system continue this process when its parent dies, should somebody have stopped it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def supervise(control: Connection, pipe: int, heartbeat: int, folder: Path, cpus: set[int]) -> Board:
    """Fork, and bind the child to the CPUs, if there are any.

    Returns in the child only, which shares the numbers on the board and an empty folder with its supervisor.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent, me = os.getppid(), os.getpid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_at_death_of_parent()
    board = Board()
    worker = os.fork()
    if worker == 0:
        control.close()
        os.close(heartbeat)
        os.setsid()
        # So that it can ask the system whether it has any descendants; ours they become when it dies.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != me:
            os._exit(1)
        write_to(folder / OUTPUT)
        if cpus:
            os.sched_setaffinity(0, cpus)
        return board
    os.close(pipe)
    signs = Heartbeat(heartbeat)
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        _Supervisor(control, parent, worker, board, signs, folder).work()
    _end_all(worker)
    signs.finish()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


class _Supervisor:
    def __init__(
        self, control: Connection, parent: int, worker: int, board: Board, heartbeat: Heartbeat, folder: Path
    ) -> None:
        self.control, self.parent, self.worker, self.board, self.folder = control, parent, worker, board, folder
        self.heartbeat = heartbeat
        self.descendants: list[int] = []
        # CPU time of each thread at the last look.
        self.ticks: dict[int, int] = {}
        self.next_scan = 0.0

    def work(self) -> None:
        """Supervise the child until it exits or exceeds a limit, then send `Ended` unless shutdown was requested."""
        reason = self._watch()
        if not reason:
            return
        board = self.board
        phase, since = PHASES[int(board.phase)], board.since
        left = tuple(sorted(process_name(pid) for pid in descendants(os.getpid()) if pid != self.worker))
        code, cpu = _end_all(self.worker)
        ended = Ended(
            reason=reason,
            how=signal.Signals(-code).name if code < 0 else f"exit code {code}",
            phase=phase,
            seconds=time.monotonic() - since,
            cpu_seconds=max(0.0, cpu - board.cpu),
            peak_memory_bytes=int(board.memory),
            left=left,
            output=tail(self.folder / OUTPUT),
            reports=(self.folder / REPORTS).read_bytes() if (self.folder / REPORTS).exists() else b"",
        )
        self.control.send(ended)

    def _watch(self) -> str:
        """Return why the child must end or has ended; empty if the driver asked for it or is gone."""
        asked = self.control.fileno()
        files = [asked, os.pidfd_open(self.worker)] if IS_LINUX else [asked]
        while True:
            self.heartbeat.beat()
            until = self.board.deadline - time.monotonic()
            ready, _, _ = select.select(files, [], [], max(0.0, min(POLL, until)))
            if asked in ready or os.getppid() != self.parent:
                return ""
            if _reap(self.worker):
                return "died"
            if self.board.phase == IDLE:
                continue
            if time.monotonic() >= self.board.deadline:
                return "deadline"
            self._look()
            if self.board.memory > self.board.memory_limit:
                return "memory"

    def _look(self) -> None:
        """How much memory and how many threads the worker and its descendants have now."""
        now = time.monotonic()
        if now >= self.next_scan:
            self.descendants = descendants(self.worker)
            # A hundredth of our time at the most, however many processes the machine runs.
            self.next_scan = now + max(2 * POLL, 100 * (time.monotonic() - now))
        used = resident_bytes(self.worker, shared=True) + sum(
            resident_bytes(pid, shared=False) for pid in self.descendants
        )
        ticks = {thread: used for pid in (self.worker, *self.descendants) for thread, used in thread_ticks(pid)}
        # By the time they use, not by their state: threads that take turns are all ready to run on a busy machine.
        running = sum(used > self.ticks.get(thread, 0) for thread, used in ticks.items())
        self.ticks = ticks
        board = self.board
        board.memory, board.threads = max(board.memory, used), max(board.threads, running)
        board.looks, board.over = board.looks + 1, board.over + (running > board.given)
        with contextlib.suppress(OSError):
            if (self.folder / OUTPUT).stat().st_size > _MOST_OUTPUT:
                os.truncate(self.folder / OUTPUT, 0)


def write_to(path: Path) -> None:
    """Let an empty file take what is written to stdout and stderr, also by libraries and by child processes."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
    if file > 2:
        os.close(file)


def tail(path: Path) -> str:
    """The end of a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def left_behind() -> tuple[str, ...]:
    """The names of this process' descendants that still run, given a moment to end. It must be a subreaper."""
    patience = time.monotonic() + 0.1
    try:
        while True:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            if time.monotonic() > patience:
                return tuple(sorted(map(process_name, descendants(os.getpid()))))
            time.sleep(0.005)
    except ChildProcessError:
        return ()


def _end_all(worker: int) -> tuple[int, float]:
    """Kill every descendant; returns the worker's exit code, negative for a signal, and its CPU seconds."""
    code, cpu = 0, 0.0
    give_up = time.monotonic() + 10
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    while time.monotonic() < give_up:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == worker:
                    code, cpu = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        except ChildProcessError:
            break
        time.sleep(0.002)
    return code, cpu


def _reap(worker: int) -> bool:
    """Reap adopted children that have ended; whether the worker has, which is left for _end_all."""
    while True:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return False
        if found.si_pid == worker:
            return True
        os.waitpid(found.si_pid, 0)
