import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog.certificate import proved_bound
from qcqpbench.catalog.status import Termination
from qcqpbench.run.attempt import solve
from tests.conftest import MakeTask
from tests.support.duality import stacked_matrix


@pytest.mark.solver
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


@pytest.mark.parametrize("n", [2, 3])
def test_its_row_proves_its_bound(make_task: MakeTask, n: int) -> None:
    """Weak duality, with the row's λ and y and NumPy's eigenvalues; what is no λ proves nothing."""
    task = make_task(p=12, m=4, n=n)
    found = solve(task, "certificate")
    assert found.multipliers is not None and found.details is not None and found.bound is not None
    y = np.array([found.details[f"offset_{i}"] for i in range(n)], dtype=float)
    S = stacked_matrix(task, found.multipliers / found.multipliers.sum()) - np.diag(np.repeat(y, 4))
    assert found.bound == pytest.approx(0.5 * y.sum() + 0.5 * n * np.linalg.eigvalsh(S)[-1], rel=1e-9)
    assert proved_bound(task, 3 * found.multipliers, y) == pytest.approx(found.bound, rel=1e-9)
    assert proved_bound(task, found.multipliers) >= found.bound * (1 - 1e-9)
    for wrong in (-found.multipliers, 0 * found.multipliers, np.nan * found.multipliers):
        assert proved_bound(task, wrong, y) == np.inf
