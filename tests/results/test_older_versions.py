"""Results files that older versions of qcqpbench wrote, each kept in tests/data as that version left it."""

import contextlib
import math
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.best_known import read_list
from qcqpbench.catalog.certificate import proved_bound
from qcqpbench.catalog.status import PointStatus
from qcqpbench.cli.main import main
from qcqpbench.results._encoding import pack
from qcqpbench.results.improve_best_known import update
from qcqpbench.results.row import COLUMNS
from qcqpbench.results.schema import MIGRATIONS
from qcqpbench.results.store import Store
from qcqpbench.run.verify import verify
from tests.support.best_known_lists import PROOFS, SMALL, task_of
from tests.support.old_files import make_older
from tests.support.results_files import SPEC, add_outcomes, outcome

DATA = Path(__file__).parents[1] / "data"
FEASIBLE = PointStatus.FEASIBLE
DETERMINISTIC = ("slsqp", "gip")


@pytest.fixture(params=["schema-5.db", "schema-6.db"])
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
    assert stored_values(path, "PRAGMA user_version") == [(7,)] == [(len(MIGRATIONS),)]
    run_columns = {name for _, name, *_ in stored_values(path, "PRAGMA table_info(run)")}
    payload_columns = {name for _, name, *_ in stored_values(path, "PRAGMA table_info(payload)")}
    assert run_columns == set(COLUMNS) and run_columns.isdisjoint({"seed", "memory_limit"})
    assert payload_columns == {"run", "output", "point", "formulation_point", "multipliers", "offsets", "trace"}


@pytest.mark.parametrize("name", ["schema-1.db", "schema-5.db", "schema-6.db"])
def test_migrated_files_take_new_rows_and_can_be_merged(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(DATA / name, tmp_path))
    with Store(path) as store:
        count = store.count()
    add_outcomes(path, outcome(offsets=np.array([1.0, 2.0])))
    with Store(tmp_path / "new.db", write=True) as store:
        assert store.merge(path) == count + 1
        newest = max(row.id for row in store.rows(all_rows=True))
        np.testing.assert_array_equal(store.offsets(newest), [1.0, 2.0])


def test_a_second_run_finds_the_runs_of_older_files(tmp_path: Path) -> None:
    """Check that keys of schema 6 are still those of today's specs; earlier keys had another form."""
    path = Path(shutil.copy(DATA / "schema-6.db", tmp_path))
    with Store(path) as store:
        assert {row.spec.key for row in store.rows()} == store.finished()


@pytest.mark.parametrize("schema", [5, 6, len(MIGRATIONS)])
def test_offsets_of_older_rows_are_those_in_their_details(schema: int, tmp_path: Path) -> None:
    """Improve an empty list by a row whose bound needs its offsets, which older versions stored in `details`."""
    record = next(record for record in SMALL if np.ptp(PROOFS[record.problem_id].offsets) > 1e-3)
    task, proof = task_of(record), PROOFS[record.problem_id]
    spec = replace(SPEC, problem=record.problem, problem_id=task.id)
    values: dict[str, Any] = {"margin": record.margin, "point": proof.point, "multipliers": proof.multipliers}
    if schema < len(MIGRATIONS):
        values["details"] = {f"offset_{k}": float(offset) for k, offset in enumerate(proof.offsets)}
    else:
        values["offsets"] = proof.offsets
    add_outcomes(tmp_path / "a.db", outcome(spec, **values))
    make_older(tmp_path / "a.db", schema)
    update(tmp_path / "list.csv", [tmp_path / "a.db"])
    records, proofs = read_list(tmp_path / "list.csv")
    assert records[task.id].bound == pytest.approx(record.bound, rel=1e-12)
    np.testing.assert_array_equal(proofs[task.id].offsets, proof.offsets)
    # Without its offsets the row proves less.
    assert proved_bound(task, proof.multipliers) > record.bound * (1 + 1e-6)


def test_older_files_are_reported_and_exported(results: Path, tmp_path: Path) -> None:
    assert main(["report", str(results), "-o", str(tmp_path / "report.html")]) == 0
    assert main(["export", str(results), str(tmp_path / "table.csv")]) == 0
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 8
