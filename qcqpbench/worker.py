"""The worker's side: a process that makes attempts one after the other, under the eyes of its keeper."""

import contextlib
import faulthandler
import math
import os
import pickle
import resource
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import spawn
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .attempt import Attempt, describe_error, judge_reported, random_start, solve
from .errors import QcqpbenchError, require
from .job import load_problem
from .keeper import BUILDING, IDLE, JUDGING, OUTPUT, PREPARING, REPORTS, SOLVING, Board, left_behind, tail, write_to
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .registry import solver as named_solver
from .solver import Solver, Watch
from .status import Termination

Array = NDArray[np.float64]
# How long after its time limit a solver may still return its best point before its process is killed.
GRACE = 0.3
# The least time to build a problem, which may include the first import of a large package.
BUILD_SECONDS = 30.0
# Of the looks at a run, those that must have seen too many threads before it is said: a look can catch two threads that
# take turns.
_OFTEN = 0.5
# Records of the reported points: seconds, number of values; then the values.
_RECORD = struct.Struct("<dq")


@dataclass(frozen=True)
class Request:
    """One run, as a worker is asked for it.

    problem       itself, or as in Job; then with the id it must have
    version       of the solver's packages, if they must be of one
    start         a point, or its number among the random ones of the seed
    memory_limit  bytes
    ended         do not run: judge what a run that was ended had reported: (points, termination, message)
    """

    problem: MaxMargin | QCQP | str
    solver: Solver | str
    start: ArrayLike | int | None = None
    seed: int = 0
    problem_id: str | None = None
    version: str | None = None
    time_limit: float = math.inf
    memory_limit: int | None = None
    threads: int = 1
    ended: tuple[bytes, Termination, str] | None = None


@dataclass(frozen=True)
class Answer:
    """output, files: what the solver printed, the end of it, and left in its folder; notes: what else it did wrong;
    fresh: whether the next run wants a new process."""

    attempt: Attempt
    output: str = ""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fresh: bool = False


def serve(pipe: Connection, board: Board, folder: Path) -> None:
    """Answer requests until there are no more."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        # Should the machine run out of memory, let it end a solver and not the driver or its shell.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        # That it is ready.
        pipe.send(None)
        while True:
            board.clear()
            main = pipe.recv()
            content = pipe.recv_bytes()
            board.begin(PREPARING)
            answer: Answer | QcqpbenchError | str
            try:
                if main is not None:
                    spawn.prepare(main)
                answer = _answer(pickle.loads(content), board, folder)
            except QcqpbenchError as error:
                answer = error
            except BaseException as error:
                # Also SystemExit and KeyboardInterrupt, which are the solver's here: Ctrl-C does not reach us.
                answer = describe_error(error)
            # From here on, its death is not the run's.
            board.begin(IDLE)
            pipe.send(answer)


def _answer(request: Request, board: Board, folder: Path) -> Answer:
    board.clear(request.memory_limit or math.inf, request.threads)
    solver = named_solver(request.solver) if isinstance(request.solver, str) else request.solver
    problem = _load(request.problem) if isinstance(request.problem, str) else request.problem
    _require_the_same(request, problem, solver)
    if request.ended is not None:
        reports, termination, message = request.ended
        return Answer(judge_reported(problem, solver, _read(reports), termination, message))
    start = request.start
    if isinstance(start, int):
        start = random_start(problem, start, request.seed)
    exact = _forget_peak()
    with _contained(folder) as place, _Watched(board, folder, request) as watch:
        attempt = solve(problem, solver, start, request.time_limit, request.threads, watch)
        watch.left()
        left = left_behind()
        sys.stdout.flush()
        sys.stderr.flush()
        files = tuple(sorted(str(path.relative_to(place)) for path in place.rglob("*")))
    peak = max(_peak(), int(board.memory))
    limit = request.memory_limit or math.inf
    notes, details = [], dict(attempt.details or {})
    if left:
        notes.append(describe_left(left))
        details["processes_left"] = float(len(left))
    if board.over > max(1, _OFTEN * board.looks):
        notes.append(f"ran {board.threads:.0f} threads, was given {request.threads}")
        details["threads_seen"] = board.threads
    over = exact and peak > limit
    if over:
        notes.append(f"used {peak / 1e9:.3g} GB, was given {limit / 1e9:.3g} GB")
    attempt = replace(
        attempt,
        termination=Termination.MEMORY_LIMIT if over else attempt.termination,
        peak_memory_bytes=peak,
        message="; ".join(filter(None, [attempt.message, *notes])),
        details=details if attempt.details is not None or details else None,
    )
    # What an earlier run has left in memory, or running, must not be held against the next.
    fresh = bool(notes) or _resident() > limit / 2 or attempt.termination is Termination.MEMORY_LIMIT
    return Answer(attempt, tail(folder / OUTPUT), files, tuple(notes), fresh)


def describe_left(names: tuple[str, ...]) -> str:
    return f"left {len(names)} process{'es' * (len(names) > 1)} behind: {', '.join(names)}"


_loaded: tuple[str, MaxMargin | QCQP] | None = None


def _load(spec: str) -> MaxMargin | QCQP:
    """The problem of a spec or in a file; the last one is kept."""
    global _loaded  # noqa: PLW0603
    if _loaded is None or _loaded[0] != spec:
        _loaded = None
        _loaded = spec, load_problem(spec)
    return _loaded[1]


def _require_the_same(request: Request, problem: MaxMargin | QCQP, solver: Solver) -> None:
    same = request.problem_id in (None, problem.id)
    require(same, f"{request.problem} is another problem here: its id is {problem.id}, not {request.problem_id}")
    if request.version is not None:
        here = solver.version()
        require(here == request.version, f"{solver.name}: here is {here!r}, asked for was {request.version!r}")


class _Watched(Watch):
    """Tells the keeper about a run, and writes the points it reports where they outlive this process."""

    def __init__(self, board: Board, folder: Path, request: Request) -> None:
        self.board, self.path, self.limit = board, folder / REPORTS, request.time_limit
        self.memory = request.memory_limit
        self.written = 0
        self.file: int | None = None

    def __enter__(self) -> "_Watched":
        if self.memory is not None:
            # Memory in use is what counts, and the keeper looks at it; this bounds what a single grab can do meanwhile.
            _limit_data(2 * self.memory)
        self.board.begin(BUILDING, time.monotonic() + max(self.limit, BUILD_SECONDS))
        return self

    def __exit__(self, *_: object) -> None:
        self.left()
        if self.file is not None:
            os.close(self.file)
            self.path.unlink(missing_ok=True)

    def entered(self) -> None:
        self.board.begin(SOLVING, time.monotonic() + self.limit + GRACE)

    def reported(self, trace: list[tuple[float, Array]]) -> None:
        again = len(trace) <= self.written
        if self.file is None or again:
            # Anew, as points have gone from the trace.
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
            if self.file is not None:
                os.close(self.file)
            self.file, self.written = os.open(self.path, flags, 0o600), 0
        records = []
        for seconds, x in trace[self.written :]:
            with contextlib.suppress(TypeError, ValueError):
                values = np.asarray(x, dtype=np.float64)
                records.append(_RECORD.pack(seconds, values.size) + values.tobytes())
        os.write(self.file, b"".join(records))
        self.written = len(trace)

    def left(self) -> None:
        if self.board.phase in (BUILDING, SOLVING):
            self.board.begin(JUDGING)
            if self.memory is not None:
                _limit_data(resource.RLIM_INFINITY)


def _read(reports: bytes) -> list[tuple[float, Array]]:
    """The points in the file of reports; the last record may be cut off."""
    found, place = [], 0
    while place + _RECORD.size <= len(reports):
        seconds, size = _RECORD.unpack_from(reports, place)
        place += _RECORD.size
        if size < 0 or place + 8 * size > len(reports):
            break
        found.append((seconds, np.frombuffer(reports, np.float64, size, place)))
        place += 8 * size
    return found


@contextlib.contextmanager
def _contained(folder: Path) -> Iterator[Path]:
    """An empty working directory, and an empty file for the output."""
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
        if os.listdir(place):  # noqa: PTH208
            shutil.rmtree(place, ignore_errors=True)


def _limit_data(limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (hard if limit == resource.RLIM_INFINITY else limit, hard))


def _forget_peak() -> bool:
    """Let the peak of this process' memory count from now; whether the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _peak() -> int:
    """Bytes: the peak since _forget_peak, or where that is not known, of the process' whole life."""
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
