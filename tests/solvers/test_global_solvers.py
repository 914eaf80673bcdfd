"""Compare the global solvers with closed forms and exhaustive search."""

from collections.abc import Iterator

import numpy as np
import pytest

from qcqpbench import QCQP
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.qcqp import Sense
from qcqpbench.run.attempt import Attempt
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.run_spec import RunOptions

pytestmark = pytest.mark.solver

SOLVERS = [
    pytest.param(
        spec,
        marks=pytest.mark.skipif(
            solver(spec).availability()[0] is not Availability.AVAILABLE, reason=solver(spec).availability()[1]
        ),
    )
    for spec in ("scip", "gurobi", "xpress", "copt[nonconvex=true]")
]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """Yield a worker: coptpy in the process of the tests would break the plug-ins of CasADi there."""
    with Worker() as worker:
        yield worker


def run(worker: Worker, spec: str, problem: QCQP, start: list[float]) -> Attempt:
    return worker.attempt(problem, spec, np.array(start), RunOptions(time_limit=20)).attempt


@pytest.mark.parametrize("spec", SOLVERS)
@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_the_bound_meets_the_best_corner_of_a_box(spec: str, sense: Sense, worker: Worker) -> None:
    """Compare with the best of all corners, where a concave minimum or convex maximum is."""
    sign = -1 if sense == "minimize" else 1
    root = np.random.default_rng(1).standard_normal((5, 5))
    problem = QCQP(sign * root @ root.T, 0.3 * root[0], 0.5, sense=sense, x_lower=np.full(5, -1.0), x_upper=np.ones(5))
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 5)).reshape(5, -1).T
    optimum = sign * np.max(sign * problem.objective(corners))
    attempt = run(worker, spec, problem, [0.0] * 5)
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.objective == pytest.approx(optimum, rel=1e-5)
    assert attempt.bound == pytest.approx(optimum, rel=1e-5)


@pytest.mark.parametrize("spec", SOLVERS)
@pytest.mark.parametrize(("sense", "optimum"), [("minimize", 4.0), ("maximize", 3 + 2 * 2**0.5)])
def test_both_bounds_of_a_quadratic_range_hold(spec: str, sense: Sense, optimum: float, worker: Worker) -> None:
    """Optimize 3 + x + y on 1 ≤ x² + y² ≤ 4 in the positive quadrant: at (1, 0) or (√2, √2)."""
    ring = (np.eye(2), None, 1.0, 4.0)
    problem = QCQP(None, [1.0, 1.0], 3.0, quadratic_constraints=[ring], x_lower=[0.0, 0.0], sense=sense)
    attempt = run(worker, spec, problem, [1.0, 1.0])
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.objective == pytest.approx(optimum, rel=1e-5)
    assert attempt.bound == pytest.approx(optimum, rel=1e-5)


@pytest.mark.parametrize("spec", SOLVERS)
def test_a_row_without_terms_that_cannot_hold_is_infeasible(spec: str, worker: Worker) -> None:
    rows = (np.array([[0.0, 0.0], [1.0, 1.0]]), [1.0, 2.0], [1.0, np.inf])
    attempt = run(worker, spec, QCQP(np.eye(2), linear_constraints=rows), [1.0, 1.0])
    assert attempt.termination is Termination.INFEASIBLE
    assert attempt.x is None
