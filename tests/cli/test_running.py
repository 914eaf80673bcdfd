"""The command `run`: options, resumption, interruption, wrong usage, and the live view on a terminal."""

import argparse
import math
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench.cli import running
from qcqpbench.cli.common import add_run_options, given_run_options
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.run_spec import RunOptions
from tests.support.hostile import install
from tests.support.processes import marking, none_left
from tests.support.terminals import SCRIPT, on_terminal, without_codes

SPEC = "covariance_perceptron[m=3,p=3,seed=1]"
QCQP = "classical_perceptron[m=5]"
THIS_TEST = f"command-run-{os.getpid()}"


@pytest.fixture(autouse=True, scope="module")
def with_mark() -> Iterator[None]:
    with marking(THIS_TEST):
        yield
    assert none_left(THIS_TEST) == {}


@pytest.fixture(autouse=True)
def with_hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the hostile solver, and work in an empty folder."""
    install(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[2]}")


def run(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(SCRIPT), "run", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def counters(stderr: str) -> list[tuple[int, int]]:
    """Return the numbers in front of the progress lines."""
    return [(int(done), int(total)) for done, total in re.findall(r"^\[(\d+)/(\d+)\] ", stderr, re.MULTILINE)]


def suite_of(*words: str) -> Any:
    parser = argparse.ArgumentParser()
    running.add_commands(parser.add_subparsers())
    return running._suite(parser.parse_args(["run", *words]))


# --- options ---


def test_every_run_option_has_a_flag() -> None:
    """Check all fields of RunOptions, so that a new one needs no change of the command line."""
    parser = argparse.ArgumentParser()
    add_run_options(parser)
    assert given_run_options(parser.parse_args([])) == {}
    given = given_run_options(
        parser.parse_args(
            ["--seed", "4", "--timeout", "inf", "--memory", "0.5", "--threads", "3", "--tolerance", "1e-3"]
        )
    )
    assert given == {
        "start_seed": 4, "time_limit": math.inf, "memory_limit_bytes": 500_000_000, "threads": 3, "tolerance": 1e-3
    }  # fmt: skip
    assert set(given) == {field.name for field in fields(RunOptions)}


def test_options_replace_settings_of_the_suite() -> None:
    suite = suite_of("default", "-p", SPEC, "-s", "slsqp", "-s", "gip", "-r", "7", "--timeout", "3")
    assert [entry.solver.name for entry in suite.entries] == ["slsqp", "gip"]
    assert {(entry.settings.starts, entry.settings.time_limit) for entry in suite.entries} == {(7, 3.0)}
    assert suite.problems == (qcqpbench.problem(SPEC).metadata.spec,)
    original = {entry.solver.name: entry.settings for entry in suite_of("default").entries}
    assert suite.entries[0].settings.memory_limit_bytes == original["slsqp"].memory_limit_bytes == 4e9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smok"], "did you mean 'smoke'"),
        (["smoke", "-j", "0"], "jobs must be a whole number, at least 1, got 0"),
        (["smoke", "-r", "0"], "starts must be a whole number, at least 1, got 0"),
        (["smoke", "-s", "ipop"], "did you mean 'ipopt'"),
        (["smoke", "--memory", "0"], "--memory must be a finite positive number of GB, got 0.0"),
        (["smoke", "--timeout", "-1"], "--timeout must be a positive number of seconds, got -1.0"),
        (["smoke", "--threads", "0"], "--threads must be a whole number, at least 1, got 0"),
        (["-p", "missing.npz"], "missing.npz: no such file"),
        (["-p", "notes.txt"], "notes.txt: unknown file format '.txt'; allowed: .npz, .qplib, "),
        (["missing.npz"], "SUITE must be a name or a .toml file, got a problem; -p missing.npz runs it"),
        (
            ["-p", SPEC, "--dask", "nonsense"],
            "dask must be local or the tcp://HOST:PORT or tls://HOST:PORT of",
        ),
        (["-p", SPEC, "--dask", "nonsense://"], "of a Dask scheduler, got nonsense://: "),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("no problem\n")
    assert main(["run", *words]) == 2
    (error,) = capfd.readouterr().err.splitlines()
    assert message in error
    assert not Path("results.db").exists()


# --- runs ---


@pytest.mark.slow
def test_run_fills_a_file_and_resumes() -> None:
    words = ("-p", SPEC, "-s", "slsqp", "-s", "hostile", "--timeout", "9", "-j", "2", "-o", "r.db")
    first = run(*words, "-r", "2")
    assert first.returncode == 0 and "[4/4]" in first.stderr
    assert re.search(r"^slsqp +2 .*\nhostile +2 .*\nr.db: 4 runs$", first.stdout, re.MULTILINE)
    second = run(*words, "-r", "3")
    assert second.stderr.count("start 2") == 2 and "start 1" not in second.stderr
    assert re.search(r"^slsqp +3 ", second.stdout, re.MULTILINE) and "6 runs, 4 of them done before" in second.stdout
    assert run(*words, "-r", "3", "-f").stdout.endswith("r.db: 6 runs\n")
    with Store("r.db") as store:
        rows = list(store.rows(all_rows=True))
        assert len(rows) == 12 and len({row.key for row in rows}) == 6
        assert {(row.time_limit, row.memory_limit_bytes, row.worker[:6]) for row in rows} == {(9, 4e9, "local-")}
        assert [invocation.command.split()[:2] for invocation in store.invocations().values()] == [
            ["qcqpbench", "run"]
        ] * 3


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished() -> None:
    words = ["run", "-p", SPEC, "-s", "hostile[kind=nap,seconds=0.2]", "-r", "200", "-j", "2", "-o", "r.db"]
    command = [str(SCRIPT), *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("[3/200]"):
            pass
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.splitlines()[-1].startswith("qcqpbench: interrupted;")
    with Store("r.db") as store:
        count = len(store.finished())
    assert 3 <= count < 200 and f" {count} new runs are in r.db; the same command resumes" in rest


@pytest.mark.slow
def test_runs_left_out_are_not_in_the_total() -> None:
    """Run hostile, which takes max-margin tasks only, on a QCQP that comes last."""
    done = run("-p", SPEC, "-p", QCQP, "-s", "slsqp", "-s", "hostile", "-j", "1", "-o", "r.db")
    assert "hostile accepts only max-margin tasks; it is left out" in done.stderr
    assert "run → r.db: 3 runs\n" in done.stderr
    assert counters(done.stderr) == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.slow
def test_equal_problems_do_not_change_the_total() -> None:
    """Run two specs of the same problem; the second is generated after the first runs."""
    same = "covariance_perceptron[m=3,load=0.5,seed=1]"
    assert qcqpbench.problem(same).id == qcqpbench.problem(SPEC).id
    done = run("-p", SPEC, "-p", same, "-s", "slsqp", "-r", "2", "-j", "1", "-o", "r.db")
    numbers = counters(done.stderr)
    assert {total for _, total in numbers} == {4} and numbers == sorted(numbers) and numbers[-1] == (4, 4)
    assert "2 runs are equal to earlier runs of the suite" in done.stderr and done.stdout.endswith("r.db: 2 runs\n")


@pytest.mark.slow
def test_problems_in_progress_lines_can_be_pasted_back() -> None:
    given = ["covariance_perceptron[m=5,load=1]", "covariance_perceptron[m=5,load=2]"]
    done = run("-p", given[0], "-p", given[1], "-s", "slsqp", "-o", "r.db")
    labels = set(re.findall(r" on (\S+) start 0: ", done.stderr))
    assert {qcqpbench.problem(label).id for label in labels} == {qcqpbench.problem(spec).id for spec in given}


@pytest.mark.slow
def test_the_table_of_general_qcqps_has_values() -> None:
    done = run("-p", QCQP, "-s", "slsqp", "-r", "2", "-o", "r.db")
    headings, cells, _ = (line.split() for line in done.stdout.splitlines())
    with Store("r.db") as store:
        best = min(row.objective for row in store.rows() if row.objective is not None)
    assert dict(zip(headings, cells, strict=True))["best_objective"] == f"{best:.6g}"
    done = run("-p", QCQP, "-p", "classical_perceptron[m=6]", "-s", "slsqp", "-o", "r.db")
    headings, cells, _ = (line.split() for line in done.stdout.splitlines())
    assert dict(zip(headings, cells, strict=True))["reached"] == "2/2"


@pytest.mark.slow
def test_a_run_without_any_point_fails() -> None:
    assert run("-p", SPEC, "-s", "hostile[kind=build_error]", "-o", "r.db").returncode == 1


# --- on a terminal ---


@pytest.mark.slow
def test_the_view_on_a_terminal() -> None:
    """Check 80 columns: nothing wider is drawn, the last frame is erased, the cursor is back, the table stays."""
    solvers = ("-s", "hostile[kind=nap,seconds=0.7]", "-s", "slsqp")
    code, text = on_terminal("run", "-p", SPEC, "-p", QCQP, *solvers, "-r", "2", "-j", "2")
    assert code == 0
    plain = without_codes(text)
    assert re.search(r"local-\d +\d\.\d s  hostile\[kind=nap,seconds=0\.7\] on covariance_perceptron\[m=3,", plain)
    assert re.search(r"run → results.db: \d/6 done, 0:0", plain)
    assert "hostile accepts only max-margin tasks" in plain and "[1/6]" not in plain
    frames = text[text.index("\x1b[?25l") : text.rindex("\x1b[?25h")]
    assert max(map(len, without_codes(frames).splitlines())) <= 80
    # Everything after the last erased line is the result of the command.
    last = without_codes(text[text.rindex("\x1b[2K") :])
    assert last.startswith("solver") and last.rstrip().endswith("results.db: 6 runs") and "local-" not in last


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"TERM": "dumb"}])
def test_unusual_terminals(environment: dict[str, str]) -> None:
    """Run on a terminal without Unicode, and on one that cannot move the cursor."""
    words = ("run", "-p", SPEC, "-s", "hostile[kind=nap,seconds=0.7]", "-s", "slsqp", "-j", "1")
    code, text = on_terminal(*words, columns=40, environment=environment)
    assert code == 0 and "Traceback" not in text and text.rstrip().endswith("results.db: 2 runs")
    assert ("\x1b[" in text) == ("TERM" not in environment) and ("[2/2]" in text) == ("TERM" in environment)
    assert text.isascii() == ("TERM" not in environment)


@pytest.mark.solver
def test_a_second_call_succeeds_if_it_only_skips_runs_again(tmp_path: Path) -> None:
    """Skip the runs of a plug-in of CasADi whose solver is not in the package."""
    words = ["run", "-p", "covariance_perceptron[m=3,p=3]", "-s", "casadi[plugin=knitro]"]
    assert main([*words, "-o", str(tmp_path / "skipped.db")]) == 1
    for _ in range(2):
        assert main([*words, "-s", "slsqp", "-o", str(tmp_path / "both.db")]) == 0
