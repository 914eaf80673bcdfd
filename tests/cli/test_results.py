import contextlib
import csv
import importlib.util
import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.machine import Machine
from qcqpbench.cli.main import main
from qcqpbench.results import reverify
from qcqpbench.results.export import EXPORTED
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import random_start, solve
from qcqpbench.run.job import Outcome, load_problem
from qcqpbench.run.suite import Suite
from tests.support.old_files import make_older

TASK, CONVEX = "covariance_perceptron[m=4,load=1]", "classical_perceptron[m=5]"
NEEDS_PYARROW = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def run(path: Path, problems: list[str], solvers: list[str], starts: int = 2) -> None:
    with Store(path, write=True) as store:
        store.begin("a, command", {"cpu": "a CPU", "commit": "c0ffee"})
        for number, job in enumerate(Suite.of(problems, solvers, starts).jobs()):
            problem = load_problem(job.problem)
            attempt = solve(problem, job.solver, random_start(problem, job.start, job.seed))
            store.add(Outcome(job, attempt, "printed\n", f"local-{number % 2}", 1.7e9 + number))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a task by its own solver and by a formulation, and of a QCQP; 6 rows."""
    path = tmp_path_factory.mktemp("results") / "made.db"
    run(path, [TASK], ["gip", "slsqp[formulation=min_norm]"])
    run(path, [CONVEX], ["slsqp"])
    return path


@pytest.fixture
def results(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path / "results.db"))


@contextlib.contextmanager
def changed(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.commit()
    connection.close()


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str]]:
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, (out + err).splitlines()


# --- verify ---


def test_results_are_verified(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = results.read_bytes()
    assert said(capsys, "verify", results) == (0, [f"{results}: 6 rows, 6 points re-evaluated: all as stored"])
    assert results.read_bytes() == before


@pytest.mark.parametrize(
    ("id", "name", "value"),
    [(1, "margin", "margin + 1e-16"), (1, "margin", "NULL"), (2, "kappa_bar", "kappa_bar * 2"), (3, "margin", "0.5"),
     (4, "overlap", "1"), (5, "objective", "objective - 1"), (5, "violation", "1"), (6, "point_status", "'infeasible'"),
     (1, "point_status", "'invalid'"), (3, "violation", "0.5"), (4, "objective", "objective * 2"),
     (4, "point_status", "'infeasible'")],
)  # fmt: skip
def test_what_differs_is_said(
    results: Path, capsys: pytest.CaptureFixture[str], id: int, name: str, value: str
) -> None:
    with changed(results) as connection:
        (right,) = connection.execute(f"SELECT {name} FROM run WHERE id = {id}").fetchone()
        connection.execute(f"UPDATE run SET {name} = {value} WHERE id = {id}")
        (wrong,) = connection.execute(f"SELECT {name} FROM run WHERE id = {id}").fetchone()
    assert right != wrong
    code, lines = said(capsys, "verify", results)
    assert code == 1
    assert lines[0].startswith(f"run {id}: {name} is {right!r}, stored is {wrong!r} (")
    assert lines[1:] == [f"{results}: 6 rows, 6 points re-evaluated: 1 differ"]


def test_a_point_that_was_changed_is_noticed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with changed(results) as connection:
        (blob,) = connection.execute("SELECT point FROM payload WHERE run = 1").fetchone()
        point = np.frombuffer(blob, "<f8", offset=24).copy()
        point[0] *= -1
        connection.execute("UPDATE payload SET point = ? WHERE run = 1", (blob[:24] + point.tobytes(),))
    code, lines = said(capsys, "verify", results)
    assert code == 1
    assert lines[0].startswith("run 1: margin is ")


def test_rows_of_schema_1_cannot_be_checked_in_full(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_older(results, 1)
    code, (line, last) = said(capsys, "verify", results)
    assert code == 1 and line.startswith("could not be checked: 2 rows: objective, violation and point_status are of x")
    assert last == f"{results}: 6 rows, 6 points re-evaluated: could not be checked: 2 rows"


def test_a_problem_that_became_another(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As when a generator changes, or a file: said once, and points of another problem are not judged by this one."""
    with changed(results) as connection:
        connection.execute("UPDATE run SET problem_id = 'abc' WHERE solver LIKE 'gip%'")
    code, lines = said(capsys, "verify", results)
    assert code == 1
    assert f"problem_id is {qcqpbench.problem(TASK).id!r}, stored is 'abc'" in lines[0]
    assert lines[1:] == [f"{results}: 6 rows, 4 points re-evaluated: 1 differ"]


def test_problems_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance, results = tmp_path / "instance.npz", tmp_path / "a.db"
    qcqpbench.write(qcqpbench.problem(TASK), instance)
    run(results, [str(instance), CONVEX], ["slsqp"])
    assert said(capsys, "verify", results)[0] == 0
    instance.unlink()
    with changed(results) as connection:
        connection.execute("UPDATE run SET problem = 'bygone[m=3]' WHERE problem LIKE 'class%'")
    code, (first, second, last) = said(capsys, "verify", results)
    assert code == 1
    assert first == f"could not be checked: 2 rows: {instance}: no such file"
    assert second.startswith("could not be checked: 2 rows: unknown problem 'bygone'")
    assert last == f"{results}: 4 rows, 0 points re-evaluated: could not be checked: 4 rows"


def test_each_problem_is_made_once(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(
        reverify,
        "problem_apart",
        lambda text: loaded.append(text) or load_problem(text),  # type: ignore[func-returns-value]
    )
    assert main(["verify", str(results)]) == 0
    assert len(loaded) == 2


def test_a_solver_nobody_knows_here(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with changed(results) as connection:
        connection.execute("UPDATE run SET solver = 'elsewhere'")
    assert said(capsys, "verify", results)[0] == 0


# --- merge ---


def test_a_damaged_source_is_named(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, target = tmp_path / "bad.db", tmp_path / "all.db"
    content = bytearray(results.read_bytes())
    content[8192:] = b"z" * (len(content) - 8192)
    bad.write_bytes(content)
    code, (line,) = said(capsys, "merge", bad, "-o", target)
    assert code == 2 and line.startswith(f"qcqpbench: {bad}: is damaged")
    assert bad.read_bytes() == content


def test_merge(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other, target = tmp_path / "other.db", tmp_path / "all.db"
    run(other, [TASK], ["slsqp"], starts=3)
    code, lines = said(capsys, "merge", results, other, results, "-o", target)
    there = f"left out: {target} has them already"
    assert code == 0
    assert lines == [f"{results}: 6 new rows", f"{other}: 3 new rows", f"{results}: 0 new rows, 6 {there}"]
    lines = said(capsys, "merge", other, target, "-o", target)[1]
    assert lines == [f"{other}: 0 new rows, 3 {there}", f"{target}: 0 new rows, 9 {there}"]
    with Store(target) as store:
        assert len(list(store.rows())) == 9 and len(store.invocations()) == 3
    assert said(capsys, "verify", target)[0] == 0


def test_merge_looks_at_all_files_first(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = said(capsys, "merge", results, tmp_path / "none.db", "-o", tmp_path / "all.db")
    assert (code, lines) == (2, [f"qcqpbench: {tmp_path / 'none.db'}: no such file"])
    assert [each.name for each in tmp_path.iterdir()] == ["results.db"]


# --- export ---


def stored(path: Path, all_rows: bool = False) -> list[dict[str, Any]]:
    with Store(path) as store:
        return list(store.rows(all_rows))


def test_export_to_csv(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a.csv"
    with changed(results) as connection:
        connection.execute("""UPDATE run SET message = 'a "b",' || char(10) || 'é' WHERE id = 2""")
    assert said(capsys, "export", results, target) == (0, [f"{target}: 6 rows"])
    with target.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert tuple(found[0]) == EXPORTED
    for row, wanted in zip(found, stored(results), strict=True):
        for name in ("margin", "objective", "solve_seconds", "time_limit"):
            assert (float(row[name]) if row[name] else None) == wanted[name]
        for name in ("start", "iterations", "memory_limit"):
            assert (int(row[name]) if row[name] else None) == wanted[name]
        for name in ("key", "solver", "problem_id", "message", "termination"):
            assert row[name] == wanted[name]
        assert (json.loads(row["details"]) if row["details"] else None) == wanted["details"]
        assert (row["cpu"], row["commit"], row["command"]) == ("a CPU", "c0ffee", "a, command")
    assert len({row["invocation"] for row in found}) == 2


@NEEDS_PYARROW
def test_export_to_parquet_is_the_same_table(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyarrow import parquet  # noqa: PLC0415

    assert said(capsys, "export", results, tmp_path / "a.parquet")[1] == [f"{tmp_path / 'a.parquet'}: 6 rows"]
    assert main(["export", str(results), str(tmp_path / "a.csv")]) == 0
    table = parquet.read_table(tmp_path / "a.parquet")
    assert tuple(table.column_names) == EXPORTED
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        for row, wanted in zip(table.to_pylist(), csv.DictReader(file), strict=True):
            assert {name: "" if value is None else str(value) for name, value in row.items()} == wanted
    for row, origin in zip(table.to_pylist(), stored(results), strict=True):
        assert [row[name] for name in ("margin", "start", "solver")] == [
            origin[name] for name in ("margin", "start", "solver")
        ]


@NEEDS_PYARROW
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_no_rows_make_an_empty_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    Store(tmp_path / "a.db", write=True).close()
    target = (tmp_path / "a").with_suffix(suffix)
    assert said(capsys, "export", tmp_path / "a.db", target) == (0, [f"{target}: 0 rows"])
    assert target.exists()


def test_export_gives_the_rows_that_count_or_all(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with changed(results) as connection:
        connection.execute("UPDATE run SET key = (SELECT key FROM run WHERE id = 1) WHERE id = 2")
    why = "1 replaced by newer rows of the same runs (--all has them)"
    assert said(capsys, "export", results, tmp_path / "a.csv")[1] == [f"{tmp_path / 'a.csv'}: 5 rows; left out: {why}"]
    assert said(capsys, "export", results, tmp_path / "a.csv", "--all")[1] == [f"{tmp_path / 'a.csv'}: 6 rows"]


def test_export_without_pyarrow(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, lines = said(capsys, "export", results, tmp_path / "a.parquet")
    assert (code, lines) == (
        2, ["qcqpbench: Parquet needs the package pyarrow: pip install 'qcqpbench[parquet]'"]
    )  # fmt: skip
    assert [each.name for each in tmp_path.iterdir()] == ["results.db"]


# --- sysinfo, list suites, wrong usage ---


def test_sysinfo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sysinfo", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(Machine.__dataclass_fields__)
    assert main(["sysinfo"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(Machine.__dataclass_fields__)


def test_list_suites(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "suites", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert sorted(found) == ["best_known", "capacity", "default", "global", "paper", "scaling", "smoke"]
    assert found["scaling"]["runs"] == found["scaling"]["problems"] * 2
    assert main(["list", "suites"]) == 0
    assert "gip and ipopt as problems grow" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "none.db"], "none.db: no such file"),
        (["verify", "text.db"], "text.db: is no qcqpbench results file"),
        (["verify", "."], ".: is a folder"),
        (["merge", "results.db"], "the following arguments are required: -o/--output"),
        (["merge", "text.db", "-o", "all.db"], "text.db: is no qcqpbench results file"),
        (["merge", "results.db", "-o", "text.db"], "text.db: is no qcqpbench results file"),
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
    code, lines = said(capsys, *words)
    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"qcqpbench: {message}")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
