"""The interface of pools, which run solvers and yield outcomes, and a pool of workers on this machine."""

import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.solver import Solver
from qcqpbench.errors import require
from qcqpbench.run.attempt import Outcome
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.run_spec import RunSpec

# A run whose process is killed from outside (by an administrator, by the system out of memory) is tried again; one
# whose solver kills it every time is a crash.
MAX_TRIES = 3
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Running:
    """A run in progress, the name of its worker, and its monotonic start time."""

    worker: str
    spec: RunSpec
    since: float


class Pool(Protocol):
    """Interface of a set of workers that run solvers; implemented by `LocalPool` and `DaskPool`."""

    def outcomes(self, specs: Iterable[RunSpec]) -> Generator[Outcome, None, None]:
        """Yield the outcomes of the runs `specs` in the order in which they finish.

        `specs` is consumed as workers become free. Closing the generator ends all unfinished runs.
        """

    def running(self) -> list[Running]:
        """Return the runs in progress; may be called from any thread."""


def run_on(
    worker: Worker, spec: RunSpec, name: str, machine: Machine | None = None, solver: Solver | None = None
) -> Outcome:
    """Run a solver on a worker; try again, up to MAX_TRIES times in all, if its process is killed from outside.

    Parameters
    ----------
    name
        The worker's name.
    machine
        The machine of the worker; None for the driver's machine.
    solver
        The solver, if it is an object of the caller and not one that its spec names.

    Raises
    ------
    QcqpbenchError
        If a machine other than the driver's has another version of the solver. On the driver's machine a changed
        version is recorded as an error in the outcome.
    """
    for _ in range(MAX_TRIES):
        begun = time.time()
        outcome = worker.run(spec, solver)
        require(machine is None or not outcome.reply.other_version, outcome.attempt.message)
        if not outcome.reply.lost:
            break
    return replace(outcome, worker=name, begun=begun, machine=machine)


class LocalPool:
    """Pool of workers on this machine, each driven by its own thread.

    Parameters
    ----------
    workers
        Number of simultaneous runs.
    solvers
        Solvers that are objects of the caller, by spec.
    """

    def __init__(self, workers: int = 1, solvers: Mapping[str, Solver] | None = None) -> None:
        self.workers, self._solvers = workers, dict(solvers or {})
        self._running: dict[str, Running] = {}

    def running(self) -> list[Running]:
        return list(self._running.values())

    def outcomes(self, specs: Iterable[RunSpec]) -> Generator[Outcome, None, None]:
        source = _Source(specs)
        # Of limited length, so that outcomes do not pile up if the caller takes them slowly.
        finished: queue.Queue[Outcome | BaseException | None] = queue.Queue(self.workers)
        workers = [Worker() for _ in range(self.workers)]
        threads = [
            threading.Thread(target=self._work, args=(f"local-{number}", worker, source, finished), daemon=True)
            for number, worker in enumerate(workers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield from _take(finished, len(threads))
        finally:
            source.close()
            for worker in workers:
                worker.interrupt()
            while any(thread.is_alive() for thread in threads):
                # Empty the queue, so that a thread blocked on it continues and finds the source closed.
                _drain(finished)
                time.sleep(_POLL_SECONDS)

    def _work(
        self,
        name: str,
        worker: Worker,
        source: "_Source",
        finished: "queue.Queue[Outcome | BaseException | None]",
    ) -> None:
        """Make the runs of `source`; put their outcomes in `finished`, and at the end None or the raised exception."""
        try:
            with worker:
                while (spec := source.next_spec()) is not None:
                    self._running[name] = Running(name, spec, time.monotonic())
                    finished.put(run_on(worker, spec, name, solver=self._solvers.get(spec.solver)))
                    del self._running[name]
            finished.put(None)
        except BaseException as error:
            finished.put(error)
        finally:
            self._running.pop(name, None)


class _Source:
    """Thread-safe iterator over run specs that can be closed early."""

    def __init__(self, specs: Iterable[RunSpec]) -> None:
        self._specs = iter(specs)
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def next_spec(self) -> RunSpec | None:
        with self._lock:
            return None if self._closed.is_set() else next(self._specs, None)

    def close(self) -> None:
        self._closed.set()


def _take(finished: "queue.Queue[Outcome | BaseException | None]", threads: int) -> Iterator[Outcome]:
    """Yield outcomes from `finished` until `threads` threads have ended; re-raise an exception of a thread."""
    while threads:
        outcome = finished.get()
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is None:
            threads -= 1
        else:
            yield outcome


def _drain(finished: "queue.Queue[Outcome | BaseException | None]") -> None:
    try:
        while True:
            finished.get_nowait()
    except queue.Empty:
        pass
