"""Results files that were forged, damaged or written by other versions: what the commands that read them say."""

import contextlib
import csv
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP, QcqpbenchError
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.catalog.best_known import shipped
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.cli.main import main
from qcqpbench.results import schema
from qcqpbench.results._blobs import pack, unpack, unpack_trace
from qcqpbench.results.export import escape, unescape
from qcqpbench.results.improve_best_known import _offsets
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import solve
from qcqpbench.run.job import Outcome, load_problem
from qcqpbench.run.suite import Suite
from qcqpbench.run.verify import verify
from tests.support.old_files import make_older

TASK, CONVEX = "covariance_perceptron[m=4,load=1]", "classical_perceptron[m=5]"


def fill(path: Path, problems: list[str], solvers: list[str], starts: int = 1, **changes: Any) -> None:
    with Store(path, write=True) as store:
        store.begin("a command", {"cpu": "a CPU", "commit": "c0ffee"})
        for number, job in enumerate(Suite.of(problems, solvers, starts).jobs()):
            attempt = solve(load_problem(job.problem), job.solver)
            store.add(Outcome(job, replace(attempt, **changes), begun=1.7e9 + number))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rows: of a task by its own solver and by a formulation, and of a QCQP."""
    path = tmp_path_factory.mktemp("hostile") / "made.db"
    fill(path, [TASK], ["gip[starts=1]", "slsqp[formulation=min_norm]"])
    fill(path, [CONVEX], ["slsqp"])
    return path


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "results.db"))


def change(path: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement, values)


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str]]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


def readers(path: Path) -> Iterator[tuple[str, ...]]:
    """The commands that read a results file."""
    yield "verify", str(path)
    yield "report", str(path), "-o", str(path.with_name("report.html"))
    yield "export", str(path), str(path.with_name("table.csv"))
    yield "merge", str(path), "-o", str(path.with_name("all.db"))


# --- what verify must not pass ---


@pytest.mark.parametrize(
    ("name", "value"),
    [("margin", 0.5), ("kappa_bar", 40.0), ("objective", 1.0), ("violation", 0.0), ("relative_violation", 0.0),
     ("overlap", 0.1), ("test_accuracy", 1.0), ("point_status", "feasible"), ("point_status", "infeasible")],
)  # fmt: skip
def test_a_value_without_a_point_differs(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, value: Any
) -> None:
    nothing = ", ".join(
        f"{each} = NULL"
        for each in ("margin", "kappa_bar", "objective", "violation", "relative_violation", "overlap", "test_accuracy")
    )
    change(results, f"UPDATE run SET {nothing}, point_status = 'none' WHERE id = 1")
    change(results, "UPDATE payload SET point = NULL, x = NULL WHERE run = 1")
    assert said(capsys, "verify", results) == (0, [f"{results}: 3 rows, 2 points re-evaluated: all as stored"])
    change(results, f"UPDATE run SET {name} = ? WHERE id = 1", values=(value,))
    code, (line, last) = said(capsys, "verify", results)
    assert code == 1 and line.startswith(f"run 1: {name} is ") and f", stored is {value!r} (" in line
    assert last == f"{results}: 3 rows, 2 points re-evaluated: 1 differ"


@pytest.mark.parametrize("seed", range(4))
def test_noise_in_the_file_is_one_line(results: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    content = bytearray(results.read_bytes())
    content[4096:12288] = np.random.default_rng(seed).bytes(8192)
    results.write_bytes(content)
    for words in readers(results):
        code, lines = said(capsys, *words)
        assert code in (1, 2) and len(lines) == 1 and lines[0].startswith(f"qcqpbench: {results}: is damaged"), words
    assert results.read_bytes() == content
    assert [each.name for each in results.parent.iterdir()] == ["results.db"]


def test_an_index_that_disagrees_with_its_table_is_noticed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the full check of SQLite finds it; the quick one does not."""
    change(results, "DROP INDEX run_by_key", "CREATE INDEX run_by_key ON run (key, begun, termination) WHERE id > 1")
    change(
        results,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = 'CREATE INDEX run_by_key ON run (key, begun, termination)' "
        "WHERE name = 'run_by_key'",
    )
    code, (line,) = said(capsys, "verify", results)
    assert code == 2 and line.startswith(f"qcqpbench: {results}: is damaged: ")


def test_rows_of_nobody_are_noticed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "UPDATE run SET invocation = 99 WHERE id = 2")
    for words in readers(results):
        code, (line,) = said(capsys, *words)
        assert code == 2 and "row 2 of run refers to a missing row of invocation" in line


FORGED = "CREATE VIEW latest AS SELECT * FROM run WHERE id = 1"


@pytest.mark.parametrize(
    ("statement", "what"),
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
def test_a_schema_that_is_not_ours_is_refused(
    results: Path, capsys: pytest.CaptureFixture[str], statement: str, what: str
) -> None:
    change(results, statement)
    before = results.read_bytes()
    for words in (*readers(results), ("merge", str(results), "-o", str(results))):
        code, lines = said(capsys, *words)
        must = "must have the schema of a qcqpbench results file"
        assert (code, lines) == (2, [f"qcqpbench: {results}: {must}, but its {what}"])
    assert results.read_bytes() == before


def test_indexes_of_other_people_may_stay(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "CREATE INDEX mine ON run (margin)", "ANALYZE")
    assert said(capsys, "verify", results)[0] == 0


@pytest.mark.parametrize("schema", range(1, len(schema.MIGRATIONS)))
def test_a_forged_view_of_an_older_file_is_not_read(results: Path, tmp_path: Path, schema: int) -> None:
    make_older(results, schema)
    change(results, "DROP VIEW IF EXISTS latest", FORGED)
    assert len(read([results]).rows) == 3
    with Store(results) as store:
        assert len(list(store.rows())) == 3


def test_a_trigger_of_an_older_file_is_refused_before_it_runs(results: Path) -> None:
    make_older(results, 5)
    change(results, "CREATE TRIGGER t AFTER UPDATE ON run BEGIN UPDATE run SET margin = 40; END")
    before = results.read_bytes()
    with pytest.raises(QcqpbenchError, match="its trigger t is not one of qcqpbench's"):
        Store(results)
    assert results.read_bytes() == before


def test_a_row_without_x_is_not_passed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever takes x away can write any objective and violation."""
    change(results, "UPDATE payload SET x = NULL WHERE run = 2", "UPDATE run SET violation = 0 WHERE id = 2")
    code, lines = said(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("could not be checked: 1 row: objective, violation and point_status")


# --- the tolerance, infinity, problems that are not there ---


def test_feasibility_is_judged_by_the_tolerance_of_the_row(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a solver of that name declares here."""
    x = unpack(pack(np.full(5, 1e-3)) or b"")
    finding = verify(load_problem(CONVEX), x, 1e9)
    assert finding.relative_violation is not None and finding.relative_violation > 1e-3
    change(results, "UPDATE payload SET point = ? WHERE run = 3", values=(pack(x),))
    columns = ("objective", "violation", "relative_violation")
    for name in columns:
        change(results, f"UPDATE run SET {name} = ? WHERE id = 3", values=(getattr(finding, name),))
    change(results, "UPDATE run SET tolerance = 1e9, point_status = 'feasible' WHERE id = 3")
    assert said(capsys, "verify", results)[0] == 0
    change(results, "UPDATE run SET tolerance = 1e-6 WHERE id = 3")
    code, lines = said(capsys, "verify", results)
    assert code == 1 and lines[0].startswith("run 3: point_status is 'infeasible', stored is 'feasible'")


def test_findings_that_are_infinite_verify_and_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = QCQP.from_matrices((np.eye(2), None, 0.0), [(1e10 * np.eye(2), None, 0.0, 1.0)])
    results, instance = tmp_path / "a.db", tmp_path / "huge.npz"
    qcqpbench.write(huge, instance)
    x = np.array([1e200, 1.0])
    with np.errstate(over="ignore"):
        finding = verify(huge, x)
        assert (finding.objective, finding.violation) == (np.inf, np.inf)
        (job,) = Suite.of([str(instance)], ["slsqp"]).jobs()
        attempt = replace(solve(huge, "slsqp"), **vars(finding), point=x, termination=Termination.STALLED)
        with Store(results, write=True) as store:
            store.begin("a command", {})
            store.add(Outcome(job, attempt))
            (row,) = store.rows()
        assert (row["objective"], row["violation"], row["relative_violation"]) == (np.inf, np.inf, np.inf)
        assert row["time_limit"] is None
        assert said(capsys, "verify", results)[0] == 0
        assert said(capsys, "report", results, "-o", tmp_path / "a.html")[0] == 0
    page = (tmp_path / "a.html").read_text()
    data = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    assert json.loads(data, parse_constant=pytest.fail)["rows"]["violation"] == [None]
    assert 'data-value="inf' not in page
    assert said(capsys, "export", results, tmp_path / "a.csv")[0] == 0
    with (tmp_path / "a.csv").open(newline="") as file:
        (line,) = csv.DictReader(file)
    assert float(line["violation"]) == np.inf
    # Files before schema 6 have nothing in its place.
    make_older(results, 5)
    change(results, "UPDATE run SET objective = NULL, violation = NULL, relative_violation = NULL")
    with np.errstate(over="ignore"):
        assert said(capsys, "verify", results)[0] == 0


def test_what_cannot_be_checked_is_told_apart_from_what_differs(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(results, "UPDATE run SET problem = 'gone/x.qplib' WHERE id = 3")
    change(results, "UPDATE run SET margin = 7 WHERE id = 1")
    change(results, "UPDATE run SET formulation = 'of_tomorrow' WHERE id = 2")
    code, lines = said(capsys, "verify", results)
    assert code == 1 and len(lines) == 4
    assert lines[0].startswith("run 1: margin is ")
    assert lines[1].startswith("could not be checked: 1 row: unknown formulation 'of_tomorrow'")
    assert lines[2] == "could not be checked: 1 row: gone/x.qplib: no such file"
    assert lines[3] == f"{results}: 3 rows, 1 points re-evaluated: 1 differ, could not be checked: 2 rows"


PLUGIN = """
import sys
from importlib.metadata import EntryPoint
import qcqpbench.catalog.registry as registry
trap = EntryPoint("trap", "tests.trap_that_is_not_there:Trap", "qcqpbench.solvers")
known = registry._entry_points
registry._entry_points = lambda group: {**known(group), **({"trap": trap} if group == "qcqpbench.solvers" else {})}
from qcqpbench.cli.main import main
for words in WORDS:
    assert main(words) == 0, words
    loaded = [name for name in sys.modules if name.startswith(("qcqpbench.solvers.", "tests"))]
    assert words[0] == "report" or not loaded, (words, loaded)
    assert not any(name.startswith("tests") for name in sys.modules), words
"""


def test_reading_commands_import_no_solver_and_no_plug_in(results: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.csv"
    few.write_text("".join(shipped().read_text().splitlines(keepends=True)[:2]))
    change(results, "UPDATE run SET solver = 'trap' WHERE id = 1")
    words = [["verify", str(results)], ["best-known", "check", str(few)], ["report", str(results), "-o", "-"]]
    code = PLUGIN.replace("WORDS", repr(words))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""


# --- JSON and arrays that nobody wrote on purpose ---

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


@pytest.mark.parametrize("name", ["point", "x", "multipliers", "trace"])
@pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS)
def test_arrays_that_cannot_be_read(
    results: Path, capsys: pytest.CaptureFixture[str], name: str, blob: bytes | str
) -> None:
    if name == "trace":
        blob = blob if isinstance(blob, str) else struct.pack("<d", 1.0) + blob
    change(results, f"UPDATE payload SET {name} = ? WHERE run = 2", values=(blob,))
    code, lines = said(capsys, "verify", results)
    assert code == 1 and len(lines) == 2
    assert lines[0].startswith(f"could not be checked: 1 row: {results}: run 2: cannot read its {name}: ")


def test_every_command_says_so_or_does_without(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "UPDATE payload SET point = ?1, x = ?1, multipliers = ?1, trace = ?1", values=(BLOBS["cut"],))
    codes = []
    for words in readers(results):
        code, lines = said(capsys, *words)
        codes.append(code)
        assert code != 2 or len(lines) == 1, words
    # Export has no arrays, and merge takes them as they are.
    assert codes == [1, 2, 0, 0]


@pytest.mark.parametrize("blob", [blob for blob in BLOBS.values() if isinstance(blob, bytes)], ids=list(BLOBS)[:-1])
def test_bad_bytes_are_a_value_error(blob: bytes) -> None:
    with pytest.raises(ValueError, match=r"its |array is too big"):
        unpack(blob)
    if blob:
        with pytest.raises(ValueError, match=r"its |array is too big"):
            unpack_trace(struct.pack("<d", 1.0) + blob)


@pytest.mark.parametrize("text", ["{", "[1]", "7", "null", "[" * 100_000, '{"a": '])
def test_json_that_cannot_be_read(results: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    change(results, "INSERT INTO machine VALUES (1, '{}')", "UPDATE run SET machine = 1 WHERE id = 2")
    places = {
        "UPDATE run SET details = ? WHERE id = 2": "run 2: details must be ",
        "UPDATE machine SET facts = ? WHERE id = 1": "machine 1 must be ",
        "UPDATE invocation SET machine = ? WHERE id = 1": "invocation 1: machine must be ",
    }
    for number, (statement, message) in enumerate(places.items()):
        path = Path(shutil.copy(results, results.with_name(f"{number}.db")))
        change(path, statement, values=(text,))
        for words in readers(path):
            code, (line,) = said(capsys, *words)
            assert code == 2 and line.startswith(f"qcqpbench: {path}: {message}"), words


@pytest.mark.parametrize(("name", "value"), [("margin", "forty"), ("start", "first"), ("termination", b"\xff")])
def test_values_of_another_type(results: Path, capsys: pytest.CaptureFixture[str], name: str, value: Any) -> None:
    change(results, f"UPDATE run SET {name} = ? WHERE id = 2", values=(value,))
    for words in readers(results):
        code, (line,) = said(capsys, *words)
        assert code == 2 and line.startswith(f"qcqpbench: {results}: run 2: {name} must be "), words


def test_a_bad_row_does_not_come_into_another_file(results: Path, tmp_path: Path) -> None:
    change(results, "UPDATE run SET margin = 'forty' WHERE id = 2")
    with Store(tmp_path / "all.db", write=True) as store:
        with pytest.raises(QcqpbenchError, match="run 2: margin must be a number, got 'forty'"):
            store.merge(results)
        assert store.count() == 0


@pytest.mark.parametrize("value", ["abc", None, [1], "inf"])
def test_offsets_that_are_no_numbers_prove_nothing(value: Any) -> None:
    assert _offsets({"offset_0": 1.0, "offset_1": value}) is None
    assert _offsets({"offset_0": 1.0, "other": value}) is not None


# --- other versions ---


def test_words_of_a_newer_version_are_shown_as_they_are(results: Path, tmp_path: Path) -> None:
    change(results, "UPDATE run SET termination = 'bored', point_status = 'blurred', scope = 'cosmic' WHERE id = 1")
    read_back = read([results])
    found = contents(read_back)
    assert ("bored", "bored", "blurred") in {
        (each["termination"], each["claim"], each["point_status"]) for each in found["statuses"]
    }
    assert "bored" in markdown(read_back) and "blurred" in html(read_back)


def test_the_scope_is_the_row_s(results: Path) -> None:
    change(results, "UPDATE run SET scope = 'bound' WHERE id = 1", "UPDATE run SET solver = 'elsewhere' WHERE id = 1")
    assert {row["solver"]: row["scope"] for row in read([results]).rows}["elsewhere"] == "bound"
    make_older(results, 5)
    assert {row["solver"]: row["scope"] for row in read([results]).rows}["elsewhere"] == "local"


def test_rows_that_are_left_out_are_counted(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(results, write=True) as store:
        rows = list(store.rows())
        store.begin("again", {})
        (job,) = (job for job in Suite.of([TASK], ["gip[starts=1]"]).jobs())
        attempt = solve(load_problem(TASK), job.solver)
        assert job.key == rows[0]["key"]
        store.add(Outcome(job, attempt, begun=1.8e9))
        other = replace(job, solver="slsqp", version="?")
        nothing = replace(attempt, termination=Termination.SKIPPED, point=None, point_status=PointStatus.NONE)
        nothing = replace(nothing, margin=None, kappa_bar=None, overlap=None, solver="slsqp", version="?")
        store.add(Outcome(other, nothing, begun=1.6e9))
        store.add(Outcome(replace(other, version="1"), replace(attempt, solver="slsqp", version="1"), begun=1.8e9))
    why = "1 replaced by newer rows of the same runs, 1 skipped and run later"
    code, lines = said(capsys, "report", results, "-o", tmp_path / "a.html")
    assert code == 0 and f"Rows left out: {why}." in lines
    assert f"<li>Rows left out: {why}.</li>" in (tmp_path / "a.html").read_text()
    assert said(capsys, "export", results, tmp_path / "a.csv")[1][0].endswith(
        f"a.csv: 4 rows; left out: {why} (--all has them)"
    )
    shutil.copy(results, tmp_path / "b.db")
    both = read([results, tmp_path / "b.db"])
    assert (len(both.rows), both.repeated, str(both.left_out)) == (4, 6, why)
    # In two files, the same as in one; the older file may be named last.
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    for path, rest in ((first, "invocation > 2"), (second, "invocation <= 2")):
        shutil.copy(results, path)
        change(
            path, f"DELETE FROM payload WHERE run IN (SELECT id FROM run WHERE {rest})", f"DELETE FROM run WHERE {rest}"
        )
    for order in ([first, second], [second, first]):
        split = read(order)
        assert (len(split.rows), split.repeated, str(split.left_out)) == (4, 0, why)


# --- machines ---


def test_a_row_has_the_machine_it_ran_on(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = tmp_path / "cluster.db", tmp_path / "all.db"
    node = {"cpu": "node CPU", "commit": "beef", "packages": {"numpy": "2"}}
    (job,) = Suite.of([CONVEX], ["slsqp"]).jobs()
    attempt = solve(load_problem(CONVEX), job.solver)
    driver = {"cpu": "driver CPU", "commit": "feed"}
    given = [node, None, dict(reversed(node.items())), driver, {"cpu": "other CPU"}]
    with Store(path, write=True) as store:
        store.begin("a command", driver)
        for start, machine in enumerate(given):
            store.add(Outcome(replace(job, start=start), attempt, machine=machine))
    for file in (path, target):
        if file is target:
            with Store(target, write=True) as store:
                # So that ids differ.
                store.begin("before", {})
                store.add(Outcome(replace(job, start=9), attempt, machine={"cpu": "third CPU"}))
                assert store.merge(path) == 5
        with Store(file) as store:
            rows = {row["start"]: row["machine"] for row in store.rows()}
            ((count,),) = store._connection.execute("SELECT count(*) FROM machine").fetchall()
        assert [rows[start] for start in range(5)] == [node, driver, node, driver, {"cpu": "other CPU"}]
        assert count == 2 + (file is target)
    assert main(["export", str(path), str(tmp_path / "a.csv")]) == 0
    with (tmp_path / "a.csv").open(newline="") as table:
        cells = [(row["cpu"], row["commit"]) for row in csv.DictReader(table)]
    assert cells == [("node CPU", "beef"), ("driver CPU", "feed")] * 2 + [("other CPU", "")]
    report = read([path])
    assert [each["facts"]["cpu"] for each in report.machines] == ["node CPU", "driver CPU", "other CPU"]
    assert [row["machine"] for row in report.rows] == [0, 1, 0, 1, 2]


# --- names and streams that are not UTF-8, spreadsheets ---


def test_names_that_are_not_utf_8(made: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"odd\xff")
    results, problem = tmp_path / f"{name}.db", tmp_path / f"{name}.npz"
    shutil.copy(made, results)
    qcqpbench.write(load_problem(CONVEX), problem)
    commands: list[list[str]] = [
        ["verify", str(results)],
        ["report", str(results), "-o", str(tmp_path / f"{name}.html")],
        ["report", str(results), "-o", str(tmp_path / f"{name}.md")],
        ["export", str(results), str(tmp_path / f"{name}.csv")],
        ["merge", str(results), "-o", str(tmp_path / f"{name}2.db")],
        ["convert", str(problem), str(tmp_path / f"{name}.lp")],
        ["theory"],
        ["report", str(tmp_path / f"{name}none.db")],
    ]
    code = "import sys\nfrom qcqpbench.cli.main import main\nfor words in eval(sys.argv[1]): print(main(words))"
    done = subprocess.run(
        [sys.executable, "-c", code, ascii(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()[-2000:]
    codes = [line for line in done.stdout.decode("ascii").splitlines() if line in ("0", "1", "2")]
    assert codes == ["0"] * 7 + ["2"]
    assert b"odd\\udcffnone.db: no such file" in done.stderr


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "'=1", "''-", "a=1", "'a", "", "plain"])
def test_text_that_a_spreadsheet_takes_for_a_formula(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert not escape(text).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unescape(escape(text)) == text
    change(results, "UPDATE run SET message = ? WHERE id = 1", values=(text,))
    change(results, "UPDATE run SET margin = -0.5 WHERE id = 1")
    assert said(capsys, "export", results, tmp_path / "a.csv")[0] == 0
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        first = next(iter(csv.DictReader(file)))
    assert (first["message"], first["margin"]) == (escape(text), "-0.5")


def test_long_text_is_cut_where_it_is_shown(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "UPDATE run SET point_status = ?, message = ?1, version = ?1", values=("x" * 1_000_000,))
    code, lines = said(capsys, "verify", results)
    assert code == 1 and max(map(len, lines)) < 1000
    for name in ("a.html", "a.md"):
        assert said(capsys, "report", results, "-o", tmp_path / name)[0] == 0
        assert (tmp_path / name).stat().st_size < 300_000
