"""Bounds of variables that the constraints imply: what relaxations and branching need of an unbounded problem."""

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


def balls(problem: QCQP) -> list[tuple[NDArray[np.int32], Array, float, float]]:
    """The constraints l ≤ Σ_i a_i x_i² ≤ u with all a_i > 0: (variables i, coefficients a, l, u) of each."""
    found = []
    diagonal = problem.products[:, 0] == problem.products[:, 1]
    quadratic, linear = problem.quadratic, problem.linear
    for r in range(1, 1 + problem.n_constraints):
        span = slice(quadratic.indptr[r], quadratic.indptr[r + 1])
        columns, values = quadratic.indices[span], quadratic.data[span]
        upper = problem.upper[r - 1]
        pure = len(columns) > 0 and linear.indptr[r] == linear.indptr[r + 1]
        if pure and np.isfinite(upper) and upper >= 0 and diagonal[columns].all() and (values > 0).all():
            found.append((problem.products[columns, 0], values, float(problem.lower[r - 1]), float(upper)))
    return found


def implied_box(problem: QCQP) -> tuple[Array, Array]:
    """Lower and upper bounds of the variables, tightened by the balls."""
    lower, upper = problem.x_lower.copy(), problem.x_upper.copy()
    for variables, values, _, limit in balls(problem):
        radius = np.sqrt(limit / values)
        lower[variables] = np.maximum(lower[variables], -radius)
        upper[variables] = np.minimum(upper[variables], radius)
    return lower, upper
