"""The supervisor: a process between driver and child process that ends the child and all its descendants.

The supervisor ends the child at its deadline, above its memory limit, on request of the driver, and when the driver is
gone. The driver sets the limits; the child only announces its phase, and no announcement extends a run beyond the
limits. The supervisor adopts the processes that the child leaves behind, including daemons with their own session, so
none outlives it. Its heartbeat shows the driver that it is running, since a stopped supervisor enforces no limit. If
its parent dies while the supervisor is stopped, the system continues the supervisor, which then ends all processes.
This module imports the standard library only.
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
# CPU time, in clock ticks, that the threads must use together before those that used some are counted: almost what one
# CPU gives between two looks. After so many looks without it, the count begins anew.
_MIN_TICKS_OF_COUNT, _MAX_LOOKS_OF_COUNT = 4, 20
# A larger output file is emptied.
_MAX_OUTPUT_BYTES = 1 << 24
_KILL_SECONDS, _KILL_POLL_SECONDS = 10.0, 0.002
# Time for children of a solver to end after its run.
_LEAVE_SECONDS, _LEAVE_POLL_SECONDS = 0.1, 0.005


@dataclass(frozen=True)
class Ended:
    """End of a child process: reason, resource usage and remaining output.

    reason          deadline, memory, died, protocol (its message could not be read), or lost (unknown)
    how             name of a signal, exit code, or description
    phase           last phase, one of PHASES
    seconds         time from the beginning of that phase until all processes had ended
    left            names of descendants that were still running
    output          the end of its output
    reports         the points it had reported, as written by `roles.solver_process`
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
    """Make the system send SIGCONT to this process when its parent dies, in case this process is stopped."""
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def supervise(control: Connection, pipe: int, page: int, folder: Path, cpus: set[int]) -> Phases:
    """Fork a child process and supervise it; return only in the child, with the pipe for its phases.

    The child is bound to `cpus` if there are any, and its output goes to a file in `folder`. `control` is the
    supervisor's connection to the driver; `pipe` and `page` are file descriptors of the child's connection to the
    driver and of the control page.
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
        phases.close_reader()
        os.setsid()
        # As a subreaper the child can count its descendants. The supervisor adopts them when the child dies.
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
    """State of the supervisor: observations of the child process, and the pending request."""

    def __init__(
        self, control: Connection, parent: int, worker: int, phases: Phases, page: ControlPage, folder: Path
    ) -> None:
        self.control, self.parent, self.worker, self.phases, self.folder = control, parent, worker, phases, folder
        self.page = page
        self.descendants: list[int] = []
        # CPU time of each thread at the last count, and the number of looks since then.
        self.ticks: dict[int, int] = {}
        self.looks_since_count = 0
        self.next_scan = 0.0
        self.last_look = time.monotonic()
        # Number of the pending request; 0 if there is none. The attributes below belong to it.
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
        """Wait until the child exits or exceeds a limit and return the reason; empty if driver or parent is gone."""
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
        """Update the pending request from the control page, and the phase from the child's announcements."""
        now, request = time.monotonic(), self.page.request()
        if request != self.request:
            begun, cpu_before, limits = self.page.begun, self.page.cpu_before, self.page.limits()
            if request != self.page.request():
                # The driver is writing the next request.
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
        """Sample the memory and the running threads of the child and its descendants, and report them to the driver."""
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
        self.usage = self.usage._replace(memory_bytes=max(self.usage.memory_bytes, memory))
        self._count_threads()
        self.page.report(self.request, self.usage)
        cut_output(self.folder / OUTPUT, _MAX_OUTPUT_BYTES)

    def _count_threads(self) -> None:
        """Count the threads that used the CPU since the last count, once they have used enough of it together.

        They are counted by the time they use, not by their state: threads that take turns are all ready to run on a
        busy machine, where a few looks may pass until the process gets some time at all.
        """
        ticks = {thread: used for pid in (self.worker, *self.descendants) for thread, used in thread_ticks(pid)}
        used = [count - self.ticks.get(thread, 0) for thread, count in ticks.items()]
        self.looks_since_count += 1
        is_enough = sum(used) >= _MIN_TICKS_OF_COUNT
        if is_enough or self.looks_since_count >= _MAX_LOOKS_OF_COUNT:
            self.ticks, self.looks_since_count = ticks, 0
        if is_enough:
            running = sum(count > 0 for count in used)
            self.usage = self.usage._replace(
                threads=max(self.usage.threads, running),
                over=self.usage.over + (running > self.limits.threads),
                looks=self.usage.looks + 1,
            )


def left_behind() -> tuple[str, ...]:
    """Return the names of descendants of this process, a subreaper, still running after `_LEAVE_SECONDS`."""
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
    """Kill all descendants; return the exit code of process `worker`, negative for a signal, and its CPU seconds."""
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
    """Reap adopted children that have ended; return whether process `worker`, which is not reaped, has ended."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        if ended.si_pid == worker:
            return True
        os.waitpid(ended.si_pid, 0)
