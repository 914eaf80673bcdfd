"""Run the recipes of `make bench-save` and `make bench-compare` on a benchmark with a simulated clock."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BENCHMARK = """
import itertools
import pytest

ticks = itertools.count()

def tick():
    return next(ticks)

@pytest.mark.benchmark(timer=tick)
def test_it(benchmark):
    benchmark.pedantic(sum, ([],), rounds=3)
"""


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], tuple[int, str]]:
    """Return a function that runs a target's recipe on the benchmark above; it returns exit code and output."""
    folder = tmp_path / "tests" / "benchmarks"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "benchmarks" / "conftest.py", folder)
    (folder / "test_it.py").write_text(BENCHMARK)

    def run(target: str) -> tuple[int, str]:
        makefile = (ROOT / "Makefile").read_text()
        recipe = re.search(rf"^{target}:.*\n(?:\t@.*\n)?\t\$\(PYTHON\) (.*)", makefile, re.MULTILINE)
        assert recipe
        command = [sys.executable, *recipe[1].split()]
        # Without the options of the running pytest, which may run in parallel.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def edit_saved_run(folder: Path, edit: Callable[[Any], object]) -> None:
    (saved,) = folder.glob(".benchmarks/*/*.json")
    content = json.loads(saved.read_text())
    edit(content)
    saved.write_text(json.dumps(content))


def test_a_minimum_may_grow_by_a_fifth(tmp_path: Path, make: Callable[[str], tuple[int, str]]) -> None:
    code, text = make("bench-save")
    assert code == 0, text
    edit_saved_run(
        tmp_path, lambda saved: saved["benchmarks"][0]["stats"].update(min=1 / 1.19, mean=0.1, median=0.1, max=0.1)
    )
    code, text = make("bench-compare")
    assert code == 0, text
    edit_saved_run(
        tmp_path, lambda saved: saved["benchmarks"][0]["stats"].update(min=1 / 1.21, mean=9, median=9, max=9)
    )
    code, text = make("bench-compare")
    assert code != 0 and "Performance has regressed" in text and "test_it" in text


def test_a_run_of_another_machine_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[str], tuple[int, str]]
) -> None:
    assert make("bench-save")[0] == 0
    edit_saved_run(tmp_path, lambda saved: saved["machine_info"]["cpu"].update(brand_raw="another"))
    code, text = make("bench-compare")
    assert code != 0 and len(text.strip().splitlines()) == 1 and "make bench-save" in text
