"""Reports and tables of unusual rows: loose tolerances, unknown times, other versions, machines, names, long texts."""

import csv
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QcqpbenchError
from qcqpbench.analysis import metrics
from qcqpbench.analysis.report.numbers.contents import contents
from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.analysis.report.render.html import html
from qcqpbench.analysis.report.render.markdown import markdown
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.cli.main import main
from qcqpbench.results._encoding import pack_trace
from qcqpbench.results.export import escape, unescape
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, solve
from qcqpbench.run.suite import Suite
from tests.support.old_files import make_older
from tests.support.report_rows import general, row
from tests.support.report_rows import results as made_up
from tests.support.results_files import CONVEX, TASK, call, change, reply

# --- tolerances and times in reports ---


def test_the_best_value_of_a_report_is_of_a_point_feasible_to_1e_6() -> None:
    """Check that a run with a loose tolerance gives no reference for the others, and does not solve the problem."""
    strict = general(solver="strict", objective=1.0, tolerance=1e-6, relative_violation=1e-7)
    loose = general(solver="loose", objective=-100.0, tolerance=1e9, relative_violation=50.0)
    numbers = contents(made_up([strict, loose]))
    lines = {line.solver: line for line in numbers.general.summary}
    assert (lines["strict"].gap_median, lines["strict"].reached) == (0.0, 1)
    assert (lines["loose"].gap_median, lines["loose"].reached, lines["loose"].feasible) == (None, 0, 0)
    (problem,) = numbers.general.problems
    assert (problem.found, problem.solvers) == (1.0, ("strict",))
    # The suite did find the point feasible, so the solver's claim is not false.
    assert (lines["loose"].false_claims, numbers.false_rows) == (0, ())


def test_a_strict_tolerance_still_counts() -> None:
    strict = general(objective=1.0, tolerance=1e-9, relative_violation=1e-7, point_status="infeasible")
    assert metrics.value(strict) is None and metrics.is_false_claim(strict, {}, set())


@pytest.mark.parametrize("tolerance", [math.inf, math.nan, -1.0])
def test_a_tolerance_must_be_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str], tolerance: float) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(
        f"tolerance = {tolerance}\n[[problem]]\nname = {CONVEX!r}\n[[solver]]\nname = 'slsqp'\n", encoding="utf-8"
    )
    results = tmp_path / "a.db"
    option = f"--tolerance={tolerance}"
    for words in (
        ["run", "-p", CONVEX, "-s", "slsqp", "-o", results, option],
        ["run", path, "-o", results],
        ["solve", CONVEX, "-s", "slsqp", option],
    ):
        code, (line,) = call(capsys, *words)
        assert code == 2 and "tolerance" in line and "finite" in line
    assert not results.exists()
    with pytest.raises(QcqpbenchError, match="tolerance must be a finite relative violation, at least 0, got"):
        solve(qcqpbench.problem(CONVEX), "slsqp", tolerance=tolerance)


def test_points_reported_before_the_start_are_not_in_the_trace(results: Path) -> None:
    point = np.ones((2, 4))
    seconds = (-1e6, -math.inf, math.nan, 0.0, 0.5)
    change(results, "UPDATE payload SET trace = ? WHERE run = 1", values=(pack_trace([(at, point) for at in seconds]),))
    report = read([results])
    (trace,) = (row.trace for row in report.rows if row.id == 1 and row.solver.startswith("gip"))
    assert [at for at, _ in trace] == [0.0, 0.5]
    assert "gip" in html(report)


def test_a_run_of_unknown_time_and_without_a_limit_never_reaches_a_target() -> None:
    unknown = row(solve_seconds=None, time_limit=math.inf)
    assert metrics.seconds_to(unknown, 0.9) == math.inf
    assert metrics.seconds_to(row(solve_seconds=None, time_limit=10.0), 0.9) == 10.5
    assert metrics.quality_at([unknown], 1.0, [1.0, 1e9]) == [0.0, 0.0]


# --- other versions ---


def test_words_of_a_newer_version_are_shown_as_they_are(results: Path, tmp_path: Path) -> None:
    change(results, "UPDATE run SET termination = 'bored', point_status = 'blurred', scope = 'cosmic' WHERE id = 1")
    read_back = read([results])
    numbers = contents(read_back)
    assert ("bored", "bored", "blurred") in {
        (str(line.termination), line.termination.message, str(line.point_status)) for line in numbers.statuses
    }
    assert "bored" in markdown(read_back) and "blurred" in html(read_back)


def test_the_scope_of_a_solver_is_that_of_its_row(results: Path) -> None:
    change(results, "UPDATE run SET scope = 'bound' WHERE id = 1", "UPDATE run SET solver = 'elsewhere' WHERE id = 1")
    assert {row.solver: row.scope for row in read([results]).rows}["elsewhere"] is Scope.BOUND
    make_older(results, 5)
    assert {row.solver: row.scope for row in read([results]).rows}["elsewhere"] is Scope.LOCAL


def test_rows_that_are_left_out_are_counted(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store(results, write=True) as store:
        rows = list(store.rows())
        store.begin("again", Machine())
        (spec,) = Suite.of([TASK], ["gip[starts=1]"]).runs()
        attempt = replace(solve(qcqpbench.problem(TASK), spec.solver), spec=spec)
        assert spec.key == rows[0].key
        store.add(Outcome(attempt, reply(), begun=1.8e9))
        other = replace(spec, solver="slsqp", version="?")
        nothing = replace(attempt, termination=Termination.SKIPPED, point=None, point_status=PointStatus.NONE)
        nothing = replace(nothing, margin=None, kappa_bar=None, overlap=None, spec=other)
        store.add(Outcome(nothing, reply(), begun=1.6e9))
        store.add(Outcome(replace(attempt, spec=replace(other, version="1")), reply(), begun=1.8e9))
    reason = "1 replaced by newer rows of the same runs, 1 skipped and run later"
    code, lines = call(capsys, "report", results, "-o", tmp_path / "a.html")
    assert code == 0 and f"Rows left out: {reason}." in lines
    assert f"<li>Rows left out: {reason}.</li>" in (tmp_path / "a.html").read_text()
    assert call(capsys, "export", results, tmp_path / "a.csv")[1][0].endswith(
        f"a.csv: 4 rows; left out: {reason} (--all has them)"
    )
    shutil.copy(results, tmp_path / "b.db")
    both = read([results, tmp_path / "b.db"])
    assert (len(both.rows), both.repeated, str(both.left_out)) == (4, 6, reason)
    # A run that two files have is one series for each file, in whatever order they are named.
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    for path, rest in ((first, "invocation > 2"), (second, "invocation <= 2")):
        shutil.copy(results, path)
        change(
            path, f"DELETE FROM payload WHERE run IN (SELECT id FROM run WHERE {rest})", f"DELETE FROM run WHERE {rest}"
        )
    for order in ([first, second], [second, first]):
        split = read(order)
        assert (len(split.rows), split.repeated, str(split.left_out)) == (5, 0, "1 skipped and run later")


# --- machines ---


def test_a_row_has_the_machine_it_ran_on(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = tmp_path / "cluster.db", tmp_path / "all.db"
    node = Machine(cpu="node CPU", commit="beef", packages={"numpy": "2", "scipy": "1"})
    same_node = replace(node, packages={"scipy": "1", "numpy": "2"})
    (spec,) = Suite.of([CONVEX], ["slsqp"]).runs()
    attempt = solve(qcqpbench.problem(CONVEX), spec.solver)
    driver, other = Machine(cpu="driver CPU", commit="feed"), Machine(cpu="other CPU")
    machines = [node, None, same_node, driver, other]
    with Store(path, write=True) as store:
        store.begin("a command", driver)
        for start, machine in enumerate(machines):
            store.add(Outcome(replace(attempt, spec=replace(spec, start=start)), reply(), machine=machine))
    for file in (path, target):
        if file is target:
            with Store(target, write=True) as store:
                # So that ids differ.
                store.begin("before", Machine())
                ninth = replace(attempt, spec=replace(spec, start=9))
                store.add(Outcome(ninth, reply(), machine=Machine(cpu="third CPU")))
                assert store.merge(path) == 5
        with Store(file) as store:
            rows = {row.start: row.machine for row in store.rows()}
            ((count,),) = store._connection.execute("SELECT count(*) FROM machine").fetchall()
        assert [rows[start] for start in range(5)] == [node, driver, node, driver, other]
        assert count == 2 + (file is target)
    assert main(["export", str(path), str(tmp_path / "a.csv")]) == 0
    with (tmp_path / "a.csv").open(newline="") as table:
        cells = [(row["cpu"], row["commit"]) for row in csv.DictReader(table)]
    assert cells == [("node CPU", "beef"), ("driver CPU", "feed")] * 2 + [("other CPU", "")]
    report = read([path])
    assert [machine.facts.cpu for machine in report.machines] == ["node CPU", "driver CPU", "other CPU"]
    assert [row.machine_number for row in report.rows] == [0, 1, 0, 1, 2]


# --- names and streams that are not UTF-8, spreadsheets ---


def test_commands_take_names_that_are_not_utf_8(three_rows: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"odd\xff")
    results, problem = tmp_path / f"{name}.db", tmp_path / f"{name}.npz"
    shutil.copy(three_rows, results)
    qcqpbench.write(qcqpbench.problem(CONVEX), problem)
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
def test_no_cell_is_a_formula_for_a_spreadsheet(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert not escape(text).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unescape(escape(text)) == text
    change(results, "UPDATE run SET message = ? WHERE id = 1", values=(text,))
    change(results, "UPDATE run SET margin = -0.5 WHERE id = 1")
    assert call(capsys, "export", results, tmp_path / "a.csv")[0] == 0
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        first = next(iter(csv.DictReader(file)))
    assert (first["message"], first["margin"]) == (escape(text), "-0.5")


def test_long_text_is_cut_where_it_is_shown(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(results, "UPDATE run SET point_status = ?, message = ?1, version = ?1", values=("x" * 1_000_000,))
    code, lines = call(capsys, "verify", results)
    assert code == 1 and max(map(len, lines)) < 1000
    for name in ("a.html", "a.md"):
        assert call(capsys, "report", results, "-o", tmp_path / name)[0] == 0
        assert (tmp_path / name).stat().st_size < 300_000
