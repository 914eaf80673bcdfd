"""Typed rows: their fields, the columns of the database, and values of newer versions."""

import contextlib
import math
import pickle
import sqlite3
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest

from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.results.row import COLUMNS, STORED_TYPES, Row, name_and_parameters
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Attempt, RunValues
from qcqpbench.run.run_spec import RunOptions, RunSpec
from tests.support.results_files import SPEC, add_outcomes, change, outcome, read_rows

_SQLITE_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT"}


def database_columns(path: Path, table: str) -> dict[str, tuple[str, bool]]:
    """Return the declared type of each column, and whether NULL is allowed, as SQLite states them."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        facts = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return {name: (kind, not (not_null or key)) for _, name, kind, not_null, _, key in facts}


def test_the_columns_of_rows_are_those_of_the_database(tmp_path: Path) -> None:
    """Fail if a field was added without a migration, or a migration without a field."""
    add_outcomes(tmp_path / "a.db", outcome())
    columns = database_columns(tmp_path / "a.db", "run")
    assert set(COLUMNS) == set(columns) and len(COLUMNS) == len(columns)
    for name, (kind, may_be_null) in STORED_TYPES.items():
        assert columns[name][0] == _SQLITE_TYPES[kind], name
        # No time limit is NULL in the file and infinite in Python.
        assert columns[name][1] == (may_be_null or name == "time_limit"), name


def test_the_arrays_of_attempts_are_columns_of_payloads(tmp_path: Path) -> None:
    add_outcomes(tmp_path / "a.db", outcome())
    own = {field.name for field in fields(Attempt)} - {field.name for field in fields(RunValues)} - {"spec"}
    assert own | {"run", "output"} == set(database_columns(tmp_path / "a.db", "payload"))


@pytest.mark.parametrize("kind", [RunSpec, RunOptions, RunValues])
def test_rows_have_the_fields_of_specs_options_and_values(
    kind: type[RunSpec] | type[RunOptions] | type[RunValues],
) -> None:
    assert {field.name for field in fields(kind)} <= {field.name for field in fields(Row)}
    assert {field.name for field in fields(Row)} == set(COLUMNS)


def test_the_spec_of_a_row_is_that_of_its_run(tmp_path: Path) -> None:
    specs = [
        SPEC,
        replace(SPEC, time_limit=math.inf),
        replace(SPEC, formulation="epigraph", start=3, start_seed=5),
        replace(SPEC, memory_limit_bytes=10**9, threads=2, tolerance=1e-4, problem="a/b.npz", version="2"),
    ]
    add_outcomes(tmp_path / "a.db", *map(outcome, specs))
    rows = read_rows(tmp_path / "a.db")
    assert [row.spec for row in rows] == specs
    assert [row.key for row in rows] == [row.spec.key for row in rows] == [spec.key for spec in specs]


def test_keys_of_stored_rows_do_not_change() -> None:
    """Compare with keys that version 0.1 stored."""
    path = Path(__file__).parents[1] / "data" / "schema-6.db"
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        stored = [dict(row) for row in connection.execute("SELECT * FROM run")]
    assert len(stored) == 7
    new_names = {"seed": "start_seed", "memory_limit": "memory_limit_bytes"}
    names = {field.name for field in fields(RunSpec)}
    for values in stored:
        options = {new_names.get(name, name): value for name, value in values.items()}
        options["time_limit"] = math.inf if options["time_limit"] is None else options["time_limit"]
        assert RunSpec(**{name: options[name] for name in names}).key == values["key"]


def test_rows_hold_members_and_machines(tmp_path: Path) -> None:
    add_outcomes(tmp_path / "a.db", outcome(scope=Scope.BOUND), outcome(replace(SPEC, start=1)))
    first, second = read_rows(tmp_path / "a.db")
    assert first.termination is Termination.FINISHED and first.point_status is PointStatus.FEASIBLE
    assert (first.scope, second.scope) == (Scope.BOUND, None)
    assert first.machine == Machine(cpu="fast") and first.success
    with pytest.raises(FrozenInstanceError):
        first.margin = 1.0  # type: ignore[misc]


def test_rows_are_equal_only_to_themselves(tmp_path: Path) -> None:
    """Check that rows with equal options can be keys of a dict."""
    add_outcomes(tmp_path / "a.db", outcome(), outcome(replace(SPEC, start=1)))
    first, second = read_rows(tmp_path / "a.db")
    numbers = {first: 1, second: 2}
    assert first != second and (numbers[first], numbers[second]) == (1, 2)
    (same, _) = read_rows(tmp_path / "a.db")
    assert same != first and same not in numbers


def test_the_repr_of_a_row_is_one_line(tmp_path: Path) -> None:
    add_outcomes(tmp_path / "a.db", outcome(kappa_bar=1.25), outcome(replace(SPEC, start=1), sense="minimize"))
    first, second = read_rows(tmp_path / "a.db")
    assert repr(first) == "<Row 1: gip[starts=8] on parity[m=2], start 0, finished, kappa_bar=1.25>"
    assert repr(second) == "<Row 2: gip[starts=8] on parity[m=2], start 1, finished>"


@pytest.mark.parametrize(
    ("spec", "name", "parameters"),
    [
        ("gip", "gip", {}),
        (
            "a[m=3,load=0.5,x=1e-9,b=true,c=false,t=yes]",
            "a",
            {"m": 3, "load": 0.5, "x": 1e-9, "b": True, "c": False, "t": "yes"},
        ),
        ("folder/a.npz", "folder/a.npz", {}),
        ("not a [spec", "not a [spec", {}),
        ('library[path="a, [b]",instance=one]', "library", {"path": "a, [b]", "instance": "one"}),
    ],
)
def test_specs_are_split_into_names_and_typed_parameters(
    spec: str, name: str, parameters: dict[str, str | float | bool]
) -> None:
    got_name, got_parameters = name_and_parameters(spec)
    assert (got_name, dict(got_parameters)) == (name, parameters)
    assert [type(value) for value in got_parameters.values()] == [type(value) for value in parameters.values()]


def test_problem_and_solver_of_a_row_are_split(tmp_path: Path) -> None:
    add_outcomes(tmp_path / "a.db", outcome())
    (row,) = read_rows(tmp_path / "a.db")
    assert (row.problem_name, dict(row.problem_parameters)) == ("parity", {"m": 2})
    assert (row.solver_name, dict(row.solver_parameters)) == ("gip", {"starts": 8})


@pytest.mark.parametrize("kind", [Termination, PointStatus, Scope])
def test_words_of_a_newer_version_are_members_of_their_own(
    kind: type[Termination] | type[PointStatus] | type[Scope],
) -> None:
    newer = kind.stored("bored")
    assert isinstance(newer, kind) and newer not in tuple(kind)
    assert str(newer) == newer.value == newer.message == "bored"
    assert pickle.loads(pickle.dumps(newer)) is newer and kind.stored("bored") is newer
    for member in kind:
        assert kind.stored(member.value) is member and pickle.loads(pickle.dumps(member)) is member


def test_rows_with_words_of_a_newer_version_are_read_and_pickled(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    add_outcomes(path, outcome())
    change(path, "UPDATE run SET termination = 'bored', point_status = 'blurred', scope = 'cosmic'")
    with Store(path) as store:
        (row,) = store.rows()
        # A run that ended in any way other than skipped is finished.
        assert store.finished() == {SPEC.key}
    copy = pickle.loads(pickle.dumps(row))
    for each in (row, copy):
        assert [str(each.termination), str(each.point_status), str(each.scope)] == ["bored", "blurred", "cosmic"]
    assert copy.termination is row.termination and not row.success
