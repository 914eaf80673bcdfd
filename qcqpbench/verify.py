"""What the suite finds: every number computed again from the problem and the point, nothing taken from the solver."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import QcqpbenchError
from .maxmargin import MaxMargin, unit_rows
from .qcqp import QCQP
from .status import PointStatus

Array = NDArray[np.float64]

# Relative violation up to which a point is feasible, unless the suite sets another.
FEASIBILITY_TOLERANCE = 1e-6
# What a finding says of a task.
OF_TASK = ("margin", "kappa_bar", "overlap", "test_accuracy")


@dataclass(frozen=True)
class Finding:
    """What a point is worth; None where it has no meaning or there is no valid point.

    objective            of a QCQP
    violation            of a QCQP: the largest amount by which a constraint or bound is missed
    relative_violation   the same, each divided by max(1, |bound|): rows of tiny coefficients want scaling beforehand
    margin, kappa_bar    of a task: κ of the unit rows, and κ/scale
    overlap              of a task: the largest |w_i·w_j|
    test_accuracy        of a task with held-out trials: the share of them that is classified right
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
    """Judge a point; it is feasible if its relative violation is at most the tolerance."""
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
