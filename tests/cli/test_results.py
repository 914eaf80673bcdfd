"""The commands verify, merge, export and sysinfo."""

import csv
import importlib.util
import json
import math
import shutil
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench.catalog.machine import Machine
from qcqpbench.cli.main import main
from qcqpbench.results import reverify
from qcqpbench.results._encoding import pack
from qcqpbench.results.row import COLUMNS
from qcqpbench.results.store import Store
from tests.support.old_files import make_older
from tests.support.results_files import CONVEX, TASK, add_runs, call, change, read_rows, rewrite_keys

NEEDS_PYARROW = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def six_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of six rows: of a task by its own solver and by a formulation, and of a QCQP."""
    path = tmp_path_factory.mktemp("results") / "six.db"
    add_runs(path, [TASK], ["gip", "slsqp[formulation=min_norm]"], starts=2)
    add_runs(path, [CONVEX], ["slsqp"], starts=2)
    return path


@pytest.fixture
def results(six_rows: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(six_rows, tmp_path / "results.db"))


# --- verify ---


def test_verify_agrees_with_the_rows_of_runs(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = results.read_bytes()
    assert call(capsys, "verify", results) == (0, [f"{results}: 6 rows, 6 points re-evaluated: all as stored"])
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    ("id", "name", "value"),
    [(1, "margin", "margin + 1e-16"), (1, "margin", "NULL"), (2, "kappa_bar", "kappa_bar * 2"), (3, "margin", "0.5"),
     (4, "overlap", "1"), (5, "objective", "objective - 1"), (5, "violation", "1"), (6, "point_status", "'infeasible'"),
     (1, "point_status", "'invalid'"), (3, "violation", "0.5"), (4, "objective", "objective * 2"),
     (4, "point_status", "'infeasible'")],
)  # fmt: skip
def test_verify_prints_the_values_that_differ(
    results: Path, capsys: pytest.CaptureFixture[str], id: int, name: str, value: str
) -> None:
    original = {row.id: getattr(row, name) for row in read_rows(results)}[id]
    change(results, f"UPDATE run SET {name} = {value} WHERE id = {id}")
    stored = {row.id: getattr(row, name) for row in read_rows(results)}[id]
    assert original != stored
    code, lines = call(capsys, "verify", results)
    assert code == 1
    assert lines[0].startswith(f"run {id}: {name} is {text(original)}, stored is {text(stored)} (")
    assert lines[1:] == [f"{results}: 6 rows, 6 points re-evaluated: 1 differ"]


def text(value: Any) -> str:
    return f"'{value.value}'" if isinstance(value, Enum) else repr(value)


def test_verify_notices_a_changed_point(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(results) as store:
        point = store.point(1)
    assert point is not None
    point[0, 0] *= -1
    change(results, "UPDATE payload SET point = ? WHERE run = 1", values=(pack(point),))
    code, lines = call(capsys, "verify", results)
    assert code == 1
    assert lines[0].startswith("run 1: margin is ")


def test_rows_of_schema_1_cannot_be_checked_in_full(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_older(results, 1)
    code, (line, last) = call(capsys, "verify", results)
    reason = "objective, violation and point_status are computed from x, which files of schema 1 do not store"
    assert code == 1 and line == f"could not be checked: 2 rows: {reason}"
    assert last == f"{results}: 6 rows, 6 points re-evaluated: could not be checked: 2 rows"


def test_points_of_a_problem_that_has_changed_are_not_evaluated(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check rows of a generator or file that changed since; the other id is printed once."""
    change(results, "UPDATE run SET problem_id = 'abc' WHERE solver LIKE 'gip%'")
    rewrite_keys(results)
    code, lines = call(capsys, "verify", results)
    assert code == 1
    assert f"problem_id is {qcqpbench.problem(TASK).id!r}, stored is 'abc'" in lines[0]
    assert lines[1:] == [f"{results}: 6 rows, 4 points re-evaluated: 1 differ"]


def test_rows_of_problems_that_cannot_be_built_are_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    instance, results = tmp_path / "instance.npz", tmp_path / "a.db"
    qcqpbench.write(qcqpbench.problem(TASK), instance)
    add_runs(results, [str(instance), CONVEX], ["slsqp"], starts=2)
    assert call(capsys, "verify", results)[0] == 0
    instance.unlink()
    change(results, "UPDATE run SET problem = 'bygone[m=3]' WHERE problem LIKE 'class%'")
    code, (first, second, last) = call(capsys, "verify", results)
    assert code == 1
    assert first == f"could not be checked: 2 rows: {instance}: no such file"
    assert second.startswith("could not be checked: 2 rows: unknown problem 'bygone'")
    assert last == f"{results}: 4 rows, 0 points re-evaluated: could not be checked: 4 rows"


def test_each_problem_is_built_once(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(
        reverify,
        "problem_apart",
        lambda text: loaded.append(text) or qcqpbench.problem(text),  # type: ignore[func-returns-value]
    )
    assert main(["verify", str(results)]) == 0
    assert len(loaded) == 2


def test_rows_of_a_solver_that_is_not_installed_are_verified(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "UPDATE run SET solver = 'elsewhere'")
    rewrite_keys(results)
    assert call(capsys, "verify", results)[0] == 0


# --- merge ---


def test_merge_names_a_damaged_source(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, target = tmp_path / "bad.db", tmp_path / "all.db"
    content = bytearray(results.read_bytes())
    content[8192:] = b"z" * (len(content) - 8192)
    bad.write_bytes(content)
    code, (line,) = call(capsys, "merge", bad, "-o", target)
    assert code == 2 and line.startswith(f"qcqpbench: {bad}: must be a qcqpbench results file, but it is damaged")
    assert bad.read_bytes() == content


def test_merge_adds_new_rows_and_counts_the_others(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, target = tmp_path / "other.db", tmp_path / "all.db"
    add_runs(other, [TASK], ["slsqp"], starts=3)
    code, lines = call(capsys, "merge", results, other, results, "-o", target)
    left_out = f"left out: {target} has them already"
    assert code == 0
    assert lines == [f"{results}: 6 new rows", f"{other}: 3 new rows", f"{results}: 0 new rows, 6 {left_out}"]
    lines = call(capsys, "merge", other, target, "-o", target)[1]
    assert lines == [f"{other}: 0 new rows, 3 {left_out}", f"{target}: 0 new rows, 9 {left_out}"]
    with Store(target) as store:
        assert len(list(store.rows())) == 9 and len(store.invocations()) == 3
    assert call(capsys, "verify", target)[0] == 0


def test_merge_reads_all_files_before_it_writes(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = call(capsys, "merge", results, tmp_path / "none.db", "-o", tmp_path / "all.db")
    assert (code, lines) == (2, [f"qcqpbench: {tmp_path / 'none.db'}: no such file"])
    assert [path.name for path in tmp_path.iterdir()] == ["results.db"]


# --- export ---


def test_export_writes_csv(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a.csv"
    change(results, """UPDATE run SET message = 'a "b",' || char(10) || 'é' WHERE id = 2""")
    assert call(capsys, "export", results, target) == (0, [f"{target}: 6 rows"])
    with target.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert set(COLUMNS) - set(table[0]) == {"number", "machine"}
    for row, expected in zip(table, read_rows(results), strict=True):
        for name in ("margin", "objective", "solve_seconds"):
            assert (float(row[name]) if row[name] else None) == getattr(expected, name)
        assert (float(row["time_limit"]) if row["time_limit"] else math.inf) == expected.time_limit
        for name in ("id", "start", "iterations", "memory_limit_bytes"):
            assert (int(row[name]) if row[name] else None) == getattr(expected, name)
        for name in ("key", "solver", "problem_id", "message", "termination"):
            assert row[name] == str(getattr(expected, name))
        assert (json.loads(row["details"]) if row["details"] else None) == expected.details
        of_problem = (row["problem_name"], row["m"], row["load"], row["seed"])
        assert of_problem == (expected.problem.partition("[")[0], "4" if row["margin"] else "5", "1.0", "0")
        assert row["solver_name"] == expected.solver.partition("[")[0]
        assert (row["cpu"], row["commit"], row["command"]) == ("a CPU", "c0ffee", "a, command")
    assert len({row["invocation"] for row in table}) == 2


@NEEDS_PYARROW
def test_export_writes_the_same_table_as_parquet(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import parquet  # noqa: PLC0415

    assert call(capsys, "export", results, tmp_path / "a.parquet")[1] == [f"{tmp_path / 'a.parquet'}: 6 rows"]
    assert main(["export", str(results), str(tmp_path / "a.csv")]) == 0
    table = parquet.read_table(tmp_path / "a.parquet")
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        for row, expected in zip(table.to_pylist(), csv.DictReader(file), strict=True):
            assert {name: "" if value is None else str(value) for name, value in row.items()} == expected
            assert list(row) == list(expected)
    for row, origin in zip(table.to_pylist(), read_rows(results), strict=True):
        assert [row["margin"], row["start"], row["solver"]] == [origin.margin, origin.start, origin.solver]


@NEEDS_PYARROW
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_export_of_no_rows_writes_an_empty_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    Store(tmp_path / "a.db", write=True).close()
    target = (tmp_path / "a").with_suffix(suffix)
    assert call(capsys, "export", tmp_path / "a.db", target) == (0, [f"{target}: 0 rows"])
    assert target.exists()


def test_export_writes_the_rows_that_count_or_all(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(results, "UPDATE run SET key = (SELECT key FROM run WHERE id = 1) WHERE id = 2")
    reason = "1 replaced by newer rows of the same runs (--all has them)"
    assert call(capsys, "export", results, tmp_path / "a.csv")[1] == [
        f"{tmp_path / 'a.csv'}: 5 rows; left out: {reason}"
    ]
    assert call(capsys, "export", results, tmp_path / "a.csv", "--all")[1] == [f"{tmp_path / 'a.csv'}: 6 rows"]


def test_export_to_parquet_needs_pyarrow(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, lines = call(capsys, "export", results, tmp_path / "a.parquet")
    assert (code, lines) == (
        2, ["qcqpbench: Parquet needs the package pyarrow: pip install 'qcqpbench[parquet]'"]
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["results.db"]


# --- sysinfo, list suites, wrong usage ---


def test_sysinfo_prints_the_facts_about_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sysinfo", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(Machine.__dataclass_fields__)
    assert main(["sysinfo"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(Machine.__dataclass_fields__)


def test_list_suites_prints_the_shipped_suites(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "suites", "--json"]) == 0
    suites = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert sorted(suites) == [
        "best_known",
        "breadth",
        "capacity",
        "default",
        "global",
        "paper",
        "power",
        "proved",
        "scaling",
        "smoke",
    ]
    assert suites["scaling"]["runs"] == suites["scaling"]["problems"] * 2
    assert main(["list", "suites"]) == 0
    assert "gip and ipopt as problems grow" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "none.db"], "none.db: no such file"),
        (["verify", "text.db"], "text.db: must be a qcqpbench results file, got another kind of file"),
        (["verify", "."], ".: must be a qcqpbench results file, got a folder"),
        (["merge", "results.db"], "the following arguments are required: -o/--output"),
        (["merge", "text.db", "-o", "all.db"], "text.db: must be a qcqpbench results file, got another kind of file"),
        (
            ["merge", "results.db", "-o", "text.db"],
            "text.db: must be a qcqpbench results file, got another kind of file",
        ),
        (["merge", "results.db", "-o", "no/all.db"], "no/all.db: cannot be written: No such file or directory"),
        (["export", "none.db", "a.csv"], "none.db: no such file"),
        (["export", "results.db", "a.xls"], "a.xls: unknown file format '.xls'; allowed: .csv, .parquet"),
        (["export", "results.db", "no/a.csv"], "no/a.csv: cannot be written: No such file or directory"),
        (["export", "results.db", "folder.csv"], "folder.csv: cannot be written: Is a directory"),
        (["sysinfo", "here"], "unrecognized arguments: here"),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str],
    message: str,
    results: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("text\n" * 100)
    Path("folder.csv").mkdir()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    code, lines = call(capsys, *words)
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"qcqpbench: {message}")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
