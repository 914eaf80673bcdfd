"""Install the packages of examples/, then list, check and run their solvers and problem family."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import qcqpbench as package
from tests.support.example_packages import EXAMPLES, install_examples

# One process installs the examples.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("example")]

ROOT = Path(__file__).parents[2]
SOLVERS = ("augmented_lagrangian", "random_search")


def code(example: str) -> str:
    return (ROOT / "examples" / example / f"{example}.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment variables of a process that has the examples installed."""
    return {**os.environ, "PYTHONPATH": str(install_examples(tmp_path_factory.mktemp("site")))}


def qcqpbench(environment: dict[str, str], *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    program = "import sys; from qcqpbench.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def names(environment: dict[str, str], kind: str) -> set[str]:
    return {row["name"] for row in json.loads(qcqpbench(environment, "list", kind, "--json").stdout)}


def test_random_search_has_at_most_20_lines() -> None:
    tree = ast.parse(code("random_search"))
    (solver,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = {node.lineno for node in ast.walk(solver) if isinstance(node, ast.stmt | ast.expr)}
    assert len(lines) + len(imports) + len(solver.decorator_list) <= 20


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_import_public_names_only(example: str) -> None:
    imports = [node for node in ast.walk(ast.parse(code(example))) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    assert {module for module in modules if module and module.startswith("qcqpbench")} == {"qcqpbench"}
    (public,) = (node for node in imports if isinstance(node, ast.ImportFrom) and node.module == "qcqpbench")
    assert {alias.name for alias in public.names} <= set(package.__all__)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_documentation_shows_the_example_and_its_entry_point(example: str) -> None:
    pages = [ROOT / "docs" / "howto" / name for name in ("own-solver.md", "own-family.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"^```(python|toml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert ("python", code(example)) in blocks
    project = tomllib.loads((ROOT / "examples" / example / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shown = [tomllib.loads(block)["project"]["entry-points"] for kind, block in blocks if kind == "toml"]
    assert project["entry-points"] in shown


def test_the_examples_are_listed(installed: dict[str, str]) -> None:
    assert set(SOLVERS) <= names(installed, "solvers")
    assert "trust_region" in names(installed, "problems")


@pytest.mark.parametrize("solver", ["random_search[steps=2000]", "augmented_lagrangian"])
def test_the_solvers_pass_their_check(solver: str, installed: dict[str, str]) -> None:
    checked = qcqpbench(installed, "check", solver)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_random_search_runs_to_its_last_step(installed: dict[str, str]) -> None:
    task = "covariance_perceptron[m=3,p=4,ensemble=gaussian]"
    solved = qcqpbench(installed, "solve", task, "-s", "random_search[steps=500]", "--json")
    (attempt,) = json.loads(solved.stdout)
    assert attempt["termination"] == "finished" and attempt["iterations"] == 500


def test_solver_and_family_run_together(installed: dict[str, str], tmp_path: Path) -> None:
    """Compare the objective with the smallest eigenvalue, which is the optimum of a quadratic form on the unit ball."""
    words = ["-p", "trust_region[m=5,seed=3]", "-s", "augmented_lagrangian", "-r", "2", "-j", "1", "-o", "out.db"]
    done = qcqpbench(installed, "run", *words, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    program = """
import numpy as np, qcqpbench
from trust_region import TrustRegion
assert all(check.passed for check in qcqpbench.check_family("trust_region[m=5,seed=3]"))
problem = TrustRegion(m=5, seed=3).generate()
optimum = np.linalg.eigvalsh(problem.hessian([0.0]).toarray() / 2)[0]
rows = list(qcqpbench.Results.open("out.db"))
assert [(row.problem_id, row.solver_name) for row in rows] == 2 * [(problem.id, "augmented_lagrangian")]
assert optimum < 0 and all(abs(row.objective - optimum) < 1e-5 * abs(optimum) for row in rows), (optimum, rows)
"""
    checked = subprocess.run(
        [sys.executable, "-c", program], env=installed, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("command", "kind"), [(["check", "random_search"], "solver"), (["convert", "trust_region", "t.npz"], "problem")]
)
def test_the_examples_are_unknown_without_their_packages(command: list[str], kind: str, tmp_path: Path) -> None:
    done = qcqpbench(dict(os.environ), *command, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"qcqpbench: unknown {kind} '{command[1]}'; ")
    assert done.stderr.count("\n") == 1
