"""Rows of a solver do not depend on which other solvers ran before it, to the last digit."""

import itertools
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from qcqpbench.catalog.registry import shipped_solvers
from qcqpbench.catalog.status import Availability
from qcqpbench.run.attempt import Attempt, Outcome
from qcqpbench.run.pools.local_pool import LocalPool
from qcqpbench.run.suite import Settings, Suite

pytestmark = [pytest.mark.slow, pytest.mark.solver, pytest.mark.xdist_group("independence")]

PROBLEM = "covariance_perceptron[m=3,p=4,seed=2,ensemble=gaussian]"
# A long trace is thinned evenly in the logarithm of time.
MEASURED = ("build_seconds", "solve_seconds", "cpu_seconds", "peak_memory_bytes", "trace")
SOLVERS = [name for name, kind in shipped_solvers().items() if kind().availability()[0] is Availability.AVAILABLE]


def numbers(outcome: Outcome) -> dict[str, Any]:
    """Return all values of an attempt but times and memory, arrays as bytes."""
    values = {field.name: getattr(outcome.attempt, field.name) for field in fields(Attempt)}
    # The solvers' own clocks.
    values["details"] = {key: value for key, value in (values["details"] or {}).items() if "seconds" not in key}
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
        if name not in MEASURED
    }


def rows(solvers: list[str]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the numbers of two starts of each solver, by one worker, the solvers taking turns."""
    specs = [list(Suite.of([PROBLEM], [name], Settings(starts=2, time_limit=60)).runs()) for name in solvers]
    turns = [spec for turn in zip(*specs, strict=True) for spec in turn]
    return {
        (outcome.spec.solver, outcome.spec.problem, outcome.spec.start): numbers(outcome)
        for outcome in LocalPool(1).outcomes(turns)
    }


def test_rows_alone_and_after_every_other_solver_are_equal() -> None:
    together = rows(SOLVERS)
    alone = dict(itertools.chain.from_iterable(rows([name]).items() for name in reversed(SOLVERS)))
    assert len(SOLVERS) >= 12 and len(alone) == len(together) == 2 * len(SOLVERS)
    for key, expected in alone.items():
        assert together[key] == expected, key
        assert expected["point"] is not None, key
