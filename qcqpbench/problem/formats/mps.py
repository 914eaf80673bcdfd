"""The MPS format (.mps) with QUADOBJ and QCMATRIX sections, as CPLEX, Gurobi and SCIP read it; names without spaces.

Sections: NAME, OBJSENSE (MAX or MIN), ROWS (kind and name), COLUMNS (variable, row, number), RHS and RANGES (set, row,
number), BOUNDS (kind, set, variable, number), QUADOBJ and QCMATRIX of a row (variable, variable, number), ENDATA.

The quadratic part of the objective is ½xᵀQx, that of a constraint xᵀQx. QUADOBJ lists each pair of variables once;
QCMATRIX lists both triangles, as does QMATRIX, which may replace QUADOBJ. The right side of the objective is minus its
constant. A variable without a bound is in [0, ∞), a bound of 1e20 or more is infinite. With a range R, L is
[rhs − |R|, rhs], G is [rhs, rhs + |R|], and E is one of them by the sign of R. If no R gives both ends exactly, a range
is written as two constraints, c1_lhs and c1_rhs; two such constraints with the same left side are read as one.

The reader refuses what programs read differently: a negative UP without a lower bound (−∞ in Gurobi, 0 in SCIP); a
bound, side, range or coefficient given twice; a second set of them. Entries of Q given twice add up. Of several N rows
the first is the objective. The start and the metadata are lost; numbers are read back exactly.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from scipy import sparse

from qcqpbench.atomic_files import text_matching
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from ._common import INFINITE_BOUND, check_bounds, names_to_write, qcqp_only, quadratic_terms, range_names
from .reading.mps_reader import MpsReader
from .reading.text import open_text

_OBJECTIVE = "obj"
_USABLE = re.compile(rf"(?!{_OBJECTIVE}\Z)(?!.*_[lr]hs\Z)[A-Za-z_][!-~]{{0,199}}")

_SKIP = r"(?:[ \t\r]*+\n|\*[^\n]*+\n)*+"
_SENSE = r"OBJSENSE(?:\s++(?:MAX|MIN)\w*+)?+[ \t\r]*+\n"
_OBJECTIVE_NAME = rf"OBJNAME\b[^\n]*+\n(?:{_SKIP}[ \t]++\S[^\n]*+\n)?+"
# The words of sections occur in other text as well, a row of the section ROWS does not.
KIND = text_matching(
    "an MPS file",
    rf"{_SKIP}(?:NAME(?!\S)[^\n]*+\n)?+(?:{_SKIP}(?:{_SENSE}|{_OBJECTIVE_NAME}))*+"
    rf"{_SKIP}ROWS[ \t\r]*+\n{_SKIP}[ \t]++[NLGE][ \t]++\S",
)


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open MPS file."""
    problem = qcqp_only(problem, ".mps")
    check_bounds(problem, ".mps")
    file.writelines(part.encode("ascii") for part in _parts(problem))


def _parts(problem: QCQP) -> Iterator[str]:
    """Yield the text of the MPS file of `problem` in parts."""
    x = names_to_write(problem.variable_names, "x", problem.n_variables, _USABLE)
    constraint_names = names_to_write(problem.constraint_names, "c", problem.n_constraints, _USABLE)
    rows = [
        (r + 1, *row)
        for r, sides in enumerate(zip(constraint_names, problem.lower.tolist(), problem.upper.tolist(), strict=True))
        for row in _rows(*sides)
    ]
    yield "NAME\n" + ("OBJSENSE\n    MAX\n" if problem.sense == "maximize" else "")
    yield f"ROWS\n N {_OBJECTIVE}\n"
    yield from (f" {kind} {name}\n" for _, name, kind, _, _ in rows)
    yield "COLUMNS\n"
    written = [_OBJECTIVE, *(name for _, name, *_ in rows)]
    columns = sparse.csc_array(problem.linear[[0, *(r for r, *_ in rows)]])
    for i, name in enumerate(x):
        span = slice(*columns.indptr[i : i + 2])
        entries = [*zip(columns.indices[span].tolist(), columns.data[span].tolist(), strict=True)]
        yield from (f" {name} {written[r]} {value}\n" for r, value in entries or [(0, 0.0)])
    yield "RHS\n"
    if problem.constant:
        yield f" RHS {_OBJECTIVE} {-problem.constant}\n"
    yield from (f" RHS {name} {side}\n" for _, name, _, side, _ in rows if side)
    yield "RANGES\n"
    yield from (f" RNG {name} {span}\n" for _, name, _, _, span in rows if span)
    yield "BOUNDS\n"
    for name, low, high in zip(x, problem.x_lower.tolist(), problem.x_upper.tolist(), strict=True):
        yield from (f" {kind} BND {name} {value}".rstrip() + "\n" for kind, value in _bounds(low, high))
    yield from _quadratic(problem, 0, "QUADOBJ", x)
    for r, name, *_ in rows:
        yield from _quadratic(problem, r, f"QCMATRIX {name}", x)
    yield "ENDATA\n"


def _rows(name: str, low: float, high: float) -> list[tuple[str, str, float, float]]:
    """Return (name, kind, right side, range) of each of the one or two rows that represent low ≤ row `name` ≤ high.

    A range of 0 means that the row has no RANGES entry.
    """
    if low == high:
        return [(name, "E", low, 0.0)]
    if high == np.inf:
        return [(name, "G", max(low, -1e30), 0.0)]
    if low == -np.inf:
        return [(name, "L", high, 0.0)]
    span = high - low
    if span < INFINITE_BOUND and high - span == low:
        return [(name, "L", high, span)]
    if span < INFINITE_BOUND and low + span == high:
        return [(name, "G", low, span)]
    return [(half, *row) for half, row in zip(range_names(name), (("G", low, 0.0), ("L", high, 0.0)), strict=True)]


def _bounds(low: float, high: float) -> Iterator[tuple[str, float | str]]:
    """Yield (kind, value) of each BOUNDS entry of a variable in [low, high]; the value of FR and MI is empty."""
    if low == high:
        yield "FX", low
    elif low == -np.inf and high == np.inf:
        yield "FR", ""
    else:
        if low != 0:
            yield ("MI", "") if low == -np.inf else ("LO", low)
        if high != np.inf:
            yield "UP", high


def _quadratic(problem: QCQP, row: int, header: str, x: Sequence[str]) -> Iterator[str]:
    """Yield the section `header` with the quadratic terms of function `row`, nothing if it has none.

    `x` are the names of the variables.
    """
    i, j, values = quadratic_terms(problem, row)
    if not values:
        return
    yield f"{header}\n"
    terms = zip(i, j, values, strict=True)
    if row == 0:
        fits = max(map(abs, values)) * 2 < np.inf
        require(
            fits,
            f"twice a coefficient of the objective must be finite in an .mps file, got {2 * max(map(abs, values))}",
        )
        yield "".join(f" {x[a]} {x[b]} {2 * value if a == b else value}\n" for a, b, value in terms)
    else:
        inexact = next((value for value in values if value / 2 * 2 != value), None)
        require(inexact is None, f"half a coefficient of a constraint must be exact in float64, got half of {inexact}")
        yield "".join(
            f" {x[a]} {x[a]} {value}\n" if a == b else f" {x[a]} {x[b]} {value / 2}\n {x[b]} {x[a]} {value / 2}\n"
            for a, b, value in terms
        )


def read(path: Path) -> QCQP:
    """Read a problem from an MPS file."""
    with open_text(path) as text:
        return MpsReader(text).problem()
