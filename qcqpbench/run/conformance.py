"""The suite's own test of a solver or a family, also for those of other people: problems with known answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qcqpbench.catalog.family import Family
from qcqpbench.catalog.registry import family as named_family
from qcqpbench.catalog.registry import problem
from qcqpbench.catalog.solver import Solver, SolverFacts
from qcqpbench.catalog.status import Availability, PointStatus, Scope, Termination
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .attempt import Attempt, random_start
from .isolation.protocol import GRACE_SECONDS
from .isolation.worker import Isolated, Worker, solver_facts

TIME_LIMIT = 20.0
SHORT_LIMIT = 2.0
# Until a solver that ignores its time limit is killed here.
PATIENCE_SECONDS = 5.0
STARTS = 8


@dataclass(frozen=True, eq=False)
class Case:
    """A problem with a known answer: its optimum, or that it has none."""

    name: str
    problem: QCQP | MaxMargin
    optimum: float | None = None
    answer: Literal["optimum", "infeasible", "unbounded"] = "optimum"


@dataclass(frozen=True)
class Check:
    """The outcome of one case; the message says what was wrong."""

    case: str
    passed: bool
    message: str = ""


def check_solver(solver: str | Solver) -> list[Check]:
    """Run a solver on everything it accepts, each time in a worker process, and judge every answer.

    It fails if it raises, crashes, prints, leaves files or processes behind, runs more threads than it was given,
    claims an objective that its point does not have, claims to have solved a problem with an infeasible point, proves
    a bound that a known point beats, misses a known optimum from all starts, or ignores its time limit.
    """
    facts = solver_facts(solver) if isinstance(solver, str) else solver.facts()
    if facts.availability is not Availability.AVAILABLE:
        return [Check("available", False, f"{facts.availability}: {facts.reason}")]
    with Worker() as worker:
        return [Check(name, not message, message) for name, message in _run(solver, facts, worker)]


def check_family(family: str | Family) -> list[Check]:
    """Generate a family's problem anew, and again from its spec: the same content each time."""
    family = named_family(family) if isinstance(family, str) else family
    first = family.generate()
    again = type(family)(**family.parameters).generate().id == first.id
    spelled = first.metadata.spec is not None and problem(first.metadata.spec).id == first.id
    return [
        Check("same parameters, same problem", again, "" if again else "a second generation differs"),
        Check("spec in the metadata", spelled, "" if spelled else "the spec does not make the same problem"),
    ]


def cases(facts: SolverFacts) -> list[Case]:
    """Return the problems with known answers that a solver accepts."""
    positive_only = facts.formulation == "min_norm"
    tasks = [case for case in _tasks() if not (positive_only and (case.optimum or 0.0) < 0)]
    return [*(_qcqps() if facts.takes_qcqps else []), *tasks]


def _qcqps() -> list[Case]:
    inf = np.inf
    disk = ((1.0, 0.0), (0.0, 1.0))
    x_plus_y = (None, (1.0, 1.0), 0.0)
    return [
        Case(
            "disk and half-plane: x + y on x² + y² ≤ 1, x ≥ 0",
            QCQP.from_matrices(
                x_plus_y, [(disk, None, -inf, 1.0), (None, (1.0, 0.0), 0.0, inf)], start=np.array([0.3, -0.2])
            ),
            optimum=-1.0,
        ),
        Case(
            "annulus: (x − ½)² + y² on 1 ≤ x² + y² ≤ 4",
            QCQP.from_matrices((disk, (-1.0, 0.0), 0.25), [(disk, None, 1.0, 4.0)], start=np.array([0.9, 0.8])),
            optimum=0.25,
        ),
        Case(
            "equality: x + y on x² + y² = 2",
            QCQP.from_matrices(x_plus_y, [(disk, None, 2.0, 2.0)], start=np.array([-0.9, -0.2])),
            optimum=-2.0,
        ),
        Case(
            "maximization: 1 + xy on x² + y² ≤ 2",
            QCQP.from_matrices(
                (((0.0, 1.0), (0.0, 0.0)), None, 1.0),
                [(disk, None, -inf, 2.0)],
                sense="maximize",
                start=np.array([1.0, 0.5]),
            ),
            optimum=2.0,
        ),
        Case(
            "bounds: x² + y² on x ≥ 1, −3 ≤ y ≤ −2",
            QCQP.from_matrices(
                (disk, None, 0.0), x_lower=[1.0, -3.0], x_upper=[inf, -2.0], start=np.array([2.0, -2.5])
            ),
            optimum=5.0,
        ),
        Case(
            "range: x on −1 ≤ x + y ≤ 1, 0 ≤ y ≤ 2",
            QCQP.from_matrices(
                (None, (1.0, 0.0), 0.0),
                [(None, (1.0, 1.0), -1.0, 1.0)],
                x_lower=[-inf, 0.0],
                x_upper=[inf, 2.0],
                start=np.array([0.0, 0.5]),
            ),
            optimum=-3.0,
        ),
        Case(
            "infeasible: x² + y² ≤ 1, x ≥ 2",
            QCQP.from_matrices(
                x_plus_y, [(disk, None, -inf, 1.0), (None, (1.0, 0.0), 2.0, inf)], start=np.array([0.3, 0.2])
            ),
            answer="infeasible",
        ),
        Case(
            "unbounded: x − y² on x ≥ 0",
            QCQP.from_matrices(
                (((0.0, 0.0), (0.0, -1.0)), (1.0, 0.0), 0.0),
                [(None, (1.0, 0.0), 0.0, inf)],
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
            # Optima by exhaustive search over the angles (tests/test_conformance.py), confirmed by SCIP.
            for spec, optimum in (
                ("m=2,p=3,seed=0", 0.60119816),
                ("m=2,p=3,seed=2", 0.32676949),
                ("m=2,n=3,p=2,seed=0", 0.36785651),
                ("m=2,p=8,seed=1", -0.21681104),
            )
        ),
    ]


def _run(solver: str | Solver, facts: SolverFacts, worker: Worker) -> Iterator[tuple[str, str]]:
    """Yield the name of each case and what is wrong with the solver's answer, judged with its own tolerance."""
    for case in cases(facts):
        many = isinstance(case.problem, MaxMargin) and facts.scope is Scope.LOCAL
        attempts: list[Attempt] = []
        complaint = ""
        while len(attempts) < (STARTS if many else 1) and not complaint:
            start = random_start(case.problem, len(attempts))
            isolated = worker.attempt(case.problem, solver, start, TIME_LIMIT, tolerance=facts.tolerance)
            attempts.append(isolated.attempt)
            complaint = _behaviour(facts, case, isolated)
        yield case.name, complaint or _answer(facts, case, attempts)
    task = problem("covariance_perceptron[m=40,load=2]")
    late = worker.attempt(task, solver, time_limit=SHORT_LIMIT, grace_seconds=PATIENCE_SECONDS)
    complaint = late.attempt.message if late.attempt.message.startswith("killed") else ""
    # By the CPU too: on a busy machine everybody is late by the clock.
    seconds = min(
        late.attempt.solve_seconds or 0.0, (late.attempt.cpu_seconds or 0.0) - (late.attempt.build_seconds or 0.0)
    )
    if not complaint and seconds > SHORT_LIMIT + GRACE_SECONDS:
        complaint = f"returned after {seconds:.2f} s, which would be killed after {SHORT_LIMIT + GRACE_SECONDS:g} s"
    if late.attempt.termination is Termination.TIME_LIMIT and not complaint and facts.scope is Scope.LOCAL:
        complaint = "" if late.attempt.point is not None else "returned no point at its time limit"
    yield f"time limit of {SHORT_LIMIT:g} s", complaint or _manners(late)


def _manners(isolated: Isolated) -> str:
    attempt = isolated.attempt
    if attempt.termination in (Termination.ERROR, Termination.CRASHED):
        return f"{attempt.termination}: {attempt.message}"
    if isolated.output:
        return f"printed {isolated.output[:80]!r}"
    if isolated.files:
        return f"left files behind: {', '.join(isolated.files)}"
    return "; ".join(isolated.notes)


def _behaviour(facts: SolverFacts, case: Case, isolated: Isolated) -> str:
    """What one attempt did wrong, whatever its quality."""
    attempt = isolated.attempt
    manners = _manners(isolated)
    if manners:
        return manners
    if attempt.point_status is PointStatus.INVALID:
        return PointStatus.INVALID.message
    if attempt.termination.claims_a_solution and attempt.point_status is not PointStatus.FEASIBLE:
        return f"says {attempt.termination}, but its point violates a constraint by {attempt.violation}"
    found = attempt.objective if attempt.objective is not None else attempt.margin
    claimed = attempt.claimed_objective
    if claimed is not None and found is not None and abs(claimed - found) > 1e-6 * max(1.0, abs(found)):
        return f"claims the objective {claimed}, its point has {found}"
    if case.optimum is not None and attempt.bound is not None:
        sense = _sense(case.problem)
        if sense * (attempt.bound - case.optimum) > facts.accuracy * max(1.0, abs(case.optimum)):
            return f"claims to have proved the bound {attempt.bound}, but {case.optimum} can be reached"
    return ""


def _answer(facts: SolverFacts, case: Case, attempts: list[Attempt]) -> str:
    """Whether the attempts found the answer."""
    first = attempts[0]
    if case.answer != "optimum":
        if first.termination.claims_a_solution:
            return f"says {first.termination}, but the problem is {case.answer}"
        if case.answer == "infeasible" and first.point_status is PointStatus.FEASIBLE:
            return "returned a feasible point of an infeasible problem"
        wanted = Termination.INFEASIBLE if case.answer == "infeasible" else Termination.UNBOUNDED
        if facts.scope is Scope.GLOBAL and first.termination is not wanted:
            return f"says {first.termination}, but the problem is {case.answer}"
        return ""
    assert case.optimum is not None
    if facts.scope is Scope.BOUND:
        return "" if first.bound is not None else f"gave no bound: {first.termination}, {first.message}"
    sense = _sense(case.problem)
    values = [
        value
        for attempt in attempts
        for value in [attempt.margin if isinstance(case.problem, MaxMargin) else attempt.objective]
        if value is not None and (attempt.point_status is PointStatus.FEASIBLE or isinstance(case.problem, MaxMargin))
    ]
    if not values:
        return f"found no feasible point: {first.termination}, {first.message}"
    best = sense * min(sense * value for value in values)
    allowed = facts.accuracy * max(1.0, abs(case.optimum))
    if sense * (best - case.optimum) > allowed:
        return f"the best of {len(attempts)} starts is {best}, the optimum is {case.optimum}"
    if sense * (case.optimum - best) > max(allowed, 10 * facts.tolerance):
        return f"found {best}, better than the optimum {case.optimum}: is the point what it claims to be?"
    if facts.scope is Scope.GLOBAL and first.termination is not Termination.OPTIMAL:
        return f"did not prove the optimum in {TIME_LIMIT:g} s: {first.termination}"
    return ""


def _sense(problem: QCQP | MaxMargin) -> float:
    return 1.0 if isinstance(problem, QCQP) and problem.sense == "minimize" else -1.0
