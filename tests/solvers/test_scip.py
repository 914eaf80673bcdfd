import numpy as np
import pytest

from qcqpbench import QCQP, solve
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.qcqp import Sense

pytestmark = [
    pytest.mark.solver,
    pytest.mark.skipif(
        solver("scip").availability()[0] is not Availability.AVAILABLE, reason=solver("scip").availability()[1]
    ),
]


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_solutions_are_reported_and_a_feasible_start_is_kept(sense: Sense) -> None:
    """Compare with the best of all corners of a box, where a concave minimum or convex maximum is."""
    sign = -1 if sense == "minimize" else 1
    root = np.random.default_rng(0).standard_normal((6, 6))
    problem = QCQP(sign * root @ root.T, 0.3 * root[0], 0.5, sense=sense, x_lower=np.full(6, -1.0), x_upper=np.ones(6))
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 6)).reshape(6, -1).T
    best = corners[np.argmax(sign * problem.objective(corners))]
    attempt = solve(problem, "scip", start=np.zeros(6))
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.objective == pytest.approx(problem.objective(best), rel=1e-6)
    reported = [float(problem.objective(x)) for _, x in attempt.trace]
    assert reported and sign * max(sign * value for value in reported) == pytest.approx(attempt.objective, rel=1e-6)
    for _, x in solve(problem, "scip", start=best).trace:
        assert problem.objective(x) == pytest.approx(attempt.objective, rel=1e-6)
