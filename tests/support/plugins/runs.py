"""A problem and specs of runs for the plug-ins of tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.registry import family
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.run_spec import RunSpec
from tests.support.plugins import install
from tests.support.plugins.malicious import HIDDEN_SECONDS

SPEC = family("covariance_perceptron[m=3,p=3,seed=1,ensemble=gaussian]").spec
TASK: Any = qcqpbench.problem(SPEC)
ROOT = Path(__file__).parents[3]


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """Make the plug-ins known to this process and to those that it starts."""
    install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}:{ROOT}")
        patch.setenv(HIDDEN_SECONDS, f"4321.{os.getpid()}")
        yield


def run_spec(solver: str, start: int = 0) -> RunSpec:
    """Return the spec of a run of a solver on the task."""
    facts = solver_facts(solver)
    return RunSpec(
        problem=SPEC,
        problem_id=TASK.id,
        solver=facts.spec,
        version=facts.version,
        formulation=facts.formulation,
        start=start,
        time_limit=20.0,
    )


def margin(W: Any) -> float:
    """Return the smallest stability of the unit rows, by its definition."""
    W = np.asarray(W) / np.linalg.norm(W, axis=1, keepdims=True)
    return float(min(zeta[0] * W[0] @ P @ W[1] for P, zeta in zip(TASK.patterns, TASK.labels, strict=True)))
