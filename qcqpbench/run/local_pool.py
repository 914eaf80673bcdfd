"""Jobs → outcomes, as they finish, on workers of this machine. What becomes of the outcomes is for the caller."""

import queue
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .isolation.worker import Worker
from .job import Job, Outcome

# A run whose process is killed by somebody else (an administrator, the system out of memory) is tried again; one whose
# solver does it every time is a crash.
TRIES = 3


@dataclass(frozen=True)
class Running:
    """since is of time.monotonic."""

    worker: str
    job: Job
    since: float


class Pool(Protocol):
    """What runs jobs: `LocalPool` here, `DaskPool` on a cluster."""

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        """Each job's outcome, in the order they finish; takes jobs as it needs them. Closing it ends what runs."""

    def running(self) -> list[Running]:
        """What runs now; may be called from another thread."""


def do(job: Job, worker: Worker, name: str, machine: Mapping[str, Any] | None = None) -> Outcome:
    """Do a job on a worker; `machine` is where that is, if not on the driver's."""
    for _ in range(TRIES):
        begun = time.time()
        done = worker.run(job)
        if not done.lost:
            break
    return Outcome(job, done.attempt, done.output, name, begun, machine)


class LocalPool:
    """Workers on this machine, one thread of ours for each."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        self._running: dict[str, Running] = {}

    def running(self) -> list[Running]:
        return list(self._running.values())

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        todo, taking = iter(jobs), threading.Lock()
        # Short, so that outcomes do not pile up if the caller is slow to take them.
        done: queue.Queue[Outcome | BaseException | None] = queue.Queue(self.workers)
        over = threading.Event()
        workers = [Worker() for _ in range(self.workers)]

        def work(name: str, worker: Worker) -> None:
            try:
                with worker:
                    while True:
                        with taking:
                            job = None if over.is_set() else next(todo, None)
                        if job is None:
                            break
                        self._running[name] = Running(name, job, time.monotonic())
                        done.put(do(job, worker, name))
                        del self._running[name]
                done.put(None)
            except BaseException as error:
                done.put(error)
            finally:
                self._running.pop(name, None)

        threads = [
            threading.Thread(target=work, args=(f"local-{number}", worker), daemon=True)
            for number, worker in enumerate(workers)
        ]
        for thread in threads:
            thread.start()
        try:
            left = len(threads)
            while left:
                outcome = done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                if outcome is None:
                    left -= 1
                else:
                    yield outcome
        finally:
            over.set()
            for worker in workers:
                worker.interrupt()
            while any(thread.is_alive() for thread in threads):
                # Whoever waits to be rid of an outcome has to get on to find that it is over.
                _drain(done)
                time.sleep(0.005)


def _drain(waiting: "queue.Queue[Outcome | BaseException | None]") -> None:
    try:
        while True:
            waiting.get_nowait()
    except queue.Empty:
        pass
