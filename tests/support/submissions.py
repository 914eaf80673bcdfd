"""Submissions for tests: genuine runs with complete facts, and ways to change the file."""

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import qcqpbench
from qcqpbench.catalog.machine import machine
from qcqpbench.results._encoding import pack, unpack
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, solve
from qcqpbench.run.run_spec import random_start
from qcqpbench.run.suite import Settings, Suite
from tests.support.results_files import BEGUN, CONVEX, reply

# Listed, with a proved optimum.
LISTED = "covariance_perceptron[m=4,load=0.5,ensemble=gaussian,seed=1]"
PROVER, CERTIFIER = "branch_and_bound[certificate=true]", "certificate"
RUNS = ((LISTED, "gip[starts=1]"), (LISTED, PROVER), (LISTED, CERTIFIER), (CONVEX, "slsqp"))
COMMIT = "0123456789abcdef" * 2 + "01234567"

Line = dict[str, Any]


def make_results(path: Path) -> None:
    """Run solvers in this process, and store their rows with all facts about this machine."""
    with Store(path, write=True) as store:
        store.begin("qcqpbench run", replace(machine(), commit=COMMIT, dirty=False))
        for number, (problem, solver) in enumerate(RUNS):
            (spec,) = Suite.of([problem], [solver], Settings()).runs()
            instance = qcqpbench.problem(spec.problem)
            attempt = solve(instance, spec.solver, random_start(instance))
            store.add(Outcome(replace(attempt, spec=spec), reply("printed\n"), "local-0", BEGUN + number))


def read_lines(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, lines: list[Line]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")


def line_of(lines: list[Line], solver: str) -> Line:
    """Return the line of the row of a solver, by the name of the solver."""
    (line,) = (line for line in lines[1:] if line["solver"].partition("[")[0] == solver)
    return line


def array_of(line: Line, name: str) -> NDArray[np.float64]:
    return unpack(zlib.decompress(base64.b64decode(line[name])))


def encoded(array: NDArray[np.float64]) -> str:
    packed = pack(array)
    assert packed is not None
    return base64.b64encode(zlib.compress(packed)).decode()


def changing(solver: str, /, **values: Any) -> Callable[[list[Line]], None]:
    """Return a change of columns of the row of a solver; a function changes the old value, None removes it."""

    def change(lines: list[Line]) -> None:
        line = line_of(lines, solver)
        for name, value in values.items():
            line[name] = value(line.get(name)) if callable(value) else value
            if line[name] is None:
                del line[name]

    return change
