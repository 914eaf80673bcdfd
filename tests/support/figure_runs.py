"""Suites of small runs, and helpers for tests of figures."""

import importlib.util
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import qcqpbench
from qcqpbench.analysis.figures.base import MeasuredRow, entry, grid
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import Termination
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Attempt, Outcome, solve
from qcqpbench.run.proposal import Proposal, RunReply
from qcqpbench.run.run_spec import random_start
from qcqpbench.run.suite import Entry, Settings, Suite

COVARIANCE, CLASSICAL = "covariance_perceptron", "classical_perceptron"
NEEDS_MATPLOTLIB = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def tiny(problems: list[str], *entries: Entry) -> Suite:
    return Suite("", "", tuple(problems), entries)


GIP = "gip[starts=2]"
TINY = {
    "training": tiny(grid(COVARIANCE, m=6, n=3, p=5), entry(GIP, Settings())),
    "overlap": tiny(grid(COVARIANCE, m=5, n=2, load=[0.5, 2], seed=range(3)), entry(GIP, Settings(starts=2))),
    "pattern_capacity": tiny(
        grid(COVARIANCE, m=9, n=[2, 3], p=[2, 4], seed=range(2)) + grid(CLASSICAL, m=9, p=[3, 60], seed=range(2)),
        entry(GIP, Settings(starts=2), name=COVARIANCE),
        entry("slsqp", Settings(), name=CLASSICAL),
    ),
    "capacity": tiny(
        grid(COVARIANCE, m=[4, 8], load=[0.5, 1], seed=range(3)),
        entry("slsqp", Settings(starts=3)),
        entry("soft_margin[max_iter=30]", Settings(starts=2), m=4),
        entry("certificate[tol=0.1]", Settings()),
    ),
}


def run(suite: Suite, path: Path, most: int | None = None) -> None:
    """Make at most `most` runs of a suite in this process, and store the outcomes."""
    with Store(path, write=True) as store:
        store.begin("a command", Machine())
        for spec in list(suite.runs())[:most]:
            loaded = qcqpbench.problem(spec.problem)
            attempt = solve(loaded, spec.solver, random_start(loaded, spec.start, spec.start_seed))
            store.add(outcome(replace(attempt, spec=spec)))


def outcome(attempt: Attempt, begun: float = 0.0) -> Outcome:
    """Return the outcome of an attempt in this process."""
    return Outcome(attempt, RunReply(Proposal(attempt.termination)), worker="here", begun=begun)


def measured_row(**values: Any) -> MeasuredRow:
    """Return a row of a figure."""
    names = ("key", "worker", "problem", "problem_id", "solver", "version", "label", "problem_label")
    numbers = ("id", "invocation", "number", "start", "begun")
    defaults = {**dict.fromkeys(names, ""), **dict.fromkeys(numbers, 0), "formulation": None, "machine": Machine()}
    return MeasuredRow(**({**defaults, "termination": Termination.LOCALLY_OPTIMAL} | values))


def raw(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
