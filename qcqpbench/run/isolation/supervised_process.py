"""The driver's side of a child process with its supervisor: start, ask, interrupt, stop."""

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
# A supervisor that has not looked for so many of the driver's own ticks was stopped.
_MISSED_TICKS = 10
_SEND_SECONDS = 60.0
_END_SECONDS = 10.0
_READY_SECONDS = 60.0
# For the supervisor to enforce the limits of a request; after it the driver does.
_ENFORCE_SECONDS = 60.0
# CPU time that a process may use between two requests; one that used more works on behind the clock's back.
_MAX_IDLE_CPU_SECONDS = 0.05

Role = Literal["qcqpbench.run.isolation.roles.solver_process", "qcqpbench.run.isolation.roles.verifier_process"]


class StoppedError(Exception):
    """The worker was interrupted."""


class SupervisedProcess:
    """A process of a role and its supervisor. It is started at the first request.

    role      the module that serves the requests
    cpus      the CPUs to bind it to; empty for no binding
    threads   BLAS and OpenMP threads
    """

    def __init__(self, role: Role, cpus: set[int], threads: int) -> None:
        self.role, self.cpus, self.threads = role, cpus, threads
        # Of the child process; 0 before its first message.
        self.process_id = 0
        # Seen by the supervisor during the last request.
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
        """The process id of the supervisor, if it was started."""
        return None if self._supervisor is None else self._supervisor.process_id

    def ask(
        self,
        request: Request,
        limits: Limits,
        read: Callable[[bytes], tuple[str, int | None, Any]],
        main: Mapping[str, Any] | None = None,
    ) -> Any | Ended:
        """Send a request and return what `read` makes of the reply, or how the process ended.

        Parameters
        ----------
        limits
            The supervisor enforces them until the reply has arrived.
        read
            Returns the id of the request, the process that replied (None if it does not matter) and the reply. Replies
            to other requests and of other processes are ignored.
        main
            How to import the user's script.
        """
        id = new_id()
        data = pack_request(id, main, request)
        if self._supervisor is not None and self._idle_cpu_seconds() > _MAX_IDLE_CPU_SECONDS:
            self.stop()
        self._start()
        channel, control, page = self._channel, self._control, self._page
        assert channel is not None and control is not None and page is not None
        self._requests += 1
        page.begin_request(self._requests, limits, cpu_seconds(self.process_id))
        with contextlib.suppress(OSError):
            # If it is dead, the supervisor says how it died.
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
        """End the process and all it has started, at once."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None or self._channel is None or self._control is None or self._page is None:
            return
        self._channel.close()
        self._control.close()
        # It may have been stopped.
        supervisor.send_signal(signal.SIGCONT)
        if not supervisor.has_ended(_END_SECONDS):
            supervisor.send_signal(signal.SIGKILL)
            supervisor.has_ended(_END_SECONDS)
        if not self._has_finished():
            # It was killed, so the processes that it had to end may still run.
            _kill_marked(self._mark)
        self._page.close()
        self._page = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def interrupt(self) -> None:
        """End the process for good, from another thread than the one that waits for it; that gets a StoppedError."""
        with self._starting:
            self._interrupted = True
            supervisor = self._supervisor
            if supervisor is not None:
                supervisor.send_signal(signal.SIGTERM)
                supervisor.send_signal(signal.SIGCONT)

    def _start(self) -> None:
        # The supervisor finishes a moment before the system says that it has ended.
        if self._supervisor is not None and (self._supervisor.has_ended() or self._has_finished()):
            self.stop()
        if self._supervisor is not None:
            return
        guarded = MARK not in os.environ
        require(guarded, "a worker starts no workers; does the script need `if __name__ == '__main__':`?")
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
                # It was not killed, so it will not do better.
                break
        raise QcqpbenchError(f"a worker process died at its start: {reason[-1]}")

    def _spawn(self) -> None:
        """Start the supervisor, which forks the child."""
        # Made here, as a supervisor may be killed before it could say where it is.
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
        """Return what `take` makes of a frame, once that is not None, or how the process ended."""
        until, missed, deaf = time.monotonic() + seconds, 0, False
        while True:
            # Both, since a child of the solver may hold the process' end of the channel open.
            ready = wait([control] if deaf else [channel.fileno(), control], _TICK_SECONDS)
            if self._interrupted:
                raise StoppedError
            try:
                if channel.fileno() in ready:
                    # All frames that have arrived: the socket is not ready again for what is in the buffer.
                    while (frame := channel.poll()) is not None:
                        if (answer := take(frame)) is not None:
                            return answer
                if control in ready:
                    return self._ended(control)
            except ProtocolError as error:
                return self._give_up(str(error), "protocol")
            except EOFError:
                # It has died, and the supervisor will say how; or it has closed its end, and will not answer any more.
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

    def _idle_cpu_seconds(self) -> float:
        """Return the CPU time that the process has used since its last reply."""
        return cpu_seconds(self.process_id) - self._cpu_seconds

    def _has_finished(self) -> bool:
        return self._page is not None and self._page.has_finished()

    def _is_watched(self) -> bool:
        assert self._page is not None
        last = self._page.heartbeat
        return last == 0 or time.monotonic() - last < _TICK_SECONDS * _MISSED_TICKS

    def _give_up(self, how: str, reason: str = "died") -> Ended:
        """End a process that its supervisor does not end."""
        self.stop()
        return Ended(reason, how, PHASES[PREPARING])


def _matching(reply: tuple[str, int | None, Any], id: str, process: int) -> Any | None:
    """Return the reply if it is to the request of that id and of that process."""
    replied_to, replied_by, content = reply
    return content if replied_to == id and replied_by in (None, process) else None


def _shared_memory() -> int:
    """Return a file of one page in memory."""
    file = os.memfd_create("qcqpbench")
    os.ftruncate(file, os.sysconf("SC_PAGE_SIZE"))
    return file


def _kill_marked(mark: str) -> None:
    """Kill the processes that have inherited a mark in their environment, wherever they hang in the tree."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
