"""Rows of a QCQP as one-sided constraints, for packages without quadratic constraints with two bounds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Array
from qcqpbench.problem.qcqp import QCQP

Indices = NDArray[np.int32]
Relation = Literal["<=", ">=", "=="]


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms Σ_k products_k x[i_k] x[j_k] + Σ_k coefficients_k x[variables_k] of a row, each with i ≥ j."""

    products: Array
    i: Indices
    j: Indices
    coefficients: Array
    variables: Indices

    @property
    def is_quadratic(self) -> bool:
        """True if the row has a product of variables."""
        return len(self.products) > 0


def row_terms(problem: QCQP, row: int) -> Terms:
    """Return the terms of row `row` of `problem`: 0 is the objective, without its constant, r ≥ 1 a constraint."""
    quadratic, linear = problem.quadratic, problem.linear
    products = slice(*quadratic.indptr[row : row + 2])
    variables = slice(*linear.indptr[row : row + 2])
    i, j = problem.products[quadratic.indices[products]].T
    return Terms(quadratic.data[products], i, j, linear.data[variables], linear.indices[variables])


def one_sided_constraints(problem: QCQP) -> Iterator[tuple[Terms, Relation, float]]:
    """Yield the terms, the relation and the finite bound of every constraint; a range gives two, a free row none."""
    for row, (low, high) in enumerate(zip(problem.lower.tolist(), problem.upper.tolist(), strict=True), start=1):
        terms = row_terms(problem, row)
        if low == high:
            yield terms, "==", low
            continue
        if np.isfinite(low):
            yield terms, ">=", low
        if np.isfinite(high):
            yield terms, "<=", high
