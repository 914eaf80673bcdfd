"""A pool of workers on a Dask cluster, with the same process isolation as `LocalPool`."""

import asyncio
import contextlib
import importlib
import logging
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from typing import Any

from qcqpbench import __version__
from qcqpbench.catalog.machine import Machine, machine
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.run.attempt import Outcome, assemble
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.isolation.worker import StoppedError, Worker
from qcqpbench.run.proposal import Proposal, RunReply
from qcqpbench.run.run_spec import RunSpec
from qcqpbench.run.verify import Evaluation, Finding

from .local_pool import MAX_TRIES, Running, run_on

# Limits of the number of submitted runs: enough that no worker waits and an adaptive cluster grows, but few enough that
# the scheduler never holds 10⁵ runs at once.
_MIN_SUBMITTED_RUNS, _SUBMITTED_RUNS_PER_THREAD = 16, 3
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 10.0

# In a Dask worker: the `Worker` of the current thread, and those of all threads.
_of_thread = threading.local()
_workers: set[Worker] = set()


class DaskPool:
    """Pool that runs solvers on the workers of a Dask cluster.

    Parameters
    ----------
    address
        The address of a Dask scheduler, or ``local`` for a new cluster on this machine.
    workers
        Number of processes of a cluster on this machine; ignored for other addresses.

    Raises
    ------
    QcqpbenchError
        If Dask is not installed, or the scheduler does not answer.
    """

    def __init__(self, address: str, workers: int = 1) -> None:
        _distributed()
        if address != "local":
            _require_scheduler(address)
        self.address, self.workers = address, workers
        self._client: Any = None
        self._specs: dict[str, RunSpec] = {}
        self._since: dict[str, float] = {}

    def running(self) -> list[Running]:
        now = time.monotonic()
        try:
            processing = {} if self._client is None else self._client.processing()
        except Exception:
            # The connection is closing, and the live view does not need the list.
            return []
        return [
            Running(str(worker), spec, self._since.setdefault(str(key), now))
            for worker, keys in processing.items()
            for key in keys
            if (spec := self._specs.get(str(key))) is not None
        ]

    def outcomes(self, specs: Iterable[RunSpec]) -> Generator[Outcome, None, None]:
        distributed = _distributed()
        with contextlib.ExitStack() as stack:
            # Otherwise Dask logs a traceback when the scheduler is lost.
            stack.enter_context(distributed.utils.silence_logging_cmgr(logging.CRITICAL))
            target: Any = self.address
            if self.address == "local":
                cluster = distributed.LocalCluster(
                    n_workers=self.workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
                )
                target = stack.enter_context(cluster)
            client = distributed.Client(target, timeout=f"{_CONNECT_SECONDS:g}s", set_as_default=False)
            self._client = stack.enter_context(client)
            if not self._client.nthreads():
                warnings.warn(f"{self.address} has no workers yet; the runs wait for them", stacklevel=2)
            stack.callback(self._leave)
            yield from self._collect(iter(specs))

    def _collect(self, specs: Iterator[RunSpec]) -> Generator[Outcome, None, None]:
        """Submit runs to the cluster, a limited number at a time, and yield their outcomes as they finish."""
        finished = _distributed().as_completed(loop=self._client.loop)
        tries: Counter[str] = Counter()
        room, last_look = 0, -_LOOK_SECONDS
        while True:
            if time.monotonic() - last_look >= _LOOK_SECONDS:
                threads = sum(self._client.nthreads().values())
                room, last_look = max(_MIN_SUBMITTED_RUNS, _SUBMITTED_RUNS_PER_THREAD * threads), time.monotonic()
            while len(self._specs) < room and (spec := next(specs, None)) is not None:
                finished.add(self._submit(spec))
            if not self._specs:
                return
            future = next(finished)
            spec = self._specs.pop(future.key)
            self._since.pop(future.key, None)
            if future.status == "finished":
                outcome = future.result()
                del future
                del tries[spec.key]
                yield outcome
                continue
            reason = self._reason_of_loss(future)
            # Dask itself has tried several workers, and each was lost.
            tries[spec.key] += 1
            if tries[spec.key] < MAX_TRIES:
                finished.add(self._submit(spec))
            else:
                del tries[spec.key]
                yield _crashed(spec, reason, self.address)

    def _submit(self, spec: RunSpec) -> Any:
        # A new key each time: the same run may be on the cluster from an earlier call.
        key = f"qcqpbench-{uuid.uuid4().hex}"
        self._specs[key] = spec
        return self._client.submit(_run, spec, __version__, key=key, pure=False)

    def _reason_of_loss(self, future: Any) -> str:
        """Return why the workers of a failed run were lost; raise an error if the run failed for another reason."""
        error = future.exception() if future.status == "error" else None
        if self._client.status != "running":
            raise QcqpbenchError(
                f"the Dask scheduler at {self.address} must run until the end, but it is gone; the same command resumes"
            )
        if error is not None and not isinstance(error, _distributed().KilledWorker):
            raise error
        return str(error or future.status)

    def _leave(self) -> None:
        """Interrupt unfinished runs on the cluster, which would otherwise continue to their time limits."""
        with contextlib.suppress(Exception):
            if self._specs and self._client.status == "running":
                self._client.run(_interrupt_workers, wait=False)
        self._client = None


def _distributed() -> Any:
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError:
        raise QcqpbenchError("dask needs the package distributed: pip install 'qcqpbench[dask]'") from None


def _require_scheduler(address: str) -> None:
    """Raise QcqpbenchError unless a Dask scheduler answers at `address` within `_CONNECT_SECONDS`."""
    distributed = _distributed()

    async def connect() -> None:
        options = distributed.Security().get_connection_args("client")
        comm = await distributed.comm.connect(address, timeout=_CONNECT_SECONDS, **options)
        await comm.close()

    try:
        distributed.comm.get_address_host_port(address)
        asyncio.run(asyncio.wait_for(connect(), _CONNECT_SECONDS))
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        # Dask raises a RuntimeError if its configuration requires encryption, and a TypeError without certificates.
        reason = " ".join(str(error).split()) or f"no answer within {_CONNECT_SECONDS:g} s"
        requirement = "dask must be local or the tcp://HOST:PORT or tls://HOST:PORT of a Dask scheduler"
        raise QcqpbenchError(f"{requirement}, got {address}: {reason}") from error


def _run(spec: RunSpec, version: str) -> Outcome:
    """Run a solver on a Dask worker, with the `Worker` of the current thread, which is created if missing."""
    require(version == __version__, f"a Dask worker must have qcqpbench {version} like the driver, got {__version__}")
    if getattr(_of_thread, "worker", None) is None:
        _of_thread.worker = Worker()
        _workers.add(_of_thread.worker)
    try:
        return run_on(_of_thread.worker, spec, str(_distributed().get_worker().address), _machine())
    except StoppedError:
        _workers.discard(_of_thread.worker)
        _of_thread.worker = None
        raise


@cache
def _machine() -> Machine:
    return machine()


def _interrupt_workers() -> None:
    """Interrupt all runs on this Dask worker."""
    for worker in list(_workers):
        worker.interrupt()


def _crashed(spec: RunSpec, reason: str, address: str) -> Outcome:
    message = f"the cluster lost every worker that ran it: {reason}"
    proposal = Proposal(Termination.CRASHED, message=message)
    attempt = assemble(spec, solver_facts(spec.solver).scope, proposal, Evaluation(Finding(PointStatus.NONE)))
    return Outcome(attempt, RunReply(proposal), worker=address, begun=time.time())
