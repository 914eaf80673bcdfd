"""The driver's side of a child process and its supervisor."""

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from qcqpbench.errors import QcqpbenchError, require

from ._linux import cpu_seconds
from .fork_server import MARK, ForkedProcess, ForkRequest, fork
from .protocol import Channel, Message, ProtocolError, Request, new_id, pack_request
from .shared_state import PHASES, PREPARING, ControlPage, Limits, Usage
from .supervisor import Ended

_START_TRIES = 10
_TICK_SECONDS = 1.0
# A supervisor without a heartbeat for this many ticks of the driver is considered stopped.
_MISSED_TICKS = 10
_SEND_SECONDS = 60.0
_END_SECONDS = 10.0
_READY_SECONDS = 60.0
# Extra time for the supervisor to enforce the limits of a request before the driver does.
_ENFORCE_SECONDS = 60.0
# CPU time that a process may use between two requests. A process that uses more computes outside the measured time and
# is replaced.
_MAX_IDLE_CPU_SECONDS = 0.05

Role = Literal["qcqpbench.run.isolation.roles.solver_process", "qcqpbench.run.isolation.roles.verifier_process"]


class StoppedError(Exception):
    """Raised in a thread that waits for a process after another thread has interrupted it."""


class SupervisedProcess:
    """A child process and its supervisor, started at the first request.

    role      name of the module that serves the requests
    cpus      CPUs to bind the process to; empty for no binding
    threads   number of BLAS and OpenMP threads
    """

    def __init__(self, role: Role, cpus: set[int], threads: int) -> None:
        self.role, self.cpus, self.threads = role, cpus, threads
        # Id of the child process; 0 before its first message.
        self.process_id = 0
        # Observed by the supervisor during the last request.
        self.usage = Usage()
        self._interrupted = False
        self._starting = threading.Lock()
        self._supervisor: ForkedProcess | None = None
        self._channel: Channel | None = None
        self._control: Connection | None = None
        self._page: ControlPage | None = None
        self._requests = 0
        self._cpu_seconds = 0.0
        self._folder: str | None = None
        self._mark = ""

    @property
    def supervisor_id(self) -> int | None:
        """The process id of the supervisor; None if it is not running."""
        return None if self._supervisor is None else self._supervisor.process_id

    def ask(
        self,
        request: Request,
        limits: Limits,
        read: Callable[[bytes], tuple[str, int | None, Any]],
        main: Mapping[str, Any] | None = None,
    ) -> Any | Ended:
        """Send a request; return the reply as decoded by `read`, or an `Ended` if the process ends without a reply.

        Parameters
        ----------
        limits
            Limits that the supervisor enforces until the reply has arrived.
        read
            Function that decodes a frame and returns the id of the request, the id of the replying process (None for
            any) and the reply. Replies to other requests and from other processes are ignored.
        main
            Data for importing the user's script, if the solver is defined there.
        """
        id = new_id()
        data = pack_request(id, main, request)
        self.stop_if_busy()
        self._start()
        channel, control, page = self._channel, self._control, self._page
        assert channel is not None and control is not None and page is not None
        self._requests += 1
        page.begin_request(self._requests, limits, cpu_seconds(self.process_id))
        with contextlib.suppress(OSError):
            # If the child is dead, the supervisor reports how it died.
            channel.send(data, _SEND_SECONDS)
        answer = self._wait(
            channel,
            control,
            limits.total_seconds + _ENFORCE_SECONDS,
            lambda frame: _matching(read(frame), id, self.process_id),
        )
        if isinstance(answer, Ended):
            self.stop()
        else:
            self.usage = page.usage(self._requests)
            page.end_request()
            self._cpu_seconds = cpu_seconds(self.process_id)
        return answer

    def stop(self) -> None:
        """End the process and all its descendants immediately."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None or self._channel is None or self._control is None or self._page is None:
            return
        self._channel.close()
        self._control.close()
        # A stopped supervisor must continue in order to end.
        supervisor.send_signal(signal.SIGCONT)
        if not supervisor.has_ended(_END_SECONDS):
            supervisor.send_signal(signal.SIGKILL)
            supervisor.has_ended(_END_SECONDS)
        if not self._has_finished():
            # The supervisor was killed, so its child and descendants may still run.
            _kill_marked(self._mark)
        self._page.close()
        self._page = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def interrupt(self) -> None:
        """End the process permanently, from another thread; a call that waits for a reply raises StoppedError."""
        with self._starting:
            self._interrupted = True
            supervisor = self._supervisor
            if supervisor is not None:
                supervisor.send_signal(signal.SIGTERM)
                supervisor.send_signal(signal.SIGCONT)

    def _start(self) -> None:
        # The supervisor reports its end on the control page a moment before the process ends.
        if self._supervisor is not None and (self._supervisor.has_ended() or self._has_finished()):
            self.stop()
        if self._supervisor is not None:
            return
        guarded = MARK not in os.environ
        require(guarded, "a worker must not start workers; put the script's calls under `if __name__ == '__main__':`")
        for _ in range(_START_TRIES):
            with self._starting:
                if self._interrupted:
                    raise StoppedError
                self._spawn()
            assert self._channel is not None and self._control is not None and self._page is not None
            self._requests += 1
            self._page.begin_request(self._requests, Limits(_READY_SECONDS), 0.0)
            ready = self._wait(self._channel, self._control, _READY_SECONDS + _ENFORCE_SECONDS, lambda frame: frame)
            if not isinstance(ready, Ended):
                self.process_id = Message.from_bytes(ready).process
                self._page.end_request()
                return
            reason = ready.output.strip().splitlines() or [ready.how]
            self.stop()
            if ready.how.startswith("exit code"):
                # The child exited by itself, so another start would fail too.
                break
        raise QcqpbenchError(f"a worker process died at its start: {reason[-1]}")

    def _spawn(self) -> None:
        """Start the supervisor, which forks the child, and open the connections to both."""
        # Created by the driver, because a supervisor may be killed before it can report the path.
        self._folder = tempfile.mkdtemp(prefix="qcqpbench-")
        self._mark = Path(self._folder).name
        drivers_end, childs_end = socket.socketpair()
        control, supervisors_end = socket.socketpair()
        memory = _shared_memory()
        request = ForkRequest(self.role, self._folder, tuple(self.cpus))
        try:
            with childs_end, supervisors_end:
                self._supervisor = fork(self.threads, request, supervisors_end.fileno(), childs_end.fileno(), memory)
            self._page = ControlPage(memory)
        except BaseException:
            drivers_end.close()
            control.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        finally:
            os.close(memory)
        self._channel, self._control = Channel(drivers_end), Connection(control.detach())

    def _wait(
        self, channel: Channel, control: Connection, seconds: float, take: Callable[[bytes], Any | None]
    ) -> Any | Ended:
        """Return the first result of `take(frame)` that is not None, or an `Ended` if the process ends first."""
        until, missed, deaf = time.monotonic() + seconds, 0, False
        while True:
            # Wait for both, because a child of the solver may keep the channel open after the process has died.
            ready = wait([control] if deaf else [channel.fileno(), control], _TICK_SECONDS)
            if self._interrupted:
                raise StoppedError
            try:
                if channel.fileno() in ready:
                    # Take all frames, because the socket does not become ready again for data already in the buffer.
                    while (frame := channel.poll()) is not None:
                        if (answer := take(frame)) is not None:
                            return answer
                if control in ready:
                    return self._ended(control)
            except ProtocolError as error:
                return self._give_up(str(error), "protocol")
            except EOFError:
                # The child has died, which the supervisor will report, or has closed its end and will not reply.
                deaf, until = True, min(until, time.monotonic() + _END_SECONDS)
            missed = 0 if ready or self._is_watched() else missed + 1
            if missed > _MISSED_TICKS:
                return self._give_up("its supervisor was stopped")
            if time.monotonic() > until:
                return self._give_up("closed its connection" if deaf else "outlived its limits")

    def _ended(self, control: Connection) -> Ended:
        try:
            ended: Ended = control.recv()
        except (EOFError, OSError):
            return Ended("lost", "its supervisor was killed")
        return ended

    def stop_if_busy(self) -> None:
        """End the process if it has used the CPU since its last reply: a solver's threads are still running."""
        idle_cpu_seconds = cpu_seconds(self.process_id) - self._cpu_seconds
        if self._supervisor is not None and idle_cpu_seconds > _MAX_IDLE_CPU_SECONDS:
            self.stop()

    def _has_finished(self) -> bool:
        return self._page is not None and self._page.has_finished()

    def _is_watched(self) -> bool:
        assert self._page is not None
        last = self._page.heartbeat
        return last == 0 or time.monotonic() - last < _TICK_SECONDS * _MISSED_TICKS

    def _give_up(self, how: str, reason: str = "died") -> Ended:
        """Stop the process and return an `Ended` with the given description and reason."""
        self.stop()
        return Ended(reason, how, PHASES[PREPARING])


def _matching(reply: tuple[str, int | None, Any], id: str, process: int) -> Any | None:
    """Return the content of `reply` if it belongs to request `id` and `process`; None otherwise."""
    replied_to, replied_by, content = reply
    return content if replied_to == id and replied_by in (None, process) else None


def _shared_memory() -> int:
    """Return the descriptor of an anonymous file in memory with the size of one page."""
    file = os.memfd_create("qcqpbench")
    os.ftruncate(file, os.sysconf("SC_PAGE_SIZE"))
    return file


def _kill_marked(mark: str) -> None:
    """Kill all processes in whose environment the variable `MARK` has the value `mark`."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
