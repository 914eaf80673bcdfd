"""The fork server: a process that has imported the core and forks the processes that run solvers and verify points.

Importing NumPy and SciPy takes half a second, a fork some milliseconds. No code of a solver or a plug-in ever runs in
the server, so a process forked from it is as clean as a new one. There is one server per number of BLAS threads,
because BLAS reads that number when it is loaded. A forked process takes over the rest of the environment, the import
path and the working directory of the driver. The server adopts and kills the processes that a killed supervisor leaves
behind. When the driver closes the connection or dies, the server ends all processes it has forked.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, NoReturn

from qcqpbench.errors import QcqpbenchError

from ._linux import PR_SET_CHILD_SUBREAPER, children, prctl
from .supervisor import supervise, wake_at_death_of_parent

# Environment variable of the forked processes with the name of the supervisor's folder. With it the driver finds
# processes that outlive both their supervisor and the fork server.
MARK = "QCQPBENCH_WORKER"
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from qcqpbench.run.isolation.fork_server import serve
serve(int(sys.argv[2]))
"""
# Modules that the forked processes need, none of them from qcqpbench.solvers or qcqpbench.problems. Most solvers use
# scipy.optimize, whose import must not count in the time of one of them.
_IMPORTS = (
    "qcqpbench.run.isolation.roles.solver_process",
    "qcqpbench.run.isolation.roles.verifier_process",
    "scipy.optimize",
    "threadpoolctl",
)
_MARK_CHARACTERS = 40
_START_TRIES = 10
_READY_SECONDS = 300.0
_FORK_SECONDS = 20.0
_END_SECONDS = 5.0
# Time for a server that is asked to end to clean up after killed supervisors.
_CLEAN_UP_SECONDS = 20.0
_CLEAN_UP_POLL_SECONDS = 0.005
_HEADER = struct.Struct("<q")
_MAX_FILES = 8


class ForkedProcess:
    """Handle (pidfd) of a process that is not a child of this one; the handle cannot refer to another process."""

    def __init__(self, process_id: int, handle: int) -> None:
        self.process_id, self._handle = process_id, handle

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Wait at most `seconds` for the process to end; return whether it has ended."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def send_signal(self, number: int) -> None:
        """Send signal `number` to the process, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def __del__(self) -> None:
        # Not closed earlier: the system could reuse the number while another thread is about to send a signal.
        os.close(self._handle)


@dataclass(frozen=True)
class ForkRequest:
    """A request to fork a process with its supervisor.

    role     name of the module whose `serve` the process runs
    folder   empty folder that process, supervisor and driver share; its name is the value of `MARK`
    cpus     CPUs to bind the process to; empty for no binding
    """

    role: str
    folder: str
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class _Surroundings:
    """Environment variables and import path of the driver, for a forked process to take over."""

    environment: dict[str, str]
    import_path: tuple[str, ...]


def fork(threads: int, request: ForkRequest, control: int, pipe: int, page: int) -> ForkedProcess:
    """Fork a process and its supervisor from the server for `threads` BLAS threads; return the supervisor.

    Parameters
    ----------
    control, pipe, page
        File descriptors: the supervisor's connection to the driver, the process' connection to the driver, and the
        memory of the control page.
    """
    message = _describe_fork(request, threads)
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_START_TRIES):
            server = _server(threads)
            try:
                return server.fork(message, (control, pipe, page, directory))
            except (OSError, EOFError):
                # The server was killed or stopped.
                server.close()
    finally:
        os.close(directory)
    raise QcqpbenchError(f"no worker process could be started: the fork server ended {_START_TRIES} times")


@atexit.register
def close_servers() -> None:
    """End all fork servers of this process, and the processes they have forked."""
    with _lock:
        for process, threads in list(_servers):
            server = _servers.pop((process, threads))
            # A fork of this process has the server in its list too, but did not start it.
            if process == os.getpid():
                server.close()


def server_ids() -> list[int]:
    """Return the process ids of the fork servers of this process."""
    with _lock:
        return [server.process_id for (process, _), server in _servers.items() if process == os.getpid()]


def _describe_fork(request: ForkRequest, threads: int) -> bytes:
    environment = os.environ | _thread_variables(threads) | {MARK: Path(request.folder).name}
    paths = tuple(os.path.abspath(path) for path in sys.path)  # noqa: PTH100
    content = {"request": asdict(request), "surroundings": asdict(_Surroundings(environment, paths))}
    return json.dumps(content).encode()


def _thread_variables(threads: int) -> dict[str, str]:
    return dict.fromkeys(_THREAD_VARIABLES, str(threads))


class _Server:
    """The driver's side of a fork server."""

    def __init__(self, threads: int) -> None:
        self._socket, servers_end = socket.socketpair()
        self._lock = threading.Lock()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the server runs)
        paths = json.dumps([os.path.abspath(path) for path in sys.path])  # noqa: PTH100
        # A placeholder that each forked process overwrites with its own mark.
        environment = os.environ | _thread_variables(threads) | {MARK: "-" * _MARK_CHARACTERS}
        with servers_end:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, paths, str(servers_end.fileno())],
                env=environment,
                pass_fds=(servers_end.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Not the driver's stderr, which a stopped server would keep open.
                stderr=self._log,
                start_new_session=True,
            )
        self.process_id = self._process.pid
        self.is_ready = False
        self.is_closed = False

    def wait_until_ready(self) -> None:
        """Wait for the server's imports; raise QcqpbenchError if they fail, EOFError if the server was killed."""
        self._socket.settimeout(_READY_SECONDS)
        with contextlib.suppress(OSError):
            if self._socket.recv(1):
                self.is_ready = True
                return
        self._end()
        if self._process.returncode > 0:
            # The server exited by itself, so another start would fail too.
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
            self.close()
            raise QcqpbenchError(f"a worker process died at its start: {lines[-1]}")
        raise EOFError

    def fork(self, message: bytes, files: Sequence[int]) -> ForkedProcess:
        """Send a fork request and return the supervisor; raise OSError or EOFError if the server does not answer."""
        with self._lock:
            if not self.is_ready:
                self.wait_until_ready()
            self._socket.settimeout(_FORK_SECONDS)
            socket.send_fds(self._socket, [_HEADER.pack(len(message))], files)
            self._socket.sendall(message)
            reply, handles, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1)
        if len(reply) < _HEADER.size or not handles:
            raise EOFError
        return ForkedProcess(_HEADER.unpack(reply)[0], handles[0])

    def close(self) -> None:
        """End the server, by SIGKILL if it does not end by itself."""
        self.is_closed = True
        self._end()
        self._log.close()

    def _end(self) -> None:
        self._socket.close()
        # A stopped server must continue, because it kills orphans before it ends.
        self._process.send_signal(signal.SIGCONT)
        # A server whose imports have failed is about to exit, and `wait_until_ready` needs its exit code.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        self._process.kill()
        self._process.wait()


_servers: dict[tuple[int, int], _Server] = {}
_lock = threading.Lock()


def _server(threads: int) -> _Server:
    # The key has the process id, because a fork of this process must not share the connection.
    key = os.getpid(), threads
    with _lock:
        if key not in _servers or _servers[key].is_closed:
            _servers[key] = _Server(threads)
        return _servers[key]


class _Children:
    """Children of the fork server: supervisors that it forked, and adopted orphans of killed supervisors."""

    def __init__(self) -> None:
        self._supervisors: set[int] = set()

    def add(self, supervisor: int) -> None:
        self._supervisors.add(supervisor)

    def reap(self, *_: object) -> None:
        """Reap children that have ended, and kill orphans, whose supervisor was killed before it could kill them."""
        with contextlib.suppress(ChildProcessError):
            while process := os.waitpid(-1, os.WNOHANG)[0]:
                self._supervisors.discard(process)
        orphans = set(children(os.getpid())) - self._supervisors
        for process in orphans:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)

    def end(self) -> None:
        """Ask the supervisors to end, kill orphans, and return when no child is left or time is up."""
        now = time.monotonic()
        give_up, lose_patience = now + _CLEAN_UP_SECONDS, now + _CLEAN_UP_SECONDS / 2
        for supervisor in self._supervisors:
            with contextlib.suppress(OSError):
                os.kill(supervisor, signal.SIGTERM)
        while children(os.getpid()) and time.monotonic() < give_up:
            if time.monotonic() > lose_patience:
                self._supervisors.clear()
            for supervisor in self._supervisors:
                # A stopped supervisor must continue in order to end.
                with contextlib.suppress(OSError):
                    os.kill(supervisor, signal.SIGCONT)
            self.reap()
            time.sleep(_CLEAN_UP_POLL_SECONDS)


def serve(connection: int) -> NoReturn:
    """Serve fork requests until the driver closes the connection or dies, then end all forked processes."""
    driver, supervisors = os.getppid(), _Children()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=connection)
    # The system sends SIGCONT when the driver dies. Closing the connection ends the loop below.
    signal.signal(signal.SIGCONT, lambda *_: channel.close() if os.getppid() != driver else None)
    signal.signal(signal.SIGCHLD, supervisors.reap)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_at_death_of_parent()
    mark = _address_of_mark()
    for name in _IMPORTS:
        importlib.import_module(name)
    # Objects that are never collected stay on pages that all processes share.
    gc.collect()
    gc.freeze()
    with contextlib.suppress(OSError):
        channel.send(b"\0")
        while True:
            header, files, _, _ = socket.recv_fds(channel, _HEADER.size, _MAX_FILES)
            if len(header) < _HEADER.size:
                break
            content = json.loads(_receive(channel, _HEADER.unpack(header)[0]))
            # Block SIGCHLD, so that the fork is neither reaped before it has a handle nor taken for an orphan.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            process = os.fork()
            if process == 0:
                channel.close()
                _become(ForkRequest(**content["request"]), _Surroundings(**content["surroundings"]), mark, files)
            supervisors.add(process)
            handle = os.pidfd_open(process)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for file in files:
                os.close(file)
            socket.send_fds(channel, [_HEADER.pack(process)], [handle])
            os.close(handle)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    supervisors.end()
    os._exit(0)


def _become(request: ForkRequest, surroundings: _Surroundings, mark: int, files: Sequence[int]) -> NoReturn:
    """Turn this fork into a supervisor, and the supervisor's fork into the process that serves `request.role`."""
    code = 1
    try:
        for number in (signal.SIGCONT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        os.setsid()
        control, pipe, page, directory = files
        os.fchdir(directory)
        os.close(directory)
        _write_mark(mark, surroundings.environment[MARK])
        os.environ.clear()
        os.environ.update(surroundings.environment)
        sys.path[:] = surroundings.import_path
        importlib.invalidate_caches()
        folder = Path(request.folder)
        phases = supervise(Connection(control), pipe, page, folder, set(request.cpus))
        role: Any = importlib.import_module(request.role)
        role.serve(pipe, phases, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _address_of_mark() -> int:
    """Return the memory address of the value of `MARK` in the initial environment of this process."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address: int = getenv(MARK.encode())
    return address


def _write_mark(address: int, mark: str) -> None:
    """Write `mark` to the initial environment at `address`, which other processes can read in /proc."""
    text = mark.encode()
    if len(text) <= _MARK_CHARACTERS:
        ctypes.memmove(address, text.ljust(_MARK_CHARACTERS, b"\0"), _MARK_CHARACTERS)


def _receive(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        block = channel.recv(size - len(data))
        if not block:
            raise OSError("the driver is gone")
        data += block
    return bytes(data)
