"""The commands solve, certify and check."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench import read_certificate
from qcqpbench.catalog.registry import solver
from qcqpbench.cli import solving
from qcqpbench.cli.main import main
from qcqpbench.results.row import COLUMNS
from qcqpbench.run.attempt import solve
from qcqpbench.run.conformance import Check
from qcqpbench.run.run_spec import OPTIONS, RunOptions, random_start
from tests.support.results_files import call

TASK, QCQP = "covariance_perceptron[m=4,p=3]", "classical_perceptron[m=5]"

pytestmark = pytest.mark.slow


# --- solve ---


def test_json_has_the_names_of_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Compare all names with the columns of results files; what only a file knows is missing, the point is added."""
    assert main(["solve", TASK, "-s", "slsqp", "-r", "2", "--seed", "5", "--timeout", "20", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    of_files = {"id", "invocation", "number", "key", "worker", "begun", "machine"}
    assert all(set(record) == set(COLUMNS) - of_files | {"point"} for record in records)
    assert [(record["start"], record["start_seed"], record["time_limit"]) for record in records] == [
        (0, 5, 20.0),
        (1, 5, 20.0),
    ]
    task = qcqpbench.problem(TASK)
    for record in records:
        here = solve(task, "slsqp", random_start(task, record["start"], 5))
        assert record["margin"] == pytest.approx(here.margin, abs=1e-9)
        assert here.point is not None
        np.testing.assert_allclose(record["point"], here.point, atol=1e-6)


def test_run_options_reach_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--seed", "3", "--timeout", "30", "--memory", "2", "--threads", "2", "--tolerance", "1e-4"]
    assert main(["solve", QCQP, "-s", "slsqp", *words, "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    expected = RunOptions(start_seed=3, time_limit=30.0, memory_limit_bytes=2 * 10**9, threads=2, tolerance=1e-4)
    assert {name: record[name] for name in OPTIONS} == {
        field.name: getattr(expected, field.name) for field in fields(RunOptions)
    }


def test_a_file_is_the_problem_of_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "disk.lp"
    path.write_text("Minimize\n obj: x + y\nSubject To\n c: [ x ^ 2 + y ^ 2 ] <= 1\nBounds\n x free\n y free\nEnd\n")
    assert main(["solve", str(path), "-s", "slsqp", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    assert record["problem"] == str(path) and record["objective"] == pytest.approx(-np.sqrt(2), abs=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([QCQP, "-s", "gip"], "problem must be a max-margin task for gip, got a general QCQP"),
        ([TASK, "-s", "slsqp", "-r", "0"], "-r must be at least 1, got 0"),
        ([TASK, "-s", "slsqp", "--timeout", "0"], "--timeout must be a positive number of seconds, got 0.0"),
        (
            [TASK, "-s", "slsqp", "--tolerance", "-1"],
            "--tolerance must be a finite relative violation, at least 0, got",
        ),
        ([TASK, "-s", "slsqp", "--memory", "inf"], "--memory must be a finite positive number of GB, got inf"),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = call(capsys, "solve", *words)
    assert code == 2 and len(lines) == 1 and lines[0].startswith(f"qcqpbench: {message}")


def test_certify_globally_writes_a_certificate_that_check_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "proof.npz"
    assert main(["certify", "--global", TASK, "-o", str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["gap"] <= 1e-4 and record["termination"] == "optimal" and record["leaves"] >= 1
    assert main(["best-known", "check", str(path)]) == 0
    assert read_certificate(path).bound == record["bound"]
    assert main(["certify", TASK, "-o", str(path)]) == 2
    assert "-o must be used with --global, got it without" in capsys.readouterr().err
    assert main(["certify", "--global", TASK, "-s", "gip"]) == 2
    assert "must return a tree certificate, got none" in capsys.readouterr().err


def test_certify_prints_a_bound_above_the_margin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", TASK, "--timeout", "20", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["bound"] >= record["margin"] == pytest.approx(solve(qcqpbench.problem(TASK), "gip").margin, abs=1e-6)


# --- check ---


def test_check_runs_the_cases_with_a_text_in_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = call(capsys, "check", "slsqp", "--case", "ANNULUS")
    assert code == 0
    assert lines == ["ok     annulus: (x − ½)² + y² on 1 ≤ x² + y² ≤ 4", "slsqp: 1 passed, 0 failed"]


def test_check_lists_the_cases_for_a_wrong_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, (line,) = call(capsys, "check", "slsqp", "--case", "nonsense")
    assert code == 2 and line.startswith(
        "qcqpbench: case must be part of the name of a case, got 'nonsense'; cases: disk"
    )


def test_check_says_that_a_solver_has_a_looser_tolerance(capsys: pytest.CaptureFixture[str]) -> None:
    """Compare a solver that declares a tolerance with one that has the tolerance of suites."""
    first = call(capsys, "check", "qcqp", "--case", "one pattern")[1][0]
    tolerance = solver("qcqp").facts().tolerance
    assert tolerance > 1e-6
    assert first == f"qcqp declares tolerance {tolerance:g}; the suite counts its points as infeasible above 1e-06"
    assert "declares" not in " ".join(call(capsys, "check", "slsqp", "--case", "one pattern")[1])


def test_check_prints_whole_messages_as_the_cases_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message, printed = f"printed {'x' * 3000!r} and this matters", []

    def checks(solver: str, case: str | None) -> object:
        yield Check("first", True)
        printed.append(capsys.readouterr().out)
        yield Check("second", False, message)

    monkeypatch.setattr(solving, "checks_of_solver", checks)
    assert main(["check", "slsqp"]) == 1
    assert printed == ["ok     first\n"]
    assert capsys.readouterr().out == f"FAILED second: {message}\nslsqp: 1 passed, 1 failed\n"
