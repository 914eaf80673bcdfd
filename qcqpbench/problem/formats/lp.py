r"""The LP format (.lp), as CPLEX, Gurobi and SCIP read it.

    Maximize
     obj: +3.0 x1 +0.0 x2 +7.5 Constant + [ +4.0 x1 ^2 -3.0 x2 * x1 ] / 2
    Subject To
     c1: +2.0 x1 + [ +1.0 x2 * x1 ] >= 1.0
    Bounds
     x1 free
     -inf <= x2 <= 5.0
     Constant = 1
    End

The brackets of the objective are halved, those of a constraint are not. A variable without a bound is in [0, ∞), a
bound of 1e20 or more is infinite. Variables are numbered as they first occur, so the objective names all of them. Terms
that occur twice add up.

Where programs differ, the writer uses the form that all of them read as the same problem, and the reader accepts the
forms that they write:

- The constant of the objective: a bare number, as SCIP writes it, is a new variable to Gurobi. The writer uses the form
  of Gurobi, a variable Constant that is fixed to 1. The reader accepts both.
- Ranges: neither Gurobi nor SCIP reads ``1 <= x1 + x2 <= 2`` of CPLEX. The writer uses two constraints, c1_lhs and
  c1_rhs, as SCIP does. The reader accepts both, and joins two such constraints with the same left side.
- ``5x`` is ``5 x`` and ``=<`` is ``<=``, as in CPLEX and SCIP; Gurobi reads a variable, and an error or ``=``.
- A bound given twice, and ``free`` together with a bound, are refused, because programs disagree on them.

If a name cannot be written (operators, spaces, brackets, a keyword, an e at its beginning), all names of its kind are
written as x1.. or c1... The start and the metadata are lost; numbers are read back exactly.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from qcqpbench.atomic_files import text_matching
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from ._common import check_bounds, linear_terms, names_to_write, qcqp_only, quadratic_terms, range_names
from .reading.lp_reader import ANY_TERM, CONSTANT, LETTER, NAME, LpReader
from .reading.text import open_text

_KEYWORDS = (
    r"max\w*|min\w*|subject|such|to|that|s\.t\.|st\.?|bounds?|end|free|inf|infinity|nan|gen|generals?|int|integers?|bin|"
    r"binary|binaries|semis?|sos[12]?|lazy|user|pwlobj|scenarios?|constant|obj|.*_[lr]hs"
)
_USABLE = re.compile(rf"(?!(?i:e.*|{_KEYWORDS})\Z)[A-Za-z_][{LETTER}0-9.]{{0,199}}", re.A)

# An LP file begins with comments, the sense, and the first term of the objective. The pattern requires the token after
# the term, because prose may also begin with a word such as "Maximize".
_SKIP = r"(?:\s|\\[^\n]*+\n)*+"
_NEXT = r"(?:[-+\[]|subject\s|such\s|s\.t\.|st\b|bounds?\b|end\b)"
_BEGINNING = rf"{_SKIP}(?:max|min)(?:imi[sz]e|imum)?+(?!\S){_SKIP}(?:{NAME}\s*+:)?+{_SKIP}(?:{ANY_TERM})?{_SKIP}{_NEXT}"
KIND = text_matching("an LP file", _BEGINNING)


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open LP file."""
    problem = qcqp_only(problem, ".lp")
    check_bounds(problem, ".lp")
    file.writelines(part.encode("ascii") for part in _parts(problem))


def _parts(problem: QCQP) -> Iterator[str]:
    """Yield the text of the LP file of `problem` in parts."""
    x = names_to_write(problem.variable_names, "x", problem.n_variables, _USABLE)
    rows = names_to_write(problem.constraint_names, "c", problem.n_constraints, _USABLE)
    yield f"{problem.sense.capitalize()}\n obj:\n"
    objective = problem.linear[[0]].toarray()[0].tolist()
    yield from (f" {value:+} {name}\n" for name, value in zip(x, objective, strict=True))
    if problem.constant:
        yield f" {problem.constant:+} {CONSTANT}\n"
    yield _brackets(problem, 0, x)
    yield "Subject To\n"
    for r, (name, low, high) in enumerate(zip(rows, problem.lower.tolist(), problem.upper.tolist(), strict=True)):
        variables, values = linear_terms(problem, r + 1)
        linear = "".join(f" {value:+} {x[i]}\n" for i, value in zip(variables, values, strict=True))
        left = linear + _brackets(problem, r + 1, x) or f" +0.0 {x[0]}\n"
        for label, side in _sides(name, low, high):
            yield f" {label}:\n{left} {side}\n"
    yield "Bounds\n"
    for name, low, high in zip(x, problem.x_lower.tolist(), problem.x_upper.tolist(), strict=True):
        both = f" {name} free\n" if low == -np.inf and high == np.inf else f" {low} <= {name} <= {high}\n"
        yield f" {name} = {low}\n" if low == high else both
    if problem.constant:
        yield f" {CONSTANT} = 1\n"
    yield "End\n"


def _sides(name: str, low: float, high: float) -> list[tuple[str, str]]:
    """Return (label, relation and right side) of the one or two constraints that represent low ≤ row `name` ≤ high."""
    if low == high:
        return [(name, f"= {low}")]
    if high == np.inf:
        return [(name, f">= {max(low, -1e30)}")]
    if low == -np.inf:
        return [(name, f"<= {high}")]
    return [*zip(range_names(name), (f">= {low}", f"<= {high}"), strict=True)]


def _brackets(problem: QCQP, row: int, x: Sequence[str]) -> str:
    """Return the quadratic terms of function `row` in brackets, empty if it has none; `x` names the variables."""
    i, j, values = quadratic_terms(problem, row)
    if not values:
        return ""
    if row == 0:
        values = [2 * value for value in values]
        largest = max(map(abs, values))
        require(largest < np.inf, f"twice a coefficient of the objective must be finite in an .lp file, got {largest}")
    products = "".join(
        f" {value:+} {x[a]} ^2\n" if a == b else f" {value:+} {x[a]} * {x[b]}\n"
        for a, b, value in zip(i, j, values, strict=True)
    )
    return f" + [\n{products} ]\n" if row else f" + [\n{products} ] / 2\n"


def read(path: Path) -> QCQP:
    """Read a problem from an LP file."""
    with open_text(path) as text:
        return LpReader(text).problem()
