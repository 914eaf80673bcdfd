import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.certificate.shor import proved_bound
from qcqpbench.catalog.status import Termination
from qcqpbench.run.attempt import solve
from tests.conftest import MakeTask
from tests.support.duality import stacked_matrix


@pytest.mark.solver
def test_the_bound_is_that_of_the_semidefinite_relaxation() -> None:
    """Compare with cvxpy's solution of the same relaxation of the task as a QCQP."""
    pytest.importorskip("cvxpy")
    task = qcqpbench.problem("covariance_perceptron[m=8,load=0.5,seed=1]")
    certified, relaxed = solve(task, "certificate[tol=1e-4]"), solve(task, "sdr")
    assert certified.bound == pytest.approx(relaxed.bound, rel=1e-3)
    assert certified.bound is not None and certified.margin is not None and certified.bound >= certified.margin
    assert certified.gap == pytest.approx((certified.bound - certified.margin) / certified.bound)


def test_a_run_is_optimal_only_if_proved(make_task: MakeTask) -> None:
    single = make_task(p=1, m=5, n=2)
    proved = solve(single, "certificate")
    assert proved.termination is Termination.OPTIMAL
    assert proved.margin == pytest.approx(np.linalg.norm(single.patterns[0], 2))
    hard = solve(qcqpbench.problem("covariance_perceptron[m=10,load=1,seed=0]"), "certificate")
    assert hard.termination is Termination.LOCALLY_OPTIMAL and (hard.gap or 0) > 1e-3


@pytest.mark.parametrize("n", [2, 3])
def test_the_bound_follows_from_the_multipliers_of_the_row(make_task: MakeTask, n: int) -> None:
    """Recompute the bound by weak duality from λ and y with NumPy's eigenvalues; an invalid λ bounds nothing."""
    task = make_task(p=12, m=4, n=n)
    attempt = solve(task, "certificate")
    assert attempt.multipliers is not None and attempt.offsets is not None and attempt.bound is not None
    y = attempt.offsets
    assert y.shape == (n,)
    S = stacked_matrix(task, attempt.multipliers / attempt.multipliers.sum()) - np.diag(np.repeat(y, 4))
    assert attempt.bound == pytest.approx(0.5 * y.sum() + 0.5 * n * np.linalg.eigvalsh(S)[-1], rel=1e-9)
    assert proved_bound(task, 3 * attempt.multipliers, y) == pytest.approx(attempt.bound, rel=1e-9)
    assert proved_bound(task, attempt.multipliers) >= attempt.bound * (1 - 1e-9)
    for wrong in (-attempt.multipliers, 0 * attempt.multipliers, np.nan * attempt.multipliers):
        assert proved_bound(task, wrong, y) == np.inf
