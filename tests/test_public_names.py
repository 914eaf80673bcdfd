"""Check the public names of the package, which are imported when they are first used."""

import subprocess
import sys
from types import ModuleType

import pytest

import qcqpbench


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", qcqpbench.__all__)
def test_public_name_exists(name: str) -> None:
    assert getattr(qcqpbench, name) is not None
    assert name in dir(qcqpbench)


def test_names_of_modules_are_modules_and_others_are_not() -> None:
    modules = {name for name in qcqpbench.__all__ if isinstance(getattr(qcqpbench, name), ModuleType)}
    assert modules == {"features", "theory"}


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


def test_function_with_the_name_of_another_sub_package_stays_a_function() -> None:
    """Add a public function `run`, the name of a sub-package that is imported before and after its first use."""
    code = """
import sys, types
import qcqpbench
home = types.ModuleType("qcqpbench.home")
home.run = lambda: "ran"
sys.modules["qcqpbench.home"] = home
qcqpbench._MODULE_OF["run"] = "home"
import qcqpbench.run.attempt
first = qcqpbench.run()
import qcqpbench.run.suite
print(first, qcqpbench.run(), sys.modules["qcqpbench.run"].__name__)
"""
    assert run_python(code) == "ran ran qcqpbench.run\n"


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'qcqpbench' has no attribute 'nothing'"):
        qcqpbench.nothing  # noqa: B018


def test_import_loads_neither_numpy_nor_scipy() -> None:
    assert run_python("import sys, qcqpbench; print({'numpy', 'scipy'} & sys.modules.keys())") == "set()\n"
