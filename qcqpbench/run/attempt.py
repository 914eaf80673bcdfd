"""Attempts: records of single runs, with the claims of the solver and the values computed by the suite."""

import math
import resource
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench import rng
from qcqpbench.catalog.certificate import Certificate, certify_margin
from qcqpbench.catalog.registry import solver as named_solver
from qcqpbench.catalog.solver import RunCallbacks, Solver, SolverFacts
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.qcqp import QCQP

from .proposal import Proposal, propose
from .verify import FEASIBILITY_TOLERANCE, Evaluation, evaluate, finite

Array = NDArray[np.float64]
# Variables with bounds further apart are treated as unbounded, because such bounds hardly restrict the solutions.
_MAX_BOX_WIDTH = 1e6


@dataclass(frozen=True, eq=False)
class Attempt:
    """Record of one run of one solver on one problem. Missing quantities are None.

    Attributes
    ----------
    problem, problem_id
        Spec or file of the problem, and the hash of its content.
    solver, version, scope
        Spec of the solver, the version of its packages and source, and "local", "global" or "bound".
    formulation
        Name of the formulation in which the solver was given a task; None if it was given the problem itself.
    termination
        Why the run ended, as claimed by the solver or observed by the suite.
    point_status
        Whether the returned point is valid and feasible, as computed by the suite.
    margin, kappa_bar, overlap, test_accuracy
        Computed by the suite at the returned point of a task, rows scaled to unit length.
    objective, violation, relative_violation
        Computed by the suite for the QCQP that the solver was given.
    kappa_bar_theory, best_known, sense
        Facts about the problem: the rescaled margin that theory predicts, the best published value, and of a QCQP
        "minimize" or "maximize".
    bound, gap
        The bound that the solver claims to have proved (of a task: on the margin), and its distance from the margin or
        objective, relative to the larger of them.
    claimed_objective, iterations, message, details
        Claims and messages of the solver.
    build_seconds, solve_seconds, cpu_seconds, peak_memory_bytes
        Time and memory of the run.
    point
        The solver's best point: W of a task, x of a QCQP.
    x
        The returned point of a formulation, which `point` was decoded from.
    multipliers
        Multipliers of a task's stabilities, if the solver returned them.
    trace
        (seconds, point) pairs of the points that the solver reported during the run.
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
    scope: str | None = None
    point: Array | None = None
    x: Array | None = None
    multipliers: Array | None = None
    trace: tuple[tuple[float, Array], ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the attempt as a dict of JSON values, without `x`, `multipliers` and `trace`."""
        left_out = ("x", "multipliers", "trace")
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out}
        return {
            name: str(value) if isinstance(value, Termination | PointStatus) else
            value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }  # fmt: skip


def certify(task: MaxMargin, solver: str | Solver = "gip", time_limit: float = math.inf) -> Certificate:
    """Solve a task, then prove an upper bound on its margin.

    Parameters
    ----------
    task
        A max-margin task.
    solver
        The solver that computes the point, or its spec.
    time_limit
        Time limit in seconds, for the solver and for the bound separately.

    Returns
    -------
    Certificate
        The bound, the margin of the point and the gap between them.

    Raises
    ------
    QcqpbenchError
        If `task` is not a max-margin task, or the solver returns no point.
    """
    require(isinstance(task, MaxMargin), f"task must be a MaxMargin, got {task!r:.100}")
    return certify_attempt(task, solve(task, solver, time_limit=time_limit), time_limit)


def certify_attempt(task: MaxMargin, attempt: "Attempt", time_limit: float = math.inf) -> Certificate:
    """Prove an upper bound on the margin of a task, starting from the point and the multipliers of an attempt."""
    require(
        attempt.point is not None,
        f"{attempt.solver} must return a point, got none: {attempt.message or attempt.termination.message}",
    )
    return certify_margin(task, attempt.point, attempt.multipliers, time_limit)


def random_start(problem: MaxMargin | QCQP, number: int = 0, seed: int = 0) -> Array:
    """Return a random start of a problem.

    A start of a task has unit rows in random directions. Start 0 of a QCQP is `problem.start`, if there is one. Other
    starts are drawn between the bounds of the variables: uniformly if `number` is even, at a random corner if it is
    odd, since many local solutions have most variables at a bound. A variable without two bounds, or with bounds more
    than 10⁶ apart, is drawn from a normal distribution around its feasible value nearest to 0, folded at a bound.

    Parameters
    ----------
    problem
        A max-margin task or a QCQP.
    number
        The number of the start: 0, 1, …
    seed
        The seed of all starts.

    Returns
    -------
    ndarray
        W of shape (n, m) for a task, x for a QCQP.
    """
    require(number >= 0, f"number must be at least 0, got {number}")
    bits = rng.stream(seed, "starts", number)
    if isinstance(problem, MaxMargin):
        return unit_rows(rng.normals(bits, np.empty((problem.n, problem.m))))
    if number == 0 and problem.start is not None:
        return problem.start
    lower, upper = problem.x_lower, problem.x_upper
    near, step = np.clip(0.0, lower, upper), rng.normals(bits, np.empty(problem.n_variables))
    point = near + np.where(near == lower, abs(step), np.where(near == upper, -abs(step), step))
    boxed = upper <= lower + _MAX_BOX_WIDTH
    share = rng.uniforms(bits, int(boxed.sum()))
    share = np.round(share) if number % 2 else share
    point[boxed] = lower[boxed] + share * (upper[boxed] - lower[boxed])
    return np.clip(point, lower, upper)


def solve(
    problem: MaxMargin | QCQP,
    solver: str | Solver,
    start: ArrayLike | None = None,
    time_limit: float = math.inf,
    threads: int = 1,
    callbacks: RunCallbacks | None = None,
    tolerance: float = FEASIBILITY_TOLERANCE,
) -> Attempt:
    """Run a solver once on a problem in this process, and verify its result.

    Parameters
    ----------
    problem
        A max-margin task or a QCQP.
    solver
        A solver, or its spec such as ``ipopt[formulation=min_norm]``.
    start
        W of shape (n, m) for a task, x for a QCQP; by default ``random_start(problem)``.
    time_limit
        Time limit in seconds, counted from the solver's entry.
    threads
        BLAS and OpenMP threads that the solver may use.
    callbacks
        Callbacks for the progress of the run.
    tolerance
        Relative violation up to which the point is feasible.

    Returns
    -------
    Attempt
        The record of the run, also if the solver is unavailable, raises or returns no valid point.

    Raises
    ------
    QcqpbenchError
        If an argument is invalid.
    """
    got = f"got {problem!r:.100}; qcqpbench.problem(spec) returns one"
    require(isinstance(problem, MaxMargin | QCQP), f"problem must be a MaxMargin or a QCQP, {got}")
    solver = solver if isinstance(solver, Solver) else named_solver(solver)
    point = check_start(problem, random_start(problem) if start is None else start)
    check_time_limit(time_limit)
    check_tolerance(tolerance)
    facts = solver.facts()
    check_accepts(facts, problem)
    proposal = propose(problem, solver, point, time_limit, threads, callbacks)
    formulation_name = facts.formulation if isinstance(problem, MaxMargin) else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return assemble(
        problem.metadata.spec or "",
        problem.id,
        facts,
        proposal,
        evaluate(problem, formulation_name, proposal, tolerance),
        formulation_name,
        peak,
    )


def assemble(
    problem: str,
    problem_id: str,
    facts: SolverFacts,
    proposal: Proposal,
    evaluation: Evaluation,
    formulation_name: str | None,
    peak_memory_bytes: int | None = None,
) -> Attempt:
    """Combine a proposal, its evaluation and facts about the solver into an attempt."""
    skipped = proposal.termination is Termination.SKIPPED
    return Attempt(
        problem=problem,
        problem_id=problem_id,
        solver=facts.spec,
        version=facts.version,
        formulation=formulation_name,
        termination=proposal.termination,
        **vars(evaluation.finding),
        kappa_bar_theory=evaluation.kappa_bar_theory,
        bound=evaluation.bound,
        gap=evaluation.gap,
        best_known=evaluation.best_known,
        claimed_objective=finite(proposal.objective),
        iterations=proposal.iterations,
        build_seconds=proposal.build_seconds,
        solve_seconds=proposal.solve_seconds,
        cpu_seconds=proposal.cpu_seconds,
        peak_memory_bytes=None if skipped else peak_memory_bytes,
        message=proposal.message,
        details=None if skipped else dict(proposal.details),
        sense=evaluation.sense,
        scope=str(facts.scope),
        point=evaluation.point,
        x=evaluation.x,
        multipliers=evaluation.multipliers,
        trace=evaluation.trace,
    )


def check_accepts(facts: SolverFacts, problem: MaxMargin | QCQP) -> None:
    """Raise QcqpbenchError if the solver does not accept problems of this kind."""
    accepts = isinstance(problem, MaxMargin) or facts.takes_qcqps
    require(accepts, f"problem must be a max-margin task for {facts.name}, got a general QCQP")


def check_time_limit(time_limit: float) -> None:
    """Raise QcqpbenchError if `time_limit` is not a positive number."""
    positive = isinstance(time_limit, int | float) and time_limit > 0
    require(positive, f"time_limit must be a positive number of seconds, got {time_limit!r}")


def check_tolerance(tolerance: float) -> None:
    """Raise QcqpbenchError if `tolerance` is not a finite, nonnegative number."""
    finite_number = isinstance(tolerance, int | float) and 0 <= tolerance < math.inf
    require(finite_number, f"tolerance must be a finite number, 0 or more, got {tolerance!r}")


def check_start(problem: MaxMargin | QCQP, start: ArrayLike) -> Array:
    """Return `start` as a float64 array; raise QcqpbenchError if it is not a valid start of `problem`."""
    shape = (problem.n, problem.m) if isinstance(problem, MaxMargin) else (problem.n_variables,)
    try:
        require(not np.iscomplexobj(start), f"start must hold real numbers, got an array of {np.asarray(start).dtype}")
        point = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise QcqpbenchError(f"start must be an array of shape {shape}, got {start!r:.100}") from None
    require(point.shape == shape, f"start must have the shape {shape}, got {point.shape}")
    require(
        bool(np.isfinite(point).all()), f"start must hold finite numbers, got {point[~np.isfinite(point)][:3].tolist()}"
    )
    zero_rows = [] if isinstance(problem, QCQP) else np.flatnonzero(~point.any(axis=1)).tolist()
    require(not zero_rows, f"start must have no row of zeros, got zeros in the rows {zero_rows[:3]}")
    return point
