"""Every stored point judged again: the problem made anew from its spec, the findings compared bit for bit."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from .errors import QcqpbenchError
from .formulations import formulation
from .job import load_problem
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .registry import solver
from .store import Array, Row, Store
from .verify import OF_TASK, verify

_OF_QCQP = ("objective", "violation", "relative_violation")


@dataclass(frozen=True)
class Difference:
    """What a row says and what was found instead, of the quantity `name`; row is one of those that say so."""

    row: Row
    name: str
    stored: Any
    found: Any


@dataclass(frozen=True)
class Checked:
    """The rows of one problem, judged again.

    problem       a spec or a file
    rows          how many there are
    points        how many of them have a point, which was judged
    differences   what differs, empty if all is as stored
    """

    problem: str
    rows: int
    points: int
    differences: tuple[Difference, ...]


def recheck(store: Store) -> Iterator[Checked]:
    """Judge the points of all rows again, problem by problem, each problem being made once.

    margin, kappa_bar, overlap and test_accuracy are compared for tasks; objective, violation and point_status of the
    QCQP that the solver saw, but for rows of a formulation from files of schema 1, which did not keep x.
    """
    for text, group in groupby(store.rows(all_rows=True, order="problem"), key=lambda row: str(row["problem"])):
        rows = list(group)
        try:
            problem = load_problem(text)
        except QcqpbenchError as error:
            yield Checked(text, len(rows), 0, (Difference(rows[0], "problem", text, str(error)),))
            continue
        # The content may have changed between two invocations, if it is a file's.
        strange = {row["problem_id"]: row for row in rows if row["problem_id"] != problem.id}
        differences = [Difference(row, "problem_id", id, problem.id) for id, row in strange.items()]
        points = 0
        # One formulation after the other: each is as large as the problem.
        rows.sort(key=lambda row: row["formulation"] or "")
        for form, same in groupby(rows, key=lambda row: row["formulation"]):
            seen = formulation(form).encode(problem) if form and isinstance(problem, MaxMargin) else problem
            for row in same:
                point = store.point(row["id"])
                if point is not None and row["problem_id"] == problem.id:
                    points += 1
                    found = _judge(problem, seen, row, point, store.x(row["id"]))
                    differences += [
                        Difference(row, name, row[name], value) for name, value in found.items() if row[name] != value
                    ]
        yield Checked(text, len(rows), points, tuple(differences))


def _judge(
    problem: MaxMargin | QCQP, seen: MaxMargin | QCQP, row: Row, point: Array, x: Array | None
) -> dict[str, Any]:
    try:
        tolerance = {"tolerance": solver(row["solver"]).tolerance}
    except QcqpbenchError:
        # A solver of somebody else's that is not installed here: nobody knows its tolerance.
        tolerance = {}
    found = verify(problem, point, **tolerance)
    names = OF_TASK if isinstance(problem, MaxMargin) else _OF_QCQP
    values = {name: getattr(found, name) for name in names}
    if x is not None:
        found = verify(seen, x, **tolerance)
        values |= {name: getattr(found, name) for name in _OF_QCQP}
    if tolerance and (x is not None or row["formulation"] is None):
        values["point_status"] = found.point_status.value
    return values
