"""Files that cannot be opened as results files, and files of older schemas."""

import os
import shutil
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qcqpbench import QcqpbenchError, Termination
from qcqpbench.results import schema
from qcqpbench.results.store import Store
from tests.support.results_files import ROOT, SPEC, add_outcomes, is_intact, names_beside, outcome, read_rows

SCHEMA = len(schema.MIGRATIONS)

# --- files that are not results files, or damaged ---


def write_other_database(path: Path, wal: bool = False) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
    connection.execute("CREATE TABLE run (id)")
    connection.commit()
    connection.close()


def write_damaged(path: Path, kind: str) -> None:
    """Write a file that is not a results file, or a damaged one."""
    add_outcomes(path, *(outcome(replace(SPEC, start=k), message="m" * 900) for k in range(100)))
    content = path.read_bytes()
    middle = len(content) // 2
    if kind.startswith("other"):
        path.unlink()
        write_other_database(path, wal="wal" in kind)
    elif kind == "later":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        path.write_bytes({
            "empty": b"",
            "text": b"x,y\n1,2\n" * 1000,
            "truncated": content[: middle // 4096 * 4096],
            "cut": content[:-100],
            "header": content[:50],
            "noise": content[: 4096 * 3] + os.urandom(len(content) - 4096 * 3),
        }[kind])  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "must be a qcqpbench results file, got another kind of file"),
        ("text", "must be a qcqpbench results file, got another kind of file"),
        ("other", "must be a qcqpbench results file, got another kind of file"),
        ("other wal", "must be a qcqpbench results file, got another kind of file"),
        ("later", f"schema must be {SCHEMA} or older, got 99: update qcqpbench"),
        ("truncated", "must be a qcqpbench results file, but it is damaged: its end is missing"),
        ("cut", "must be a qcqpbench results file, but it is damaged: its end is missing"),
        ("header", "must be a qcqpbench results file, got another kind of file"),
    ],
)
@pytest.mark.parametrize("write", [False, True])
def test_other_and_damaged_files_are_refused_and_left_as_they_are(
    tmp_path: Path, kind: str, message: str, write: bool
) -> None:
    path = tmp_path / "a.db"
    write_damaged(path, kind)
    before = path.read_bytes()
    with pytest.raises(QcqpbenchError) as caught:
        Store(path, write=write)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert names_beside(path) == ["a.db"]


def test_damaged_pages_are_refused_by_writers_and_readers(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write_damaged(path, "noise")
    before = path.read_bytes()
    with pytest.raises(QcqpbenchError, match="is damaged"):
        Store(path, write=True)
    with pytest.raises(QcqpbenchError, match="is damaged"):
        read_rows(path, all_rows=True)
    assert path.read_bytes() == before
    assert names_beside(path) == ["a.db"]


def test_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    for write in (False, True):
        with pytest.raises(QcqpbenchError, match="must be a qcqpbench results file, got a folder"):
            Store(tmp_path, write=write)
        with pytest.raises(QcqpbenchError):
            Store(tmp_path / "no" / "a.db", write=write)
    with pytest.raises(QcqpbenchError, match="no such file"):
        Store(tmp_path / "a.db")
    assert list(tmp_path.iterdir()) == []


def test_the_wal_of_a_lost_file_is_not_taken_into_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "a.db-wal").write_bytes(b"rows of another file")
    with pytest.raises(QcqpbenchError, match=r"a\.db-wal: must not exist without a\.db"):
        Store(tmp_path / "a.db", write=True)
    assert names_beside(tmp_path / "a.db") == ["a.db-wal"]


def test_names_with_special_characters_work(tmp_path: Path) -> None:
    path = tmp_path / "a b?c=%20#é.db"
    add_outcomes(path, outcome())
    assert len(read_rows(path)) == 1 and names_beside(path) == [path.name]


# --- schemas ---


def test_older_files_are_migrated_when_they_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, other = tmp_path / "a.db", tmp_path / "b.db"
    add_outcomes(old, outcome(margin=3.0))
    shutil.copy(old, other)
    change = ("ALTER TABLE run ADD COLUMN mood TEXT", "UPDATE run SET mood = 'fine'")
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, change])
    for path, write in ((old, False), (other, True)):
        with Store(path, write=write) as store:
            assert [row.margin for row in store.rows()] == [3.0]
            assert store._connection.execute("SELECT mood FROM run").fetchall() == [("fine",)]
            assert store._connection.execute("PRAGMA user_version").fetchone() == (SCHEMA + 1,)
    add_outcomes(other, outcome(replace(SPEC, start=1)))
    assert len(read_rows(other)) == 2
    monkeypatch.undo()
    with pytest.raises(QcqpbenchError, match=f"schema must be {SCHEMA} or older, got {SCHEMA + 1}"):
        Store(old)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    add_outcomes(path, outcome())
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, ("DROP TABLE payload", "nonsense")])
    with pytest.raises(QcqpbenchError, match="syntax error"):
        Store(path, write=True)
    monkeypatch.undo()
    assert len(read_rows(path)) == 1 and is_intact(path)


def test_the_file_of_schema_1_can_be_read() -> None:
    """Read a file that was written when schema 1 was new."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copy(ROOT / "tests" / "data" / "schema-1.db", folder))
        stored = read_rows(path)
        with Store(path) as store:
            np.testing.assert_array_equal(store.point(stored[0].id), [[0.6, 0.8], [1.0, 0.0]])
            assert [seconds for seconds, _ in store.trace(stored[0].id)] == [0.25, 0.5]
            assert store.formulation_point(stored[0].id) is None
        with Store(Path(folder, "new.db"), write=True) as store:
            assert store.merge(path) == 2
    assert [(row.solver, row.termination, row.margin) for row in stored] == [
        ("gip[starts=8]", Termination.FINISHED, 0.125),
        ("gip[starts=8]", Termination.CRASHED, None),
    ]


def test_an_older_file_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(shutil.copy(ROOT / "tests" / "data" / "schema-1.db", tmp_path))
    before = path.read_bytes()
    monkeypatch.setattr(schema, "_writable", lambda _: False)
    with pytest.raises(
        QcqpbenchError, match=f"must be writable to be migrated from schema 1 to {SCHEMA}; copy it elsewhere"
    ):
        Store(path)
    assert path.read_bytes() == before and names_beside(path) == ["schema-1.db"]
