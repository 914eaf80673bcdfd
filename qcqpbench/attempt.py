"""One attempt: a problem, a solver, a start; what the solver claimed and what the suite found."""

import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import random
from .certificate import Certificate, certify_margin
from .errors import QcqpbenchError, require
from .formulations import formulation
from .maxmargin import MaxMargin, unit_rows
from .qcqp import QCQP
from .registry import solver as named_solver
from .solution import Solution
from .solver import Budget, QCQPSolver, Solver, Watch
from .status import Availability, PointStatus, Termination
from .verify import OF_TASK, Finding, verify

Array = NDArray[np.float64]
# To verify all that a killed run has reported could take longer than the run.
_LAST_POINTS = 32
# Bounds further apart than this say nothing about where solutions are.
_WIDEST = 1e6


@dataclass(frozen=True, eq=False)
class Attempt:
    """Everything about one run of one solver. What has no value is None.

    margin, kappa_bar, overlap       found by the suite at the point the solver returned, rows scaled to unit length
    test_accuracy                    the same, of a task with held-out trials
    objective, violation, …          found by the suite, of the QCQP the solver saw
    claimed_objective                what the solver said
    sense                            of a QCQP: "minimize" or "maximize"
    best_known                       the best objective (of a task: margin) that was published for the problem
    bound                            what the solver claims to have proved; of a task: a bound on the margin
    gap                              between the bound and the margin or objective, relative to the larger of them
    point                            the solver's best point: W of a task, x of a QCQP
    x                                of a task in a formulation: what the solver returned, which point was made of
    multipliers                      λ of a task's stabilities, if the solver gave them
    trace                            (seconds, point) of what it reported on the way
    """

    problem: str
    problem_id: str
    solver: str
    version: str
    formulation: str | None
    termination: Termination
    point_status: PointStatus = PointStatus.NONE
    margin: float | None = None
    kappa_bar: float | None = None
    kappa_bar_theory: float | None = None
    objective: float | None = None
    violation: float | None = None
    relative_violation: float | None = None
    overlap: float | None = None
    test_accuracy: float | None = None
    bound: float | None = None
    gap: float | None = None
    best_known: float | None = None
    claimed_objective: float | None = None
    iterations: int | None = None
    build_seconds: float | None = None
    solve_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    message: str = ""
    details: dict[str, str | float] | None = None
    sense: str | None = None
    point: Array | None = None
    x: Array | None = None
    multipliers: Array | None = None
    trace: tuple[tuple[float, Array], ...] = ()

    def record(self) -> dict[str, Any]:
        """The attempt as plain values, for JSON: of its arrays the point alone."""
        left_out = ("x", "multipliers", "trace")
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in left_out}
        return {
            name: str(value) if isinstance(value, Termination | PointStatus) else
            value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }  # fmt: skip


def certify(task: MaxMargin, solver: str | Solver = "gip", time_limit: float = math.inf) -> Certificate:
    """Solve a task, then bound its margin from above: how far from the optimum the point can be at the most."""
    require(isinstance(task, MaxMargin), "certificates are for max-margin tasks; this problem is a general QCQP")
    attempt = solve(task, solver, time_limit=time_limit)
    require(
        attempt.point is not None, f"{attempt.solver} found no point: {attempt.message or attempt.termination.message}"
    )
    return certify_margin(task, attempt.point, attempt.multipliers, time_limit)


def random_start(problem: MaxMargin | QCQP, number: int = 0, seed: int = 0) -> Array:
    """Start number 0, 1, … of a problem: unit rows in random directions for a task; for a QCQP its own start first,
    then points between the bounds of the variables: drawn uniformly if the number is even, random corners if it is odd.

    Many local solutions have most variables at a bound, and corners lead to other ones than the middle does.
    A variable without two bounds, or with bounds further apart than _WIDEST, is drawn normally around the value next
    to 0 that it may have, and away from the bound if that is one.
    """
    require(number >= 0, f"start number {number} is not allowed; right is 0, 1, …")
    bits = random.stream(seed, "starts", number)
    if isinstance(problem, MaxMargin):
        return unit_rows(random.normals(bits, np.empty((problem.n, problem.m))))
    if number == 0 and problem.start is not None:
        return problem.start
    lower, upper = problem.x_lower, problem.x_upper
    near, step = np.clip(0.0, lower, upper), random.normals(bits, np.empty(problem.n_variables))
    point = near + np.where(near == lower, abs(step), np.where(near == upper, -abs(step), step))
    boxed = upper <= lower + _WIDEST
    share = random.uniforms(bits, int(boxed.sum()))
    share = np.round(share) if number % 2 else share
    point[boxed] = lower[boxed] + share * (upper[boxed] - lower[boxed])
    return np.clip(point, lower, upper)


def solve(
    problem: MaxMargin | QCQP,
    solver: str | Solver,
    start: ArrayLike | None = None,
    time_limit: float = math.inf,
    threads: int = 1,
    watch: Watch | None = None,
) -> Attempt:
    """Run a solver once on a problem, in this process, and verify what it returns.

    start   W (n, m) of a task, x of a QCQP; by default random_start(problem)
    watch   is told when the solver begins, reports and ends

    A solver that is missing, raises or returns nonsense gives an attempt that says so; only wrong usage raises.
    """
    known = isinstance(problem, MaxMargin | QCQP)
    require(known, "the problem must be a MaxMargin or a QCQP; qcqpbench.problem(spec) makes one")
    solver = solver if isinstance(solver, Solver) else named_solver(solver)
    point = check_start(problem, random_start(problem) if start is None else start)
    limited = isinstance(time_limit, int | float) and time_limit > 0
    require(limited, f"time_limit={time_limit} is not allowed; right is a positive number of seconds")
    attempt = blank(problem, solver)
    status, reason = solver.availability()
    if status is not Availability.AVAILABLE:
        return replace(attempt, termination=Termination.SKIPPED, message=reason)

    seen: MaxMargin | QCQP = problem
    watch = watch or Watch()
    budget = Budget(time_limit, threads)
    clocks: list[tuple[float, float]] = [_clocks()]
    try:
        if isinstance(problem, MaxMargin) and isinstance(solver, QCQPSolver):
            form = formulation(solver.formulation)
            seen, point = form.encode(problem), form.encode_start(problem, point)
        run = solver.build(seen)
        clocks.append(_clocks())
        watch.entered()
        budget = Budget(time_limit, threads, watch)
        solution = run(point, budget)
        clocks.append(_clocks())
        watch.left()
        solution = _plain(solution)
    except (Exception, SystemExit) as error:
        if isinstance(error, QcqpbenchError) and len(clocks) == 1:
            # Still building: its parameters are wrong.
            raise
        clocks.append(_clocks())
        watch.left()
        if isinstance(error, MemoryError):
            best = _best(seen, budget.trace, solver.tolerance)
            solution = Solution(best, Termination.MEMORY_LIMIT, message=describe_error(error))
        else:
            solution = Solution(None, Termination.ERROR, message=describe_error(error))
    build, *rest = [after[0] - before[0] for before, after in pairwise(clocks)]
    return _judge(
        replace(
            attempt,
            build_seconds=build,
            solve_seconds=rest[0] if rest else None,
            cpu_seconds=clocks[-1][1] - clocks[0][1],
            peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        ),
        problem,
        seen,
        solver,
        solution,
        budget,
    )


def judge_reported(
    problem: MaxMargin | QCQP,
    solver: Solver,
    trace: Sequence[tuple[float, Array]],
    termination: Termination,
    message: str,
) -> Attempt:
    """The attempt of a run that was ended from outside: its point is the best of the last that it reported."""
    attempt = blank(problem, solver)
    seen: MaxMargin | QCQP = problem
    if isinstance(problem, MaxMargin) and isinstance(solver, QCQPSolver):
        seen = formulation(solver.formulation).encode(problem)
    shape = (seen.n, seen.m) if isinstance(seen, MaxMargin) else (seen.n_variables,)
    budget = Budget()
    budget.trace = [(seconds, x.reshape(shape)) for seconds, x in trace if x.size == math.prod(shape)]
    best = _best(seen, budget.trace, solver.tolerance)
    return _judge(attempt, problem, seen, solver, Solution(best, termination, message=message), budget)


def _best(problem: MaxMargin | QCQP, trace: list[tuple[float, Array]], tolerance: float) -> Array | None:
    points = [x for _, x in trace[-_LAST_POINTS:]]
    return max(points, key=lambda x: _worth(problem, x, tolerance), default=None)


def _worth(problem: MaxMargin | QCQP, x: Array, tolerance: float) -> tuple[float, float]:
    """Sorts points: first by how little they violate beyond the tolerance, then by their margin or objective."""
    found = verify(problem, x, tolerance)
    if found.point_status is PointStatus.INVALID:
        return -math.inf, 0.0
    if isinstance(problem, MaxMargin):
        return 0.0, found.margin or 0.0
    value = found.objective or 0.0
    beyond = max(0.0, (found.relative_violation or 0.0) - tolerance)
    return -beyond, value if problem.sense == "maximize" else -value


def describe_error(error: BaseException) -> str:
    """An exception in a line, whatever its own text does."""
    try:
        return " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:
        return type(error).__name__


def _plain(solution: Any) -> Solution:
    """What a solver returned, with every part of the type it is said to have; raises where that cannot be."""
    if not isinstance(solution, Solution):
        raise TypeError(f"run returned {type(solution).__name__}, not Solution")
    if not isinstance(solution.termination, Termination):
        raise TypeError(f"the termination is {solution.termination!r}, not one of Termination")
    details = {
        str(key): float(value) if isinstance(value, int | float | np.number) else str(value)
        for key, value in solution.details.items()
    }
    return replace(
        solution,
        objective=None if solution.objective is None else float(solution.objective),
        bound=None if solution.bound is None else float(solution.bound),
        iterations=None if solution.iterations is None else int(solution.iterations),
        message=solution.message.decode() if isinstance(solution.message, bytes) else str(solution.message),
        details=details,
    )


def blank(problem: MaxMargin | QCQP, solver: Solver) -> Attempt:
    """The attempt before anything has run."""
    accepts = isinstance(problem, MaxMargin) or issubclass(QCQP, solver.accepts)
    require(accepts, f"{solver.name} takes max-margin tasks; this problem is a general QCQP")
    theory, known = problem.metadata.notes.get("kappa_bar_theory"), problem.metadata.best_known
    in_form = isinstance(solver, QCQPSolver) and isinstance(problem, MaxMargin)
    return Attempt(
        problem=problem.metadata.spec or "",
        problem_id=problem.id,
        solver=solver.spec,
        version=solver.version(),
        formulation=solver.formulation if in_form and isinstance(solver, QCQPSolver) else None,
        termination=Termination.ERROR,
        kappa_bar_theory=None if theory is None else float(theory),
        best_known=None if known is None else _number(known.value),
        sense=None if isinstance(problem, MaxMargin) else problem.sense,
    )


def check_start(problem: MaxMargin | QCQP, start: ArrayLike) -> Array:
    """The start as an array, or an error if it does not fit the problem."""
    shape = (problem.n, problem.m) if isinstance(problem, MaxMargin) else (problem.n_variables,)
    try:
        require(not np.iscomplexobj(start), f"the start is complex; needed: real numbers of shape {shape}")
        point = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise QcqpbenchError(f"the start holds no numbers; needed: an array of shape {shape}") from None
    require(point.shape == shape, f"the start has shape {point.shape}, needed: {shape}")
    require(bool(np.isfinite(point).all()), "the start holds a value that is not finite")
    has_directions = isinstance(problem, QCQP) or bool((point != 0).any(axis=1).all())
    require(has_directions, "a row of the start is zero and has no direction")
    return point


def _judge(
    attempt: Attempt,
    problem: MaxMargin | QCQP,
    seen: MaxMargin | QCQP,
    solver: Solver,
    solution: Solution,
    budget: Budget,
) -> Attempt:
    found = verify(seen, solution.x, solver.tolerance)
    bound = _number(solution.bound)
    point = None if found.point_status in (PointStatus.NONE, PointStatus.INVALID) else np.asarray(solution.x)
    trace, x = tuple(budget.trace), None
    if isinstance(problem, MaxMargin) and isinstance(seen, QCQP) and isinstance(solver, QCQPSolver):
        form = formulation(solver.formulation)
        bound = None if bound is None else form.margin(bound)
        if point is not None:
            try:
                x, point = point, form.decode(problem, point)
                of_task = verify(problem, point)
                found = replace(found, **{name: getattr(of_task, name) for name in OF_TASK})
            except QcqpbenchError:
                found, point, x = Finding(PointStatus.INVALID), None, None
        trace = tuple((seconds, form.decode(problem, at)) for seconds, at in trace if _has_directions(problem, at))
    value = found.objective if isinstance(problem, QCQP) else found.margin
    gap = None
    if bound is not None and value is not None:
        gap = abs(bound - value) / max(abs(bound), abs(value), 1e-300)
    return replace(
        attempt,
        **vars(found),
        termination=solution.termination,
        bound=bound,
        gap=gap,
        claimed_objective=_number(solution.objective),
        iterations=solution.iterations,
        message=solution.message,
        details=dict(solution.details),
        point=point,
        x=x,
        multipliers=solution.multipliers,
        trace=trace,
    )


def _has_directions(task: MaxMargin, x: Array) -> bool:
    W = x[: task.n * task.m].reshape(task.n, task.m)
    return bool(np.isfinite(W).all() and (W != 0).any(axis=1).all())


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
