"""Problems of runs from Python: how often each is generated, and which files are written."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench import MaxMargin, QcqpbenchError
from tests.support.results_files import ROOT

# Every Python process of the run imports this module when it starts, and forked ones inherit it.
_COUNTING = """
import os
from qcqpbench.problems.parity import Parity

generate = Parity.generate

def counted(self):
    with open(os.environ["GENERATED"], "a") as file:
        file.write(f"{os.getpid()} {self.seed}\\n")
    return generate(self)

Parity.generate = counted
"""
_SCRIPT = """
import os, sys
from pathlib import Path
import qcqpbench

if __name__ == "__main__":
    problems = ["parity[m=4,seed=0]", "parity[m=4,seed=1]"]
    if sys.argv[1] == "objects":
        problems = [qcqpbench.problem(spec) for spec in problems]
        Path(os.environ["GENERATED"]).unlink()
    results = qcqpbench.run(problems=problems, solvers=["gip", "slsqp"], starts=2, jobs=2, output=f"{sys.argv[1]}.db")
    print(os.getpid(), len(list(results)))
"""


@pytest.mark.parametrize("kind", ["specs", "objects"])
def test_each_process_generates_a_problem_once(kind: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_COUNTING)
    script, log = tmp_path / "script.py", tmp_path / "generated"
    script.write_text(_SCRIPT)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "GENERATED": str(log)}
    command = [sys.executable, str(script), kind]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    driver, rows = done.stdout.split()
    generated = Counter(log.read_text().splitlines())
    assert rows == "8"
    assert generated[f"{driver} 0"] == generated[f"{driver} 1"] == 1
    # A process of each solver and a verifier also generate the problems.
    assert len({line.split()[0] for line in generated}) >= 4
    assert set(generated.values()) == {1}


def test_an_unknown_solver_is_refused_before_problems_are_written(tmp_path: Path) -> None:
    task = MaxMargin(np.eye(2)[None], [[1]])
    with pytest.raises(QcqpbenchError, match="unknown solver 'gpi'"):
        qcqpbench.run(problems=[task], solvers=["gpi"], output=tmp_path / "results.db")
    assert list(tmp_path.iterdir()) == []
