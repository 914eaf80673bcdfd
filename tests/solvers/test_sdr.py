from typing import Any

import numpy as np
import pytest

from qcqpbench.problem.qcqp import QCQP, Sense
from qcqpbench.run.attempt import solve

pytestmark = pytest.mark.solver


@pytest.mark.parametrize("boxed", [True, False])
@pytest.mark.parametrize("constant", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("sense", ["minimize", "maximize"])
def test_the_bound_includes_the_constant(boxed: bool, constant: float, sense: Sense) -> None:
    """Bound ±((x − 1)² + y² − 1) + constant of optimum ∓1 + constant; without a box the solver's value counts."""
    sign = 1.0 if sense == "minimize" else -1.0
    box: dict[str, Any] = {"x_lower": [-3.0, -3.0], "x_upper": [3.0, 3.0]} if boxed else {}
    problem = QCQP(sign * np.eye(2), [-2.0 * sign, 0.0], constant, sense=sense, **box)
    attempt = solve(problem, "sdr")
    optimum = constant - sign
    assert attempt.bound == pytest.approx(optimum, abs=1e-4)
    assert attempt.bound is not None and sign * (attempt.bound - optimum) <= 1e-9
    assert attempt.objective == pytest.approx(optimum, abs=1e-3)


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_below_the_optimum_of_scip(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = rng.normal(size=(3, 3, 3)), rng.normal(size=(3, 3))
    constraints = [(A[k], b[k], -np.inf, 1.0) for k in (1, 2)]
    problem = QCQP(A[0], b[0], float(seed), quadratic_constraints=constraints, x_lower=-np.ones(3), x_upper=np.ones(3))
    proved = solve(problem, "scip", time_limit=20)
    relaxed = solve(problem, "sdr")
    assert proved.bound is not None and relaxed.bound is not None and proved.objective is not None
    assert relaxed.bound <= proved.objective + 1e-6
    assert relaxed.bound > proved.objective - 10
