"""Bounds on variables implied by the constraints; relaxations and branch and bound need them for free variables."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


class Ball(NamedTuple):
    """Constraint lower ≤ Σ_i a_i x_i² ≤ upper on the `variables` x_i, with all `coefficients` a_i > 0."""

    variables: NDArray[np.int32]
    coefficients: Array
    lower: float
    upper: float


def balls(problem: QCQP) -> list[Ball]:
    """Return the constraints of `problem` that bound a weighted sum of squares from above."""
    constraints = []
    diagonal = problem.products[:, 0] == problem.products[:, 1]
    quadratic, linear = problem.quadratic, problem.linear
    for r in range(1, 1 + problem.n_constraints):
        span = slice(quadratic.indptr[r], quadratic.indptr[r + 1])
        columns, values = quadratic.indices[span], quadratic.data[span]
        upper = problem.upper[r - 1]
        pure = len(columns) > 0 and linear.indptr[r] == linear.indptr[r + 1]
        if pure and np.isfinite(upper) and upper >= 0 and diagonal[columns].all() and (values > 0).all():
            variables = problem.products[columns, 0]
            constraints.append(Ball(variables, values, float(problem.lower[r - 1]), float(upper)))
    return constraints


def implied_box(problem: QCQP) -> tuple[Array, Array]:
    """Return the lower and upper bounds of the variables, each of shape (n,), tightened by the balls of `balls`."""
    lower, upper = problem.x_lower.copy(), problem.x_upper.copy()
    for ball in balls(problem):
        radius = np.sqrt(ball.upper / ball.coefficients)
        lower[ball.variables] = np.maximum(lower[ball.variables], -radius)
        upper[ball.variables] = np.minimum(upper[ball.variables], radius)
    return lower, upper
