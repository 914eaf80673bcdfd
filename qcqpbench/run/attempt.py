"""One attempt: a problem, a solver, a start; what the solver claimed and what the suite found."""

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
# Bounds further apart than this say nothing about where solutions are.
_WIDEST = 1e6


@dataclass(frozen=True, eq=False)
class Attempt:
    """Everything about one run of one solver. What has no value is None.

    margin, kappa_bar, overlap       found by the suite at the point the solver returned, rows scaled to unit length
    test_accuracy                    the same, of a task with held-out trials
    objective, violation, …          found by the suite, of the QCQP the solver saw
    claimed_objective                what the solver said
    scope                            of the solver: "local", "global" or "bound"
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
    scope: str | None = None
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
    bits = rng.stream(seed, "starts", number)
    if isinstance(problem, MaxMargin):
        return unit_rows(rng.normals(bits, np.empty((problem.n, problem.m))))
    if number == 0 and problem.start is not None:
        return problem.start
    lower, upper = problem.x_lower, problem.x_upper
    near, step = np.clip(0.0, lower, upper), rng.normals(bits, np.empty(problem.n_variables))
    point = near + np.where(near == lower, abs(step), np.where(near == upper, -abs(step), step))
    boxed = upper <= lower + _WIDEST
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
    """Run a solver once on a problem, in this process, and verify what it returns.

    Parameters
    ----------
    problem
        A max-margin task or a QCQP.
    solver
        A solver, or its spec such as ``ipopt[formulation=min_norm]``.
    start
        W of shape (n, m) for a task, x for a QCQP; by default ``random_start(problem)``.
    time_limit
        Seconds from the solver's entry.
    threads
        BLAS and OpenMP threads that the solver may use.
    callbacks
        Callbacks for the progress of the run.
    tolerance
        Relative violation up to which the point is feasible.

    Returns
    -------
    Attempt
        Also for a solver that is missing, raises or returns nonsense: the attempt says so.

    Raises
    ------
    QcqpbenchError
        If an argument is wrong.
    """
    known = isinstance(problem, MaxMargin | QCQP)
    require(known, "the problem must be a MaxMargin or a QCQP; qcqpbench.problem(spec) makes one")
    solver = solver if isinstance(solver, Solver) else named_solver(solver)
    point = check_start(problem, random_start(problem) if start is None else start)
    limited = isinstance(time_limit, int | float) and time_limit > 0
    require(limited, f"time_limit must be a positive number of seconds, got {time_limit!r}")
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
    """Return the attempt that a proposal and its evaluation make."""
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
        multipliers=proposal.multipliers,
        trace=evaluation.trace,
    )


def check_accepts(facts: SolverFacts, problem: MaxMargin | QCQP) -> None:
    """Raise an error if a solver does not take problems of this kind."""
    accepts = isinstance(problem, MaxMargin) or facts.takes_qcqps
    require(accepts, f"{facts.name} takes max-margin tasks; this problem is a general QCQP")


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
