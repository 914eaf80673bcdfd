"""Every available solver on small problems, in groups of one problem; `make bench-compare` compares the times.

The fixture is the one that qcqpbench offers to the tests of other solvers.
"""

import pytest

from qcqpbench import Termination
from qcqpbench.catalog.registry import solver_names
from qcqpbench.integrations.pytest_plugin import Solve

SPECS = [
    "covariance_perceptron[m=10,load=1]",
    "covariance_perceptron[m=20,load=1]",
    "classical_perceptron[m=10,load=1]",
]


@pytest.mark.benchmark(min_rounds=3, max_time=0.5)
@pytest.mark.qcqpbench(solvers=solver_names(), problems=SPECS, time_limit=2.0)
def test_solve(qcqpbench_solve: Solve) -> None:
    """Time building and solving. The point must be feasible, unless the time limit ended the run."""
    attempt = qcqpbench_solve(must_be_feasible=False)
    assert attempt.success or attempt.termination is Termination.TIME_LIMIT
