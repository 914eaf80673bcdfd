"""Results files that older versions of qcqpbench wrote, each kept in tests/data as that version left it."""

import contextlib
import math
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QcqpbenchError, theory
from qcqpbench.catalog.best_known import read_list
from qcqpbench.catalog.certificate.shor import proved_bound
from qcqpbench.catalog.status import PointStatus
from qcqpbench.cli.main import main
from qcqpbench.results._encoding import pack
from qcqpbench.results.public.improve_best_known import update
from qcqpbench.results.row import COLUMNS
from qcqpbench.results.schema import MIGRATIONS
from qcqpbench.results.store import Store
from qcqpbench.run.verify import verify
from tests.support.best_known_lists import PROOFS, SMALL, task_of
from tests.support.old_files import make_older
from tests.support.results_files import SPEC, TASK, add_outcomes, add_runs, call, change, outcome, read_rows

DATA = Path(__file__).parents[1] / "data"
FEASIBLE = PointStatus.FEASIBLE
SCHEMA_WITH_OFFSETS = 7
DETERMINISTIC = ("slsqp", "gip")


@pytest.fixture(params=["schema-5.db", "schema-6.db", "schema-7.db"])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / request.param, tmp_path))


def test_rows_of_older_files_have_the_findings_of_their_points(results: Path) -> None:
    with Store(results) as store:
        rows = list(store.rows())
        assert len(rows) == 7
        for row in rows:
            problem = qcqpbench.problem(row.problem)
            assert problem.id == row.problem_id
            finding = verify(problem, store.point(row.id), row.tolerance)
            name = "margin" if row.margin is not None else "objective"
            assert getattr(row, name) == pytest.approx(getattr(finding, name), rel=1e-9)


def test_feasibility_in_older_files_is_that_of_the_tolerance_in_the_row(results: Path) -> None:
    """Versions before schema 6 let each solver declare the tolerance of its points: 1e-2 for qcqp."""
    with Store(results) as store:
        statuses = {row.solver.partition("[")[0]: row.point_status for row in store.rows()}
        assert {row.tolerance for row in store.rows()} == {1e-6}
    assert statuses == {"gip": FEASIBLE, "slsqp": FEASIBLE, "ipopt": FEASIBLE, "qcqp": PointStatus.INFEASIBLE}


def test_deterministic_solvers_return_the_margins_of_older_files(results: Path) -> None:
    with Store(results) as store:
        rows = [row for row in store.rows() if row.solver.startswith(DETERMINISTIC)]
    assert len(rows) == 3
    for row in rows:
        problem = qcqpbench.problem(row.problem)
        attempt = qcqpbench.solve(problem, row.solver, qcqpbench.random_start(problem, row.start, row.start_seed))
        name = "margin" if row.margin is not None else "objective"
        assert getattr(attempt, name) == pytest.approx(getattr(row, name), rel=1e-6)


def stored_values(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the values that SQLite itself reads from a file, without changing it."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        return connection.execute(query).fetchall()


def stored_columns(path: Path) -> list[str]:
    """Return the columns of the runs in a file."""
    return [name for _, name, *_ in stored_values(path, "PRAGMA table_info(run)")]


@pytest.mark.parametrize(("name", "has_x"), [("schema-1.db", False), ("schema-5.db", True), ("schema-6.db", True)])
def test_values_of_renamed_columns_are_kept(name: str, has_x: bool, tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / name, tmp_path))
    options = stored_values(path, "SELECT id, key, seed, memory_limit, start, threads FROM run ORDER BY id")
    times = [math.inf if limit is None else limit for (limit,) in stored_values(path, "SELECT time_limit FROM run")]
    arrays = dict(stored_values(path, f"SELECT run, {'x' if has_x else 'NULL'} FROM payload"))
    with Store(path) as store:
        rows = list(store.rows(all_rows=True))
        names = ("id", "key", "start_seed", "memory_limit_bytes", "start", "threads")
        assert [tuple(getattr(row, name) for name in names) for row in rows] == options
        assert [row.time_limit for row in rows] == times
        for row in rows:
            blob, point = arrays.get(row.id), store.formulation_point(row.id)
            assert (point is None) == (blob is None) and (point is None or pack(point) == blob)
            assert store.offsets(row.id) is None
    assert stored_values(path, "PRAGMA user_version") == [(9,)] == [(len(MIGRATIONS),)]
    run_columns = set(stored_columns(path))
    payload_columns = {name for _, name, *_ in stored_values(path, "PRAGMA table_info(payload)")}
    assert run_columns == set(COLUMNS) and run_columns.isdisjoint({"seed", "memory_limit"})
    assert payload_columns == {"run", "output", "point", "formulation_point", "multipliers", "offsets", "trace", "tree"}


@pytest.mark.parametrize("name", ["schema-1.db", "schema-5.db", "schema-6.db", "schema-7.db"])
def test_migrated_files_take_new_rows_and_can_be_merged(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / name, tmp_path))
    with Store(path) as store:
        count = store.count()
    add_outcomes(path, outcome(offsets=np.array([1.0, 2.0])))
    with Store(tmp_path / "new.db", write=True) as store:
        assert store.merge(path) == count + 1
        newest = max(row.id for row in store.rows(all_rows=True))
        np.testing.assert_array_equal(store.offsets(newest), [1.0, 2.0])


@pytest.mark.parametrize("name", ["schema-6.db", "schema-7.db"])
def test_a_second_run_finds_the_runs_of_older_files(name: str, tmp_path: Path) -> None:
    """Check that keys of schema 6 are still those of today's specs; earlier keys had another form."""
    path = Path(shutil.copy(DATA / name, tmp_path))
    with Store(path) as store:
        assert {row.spec.key for row in store.rows()} == store.finished()


def test_rows_of_older_files_have_the_predictions_of_both_theories(results: Path) -> None:
    """Both problems have load 1, at which theory was called kappa_bar_theory when it was replica symmetric."""
    stored = [value for (value,) in stored_values(results, "SELECT kappa_bar_theory FROM run ORDER BY id")]
    symmetric = {"covariance_perceptron": 1.0343140614, "classical_perceptron": 0.4706553526}
    full = {
        "covariance_perceptron": theory.covariance_kappa_bar(8, 4, rsb="full"),
        "classical_perceptron": symmetric["classical_perceptron"],
    }
    with Store(results) as store:
        rows = list(store.rows())
    assert [row.kappa_bar_rs for row in rows] == stored == pytest.approx([symmetric[row.problem_name] for row in rows])
    assert [row.kappa_bar_theory for row in rows] == pytest.approx([full[row.problem_name] for row in rows], abs=1e-9)
    assert full["covariance_perceptron"] == pytest.approx(0.99501, abs=1e-5)


def classical(p: int) -> tuple[str, float, float]:
    """Return a spec and both predictions for 10 inputs."""
    full = theory.classical_kappa_bar(p, 10, rsb="full")
    return f"classical_perceptron[m=10,p={p}]", theory.classical_kappa_bar(p, 10), full


def covariance(p: int, n: int) -> tuple[str, float, float]:
    """Return a spec and both predictions for 10 inputs and `n` outputs."""
    full = theory.covariance_kappa_bar(p, 10, n, rsb="full")
    return f"covariance_perceptron[m=10,n={n},p={p}]", theory.covariance_kappa_bar(p, 10, n), full


def as_schema_7(path: Path, *rows: tuple[str, Any]) -> None:
    """Write a file of schema 7 with rows of these problems and these values of kappa_bar_theory."""
    specs = [replace(SPEC, problem=problem, start=k) for k, (problem, _) in enumerate(rows)]
    add_outcomes(path, *map(outcome, specs))
    make_older(path, 7)
    for k, (_, value) in enumerate(rows):
        change(path, "UPDATE run SET kappa_bar_theory = ? WHERE start = ?", values=(value, k))


@pytest.mark.parametrize(
    ("problem", "symmetric", "full"),
    [
        *(classical(p) for p in (1, 20, 21, 100)),
        *(covariance(*shape) for shape in ((1, 2), (60, 2), (60, 3), (99, 5))),
        ("covariance_perceptron", *covariance(20, 2)[1:]),
        # Beyond the table: margins above 20 and below −2.5.
        ("covariance_perceptron[m=1000,p=1]", 63.0, None),
        ("covariance_perceptron[m=2,p=9000]", -3.0, None),
        ("classical_perceptron[m=2,p=9000]", -3.5, None),
        ("classical_perceptron[m=1000,p=1]", 31.0, 31.0),
        ("covariance_perceptron[m=2]", math.inf, None),
        ("covariance_perceptron[m=2]", -math.inf, None),
    ],
)
def test_old_predictions_become_those_of_full_breaking(
    problem: str, symmetric: float, full: float | None, tmp_path: Path
) -> None:
    as_schema_7(tmp_path / "a.db", (problem, symmetric))
    with Store(tmp_path / "a.db") as store:
        (row,) = store.rows()
    assert row.kappa_bar_rs == symmetric
    assert row.kappa_bar_theory == (None if full is None else pytest.approx(full, abs=1e-11))


@pytest.mark.parametrize("problem", ["covariance_perceptron_2[m=4]", "my_family", "covariance_perceptron.npz", "a.npz"])
def test_old_predictions_of_other_problems_are_kept(problem: str, tmp_path: Path) -> None:
    as_schema_7(tmp_path / "a.db", (problem, 1.5), ("covariance_perceptron[m=4]", None))
    with Store(tmp_path / "a.db") as store:
        assert [(row.kappa_bar_theory, row.kappa_bar_rs) for row in store.rows()] == [(1.5, None), (None, None)]


def test_an_old_prediction_that_is_no_number_is_refused_after_the_migration(tmp_path: Path) -> None:
    as_schema_7(tmp_path / "a.db", ("covariance_perceptron[m=4]", "abc"))
    with (
        Store(tmp_path / "a.db") as store,
        pytest.raises(QcqpbenchError, match="run 1: kappa_bar_theory must be a number, got 'abc'"),
    ):
        list(store.rows())


def test_many_rows_are_migrated_quickly(tmp_path: Path) -> None:
    """100,000 rows with 50 loads; the limit is several times what a slow machine needs."""
    path = tmp_path / "a.db"
    as_schema_7(path, ("covariance_perceptron[m=4]", 1.0))
    columns = [name for name in stored_columns(path) if name not in ("id", "number", "kappa_bar_theory")]
    change(
        path,
        f"""WITH RECURSIVE count(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM count WHERE k < 100000)
        INSERT INTO run (number, kappa_bar_theory, {", ".join(columns)})
        SELECT k, 0.1 * (k % 50), {", ".join(columns)} FROM run, count""",
    )
    begun = time.perf_counter()
    with Store(path) as store:
        assert time.perf_counter() - begun < 10
        assert store.count() == 100_001


@pytest.mark.parametrize("schema", [5, 6, 7, len(MIGRATIONS)])
def test_offsets_of_older_rows_are_those_in_their_details(schema: int, tmp_path: Path) -> None:
    """Improve an empty list by a row whose bound needs its offsets, which older versions stored in `details`."""
    offsets_by_record = {record: PROOFS[record.problem_id].offsets for record in SMALL}
    record, offsets = next((record, y) for record, y in offsets_by_record.items() if y is not None and np.ptp(y) > 1e-3)
    task, proof = task_of(record), PROOFS[record.problem_id]
    assert proof.multipliers is not None
    spec = replace(SPEC, problem=record.problem, problem_id=task.id)
    values: dict[str, Any] = {"margin": record.margin, "point": proof.point, "multipliers": proof.multipliers}
    if schema < SCHEMA_WITH_OFFSETS:
        values["details"] = {f"offset_{k}": float(offset) for k, offset in enumerate(offsets)}
    else:
        values["offsets"] = offsets
    add_outcomes(tmp_path / "a.db", outcome(spec, **values))
    make_older(tmp_path / "a.db", schema)
    update(tmp_path / "list.csv", [tmp_path / "a.db"])
    records, proofs = read_list(tmp_path / "list.csv")
    assert records[task.id].bound == pytest.approx(record.bound, rel=1e-12)
    np.testing.assert_array_equal(proofs[task.id].offsets, offsets)
    # Without its offsets the row proves less.
    assert proved_bound(task, proof.multipliers) > record.bound * (1 + 1e-6)


def test_older_files_are_reported_and_exported(results: Path, tmp_path: Path) -> None:
    assert main(["report", str(results), "-o", str(tmp_path / "report.html")]) == 0
    assert main(["export", str(results), str(tmp_path / "table.csv")]) == 0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 8


def test_rows_of_problem_files_before_schema_8_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check rows and files that have the replica-symmetric prediction as kappa_bar_theory, and no other."""
    task = qcqpbench.problem(TASK)
    notes = {"kappa_bar_theory": task.metadata.notes["kappa_bar_rs"]}
    file, results = tmp_path / "task.npz", tmp_path / "a.db"
    qcqpbench.write(replace(task, metadata=replace(task.metadata, notes=notes)), file)
    add_runs(results, [str(file)], ["slsqp"])
    assert call(capsys, "verify", results)[0] == 0
    make_older(results, 7)
    assert call(capsys, "verify", results)[0] == 0
    (row,) = read_rows(results)
    assert row.kappa_bar_theory == notes["kappa_bar_theory"] and row.kappa_bar_rs is None
    change(results, "UPDATE run SET kappa_bar_theory = 0.3")
    assert call(capsys, "verify", results)[0] == 1
