"""The solver's process: it executes the runs of one solver sequentially, under a supervisor."""

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
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from multiprocessing import spawn
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.registry import describe_family, describe_members
from qcqpbench.catalog.registry import problem as named_problem
from qcqpbench.catalog.registry import solver as named_solver
from qcqpbench.catalog.solver import QCQPSolver, RunCallbacks, Solver, SolverFacts
from qcqpbench.catalog.spec import describe_parameters
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.errors import QcqpbenchError, describe_error, require
from qcqpbench.problem.formats.by_suffix import write
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.isolation.protocol import (
    MAX_FILES,
    MAX_REPORTED_POINTS,
    UNKNOWN_VERSION,
    Channel,
    DescribeRequest,
    MakeRequest,
    Message,
    RunRequest,
    encode_error,
    encode_facts,
    encode_reply,
    plain_solver_facts,
    unpack_request,
)
from qcqpbench.run.isolation.shared_state import (
    BUILDING,
    FINISHING,
    OUTPUT,
    PREPARING,
    REPORTS,
    SOLVING,
    Phases,
    read_tail,
    redirect_output,
)
from qcqpbench.run.isolation.supervisor import left_behind
from qcqpbench.run.proposal import RunReply, limit_threads, propose
from qcqpbench.run.run_spec import RunSpec, check_start, random_start

from .leftovers import Snapshot

Array = NDArray[np.float64]
# Records of the reported points: seconds, number of values; then the values.
_RECORD = struct.Struct("<dq")


class _OtherVersionError(QcqpbenchError):
    """Raised if the version of the solver differs from the requested one."""


def serve(pipe: int, phases: Phases, folder: Path) -> None:
    """Answer requests until the driver closes the connection."""
    channel, process = Channel(socket.socket(fileno=pipe)), os.getpid()
    prepare_process()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        channel.send(Message("", process, {}).to_bytes())
        while True:
            id, main, content = unpack_request(channel.receive())
            phases.announce(PREPARING)
            try:
                if main is not None:
                    spawn.prepare(dict(main))
                reply = _answer(id, pickle.loads(content), phases, folder)
            except _OtherVersionError as error:
                reply = encode_error(id, str(error), other_version=True)
            except BaseException as error:
                # SystemExit and KeyboardInterrupt are caught too: here the solver raises them, since Ctrl-C does not
                # reach the worker.
                reply = encode_error(id, describe_error(error))
            if os.getpid() != process:
                # This is a process that the solver forked; only its parent may reply.
                os._exit(0)
            channel.send(reply)


def prepare_process() -> None:
    """Enable tracebacks of crashes, disable core dumps, and raise the out-of-memory score of this process."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        # If memory runs out, the system should kill a solver, not the driver or its shell.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _answer(id: str, request: RunRequest | DescribeRequest | MakeRequest, phases: Phases, folder: Path) -> bytes:
    if isinstance(request, DescribeRequest):
        return encode_facts(id, [_describe(request.kind, name) for name in request.names])
    if isinstance(request, MakeRequest):
        write(named_problem(request.problem), request.path)
        return Message(id, os.getpid(), {}).to_bytes()
    return encode_reply(id, _run(request, phases, folder))


def _describe(kind: str, name: str) -> Any:
    """Return the facts about a solver, family or problem as JSON values; for an invalid problem, the error message."""
    if kind == "solver":
        return plain_solver_facts(_solver_facts(named_solver(name)))
    if kind == "family":
        return asdict(describe_family(name))
    try:
        return [asdict(member) for member in describe_members(name)]
    except Exception as error:
        return describe_error(error)


def _solver_facts(solver: Solver) -> SolverFacts:
    """Return the facts about a solver; if that raises, mark it as unsupported, with the version UNKNOWN_VERSION."""
    try:
        return solver.facts()
    except BaseException as error:
        # SystemExit and KeyboardInterrupt are caught too, because here the solver raises them.
        return SolverFacts(
            name=solver.name,
            spec=solver.spec,
            version=UNKNOWN_VERSION,
            drives=str(getattr(solver, "drives", "")),
            citation=str(getattr(solver, "citation", "")),
            scope=solver.scope,
            takes_qcqps=issubclass(QCQP, solver.accepts),
            formulation=solver.formulation if isinstance(solver, QCQPSolver) else None,
            availability=Availability.UNSUPPORTED,
            reason=describe_error(error),
            tolerance=solver.tolerance,
            accuracy=solver.accuracy,
            parameters=describe_parameters(type(solver)),
        )


def _run(request: RunRequest, phases: Phases, folder: Path) -> RunReply:
    solver = named_solver(request.solver) if isinstance(request.solver, str) else request.solver
    problem = _load(request.problem) if isinstance(request.problem, str) else request.problem
    _require_the_same(request.spec, problem, solver)
    spec, start = request.spec, request.start
    start = check_start(problem, random_start(problem, spec.start, spec.start_seed) if start is None else start)
    # Solvers that draw from the global generators must not depend on earlier runs.
    random.seed(0)
    np.random.seed(0)
    exact = _forget_peak()
    supervised = _SupervisedRun(phases, folder, spec.memory_limit_bytes)
    # An earlier run of the solver may have changed the number of threads.
    with limit_threads(spec.threads), _contained(folder) as place, supervised as callbacks:
        before, streams = Snapshot(first=not _count_run()), (sys.stdout, sys.stderr)
        proposal = propose(problem, solver, start, spec.time_limit, spec.threads, callbacks)
        changes, children = before.changes(), left_behind()
        _flush(streams)
        files = _files(place)
    reply = RunReply(proposal, _peak(), read_tail(folder / OUTPUT), files)
    return _with_notes(reply, changes, children, spec.memory_limit_bytes or math.inf, exact)


def _with_notes(
    reply: RunReply, changes: tuple[str, ...], children: tuple[str, ...], memory_limit_bytes: float, exact: bool
) -> RunReply:
    """Add notes about misbehaviour to a reply; `exact` says whether its peak memory is that of this run alone."""
    notes, details, termination = [], dict(reply.proposal.details), reply.proposal.termination
    if children:
        notes.append(describe_left(children))
        details["processes_left"] = float(len(children))
    if changes:
        notes.append(f"left changed: {', '.join(changes)}")
    peak = reply.peak_memory_bytes
    if exact and peak > memory_limit_bytes:
        notes.append(f"used {peak / 1e9:.3g} GB, was given {memory_limit_bytes / 1e9:.3g} GB")
        termination = Termination.MEMORY_LIMIT
    # Memory, threads and state that a run leaves behind must not affect the next run.
    fresh = bool(notes) or _resident() > memory_limit_bytes / 2 or termination is Termination.MEMORY_LIMIT
    proposal = replace(reply.proposal, termination=termination, details=details)
    return replace(reply, proposal=proposal, notes=tuple(notes), fresh=fresh)


def _flush(streams: Iterable[IO[str]]) -> None:
    """Flush `streams`, the standard streams from before the run.

    Their classes' own methods are called, not methods that a solver has replaced on the objects.
    """
    for stream in streams:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            type(stream).flush(stream)


def describe_left(names: tuple[str, ...]) -> str:
    """Return a note that lists the names of processes left behind by a run."""
    return f"left {len(names)} process{'es' * (len(names) > 1)} behind: {', '.join(names)}"


_runs = 0


def _count_run() -> int:
    """Increment the number of runs of this process; return the number of earlier runs."""
    global _runs  # noqa: PLW0603
    _runs += 1
    return _runs - 1


_loaded: tuple[str, MaxMargin | QCQP] | None = None


def _load(spec: str) -> MaxMargin | QCQP:
    """Return the problem of a spec or file; the last problem is cached."""
    global _loaded  # noqa: PLW0603
    if _loaded is None or _loaded[0] != spec:
        _loaded = None
        _loaded = spec, named_problem(spec)
    return _loaded[1]


def _require_the_same(spec: RunSpec, problem: MaxMargin | QCQP, solver: Solver) -> None:
    """Raise QcqpbenchError if the problem id or the solver version differs from that of the run."""
    same = spec.problem_id == problem.id
    require(same, f"{spec.problem} must have the id {spec.problem_id}, the worker got {problem.id}")
    here = solver.identity()
    if here != spec.version:
        raise _OtherVersionError(
            f"{solver.name} must have the version {spec.version!r}, the worker got {here!r}; a version must not "
            "change while a suite runs, and a solver must not write files to its own package"
        )


def _files(folder: Path) -> tuple[str, ...]:
    """Return the names of files in `folder`, at most MAX_FILES and then "…"; empty if the folder does not exist."""
    names = []
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            names.append(str(path.relative_to(folder)).encode(errors="replace").decode())
            if len(names) > MAX_FILES:
                return (*sorted(names[:MAX_FILES]), "…")
    return tuple(sorted(names))


class _SupervisedRun(RunCallbacks):
    """Callbacks that announce phases and write reported points to a file, where the supervisor can read them."""

    def __init__(self, phases: Phases, folder: Path, memory_limit_bytes: int | None) -> None:
        self.phases, self.path, self.memory = phases, folder / REPORTS, memory_limit_bytes
        self.written = 0
        self.file: int | None = None

    def __enter__(self) -> "_SupervisedRun":
        if self.memory is not None:
            # The supervisor samples the memory in use; this limit stops a large allocation between two samples.
            _limit_data(2 * self.memory)
        self.phases.announce(BUILDING)
        return self

    def __exit__(self, *_: object) -> None:
        if self.memory is not None:
            _limit_data(resource.RLIM_INFINITY)
        if self.file is not None:
            with contextlib.suppress(OSError):
                os.close(self.file)
                self.path.unlink(missing_ok=True)

    def entered(self) -> None:
        self.phases.announce(SOLVING)

    def reported(self, trace: list[tuple[float, Array]]) -> None:
        with contextlib.suppress(OSError):
            if self.file is None or len(trace) <= self.written:
                # Create the file, or rewrite it if points were removed from the trace.
                flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                if self.file is not None:
                    os.close(self.file)
                self.file, self.written = os.open(self.path, flags, 0o600), 0
            records = [_RECORD.pack(seconds, x.size) + x.tobytes() for seconds, x in trace[self.written :]]
            os.write(self.file, b"".join(records))
        self.written = len(trace)

    def left(self) -> None:
        # The rest is short, but threads or handlers of the solver may still block it, so it has its own limit.
        self.phases.announce(FINISHING)


def decode_reports(reports: bytes) -> list[tuple[float, Array]]:
    """Decode the (seconds, values) pairs of a file of reports; an incomplete last record is ignored."""
    points: list[tuple[float, Array]] = []
    place = 0
    while place + _RECORD.size <= len(reports) and len(points) < MAX_REPORTED_POINTS:
        seconds, size = _RECORD.unpack_from(reports, place)
        place += _RECORD.size
        if size < 0 or place + 8 * size > len(reports):
            break
        if 0.0 <= seconds < math.inf:
            points.append((seconds, np.frombuffer(reports, np.float64, size, place)))
        place += 8 * size
    return points


@contextlib.contextmanager
def _contained(folder: Path) -> Iterator[Path]:
    """Run the block in an empty working directory, with output redirected to an empty file in `folder`."""
    home = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    redirect_output(folder / OUTPUT)
    # The folder is emptied, not removed, because removal takes milliseconds on some file systems.
    place = folder / "work"
    place.mkdir(exist_ok=True)
    try:
        os.chdir(place)
        yield place
    finally:
        os.fchdir(home)
        os.close(home)
        # The solver may have removed the folder.
        if not place.is_dir() or os.listdir(place):  # noqa: PTH208
            shutil.rmtree(place, ignore_errors=True)


def _limit_data(limit: int) -> None:
    """Set the soft limit RLIMIT_DATA of this process to `limit` bytes, or to its hard limit for RLIM_INFINITY."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (hard if limit == resource.RLIM_INFINITY else limit, hard))


def _forget_peak() -> bool:
    """Reset the peak memory of this process; return whether the system supports it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _peak() -> int:
    """Return the peak memory in bytes since `_forget_peak`, or since the process started if that is unsupported."""
    try:
        with open("/proc/self/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return 1024 * int(next(line for line in file if line.startswith("VmHWM")).split()[1])
    except (OSError, ValueError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident() -> int:
    """Return the resident memory of this process in bytes; 0 if it is unavailable."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
