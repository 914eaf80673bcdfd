"""Conformance tests of solvers and problem families, including those of plug-ins, with known answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qcqpbench.catalog.family import Family, generated
from qcqpbench.catalog.registry import check_type, problem
from qcqpbench.catalog.registry import family as named_family
from qcqpbench.catalog.solver import Solver, SolverFacts
from qcqpbench.catalog.status import Availability, PointStatus, Scope, Termination
from qcqpbench.errors import require
from qcqpbench.problem.formulations import FORMULATIONS
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .attempt import Attempt, Outcome
from .isolation.description import solver_facts
from .isolation.protocol import GRACE_SECONDS
from .isolation.worker import Worker
from .run_spec import RunOptions, random_start
from .verify import FEASIBILITY_TOLERANCE

# Time limits in seconds.
TIME_LIMIT, SHORT_TIME_LIMIT = 20.0, 2.0
# Time between the time limit and the kill of a solver that ignores it.
PATIENCE_SECONDS = 5.0
MAX_STARTS = 8
_TIME_LIMIT_CASE = f"time limit of {SHORT_TIME_LIMIT:g} s"


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with a known answer: its optimal value, infeasibility or unboundedness."""

    name: str
    problem: QCQP | MaxMargin
    optimum: float | None = None
    answer: Literal["optimum", "infeasible", "unbounded"] = "optimum"


@dataclass(frozen=True)
class Check:
    """Outcome of one case, with an error message if it failed."""

    case: str
    passed: bool
    message: str = ""


def check_solver(solver: str | Solver, case: str | None = None) -> list[Check]:
    """Run a solver in a worker process on every case that it accepts, and check its answers.

    A solver fails a case if it raises, crashes, prints, leaves files or processes behind, runs more threads than
    allowed, claims a wrong objective value, claims a solution with an infeasible point, claims a bound that the known
    optimum violates, does not reach the known optimum from any start, or exceeds its time limit. Points are checked
    with the feasibility tolerance that the solver declares.

    Parameters
    ----------
    solver
        A solver or its spec.
    case
        Run only the cases whose names contain this text, in upper or lower case; None for all cases.

    Returns
    -------
    list of Check
        The outcome of each case.

    Raises
    ------
    QcqpbenchError
        If the solver is unknown, or no case has such a name.
    """
    return list(checks_of_solver(solver, case))


def checks_of_solver(solver: str | Solver, case: str | None = None) -> Iterator[Check]:
    """Yield the outcomes of `check_solver` as the cases end."""
    check_type("solver", solver, Solver, "be a spec such as 'gip' or a solver")
    require(isinstance(case, str | None), f"case must be text or None, got {case!r:.100}")
    facts = solver_facts(solver) if isinstance(solver, str) else solver.facts()
    names = [*(item.name for item in cases(facts)), _TIME_LIMIT_CASE]
    chosen = {name for name in names if case is None or case.lower() in name.lower()}
    require(bool(chosen), f"case must be part of the name of a case, got {case!r}; cases: {'; '.join(names)}")
    if facts.availability is not Availability.AVAILABLE:
        yield Check("available", False, f"{facts.availability}: {facts.reason}")
        return
    with Worker() as worker:
        for item in cases(facts):
            if item.name in chosen:
                message = _complaint(solver, facts, item, worker)
                yield Check(item.name, not message, message)
        if _TIME_LIMIT_CASE in chosen:
            message = _lateness(solver, facts, worker)
            yield Check(_TIME_LIMIT_CASE, not message, message)


def tolerance_notice(facts: SolverFacts) -> str:
    """Return a notice if the solver declares a looser feasibility tolerance than that of suites; otherwise ""."""
    if facts.tolerance <= FEASIBILITY_TOLERANCE:
        return ""
    consequence = f"the suite counts its points as infeasible above {FEASIBILITY_TOLERANCE:g}"
    return f"declares tolerance {facts.tolerance:g}; {consequence}"


def check_family(family: str | Family) -> list[Check]:
    """Check that a family generates the same problem twice from its parameters and once from the spec in its metadata.

    Parameters
    ----------
    family
        A family with its parameters set, or a spec. Its code runs in this process.

    Returns
    -------
    list of Check
        The outcomes of the two checks.
    """
    check_type("family", family, Family, "be a spec or a Family")
    family = named_family(family) if isinstance(family, str) else family
    first = generated(family)
    again = generated(type(family)(**family.parameters)).id == first.id
    spelled = first.metadata.spec is not None and problem(first.metadata.spec).id == first.id
    return [
        Check("same parameters, same problem", again, "" if again else "a second generation differs"),
        Check("spec in the metadata", spelled, "" if spelled else "the spec does not make the same problem"),
    ]


def cases(facts: SolverFacts) -> list[Case]:
    """Return the cases that a solver accepts."""
    positive_only = facts.formulation in FORMULATIONS and FORMULATIONS[facts.formulation].positive_only
    tasks = [case for case in _tasks() if not (positive_only and (case.optimum or 0.0) < 0)]
    return [*(_qcqps() if facts.takes_qcqps else []), *tasks]


def _qcqps() -> list[Case]:
    inf = np.inf
    disk = ((1.0, 0.0), (0.0, 1.0))
    x_plus_y = (None, (1.0, 1.0), 0.0)
    return [
        Case(
            "disk and half-plane: x + y on x² + y² ≤ 1, x ≥ 0",
            QCQP(
                *x_plus_y,
                quadratic_constraints=[(disk, None, -inf, 1.0), (None, (1.0, 0.0), 0.0, inf)],
                start=np.array([0.3, -0.2]),
            ),
            optimum=-1.0,
        ),
        Case(
            "annulus: (x − ½)² + y² on 1 ≤ x² + y² ≤ 4",
            QCQP(disk, (-1.0, 0.0), 0.25, quadratic_constraints=[(disk, None, 1.0, 4.0)], start=np.array([0.9, 0.8])),
            optimum=0.25,
        ),
        Case(
            "equality: x + y on x² + y² = 2",
            QCQP(*x_plus_y, quadratic_constraints=[(disk, None, 2.0, 2.0)], start=np.array([-0.9, -0.2])),
            optimum=-2.0,
        ),
        Case(
            "maximization: 1 + xy on x² + y² ≤ 2",
            QCQP(
                ((0.0, 1.0), (0.0, 0.0)),
                constant=1.0,
                quadratic_constraints=[(disk, None, -inf, 2.0)],
                sense="maximize",
                start=np.array([1.0, 0.5]),
            ),
            optimum=2.0,
        ),
        Case(
            "bounds: x² + y² on x ≥ 1, −3 ≤ y ≤ −2",
            QCQP(disk, x_lower=[1.0, -3.0], x_upper=[inf, -2.0], start=np.array([2.0, -2.5])),
            optimum=5.0,
        ),
        Case(
            "range: x on −1 ≤ x + y ≤ 1, 0 ≤ y ≤ 2",
            QCQP(
                q=(1.0, 0.0),
                quadratic_constraints=[(None, (1.0, 1.0), -1.0, 1.0)],
                x_lower=[-inf, 0.0],
                x_upper=[inf, 2.0],
                start=np.array([0.0, 0.5]),
            ),
            optimum=-3.0,
        ),
        Case(
            "infeasible: x² + y² ≤ 1, x ≥ 2",
            QCQP(
                *x_plus_y,
                quadratic_constraints=[(disk, None, -inf, 1.0), (None, (1.0, 0.0), 2.0, inf)],
                start=np.array([0.3, 0.2]),
            ),
            answer="infeasible",
        ),
        Case(
            "unbounded: x − y² on x ≥ 0",
            QCQP(
                ((0.0, 0.0), (0.0, -1.0)),
                (1.0, 0.0),
                quadratic_constraints=[(None, (1.0, 0.0), 0.0, inf)],
                start=np.array([0.3, 0.2]),
            ),
            answer="unbounded",
        ),
    ]


def _tasks() -> list[Case]:
    one = np.array([[[2.0, 1.0, 0.0], [-1.0, 1.0, 0.5], [0.0, 1.0, 1.0]]])
    return [
        Case(
            "one pattern: its largest singular value",
            MaxMargin(one, np.ones((1, 1), dtype=np.int8)),
            optimum=float(np.linalg.norm(one[0], 2)),
        ),
        *(
            Case(spec, problem(f"covariance_perceptron[{spec},ensemble=gaussian,f=1,c=1]"), optimum=optimum)
            # Optima by exhaustive search over the angles (tests/run/test_conformance.py), confirmed by SCIP.
            for spec, optimum in (
                ("m=2,p=3,seed=0", 0.60119816),
                ("m=2,p=3,seed=2", 0.32676949),
                ("m=2,n=3,p=2,seed=0", 0.36785651),
                ("m=2,p=8,seed=1", -0.21681104),
            )
        ),
        # The optimum is proved in the list of best known margins.
        _proved("covariance_perceptron[m=4,load=0.5,ensemble=gaussian,seed=1]"),
    ]


def _proved(spec: str) -> Case:
    task = problem(spec)
    assert task.metadata.best_known is not None
    return Case(f"{spec}: proved optimum", task, optimum=task.metadata.best_known.value)


def _complaint(solver: str | Solver, facts: SolverFacts, case: Case, worker: Worker) -> str:
    """Run the solver on a case; return an error message about its answer, or "" if it is correct."""
    many = isinstance(case.problem, MaxMargin) and facts.scope is Scope.LOCAL
    options = RunOptions(time_limit=TIME_LIMIT, tolerance=facts.tolerance)
    attempts: list[Attempt] = []
    for number in range(MAX_STARTS if many else 1):
        outcome = worker.attempt(case.problem, solver, random_start(case.problem, number), options)
        attempts.append(outcome.attempt)
        if complaint := _wrong_claim(facts, case, outcome):
            return complaint
    return _wrong_answer(facts, case, attempts)


def _lateness(solver: str | Solver, facts: SolverFacts, worker: Worker) -> str:
    """Run the solver with a short time limit; return an error message, or "" if it obeys the limit."""
    task = problem("covariance_perceptron[m=40,load=2]")
    options = RunOptions(time_limit=SHORT_TIME_LIMIT)
    late = worker.attempt(task, solver, options=options, grace_seconds=PATIENCE_SECONDS)
    attempt = late.attempt
    if attempt.message.startswith("killed"):
        return attempt.message
    # The smaller of wall-clock and CPU seconds, because on a busy machine every run is late by the wall clock.
    seconds = min(attempt.solve_seconds or 0.0, (attempt.cpu_seconds or 0.0) - (attempt.build_seconds or 0.0))
    limit = SHORT_TIME_LIMIT + GRACE_SECONDS
    if seconds > limit:
        return f"must return within {limit:g} s, got a return after {seconds:.2f} s"
    if attempt.termination is Termination.TIME_LIMIT and facts.scope is Scope.LOCAL and attempt.point is None:
        return "must return its best point at the time limit, got none"
    return _misbehaviour(late)


def _misbehaviour(outcome: Outcome) -> str:
    """Return an error message if a run failed, printed or left something behind; otherwise ""."""
    attempt, reply = outcome.attempt, outcome.reply
    if attempt.termination in (Termination.ERROR, Termination.CRASHED):
        return f"{attempt.termination}: {attempt.message}"
    if reply.output:
        return f"printed {reply.output!r}"
    if reply.files:
        return f"left files behind: {', '.join(reply.files)}"
    return "; ".join(reply.notes)


def _wrong_claim(facts: SolverFacts, case: Case, outcome: Outcome) -> str:
    """Return an error message if an attempt misbehaves or makes a false claim; otherwise ""."""
    attempt = outcome.attempt
    misbehaviour = _misbehaviour(outcome)
    if misbehaviour:
        return misbehaviour
    if attempt.point_status is PointStatus.INVALID:
        return PointStatus.INVALID.message
    if attempt.termination.claims_a_solution and attempt.point_status is not PointStatus.FEASIBLE:
        return f"says {attempt.termination}, but its point violates a constraint by {attempt.violation}"
    value = attempt.objective if attempt.objective is not None else attempt.margin
    claimed = attempt.claimed_objective
    if claimed is not None and value is not None and abs(claimed - value) > 1e-6 * max(1.0, abs(value)):
        return f"claims the objective {claimed}, its point has {value}"
    if case.optimum is not None and attempt.bound is not None:
        excess = _sense(case.problem) * (attempt.bound - case.optimum)
        if excess > facts.accuracy * max(1.0, abs(case.optimum)):
            return f"claims to have proved the bound {attempt.bound}, but {case.optimum} can be reached"
    return ""


def _wrong_answer(facts: SolverFacts, case: Case, attempts: list[Attempt]) -> str:
    """Return an error message if the attempts do not give the known answer of the case; otherwise ""."""
    first = attempts[0]
    if case.answer != "optimum":
        return _wrong_termination(facts, case, first)
    if facts.scope is Scope.BOUND:
        return "" if first.bound is not None else f"gave no bound: {first.termination}, {first.message}"
    return _wrong_optimum(facts, case, attempts)


def _wrong_termination(facts: SolverFacts, case: Case, attempt: Attempt) -> str:
    """Return an error message if an attempt at an infeasible or unbounded problem claims otherwise; else ""."""
    proof = Termination.INFEASIBLE if case.answer == "infeasible" else Termination.UNBOUNDED
    contradiction = f"says {attempt.termination}, but the problem is {case.answer}"
    if attempt.termination.claims_a_solution:
        return contradiction
    if case.answer == "infeasible" and attempt.point_status is PointStatus.FEASIBLE:
        return "returned a feasible point of an infeasible problem"
    return contradiction if facts.scope is Scope.GLOBAL and attempt.termination is not proof else ""


def _wrong_optimum(facts: SolverFacts, case: Case, attempts: list[Attempt]) -> str:
    """Return an error message if the best value of the attempts is not the known optimum; otherwise ""."""
    assert case.optimum is not None
    first, sense = attempts[0], _sense(case.problem)
    values = [value for attempt in attempts if (value := _feasible_value(case, attempt)) is not None]
    if not values:
        return f"returned no feasible point: {first.termination}, {first.message}"
    best = sense * min(sense * value for value in values)
    allowed = facts.accuracy * max(1.0, abs(case.optimum))
    if sense * (best - case.optimum) > allowed:
        return f"the best of {len(attempts)} starts is {best}, the optimum is {case.optimum}"
    if sense * (case.optimum - best) > max(allowed, 10 * facts.tolerance):
        return f"returned {best}, better than the optimum {case.optimum}: is the point what it claims to be?"
    if facts.scope is Scope.GLOBAL and first.termination is not Termination.OPTIMAL:
        return f"did not prove the optimum in {TIME_LIMIT:g} s: {first.termination}"
    return ""


def _feasible_value(case: Case, attempt: Attempt) -> float | None:
    """Return the margin of a task, or the objective of a QCQP; None if the point of the QCQP is not feasible."""
    if isinstance(case.problem, MaxMargin):
        return attempt.margin
    return attempt.objective if attempt.point_status is PointStatus.FEASIBLE else None


def _sense(problem: QCQP | MaxMargin) -> float:
    return 1.0 if isinstance(problem, QCQP) and problem.sense == "minimize" else -1.0
