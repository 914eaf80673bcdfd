"""The command compare: exit codes, files, and a plug-in whose source changes between two runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compared_files import NEW, general_run, runs, write_runs
from tests.support.results_files import ROOT, call

_MARGINS = [0.5 + 0.1 * k for k in range(10)]
_PROGRAM = "import sys; from qcqpbench.cli.main import main; sys.exit(main())"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    first = write_runs(tmp_path / "old.db", runs(_MARGINS))
    return first, write_runs(tmp_path / "new.db", runs([value - 0.2 for value in _MARGINS], version=NEW))


def test_exit_code_is_1_for_a_loss_and_0_for_a_gain(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = call(capsys, "compare", *files)
    assert code == 1
    assert lines[0] == "# qcqpbench comparison"
    assert lines[2].startswith(r"- gip\[starts=8\], new.db against old.db, κ̄: worse: −0.2 ")
    code, lines = call(capsys, "compare", *reversed(files))
    assert code == 0 and ": better: +0.2 " in lines[2]


def test_general_problems_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_runs(tmp_path / "old.db", [general_run(k, -10.0) for k in range(10)])
    second = write_runs(tmp_path / "new.db", [general_run(k, -10.0 + 0.1 * k) for k in range(10)])
    code, lines = call(capsys, "compare", first, second)
    assert code == 1 and "relative gap: worse: −0.045 " in lines[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-s", "gop"], "qcqpbench: unknown solver in old.db: 'gop'; allowed: gip[starts=8]"),
        (["--label", "a"], "qcqpbench: labels must be two, the first and the second, got 1"),
        (["--effect", "0"], "qcqpbench: effect must be a positive fraction, got 0.0"),
        (["-o", "a.txt"], "qcqpbench: path must be a .md, .html or .json file, got 'a.txt'"),
        (["third.db"], "qcqpbench: files must be one or two results files, got 3"),
    ],
)
def test_exit_code_is_2_for_wrong_usage(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert call(capsys, "compare", *files, *words) == (2, [message])


def test_other_limits_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_runs(tmp_path / "old.db", runs(_MARGINS))
    second = write_runs(tmp_path / "new.db", runs(_MARGINS, time_limit=60.0))
    reason = "their runs have other limits: time_limit 10.0 against 60.0"
    assert call(capsys, "compare", first, second) == (
        2, [f"qcqpbench: old.db and new.db cannot be compared: {reason}"]
    )  # fmt: skip


def test_output_has_the_format_of_its_suffix(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    starts = {"c.md": "# qcqpbench comparison\n", "c.html": "<!doctype html>\n", "c.json": "{\n"}
    for name, start in starts.items():
        code, lines = call(capsys, "compare", *files, "-o", tmp_path / name)
        assert code == 1 and len(lines) == 2 and lines[0].startswith("gip[starts=8], new.db against old.db, κ̄: worse")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    code, lines = call(capsys, "compare", *files, "--format", "json", "--label", "main", "--label", "branch")
    assert json.loads("\n".join(lines))["solvers"][0]["second"]["label"] == "branch"


@pytest.mark.slow
def test_a_changed_plugin_is_compared_by_version(tmp_path: Path) -> None:
    """Run a plug-in, edit its source, run it again into the same file, and compare: nothing else is needed."""
    info = tmp_path / "qcqpbench_random_search-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: qcqpbench-random-search\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[qcqpbench.solvers]\nrandom_search = random_search:RandomSearch\n")
    source = tmp_path / "random_search.py"
    shutil.copy(ROOT / "examples" / "random_search" / "random_search.py", source)
    problems = [word for seed in range(10) for word in ("-p", f"covariance_perceptron[m=3,load=1,seed={seed}]")]
    command = ["run", *problems, "-s", "random_search[steps=300]", "--timeout", "60", "-j", "1", "-o", "a.db"]

    assert program(tmp_path, *command)[0] == 0
    text = source.read_text(encoding="utf-8")
    assert "range(self.steps)" in text
    source.write_text(text.replace("range(self.steps)", "range(3)"), encoding="utf-8")
    assert program(tmp_path, *command)[0] == 0
    code, output = program(tmp_path, "compare", "a.db", "--format", "json")
    comparison = json.loads(output)
    (solver,) = comparison["solvers"]
    margins = solver["measures"][0]
    assert (margins["quantity"], margins["verdict"], margins["wins"]) == ("kappa_bar", "worse", 0)
    assert len(margins["instances"]) == 10
    assert code == 1
    assert solver["first"]["label"] != solver["second"]["label"]
    for side in ("first", "second"):
        assert solver[side]["label"].startswith("source ")


def program(folder: Path, *words: str) -> tuple[int, str]:
    """Run the command line in a process of its own, with the folder on its import path."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, done.stdout
