"""Check the public names of the package, which are imported when they are first used."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import qcqpbench

MODULES = {"features", "rng", "theory"}


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", qcqpbench.__all__)
def test_public_name_exists(name: str) -> None:
    assert getattr(qcqpbench, name) is not None
    assert name in dir(qcqpbench)


def test_names_of_modules_are_modules_and_others_are_not() -> None:
    modules = {name for name in qcqpbench.__all__ if isinstance(getattr(qcqpbench, name), ModuleType)}
    assert modules == MODULES


@pytest.mark.parametrize("first", ["", "qcqpbench.problem('parity[m=3]')", "import qcqpbench.problem"])
def test_problem_stays_a_function_when_its_sub_package_is_imported(first: str) -> None:
    code = f"""
import qcqpbench
{first}
import qcqpbench.problem.qcqp
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem import formulations
task = qcqpbench.problem("parity[m=3]")
print(type(task) is MaxMargin, formulations.__name__)
"""
    assert run_python(code) == "True qcqpbench.problem.formulations\n"


@pytest.mark.parametrize("first", ["", "qcqpbench.run", "import qcqpbench.run", "from qcqpbench.run import suite"])
def test_run_stays_a_function_when_its_sub_package_is_imported(first: str) -> None:
    code = f"""
import pickle, sys
import qcqpbench
{first}
import qcqpbench.run.suite
from qcqpbench import run
from qcqpbench.run.run_spec import RunOptions
from qcqpbench.results.collect import run as at_home
assert qcqpbench.run is run is at_home is pickle.loads(pickle.dumps(qcqpbench.run))
assert qcqpbench.RunOptions is RunOptions
assert pickle.loads(pickle.dumps(RunOptions(time_limit=3))) == RunOptions(time_limit=3)
print(run.__name__, sys.modules["qcqpbench.run"].__path__ != [])
"""
    assert run_python(code) == "run True\n"


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("Attempt", "run.attempt"),
        ("Family", "catalog.family"),
        ("Metadata", "problem.metadata"),
        ("Results", "results.results"),
        ("Row", "results.row"),
        ("Suite", "run.suite"),
        ("TaskFamily", "catalog.family"),
        ("TheoryPrediction", "problem.metadata"),
    ],
)
def test_public_class_is_that_of_its_module(name: str, module: str) -> None:
    assert getattr(qcqpbench, name) is vars(importlib.import_module(f"qcqpbench.{module}"))[name]


def test_type_checkers_see_the_same_names_as_python() -> None:
    """Compare the imports for type checkers with the public names and their modules."""
    tree = ast.parse(Path(qcqpbench.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: f"{node.module or ''}.{alias.name}".strip(".") for node in imports for alias in node.names}
    modules = {name: home if name in MODULES else f"{home}.{name}" for name, home in qcqpbench._MODULE_OF.items()}
    assert seen == modules


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'qcqpbench' has no attribute 'nothing'"):
        qcqpbench.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_import_loads_neither_numpy_nor_scipy() -> None:
    assert run_python("import sys, qcqpbench; print({'numpy', 'scipy'} & sys.modules.keys())") == "set()\n"
