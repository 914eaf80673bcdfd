"""Verification: every number is computed from the problem and the point; nothing is taken from the solver."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.catalog.status import PointStatus
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.formulations import Formulation, formulation
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.qcqp import QCQP

from .proposal import Proposal

Array = NDArray[np.float64]

# Relative violation up to which a point is feasible, unless the suite sets another.
FEASIBILITY_TOLERANCE = 1e-6
# The quantities of a finding that are those of a task.
OF_TASK = ("margin", "kappa_bar", "overlap", "test_accuracy")


@dataclass(frozen=True)
class Finding:
    """The computed values of a point; None for quantities that the problem does not have, or without a valid point.

    objective            of a QCQP
    violation            of a QCQP: the largest violation of a constraint or bound
    relative_violation   the same, each divided by max(1, |bound|): rows of tiny coefficients want scaling beforehand
    margin, kappa_bar    of a task: κ of the unit rows, and κ/scale
    overlap              of a task: the largest |w_i·w_j|
    test_accuracy        of a task with held-out trials: the share of them that is classified correctly
    """

    point_status: PointStatus
    objective: float | None = None
    violation: float | None = None
    relative_violation: float | None = None
    margin: float | None = None
    kappa_bar: float | None = None
    overlap: float | None = None
    test_accuracy: float | None = None


def verify(problem: QCQP | MaxMargin, x: ArrayLike | None, tolerance: float = FEASIBILITY_TOLERANCE) -> Finding:
    """Evaluate a point. It is feasible if its relative violation is at most the tolerance."""
    if x is None:
        return Finding(PointStatus.NONE)
    try:
        point = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        return Finding(PointStatus.INVALID)
    return _verify_task(problem, point) if isinstance(problem, MaxMargin) else _verify_qcqp(problem, point, tolerance)


def _verify_task(task: MaxMargin, W: Array) -> Finding:
    if W.shape != (task.n, task.m):
        return Finding(PointStatus.INVALID)
    try:
        W = unit_rows(W)
    except QcqpbenchError:
        return Finding(PointStatus.INVALID)
    margin = float(task.margin(W))
    return Finding(
        point_status=PointStatus.FEASIBLE,
        margin=margin,
        kappa_bar=margin / task.scale,
        overlap=float(np.abs(task.overlaps(W)).max()),
        test_accuracy=task.test_accuracy(W),
    )


def _verify_qcqp(problem: QCQP, x: Array, tolerance: float) -> Finding:
    if x.shape != (problem.n_variables,) or not np.isfinite(x).all():
        return Finding(PointStatus.INVALID)
    violation, relative = problem.violation(x), problem.violation(x, relative=True)
    return Finding(
        point_status=PointStatus.FEASIBLE if relative <= tolerance else PointStatus.INFEASIBLE,
        objective=float(problem.objective(x)),
        violation=violation,
        relative_violation=relative,
    )


# Evaluating all points that a killed run has reported could take longer than the run.
_MAX_REPORTED_POINTS = 32


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The suite's findings about a proposal.

    finding            the point's margin, objective, violation, … as recomputed
    point, x, trace, multipliers   as in Attempt, those of a wrong shape left out
    bound              the claimed bound; for a task in a formulation, the bound on the margin that it implies
    gap                between the bound and the margin or objective, relative to the larger of them
    kappa_bar_theory, best_known, sense   facts about the problem
    """

    finding: Finding
    point: Array | None = None
    x: Array | None = None
    trace: tuple[tuple[float, Array], ...] = ()
    multipliers: Array | None = None
    bound: float | None = None
    gap: float | None = None
    kappa_bar_theory: float | None = None
    best_known: float | None = None
    sense: str | None = None


def evaluate(
    problem: MaxMargin | QCQP,
    formulation_name: str | None,
    proposal: Proposal,
    tolerance: float,
    encode: Callable[[Formulation, MaxMargin], QCQP] = lambda form, task: form.encode(task),
) -> Evaluation:
    """Evaluate the proposed point. It is feasible if its relative violation is at most the tolerance.

    Parameters
    ----------
    formulation_name
        The QCQP that the solver was given a task as; None if it was given the problem itself.
    encode
        Makes that QCQP, which is as large as the problem. It is called only if there is a point to evaluate.
    """
    form = formulation(formulation_name) if formulation_name and isinstance(problem, MaxMargin) else None
    with_points = proposal.x is not None or bool(proposal.use_reported and proposal.trace)
    seen = encode(form, problem) if form and with_points and isinstance(problem, MaxMargin) else problem
    x = _best_reported(seen, proposal, tolerance) if proposal.use_reported else proposal.x
    finding, encoded, bound = verify(seen, x, tolerance), None, finite(proposal.bound)
    point = x if finding.point_status in (PointStatus.FEASIBLE, PointStatus.INFEASIBLE) else None
    if form is not None and isinstance(problem, MaxMargin):
        bound = None if bound is None else finite(form.margin(bound))
        if point is not None:
            finding, point, encoded = _decode(problem, form, point, finding)
    theory, best_known = problem.metadata.notes.get("kappa_bar_theory"), problem.metadata.best_known
    return Evaluation(
        finding=finding,
        point=point,
        x=encoded,
        trace=_decode_trace(problem, form, proposal.trace),
        multipliers=_multipliers(problem, proposal),
        bound=bound,
        gap=relative_gap(bound, finding.objective if isinstance(problem, QCQP) else finding.margin),
        kappa_bar_theory=None if theory is None else float(theory),
        best_known=None if best_known is None else finite(best_known.value),
        sense=None if isinstance(problem, MaxMargin) else problem.sense,
    )


def _decode(
    task: MaxMargin, form: Formulation, x: Array, finding: Finding
) -> tuple[Finding, Array | None, Array | None]:
    """Return the finding about x with that about W, the W that x encodes, and x; no points if W has no direction."""
    try:
        W = form.decode(task, x)
    except QcqpbenchError:
        return Finding(PointStatus.INVALID), None, None
    of_task = verify(task, W)
    return replace(finding, **{name: getattr(of_task, name) for name in OF_TASK}), W, x


def _decode_trace(
    problem: MaxMargin | QCQP, form: Formulation | None, trace: Sequence[tuple[float, Array]]
) -> tuple[tuple[float, Array], ...]:
    """Return the points of a trace in terms of the problem; those of a wrong shape are left out."""
    if form is not None and isinstance(problem, MaxMargin):
        return tuple((at, form.decode(problem, x)) for at, x in trace if _has_directions(problem, x))
    shape = (problem.n, problem.m) if isinstance(problem, MaxMargin) else (problem.n_variables,)
    return tuple((at, x) for at, x in trace if x.shape == shape)


def _multipliers(problem: MaxMargin | QCQP, proposal: Proposal) -> Array | None:
    """Return the multipliers of a proposal if they have the shape of a task's labels."""
    multipliers = proposal.multipliers
    if multipliers is None or not isinstance(problem, MaxMargin) or multipliers.shape != problem.labels.shape:
        return None
    return multipliers


def finite(value: float | None) -> float | None:
    """Return the value, or None if it is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def relative_gap(bound: float | None, value: float | None) -> float | None:
    """Return the distance between a bound and a value, relative to the larger of them; None if one is missing."""
    if bound is None or value is None:
        return None
    return abs(bound - value) / max(abs(bound), abs(value), 1e-300)


def _best_reported(seen: MaxMargin | QCQP, proposal: Proposal, tolerance: float) -> Array | None:
    """Return the best of the last reported points."""
    points: Sequence[Array] = [x for _, x in proposal.trace[-_MAX_REPORTED_POINTS:]]
    return max(points, key=lambda x: _rank(seen, x, tolerance), default=None)


def _rank(seen: MaxMargin | QCQP, x: Array, tolerance: float) -> tuple[float, float]:
    """Return a key that sorts points by their violation beyond the tolerance, then by their margin or objective."""
    finding = verify(seen, x, tolerance)
    if finding.point_status is PointStatus.INVALID:
        return -math.inf, 0.0
    if isinstance(seen, MaxMargin):
        return 0.0, finding.margin or 0.0
    value = finding.objective or 0.0
    excess = max(0.0, (finding.relative_violation or 0.0) - tolerance)
    return -excess, value if seen.sense == "maximize" else -value


def _has_directions(task: MaxMargin, x: Array) -> bool:
    """Return whether x begins with the values of a W without zero rows."""
    if x.ndim != 1 or x.size < task.n * task.m:
        return False
    W = x[: task.n * task.m].reshape(task.n, task.m)
    return bool(np.isfinite(W).all() and (W != 0).any(axis=1).all())
