"""The supervisor: a small process between the driver and a child process, which ends the child and all it has started.

It ends the child at its deadline, over its memory limit, when the driver asks for it, and when the driver is gone. The
limits are the driver's; the child only announces its phase, and no announcement extends a run beyond the limits. The
supervisor adopts what the child leaves behind, also daemons with a session of their own, so nothing outlives it. Its
heartbeat tells the driver that it is at work: a supervisor that was stopped enforces no limit. If the driver dies while
the supervisor is stopped, the system continues the supervisor, which then ends everything. It needs the standard
library only, and starts the child by a fork before anything else is imported.
"""

import contextlib
import math
import os
import select
import shutil
import signal
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
    process_state,
    resident_bytes,
    thread_ticks,
)
from .shared_state import (
    BUILDING,
    IDLE,
    OUTPUT,
    PHASES,
    REPORTS,
    SOLVING,
    ControlPage,
    Limits,
    Phases,
    Usage,
    cut_output,
    read_reports,
    read_tail,
    redirect_output,
)

POLL_SECONDS = 0.05
# Of a solver's output; if it is more, what was printed so far is dropped.
_MAX_OUTPUT_BYTES = 1 << 24
_KILL_SECONDS, _KILL_POLL_SECONDS = 10.0, 0.002
# For children of a solver to end after its run.
_LEAVE_SECONDS, _LEAVE_POLL_SECONDS = 0.1, 0.005


@dataclass(frozen=True)
class Ended:
    """How a child process ended.

    reason          deadline, memory, died, protocol (it sent what cannot be read), or lost (unknown)
    how             a signal's name, an exit code, or words
    phase           of PHASES, and the seconds it was in it, until all was dead
    left            the names of processes it had started that still ran
    output          the end of what it printed
    reports         the points it had reported, as `roles.solver_process` writes them
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


def wake_at_death_of_parent() -> None:
    """Let the system continue this process when its parent dies: it may have been stopped."""
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def supervise(control: Connection, pipe: int, page: int, folder: Path, cpus: set[int]) -> Phases:
    """Fork, and bind the child to the CPUs, if there are any.

    Returns in the child only, which shares the pipe of phases and an empty folder with its supervisor. `page` is the
    file of the control page.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent, me = os.getppid(), os.getpid()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_at_death_of_parent()
    phases = Phases()
    worker = os.fork()
    if worker == 0:
        control.close()
        os.close(page)
        os.setsid()
        # So that it can ask the system whether it has any descendants; the supervisor adopts them when it dies.
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != me:
            os._exit(1)
        redirect_output(folder / OUTPUT)
        if cpus:
            os.sched_setaffinity(0, cpus)
        return phases
    os.close(pipe)
    control_page = ControlPage(page)
    os.close(page)
    with contextlib.suppress(BaseException):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        _Supervisor(control, parent, worker, phases, control_page, folder).work()
    _end_all(worker)
    control_page.finish()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


class _Supervisor:
    """The supervisor's state: what it has seen of the child, and the request under way."""

    def __init__(
        self, control: Connection, parent: int, worker: int, phases: Phases, page: ControlPage, folder: Path
    ) -> None:
        self.control, self.parent, self.worker, self.phases, self.folder = control, parent, worker, phases, folder
        self.page = page
        self.descendants: list[int] = []
        # CPU time of each thread at the last look.
        self.ticks: dict[int, int] = {}
        self.next_scan = 0.0
        self.last_look = time.monotonic()
        # Of the request under way, by number; 0 if there is none.
        self.request = 0
        self.limits = Limits(math.inf)
        self.phase, self.since, self.deadline = IDLE, 0.0, math.inf
        self.begun = self.cpu_before = 0.0
        self.usage = Usage()

    def work(self) -> None:
        """Supervise the child until it exits or exceeds a limit, then send `Ended` unless shutdown was requested."""
        reason = self._watch()
        if not reason:
            return
        self._follow()
        left = tuple(sorted(process_name(pid) for pid in descendants(os.getpid()) if pid != self.worker))
        code, cpu = _end_all(self.worker)
        ended = Ended(
            reason=reason,
            how=signal.Signals(-code).name if code < 0 else f"exit code {code}",
            phase=PHASES[self.phase],
            seconds=time.monotonic() - self.since,
            cpu_seconds=max(0.0, cpu - self.cpu_before),
            peak_memory_bytes=int(self.usage.memory_bytes),
            left=left,
            output=read_tail(self.folder / OUTPUT),
            reports=read_reports(self.folder / REPORTS),
        )
        self.control.send(ended)

    def _watch(self) -> str:
        """Return why the child must end or has ended; empty if the driver asked for it or is gone."""
        closed = self.control.fileno()
        files = [closed, os.pidfd_open(self.worker)] if IS_LINUX else [closed]
        while True:
            self.page.beat()
            until = self.deadline - time.monotonic()
            ready, _, _ = select.select(files, [], [], max(0.0, min(POLL_SECONDS, until)))
            if closed in ready or os.getppid() != self.parent:
                return ""
            if _reap(self.worker):
                return "died"
            self._follow()
            if not self.request:
                continue
            if time.monotonic() >= self.deadline:
                return "deadline"
            self._look()
            if self.usage.memory_bytes > self.limits.memory_bytes:
                return "memory"

    def _follow(self) -> None:
        """Take over the driver's request, if it is new, and the phase that the child announces."""
        now, request = time.monotonic(), self.page.request()
        if request != self.request:
            begun, cpu_before, limits = self.page.begun, self.page.cpu_before, self.page.limits()
            if request != self.page.request():
                # The driver is writing.
                return
            self.request, self.limits, self.usage, self.phase = request, limits, Usage(), IDLE
            self.begun = self.since = self.last_look = begun
            self.cpu_before = cpu_before
            self.deadline = begun + limits.seconds(IDLE) if request else math.inf
        for phase, since in self.phases.announced():
            # Those of earlier requests are too old. Phases never go back.
            if self.request and since >= self.begun and phase in range(len(PHASES)) and phase > self.phase:
                # The announcement lies between two looks, whatever the child says.
                self.phase, self.since = int(phase), min(max(since, self.last_look), now)
                self.deadline = self.since + self.limits.seconds(self.phase)
        self.last_look = now

    def _look(self) -> None:
        """Note how much memory and how many threads the child and its descendants have now."""
        now = time.monotonic()
        if self.phase not in (BUILDING, SOLVING) and process_state(self.worker) == "T":
            # Stopped from outside: a solver that stops itself does it in its own time.
            with contextlib.suppress(OSError):
                os.kill(self.worker, signal.SIGCONT)
        if now >= self.next_scan:
            self.descendants = descendants(self.worker)
            # A hundredth of the supervisor's time at the most, however many processes the machine runs.
            self.next_scan = now + max(2 * POLL_SECONDS, 100 * (time.monotonic() - now))
        memory = resident_bytes(self.worker, shared=True) + sum(
            resident_bytes(pid, shared=False) for pid in self.descendants
        )
        ticks = {thread: used for pid in (self.worker, *self.descendants) for thread, used in thread_ticks(pid)}
        # By the time they use, not by their state: threads that take turns are all ready to run on a busy machine.
        running = sum(used > self.ticks.get(thread, 0) for thread, used in ticks.items())
        self.ticks = ticks
        seen = self.usage
        self.usage = Usage(
            memory_bytes=max(seen.memory_bytes, memory),
            threads=max(seen.threads, running),
            over=seen.over + (running > self.limits.threads),
            looks=seen.looks + 1,
        )
        self.page.report(self.request, self.usage)
        cut_output(self.folder / OUTPUT, _MAX_OUTPUT_BYTES)


def left_behind() -> tuple[str, ...]:
    """Return the names of this process' descendants that still run after a moment. It must be a subreaper."""
    give_up = time.monotonic() + _LEAVE_SECONDS
    try:
        while True:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            if time.monotonic() > give_up:
                return tuple(sorted(map(process_name, descendants(os.getpid()))))
            time.sleep(_LEAVE_POLL_SECONDS)
    except ChildProcessError:
        return ()


def _end_all(worker: int) -> tuple[int, float]:
    """Kill every descendant; return the worker's exit code, negative for a signal, and its CPU seconds."""
    code, cpu = 0, 0.0
    give_up = time.monotonic() + _KILL_SECONDS
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
        time.sleep(_KILL_POLL_SECONDS)
    return code, cpu


def _reap(worker: int) -> bool:
    """Reap adopted children that have ended; return whether the worker has, which is left for _end_all."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        if ended.si_pid == worker:
            return True
        os.waitpid(ended.si_pid, 0)
