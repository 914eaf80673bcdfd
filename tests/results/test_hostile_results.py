"""Forged and damaged results files, read by all commands."""

import math
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench import QcqpbenchError
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.catalog.best_known import read_records, shipped_path
from qcqpbench.results import schema
from qcqpbench.results._encoding import pack, unpack, unpack_trace
from qcqpbench.results.public.improve_best_known import _offsets_in_details
from qcqpbench.results.store import Store
from tests.support.old_files import make_older
from tests.support.results_files import call, change, reading_commands, rewrite_keys

SCHEMA_WITHOUT_A_VIEW = 6
DAMAGED = "must be a qcqpbench results file, but it is damaged"

# --- damaged and forged files ---


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_in_a_file_are_one_line_of_error(
    results: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    content = bytearray(results.read_bytes())
    content[4096:12288] = np.random.default_rng(seed).bytes(8192)
    results.write_bytes(content)
    for words in reading_commands(results):
        code, lines = call(capsys, *words)
        assert code in (1, 2) and len(lines) == 1 and lines[0].startswith(f"qcqpbench: {results}: {DAMAGED}"), words
    assert results.read_bytes() == content
    assert [path.name for path in results.parent.iterdir()] == ["results.db"]


def test_verify_refuses_an_index_that_disagrees_with_its_table(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that verify runs the full check of SQLite; the quick one does not find this."""
    change(results, "DROP INDEX run_by_key", "CREATE INDEX run_by_key ON run (key, begun, termination) WHERE id > 1")
    change(
        results,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = 'CREATE INDEX run_by_key ON run (key, begun, termination)' "
        "WHERE name = 'run_by_key'",
    )
    code, (line,) = call(capsys, "verify", results)
    assert code == 2 and line.startswith(f"qcqpbench: {results}: {DAMAGED}: ")


def test_rows_without_an_invocation_are_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "UPDATE run SET invocation = 99 WHERE id = 2")
    for words in reading_commands(results):
        code, (line,) = call(capsys, *words)
        assert code == 2 and "row 2 of run refers to a missing row of invocation" in line


FORGED = "CREATE VIEW latest AS SELECT * FROM run WHERE id = 1"


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (FORGED, "view latest is not one of qcqpbench's"),
        ("CREATE TABLE latest (id)", "table latest is not one of qcqpbench's"),
        (
            "CREATE TRIGGER t AFTER INSERT ON run BEGIN UPDATE run SET margin = 40 WHERE id = new.id; END",
            "trigger t is not one of qcqpbench's",
        ),
        ("ALTER TABLE run ADD COLUMN more REAL", "table run was changed"),
        ("CREATE UNIQUE INDEX u ON run (solver, start, problem)", "index u is not one of qcqpbench's"),
        ("DROP TABLE machine", "table machine is missing"),
    ],
)
def test_tables_views_triggers_and_indexes_of_others_are_refused(
    results: Path, capsys: pytest.CaptureFixture[str], statement: str, fault: str
) -> None:
    change(results, statement)
    before = results.read_bytes()
    for words in (*reading_commands(results), ("merge", str(results), "-o", str(results))):
        code, lines = call(capsys, *words)
        must = "must have the schema of a qcqpbench results file"
        assert (code, lines) == (2, [f"qcqpbench: {results}: {must}, but its {fault}"])
    assert results.read_bytes() == before


def test_further_indexes_are_allowed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "CREATE INDEX mine ON run (margin)", "ANALYZE")
    assert call(capsys, "verify", results)[0] == 0


@pytest.mark.parametrize("schema", range(1, SCHEMA_WITHOUT_A_VIEW))
def test_a_forged_view_of_an_older_file_is_not_read(results: Path, tmp_path: Path, schema: int) -> None:
    make_older(results, schema)
    change(results, "DROP VIEW IF EXISTS latest", FORGED)
    assert len(read([results]).rows) == 3
    with Store(results) as store:
        assert len(list(store.rows())) == 3


@pytest.mark.parametrize("schema", range(SCHEMA_WITHOUT_A_VIEW, len(schema.MIGRATIONS)))
def test_a_view_in_a_file_whose_schema_has_none_is_refused(results: Path, schema: int) -> None:
    make_older(results, schema)
    change(results, FORGED)
    with pytest.raises(QcqpbenchError, match="its view latest is not one of qcqpbench's"):
        Store(results)


def test_a_trigger_of_an_older_file_is_refused_before_it_runs(results: Path) -> None:
    make_older(results, 5)
    change(results, "CREATE TRIGGER t AFTER UPDATE ON run BEGIN UPDATE run SET margin = 40; END")
    before = results.read_bytes()
    with pytest.raises(QcqpbenchError, match="its trigger t is not one of qcqpbench's"):
        Store(results)
    assert results.read_bytes() == before


PLUGIN = """
import sys
from importlib.metadata import EntryPoint
import qcqpbench.catalog.registry as registry
trap = EntryPoint("trap", "tests.trap_that_is_not_there:Trap", "qcqpbench.solvers")
entry_points = registry._entry_points
traps = {"qcqpbench.solvers": {"trap": trap}}
registry._entry_points = lambda group: {**entry_points(group), **traps.get(group, {})}
from qcqpbench.cli.main import main
for words in WORDS:
    assert main(words) == 0, words
    loaded = [name for name in sys.modules if name.startswith(("qcqpbench.solvers.", "tests"))]
    assert words[0] == "report" or not loaded, (words, loaded)
    assert not any(name.startswith("tests") for name in sys.modules), words
"""


def test_reading_commands_import_no_solver_and_no_plug_in(results: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.csv"
    few.write_text("".join(shipped_path().read_text().splitlines(keepends=True)[:2]))
    change(results, "UPDATE run SET solver = 'trap' WHERE id = 1")
    rewrite_keys(results)
    words = [["verify", str(results)], ["best-known", "check", str(few)], ["report", str(results), "-o", "-"]]
    code = PLUGIN.replace("WORDS", repr(words))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (record,) = read_records(few).values()
    assert done.stderr == f"[1/1] {record.problem}\n"


# --- unreadable values ---


BLOBS = {
    "empty": b"",
    "cut": (pack(np.ones((2, 4))) or b"")[:-3],
    "longer": (pack(np.ones((2, 4))) or b"") + b"more",
    "negative axes": struct.pack("<q", -1),
    "many axes": struct.pack("<q", 1 << 40),
    "negative shape": struct.pack("<qqq", 2, -2, -4) + bytes(64),
    "huge shape": struct.pack("<qqq", 2, 1 << 40, 1 << 40) + bytes(64),
    "overflowing shape": struct.pack("<qqqq", 3, 1 << 62, 4, 1) + bytes(64),
    "huge empty shape": struct.pack("<qqq", 2, 0, (1 << 63) - 1),
    "text": "no bytes",
}


@pytest.mark.parametrize("name", ["point", "formulation_point", "multipliers", "offsets", "tree", "trace"])
@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS)
def test_verify_counts_rows_with_unreadable_arrays(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, blob: bytes | str
) -> None:
    if name == "trace":
        blob = blob if isinstance(blob, str) else struct.pack("<d", 1.0) + blob
    change(results, f"UPDATE payload SET {name} = ? WHERE run = 2", values=(blob,))
    code, lines = call(capsys, "verify", results)
    assert code == 1 and len(lines) == 2
    assert lines[0].startswith(f"could not be checked: 1 row: {results}: run 2: {name} must be an encoded array: ")


def test_commands_that_need_arrays_refuse_unreadable_ones(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("point", "formulation_point", "multipliers", "offsets", "tree", "trace")
    change(results, f"UPDATE payload SET {', '.join(f'{name} = ?1' for name in names)}", values=(BLOBS["cut"],))
    codes = []
    for words in reading_commands(results):
        code, lines = call(capsys, *words)
        codes.append(code)
        assert code != 2 or len(lines) == 1, words
    # Export has no arrays, and merge copies them as they are.
    assert codes == [1, 2, 0, 0]


@pytest.mark.parametrize("blob", [blob for blob in BLOBS.values() if isinstance(blob, bytes)], ids=list(BLOBS)[:-1])
def test_unpacking_bytes_of_another_form_is_a_value_error(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"the (size|array|number of axes|shape) must .*, got |array is too big"):
        unpack(blob)
    if blob:
        with pytest.raises(ValueError, match=r"the (size|array|number of axes|shape) must .*, got |array is too big"):
            unpack_trace(struct.pack("<d", 1.0) + blob)


@pytest.mark.parametrize("text", ["{", "[1]", "7", "null", "[" * 100_000, '{"a": '])
def test_unreadable_json_is_one_line_of_error(results: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    change(results, "INSERT INTO machine VALUES (1, '{}')", "UPDATE run SET machine = 1 WHERE id = 2")
    places = {
        "UPDATE run SET details = ? WHERE id = 2": "run 2: details must be ",
        "UPDATE machine SET facts = ? WHERE id = 1": "machine 1 must be ",
        "UPDATE invocation SET machine = ? WHERE id = 1": "invocation 1: machine must be ",
    }
    for number, (statement, message) in enumerate(places.items()):
        path = Path(shutil.copy(results, results.with_name(f"{number}.db")))
        change(path, statement, values=(text,))
        for words in reading_commands(path):
            code, (line,) = call(capsys, *words)
            assert code == 2 and line.startswith(f"qcqpbench: {path}: {message}"), words


@pytest.mark.parametrize(
    ("name", "value", "requirement"),
    [
        ("margin", "forty", "a number"),
        ("start", "first", "a whole number"),
        ("peak_memory_bytes", "much", "a whole number"),
        ("begun", "today", "a number"),
        ("scope", b"local", "text"),
        ("termination", b"\xff", "text"),
        ("build_seconds", -1.0, "a finite number, 0 or more"),
        ("solve_seconds", -5.0, "a finite number, 0 or more"),
        ("solve_seconds", math.inf, "a finite number, 0 or more"),
        ("solve_seconds", "fast", "a finite number, 0 or more"),
        ("cpu_seconds", -math.inf, "a finite number, 0 or more"),
        ("time_limit", -5.0, "a positive number"),
        ("time_limit", 0.0, "a positive number"),
    ],
)
def test_values_of_a_wrong_type_or_range_are_one_line_of_error(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, value: Any, requirement: str
) -> None:
    change(results, f"UPDATE run SET {name} = ? WHERE id = 2", values=(value,))
    expected = f"qcqpbench: {results}: run 2: {name} must be {requirement}, got {value!r}"
    for words in reading_commands(results):
        assert call(capsys, *words) == (2, [expected]), words


def test_an_unreadable_row_is_not_merged(results: Path, tmp_path: Path) -> None:
    change(results, "UPDATE run SET margin = 'forty' WHERE id = 2")
    with Store(tmp_path / "all.db", write=True) as store:
        with pytest.raises(QcqpbenchError, match="run 2: margin must be a number, got 'forty'"):
            store.merge(results)
        assert store.count() == 0


@pytest.mark.parametrize("value", ["abc", None, [1], "inf"])
def test_offsets_that_are_not_numbers_are_ignored(value: Any) -> None:
    assert _offsets_in_details({"offset_0": 1.0, "offset_1": value}) is None
    assert _offsets_in_details({"offset_0": 1.0, "other": value}) is not None
