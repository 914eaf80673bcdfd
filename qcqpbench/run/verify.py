"""Verification: recompute objective, violation and margin from the problem and the point alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.catalog.status import PointStatus
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.formulations import Formulation, formulation
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.metadata import relative_gap
from qcqpbench.problem.qcqp import QCQP

from .proposal import Proposal

Array = NDArray[np.float64]

# Relative violation up to which a point is feasible, unless the suite sets another.
FEASIBILITY_TOLERANCE = 1e-6
# Fields of a `Finding` that are defined for tasks, and those that are defined for QCQPs.
OF_TASK = ("margin", "kappa_bar", "overlap", "test_accuracy")
OF_QCQP = ("objective", "violation", "relative_violation")


@dataclass(frozen=True)
class Finding:
    """Values computed at a point. A quantity is None if the problem does not define it or the point is not valid.

    Attributes
    ----------
    point_status
        Whether there is a point, and whether it is valid and feasible, see `PointStatus`.
    objective : unit of the objective
        The objective of a QCQP, or of the QCQP that the solver was given in place of a task.
    violation : unit of the constraint
        The largest violation of a constraint or bound of that QCQP.
    relative_violation : dimensionless
        The largest of its violations, each divided by max(1, abs(bound)). Rows with tiny coefficients should be scaled
        beforehand.
    margin : unit of the patterns
        The margin κ of a task, with the rows of W scaled to unit length.
    kappa_bar : dimensionless
        The rescaled margin κ̄: κ divided by the standard deviation of the patterns' random entries.
    overlap : dimensionless
        The largest absolute overlap w_i·w_j of two unit rows of W.
    test_accuracy : fraction
        The fraction of held-out trials that are classified correctly, if the task has any.
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
    """Evaluate the point `x` of a QCQP, shape (n_variables,), or of a task, shape (n, m), and return the finding.

    A point of a QCQP is feasible if its relative violation is at most `tolerance`; a valid point of a task always is.
    """
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
    """Result of evaluating a proposal.

    Attributes
    ----------
    finding
        The values recomputed at the point.
    point, trace, multipliers, offsets, tree
        As in `Attempt`; arrays of a wrong shape are left out.
    x
        The point of a formulation from which `point` was decoded.
    bound
        The claimed bound; for a task in a formulation, the bound on the margin that it implies.
    gap
        The distance between the bound and the margin or objective, relative to the larger absolute value.
    kappa_bar_theory, kappa_bar_rs, best_known, sense
        Facts about the problem, as in `Attempt`.
    """

    finding: Finding
    point: Array | None = None
    x: Array | None = None
    trace: tuple[tuple[float, Array], ...] = ()
    multipliers: Array | None = None
    offsets: Array | None = None
    tree: Array | None = None
    bound: float | None = None
    gap: float | None = None
    kappa_bar_theory: float | None = None
    kappa_bar_rs: float | None = None
    best_known: float | None = None
    sense: str | None = None


def evaluate(
    problem: MaxMargin | QCQP,
    formulation_name: str | None,
    proposal: Proposal,
    tolerance: float,
    encode: Callable[[Formulation, MaxMargin], QCQP] = lambda form, task: form.encode(task),
) -> Evaluation:
    """Evaluate a proposal on a problem.

    Parameters
    ----------
    formulation_name
        Name of the formulation in which the solver was given a task; None if it was given the problem itself.
    encode
        Function that returns the QCQP of a formulation and a task; called only if there is a point to evaluate.
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
    theory, best_known = problem.metadata.theory, problem.metadata.best_known
    return Evaluation(
        finding=finding,
        point=point,
        x=encoded,
        trace=_decode_trace(problem, form, proposal.trace),
        multipliers=_of_shape(proposal.multipliers, problem.labels.shape) if isinstance(problem, MaxMargin) else None,
        offsets=_of_shape(proposal.offsets, (problem.n,)) if isinstance(problem, MaxMargin) else None,
        tree=proposal.tree if isinstance(problem, MaxMargin) else None,
        bound=bound,
        gap=optimality_gap(bound, finding.objective if isinstance(problem, QCQP) else finding.margin),
        kappa_bar_theory=theory.kappa_bar,
        kappa_bar_rs=theory.kappa_bar_rs,
        best_known=None if best_known is None else finite(best_known.value),
        sense=None if isinstance(problem, MaxMargin) else problem.sense,
    )


def _decode(
    task: MaxMargin, form: Formulation, x: Array, finding: Finding
) -> tuple[Finding, Array | None, Array | None]:
    """Decode `x` to W; return `finding` with the task's values, W and `x`, or an INVALID finding and no points."""
    try:
        W = form.decode(task, x)
    except QcqpbenchError:
        return Finding(PointStatus.INVALID), None, None
    of_task = verify(task, W)
    return replace(finding, **{name: getattr(of_task, name) for name in OF_TASK}), W, x


def _decode_trace(
    problem: MaxMargin | QCQP, form: Formulation | None, trace: Sequence[tuple[float, Array]]
) -> tuple[tuple[float, Array], ...]:
    """Return a trace with its points decoded from the formulation, if any; points of a wrong shape are left out."""
    if form is not None and isinstance(problem, MaxMargin):
        return tuple((at, form.decode(problem, x)) for at, x in trace if _has_directions(problem, x))
    shape = (problem.n, problem.m) if isinstance(problem, MaxMargin) else (problem.n_variables,)
    return tuple((at, x) for at, x in trace if x.shape == shape)


def _of_shape(array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """Return `array`, or None if it has another shape."""
    return None if array is None or array.shape != shape else array


def finite(value: float | None) -> float | None:
    """Return `value`, or None if it is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def optimality_gap(bound: float | None, value: float | None) -> float | None:
    """Return the absolute value of the relative gap between `bound` and `value`; None if one is None."""
    return None if bound is None or value is None else abs(relative_gap(value, bound))


def _best_reported(seen: MaxMargin | QCQP, proposal: Proposal, tolerance: float) -> Array | None:
    """Return the best, by `_rank`, of the last `_MAX_REPORTED_POINTS` reported points; None if there are none."""
    points: Sequence[Array] = [x for _, x in proposal.trace[-_MAX_REPORTED_POINTS:]]
    return max(points, key=lambda x: _rank(seen, x, tolerance), default=None)


def _rank(seen: MaxMargin | QCQP, x: Array, tolerance: float) -> tuple[float, float]:
    """Return a sort key, larger for better points: by violation beyond `tolerance`, then by margin or objective."""
    finding = verify(seen, x, tolerance)
    if finding.point_status is PointStatus.INVALID:
        return -math.inf, 0.0
    if isinstance(seen, MaxMargin):
        return 0.0, finding.margin or 0.0
    value = finding.objective or 0.0
    excess = max(0.0, (finding.relative_violation or 0.0) - tolerance)
    return -excess, value if seen.sense == "maximize" else -value


def _has_directions(task: MaxMargin, x: Array) -> bool:
    """Return whether the first n·m values of `x` form a finite matrix W without zero rows."""
    if x.ndim != 1 or x.size < task.n * task.m:
        return False
    W = x[: task.n * task.m].reshape(task.n, task.m)
    return bool(np.isfinite(W).all() and (W != 0).any(axis=1).all())
