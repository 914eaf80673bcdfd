"""Benchmark of the solver on the problems that pyproject.toml lists."""

import pytest

from qcqpbench.integrations.pytest_plugin import Solve


@pytest.mark.benchmark(min_rounds=3)
def test_solve(qcqpbench_solve: Solve) -> None:
    attempt = qcqpbench_solve()
    assert attempt.margin is not None and attempt.best_known is not None
    assert attempt.margin > 0.9 * attempt.best_known
