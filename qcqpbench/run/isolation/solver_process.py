"""The worker: a process that runs one solver, one run after the other, supervised by its supervisor."""

import contextlib
import faulthandler
import math
import os
import pickle
import random
import resource
import shutil
import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import spawn
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.registry import problem as named_problem
from qcqpbench.catalog.registry import solver as named_solver
from qcqpbench.catalog.solver import RunCallbacks, Solver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError, describe_error, require
from qcqpbench.problem.formats.by_suffix import write
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import check_start, random_start
from qcqpbench.run.job import load_problem
from qcqpbench.run.proposal import propose

from .leftovers import Snapshot
from .protocol import (
    BUILD_SECONDS,
    PREPARE_SECONDS,
    Channel,
    DescribeRequest,
    MakeRequest,
    Message,
    RunReply,
    RunRequest,
    encode_error,
    encode_facts,
    encode_reply,
    unpack_request,
)
from .supervisor import BUILDING, IDLE, OUTPUT, PREPARING, REPORTS, SOLVING, Board, left_behind, tail, write_to

Array = NDArray[np.float64]
# Share of the looks that must have seen too many threads before it is noted: a look can catch two threads taking turns.
_OFTEN = 0.5
# Records of the reported points: seconds, number of values; then the values.
_RECORD = struct.Struct("<dq")


class _OtherVersionError(QcqpbenchError):
    """The solver here is not the one that was asked for: no row may say that it was."""


def serve(pipe: int, board: Board, folder: Path) -> None:
    """Answer requests until the driver closes the connection."""
    channel, process = Channel(socket.socket(fileno=pipe)), os.getpid()
    prepare_process()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        channel.send(Message("", process, {}).to_bytes())
        while True:
            board.clear()
            id, main, content = unpack_request(channel.receive())
            board.begin(PREPARING, time.monotonic() + PREPARE_SECONDS)
            try:
                if main is not None:
                    spawn.prepare(dict(main))
                reply = _answer(id, pickle.loads(content), board, folder)
            except _OtherVersionError as error:
                reply = encode_error(id, str(error), fatal=True)
            except BaseException as error:
                # Also SystemExit and KeyboardInterrupt, which are the solver's here: Ctrl-C does not reach the worker.
                reply = encode_error(id, describe_error(error))
            if os.getpid() != process:
                # A process that the solver forked has returned from its code; nobody asked it.
                os._exit(0)
            # From here on, its death is not the run's.
            board.begin(IDLE)
            channel.send(reply)


def prepare_process() -> None:
    """Make crashes of this process visible in its output, cheap, and harmless to others."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        # Should the machine run out of memory, let it end a solver and not the driver or its shell.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _answer(id: str, request: RunRequest | DescribeRequest | MakeRequest, board: Board, folder: Path) -> bytes:
    if isinstance(request, DescribeRequest):
        return encode_facts(id, named_solver(request.solver).facts())
    if isinstance(request, MakeRequest):
        write(named_problem(request.problem), request.path)
        return Message(id, os.getpid(), {}).to_bytes()
    return encode_reply(id, _run(request, board, folder))


def _run(request: RunRequest, board: Board, folder: Path) -> RunReply:
    board.clear(request.memory_limit_bytes or math.inf, request.threads)
    solver = named_solver(request.solver) if isinstance(request.solver, str) else request.solver
    problem = _load(request.problem) if isinstance(request.problem, str) else request.problem
    _require_the_same(request, problem, solver)
    start = random_start(problem, request.start, request.seed) if isinstance(request.start, int) else request.start
    start = check_start(problem, random_start(problem) if start is None else start)
    # Runs that draw from the global generators are the same, whichever runs came before.
    random.seed(0)
    np.random.seed(0)
    exact = _forget_peak()
    with _contained(folder) as place, _SupervisedRun(board, folder, request) as callbacks:
        before = Snapshot(first=not _counted())
        proposal = propose(problem, solver, start, request.time_limit, request.threads, callbacks)
        changes, children = before.changes(), left_behind()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        files = _files(place)
    peak = max(_peak(), int(board.memory))
    limit = request.memory_limit_bytes or math.inf
    notes, details = [], dict(proposal.details)
    if children:
        notes.append(describe_left(children))
        details["processes_left"] = float(len(children))
    if changes:
        notes.append(f"left changed: {', '.join(changes)}")
    if board.over > max(1, _OFTEN * board.looks):
        notes.append(f"ran {board.threads:.0f} threads, was given {request.threads}")
        details["threads_seen"] = board.threads
    over = exact and peak > limit
    if over:
        notes.append(f"used {peak / 1e9:.3g} GB, was given {limit / 1e9:.3g} GB")
    proposal = replace(
        proposal,
        termination=Termination.MEMORY_LIMIT if over else proposal.termination,
        message="; ".join(filter(None, [proposal.message, *notes])),
        details=details,
    )
    # What a run has left in memory, running or changed must not be held against the next.
    fresh = bool(notes) or _resident() > limit / 2 or proposal.termination is Termination.MEMORY_LIMIT
    return RunReply(proposal, peak, tail(folder / OUTPUT), files, tuple(notes), fresh)


def describe_left(names: tuple[str, ...]) -> str:
    """Return a note about processes that a run has left behind."""
    return f"left {len(names)} process{'es' * (len(names) > 1)} behind: {', '.join(names)}"


_MAX_FILES = 20
_runs = 0


def _counted() -> int:
    """Return the number of runs in this process before this one."""
    global _runs  # noqa: PLW0603
    _runs += 1
    return _runs - 1


_loaded: tuple[str, MaxMargin | QCQP] | None = None


def _load(spec: str) -> MaxMargin | QCQP:
    """Return the problem of a spec or a file; the last one is kept."""
    global _loaded  # noqa: PLW0603
    if _loaded is None or _loaded[0] != spec:
        _loaded = None
        _loaded = spec, load_problem(spec)
    return _loaded[1]


def _require_the_same(request: RunRequest, problem: MaxMargin | QCQP, solver: Solver) -> None:
    same = request.problem_id in (None, problem.id)
    require(same, f"{request.problem} is another problem here: its id is {problem.id}, not {request.problem_id}")
    if request.version is not None:
        here = solver.identity()
        if here != request.version:
            raise _OtherVersionError(f"{solver.name}: here is {here!r}, asked for was {request.version!r}")


def _files(folder: Path) -> tuple[str, ...]:
    """Return the first names of what lies in a folder, which the solver may have removed."""
    names = []
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            names.append(str(path.relative_to(folder)).encode(errors="replace").decode())
            if len(names) > _MAX_FILES:
                return (*sorted(names[:_MAX_FILES]), "…")
    return tuple(sorted(names))


class _SupervisedRun(RunCallbacks):
    """Tells the supervisor about a run, and writes the points it reports where they outlive this process."""

    def __init__(self, board: Board, folder: Path, request: RunRequest) -> None:
        self.board, self.path, self.limit = board, folder / REPORTS, request.time_limit
        self.grace = request.grace_seconds
        self.memory = request.memory_limit_bytes
        self.written = 0
        self.file: int | None = None

    def __enter__(self) -> "_SupervisedRun":
        if self.memory is not None:
            # Memory in use is what counts, and the supervisor looks at it; this bounds what a single grab can do meanwhile.
            _limit_data(2 * self.memory)
        self.board.begin(BUILDING, time.monotonic() + max(self.limit, BUILD_SECONDS))
        return self

    def __exit__(self, *_: object) -> None:
        self.left()
        if self.memory is not None:
            _limit_data(resource.RLIM_INFINITY)
        if self.file is not None:
            with contextlib.suppress(OSError):
                os.close(self.file)
                self.path.unlink(missing_ok=True)

    def entered(self) -> None:
        self.board.begin(SOLVING, time.monotonic() + self.limit + self.grace)

    def reported(self, trace: list[tuple[float, Array]]) -> None:
        with contextlib.suppress(OSError):
            again = len(trace) <= self.written
            if self.file is None or again:
                # Anew, as points have gone from the trace.
                flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
                if self.file is not None:
                    os.close(self.file)
                self.file, self.written = os.open(self.path, flags, 0o600), 0
            records = [_RECORD.pack(seconds, x.size) + x.tobytes() for seconds, x in trace[self.written :]]
            os.write(self.file, b"".join(records))
        self.written = len(trace)

    def left(self) -> None:
        if self.board.phase in (BUILDING, SOLVING):
            # Whatever is left to do is short; a solver's remains may still hang it.
            self.board.begin(PREPARING, time.monotonic() + PREPARE_SECONDS)


def read_reports(reports: bytes) -> list[tuple[float, Array]]:
    """Return (seconds, values) of the points in a file of reports; the last record may be cut off."""
    points, place = [], 0
    while place + _RECORD.size <= len(reports):
        seconds, size = _RECORD.unpack_from(reports, place)
        place += _RECORD.size
        if size < 0 or place + 8 * size > len(reports):
            break
        points.append((seconds, np.frombuffer(reports, np.float64, size, place)))
        place += 8 * size
    return points


@contextlib.contextmanager
def _contained(folder: Path) -> Iterator[Path]:
    """Provide an empty working directory, and an empty file for the output."""
    home = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    write_to(folder / OUTPUT)
    # Emptied and not removed: that takes milliseconds on some file systems.
    place = folder / "work"
    place.mkdir(exist_ok=True)
    try:
        os.chdir(place)
        yield place
    finally:
        os.fchdir(home)
        os.close(home)
        # The solver may have removed it.
        if not place.is_dir() or os.listdir(place):  # noqa: PTH208
            shutil.rmtree(place, ignore_errors=True)


def _limit_data(limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (hard if limit == resource.RLIM_INFINITY else limit, hard))


def _forget_peak() -> bool:
    """Reset the peak of this process' memory; return whether the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _peak() -> int:
    """Return the peak in bytes since _forget_peak, or where that is not known, of the process' whole life."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return 1024 * int(next(line for line in file if line.startswith("VmHWM")).split()[1])
    except (OSError, ValueError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
