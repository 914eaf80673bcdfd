"""Run asv and pytest in a copy of examples/ascent_solver, in an environment that has the example installed."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

# One process installs the example.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ascent_solver")]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ascent_solver"
PAGE = ROOT / "docs" / "howto" / "own-benchmarks.md"
PROBLEMS = ("covariance_perceptron[m=8,load=0.5,seed=1]", "covariance_perceptron[m=10,load=0.5]")


class Repository:
    """Git repository of a solver, and the environment in which it is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder / "ascent_solver", folder / "environment" / "bin" / "python"
        self._variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))},
            # asv stores facts about the machine in the home directory.
            **{"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": f"{self.python.parent}:{os.environ['PATH']}"},
        }
        venv.create(self.python.parents[1], with_pip=False, symlinks=True)
        # The packages of this environment, qcqpbench among them, without installing them again.
        purelib = self._run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", where=folder)
        link = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (Path(purelib.strip()) / "packages.pth").write_text(link)
        for tool in ("asv", "pytest"):
            script = self.python.with_name(tool)
            script.write_text(f'#!/bin/sh\nexec {self.python} -m {tool} "$@"\n')
            script.chmod(0o755)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".asv", ".benchmarks")
        shutil.copytree(EXAMPLE, self.folder, ignore=ignored)
        pip = (sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-index")
        self._run(*pip, "--no-deps", "--no-build-isolation", "--editable", ".")
        self._run("git", "init", "--quiet")
        self._run("git", "add", ".")
        identity = ("-c", "user.name=author", "-c", "user.email=author@localhost")
        self._run("git", *identity, "commit", "--quiet", "--message", "Add the solver")

    def run(self, command: str) -> str:
        """Run a command of the page in a shell, in the repository, with the environment active."""
        return self._run("bash", "-euc", command)

    def _run(self, *words: str, where: Path | None = None) -> str:
        done = subprocess.run(
            words, cwd=where or self.folder, env=self._variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("author"))


def blocks(kind: str) -> list[str]:
    """Return the blocks of code of a kind on the page."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def command(start: str) -> str:
    """Return the only command of the page that begins with these words."""
    (line,) = {line for block in blocks("console") for line in block.splitlines() if line.startswith(f"$ {start}")}
    return line.removeprefix("$ ")


def asv_results(repository: Repository) -> dict[str, dict[str, Any]]:
    """Return the results that asv stored, by benchmark and by problem."""
    (path,) = (path for path in repository.folder.glob(".asv/results/*/*.json") if path.name != "machine.json")
    stored = json.loads(path.read_text())
    values: dict[str, dict[str, Any]] = {}
    for name, entry in stored["results"].items():
        columns = dict(zip(stored["result_columns"], entry, strict=False))
        solvers, problems = columns["params"]
        assert solvers == ["'ascent'"]
        values[name] = dict(zip((problem.strip("'") for problem in problems), columns["result"], strict=True))
    return values


def test_the_page_shows_the_files_of_the_example() -> None:
    shown = blocks("python")
    for path in ("benchmarks/ascent.py", "tests/test_ascent.py"):
        assert (EXAMPLE / path).read_text(encoding="utf-8") in shown, path
    assert (EXAMPLE / "asv.conf.json").read_text(encoding="utf-8") in blocks("json")
    project = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    tables = blocks("toml")
    assert tables and all(table in project for table in tables)


def test_asv_stores_gaps_times_and_memory(repository: Repository) -> None:
    repository.run(command("asv machine"))
    repository.run(command("asv run").replace("asv run", "asv run --quick --show-stderr"))
    values = asv_results(repository)
    gaps = ("track_gap", "track_gap_to_theory", "track_missed_optima", "track_unsolved")
    expected = {*(f"ascent.Gaps.{name}" for name in gaps), "ascent.Times.time_solve", "ascent.Times.track_peak_memory"}
    assert set(values) == expected
    assert all(tuple(column) == PROBLEMS for column in values.values())
    # The solver comes close to the best known margins, and does not reach them to 1e-4.
    assert all(1e-4 < gap < 0.1 for gap in values["ascent.Gaps.track_gap"].values())
    assert set(values["ascent.Gaps.track_missed_optima"].values()) == {1.0}
    assert set(values["ascent.Gaps.track_unsolved"].values()) == {0.0}
    for name in ("Gaps.track_gap_to_theory", "Times.time_solve", "Times.track_peak_memory"):
        assert all(math.isfinite(value) and value > 0 for value in values[f"ascent.{name}"].values())
    assert "ascent.Gaps.track_gap" in repository.run(command("asv show"))


def test_pytest_stores_margins_gaps_and_status(repository: Repository) -> None:
    repository.run(command("pytest --benchmark-json"))
    stored = json.loads((repository.folder / "benchmarks.json").read_text())
    infos = {entry["group"]: entry["extra_info"] for entry in stored["benchmarks"]}
    assert tuple(infos) == PROBLEMS
    for info in infos.values():
        assert 1e-4 < info["gap_to_best_known"] < 0.1
        assert info["margin"] == pytest.approx(info["best_known"] * (1 - info["gap_to_best_known"]))
        assert (info["point_status"], info["termination"]) == ("feasible", "finished")
        assert info["version"].startswith("ascent-solver 0.1.0, ")
