"""Check that errors in the code of plug-ins reach the user as one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import qcqpbench
from qcqpbench import MaxMargin, QcqpbenchError
from qcqpbench.catalog import registry

FAMILY = '''
"""A family whose code fails."""

from dataclasses import dataclass
from typing import Literal
from qcqpbench import QCQP, Family, QcqpbenchError

@dataclass(frozen=True)
class Failing(Family):
    name = "failing"
    how: Literal["type", "own", "nothing", "lines"] = "type"

    def generate(self) -> QCQP:
        if self.how == "type":
            return len(3)
        if self.how == "own":
            raise QcqpbenchError("how must be another, got own")
        if self.how == "lines":
            raise RuntimeError("first\\nsecond")
'''

SOLVER = """
from dataclasses import dataclass
from qcqpbench import Solution, TaskSolver, Termination

class Undecorated(TaskSolver):
    name, drives, citation = "undecorated", "nothing", "none"
    steps: int = 10

    def build(self, problem):
        return lambda start, budget: Solution(start, Termination.FINISHED)
"""

MESSAGES = {
    "type": "failing[how=type]: generate raised TypeError: object of type 'int' has no len()",
    "own": "how must be another, got own",
    "nothing": "failing[how=nothing]: generate must return a MaxMargin or QCQP, got NoneType",
    "lines": "failing[how=lines]: generate raised RuntimeError: first second",
}


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an installed distribution with a failing family and an undecorated solver on the path."""
    (tmp_path / "failing_family.py").write_text(FAMILY)
    (tmp_path / "undecorated_solver.py").write_text(SOLVER)
    info = tmp_path / "failing_family-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: failing-family\nVersion: 1.0\n")
    entries = ["[qcqpbench.problems]", "failing = failing_family:Failing"]
    entries += ["[qcqpbench.solvers]", "undecorated = undecorated_solver:Undecorated"]
    (info / "entry_points.txt").write_text("\n".join(entries))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("how", MESSAGES)
def test_error_of_a_family_is_one_line_with_its_spec(how: str, plugins: Path) -> None:
    with pytest.raises(QcqpbenchError) as caught:
        qcqpbench.problem(f"failing[how={how}]")
    assert str(caught.value) == MESSAGES[how]
    with pytest.raises(QcqpbenchError) as caught:
        qcqpbench.check_family(f"failing[how={how}]")
    assert str(caught.value) == MESSAGES[how]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["solve", "-s", "slsqp"], ["convert"], ["certify"]])
def test_error_of_a_family_is_one_line_on_the_command_line(command: list[str], plugins: Path) -> None:
    words = [str(Path(sys.executable).with_name("qcqpbench")), command[0], "failing", *command[1:]]
    words += ["out.npz"] if command == ["convert"] else []
    environment = os.environ | {"PYTHONPATH": str(plugins), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=plugins, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert (done.stderr + done.stdout).count(MESSAGES["type"]) == 1
    assert "Traceback" not in done.stderr + done.stdout


def test_plugin_without_dataclass_is_refused_when_it_is_loaded(plugins: Path) -> None:
    message = "Undecorated: the class must be decorated with @dataclass(frozen=True) to have the parameters steps"
    with pytest.raises(QcqpbenchError) as caught:
        registry.solver_class("undecorated")
    assert str(caught.value) == message
    with pytest.warns(UserWarning, match="^Undecorated: the class must be decorated"):
        assert "undecorated" not in registry.solvers()


def test_problem_generates_what_the_family_does() -> None:
    task = qcqpbench.problem("parity[m=3]")
    again = registry.family("parity[m=3]").generate()
    assert isinstance(task, MaxMargin) and task.id == again.id
