"""Attempts: records of single runs, with claims of the solver and values computed by the suite."""

import math
import resource
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from html import escape
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.catalog.certificate.global_certificate import GlobalCertificate
from qcqpbench.catalog.certificate.shor import Certificate, certify_margin
from qcqpbench.catalog.certificate.tree import TreeCertificate
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.registry import check_problem, check_type
from qcqpbench.catalog.registry import solver as named_solver
from qcqpbench.catalog.solver import RunCallbacks, Solver, SolverFacts
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin, check_task
from qcqpbench.problem.qcqp import QCQP

from .proposal import Proposal, RunReply, limit_threads, propose
from .run_spec import RunOptions, RunSpec, check_start, random_start
from .verify import FEASIBILITY_TOLERANCE, Evaluation, evaluate, finite

Array = NDArray[np.float64]
JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
# Fields of an attempt with the same name and value as those of its evaluation.
_EVALUATED = tuple(field.name for field in fields(Evaluation) if field.name not in ("finding", "x"))


@dataclass(frozen=True, eq=False, kw_only=True)
class RunValues:
    """Numbers and texts of one run, which attempts and rows have in common. Missing quantities are None.

    The suite computes the fields that are those of `Finding`, from `point_status` to `test_accuracy`.

    A new column of results files is a new field here, and a migration in `qcqpbench.results.schema`.

    Attributes
    ----------
    termination
        Why the run ended, as claimed by the solver or observed by the suite, see `Termination`.
    kappa_bar_theory : dimensionless
        The κ̄ that the best theory, full replica-symmetry breaking, predicts for large instances.
    kappa_bar_rs : dimensionless
        The κ̄ that the paper's theory, replica symmetry, predicts for large instances.
    bound : unit of the margin or objective
        The bound on the optimum (of a task: on the margin) that the solver claims to have proved.
    gap : fraction
        The distance of the bound from the margin or objective, relative to the larger of the two.
    best_known : unit of the margin or objective
        The best published value of the problem.
    claimed_objective : unit of the objective
        The objective that the solver claims.
    iterations : count
        The number of iterations that the solver reports.
    build_seconds : seconds
        Wall time in which the solver prepared the problem.
    solve_seconds : seconds
        Wall time of the run, without the preparation.
    cpu_seconds : seconds
        CPU time of all threads of the solver's process, for preparation and run together.
    peak_memory_bytes : bytes
        Largest memory of the solver's process and its descendants.
    message
        Message of the solver, or the reason why it was skipped or failed.
    details
        Further claims of the solver, by name.
    sense
        Of a QCQP "minimize" or "maximize"; None for a task, whose margin is maximized.
    scope
        The kind of answer that the solver gives, see `Scope`; None in rows of old files.
    """

    termination: Termination
    point_status: PointStatus = PointStatus.NONE
    margin: float | None = None
    kappa_bar: float | None = None
    kappa_bar_theory: float | None = None
    kappa_bar_rs: float | None = None
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
    details: Mapping[str, str | float] | None = None
    sense: str | None = None
    scope: Scope | None = None

    @property
    def success(self) -> bool:
        """True if the suite found the returned point to be feasible."""
        return self.point_status is PointStatus.FEASIBLE


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Attempt(RunValues):
    """Record of one run of one solver on one problem.

    Attributes
    ----------
    spec
        The problem, the solver, the start and the options of the run.
    termination, point_status, margin, …
        See `RunValues`.
    point
        The solver's best point: W of a task, x of a QCQP; also as `W` or `x`.
    formulation_point
        The returned point of a formulation, which `point` was decoded from.
    multipliers
        Multipliers of a task's stabilities, shape (p, n(n−1)/2); None if the solver returned none.
    offsets
        Offsets of the certificate that proves `bound`, shape (n,); None if the solver returned none.
    tree
        Tree certificate that proves `bound`, for `TreeCertificate.from_vector`; None if the solver returned none.
    trace
        (seconds, point) pairs of the points that the solver reported during the run.
    """

    spec: RunSpec
    point: Array | None = None
    formulation_point: Array | None = None
    multipliers: Array | None = None
    offsets: Array | None = None
    tree: Array | None = None
    trace: tuple[tuple[float, Array], ...] = ()

    @property
    def problem(self) -> str:
        """Spec or file of the problem; empty for a problem made from arrays."""
        return self.spec.problem

    @property
    def solver(self) -> str:
        """Spec of the solver."""
        return self.spec.solver

    @property
    def x(self) -> Array | None:
        """The point of a QCQP; None for a task, or if there is no point."""
        return None if self.sense is None else self.point

    @property
    def W(self) -> Array | None:  # noqa: N802 (the paper's name)
        """The weights of a task, shape (n, m), rows of any length; None for a QCQP, or if there is no point."""
        return self.point if self.sense is None else None

    def record(self) -> dict[str, JsonValue]:
        """Return the spec, the values and the point of the attempt as a dict of JSON values."""
        spec = {field.name: getattr(self.spec, field.name) for field in fields(RunSpec)}
        values = {field.name: getattr(self, field.name) for field in fields(RunValues)}
        return {name: _json_value(value) for name, value in (spec | values | {"point": self.point}).items()}

    def _summary(self) -> dict[str, str]:
        """Return the values that are shown in the repr and in notebooks, by name."""
        names = ("margin", "kappa_bar", "kappa_bar_theory") if self.sense is None else ("objective", "violation")
        values = {name: getattr(self, name) for name in (*names, "bound", "gap", "best_known", "solve_seconds")}
        shown = {"termination": str(self.termination), "point_status": str(self.point_status)}
        return shown | {name: f"{value:.6g}" for name, value in values.items() if value is not None}

    def __repr__(self) -> str:
        about = ", ".join(f"{name}={value}" for name, value in self._summary().items())
        return f"<Attempt: {self.solver} on {self.problem or self.spec.problem_id[:12]}, {about}>"

    def _repr_html_(self) -> str:
        shown = {"problem": self.problem or self.spec.problem_id[:12], "solver": self.solver, **self._summary()}
        shown |= {"message": self.message} if self.message else {}
        lines = (f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in shown.items())
        return f"<table>{''.join(lines)}</table>"


def _json_value(value: Any) -> JsonValue:
    """Return `value` as a JSON value: arrays as lists, enum members as text, infinite limits as None."""
    if isinstance(value, Termination | PointStatus | Scope):
        return str(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, eq=False)
class Outcome:
    """An attempt in a separate process, with the worker's reply.

    Attributes
    ----------
    attempt
        The record of the run.
    reply
        The reply of the worker's process: the solver's output, files and misbehaviour.
    worker
        The name of the worker, such as ``local-0``, or the address of a cluster worker.
    begun
        Start time of the run in seconds since 1970.
    machine
        The machine of the worker; None for the driver's machine.
    """

    attempt: Attempt
    reply: RunReply
    worker: str = ""
    begun: float = 0.0
    machine: Machine | None = None

    @property
    def spec(self) -> RunSpec:
        """The spec of the run."""
        return self.attempt.spec


def certify_globally(
    task: MaxMargin, solver: str | Solver = "branch_and_bound[certificate=true]", time_limit: float = math.inf
) -> GlobalCertificate:
    """Search for the optimum of a task by branch and bound, and prove an upper bound on its margin.

    Parameters
    ----------
    task
        A max-margin task; docs/reference/solvers.md says which sizes take how long.
    solver
        A solver that returns a tree certificate, or its spec, such as ``branch_and_bound[gap=1e-6,certificate=true]``.
    time_limit
        Time limit in seconds.

    Returns
    -------
    GlobalCertificate
        The point, its margin, and the tree that proves the bound. If the time limit ends the search, the bound is valid
        but not close to the margin.

    Raises
    ------
    QcqpbenchError
        If `task` is not a max-margin task, or the solver returns no point or no valid tree.
    """
    check_task(task)
    return certify_attempt_globally(task, solve(task, solver, time_limit=time_limit), task.metadata.spec or "")


def certify_attempt_globally(task: MaxMargin, attempt: "Attempt", problem: str) -> GlobalCertificate:
    """Return the checked certificate of the point and the tree of an attempt; `problem` is a spec or a file.

    Raise QcqpbenchError if the attempt has no point or no valid tree.
    """
    if attempt.point is None or attempt.tree is None:
        missing = "point" if attempt.point is None else "tree certificate"
        reason = attempt.message or attempt.termination.message
        raise QcqpbenchError(f"{attempt.solver} must return a {missing}, got none: {reason}")
    tree = TreeCertificate.from_vector(attempt.tree)
    tree.verified_bound(task)
    problem = task.metadata.spec or problem
    command = shlex.join(["qcqpbench", "certify", "--global", problem, "-s", attempt.solver])
    origin = {"problem": problem, "solver": attempt.solver, "version": attempt.spec.version, "command": command}
    return GlobalCertificate.of(task, attempt.point, tree, **origin)


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
    check_task(task)
    return certify_attempt(task, solve(task, solver, time_limit=time_limit), time_limit)


def certify_attempt(task: MaxMargin, attempt: "Attempt", time_limit: float = math.inf) -> Certificate:
    """Prove an upper bound on the margin of a task, starting from the point and the multipliers of an attempt.

    Raise QcqpbenchError if the attempt has no point; `time_limit` is in seconds.
    """
    require(
        attempt.point is not None,
        f"{attempt.solver} must return a point, got none: {attempt.message or attempt.termination.message}",
    )
    return certify_margin(task, attempt.point, attempt.multipliers, time_limit)


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
        BLAS and OpenMP threads that the solver may use. The BLAS of NumPy and SciPy has its previous number of threads
        again when the run ends.
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
    check_problem(problem)
    check_type("solver", solver, Solver, "be a spec such as 'gip' or a solver")
    valid = isinstance(callbacks, RunCallbacks | None)
    require(valid, f"callbacks must be a RunCallbacks or None, got {callbacks!r:.100}")
    solver = solver if isinstance(solver, Solver) else named_solver(solver)
    point = check_start(problem, random_start(problem) if start is None else start)
    facts = solver.facts()
    spec = spec_of_objects(problem, facts, RunOptions(time_limit=time_limit, threads=threads, tolerance=tolerance))
    with limit_threads(spec.threads):
        proposal = propose(problem, solver, point, spec.time_limit, spec.threads, callbacks)
        evaluation = evaluate(problem, spec.formulation, proposal, spec.tolerance)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return assemble(spec, facts.scope, proposal, evaluation, peak)


def spec_of_objects(problem: MaxMargin | QCQP, facts: SolverFacts, options: RunOptions) -> RunSpec:
    """Return the spec of a run on a problem in memory; raise QcqpbenchError if the solver does not accept it."""
    accepts = isinstance(problem, MaxMargin) or facts.takes_qcqps
    require(accepts, f"problem must be a max-margin task for {facts.name}, got a general QCQP")
    return RunSpec(
        problem=problem.metadata.spec or "",
        problem_id=problem.id,
        solver=facts.spec,
        version=facts.version,
        formulation=facts.formulation if isinstance(problem, MaxMargin) else None,
        start=0,
        **vars(options),
    )


def assemble(
    spec: RunSpec, scope: Scope, proposal: Proposal, evaluation: Evaluation, peak_memory_bytes: int | None = None
) -> Attempt:
    """Return the attempt that combines a run spec, a proposal and its evaluation; `scope` is that of the solver."""
    skipped = proposal.termination is Termination.SKIPPED
    return Attempt(
        spec=spec,
        scope=scope,
        termination=proposal.termination,
        **vars(evaluation.finding),
        **{name: getattr(evaluation, name) for name in _EVALUATED},
        claimed_objective=finite(proposal.objective),
        iterations=proposal.iterations,
        build_seconds=proposal.build_seconds,
        solve_seconds=proposal.solve_seconds,
        cpu_seconds=proposal.cpu_seconds,
        peak_memory_bytes=None if skipped else peak_memory_bytes,
        message=proposal.message,
        details=None if skipped else dict(proposal.details),
        formulation_point=evaluation.x,
    )
