r"""LP files (.lp), as CPLEX, Gurobi and SCIP read them.

    Maximize
     obj: +3.0 x1 +0.0 x2 +7.5 Constant + [ +4.0 x1 ^2 -3.0 x2 * x1 ] / 2
    Subject To
     c1: +2.0 x1 + [ +1.0 x2 * x1 ] >= 1.0
    Bounds
     x1 free
     -inf <= x2 <= 5.0
     Constant = 1
    End

The objective's brackets are halved and those of a constraint are not. A variable without a bound is in [0, ∞), a bound
of 1e20 or more is infinite. Variables are numbered as they first occur, so the objective names all of them. Terms that
occur twice add up.

Where readers differ, written is what all of them take for the same problem, and read is what others write:

- The objective's constant: a bare number, SCIP's way, is a new variable to Gurobi. Written is Gurobi's way, a variable
  Constant that is 1, which to others is just that. Read are both.
- Ranges: neither Gurobi nor SCIP reads CPLEX's ``1 <= x1 + x2 <= 2``. Written are, as by SCIP, two constraints, c1_lhs
  and c1_rhs. Read are both; two such constraints with the same left side are one.
- ``5x`` is ``5 x``, ``=<`` is ``<=``, as in CPLEX and SCIP; to Gurobi they are a variable and an error, or ``=``.
- A bound given twice, and ``free`` together with a bound, count differently: refused.

Where a name would not do in such a file (operators, spaces, brackets, a keyword, an e at its beginning), all of its
kind are written as x1.. or c1... The start and the metadata are not kept; numbers come back exactly.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np
from scipy import sparse

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from ._common import (
    Terms,
    bounded,
    check_bounds,
    content,
    linear_terms,
    names,
    qcqp_only,
    quadratic_terms,
    range_names,
    tidied,
)
from ._text import Text, open_text, shorten

_CONSTANT = "Constant"
_TOO_LARGE = "a number is larger than any floating-point number"
_TURNED = str.maketrans("<>", "><")

# Quantifiers with a + behind never give back what they took, so no text makes the search long.
_LETTER = r"""A-Za-z_!"#$%&(),;?@'`{}|~"""
_ENDS = rf"(?![{_LETTER}0-9.])"
_INFINITY = rf"[iI][nN][fF](?:[iI][nN][iI][tT][yY])?+{_ENDS}"
_NAME = rf"(?!{_INFINITY})[{_LETTER}][{_LETTER}0-9.]*+(?:\[[{_LETTER}0-9.]*+\][{_LETTER}0-9.]*+)*+"
# 5x is 5 x, but what 2e5x, 2ex or 0x1 is would be a matter of opinion.
_NUMBER = rf"(?!0[xX])(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++{_ENDS})?+(?![eE.])"
_SIDE = rf"([+-]?+)\s*+({_NUMBER}|{_INFINITY})"
_RELATION = r"(=<|=>|<=?+|>=?+|==?+)"


def _run(term: str, unsigned: bool) -> str:
    """Terms, each with its sign, which the first may lack; so many at once that memory is bounded."""
    return (rf"(?:\s*+{term})?+" if unsigned else "") + rf"(?:\s*+[+-]\s*+{term}){{0,100000}}+"


_ANY = rf"(?:{_NUMBER}\s*+(?:{_NAME})?+|{_NAME})"
_FIRST_TERMS, _MORE_TERMS = (re.compile(_run(_ANY, unsigned)) for unsigned in (True, False))
_TERM = re.compile(rf"\s*+([+-]?+)\s*+({_NUMBER})?+\s*+({_NAME})?+")
_BRACKET = re.compile(r"\s*+([+-]?+)\s*+\[")
_SECOND = rf"\s*+(?:\^\s*+2{_ENDS}|\*\s*+{_NAME})"
_QUADRATIC = rf"(?:{_NUMBER}\s*+)?+{_NAME}{_SECOND}"
_FIRST_PRODUCTS, _MORE_PRODUCTS = (re.compile(_run(_QUADRATIC, unsigned)) for unsigned in (True, False))
_PRODUCT = re.compile(rf"([+-]?+)\s*+({_NUMBER})?+\s*+({_NAME})\s*+(?:\^\s*+2|\*\s*+({_NAME}))")
_CLOSED = re.compile(r"\s*+\]")
_HALF = re.compile(rf"\s*+/\s*+2{_ENDS}")
_LABEL = re.compile(rf"\s*+({_NAME})\s*+:")
_LEFT = re.compile(rf"\s*+{_SIDE}\s*+{_RELATION}")
_RIGHT = re.compile(rf"\s*+{_RELATION}\s*+{_SIDE}[ \t\r]*+(?=\n|\Z)")
_FREE = re.compile(rf"\s*+({_NAME})\s++[fF][rR][eE][eE]{_ENDS}")
_BOUND = re.compile(rf"\s*+(?:{_SIDE}\s*+{_RELATION})?+\s*+({_NAME})(?:\s*+{_RELATION}\s*+{_SIDE})?+")
_BLANK = re.compile(r"\s*+")
_DIGITS = re.compile(rf"(?<![{_LETTER}0-9.]){_NUMBER}")
_COMMENT = re.compile(r"\\[^\n]*+")

_SECTION = re.compile(
    r"^[ \t]*+(?:(?P<objective>max(?:imi[sz]e|imum)?+|min(?:imi[sz]e|imum)?+)|(?P<bounds>bounds?+)|(?P<end>end)"
    r"|(?P<constraints>subject\s++to|such\s++that|s\.t\.|st\.?+)"
    r"|(?P<other>general\s++constraints?+|lazy\s++constraints?+|user\s++cuts?+|pwlobj|scenarios?+|gen(?:erals?+)?+"
    r"|int(?:egers?+)?+|bin(?:ary|aries)?+|semi-continuous|semis?+|sos[12]?+))(?!\S)",
    re.I | re.M,
)
_ORDER = ["objective", "constraints", "bounds", "end"]
_RIGHT_ORDER = "right: Minimize or Maximize, Subject To, Bounds, End, each once"

_KEYWORDS = (
    r"max\w*|min\w*|subject|such|to|that|s\.t\.|st\.?|bounds?|end|free|inf|infinity|nan|gen|generals?|int|integers?|bin|"
    r"binary|binaries|semis?|sos[12]?|lazy|user|pwlobj|scenarios?|constant|obj|.*_[lr]hs"
)
_USABLE = re.compile(rf"(?!(?i:e.*|{_KEYWORDS})\Z)[A-Za-z_][{_LETTER}0-9.]{{0,199}}", re.A)


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open file."""
    problem = qcqp_only(problem, ".lp")
    check_bounds(problem, ".lp")
    file.writelines(part.encode("ascii") for part in _parts(problem))


def _parts(problem: QCQP) -> Iterator[str]:
    x = names(problem.variable_names, "x", problem.n_variables, _USABLE)
    rows = names(problem.constraint_names, "c", problem.n_constraints, _USABLE)
    yield f"{problem.sense.capitalize()}\n obj:\n"
    objective = problem.linear[[0]].toarray()[0].tolist()
    yield from (f" {value:+} {name}\n" for name, value in zip(x, objective, strict=True))
    if problem.constant:
        yield f" {problem.constant:+} {_CONSTANT}\n"
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
        yield f" {_CONSTANT} = 1\n"
    yield "End\n"


def _sides(name: str, low: float, high: float) -> list[tuple[str, str]]:
    """The labels of the constraints that a row is written as, and their right sides."""
    if low == high:
        return [(name, f"= {low}")]
    if high == np.inf:
        return [(name, f">= {max(low, -1e30)}")]
    if low == -np.inf:
        return [(name, f"<= {high}")]
    return [*zip(range_names(name), (f">= {low}", f"<= {high}"), strict=True)]


def _brackets(problem: QCQP, row: int, x: Sequence[str]) -> str:
    i, j, values = quadratic_terms(problem, row)
    if not values:
        return ""
    if row == 0:
        values = [2 * value for value in values]
        require(max(map(abs, values)) < np.inf, "a coefficient of the objective is too large to be doubled")
    products = "".join(
        f" {value:+} {x[a]} ^2\n" if a == b else f" {value:+} {x[a]} * {x[b]}\n"
        for a, b, value in zip(i, j, values, strict=True)
    )
    return f" + [\n{products} ]\n" if row else f" + [\n{products} ] / 2\n"


def read(path: Path) -> QCQP:
    """The problem in a file."""
    with open_text(path) as text:
        return _Reader(text).problem()


class _Reader:
    """Reads on from a place in the content, up to the end of a section."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.content = _COMMENT.sub("", content(text))
        self.place, self.end = 0, len(self.content)
        self.terms = Terms()
        self.variables: dict[str, int] = {}
        self.labels: dict[str, int] = {}
        self.lower: list[float] = []
        self.upper: list[float] = []

    def problem(self) -> QCQP:
        sense, sections = self._sections()
        self.place, self.end = sections["objective"]
        self._match(_LABEL)
        constant = self._expression(0)
        self._require(self._ended(), f"{self._word()} is no term of an objective")
        self.place, self.end = sections.get("constraints", (0, 0))
        while not self._ended():
            self._constraint()
        self.place, self.end = sections.get("bounds", (0, 0))
        x_lower, x_upper = self._bounds()
        self._require(bool(self.variables), "there are no variables")
        problem = self.terms.problem(
            self.text,
            len(self.variables),
            sense=sense,
            constant=constant or 0.0,
            lower=self.lower,
            upper=self.upper,
            x_lower=x_lower,
            x_upper=x_upper,
            variable_names=tuple(self.variables),
            constraint_names=tuple(self.labels) if len(self.labels) == len(self.lower) else None,
        )
        problem = _without_constant(problem)
        self._require(problem.n_variables > 0, f"there are no variables but {_CONSTANT}")
        return tidied(problem)

    def _sections(self) -> tuple[str, dict[str, tuple[int, int]]]:
        """The sense, and where the text of each section begins and ends."""
        first = _SECTION.search(self.content)
        begins = first is not None and self._skip() >= first.start()
        self._require(begins, f"{self._word()}: right is Minimize or Maximize at the beginning")
        places: dict[str, tuple[int, int]] = {}
        last, sense = -1, ""
        for found, after in pairwise(chain(_SECTION.finditer(self.content), [None])):
            assert found is not None
            self.place = found.start()
            kind, word = str(found.lastgroup), " ".join(found[0].split())
            self._require(kind != "other", f"{word} is not read: only continuous variables, linear and quadratic terms")
            order = _ORDER.index(kind)
            self._require(order > last and (order == 0) == (last < 0), f"{word} is in the wrong place; {_RIGHT_ORDER}")
            last, sense = order, sense or ("maximize" if word[:3].lower() == "max" else "minimize")
            places[kind] = (found.end(), len(self.content) if after is None else after.start())
        self._require("end" in places, "the file ends without End", len(self.content))
        self.place, _ = places["end"]
        self._require(self._ended(), "text stands behind End")
        return sense, places

    def _constraint(self) -> None:
        begin, row = self.place, len(self.lower) + 1
        label = self._match(_LABEL)
        if label is not None:
            self._require(label[1] not in self.labels, f"a second constraint is called {shorten(label[1])}", begin)
            self.labels[label[1]] = row
        left = self._match(_LEFT)
        constant = self._expression(row)
        self._require(constant is None, "a number without a variable; right is one on the right side", begin)
        right = self._match(_RIGHT)
        if right is None:
            raise self._error(f"{self._word()}: right is a sign and a term, or <=, >= or =, a number, and a new line")
        relation, value = right[1].strip("="), self._side(right, 2)
        low, high = (-np.inf if relation == "<" else value), (np.inf if relation == ">" else value)
        if left is not None:
            same = relation != "" and left[3].strip("=") == relation
            self._require(same, "a range is either 1 <= … <= 2 or 2 >= … >= 1", begin)
            other = self._side(left, 1)
            low, high = (other, high) if relation == "<" else (low, other)
        self._check_range(low, high, begin)
        self.lower.append(low)
        self.upper.append(high)

    def _expression(self, row: int) -> float | None:
        """Reads terms into a row; the sum of those without a variable, if there are any."""
        constants: list[float] = []
        pattern = _FIRST_TERMS
        while True:
            begin = self._skip()
            self._match(pattern)
            variables: list[int] = []
            values: list[float] = []
            for sign, number, name in _TERM.findall(self.content, begin, self.place):
                value = float(sign + (number or "1"))
                if name:
                    variables.append(self.variables.setdefault(name, len(self.variables)))
                    values.append(value)
                elif number:
                    constants.append(value)
            self._check_finite(values + constants, begin)
            self.terms.add_linear(row, variables, values)
            read = self.place > begin
            bracket = self._match(_BRACKET)
            if bracket is not None:
                unsigned = pattern is _FIRST_TERMS and not read
                self._require(unsigned or bracket[1] != "", "a sign is missing before [", bracket.start(1))
                self._products(row, bracket[1])
            elif not read:
                return sum(constants) if constants else None
            pattern = _MORE_TERMS

    def _products(self, row: int, sign: str) -> None:
        factor = (-1.0 if sign == "-" else 1.0) / (1 if row else 2)
        number_of, begin = self.variables, -1
        pattern = _FIRST_PRODUCTS
        while self.place != begin:
            begin = self.place
            self._match(pattern)
            pattern = _MORE_PRODUCTS
            first, second, values = [], [], []
            for plus, number, name, other in _PRODUCT.findall(self.content, begin, self.place):
                i = number_of.setdefault(name, len(number_of))
                first.append(i)
                second.append(number_of.setdefault(other, len(number_of)) if other else i)
                values.append(factor * float(plus + (number or "1")))
            self._check_finite(values, begin)
            self.terms.add_products(row, first, second, values)
        self._require(self._match(_CLOSED) is not None, f"{self._word()}: in [ ] stand terms as 2 x ^2 and - 2 x * y")
        half = self._match(_HALF) is not None
        self._require(half or row > 0, "the objective's brackets need / 2 behind them")
        self._require(not half or row == 0, "/ 2 behind brackets stands only in the objective")

    def _bounds(self) -> tuple[list[float], list[float]]:
        lower: dict[int, float] = {}
        upper: dict[int, float] = {}
        places: dict[int, int] = {}
        while not self._ended():
            begin, free = self.place, self._match(_FREE)
            found = self._match(_BOUND) if free is None else free
            if found is None or (free is None and not found[3] and not found[5]):
                self.place = begin
                raise self._error(f"{self._word()}: bounds are such as -1 <= x <= 2, x >= 1 and x free")
            name, sides = found[1], [(">", -np.inf), ("<", np.inf)]
            if free is None:
                left = [(found[3].strip("=").translate(_TURNED), self._side(found, 1))] if found[3] else []
                right = [(found[5].strip("="), self._side(found, 6))] if found[5] else []
                name, sides = found[4], left + right
            i = self.variables.setdefault(name, len(self.variables))
            for relation, value in sides:
                for known, other in ((lower, "<"), (upper, ">")):
                    if relation != other:
                        self._require(i not in known, f"a bound of {shorten(name)} is given twice", begin)
                        known[i] = value
            places[i] = begin
        count = range(len(self.variables))
        x_lower, x_upper = [lower.get(i, 0.0) for i in count], [upper.get(i, np.inf) for i in count]
        for i, place in places.items():
            self._check_range(x_lower[i], x_upper[i], place)
        return x_lower, x_upper

    def _side(self, found: re.Match[str], group: int) -> float:
        """A number or infinity, with its sign."""
        value = float(found[group] + found[group + 1])
        infinite = found[group + 1][0] in "iI"
        self._require(infinite or abs(value) < np.inf, _TOO_LARGE, found.start(group + 1))
        return bounded(value)

    def _check_finite(self, values: list[float], begin: int) -> None:
        if np.inf in map(abs, values):
            places = (
                each.start() for each in _DIGITS.finditer(self.content, begin, self.place) if float(each[0]) == np.inf
            )
            raise self._error(_TOO_LARGE, next(places, begin))

    def _check_range(self, low: float, high: float, place: int) -> None:
        holds = low <= high and low < np.inf and high > -np.inf
        self._require(holds, f"the range from {low} to {high} holds no number", place)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.content, self.place, self.end)
        self.place = self.place if found is None else found.end()
        return found

    def _skip(self) -> int:
        self._match(_BLANK)
        return self.place

    def _ended(self) -> bool:
        return self._skip() >= self.end

    def _word(self) -> str:
        """What stands here, for an error."""
        end = self.content.find("\n", self._skip())
        return shorten(self.content[self.place : end if end >= 0 else None].strip() or "the end of the file")

    def _error(self, message: str, place: int | None = None) -> QcqpbenchError:
        return self.text.error(message, 1 + self.content.count("\n", 0, self._skip() if place is None else place))

    def _require(self, condition: bool, message: str, place: int | None = None) -> None:
        if not condition:
            raise self._error(message, place)


def _without_constant(problem: QCQP) -> QCQP:
    """The problem with the constant as such, if it is Gurobi's variable."""
    x = problem.variable_names or ()
    if _CONSTANT not in x:
        return problem
    i = x.index(_CONSTANT)
    elsewhere = problem.linear[1:, [i]].nnz > 0 or bool((problem.products == i).any())
    if elsewhere or (problem.x_lower[i], problem.x_upper[i]) != (1.0, 1.0):
        return problem
    keep = np.arange(problem.n_variables) != i
    return replace(
        problem,
        constant=problem.constant + float(problem.linear[0, i]),
        linear=sparse.csr_array(problem.linear[:, keep]),
        products=problem.products - (problem.products > i),
        x_lower=problem.x_lower[keep],
        x_upper=problem.x_upper[keep],
        variable_names=x[:i] + x[i + 1 :],
    )
