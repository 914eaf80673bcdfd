"""Every stored point judged again: the problem made anew from its spec, the findings compared bit for bit.

No solver is imported, and families of other packages make their problems in processes of their own.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from qcqpbench.catalog.status import PointStatus
from qcqpbench.errors import QcqpbenchError, describe_error
from qcqpbench.problem.formulations import formulation
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.isolation.worker import problem_apart
from qcqpbench.run.verify import OF_TASK, verify

from .store import Array, Row, Store

_OF_QCQP = ("objective", "violation", "relative_violation")
_WITHOUT_X = "objective, violation and point_status are of x, which the file does not have (files of schema 1 did not)"
_WITHOUT_A_POINT = (str(PointStatus.NONE), str(PointStatus.INVALID))


@dataclass(frozen=True)
class Difference:
    """What a row says and what was found instead, of the quantity `name`; row is one of those that say so."""

    row: Row
    name: str
    stored: Any
    found: Any


@dataclass(frozen=True)
class Unchecked:
    """Rows that could not be checked, and why."""

    rows: int
    reason: str


@dataclass(frozen=True)
class Checked:
    """The rows of one problem, judged again.

    problem       a spec or a file
    rows          how many there are
    points        how many of them have a point, which was judged
    differences   what differs, empty if all is as stored
    unchecked     rows that could not be checked
    """

    problem: str
    rows: int
    points: int
    differences: tuple[Difference, ...]
    unchecked: tuple[Unchecked, ...] = ()


def reverify(store: Store) -> Iterator[Checked]:
    """Check the file, then judge the points of all rows again, problem by problem, each problem being made once.

    margin, kappa_bar, overlap and test_accuracy are compared for tasks; objective, violation and point_status of the
    QCQP that the solver saw. Rows of a formulation without x, as in files of schema 1, could not be checked in full.
    Feasibility is judged by the row's own tolerance. A value in a row without a point is a difference.

    Raises
    ------
    QcqpbenchError
        If SQLite finds the file inconsistent, or a row cannot be read.
    """
    store.check()
    for text, group in groupby(store.rows(all_rows=True, order="problem"), key=lambda row: str(row["problem"])):
        rows = list(group)
        try:
            problem = problem_apart(text)
        except (Exception, SystemExit) as error:
            # A file that is not here, a family that is not installed or fails.
            reason = str(error) if isinstance(error, QcqpbenchError) else describe_error(error)
            yield Checked(text, len(rows), 0, (), (Unchecked(len(rows), reason),))
            continue
        yield _recheck(store, text, problem, rows)


def _recheck(store: Store, text: str, problem: MaxMargin | QCQP, rows: list[Row]) -> Checked:
    # The content may have changed between two invocations, if it is a file's.
    strange = {row["problem_id"]: row for row in rows if row["problem_id"] != problem.id}
    differences = [Difference(row, "problem_id", id, problem.id) for id, row in strange.items()]
    unchecked: Counter[str] = Counter()
    points = 0
    # One formulation after the other: each is as large as the problem.
    ordered = sorted(rows, key=lambda row: row["formulation"] or "")
    for form, same in groupby(ordered, key=lambda row: row["formulation"]):
        try:
            seen = formulation(form).encode(problem) if form and isinstance(problem, MaxMargin) else problem
        except QcqpbenchError as error:
            unchecked[str(error)] += len(list(same))
            continue
        for row in same:
            try:
                point, x = _arrays(store, row["id"])
            except QcqpbenchError as error:
                unchecked[str(error)] += 1
                continue
            if point is None:
                differences += _values_without_a_point(row)
            elif row["problem_id"] == problem.id:
                points += 1
                findings = _verifier(problem, seen, row, point, x)
                differences += [
                    Difference(row, name, row[name], value)
                    for name, value in findings.items()
                    if not _agrees(row[name], value)
                ]
                if row["formulation"] is not None and x is None:
                    unchecked[_WITHOUT_X] += 1
    reasons = tuple(Unchecked(count, reason) for reason, count in unchecked.items())
    return Checked(text, len(rows), points, tuple(differences), reasons)


def _arrays(store: Store, run: int) -> tuple[Array | None, Array | None]:
    """Return the point of a row and x; everything else that is kept of it is read too, and must be readable."""
    store.multipliers(run)
    store.trace(run)
    store.output(run)
    return store.point(run), store.x(run)


def _values_without_a_point(row: Row) -> list[Difference]:
    found = [Difference(row, name, row[name], None) for name in (*OF_TASK, *_OF_QCQP) if row[name] is not None]
    if row["point_status"] not in _WITHOUT_A_POINT:
        found.append(Difference(row, "point_status", row["point_status"], str(PointStatus.NONE)))
    return found


def _verifier(
    problem: MaxMargin | QCQP, seen: MaxMargin | QCQP, row: Row, point: Array, x: Array | None
) -> dict[str, Any]:
    tolerance = row["tolerance"]
    finding = verify(problem, point, tolerance)
    names = OF_TASK if isinstance(problem, MaxMargin) else _OF_QCQP
    values = {name: getattr(finding, name) for name in names}
    if x is not None:
        finding = verify(seen, x, tolerance)
        values |= {name: getattr(finding, name) for name in _OF_QCQP}
    if x is not None or row["formulation"] is None:
        values["point_status"] = str(finding.point_status)
    return values


def _agrees(stored: Any, found: Any) -> bool:
    """Return whether a stored value is the one found; NaN is stored as None, and so was infinity before schema 6."""
    if stored is None and isinstance(found, float):
        return not math.isfinite(found)
    return bool(stored == found)
