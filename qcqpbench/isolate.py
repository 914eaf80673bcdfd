"""One run in its own process: a solver may print, crash or hang there and harm nothing here."""

import contextlib
import ctypes
import math
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from .attempt import Attempt, blank, describe_error, solve
from .errors import QcqpbenchError
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .registry import solver as named_solver
from .solver import Solver
from .status import Termination

# How long after its time limit a solver may still return its best point before its process is killed.
GRACE = 1.0
_OUTPUT = 4000
_FOREVER = 1e6
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_ENTERED = "entered"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Isolated:
    """An attempt made in a process of its own, and what it did there beside.

    output   what it printed, the end of it
    files    what it left behind in its working directory
    """

    attempt: Attempt
    output: str = ""
    files: tuple[str, ...] = ()


class Worker:
    """A process that makes attempts one after the other. It is reused; only a hang or a crash costs a process."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        # Ours, and not the process', so that it goes also when the process is killed.
        self._folder: tempfile.TemporaryDirectory[str] | None = None

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
    ) -> Isolated:
        """`qcqpbench.solve` in the worker; it is killed if it still runs GRACE seconds after its time limit, which
        counts from the solver's entry (building the problem has the same time, counted apart)."""
        solver = named_solver(solver) if isinstance(solver, str) else solver
        attempt = blank(problem, solver)
        pipe = self._start()
        try:
            pipe.send((problem, solver, start, time_limit, self.threads))
            for phase in ("building", "solving"):
                if not pipe.poll(time_limit + GRACE if time_limit < _FOREVER else None):
                    self.stop()
                    message = f"killed while {phase}, {GRACE:g} s past its limit of {time_limit:g} s"
                    return Isolated(replace(attempt, termination=Termination.TIME_LIMIT, message=message))
                answer = pipe.recv()
                if isinstance(answer, QcqpbenchError):
                    raise answer
                if isinstance(answer, str) and answer != _ENTERED:
                    return Isolated(replace(attempt, termination=Termination.ERROR, message=answer))
                if answer != _ENTERED:
                    return Isolated(*answer)
        except (EOFError, OSError):
            reason = self.stop()
            return Isolated(replace(attempt, termination=Termination.CRASHED, message=f"its process died: {reason}"))
        raise AssertionError("a worker answers at most twice")

    def stop(self) -> str:
        """End the process, at once; returns how it ended."""
        process, self._process = self._process, None
        if process is None or self._pipe is None:
            return "not started"
        self._pipe.close()
        process.join(0.2)
        if process.is_alive():
            process.kill()
        process.join()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        code = process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _start(self) -> Connection:
        if self._process is None or not self._process.is_alive() or self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._folder = tempfile.TemporaryDirectory(prefix="qcqpbench-", ignore_cleanup_errors=True)
            self._process = context.Process(target=_serve, args=(theirs, self._folder.name), daemon=True)
            with _environment(dict.fromkeys(_THREAD_VARIABLES, str(self.threads))):
                self._process.start()
            theirs.close()
        return self._pipe


def _serve(pipe: Connection, home: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            problem, solver, start, time_limit, threads = pipe.recv()
            try:
                with _contained(home) as (output, folder):
                    attempt = solve(problem, solver, start, time_limit, threads, lambda: pipe.send(_ENTERED))
                    files = tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*")))
                    answer: Any = (attempt, _tail(output), files)
            except QcqpbenchError as error:
                answer = error
            except BaseException as error:
                # Also SystemExit and KeyboardInterrupt, which are the solver's here: Ctrl-C does not reach us.
                answer = describe_error(error)
            pipe.send(answer)


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, however it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _contained(place: str) -> Iterator[tuple[Any, Path]]:
    """An empty working directory, and a file that takes what is written to stdout and stderr, also by libraries."""
    home = Path.cwd()
    kept = [os.dup(stream) for stream in (1, 2)]
    with tempfile.TemporaryDirectory(dir=place) as folder, tempfile.TemporaryFile() as output:
        try:
            os.chdir(folder)
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            yield output, Path(folder)
        finally:
            for stream, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, stream)
                os.close(copy)
            os.chdir(home)


def _tail(output: Any) -> str:
    sys.stdout.flush()
    sys.stderr.flush()
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _OUTPUT))
    return output.read().decode(errors="replace")


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
