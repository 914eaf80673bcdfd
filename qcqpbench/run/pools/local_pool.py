"""The interface of pools, which run jobs and yield their outcomes, and a pool of workers on this machine."""

import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from qcqpbench.errors import require
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.job import Job, Outcome

# A run whose process is killed from outside (by an administrator, by the system out of memory) is tried again; one
# whose solver kills it every time is a crash.
MAX_TRIES = 3
_POLL_SECONDS = 0.005


@dataclass(frozen=True)
class Running:
    """A job in progress, the name of its worker, and its monotonic start time."""

    worker: str
    job: Job
    since: float


class Pool(Protocol):
    """Interface of a set of workers that run jobs; implemented by `LocalPool` and `DaskPool`."""

    def outcomes(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        """Yield the outcomes of `jobs` in the order in which they finish.

        `jobs` is consumed as workers become free. Closing the generator ends all unfinished runs.
        """

    def running(self) -> list[Running]:
        """Return the jobs in progress; may be called from any thread."""


def run_job(job: Job, worker: Worker, name: str, machine: Mapping[str, Any] | None = None) -> Outcome:
    """Run a job on a worker; try again, up to MAX_TRIES times in all, if its process is killed from outside.

    Parameters
    ----------
    name
        The worker's name.
    machine
        Facts about the machine of the worker; None for the driver's machine.

    Raises
    ------
    QcqpbenchError
        If a machine other than the driver's has another version of the solver. On the driver's machine a changed
        version is recorded as an error in the outcome.
    """
    for _ in range(MAX_TRIES):
        begun = time.time()
        isolated = worker.run_job(job)
        require(machine is None or not isolated.other_version, isolated.attempt.message)
        if not isolated.lost:
            break
    return Outcome(job, isolated.attempt, isolated.output, name, begun, machine)


class LocalPool:
    """Pool of workers on this machine, each driven by its own thread."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._running: dict[str, Running] = {}

    def running(self) -> list[Running]:
        return list(self._running.values())

    def outcomes(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        source = _JobSource(jobs)
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
        source: "_JobSource",
        finished: "queue.Queue[Outcome | BaseException | None]",
    ) -> None:
        """Run jobs from `source`; put their outcomes in `finished`, and at the end None or the raised exception."""
        try:
            with worker:
                while (job := source.next_job()) is not None:
                    self._running[name] = Running(name, job, time.monotonic())
                    finished.put(run_job(job, worker, name))
                    del self._running[name]
            finished.put(None)
        except BaseException as error:
            finished.put(error)
        finally:
            self._running.pop(name, None)


class _JobSource:
    """Thread-safe iterator over jobs that can be closed early."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = iter(jobs)
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def next_job(self) -> Job | None:
        with self._lock:
            return None if self._closed.is_set() else next(self._jobs, None)

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
