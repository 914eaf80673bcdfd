"""The solver's side of a run: build the problem, run the solver, and convert its result to plain values.

A `Proposal` holds claims of the solver. `qcqpbench.run.verify` recomputes them from the problem and the point.
"""

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

# Imported by name, so that a solver cannot replace these clocks by patching `time`.
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.machine import usable_cores
from qcqpbench.catalog.solver import Budget, QCQPSolver, RunCallbacks, Solution, Solver, real_array
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.errors import MAX_MESSAGE_CHARACTERS, describe_error
from qcqpbench.problem.formulations import formulation
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]
Trace = Sequence[tuple[float, Array]]

# Reporting every step of gradient ascent at the paper's problem size would take 20 MB per run.
MAX_TRACE_POINTS = 100
_MAX_DETAILS = 1000
_MAX_NAME_CHARACTERS = 100
_MAX_DETAIL_CHARACTERS = 500


@dataclass(frozen=True, eq=False)
class Proposal:
    """The claims and points of a solver as plain values, and the times of its run.

    x              the solver's best point, of any shape; None if the solver returned no point
    trace          (seconds, point) pairs of the points that the solver reported during the run
    use_reported   whether the run ended early, so that the best of the last reported points is used instead of `x`
    """

    termination: Termination
    x: Array | None = None
    objective: float | None = None
    bound: float | None = None
    iterations: int | None = None
    multipliers: Array | None = None
    offsets: Array | None = None
    tree: Array | None = None
    message: str = ""
    details: Mapping[str, str | float] = field(default_factory=dict)
    trace: Trace = ()
    use_reported: bool = False
    build_seconds: float | None = None
    solve_seconds: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, eq=False)
class RunReply:
    """Reply of a solver's process to a run request.

    Attributes
    ----------
    proposal
        Claims and points of the solver.
    peak_memory_bytes
        Peak memory of the process during the run.
    output
        The end of the solver's output.
    files
        Names of files that the solver left in its working directory.
    notes
        Descriptions of misbehaviour: too many threads, processes left behind, changed state, too much memory.
    fresh
        Whether the next run needs a new process.
    refused
        Whether the process could not begin the run.
    lost
        Whether the process was killed by something other than the suite.
    other_version
        Whether the process has another version of the solver than the run requires.
    """

    proposal: Proposal
    peak_memory_bytes: int = 0
    output: str = ""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fresh: bool = False
    refused: bool = False
    lost: bool = False
    other_version: bool = False


def propose(
    problem: MaxMargin | QCQP,
    solver: Solver,
    start: Array,
    time_limit: float = math.inf,
    threads: int = 1,
    callbacks: RunCallbacks | None = None,
) -> Proposal:
    """Run a solver once on a problem in this process and return its proposal.

    If the solver is unavailable, raises an exception or returns an invalid result, the termination of the proposal says
    so. The caller limits the threads during `build`, see `limit_threads`.
    """
    status, reason = solver.availability()
    if status is not Availability.AVAILABLE:
        return Proposal(Termination.SKIPPED, message=reason[:MAX_MESSAGE_CHARACTERS])
    callbacks, clock = callbacks or RunCallbacks(), _Clock()
    budget = Budget(time_limit, threads)
    try:
        seen, point = _as_seen(problem, solver, start)
        run = solver.build(seen)
        # Once more, because `build` may have loaded libraries.
        with limit_threads(threads):
            clock.built()
            callbacks.entered()
            budget = Budget(time_limit, threads, callbacks, shape=point.shape)
            solution = run(point, budget)
            # Converted before the clock stops, because a lazy array may compute its values only now.
            proposal = replace(plain_proposal(solution, seen), trace=plain_trace(budget))
    except (Exception, SystemExit) as error:
        memory = isinstance(error, MemoryError)
        termination = Termination.MEMORY_LIMIT if memory else Termination.ERROR
        proposal = Proposal(termination, message=describe_error(error), use_reported=memory, trace=plain_trace(budget))
    finally:
        clock.ended()
        callbacks.left()
    return replace(proposal, **clock.times())


def limit_threads(threads: int) -> AbstractContextManager[object]:
    """Limit the BLAS and OpenMP libraries of this process to `threads` threads until the returned context ends.

    Libraries that are loaded later are not limited. In a worker they read the environment variables that the fork
    server sets.
    """
    # OpenBLAS limits itself to the usable cores only when it is loaded; more threads than cores slow it down.
    return _loaded_libraries(len(sys.modules)).limit(limits=min(threads, usable_cores() or threads))


@functools.lru_cache(maxsize=1)
def _loaded_libraries(n_modules: int) -> Any:
    """Return a controller of the loaded libraries; finding them takes 1 ms, so it is repeated only after imports."""
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 (`import qcqpbench` loads NumPy and SciPy only)

    return ThreadpoolController()


class _Clock:
    """Wall-clock seconds of building and of solving, and CPU seconds of both together."""

    def __init__(self) -> None:
        self._begun, self._cpu_begun = perf_counter(), process_time()
        self._built: float | None = None
        self._ended = self._begun
        self._cpu_ended = self._cpu_begun

    def built(self) -> None:
        self._built = perf_counter()

    def ended(self) -> None:
        self._ended, self._cpu_ended = perf_counter(), process_time()

    def times(self) -> dict[str, Any]:
        built = self._built
        return {
            "build_seconds": (self._ended if built is None else built) - self._begun,
            "solve_seconds": None if built is None else self._ended - built,
            "cpu_seconds": self._cpu_ended - self._cpu_begun,
        }


def _as_seen(problem: MaxMargin | QCQP, solver: Solver, start: Array) -> tuple[MaxMargin | QCQP, Array]:
    """Return the problem and the start as the solver gets them: for a QCQPSolver, a task is encoded as a QCQP."""
    if isinstance(problem, MaxMargin) and isinstance(solver, QCQPSolver):
        form = formulation(solver.formulation)
        return form.encode(problem), form.encode_start(problem, start)
    return problem, start


def plain_proposal(solution: Any, seen: MaxMargin | QCQP) -> Proposal:
    """Convert the solution of a solver to plain values of limited size; raise TypeError if its type is invalid."""
    if not isinstance(solution, Solution):
        raise TypeError(f"run must return a Solution, got {type(solution).__name__}")
    if not isinstance(solution.termination, Termination):
        raise TypeError(f"termination must be a Termination, got {solution.termination!r:.100}")
    shape = (seen.n, seen.m) if isinstance(seen, MaxMargin) else (seen.n_variables,)
    x, notes = None if solution.x is None else real_array(solution.x, "the point"), []
    if x is not None and x.size != math.prod(shape):
        notes.append(f"the point must have the shape {shape}, got {x.shape}")
        x = np.empty(0)
    multipliers = offsets = tree = None
    if isinstance(seen, MaxMargin):
        multipliers, note = _plain_array(solution.multipliers, "the multipliers", seen.labels.shape)
        offsets, offsets_note = _plain_array(solution.offsets, "the offsets", (seen.n,))
        tree, tree_note = _plain_array(solution.tree, "the tree")
        notes += [note, offsets_note, tree_note]
    message = solution.message
    message = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    return Proposal(
        termination=solution.termination,
        x=x,
        objective=None if solution.objective is None else float(solution.objective),
        bound=None if solution.bound is None else float(solution.bound),
        iterations=None if solution.iterations is None else int(solution.iterations),
        multipliers=multipliers,
        offsets=offsets,
        tree=tree,
        message="; ".join(filter(None, [message[:MAX_MESSAGE_CHARACTERS], *notes])),
        details=plain_details(solution.details),
    )


def _plain_array(values: Any, name: str, shape: tuple[int, ...] | None = None) -> tuple[Array | None, str]:
    """Return (array of `values`, ""), or (None, error message) if `values` are not real numbers of this `shape`.

    Return (None, "") if `values` is None. A vector of any length has the shape None.
    """
    if values is None:
        return None, ""
    try:
        array = real_array(values, name)
    except (TypeError, ValueError) as error:
        return None, str(error)
    shape = (array.size,) if shape is None else shape
    return (array, "") if array.shape == shape else (None, f"{name} must have the shape {shape}, got {array.shape}")


def plain_details(details: Mapping[Any, Any]) -> dict[str, str | float]:
    """Convert the values of `details` to text or float, and truncate names, texts and the number of entries."""
    return {
        str(key)[:_MAX_NAME_CHARACTERS]: float(value)
        if isinstance(value, int | float | np.number)
        else str(value)[:_MAX_DETAIL_CHARACTERS]
        for key, value in list(details.items())[:_MAX_DETAILS]
    }


def plain_trace(budget: Budget) -> tuple[tuple[float, Array], ...]:
    """Return the reported points that are float64 arrays of the right shape with valid times, thinned."""
    trace = []
    try:
        for seconds, point in list(budget.trace):
            plain = type(point) is np.ndarray and point.dtype == np.float64 and budget.shape in (None, point.shape)
            if plain and 0.0 <= seconds < math.inf:
                trace.append((float(seconds), point))
    except (Exception, SystemExit):
        return ()
    # Copied, because the solver may still change the arrays.
    return tuple((seconds, point.copy()) for seconds, point in thin_trace(trace))


def thin_trace(trace: Trace) -> tuple[tuple[float, Array], ...]:
    """Return at most MAX_TRACE_POINTS points of a trace, spaced evenly in log(seconds), with the first and the last."""
    if len(trace) <= MAX_TRACE_POINTS:
        return tuple(trace)
    seconds = np.maximum.accumulate(np.maximum([seconds for seconds, _ in trace], 1e-6))
    wanted = np.searchsorted(seconds, np.geomspace(seconds[0], seconds[-1], MAX_TRACE_POINTS))
    last = len(trace) - 1
    return tuple(trace[k] for k in sorted({0, last, *np.minimum(wanted, last)[1:-1].tolist()}))
