"""Jobs → outcomes on a Dask cluster: each Dask worker does what a thread of `LocalPool` does, in the same isolation."""

import asyncio
import contextlib
import importlib
import logging
import threading
import time
import uuid
import warnings
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

from qcqpbench import __version__
from qcqpbench.catalog.machine import machine
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError, require

from .attempt import Attempt
from .isolation.worker import StoppedError, Worker
from .job import Job, Outcome
from .local_pool import TRIES, Running, do

# Jobs on their way, at the least and per thread of the cluster: enough that no worker waits for its next one and that
# an adaptive cluster sees a reason to grow; few enough that 10⁵ jobs never lie on the scheduler at once.
_LEAST, _PER_THREAD = 16, 3
_LOOK = 1.0
# Seconds for a scheduler to answer.
_PATIENCE = 10.0

_mine = threading.local()
_workers: set[Worker] = set()


class DaskPool:
    """The workers of a Dask cluster: `address` is that of a scheduler, which must answer, or ``local``: `workers`
    processes here."""

    def __init__(self, address: str, workers: int = 1) -> None:
        _distributed()
        if address != "local":
            _reach(address)
        self.address, self.workers = address, workers
        self._client: Any = None
        self._jobs: dict[str, Job] = {}
        self._since: dict[str, float] = {}

    def running(self) -> list[Running]:
        now = time.monotonic()
        try:
            processing = {} if self._client is None else self._client.processing()
        except Exception:
            # The connection is about to close; the view can do without.
            return []
        found = []
        for worker, keys in processing.items():
            for key in keys:
                job = self._jobs.get(str(key))
                if job is not None:
                    found.append(Running(str(worker), job, self._since.setdefault(str(key), now)))
        return found

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        distributed = _distributed()
        with contextlib.ExitStack() as stack:
            # A scheduler that is lost would be a traceback on the terminal.
            stack.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
            target: Any = self.address
            if self.address == "local":
                target = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=self.workers,
                        threads_per_worker=1,
                        dashboard_address=None,
                        silence_logs=logging.CRITICAL,
                    )
                )
            self._client = stack.enter_context(distributed.Client(target, timeout="10s", set_as_default=False))
            if not self._client.nthreads():
                warnings.warn(f"{self.address} has no workers yet; the runs wait for them", stacklevel=2)
            stack.callback(self._leave)
            yield from self._run(iter(jobs))

    def _run(self, jobs: Iterator[Job]) -> Generator[Outcome, None, None]:
        distributed = _distributed()
        finished = distributed.as_completed(loop=self._client.loop)
        tries: dict[str, int] = {}

        def submit(job: Job) -> None:
            # A key of its own each time: the same job may be on the cluster from an earlier call.
            key = f"qcqpbench-{uuid.uuid4().hex}"
            self._jobs[key] = job
            finished.add(self._client.submit(_do, job, __version__, key=key, pure=False))

        room, looked = 0, -_LOOK
        more = True
        while True:
            if time.monotonic() - looked >= _LOOK:
                room, looked = max(_LEAST, _PER_THREAD * sum(self._client.nthreads().values())), time.monotonic()
            while more and len(self._jobs) < room:
                job = next(jobs, None)
                more = job is not None
                if job is not None:
                    submit(job)
            if not self._jobs:
                return
            future = next(finished)
            job = self._jobs.pop(future.key)
            self._since.pop(future.key, None)
            if future.status == "finished":
                outcome = future.result()
                tries.pop(job.key, None)
                del future
                yield outcome
                continue
            error = future.exception() if future.status == "error" else None
            if self._client.status != "running":
                raise QcqpbenchError(
                    f"the Dask scheduler at {self.address} is gone; the same command goes on from here"
                )
            if error is not None and not isinstance(error, distributed.KilledWorker):
                raise error
            # Dask itself has tried several workers, and each was lost.
            tries[job.key] = tries.get(job.key, 0) + 1
            if tries[job.key] < TRIES:
                submit(job)
            else:
                del tries[job.key]
                yield Outcome(job, _crashed(job, str(error or future.status)), worker=self.address, begun=time.time())

    def _leave(self) -> None:
        """End what still runs: nobody waits for it. Without this it would go on to its time limit."""
        with contextlib.suppress(Exception):
            if self._jobs and self._client.status == "running":
                self._client.run(_stop, wait=False)
        self._client = None


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError:
        raise QcqpbenchError("the package distributed is missing: pip install 'qcqpbench[dask]'") from None


def _reach(address: str) -> None:
    """A client alone would wait for ever where somebody listens who is no scheduler."""
    distributed = _distributed()

    async def greet() -> None:
        options = distributed.Security().get_connection_args("client")
        comm = await distributed.comm.connect(address, timeout=_PATIENCE, **options)
        await comm.close()

    try:
        distributed.comm.get_address_host_port(address)
        asyncio.run(asyncio.wait_for(greet(), _PATIENCE))
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split()) or f"no answer within {_PATIENCE:g} s"
        right = "right is local or tcp://HOST:PORT"
        raise QcqpbenchError(f"no Dask scheduler at {address}: {reason}; {right}") from error


def _do(job: Job, version: str) -> Outcome:
    """On a Dask worker, in one of its threads, each of which has a worker process of its own."""
    require(version == __version__, f"a Dask worker has qcqpbench {__version__}, the driver has {version}")
    if getattr(_mine, "worker", None) is None:
        _mine.worker = Worker()
        _workers.add(_mine.worker)
    try:
        return do(job, _mine.worker, str(_distributed().get_worker().address), _machine())
    except StoppedError:
        _workers.discard(_mine.worker)
        _mine.worker = None
        raise


@cache
def _machine() -> dict[str, Any]:
    return asdict(machine())


def _stop() -> None:
    """On a Dask worker: end what its worker processes do."""
    for worker in list(_workers):
        worker.interrupt()


def _crashed(job: Job, reason: str) -> Attempt:
    return Attempt(
        job.problem,
        job.problem_id,
        job.solver,
        job.version,
        job.formulation,
        Termination.CRASHED,
        message=f"the cluster lost every worker that tried it: {reason}",
    )
