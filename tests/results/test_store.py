import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench import QcqpbenchError, Termination
from qcqpbench.catalog.status import PointStatus
from qcqpbench.results import schema
from qcqpbench.results._blobs import pack, unpack
from qcqpbench.results.store import COLUMNS, Store
from qcqpbench.run.attempt import Attempt
from qcqpbench.run.job import Job, Outcome

SCHEMA = len(schema.MIGRATIONS)
ROOT = Path(__file__).parents[2]
JOB = Job("parity[m=2]", "abc", "gip[starts=8]", "scipy 1", None, 0, time_limit=10.0)
NOW = 1.7e9


def outcome(job: Job = JOB, begun: float = NOW, **rest: Any) -> Outcome:
    values: dict[str, Any] = {"termination": Termination.FINISHED, "point_status": PointStatus.FEASIBLE, **rest}
    return Outcome(
        job, Attempt(job.problem, job.problem_id, job.solver, job.version, job.formulation, **values), begun=begun
    )


def fill(path: Path, *outcomes: Outcome) -> list[int]:
    with Store(path, write=True) as store:
        store.begin("run", {"cpu": "fast"})
        return [store.add(each) for each in outcomes]


def rows(path: Path, all_rows: bool = False) -> list[dict[str, Any]]:
    with Store(path) as store:
        return list(store.rows(all_rows))


def intact(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        connection.close()


def beside(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


# --- rows ---

numbers = st.none() | st.floats() | st.integers().map(float)
text = st.text(st.characters(), max_size=30) | st.just("\ud800 lone") | st.just("x\0y")
arrays = st.sampled_from([(2, 3), (4,), (0,), (), (2, 0, 3), (1, 1, 1, 1)]).flatmap(
    lambda shape: st.lists(st.floats(), min_size=math.prod(shape), max_size=math.prod(shape)).map(
        lambda values: np.array(values, dtype=np.float64).reshape(shape)
    )
)
# A skipped run that is known adds nothing.
FINAL = [each for each in Termination if each is not Termination.SKIPPED]
FLOATS = [each.name for each in fields(Attempt) if each.type == "float | None" or each.type == float | None]


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    job = Job(
        draw(text), draw(text), draw(text), draw(text), draw(st.none() | text), draw(st.integers(0, 1 << 40)),
        draw(st.integers(0, 1 << 60)), draw(st.floats(1e-9, math.inf)), draw(st.none() | st.integers(1, 1 << 50)),
    )  # fmt: skip
    rest: dict[str, Any] = {name: draw(numbers) for name in FLOATS}
    attempt = Attempt(
        job.problem, job.problem_id, job.solver, job.version, job.formulation,
        draw(st.sampled_from(FINAL)), draw(st.sampled_from(PointStatus)),
        iterations=draw(st.none() | st.integers(0, 1 << 80)),
        message=draw(text),
        details=draw(st.none() | st.dictionaries(text, text | st.floats(), max_size=3)),
        point=draw(st.none() | arrays),
        x=draw(st.none() | arrays),
        multipliers=draw(st.none() | arrays),
        trace=tuple(draw(st.lists(st.tuples(st.floats(0, 1e6), arrays), max_size=4))),
        **rest,
    )  # fmt: skip
    return Outcome(job, attempt, draw(text), draw(text), draw(st.floats(0, 1e10)))


def as_stored(value: Any) -> Any:
    """Return a value as it is read back: Unicode text, numbers of 64 bits, None for NaN."""
    if isinstance(value, str):
        return "".join("?" if "\ud800" <= each <= "\udfff" else each for each in value)
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return None if isinstance(value, int) and value >= 1 << 63 else value


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("store") / "a.db"
    with Store(path, write=True) as store:
        store.begin("a command", {})
        yield store
    assert intact(path)


@given(each=outcomes())
def test_what_goes_in_comes_out(store: Store, each: Outcome) -> None:
    id, job, attempt = store.add(each), each.job, each.attempt
    (row,) = (row for row in store.rows(all_rows=True) if row["id"] == id)
    assert (row["key"], row["begun"], row["worker"]) == (job.key, each.begun, as_stored(each.worker))
    for name in ("problem", "solver", "start", "seed", "time_limit", "memory_limit", "threads", "formulation"):
        value = getattr(job, name)
        assert row[name] == (None if value == math.inf else as_stored(value)), name
    for name in (*FLOATS, "iterations", "message"):
        assert row[name] == as_stored(getattr(attempt, name)), name
    assert (row["termination"], row["point_status"]) == (attempt.termination.value, attempt.point_status.value)
    assert row["details"] == (attempt.details and {
        name: value if isinstance(value, str) or math.isfinite(value) else str(value)
        for name, value in attempt.details.items()
    })  # fmt: skip
    assert store.output(id) == as_stored(each.output)
    same_bits(store.point(id), attempt.point)
    same_bits(store.x(id), attempt.x)
    same_bits(store.multipliers(id), attempt.multipliers)
    trace = store.trace(id)
    assert [seconds for seconds, _ in trace] == [seconds for seconds, _ in attempt.trace]
    for (_, got), (_, wanted) in zip(trace, attempt.trace, strict=True):
        same_bits(got, wanted)


def test_what_is_not_known_of_the_machine_stays_none(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db", write=True) as store:
        id = store.begin("run", {"governor": None, "speed": math.inf, "packages": {"scip": None}})
        assert store.invocations()[id]["machine"] == {"governor": None, "speed": "inf", "packages": {"scip": None}}


def test_long_output(tmp_path: Path) -> None:
    long = "é\0" * 10_000_000
    (id,) = fill(tmp_path / "a.db", replace(outcome(), output=long))
    with Store(tmp_path / "a.db") as store:
        assert store.output(id) == long


def same_bits(got: Any, wanted: Any) -> None:
    if wanted is None:
        assert got is None
    else:
        assert (got.shape, got.tobytes()) == (wanted.shape, wanted.tobytes())


def test_columns_are_the_fields_of_job_and_attempt(tmp_path: Path) -> None:
    """A field that is added without a migration is noticed here."""
    fill(tmp_path / "a.db", outcome())
    (row,) = rows(tmp_path / "a.db")
    assert tuple(row) == COLUMNS
    named = {each.name for kind in (Job, Attempt) for each in fields(kind)}
    assert named - set(COLUMNS) == {"point", "x", "multipliers", "trace"}


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([1j]), np.array([None]), "text", [[1], [2, 3]]])
def test_points_that_are_none_are_left_out(tmp_path: Path, value: Any) -> None:
    good = np.ones(2)
    (id,) = fill(tmp_path / "a.db", outcome(point=value, multipliers=value, trace=((1.0, good), (2.0, value))))
    with Store(tmp_path / "a.db") as store:
        assert store.point(id) is None and store.multipliers(id) is None
        assert [seconds for seconds, _ in store.trace(id)] == [1.0]


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i4", "u1", "?"])
def test_numbers_of_other_types_become_float64(kind: str) -> None:
    array = np.array([[0, 1], [3, 1]], dtype=kind)
    got = unpack(pack(array) or b"")
    assert got.dtype == np.float64 and np.array_equal(got, array)


def test_the_bytes_of_an_array() -> None:
    """The file format, written out: it must not change."""
    assert pack(np.array([[1.0, -2.0]])) == bytes.fromhex(
        "0200000000000000" "0100000000000000" "0200000000000000" "000000000000f03f" "00000000000000c0"
    )  # fmt: skip


def test_a_long_trace_is_thinned(tmp_path: Path) -> None:
    trace = tuple((1e-3 * 1.001**k, np.array([float(k)])) for k in range(10_000))
    (id,) = fill(tmp_path / "a.db", outcome(trace=trace))
    with Store(tmp_path / "a.db") as store:
        kept = store.trace(id)
    assert (kept[0], kept[-1]) == (trace[0], trace[-1])
    assert len(kept) == 100
    assert all(trace[int(point[0])][0] == seconds for seconds, point in kept)
    ratios = [after[0] / before[0] for before, after in pairwise(kept)]
    assert max(ratios) / min(ratios) < 1.02


# --- which rows count ---


def test_a_repeat_adds_a_row_and_the_newest_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    fill(path, outcome(margin=1.0), outcome(replace(JOB, start=1), margin=5.0))
    fill(path, outcome(margin=2.0, begun=NOW + 1))
    assert [(row["start"], row["margin"]) for row in rows(path)] == [(1, 5.0), (0, 2.0)]
    assert [row["margin"] for row in rows(path, all_rows=True)] == [1.0, 5.0, 2.0]
    with Store(path) as store:
        assert store.finished() == {JOB.key, replace(JOB, start=1).key}


def test_the_key_decides_what_is_the_same_job(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"problem_id": "d"}, {"solver": "x"}, {"version": "2"}, {"formulation": "f"}, {"start": 1}, {"seed": 1},
        {"time_limit": 11.0}, {"memory_limit": 1}, {"threads": 2},
    ]  # fmt: skip
    others = [replace(JOB, **change) for change in changes]
    fill(tmp_path / "a.db", *map(outcome, [JOB, *others, replace(JOB, problem="another name")]))
    assert len(rows(tmp_path / "a.db")) == 1 + len(others)


def test_skipped_runs_are_to_be_run_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    skipped = outcome(termination=Termination.SKIPPED, message="missing")
    assert len({*fill(path, skipped, skipped), *fill(path, skipped)}) == 1
    with Store(path) as store:
        assert store.finished() == set()
    assert [row["termination"] for row in rows(path)] == ["skipped"]
    fill(path, outcome(begun=NOW + 1))
    assert [row["termination"] for row in rows(path)] == ["finished"]
    # The package is gone again: what was found before still counts.
    fill(path, replace(skipped, begun=NOW + 2))
    assert [row["termination"] for row in rows(path)] == ["finished"]
    with Store(path) as store:
        assert store.finished() == {JOB.key}


def test_a_skipped_row_of_another_machine_does_not_hide_a_finished_one(tmp_path: Path) -> None:
    fill(tmp_path / "a.db", outcome())
    fill(tmp_path / "b.db", outcome(termination=Termination.SKIPPED, begun=NOW + 1))
    with Store(tmp_path / "a.db", write=True) as store:
        assert store.merge(tmp_path / "b.db") == 1
        assert [row["termination"] for row in store.rows()] == ["finished"]


def test_a_skipped_row_makes_way_for_another_version(tmp_path: Path) -> None:
    """What is not installed has no version, so its key differs from the one it will have."""
    path, missing = tmp_path / "a.db", replace(JOB, version="scipy ?")
    fill(
        path,
        outcome(missing, termination=Termination.SKIPPED),
        outcome(replace(missing, start=1), termination=Termination.SKIPPED),
    )
    fill(path, outcome(begun=NOW + 1), outcome(replace(JOB, version="scipy 2"), begun=NOW + 2))
    found = [(row["start"], row["version"], row["termination"]) for row in rows(path)]
    assert found == [(1, "scipy ?", "skipped"), (0, "scipy 1", "finished"), (0, "scipy 2", "finished")]


@pytest.mark.parametrize("termination", FINAL)
def test_every_other_outcome_is_final(tmp_path: Path, termination: Termination) -> None:
    fill(tmp_path / "a.db", outcome(termination=termination))
    with Store(tmp_path / "a.db") as store:
        assert store.finished() == {JOB.key}


def test_invocations_are_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "a.db", write=True) as store:
        with pytest.raises(QcqpbenchError, match="before begin"):
            store.add(outcome())
        first, second = store.begin("run smoke", {"cpu": "a", "packages": {"numpy": None}}), store.begin("run é", {})
        store.add(outcome())
        found = store.invocations()
        assert [found[first]["command"], found[second]["command"]] == ["run smoke", "run é"]
        assert found[first]["machine"] == {"cpu": "a", "packages": {"numpy": None}}
        assert next(store.rows())["invocation"] == second


# --- merging ---


def test_merge_is_a_union(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.db", "b.db", "c.db"))
    fill(a, *(outcome(replace(JOB, start=k), margin=float(k), point=np.full(2, k)) for k in range(3)))
    fill(b, outcome(margin=9.0, begun=NOW + 1, point=np.full(2, 9.0)), outcome(replace(JOB, start=7)))
    shutil.copy(a, c)
    fill(c, outcome(replace(JOB, start=4)))
    with Store(a, write=True) as store:
        assert [store.merge(path) for path in (b, b, c, a)] == [2, 0, 1, 0]
        found = list(store.rows(all_rows=True))
        assert [row["start"] for row in found] == [0, 1, 2, 0, 7, 4]
        assert [row["margin"] for row in found] == [0.0, 1.0, 2.0, 9.0, None, None]
        for row in found[:4]:
            np.testing.assert_array_equal(store.point(row["id"]), np.full(2, row["margin"]))
        assert len(store.invocations()) == 3
        assert {row["start"]: row["margin"] for row in store.rows()}[0] == 9.0
    assert len(rows(b)) == 2 and beside(a) == ["a.db", "b.db", "c.db"] and intact(a)


def test_merge_takes_what_a_copy_made_midway_lacks(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    with Store(path, write=True) as store:
        store.begin("run", {})
        store.add(outcome())
        store._connection.execute("VACUUM INTO ?", (str(copy),))
        store.add(outcome(replace(JOB, start=1)))
    with Store(copy, write=True) as store:
        assert store.merge(path) == 1
        assert [row["start"] for row in store.rows()] == [0, 1]


# --- files that are not ours, or broken ---


def foreign(path: Path, wal: bool = False) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
    connection.execute("CREATE TABLE run (id)")
    connection.commit()
    connection.close()


def make(path: Path, what: str) -> None:
    """A file that is no results file."""
    fill(path, *(outcome(replace(JOB, start=k), message="m" * 900) for k in range(100)))
    content = path.read_bytes()
    middle = len(content) // 2
    if what.startswith("foreign"):
        path.unlink()
        foreign(path, wal="wal" in what)
    elif what == "later":
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
        }[what])  # fmt: skip


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("empty", "is no qcqpbench results file"),
        ("text", "is no qcqpbench results file"),
        ("foreign", "is no qcqpbench results file"),
        ("foreign wal", "is no qcqpbench results file"),
        ("later", f"has schema 99, this qcqpbench reads up to {SCHEMA}: update it"),
        ("truncated", "is damaged"),
        ("cut", "is damaged"),
        ("header", "is no qcqpbench results file"),
    ],
)
@pytest.mark.parametrize("write", [False, True])
def test_what_is_no_results_file_is_refused_and_left(tmp_path: Path, what: str, message: str, write: bool) -> None:
    path = tmp_path / "a.db"
    make(path, what)
    before = path.read_bytes()
    with pytest.raises(QcqpbenchError) as caught:
        Store(path, write=write)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert beside(path) == ["a.db"]


def test_damage_inside_is_refused_by_a_writer_and_told_to_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    make(path, "noise")
    before = path.read_bytes()
    with pytest.raises(QcqpbenchError, match="is damaged"):
        Store(path, write=True)
    with pytest.raises(QcqpbenchError, match="is damaged"):
        rows(path, all_rows=True)
    assert path.read_bytes() == before
    assert beside(path) == ["a.db"]


def test_other_things_that_are_no_file(tmp_path: Path) -> None:
    for write in (False, True):
        with pytest.raises(QcqpbenchError, match="is a folder"):
            Store(tmp_path, write=write)
        with pytest.raises(QcqpbenchError):
            Store(tmp_path / "no" / "a.db", write=write)
    with pytest.raises(QcqpbenchError, match="no such file"):
        Store(tmp_path / "a.db")
    assert list(tmp_path.iterdir()) == []


def test_rows_that_wait_beside_a_lost_file_are_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "a.db-wal").write_bytes(b"rows of another file")
    with pytest.raises(QcqpbenchError, match=r"a\.db-wal: belongs to a a\.db that is gone"):
        Store(tmp_path / "a.db", write=True)
    assert beside(tmp_path / "a.db") == ["a.db-wal"]


def test_odd_names(tmp_path: Path) -> None:
    path = tmp_path / "a b?c=%20#é.db"
    fill(path, outcome())
    assert len(rows(path)) == 1 and beside(path) == [path.name]


# --- schemas ---


def test_a_later_schema_opens_an_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, other = tmp_path / "a.db", tmp_path / "b.db"
    fill(old, outcome(margin=3.0))
    shutil.copy(old, other)
    change = ("ALTER TABLE run ADD COLUMN mood TEXT", "UPDATE run SET mood = 'fine'")
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, change])
    for path, write in ((old, False), (other, True)):
        with Store(path, write=write) as store:
            assert [row["margin"] for row in store.rows()] == [3.0]
            assert store._connection.execute("SELECT mood FROM run").fetchall() == [("fine",)]
            assert store._connection.execute("PRAGMA user_version").fetchone() == (SCHEMA + 1,)
    fill(other, outcome(replace(JOB, start=1)))
    assert len(rows(other)) == 2
    monkeypatch.undo()
    with pytest.raises(QcqpbenchError, match=f"has schema {SCHEMA + 1}, this qcqpbench reads up to {SCHEMA}"):
        Store(old)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    fill(path, outcome())
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, ("DROP TABLE payload", "nonsense")])
    with pytest.raises(QcqpbenchError, match="syntax error"):
        Store(path, write=True)
    monkeypatch.undo()
    assert len(rows(path)) == 1 and intact(path)


def test_schema_1_is_what_it_was() -> None:
    """The file of schema 1 in the repository can be read; it was written when schema 1 was new."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(shutil.copy(ROOT / "tests" / "data" / "schema-1.db", folder))
        found = rows(path)
        with Store(path) as store:
            np.testing.assert_array_equal(store.point(found[0]["id"]), [[0.6, 0.8], [1.0, 0.0]])
            assert [seconds for seconds, _ in store.trace(found[0]["id"])] == [0.25, 0.5]
            assert store.x(found[0]["id"]) is None
        with Store(Path(folder, "new.db"), write=True) as store:
            assert store.merge(path) == 2
    assert [(row["solver"], row["termination"], row["margin"]) for row in found] == [
        ("gip[starts=8]", "finished", 0.125),
        ("gip[starts=8]", "crashed", None),
    ]


def test_an_old_file_that_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(shutil.copy(ROOT / "tests" / "data" / "schema-1.db", tmp_path))
    before = path.read_bytes()
    monkeypatch.setattr(schema, "_writable", lambda _: False)
    with pytest.raises(
        QcqpbenchError, match=f"has schema 1, and to read it as {SCHEMA} it must be writable: make a copy"
    ):
        Store(path)
    assert path.read_bytes() == before and beside(path) == ["schema-1.db"]


# --- writers, readers, kills, full disks ---


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store(path, write=True) as store:
        store.begin("run", {})
        store.add(outcome())
        with pytest.raises(QcqpbenchError, match=f"process {os.getpid()} is writing to it"):
            Store(path, write=True)
        code = f"from qcqpbench.results.store import Store\nStore({str(path)!r}, write=True)"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        assert f"process {os.getpid()} is writing to it" in done.stderr
        # Readers, in this process and in others, see what is committed while it is written.
        with Store(path) as reader:
            assert len(list(reader.rows())) == 1
            store.add(outcome(replace(JOB, start=1)))
            assert len(list(reader.rows())) == 2
        code = f"import qcqpbench.results.store\nprint(len(list(qcqpbench.results.store.Store({str(path)!r}).rows())))"
        assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True) == "2\n"
        store.add(outcome(replace(JOB, start=2)))
    assert beside(path) == ["a.db"] and len(rows(path)) == 3
    Store(path, write=True).close()


def test_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    path, link = tmp_path / "a.db", tmp_path / "other" / "link.db"
    link.parent.mkdir()
    fill(path, outcome())
    link.symlink_to(path)
    with Store(path, write=True), pytest.raises(QcqpbenchError, match=r"link\.db: process .* is writing to it"):
        Store(link, write=True)
    fill(link, outcome(replace(JOB, start=1)))
    assert len(rows(path)) == 2
    assert beside(path) == ["a.db", "other"] and beside(link) == ["link.db"]


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    fill(tmp_path / "a.db", outcome())
    with Store(tmp_path / "a.db") as store, pytest.raises(QcqpbenchError, match="readonly"):
        store.begin("run", {})


ADD_FOREVER = """
import itertools, os, sys
sys.path.insert(0, {root!r})
from tests.results.test_store import JOB, Store, outcome, replace
import numpy as np
with Store({path!r}, write=True) as store:
    store.begin("run", {{}})
    first = len(list(store.rows()))
    for k in itertools.count(first):
        store.add(outcome(replace(JOB, start=k), point=np.full((2, 50), k)))
        os.write(1, b"%d\\n" % k)
"""


def test_what_was_added_outlives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    command = [sys.executable, "-c", ADD_FOREVER.format(root=str(ROOT), path=str(path))]
    last = -1
    for wanted in (1, 400, 37):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= last + wanted:
                    break
            process.send_signal(signal.SIGKILL)
            told = [int(line), *map(int, process.stdout.read().split())]
        found = rows(path)
        assert [row["start"] for row in found] == list(range(len(found)))
        # One more may have been committed and not told any more.
        assert max(told) + 1 <= len(found) <= max(told) + 2
        assert intact(path)
        with Store(path) as store:
            assert all((store.point(row["id"]) == row["start"]).all() for row in found)
        last = len(found) - 1


ADD_UNTIL_FULL = """
import resource, sys
sys.path.insert(0, {root!r})
from tests.results.test_store import JOB, Store, outcome, replace
import numpy as np
{limit}
k = 0
try:
    with Store({path!r}, write=True) as store:
        store.begin("run", {{}})
        for k in range(10_000):
            store.add(outcome(replace(JOB, start=k), point=np.full((2, 50), k)))
            print(k, flush=True)
except Exception as error:
    print(type(error).__name__, error, sep="\\n")
"""


def add_until_full(path: Path, limit: str = "") -> list[str]:
    command = [sys.executable, "-c", ADD_UNTIL_FULL.format(root=str(ROOT), path=str(path), limit=limit)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def check_full(path: Path, said: list[str]) -> None:
    assert said[-2] == "QcqpbenchError"
    assert said[-1].startswith(f"{path}: cannot be written: ")
    assert said[-1].endswith("the rows before are safe, so make room and run again")
    kept = int(said[-3]) + 1
    assert kept > 10
    assert [row["start"] for row in rows(path)] == list(range(kept))
    assert intact(path)


def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))"
    said = add_until_full(tmp_path / "a.db", limit)
    check_full(tmp_path / "a.db", said)
    fill(tmp_path / "a.db", outcome(replace(JOB, start=99_999)))
    assert len(rows(tmp_path / "a.db")) == int(said[-3]) + 2


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        said = add_until_full(disk / "a.db")
        copy = Path(shutil.copytree(disk, tmp_path / "copy"))
    finally:
        subprocess.run(["umount", disk], check=True)
    check_full(copy / "a.db", [line.replace(str(disk), str(copy)) for line in said])


def test_no_room_to_begin_with(tmp_path: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    said = add_until_full(tmp_path / "a.db", limit)
    assert said[-2] == "QcqpbenchError"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_may_only_be_read(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "a.db"
        fill(path, outcome())
        path.chmod(0o644)
        before = path.read_bytes()
        code = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from qcqpbench.results.store import Store
os.setgid(65534)
os.setuid(65534)
print(len(list(Store({str(path)!r}).rows())))
try:
    Store({str(path)!r}, write=True)
except Exception as error:
    print(type(error).__name__, error)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["1", f"QcqpbenchError {path}: cannot be written: Permission denied"]
        assert path.read_bytes() == before and beside(path) == ["a.db"]


def test_results_are_json_for_sqlite_too(tmp_path: Path) -> None:
    """Infinity and NaN in details do not break SQLite's own JSON functions."""
    fill(tmp_path / "a.db", outcome(details={"a": math.inf, "b": math.nan, "c": 1.5}))
    with Store(tmp_path / "a.db") as store:
        found = store._connection.execute("SELECT json_extract(details, '$.c'), details FROM run").fetchone()
    assert found[0] == 1.5
    assert json.loads(found[1]) == {"a": "inf", "b": "nan", "c": 1.5}
