"""Reader of the LP format, which `lp` documents."""

import re
from itertools import chain, pairwise

import numpy as np
from scipy import sparse

from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.qcqp import QCQP

from .._common import Terms, bounded, content, tidied
from .text import Text, shorten

CONSTANT = "Constant"
_TOO_LARGE = "a number must be in the floating-point range, got"
_REVERSED = str.maketrans("<>", "><")

# Possessive quantifiers, such as *+, do not backtrack, so that no text makes the search slow.
LETTER = r"""A-Za-z_!"#$%&(),;?@'`{}|~"""
_ENDS = rf"(?![{LETTER}0-9.])"
_INFINITY = rf"[iI][nN][fF](?:[iI][nN][iI][tT][yY])?+{_ENDS}"
NAME = rf"(?!{_INFINITY})[{LETTER}][{LETTER}0-9.]*+(?:\[[{LETTER}0-9.]*+\][{LETTER}0-9.]*+)*+"
# 5x is read as 5 x, but 2e5x, 2ex and 0x1 are ambiguous and refused.
_NUMBER = rf"(?!0[xX])(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++{_ENDS})?+(?![eE.])"
_SIDE = rf"([+-]?+)\s*+({_NUMBER}|{_INFINITY})"
_RELATION = r"(=<|=>|<=?+|>=?+|==?+)"


def _run(term: str, unsigned: bool) -> str:
    """Return a pattern of up to 100,000 signed terms; if `unsigned`, the first one may have no sign."""
    return (rf"(?:\s*+{term})?+" if unsigned else "") + rf"(?:\s*+[+-]\s*+{term}){{0,100000}}+"


ANY_TERM = rf"(?:{_NUMBER}\s*+(?:{NAME})?+|{NAME})"
_FIRST_TERMS, _MORE_TERMS = (re.compile(_run(ANY_TERM, unsigned)) for unsigned in (True, False))
_TERM = re.compile(rf"\s*+([+-]?+)\s*+({_NUMBER})?+\s*+({NAME})?+")
_BRACKET = re.compile(r"\s*+([+-]?+)\s*+\[")
_SECOND = rf"\s*+(?:\^\s*+2{_ENDS}|\*\s*+{NAME})"
_QUADRATIC = rf"(?:{_NUMBER}\s*+)?+{NAME}{_SECOND}"
_FIRST_PRODUCTS, _MORE_PRODUCTS = (re.compile(_run(_QUADRATIC, unsigned)) for unsigned in (True, False))
_PRODUCT = re.compile(rf"([+-]?+)\s*+({_NUMBER})?+\s*+({NAME})\s*+(?:\^\s*+2|\*\s*+({NAME}))")
_CLOSED = re.compile(r"\s*+\]")
_HALF = re.compile(rf"\s*+/\s*+2{_ENDS}")
_LABEL = re.compile(rf"\s*+({NAME})\s*+:")
_LEFT = re.compile(rf"\s*+{_SIDE}\s*+{_RELATION}")
_RIGHT = re.compile(rf"\s*+{_RELATION}\s*+{_SIDE}[ \t\r]*+(?=\n|\Z)")
_FREE = re.compile(rf"\s*+({NAME})\s++[fF][rR][eE][eE]{_ENDS}")
_BOUND = re.compile(rf"\s*+(?:{_SIDE}\s*+{_RELATION})?+\s*+({NAME})(?:\s*+{_RELATION}\s*+{_SIDE})?+")
_BLANK = re.compile(r"\s*+")
_DIGITS = re.compile(rf"(?<![{LETTER}0-9.]){_NUMBER}")
_COMMENT = re.compile(r"\\[^\n]*+")

_SECTION = re.compile(
    r"^[ \t]*+(?:(?P<objective>max(?:imi[sz]e|imum)?+|min(?:imi[sz]e|imum)?+)|(?P<bounds>bounds?+)|(?P<end>end)"
    r"|(?P<constraints>subject\s++to|such\s++that|s\.t\.|st\.?+)"
    r"|(?P<other>general\s++constraints?+|lazy\s++constraints?+|user\s++cuts?+|pwlobj|scenarios?+|gen(?:erals?+)?+"
    r"|int(?:egers?+)?+|bin(?:ary|aries)?+|semi-continuous|semis?+|sos[12]?+))(?!\S)",
    re.I | re.M,
)
_ORDER = ["objective", "constraints", "bounds", "end"]
_SECTION_ORDER = "the sections must be Minimize or Maximize, Subject To, Bounds, End, each once"


class LpReader:
    """Reader of an LP file; `place` is the current position in `content`, and `end` the end of the current section."""

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
        """Read the file and return its problem."""
        sense, sections = self._sections()
        self.place, self.end = sections["objective"]
        self._match(_LABEL)
        constant = self._expression(0)
        self._require(self._ended(), f"expected a term of the objective, got {self._word()}")
        self.place, self.end = sections.get("constraints", (0, 0))
        while not self._ended():
            self._constraint()
        self.place, self.end = sections.get("bounds", (0, 0))
        x_lower, x_upper = self._bounds()
        self._require(bool(self.variables), "the file must have variables, got none")
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
        self._require(problem.n_variables > 0, f"the file must have variables, got none but {CONSTANT}")
        return tidied(problem)

    def _sections(self) -> tuple[str, dict[str, tuple[int, int]]]:
        """Return the sense, and the positions (begin, end) in `content` of each section by name."""
        first = _SECTION.search(self.content)
        begins = first is not None and self._skip() >= first.start()
        self._require(begins, f"expected Minimize or Maximize at the beginning, got {self._word()}")
        places: dict[str, tuple[int, int]] = {}
        last, sense = -1, ""
        for match, after in pairwise(chain(_SECTION.finditer(self.content), [None])):
            assert match is not None
            self.place = match.start()
            kind, word = str(match.lastgroup), " ".join(match[0].split())
            self._require(
                kind != "other", f"variables must be continuous, terms linear or quadratic, got the section {word}"
            )
            order = _ORDER.index(kind)
            self._require(order > last and (order == 0) == (last < 0), f"{_SECTION_ORDER}, got {word}")
            last, sense = order, sense or ("maximize" if word[:3].lower() == "max" else "minimize")
            places[kind] = (match.end(), len(self.content) if after is None else after.start())
        self._require("end" in places, "expected End, got the end of the file", len(self.content))
        self.place, _ = places["end"]
        self._require(self._ended(), f"expected nothing after End, got {self._word()}")
        return sense, places

    def _constraint(self) -> None:
        """Read one constraint, and append its sides to `lower` and `upper`."""
        begin, row = self.place, len(self.lower) + 1
        label = self._match(_LABEL)
        if label is not None:
            self._require(
                label[1] not in self.labels, f"names of constraints must differ, got {shorten(label[1])} twice", begin
            )
            self.labels[label[1]] = row
        left = self._match(_LEFT)
        constant = self._expression(row)
        self._require(constant is None, f"a number without a variable must be on the right side, got {constant}", begin)
        relation_and_value = self._match(_RIGHT)
        if relation_and_value is None:
            raise self._error(
                f"expected a sign and a term, or <=, >= or =, a number and a new line, got {self._word()}"
            )
        relation, value = relation_and_value[1].strip("="), self._side(relation_and_value, 2)
        low, high = (-np.inf if relation == "<" else value), (np.inf if relation == ">" else value)
        if left is not None:
            same = relation != "" and left[3].strip("=") == relation
            got = f"{left[3]} … {relation_and_value[1]}"
            self._require(same, f"a range must be 1 <= … <= 2 or 2 >= … >= 1, got {got}", begin)
            other = self._side(left, 1)
            low, high = (other, high) if relation == "<" else (low, other)
        self._check_range(low, high, begin)
        self.lower.append(low)
        self.upper.append(high)

    def _expression(self, row: int) -> float | None:
        """Read the terms of function `row`; return the sum of its constant terms, or None if it has none."""
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
                self._require(unsigned or bracket[1] != "", "expected + or - before [, got none", bracket.start(1))
                self._products(row, bracket[1])
            elif not read:
                return sum(constants) if constants else None
            pattern = _MORE_TERMS

    def _products(self, row: int, sign: str) -> None:
        """Read the products in brackets, multiplied by `sign`, and add them to function `row`."""
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
        self._require(
            self._match(_CLOSED) is not None, f"expected terms such as 2 x ^2 and - 2 x * y in [ ], got {self._word()}"
        )
        half = self._match(_HALF) is not None
        self._require(half or row > 0, f"brackets in the objective must be followed by / 2, got {self._word()}")
        self._require(not half or row == 0, "brackets in a constraint must not be followed by / 2, got / 2")

    def _bounds(self) -> tuple[list[float], list[float]]:
        """Read the section of bounds, and return the lower and upper bounds of all variables."""
        lower: dict[int, float] = {}
        upper: dict[int, float] = {}
        places: dict[int, int] = {}
        while not self._ended():
            begin = self.place
            name, sides = self._bound()
            i = self.variables.setdefault(name, len(self.variables))
            for relation, value in sides:
                for bounds, other in ((lower, "<"), (upper, ">")):
                    if relation != other:
                        self._require(
                            i not in bounds, f"a bound of {shorten(name)} must be given once, got it twice", begin
                        )
                        bounds[i] = value
            places[i] = begin
        count = range(len(self.variables))
        x_lower, x_upper = [lower.get(i, 0.0) for i in count], [upper.get(i, np.inf) for i in count]
        for i, place in places.items():
            self._check_range(x_lower[i], x_upper[i], place)
        return x_lower, x_upper

    def _bound(self) -> tuple[str, list[tuple[str, float]]]:
        """Read one bound; return the name of the variable, and (relation, value) of each side."""
        begin, free = self.place, self._match(_FREE)
        if free is not None:
            return free[1], [(">", -np.inf), ("<", np.inf)]
        match = self._match(_BOUND)
        if match is None or not (match[3] or match[5]):
            self.place = begin
            raise self._error(f"expected a bound such as -1 <= x <= 2, x >= 1 or x free, got {self._word()}")
        left = [(match[3].strip("=").translate(_REVERSED), self._side(match, 1))] if match[3] else []
        right = [(match[5].strip("="), self._side(match, 6))] if match[5] else []
        return match[4], left + right

    def _side(self, match: re.Match[str], group: int) -> float:
        """Return the number whose sign is in `group` of `match` and whose magnitude is in the next group."""
        value = float(match[group] + match[group + 1])
        infinite = match[group + 1][0] in "iI"
        self._require(
            infinite or abs(value) < np.inf, f"{_TOO_LARGE} {shorten(match[group + 1])}", match.start(group + 1)
        )
        return bounded(value)

    def _check_finite(self, values: list[float], begin: int) -> None:
        """Raise an error unless `values`, read from the text between `begin` and the current position, are finite."""
        if np.inf in map(abs, values):
            numbers = _DIGITS.finditer(self.content, begin, self.place)
            word, place = next(((n[0], n.start()) for n in numbers if float(n[0]) == np.inf), ("inf", begin))
            raise self._error(f"{_TOO_LARGE} {shorten(word)}", place)

    def _check_range(self, low: float, high: float, place: int) -> None:
        """Raise an error that names the line at `place` unless the range [low, high] contains a number."""
        holds = low <= high and low < np.inf and high > -np.inf
        self._require(holds, f"a range must contain a number, got {low} to {high}", place)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match `pattern` at the current position and return the match, or None; move the position to its end."""
        match = pattern.match(self.content, self.place, self.end)
        self.place = self.place if match is None else match.end()
        return match

    def _skip(self) -> int:
        """Skip blanks, and return the new position."""
        self._match(_BLANK)
        return self.place

    def _ended(self) -> bool:
        """Skip blanks, and return whether the section has ended."""
        return self._skip() >= self.end

    def _word(self) -> str:
        """Skip blanks, and return the rest of the current line, quoted and shortened for error messages."""
        end = self.content.find("\n", self._skip())
        return shorten(self.content[self.place : end if end >= 0 else None].strip() or "the end of the file")

    def _error(self, message: str, place: int | None = None) -> QcqpbenchError:
        """Return a QcqpbenchError that names the line at `place`, by default the current position."""
        return self.text.error(message, 1 + self.content.count("\n", 0, self._skip() if place is None else place))

    def _require(self, condition: bool, message: str, place: int | None = None) -> None:
        if not condition:
            raise self._error(message, place)


def _without_constant(problem: QCQP) -> QCQP:
    """Return the problem with the variable `CONSTANT`, fixed to 1 by Gurobi, replaced by the objective's constant."""
    x = problem.variable_names or ()
    if CONSTANT not in x:
        return problem
    i = x.index(CONSTANT)
    elsewhere = problem.linear[1:, [i]].nnz > 0 or bool((problem.products == i).any())
    if elsewhere or (problem.x_lower[i], problem.x_upper[i]) != (1.0, 1.0):
        return problem
    keep = np.arange(problem.n_variables) != i
    return problem.replace(
        constant=problem.constant + float(problem.linear[0, i]),
        linear=sparse.csr_array(problem.linear[:, keep]),
        products=problem.products - (problem.products > i),
        x_lower=problem.x_lower[keep],
        x_upper=problem.x_upper[keep],
        variable_names=x[:i] + x[i + 1 :],
    )
