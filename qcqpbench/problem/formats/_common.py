"""What the formats of other programs share: tasks are refused, names are made to fit, rows are lists of terms."""

import re
from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from ._text import Text

# In LP and MPS files bounds from here on mean infinity: CPLEX, Gurobi and SCIP take them so.
INFINITE = 1e20


def qcqp_only(problem: MaxMargin | QCQP, suffix: str) -> QCQP:
    """The problem, if such a file can hold it."""
    if isinstance(problem, MaxMargin):
        raise QcqpbenchError(
            f"a {suffix} file holds a QCQP and this is a max-margin task; "
            "give a formulation, as in convert --formulation epigraph"
        )
    require(problem.n_variables > 0, f"a {suffix} file needs at least one variable")
    return problem


def check_bounds(problem: QCQP, suffix: str) -> None:
    """Refuse finite bounds that would be read as infinite ones."""
    for bounds in (problem.lower, problem.upper, problem.x_lower, problem.x_upper):
        wrong = bounds[np.isfinite(bounds) & (np.abs(bounds) >= INFINITE)]
        refused = f"the bound {wrong[:1]} cannot stand in a {suffix} file: {INFINITE} and more is infinity there"
        require(wrong.size == 0, refused)


def names(given: Sequence[str] | None, letter: str, count: int, usable: re.Pattern[str]) -> Sequence[str]:
    """The given names if all of them are usable, else x1.. or c1.. for all."""
    if given is not None and all(map(usable.fullmatch, given)):
        return given
    return [f"{letter}{k + 1}" for k in range(count)]


def known_names(found: Sequence[str], letter: str) -> tuple[str, ...] | None:
    """What is kept of the names in a file: none, where it only counts."""
    return None if all(name == f"{letter}{k + 1}" for k, name in enumerate(found)) else tuple(found)


def linear_terms(problem: QCQP, row: int) -> tuple[list[int], list[float]]:
    """The variables and coefficients of a row's linear part."""
    span = slice(*problem.linear.indptr[row : row + 2])
    return problem.linear.indices[span].tolist(), problem.linear.data[span].tolist()


def quadratic_terms(problem: QCQP, row: int) -> tuple[list[int], list[int], list[float]]:
    """The variables i ≥ j and coefficients of a row's products."""
    span = slice(*problem.quadratic.indptr[row : row + 2])
    i, j = problem.products[problem.quadratic.indices[span]].T
    return i.tolist(), j.tolist(), problem.quadratic.data[span].tolist()


class Terms:
    """The terms of a problem as they are read, in little memory; row 0 is the objective."""

    def __init__(self) -> None:
        self.quadratic: tuple[array[int], array[int], array[int], array[float]]
        self.linear: tuple[array[int], array[int], array[float]]
        self.quadratic = array("q"), array("q"), array("q"), array("d")
        self.linear = array("q"), array("q"), array("d")

    def add_products(self, row: int, i: Sequence[int], j: Sequence[int], values: Sequence[float]) -> None:
        rows, first, second, coefficients = self.quadratic
        rows.extend([row] * len(values))
        first.extend(i)
        second.extend(j)
        coefficients.extend(values)

    def add_linear(self, row: int, i: Sequence[int], values: Sequence[float]) -> None:
        rows, variables, coefficients = self.linear
        rows.extend([row] * len(values))
        variables.extend(i)
        coefficients.extend(values)

    def problem(self, text: Text, variables: int, **rest: Any) -> QCQP:
        """The problem of these terms; what is wrong with it as a whole is an error of the file."""
        try:
            return QCQP.from_terms(variables, quadratic=self.quadratic, linear=self.linear, **rest)
        except QcqpbenchError as error:
            raise text.error(str(error)) from error


def content(text: Text) -> str:
    """The whole text; large blocks of it are read fast."""
    parts = []
    while block := text.block(1000):
        parts.append(block)
    return "".join([*parts, *text])


def bounded(value: float) -> float:
    """A bound as LP and MPS files mean it."""
    return value if abs(value) < INFINITE else float(np.copysign(np.inf, value))


def range_names(name: str) -> tuple[str, str]:
    """What the two constraints are called that stand for a range."""
    return f"{name}_lhs", f"{name}_rhs"


def tidied(problem: QCQP) -> QCQP:
    """A problem with names as it was before it was written: two constraints that stand for a range are one again, names
    that only count are none."""
    x, rows = problem.variable_names, problem.constraint_names
    assert x is not None
    if rows is not None:
        problem, rows = _joined(problem, rows)
    return replace(
        problem,
        variable_names=known_names(x, "x"),
        constraint_names=None if rows is None else known_names(rows, "c"),
    )


def _joined(problem: QCQP, rows: tuple[str, ...]) -> tuple[QCQP, tuple[str, ...]]:
    upper, found, taken = problem.upper.copy(), [*rows], {*rows}
    keep = np.ones(len(rows), dtype=bool)
    for r, (one, two) in enumerate(pairwise(rows)):
        name = one.removesuffix("_lhs")
        if (one, two) != range_names(name) or name in taken:
            continue
        low, high = problem.lower[r], problem.upper[r + 1]
        sides = np.isinf(problem.upper[r]) and np.isinf(problem.lower[r + 1]) and low < high
        same = all(terms(problem, r + 1) == terms(problem, r + 2) for terms in (linear_terms, quadratic_terms))
        if sides and same:
            upper[r], found[r], keep[r + 1] = high, name, False
            taken.add(name)
    if keep.all():
        return problem, rows
    lines = np.flatnonzero(np.concatenate([[True], keep]))
    rest = tuple(name for name, kept in zip(found, keep, strict=True) if kept)
    matrices = {name: sparse.csr_array(getattr(problem, name)[lines]) for name in ("quadratic", "linear")}
    return replace(problem, lower=problem.lower[keep], upper=upper[keep], constraint_names=rest, **matrices), rest
