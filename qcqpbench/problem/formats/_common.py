"""Helpers shared by the text formats: checks, names, and rows as lists of terms."""

import re
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .reading.text import Text

# CPLEX, Gurobi and SCIP read bounds of at least this magnitude in LP and MPS files as infinite.
INFINITE_BOUND = 1e20


def qcqp_only(problem: MaxMargin | QCQP, suffix: str) -> QCQP:
    """Return `problem`; raise QcqpbenchError unless it is a QCQP with a variable, as files with `suffix` require."""
    if isinstance(problem, MaxMargin):
        raise QcqpbenchError(
            f"a {suffix} file must hold a QCQP, got a max-margin task; "
            "give a formulation, as in convert --formulation epigraph"
        )
    require(problem.n_variables > 0, f"a {suffix} file must have at least one variable, got none")
    return problem


def check_bounds(problem: QCQP, suffix: str) -> None:
    """Raise QcqpbenchError if a finite bound of `problem` has a magnitude that readers take as infinite."""
    for bounds in (problem.lower, problem.upper, problem.x_lower, problem.x_upper):
        wrong = bounds[np.isfinite(bounds) & (np.abs(bounds) >= INFINITE_BOUND)]
        require(
            wrong.size == 0,
            f"|bounds| in a {suffix} file must be infinite or below {INFINITE_BOUND}, got {next(iter(wrong), None)}",
        )


def names_to_write(names: Sequence[str] | None, letter: str, count: int, usable: re.Pattern[str]) -> Sequence[str]:
    """Return `names` if all match `usable`, otherwise `letter`1, `letter`2 and so on."""
    if names is not None and all(map(usable.fullmatch, names)):
        return names
    return [f"{letter}{k + 1}" for k in range(count)]


def names_to_keep(names: Sequence[str], letter: str) -> tuple[str, ...] | None:
    """Return `names` as a tuple, or None if they are the default names `letter`1, `letter`2 and so on."""
    return None if all(name == f"{letter}{k + 1}" for k, name in enumerate(names)) else tuple(names)


def linear_terms(problem: QCQP, row: int) -> tuple[list[int], list[float]]:
    """Return the indices i and the coefficients of the linear terms of function `row`; row 0 is the objective."""
    span = slice(*problem.linear.indptr[row : row + 2])
    return problem.linear.indices[span].tolist(), problem.linear.data[span].tolist()


def quadratic_terms(problem: QCQP, row: int) -> tuple[list[int], list[int], list[float]]:
    """Return the indices i, the indices j ≤ i and the coefficients of the products x_i x_j of function `row`."""
    span = slice(*problem.quadratic.indptr[row : row + 2])
    i, j = problem.products[problem.quadratic.indices[span]].T
    return i.tolist(), j.tolist(), problem.quadratic.data[span].tolist()


class Terms:
    """The terms of a problem that is being read, in compact arrays; row 0 is the objective."""

    def __init__(self) -> None:
        self.quadratic: tuple[array[int], array[int], array[int], array[float]]
        self.linear: tuple[array[int], array[int], array[float]]
        self.quadratic = array("q"), array("q"), array("q"), array("d")
        self.linear = array("q"), array("q"), array("d")

    def add_products(self, row: int, i: Sequence[int], j: Sequence[int], values: Sequence[float]) -> None:
        """Add values[k]·x[i[k]]·x[j[k]] for every k to function `row`."""
        rows, first, second, coefficients = self.quadratic
        rows.extend([row] * len(values))
        first.extend(i)
        second.extend(j)
        coefficients.extend(values)

    def add_linear(self, row: int, i: Sequence[int], values: Sequence[float]) -> None:
        """Add values[k]·x[i[k]] for every k to function `row`."""
        rows, variables, coefficients = self.linear
        rows.extend([row] * len(values))
        variables.extend(i)
        coefficients.extend(values)

    def problem(self, text: Text, variables: int, **rest: Any) -> QCQP:
        """Return the problem in `variables` variables with these terms; errors name the file of `text`.

        `rest` holds the other arguments of `QCQP.from_terms`.
        """
        try:
            return QCQP.from_terms(variables, quadratic=self.quadratic, linear=self.linear, **rest)
        except QcqpbenchError as error:
            raise text.error(str(error)) from error


def content(text: Text) -> str:
    """Return the rest of `text`, read in blocks for speed."""
    parts = []
    while block := text.block(1000):
        parts.append(block)
    return "".join([*parts, *text])


def bounded(value: float) -> float:
    """Return `value`, or an infinity of its sign if its magnitude is at least `INFINITE_BOUND`."""
    return value if abs(value) < INFINITE_BOUND else float(np.copysign(np.inf, value))


def range_names(name: str) -> tuple[str, str]:
    """Return the names of the two constraints that represent the range constraint `name`."""
    return f"{name}_lhs", f"{name}_rhs"


def tidied(problem: QCQP) -> QCQP:
    """Undo the changes that the LP and MPS writers make to a problem.

    Join pairs of constraints that represent a range, and drop the default names x1.. and c1...
    """
    x, rows = problem.variable_names, problem.constraint_names
    assert x is not None
    if rows is not None:
        problem, rows = _joined(problem, rows)
    return problem.replace(
        variable_names=names_to_keep(x, "x"),
        constraint_names=None if rows is None else names_to_keep(rows, "c"),
    )


def _joined(problem: QCQP, rows: tuple[str, ...]) -> tuple[QCQP, tuple[str, ...]]:
    """Return the problem with pairs of constraints that represent ranges joined, and the names of its constraints."""
    upper, names, taken = problem.upper.copy(), [*rows], {*rows}
    keep = np.ones(len(rows), dtype=bool)
    for r, (one, two) in enumerate(pairwise(rows)):
        name = one.removesuffix("_lhs")
        if (one, two) != range_names(name) or name in taken:
            continue
        low, high = problem.lower[r], problem.upper[r + 1]
        sides = np.isinf(problem.upper[r]) and np.isinf(problem.lower[r + 1]) and low < high
        same = all(terms(problem, r + 1) == terms(problem, r + 2) for terms in (linear_terms, quadratic_terms))
        if sides and same:
            upper[r], names[r], keep[r + 1] = high, name, False
            taken.add(name)
    if keep.all():
        return problem, rows
    lines = np.flatnonzero(np.concatenate([[True], keep]))
    rest = tuple(name for name, kept in zip(names, keep, strict=True) if kept)
    matrices = {name: sparse.csr_array(getattr(problem, name)[lines]) for name in ("quadratic", "linear")}
    return problem.replace(lower=problem.lower[keep], upper=upper[keep], constraint_names=rest, **matrices), rest
