"""One run in its own process: a solver may print, crash, hang or take all memory there and harm nothing here.

Between us and the worker, which runs the solver and is reused, stands a keeper, which ends it when it must.

time      the keeper kills the worker GRACE seconds after the deadline, which counts from the solver's entry. Building
          the problem has the same time, at least BUILD_SECONDS, counted apart.
memory    the keeper looks at the memory in use by the worker and its children 20 times a second; RLIMIT_DATA at twice
          the limit stops what would come faster. Not RLIMIT_AS: libraries reserve much more than they use.
threads   environment variables say how many BLAS and OpenMP should start; the worker is bound to as many CPUs, so more
          threads gain nothing. They are noted if the keeper sees them run in more than half of its looks.
children  the keeper adopts and kills what a solver leaves running, and the attempt says so.
"""

import contextlib
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, replace
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from typing import Any

from numpy.typing import ArrayLike

from .attempt import Attempt, blank
from .errors import QcqpbenchError, require
from .job import Job
from .keeper import IDLE, PHASES, PREPARING, Ended
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .registry import solver as named_solver
from .solver import Solver
from .status import Termination
from .worker import BUILD_SECONDS, GRACE, Answer, Request, describe_left

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
paths, control, pipe, folder, threads = sys.argv[1:]
sys.path[:] = json.loads(paths)
from multiprocessing.connection import Connection
from pathlib import Path
from qcqpbench.keeper import keep
pipe, folder = Connection(int(pipe)), Path(folder)
board = keep(Connection(int(control)), pipe, folder, int(threads))
from qcqpbench.worker import serve
serve(pipe, board, folder)
"""
_WORKER = "QCQPBENCH_WORKER"
_START_TRIES = 10


@dataclass(frozen=True)
class Isolated:
    """An attempt made in a process of its own, and what it did there beside.

    output   what it printed, the end of it
    files    what it left behind in its working directory
    notes    what else it did that it should not: too many threads, processes left behind, too much memory
    lost     its process was killed, and not by us
    """

    attempt: Attempt
    output: str = ""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lost: bool = False


class StoppedError(Exception):
    """The worker was interrupted."""


class Worker:
    """A process that makes attempts one after the other. It is reused; only a run that was ended, crashed, or left
    something behind costs a process."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._interrupted = False
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._control: Connection | None = None
        self._folder: str | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def attempt(
        self,
        problem: MaxMargin | QCQP,
        solver: str | Solver,
        start: ArrayLike | None = None,
        time_limit: float = math.inf,
        memory_limit: int | None = None,
    ) -> Isolated:
        """`qcqpbench.solve` in the worker, within its limits in seconds and bytes."""
        solver = named_solver(solver) if isinstance(solver, str) else solver
        request = Request(
            problem, solver, start, time_limit=time_limit, memory_limit=memory_limit, threads=self.threads
        )
        return self._attempt(request, blank(problem, solver))

    def run(self, job: Job) -> Isolated:
        """Do a job; the worker makes or reads the problem itself, and keeps the last one."""
        if job.threads != self.threads:
            self.stop()
            self.threads = job.threads
        request = Request(
            problem=job.problem,
            solver=job.solver,
            start=job.start,
            seed=job.seed,
            problem_id=job.problem_id,
            version=job.version,
            time_limit=job.time_limit,
            memory_limit=job.memory_limit,
            threads=job.threads,
        )
        bare = Attempt(job.problem, job.problem_id, job.solver, job.version, job.formulation, Termination.ERROR)
        return self._attempt(request, bare)

    def stop(self) -> None:
        """End the process and all it has started, at once."""
        process, self._process = self._process, None
        if process is None or self._pipe is None or self._control is None:
            return
        self._pipe.close()
        self._control.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._folder is not None:
            # Its keeper has removed it, unless that was killed itself.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def interrupt(self) -> None:
        """End the process for good, from another thread than the one that waits for it; that gets a StoppedError."""
        with self._starting:
            self._interrupted = True
            process = self._process
            if process is not None:
                with contextlib.suppress(OSError):
                    process.send_signal(signal.SIGTERM)

    def _attempt(self, request: Request, bare: Attempt) -> Isolated:
        answer = self._ask(request)
        if isinstance(answer, Ended) and answer.phase == PHASES[IDLE]:
            # It died before it had the request; that says nothing about this run.
            answer = self._ask(request)
        if isinstance(answer, str):
            return Isolated(replace(bare, termination=Termination.ERROR, message=answer))
        if isinstance(answer, Answer):
            return Isolated(answer.attempt, answer.output, answer.files, answer.notes)
        termination, message = _verdict(answer, request)
        # Where we have ended it, its children were at work with it.
        notes = (describe_left(answer.left),) if answer.left and answer.reason == "died" else ()
        message = "; ".join([message, *notes])
        attempt = replace(bare, termination=termination, message=message)
        if answer.reason != "lost" and answer.phase not in (PHASES[IDLE], PHASES[PREPARING]):
            judged = self._ask(replace(request, ended=(answer.reports, termination, message)))
            attempt = judged.attempt if isinstance(judged, Answer) else attempt
        seconds = None if answer.reason == "lost" else answer.seconds
        attempt = replace(
            attempt,
            build_seconds=seconds if answer.phase == "building" else None,
            solve_seconds=seconds if answer.phase == "solving" else None,
            cpu_seconds=answer.cpu_seconds or None,
            peak_memory_bytes=answer.peak_memory_bytes or None,
        )
        lost = answer.reason == "lost" or (answer.reason == "died" and answer.how in ("SIGKILL", "SIGTERM"))
        return Isolated(attempt, answer.output, (), notes, lost)

    def _ask(self, request: Request) -> Answer | Ended | str:
        pipe, control = self._start()
        with contextlib.suppress(OSError):
            # If it is dead, we shall hear how it died.
            pipe.send(_main_module(request.solver))
            pipe.send(request)
        answer = self._receive(pipe, control)
        if isinstance(answer, Ended) or (isinstance(answer, Answer) and answer.fresh):
            self.stop()
        if isinstance(answer, QcqpbenchError):
            raise answer
        result: Answer | Ended | str = answer
        return result

    def _start(self) -> tuple[Connection, Connection]:
        if self._process is not None and self._process.poll() is not None:
            self.stop()
        if self._process is None or self._pipe is None or self._control is None:
            guarded = _WORKER not in os.environ
            require(guarded, "a worker starts no workers; does the script need `if __name__ == '__main__':`?")
            for _ in range(_START_TRIES):
                with self._starting:
                    if self._interrupted:
                        raise StoppedError
                    # Made here, as a keeper may be killed before it could say where it is.
                    self._folder = tempfile.mkdtemp(prefix="qcqpbench-")
                    self._pipe, self._control, self._process = _spawn(self._folder, self.threads)
                ended = self._receive(self._pipe, self._control)
                if not isinstance(ended, Ended):
                    return self._pipe, self._control
                self.stop()
                if ended.how.startswith("exit code"):
                    # It was not killed, so it will not do better.
                    break
            reason = (ended.output.strip().splitlines() or [ended.how])[-1]
            raise QcqpbenchError(f"a worker process died at its start: {reason}")
        return self._pipe, self._control

    def _receive(self, pipe: Connection, control: Connection) -> Any:
        """What the worker sends, or how it ended."""
        try:
            # Both, since a child of the solver may hold the worker's end of the pipe open.
            ready = wait([pipe, control])
            answer = pipe.recv() if pipe in ready else control.recv()
        except (EOFError, OSError):
            try:
                answer = control.recv()
            except (EOFError, OSError):
                answer = Ended("lost", "its keeper was killed")
        if self._interrupted:
            raise StoppedError
        return answer


def _spawn(folder: str, threads: int) -> tuple[Connection, Connection, subprocess.Popen[bytes]]:
    """A worker with its keeper: what leads to the worker, to the keeper, and the keeper's process."""
    (pipe, theirs), (control, keepers) = _pair(), _pair()
    with theirs, keepers:
        ends = theirs.fileno(), keepers.fileno()
        paths = json.dumps([os.path.abspath(path) for path in sys.path])  # noqa: PTH100
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, paths, str(ends[1]), str(ends[0]), folder, str(threads)],
            env=os.environ | dict.fromkeys(_THREAD_VARIABLES, str(threads)) | {_WORKER: "1"},
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    return pipe, control, process


def _verdict(ended: Ended, request: Request) -> tuple[Termination, str]:
    match ended.reason:
        case "deadline" if ended.phase == "building":
            limit = max(request.time_limit, BUILD_SECONDS)
            return Termination.TIME_LIMIT, f"killed while building, after {limit:g} s"
        case "deadline":
            message = f"killed while {ended.phase}, {GRACE:g} s past its limit of {request.time_limit:g} s"
            return Termination.TIME_LIMIT, message
        case "memory":
            used, given = ended.peak_memory_bytes / 1e9, (request.memory_limit or 0) / 1e9
            message = f"killed while {ended.phase}: used {used:.3g} GB, was given {given:.3g} GB"
            return Termination.MEMORY_LIMIT, message
    return Termination.CRASHED, f"its process died: {ended.how}"


def _main_module(solver: Solver | str) -> dict[str, Any] | None:
    """What a worker needs to import the user's script, if the solver is defined there."""
    if type(solver).__module__ != "__main__":
        return None
    return {key: value for key, value in spawn.get_preparation_data("").items() if key.startswith("init_main")}


def _pair() -> tuple[Connection, Connection]:
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())
