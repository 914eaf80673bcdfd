"""Re-evaluation of a results file: rebuild each problem from its spec and compare the stored rows with it.

No solver is imported. Problem families of other packages build their problems in separate processes.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from qcqpbench.catalog.status import PointStatus, Scope
from qcqpbench.errors import QcqpbenchError, describe_error
from qcqpbench.problem.formulations import formulation
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import TheoryPrediction
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.isolation.description import problem_apart
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE, OF_QCQP, OF_TASK, optimality_gap, verify

from ._encoding import plain
from .row import Row
from .schema import MIGRATIONS
from .store import Array, Store

_WITHOUT_A_POINT = (PointStatus.NONE, PointStatus.INVALID)
# Start of the year 10000, in seconds since 1970.
_END_OF_TIME = 253_402_300_800.0
_X_IS_MISSING = "objective, violation and point_status are computed from x, which files of schema 1 do not store"
_BEST_KNOWN_IS_MISSING = "best_known: this installation has no best known value of the problem"
# Words of the first schema. Other columns were added later, and are NULL in rows of older files.
_FIRST_SCHEMA = frozenset(re.findall(r"\w+", " ".join(MIGRATIONS[0])))
# Absolute and relative tolerances. Replica symmetry is computed with SciPy, whose last digits depend on its version.
# Full RSB is interpolated in a table that later versions may refine: its tolerance covers the error bars of κ̄,
# which are below 2e-5 for κ̄ ≥ −0.6 and below 3e-5 max(1, |κ̄|) everywhere.
_THEORY_TOLERANCES = {"kappa_bar_rs": 1e-9, "kappa_bar_theory": 3e-5}
# Columns that entered keys before schema 6. Newer keys leave out columns with default values.
_OLD_KEY_COLUMNS = {
    **{name: name for name in ("problem_id", "solver", "version", "formulation", "start", "time_limit", "threads")},
    "seed": "start_seed",
    "memory_limit": "memory_limit_bytes",
}


@dataclass(frozen=True)
class Difference:
    """A stored value that differs from the recomputed one, both as the file holds them: statuses as text.

    Attributes
    ----------
    row
        The row with the stored value; if several rows share the value, one of them.
    name
        The name of the column.
    stored, recomputed
        The value in the file and the value computed now; None if the stored value is impossible and the value cannot be
        recomputed.
    """

    row: Row
    name: str
    stored: str | float | None
    recomputed: str | float | None

    @classmethod
    def of(cls, row: Row, name: str, recomputed: Any) -> "Difference":
        """Return the difference between the column `name` of `row` and its recomputed value."""
        return cls(row, name, plain(getattr(row, name)), plain(recomputed))


@dataclass(frozen=True)
class Unchecked:
    """Number of rows that could not be fully checked, and the reason."""

    rows: int
    reason: str


@dataclass(frozen=True)
class Checked:
    """Result of re-evaluating the rows of one problem.

    Attributes
    ----------
    problem
        The spec of the problem, or the path of its file.
    rows
        The number of rows.
    points
        The number of points that were re-evaluated.
    differences
        The stored values that differ from the recomputed ones.
    unchecked
        The numbers of rows that could not be fully checked, by reason.
    """

    problem: str
    rows: int
    points: int
    differences: tuple[Difference, ...]
    unchecked: tuple[Unchecked, ...] = ()


def reverify(store: Store) -> Iterator[Checked]:
    """Check the integrity of a results file, then re-evaluate its rows and yield one result per problem.

    Quantities recomputed at a stored point must agree exactly: margin, kappa_bar, overlap and test_accuracy of a task;
    objective, violation, relative_violation and point_status of the QCQP that the solver was given, with the tolerance
    of the row; and the gap between value and bound. Of these, columns that the first schema lacks are not compared if
    they are None. In a row without a point all these quantities must be None. The columns sense and best_known are
    compared with the problem if they are not None, kappa_bar_theory and kappa_bar_rs also if they are None and the row
    has a point, and the key is compared with the columns it is computed from. A stored best_known that is worse than
    the current one is not a difference, because lists of best known values improve over time; nor is a change of
    kappa_bar_theory within the error bar of the table of full RSB.

    Impossible values are differences: a scope that is not a `Scope`, a negative peak_memory_bytes, and a start time
    `begun` before 1970 or after the year 9999. Claims of the solver (termination, bound, times, message) cannot be
    checked.

    Parameters
    ----------
    store
        The open results file.

    Yields
    ------
    Checked
        The result for the rows of one problem.

    Raises
    ------
    QcqpbenchError
        If SQLite finds the file inconsistent, or a row cannot be read.
    """
    store.check()
    for name, group in groupby(store.rows(all_rows=True, order="problem"), key=lambda row: row.problem):
        rows = list(group)
        differences = [difference for row in rows for difference in (*_check_key(row), *_impossible_values(row))]
        try:
            problem = problem_apart(name)
        except (Exception, SystemExit) as error:
            # A file that is not here, a family that is not installed or fails.
            reason = str(error) if isinstance(error, QcqpbenchError) else describe_error(error)
            yield Checked(name, len(rows), 0, tuple(differences), (Unchecked(len(rows), reason),))
            continue
        recheck = _Recheck(store, problem)
        recheck.check(rows)
        unchecked = tuple(Unchecked(count, reason) for reason, count in recheck.unchecked.items())
        yield Checked(name, len(rows), recheck.points, (*differences, *recheck.differences), unchecked)


def _check_key(row: Row) -> list[Difference]:
    """Compare the key of a row with the key computed from its columns, also in the form used before schema 6."""
    try:
        key = row.spec.key
    except QcqpbenchError as error:
        return [Difference.of(row, "key", str(error))]
    old_text = json.dumps({name: getattr(row, column) for name, column in _OLD_KEY_COLUMNS.items()}, sort_keys=True)
    is_old = row.tolerance == FEASIBILITY_TOLERANCE and row.key == hashlib.sha256(old_text.encode()).hexdigest()
    return [] if row.key == key or is_old else [Difference.of(row, "key", key)]


def _impossible_values(row: Row) -> list[Difference]:
    """Return a difference for each value of `row` that cannot be recomputed and that no run can have."""
    memory = row.peak_memory_bytes
    is_possible = {
        "begun": 0 <= row.begun < _END_OF_TIME,
        "peak_memory_bytes": memory is None or memory >= 0,
        "scope": row.scope is None or row.scope in tuple(Scope),
    }
    return [Difference.of(row, name, None) for name, possible in is_possible.items() if not possible]


class _Recheck:
    """Comparison of stored rows with the problem they belong to."""

    def __init__(self, store: Store, problem: MaxMargin | QCQP) -> None:
        self.store = store
        self.problem = problem
        self.points = 0
        self.differences: list[Difference] = []
        self.unchecked: Counter[str] = Counter()

    def check(self, rows: Sequence[Row]) -> None:
        """Re-evaluate `rows`, and collect their differences and the reasons why rows could not be checked."""
        # The content of a file may have changed between two invocations.
        other_ids = {row.problem_id: row for row in rows if row.problem_id != self.problem.id}
        self.differences += [Difference.of(row, "problem_id", self.problem.id) for row in other_ids.values()]
        # One formulation after the other: each is as large as the problem.
        ordered = sorted(rows, key=lambda row: row.formulation or "")
        for form, group in groupby(ordered, key=lambda row: row.formulation):
            try:
                seen = self._as_seen(form)
            except QcqpbenchError as error:
                self.unchecked[str(error)] += len(list(group))
                continue
            for row in group:
                self._check_row(row, seen)

    def _as_seen(self, form: str | None) -> MaxMargin | QCQP:
        """Return the problem in formulation `form`, or unchanged if `form` is None or the problem is a QCQP."""
        return formulation(form).encode(self.problem) if form and isinstance(self.problem, MaxMargin) else self.problem

    def _check_row(self, row: Row, seen: MaxMargin | QCQP) -> None:
        try:
            point, x = _arrays(self.store, row.id)
        except QcqpbenchError as error:
            self.unchecked[str(error)] += 1
            return
        if row.problem_id == self.problem.id:
            self._check_facts(row, point is not None)
        if point is None:
            self.differences += _values_without_a_point(row)
        elif row.problem_id == self.problem.id:
            self.points += 1
            self._check_point(row, seen, point, x)

    def _check_facts(self, row: Row, has_point: bool) -> None:
        """Compare sense, best_known and the predictions of theory in `row` with the problem.

        None is not compared, because old versions did not store all of them, and a run that failed has none. All
        versions stored predictions in rows with a point.
        """
        self.differences += _check_theory(row, self.problem.metadata.theory, has_point)
        sense = self.problem.sense if isinstance(self.problem, QCQP) else None
        if row.sense not in (None, sense):
            self.differences.append(Difference.of(row, "sense", sense))
        if (stored := row.best_known) is not None:
            best = self.problem.metadata.best_known
            if best is None:
                self.unchecked[_BEST_KNOWN_IS_MISSING] += 1
            elif stored < best.value if sense == "minimize" else stored > best.value:
                self.differences.append(Difference.of(row, "best_known", best.value))

    def _check_point(self, row: Row, seen: MaxMargin | QCQP, point: Array, x: Array | None) -> None:
        values = self._evaluate(row, seen, point, x)
        value_name = "margin" if isinstance(self.problem, MaxMargin) else "objective"
        if _agrees(getattr(row, value_name), values[value_name]):
            values["gap"] = optimality_gap(row.bound, getattr(row, value_name))
        self.differences += [
            Difference.of(row, name, value)
            for name, value in values.items()
            if not (_agrees(getattr(row, name), value) or _may_be_missing(row, name))
        ]
        if row.formulation is not None and x is None:
            self.unchecked[_X_IS_MISSING] += 1

    def _evaluate(self, row: Row, seen: MaxMargin | QCQP, point: Array, x: Array | None) -> dict[str, Any]:
        """Return the quantities recomputed at the point of `row`, by column name."""
        finding = verify(self.problem, point, row.tolerance)
        names = OF_TASK if isinstance(self.problem, MaxMargin) else OF_QCQP
        values = {name: getattr(finding, name) for name in names}
        if x is not None:
            finding = verify(seen, x, row.tolerance)
            values |= {name: getattr(finding, name) for name in OF_QCQP}
        if x is not None or row.formulation is None:
            values["point_status"] = finding.point_status
        return values


def _arrays(store: Store, run: int) -> tuple[Array | None, Array | None]:
    """Return both points of row `run`, after checking that its other arrays and its output can be read."""
    store.multipliers(run)
    store.offsets(run)
    store.tree(run)
    store.trace(run)
    store.output(run)
    return store.point(run), store.formulation_point(run)


def _values_without_a_point(row: Row) -> list[Difference]:
    names = [name for name in (*OF_TASK, *OF_QCQP, "gap") if getattr(row, name) is not None]
    differences = [Difference.of(row, name, None) for name in names]
    if row.point_status not in _WITHOUT_A_POINT:
        differences.append(Difference.of(row, "point_status", PointStatus.NONE))
    return differences


def _may_be_missing(row: Row, name: str) -> bool:
    """Return whether a column is None and the version that wrote the row may not have had it."""
    return getattr(row, name) is None and name not in _FIRST_SCHEMA


def _check_theory(row: Row, theory: TheoryPrediction, has_point: bool) -> list[Difference]:
    """Compare the predictions in `row` with those of the problem."""
    # Before schema 8, rows and problem files stored the replica-symmetric prediction as kappa_bar_theory.
    is_old = row.kappa_bar_rs is None and theory.kappa_bar is None
    if is_old and _is_close(row.kappa_bar_theory, theory.kappa_bar_rs, "kappa_bar_rs"):
        return []
    predictions = {"kappa_bar_theory": theory.kappa_bar, "kappa_bar_rs": theory.kappa_bar_rs}
    return [
        Difference.of(row, name, value)
        for name, value in predictions.items()
        if (has_point or getattr(row, name) is not None) and not _is_close(getattr(row, name), value, name)
    ]


def _is_close(stored: float | None, theory: float | None, name: str) -> bool:
    """Return whether two values of column `name` agree to its tolerance, or are both None."""
    if stored is None or theory is None:
        return stored is theory
    return math.isclose(stored, theory, rel_tol=_THEORY_TOLERANCES[name], abs_tol=_THEORY_TOLERANCES[name])


def _agrees(stored: Any, recomputed: Any) -> bool:
    """Return whether `stored` equals `recomputed`. NaN is stored as None, and before schema 6 so was infinity."""
    if stored is None and isinstance(recomputed, float):
        return not math.isfinite(recomputed)
    return bool(stored == recomputed)
