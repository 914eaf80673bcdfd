"""Install the solver of examples/ as a package, then list, check and run it."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# One process installs the example.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("example")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "random_search"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment variables of a process that has the example installed."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (source / file.name).write_bytes(file.read_bytes())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*command, str(target), str(source)], check=True)
    return {**os.environ, "PYTHONPATH": str(target)}


def qcqpbench(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from qcqpbench.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, check=False
    )


def test_the_example_has_at_most_20_lines() -> None:
    tree = ast.parse((EXAMPLE / "random_search.py").read_text())
    (solver,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = {node.lineno for node in ast.walk(solver) if isinstance(node, ast.stmt | ast.expr)}
    assert len(lines) + len(imports) + len(solver.decorator_list) <= 20


def test_the_example_is_listed_checked_and_run(installed: dict[str, str]) -> None:
    listed = json.loads(qcqpbench(installed, "list", "solvers", "--json").stdout)
    assert "random_search" in [row["name"] for row in listed]

    checked = qcqpbench(installed, "check", "random_search[steps=2000]")
    assert checked.returncode == 0, checked.stdout + checked.stderr

    task = "covariance_perceptron[m=3,p=4,ensemble=gaussian]"
    solved = qcqpbench(installed, "solve", task, "-s", "random_search[steps=500]", "--json")
    (attempt,) = json.loads(solved.stdout)
    assert attempt["termination"] == "finished" and attempt["iterations"] == 500


def test_the_solver_is_unknown_without_the_package() -> None:
    done = qcqpbench(dict(os.environ), "check", "random_search")
    assert done.returncode == 2
    assert done.stderr.startswith("qcqpbench: unknown solver 'random_search'; ")
    assert done.stderr.count("\n") == 1
