"""Every available solver on small problems, in groups of one problem; `make bench-compare` compares the times."""

from typing import Any

import pytest

from qcqpbench import MaxMargin, problem, solve
from qcqpbench.catalog.registry import solver, solvers
from qcqpbench.catalog.status import Availability, PointStatus, Termination

SPECS = [
    "covariance_perceptron[m=10,load=1]",
    "covariance_perceptron[m=20,load=1]",
    "classical_perceptron[m=10,load=1]",
]
TIME_LIMIT_SECONDS = 2.0


@pytest.mark.benchmark(min_rounds=3, max_time=0.5)
@pytest.mark.parametrize("name", solvers())
@pytest.mark.parametrize("spec", SPECS)
def test_solve(benchmark: Any, spec: str, name: str) -> None:
    """Time runs, with building and verification.

    The point must be feasible to the tolerance that the solver declares, unless the time limit ended the run.
    """
    task, method = problem(spec), solver(name)
    status, reason = method.availability()
    if status is not Availability.AVAILABLE:
        pytest.skip(f"{name}: {reason}")
    if not isinstance(task, MaxMargin | method.accepts):
        pytest.skip(f"{name} takes max-margin tasks; {spec} is a QCQP")
    benchmark.group = spec
    solve(task, method, time_limit=0.1)  # imports its packages
    attempt = benchmark(solve, task, method, time_limit=TIME_LIMIT_SECONDS, tolerance=method.tolerance)
    benchmark.extra_info.update(
        margin=attempt.margin,
        violation=attempt.violation,
        status=str(attempt.point_status),
        termination=str(attempt.termination),
    )
    assert attempt.point_status is PointStatus.FEASIBLE or attempt.termination is Termination.TIME_LIMIT
