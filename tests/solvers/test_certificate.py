import numpy as np
import pytest

import qcqpbench
from qcqpbench.attempt import solve
from qcqpbench.status import Termination
from tests.conftest import MakeTask


def test_the_bound_is_the_semidefinite_one_and_above_every_point() -> None:
    """Against cvxpy's solution of the same relaxation, of the task as a QCQP."""
    pytest.importorskip("cvxpy")
    task = qcqpbench.problem("covariance_perceptron[m=8,load=0.5,seed=1]")
    own, semidefinite = solve(task, "certificate[tol=1e-4]"), solve(task, "sdr")
    assert own.bound == pytest.approx(semidefinite.bound, rel=1e-3)
    assert own.bound is not None and own.margin is not None and own.bound >= own.margin
    assert own.gap == pytest.approx((own.bound - own.margin) / own.bound)


def test_optimal_is_said_only_where_it_is_proved(make_task: MakeTask) -> None:
    single = make_task(p=1, m=5, n=2)
    proved = solve(single, "certificate")
    assert proved.termination is Termination.OPTIMAL
    assert proved.margin == pytest.approx(np.linalg.norm(single.patterns[0], 2))
    hard = solve(qcqpbench.problem("covariance_perceptron[m=10,load=1,seed=0]"), "certificate")
    assert hard.termination is Termination.LOCALLY_OPTIMAL and (hard.gap or 0) > 1e-3
