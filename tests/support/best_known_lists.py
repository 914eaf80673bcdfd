"""Lists of best known margins, and the commands that check and update them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench import MaxMargin
from qcqpbench.catalog.best_known import Proof, Record, read_list, shipped_path, write_list
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.registry import family
from qcqpbench.cli.main import main
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome, solve
from qcqpbench.run.run_spec import random_start
from qcqpbench.run.suite import Suite
from tests.support.results_files import reply

RECORDS, PROOFS = read_list(shipped_path())
# Records whose bound is proved by multipliers, by the number of outputs.
_OF_TEN_INPUTS = {
    n: [record for record in RECORDS.values() if (record.n, record.m) == (n, 10) and not record.tree] for n in (2, 3, 5)
}
# The first and the last record of each number of outputs.
SMALL = [records[k] for records in _OF_TEN_INPUTS.values() for k in (0, -1)]


def task_of(record: Record) -> MaxMargin:
    task = family(record.problem).generate()
    assert isinstance(task, MaxMargin)
    return task


def run_command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[str]]:
    """Run a best-known command, and return its exit code and the lines of its output without those of its progress."""
    code = main(["best-known", *map(str, words)])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not re.match(r"\[\d+/\d+\] ", line)]
    return code, [*out.splitlines(), *lines]


def write_small_list(path: Path) -> Path:
    """Write a list of the small instances."""
    write_list(path, {record.problem_id: record for record in SMALL}, PROOFS)
    return path


def worsen_first(path: Path) -> Record:
    """Replace the point of the first record by another one, and its multipliers by equal ones."""
    records, proofs = read_list(path)
    record = next(iter(records.values()))
    task = task_of(record)
    W = random_start(task, 7)
    equal = np.ones(task.labels.shape, np.float32)
    bound = np.linalg.norm(task.mixture(equal / equal.size)[0], 2) * (1 + 1e-13)
    margin = float(task.margin(W))
    worse = replace(record, margin=margin, kappa_bar=margin / task.scale, bound=float(bound))
    proof = Proof(W, np.zeros(task.n), equal)
    write_list(path, records | {record.problem_id: worse}, proofs | {record.problem_id: proof})
    return worse


def write_results(path: Path, problem: str, solvers: list[str]) -> Path:
    """Write a results file of runs of solvers on a problem."""
    with Store(path, write=True) as store:
        store.begin("a command", Machine(commit="c0ffee" * 7, dirty=True))
        for spec in Suite.of([problem], solvers).runs():
            task = qcqpbench.problem(spec.problem)
            attempt = solve(task, spec.solver, random_start(task, spec.start))
            store.add(Outcome(replace(attempt, spec=spec), reply()))
    return path
