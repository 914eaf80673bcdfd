"""Re-evaluation of results files by `verify`."""

import csv
import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.problem.metadata import BestKnown
from qcqpbench.results._encoding import pack, unpack
from qcqpbench.results.reverify import _THEORY_TOLERANCES, reverify
from qcqpbench.results.row import Row
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, solve
from qcqpbench.run.suite import Settings, Suite
from qcqpbench.run.suite_file import load_suite
from qcqpbench.run.verify import verify
from qcqpbench.theory.lookup import table
from tests.support.old_files import make_older
from tests.support.results_files import (
    CONVEX,
    ROOT,
    TASK,
    add_outcomes,
    add_runs,
    call,
    change,
    outcome,
    read_rows,
    reply,
    rewrite_keys,
)

# --- findings at points ---


@pytest.mark.parametrize(
    ("name", "value"),
    [("margin", 0.5), ("kappa_bar", 40.0), ("objective", 1.0), ("violation", 0.0), ("relative_violation", 0.0),
     ("overlap", 0.1), ("test_accuracy", 1.0), ("gap", 0.0), ("point_status", "feasible"),
     ("point_status", "infeasible")],
)  # fmt: skip
def test_a_value_without_a_point_differs(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, value: Any
) -> None:
    nothing = ", ".join(
        f"{column} = NULL"
        for column in (
            "margin",
            "kappa_bar",
            "objective",
            "violation",
            "relative_violation",
            "overlap",
            "test_accuracy",
        )
    )
    change(results, f"UPDATE run SET {nothing}, point_status = 'none' WHERE id = 1")
    change(results, "UPDATE payload SET point = NULL, formulation_point = NULL WHERE run = 1")
    assert call(capsys, "verify", results) == (0, [f"{results}: 3 rows, 2 points re-evaluated: all as stored"])
    change(results, f"UPDATE run SET {name} = ? WHERE id = 1", values=(value,))
    code, (line, last) = call(capsys, "verify", results)
    assert code == 1 and line.startswith(f"run 1: {name} is ") and f", stored is {value!r} (" in line
    assert last == f"{results}: 3 rows, 2 points re-evaluated: 1 differ"


def test_a_row_without_x_is_not_checked_in_full(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that removing x does not hide a false objective and violation."""
    change(results, "UPDATE payload SET formulation_point = NULL WHERE run = 2")
    change(results, "UPDATE run SET violation = 0 WHERE id = 2")
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("could not be checked: 1 row: objective, violation and point_status")


def test_feasibility_is_re_evaluated_with_the_tolerance_of_the_row(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = unpack(pack(np.full(5, 1e-3)) or b"")
    finding = verify(qcqpbench.problem(CONVEX), x, 1e9)
    assert finding.relative_violation is not None and finding.relative_violation > 1e-3
    change(results, "UPDATE payload SET point = ? WHERE run = 3", values=(pack(x),))
    columns = ("objective", "violation", "relative_violation")
    for name in columns:
        change(results, f"UPDATE run SET {name} = ? WHERE id = 3", values=(getattr(finding, name),))
    change(results, "UPDATE run SET tolerance = 1e9, point_status = 'feasible' WHERE id = 3")
    rewrite_keys(results)
    assert call(capsys, "verify", results)[0] == 0
    change(results, "UPDATE run SET tolerance = 1e-6 WHERE id = 3")
    rewrite_keys(results)
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("run 3: point_status is 'infeasible', stored is 'feasible'")


def test_feasibility_of_a_formulation_is_re_evaluated_with_the_tolerance_of_the_row(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Halve x of min_norm, which violates its stabilities and leaves the rows of W in their directions."""
    with Store(results) as store:
        x = store.formulation_point(2)
    assert x is not None
    task: Any = qcqpbench.problem(TASK)
    finding = verify(qcqpbench.formulation("min_norm").encode(task), x / 2)
    assert finding.relative_violation is not None and finding.relative_violation > 0.1
    change(results, "UPDATE payload SET formulation_point = ? WHERE run = 2", values=(pack(x / 2),))
    for name in ("objective", "violation", "relative_violation"):
        change(results, f"UPDATE run SET {name} = ? WHERE id = 2", values=(getattr(finding, name),))
    for tolerance, status in ((10.0, "feasible"), (1e-6, "infeasible")):
        change(results, f"UPDATE run SET tolerance = {tolerance}, point_status = '{status}' WHERE id = 2")
        rewrite_keys(results)
        assert call(capsys, "verify", results)[0] == 0
    change(results, "UPDATE run SET point_status = 'feasible' WHERE id = 2")
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("run 2: point_status is 'infeasible', stored is 'feasible'")


def test_differences_hold_values_as_in_the_file(results: Path) -> None:
    change(results, "UPDATE run SET point_status = 'infeasible', scope = 'cosmic' WHERE id = 1")
    with Store(results) as store:
        differences = [difference for checked in reverify(store) for difference in checked.differences]
    assert {(each.row.id, each.name, each.stored, each.recomputed) for each in differences} == {
        (1, "point_status", "infeasible", "feasible"),
        (1, "scope", "cosmic", None),
    }


def test_rows_that_newer_rows_replace_are_checked(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_runs(results, [CONVEX], ["slsqp"])
    assert len(read_rows(results)) == 3
    change(results, "UPDATE run SET objective = 0.5 WHERE id = 3")
    code, (line, last) = call(capsys, "verify", results)
    assert code == 1 and line.startswith("run 3: objective is ")
    assert last == f"{results}: 4 rows, 4 points re-evaluated: 1 differ"


def test_infinite_findings_are_verified_reported_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = QCQP(np.eye(2), quadratic_constraints=[(1e10 * np.eye(2), None, 0.0, 1.0)])
    results, instance = tmp_path / "a.db", tmp_path / "huge.npz"
    qcqpbench.write(huge, instance)
    x = np.array([1e200, 1.0])
    with np.errstate(over="ignore"):
        finding = verify(huge, x)
        assert (finding.objective, finding.violation) == (np.inf, np.inf)
        (spec,) = Suite.of([str(instance)], ["slsqp"]).runs()
        attempt = replace(solve(huge, "slsqp"), spec=spec, **vars(finding), point=x, termination=Termination.STALLED)
        with Store(results, write=True) as store:
            store.begin("a command", Machine())
            store.add(Outcome(attempt, reply()))
            (row,) = store.rows()
        assert (row.objective, row.violation, row.relative_violation) == (np.inf, np.inf, np.inf)
        assert row.time_limit == math.inf
        assert call(capsys, "verify", results)[0] == 0
        assert call(capsys, "report", results, "-o", tmp_path / "a.html")[0] == 0
    page = (tmp_path / "a.html").read_text()
    data = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert json.loads(data, parse_constant=pytest.fail)["rows"]["violation"] == [None]
    assert 'data-value="inf' not in page
    assert call(capsys, "export", results, tmp_path / "a.csv")[0] == 0
    with (tmp_path / "a.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert float(line["violation"]) == np.inf
    # Files before schema 6 have NULL in its place.
    make_older(results, 5)
    change(results, "UPDATE run SET objective = NULL, violation = NULL, relative_violation = NULL")
    with np.errstate(over="ignore"):
        assert call(capsys, "verify", results)[0] == 0


def test_unchecked_rows_and_differences_are_counted_separately(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(results, "UPDATE run SET problem = 'gone/x.qplib' WHERE id = 3")
    change(results, "UPDATE run SET margin = 7 WHERE id = 1")
    change(results, "UPDATE run SET formulation = 'of_tomorrow' WHERE id = 2")
    rewrite_keys(results)
    code, lines = call(capsys, "verify", results)
    assert code == 1 and len(lines) == 4
    assert lines[0].startswith("run 1: margin is ")
    assert lines[1].startswith("could not be checked: 1 row: unknown formulation 'of_tomorrow'")
    assert lines[2] == "could not be checked: 1 row: gone/x.qplib: no such file"
    assert lines[3] == f"{results}: 3 rows, 1 points re-evaluated: 1 differ, could not be checked: 2 rows"


# --- keys ---


@pytest.mark.parametrize(
    "forged",
    ["solver = 'ipopt'", "version = '2'", "formulation = 'epigraph'", "start = 5", "start_seed = 1", "time_limit = 3.0",
     "memory_limit_bytes = 9", "threads = 2", "tolerance = 1e9", "key = 'abc'"],
)  # fmt: skip
def test_a_column_that_the_key_does_not_agree_with_differs(
    results: Path, capsys: pytest.CaptureFixture[str], forged: str
) -> None:
    change(results, f"UPDATE run SET {forged} WHERE id = 2")
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("run 2: key is ")
    rewrite_keys(results)
    assert not any("key is" in line for line in call(capsys, "verify", results)[1])


def test_an_option_that_no_run_can_have_differs_with_any_key(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "UPDATE run SET tolerance = -1.0 WHERE id = 2")
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("run 2: key is ")
    assert "tolerance must be a finite relative violation, at least 0, got -1.0" in lines[0]


def test_the_key_of_a_row_whose_problem_is_missing_is_checked(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(results, "UPDATE run SET problem = 'gone/x.qplib', solver = 'ipopt' WHERE id = 3")
    code, (first, second, last) = call(capsys, "verify", results)
    assert code == 1 and first.startswith("run 3: key is ")
    assert second == "could not be checked: 1 row: gone/x.qplib: no such file"
    assert last.endswith("2 points re-evaluated: 1 differ, could not be checked: 1 row")


def old_key(row: Row) -> str:
    """Return the key that versions before schema 6 gave a row: a hash of all columns, also with default values."""
    names = ("problem_id", "solver", "version", "formulation", "start", "time_limit", "threads")
    content = {name: getattr(row, name) for name in names}
    content |= {"seed": row.start_seed, "memory_limit": row.memory_limit_bytes}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def test_keys_of_versions_before_schema_6_agree(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for row in read_rows(results, all_rows=True):
        change(results, "UPDATE run SET key = ? WHERE id = ?", values=(old_key(row), row.id))
    assert call(capsys, "verify", results)[0] == 0
    # They had no tolerance but the usual one.
    change(results, "UPDATE run SET tolerance = 1e9 WHERE id = 3")
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("run 3: key is ")


@pytest.mark.parametrize("name", ["schema-5.db", "schema-6.db", "schema-7.db"])
def test_files_of_older_versions_verify(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copy(ROOT / "tests" / "data" / name, tmp_path))
    assert call(capsys, "verify", path) == (0, [f"{path}: 7 rows, 7 points re-evaluated: all as stored"])


def test_the_keys_of_the_file_of_schema_1_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copy(ROOT / "tests" / "data" / "schema-1.db", tmp_path))
    code, (line, last) = call(capsys, "verify", path)
    assert code == 1 and line.startswith("run 2: problem_id is ") and last.endswith(": 1 differ")


# --- facts about the problem, and the gap ---


@pytest.mark.parametrize(
    ("id", "name", "value", "recomputed"),
    [(1, "kappa_bar_theory", 0.001, None), (1, "sense", "maximize", "None"), (3, "sense", "maximize", "'minimize'"),
     (1, "kappa_bar_theory", None, None), (2, "kappa_bar_theory", None, None), (3, "kappa_bar_theory", 1.7, None),
     (1, "kappa_bar_rs", 0.001, None), (2, "kappa_bar_rs", None, None), (3, "kappa_bar_rs", 1.7, None)],
)  # fmt: skip
def test_a_false_fact_about_the_problem_differs(
    results: Path, capsys: pytest.CaptureFixture[str], id: int, name: str, value: Any, recomputed: str | None
) -> None:
    stored = {row.id: getattr(row, name) for row in read_rows(results)}[id]
    change(results, f"UPDATE run SET {name} = ? WHERE id = ?", values=(value, id))
    code, (line, last) = call(capsys, "verify", results)
    expected = repr(stored) if recomputed is None else recomputed
    assert code == 1 and line.startswith(f"run {id}: {name} is {expected}, stored is {value!r} (")
    assert last == f"{results}: 3 rows, 3 points re-evaluated: 1 differ"


def test_facts_that_a_row_does_not_state_are_no_difference(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check rows as old versions wrote them; the last digits of theory may differ between versions of SciPy."""
    change(results, "UPDATE run SET sense = NULL, best_known = NULL, scope = NULL, peak_memory_bytes = NULL")
    change(results, "UPDATE run SET kappa_bar_rs = kappa_bar_rs * (1 + 1e-14)")
    assert call(capsys, "verify", results)[0] == 0


@pytest.mark.parametrize(("name", "tolerance"), [("kappa_bar_rs", 1e-9), ("kappa_bar_theory", 2e-5)])
def test_theory_may_differ_by_its_error(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, tolerance: float
) -> None:
    """Check κ̄ near 1: replica symmetry is exact to rounding errors, full RSB to the error bar of its table."""
    change(results, f"UPDATE run SET {name} = {name} + ? WHERE id = 1", values=(0.9 * tolerance,))
    assert call(capsys, "verify", results)[0] == 0
    change(results, f"UPDATE run SET {name} = {name} + ? WHERE id = 1", values=(tolerance,))
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith(f"run 1: {name} is ")


def test_the_tolerance_of_full_breaking_covers_the_error_bars_of_its_table() -> None:
    for power in (1, 2):
        for entry in table(power).entries:
            error = entry.error / -entry.slope
            assert error < _THEORY_TOLERANCES["kappa_bar_theory"] * max(1.0, abs(entry.kappa_bar))


def test_a_run_without_a_point_need_not_state_theory(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spec,) = Suite.of([TASK], ["gip[starts=1]"], Settings(starts=1)).runs()
    add_outcomes(results, outcome(spec, termination=Termination.ERROR, point_status=PointStatus.NONE))
    assert call(capsys, "verify", results) == (0, [f"{results}: 4 rows, 3 points re-evaluated: all as stored"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("scope", "cosmic"), ("scope", ""), ("peak_memory_bytes", -1), ("begun", -1.0), ("begun", math.inf),
     ("begun", 1.7e12)],
)  # fmt: skip
def test_an_impossible_value_differs(results: Path, capsys: pytest.CaptureFixture[str], name: str, value: Any) -> None:
    """Check also where the problem is missing; 1.7e12 is a time in milliseconds."""
    change(results, f"UPDATE run SET {name} = ? WHERE id = 2", values=(value,))
    code, (line, last) = call(capsys, "verify", results)
    assert code == 1 and line.startswith(f"run 2: {name} is None, stored is {value!r} (")
    assert last == f"{results}: 3 rows, 3 points re-evaluated: 1 differ"
    change(results, "UPDATE run SET problem = 'gone/x.qplib' WHERE id = 2")
    assert any(line.startswith(f"run 2: {name} is None, ") for line in call(capsys, "verify", results)[1])


@pytest.mark.parametrize("id", [1, 2, 3])
def test_the_gap_is_that_of_bound_and_value(results: Path, capsys: pytest.CaptureFixture[str], id: int) -> None:
    (row,) = (row for row in read_rows(results) if row.id == id)
    value = row.objective if row.margin is None else row.margin
    assert value is not None
    bound = 2 * value
    change(results, "UPDATE run SET bound = ?, gap = 0.5 WHERE id = ?", values=(bound, id))
    assert call(capsys, "verify", results)[0] == 0
    for forged in ("gap = 0.0", "gap = NULL", f"bound = {3 * value}", "bound = NULL"):
        path = Path(shutil.copy(results, results.with_name("forged.db")))
        change(path, f"UPDATE run SET {forged} WHERE id = {id}")
        code, (line, _) = call(capsys, "verify", path)
        assert code == 1 and line.startswith(f"run {id}: gap is ")


def test_a_false_value_is_reported_without_the_gap_that_follows_from_it(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(results, "UPDATE run SET bound = 2 * margin, gap = 0.5 WHERE id = 1")
    change(results, "UPDATE run SET margin = 0.9 * margin WHERE id = 1")
    assert [line.partition(" is ")[0] for line in call(capsys, "verify", results)[1][:-1]] == ["run 1: margin"]


# --- best known values ---


def write_problem(path: Path, sense: Literal["minimize", "maximize"], best: float | None) -> None:
    problem = QCQP(np.eye(2), sense=sense, x_lower=[-1, -1], x_upper=[1, 1])
    best_known = None if best is None else BestKnown(best, "a paper")
    qcqpbench.write(problem.replace(metadata=replace(problem.metadata, best_known=best_known)), path)


@pytest.mark.parametrize(
    ("sense", "today", "stored", "agrees"),
    [("minimize", 1.0, 1.0, True), ("minimize", 1.0, 1.5, True), ("minimize", 1.0, 0.5, False),
     ("maximize", 1.0, 1.0, True), ("maximize", 1.0, 0.5, True), ("maximize", 1.0, 1.5, False)],
)  # fmt: skip
def test_a_best_known_value_may_be_older_and_not_better_than_that_of_the_problem(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sense: Literal["minimize", "maximize"],
    today: float,
    stored: float,
    agrees: bool,
) -> None:
    instance, results = tmp_path / "a.npz", tmp_path / "a.db"
    write_problem(instance, sense, today)
    add_runs(results, [str(instance)], ["slsqp"])
    assert [row.best_known for row in read_rows(results)] == [today]
    change(results, "UPDATE run SET best_known = ?", values=(stored,))
    code, lines = call(capsys, "verify", results)
    assert (code == 0) is agrees
    assert agrees or lines[0].startswith(f"run 1: best_known is {today!r}, stored is {stored!r} (")


def test_a_best_known_value_that_the_problem_does_not_have_is_not_checked(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(results, "UPDATE run SET best_known = 100.0 WHERE id = 1")
    code, (line, last) = call(capsys, "verify", results)
    assert code == 1 and line.startswith("could not be checked: 1 row: best_known: ")
    assert last == f"{results}: 3 rows, 3 points re-evaluated: could not be checked: 1 row"


def test_a_forged_margin_of_the_list_of_best_known_margins_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "a.db"
    add_runs(results, [load_suite("best_known").problems[0]], ["gip[starts=1]"])
    (row,) = read_rows(results)
    assert row.best_known is not None and call(capsys, "verify", results)[0] == 0
    change(results, "UPDATE run SET best_known = 2 * best_known")
    code, lines = call(capsys, "verify", results)
    assert code == 1 and lines[0].startswith(f"run 1: best_known is {row.best_known!r}, stored is ")
