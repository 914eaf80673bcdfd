"""MPS files (.mps) with QUADOBJ and QCMATRIX sections, as CPLEX, Gurobi and SCIP read them; names without spaces.

Sections: NAME, OBJSENSE (MAX or MIN), ROWS (kind and name), COLUMNS (variable, row, number), RHS and RANGES (set, row,
number), BOUNDS (kind, set, variable, number), QUADOBJ and QCMATRIX of a row (variable, variable, number), ENDATA.

The objective's quadratic part is ½xᵀQx, a constraint's is xᵀQx. QUADOBJ lists each pair of variables once; QCMATRIX
lists both triangles, as does QMATRIX, which may stand in QUADOBJ's place. The objective's right side is minus its
constant. A variable without a bound is in [0, ∞), a bound of 1e20 or more is infinite. A range R makes of L
[rhs − |R|, rhs], of G [rhs, rhs + |R|], and of E the one or the other by the sign of R. Where no R gives both ends
exactly, a range is written as two constraints, c1_lhs and c1_rhs; two such with the same left side are read as one.

Refused is what readers take differently: a negative UP without a lower bound (Gurobi makes that −∞, SCIP leaves 0); a
bound, side, range or coefficient given twice; a second set of them. Entries of Q given twice add up. Of several N rows
the first is the objective. The start and the metadata are not kept; numbers come back exactly.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import IO

import numpy as np
from scipy import sparse

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from ._common import (
    INFINITE,
    Terms,
    bounded,
    check_bounds,
    content,
    names,
    qcqp_only,
    quadratic_terms,
    range_names,
    tidied,
)
from ._text import NUMBER, Text, open_text, shorten

_OBJECTIVE = "obj"
_USABLE = re.compile(rf"(?!{_OBJECTIVE}\Z)(?!.*_[lr]hs\Z)[A-Za-z_][!-~]{{0,199}}")

_COMMENT = re.compile(r"^\*[^\n]*+", re.M)
_HEADER = re.compile(r"^\S[^\n]*+", re.M)
_LINE = re.compile(r"[^\n]++")
# Lines of two names and a number, so many at once that memory is bounded.
_ENTRIES = re.compile(rf"(?:(?:[ \t]++\S++[ \t]++\S++[ \t]++{NUMBER})?+[ \t\r]*+\n){{1,100000}}+")
_NUMBER = re.compile(NUMBER)
_INFINITY = re.compile(r"[+-]?inf(?:inity)?", re.I)
_LOWER, _UPPER = ("LO", "FX", "MI", "FR"), ("UP", "FX", "PL", "FR")
_VALUED = ("UP", "LO", "FX")
_SECTIONS = (
    *("NAME", "OBJSENSE", "ROWS", "COLUMNS", "RHS", "RANGES", "BOUNDS"),
    *("QUADOBJ", "QMATRIX", "QCMATRIX", "ENDATA"),
)
_SENSES = {"MAX": "maximize", "MAXIMIZE": "maximize", "MIN": "minimize", "MINIMIZE": "minimize"}


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open file."""
    problem = qcqp_only(problem, ".mps")
    check_bounds(problem, ".mps")
    file.writelines(part.encode("ascii") for part in _parts(problem))


def _parts(problem: QCQP) -> Iterator[str]:
    x = names(problem.variable_names, "x", problem.n_variables, _USABLE)
    given = names(problem.constraint_names, "c", problem.n_constraints, _USABLE)
    rows = [
        (r + 1, *row)
        for r, (name, low, high) in enumerate(zip(given, problem.lower.tolist(), problem.upper.tolist(), strict=True))
        for row in _rows(name, low, high)
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
    """The rows that a constraint is written as: name, kind, right side and range, 0 for none."""
    if low == high:
        return [(name, "E", low, 0.0)]
    if high == np.inf:
        return [(name, "G", max(low, -1e30), 0.0)]
    if low == -np.inf:
        return [(name, "L", high, 0.0)]
    span = high - low
    if span < INFINITE and high - span == low:
        return [(name, "L", high, span)]
    if span < INFINITE and low + span == high:
        return [(name, "G", low, span)]
    return [(each, *row) for each, row in zip(range_names(name), (("G", low, 0.0), ("L", high, 0.0)), strict=True)]


def _bounds(low: float, high: float) -> Iterator[tuple[str, float | str]]:
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
    i, j, values = quadratic_terms(problem, row)
    if not values:
        return
    yield f"{header}\n"
    terms = zip(i, j, values, strict=True)
    if row == 0:
        require(max(map(abs, values)) * 2 < np.inf, "a coefficient of the objective is too large to be doubled")
        yield "".join(f" {x[a]} {x[b]} {2 * value if a == b else value}\n" for a, b, value in terms)
    else:
        exact = all(value / 2 * 2 == value for value in values)
        require(exact, "a coefficient of a constraint is too small to be halved")
        yield "".join(
            f" {x[a]} {x[a]} {value}\n" if a == b else f" {x[a]} {x[b]} {value / 2}\n {x[b]} {x[a]} {value / 2}\n"
            for a, b, value in terms
        )


def read(path: Path) -> QCQP:
    """The problem in a file."""
    with open_text(path) as text:
        return _Reader(text).problem()


class _Reader:
    """Reads section by section; an error is one of the place that is read."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.content = _COMMENT.sub("", content(text))
        self.place = 0
        self.terms = Terms()
        self.sense = ""
        # Row 0 is the objective; further N rows are −1.
        self.rows: dict[str, int] = {}
        self.kinds: list[str] = []
        self.variables: dict[str, int] = {}
        self.column: set[int] = set()
        self.sets: dict[str, str] = {}
        # By row or variable; the places are those of what was given last.
        self.sides: dict[int, float] = {}
        self.ranges: dict[int, float] = {}
        self.lower: dict[int, float] = {}
        self.upper: dict[int, float] = {}
        self.row_places: dict[int, int] = {}
        self.bound_places: dict[int, int] = {}

    def problem(self) -> QCQP:
        self._sections()
        self._require(0 in self.row_places, "there is no objective, a row of kind N")
        self._require(bool(self.variables), "there are no variables")
        rows = [self._row_range(r, kind) for r, kind in enumerate(self.kinds, 1)]
        bounds = [self._bound_range(i) for i in range(len(self.variables))]
        problem = self.terms.problem(
            self.text,
            len(self.variables),
            sense=self.sense or "minimize",
            constant=-self.sides.get(0, 0.0),
            lower=[low for low, _ in rows],
            upper=[high for _, high in rows],
            x_lower=[low for low, _ in bounds],
            x_upper=[high for _, high in bounds],
            variable_names=tuple(self.variables),
            constraint_names=tuple(name for name, r in self.rows.items() if r > 0),
        )
        return tidied(problem)

    def _sections(self) -> None:
        by_line = {
            "OBJSENSE": self._sense,
            "ROWS": self._row,
            "COLUMNS": self._coefficients,
            "RHS": lambda words: self._right_sides("RHS", self.sides, words),
            "RANGES": lambda words: self._right_sides("RANGES", self.ranges, words),
            "BOUNDS": self._bound,
        }
        done: set[tuple[str, ...]] = set()
        first = _HEADER.search(self.content)
        self._require(first is not None and not self.content[: first.start()].strip(), "an MPS file begins with NAME")
        for header, after in pairwise(chain(_HEADER.finditer(self.content), [None])):
            assert header is not None
            self.place = header.start()
            section, *words = header[0].split()
            section = section.upper()
            begin, end = header.end() + 1, len(self.content) if after is None else after.start()
            self._check_words(section, words)
            key = ("QUADOBJ",) if section == "QMATRIX" else (section, *words) if section == "QCMATRIX" else (section,)
            self._require(key not in done, f"a second section {shorten(' '.join(key))}")
            done.add(key)
            if section == "ENDATA":
                self._require(not self.content[begin:].strip(), "text stands behind ENDATA")
                return
            if key[0] in ("QUADOBJ", "QCMATRIX"):
                self._matrix(section, self._row_number(words[0]) if words else 0, begin, end)
                continue
            if words and section == "OBJSENSE":
                self._sense(words)
            for line in _LINE.finditer(self.content, begin, end):
                if entry := line[0].split():
                    self.place = line.start()
                    self._require(section in by_line, f"a line that belongs to no section stands behind {section}")
                    by_line[section](entry)
        raise self._error("the file ends without ENDATA")

    def _check_words(self, section: str, words: list[str]) -> None:
        """Whether there is such a section, and these words may stand behind its name."""
        self._require(section in _SECTIONS, f"{shorten(section)} is not read; read are {', '.join(_SECTIONS)}")
        most = {"NAME": len(words), "OBJSENSE": 1, "QCMATRIX": 1}.get(section, 0)
        least = 1 if section == "QCMATRIX" else 0
        self._require(least <= len(words) <= most, f"behind {section} stand {len(words)} words; right: {most}")

    def _sense(self, words: list[str]) -> None:
        found = " ".join(words)
        self._require(not self.sense, "a second sense")
        self._require(found.upper() in _SENSES, f"{shorten(found)} is no sense; right is MAX or MIN")
        self.sense = _SENSES[found.upper()]

    def _row(self, words: list[str]) -> None:
        kind, name = words[0].upper(), words[-1]
        self._require(len(words) == 2 and kind in ("N", "L", "G", "E"), "a row is N, L, G or E, and a name")
        self._require(name not in self.rows, f"a second row is called {shorten(name)}")
        if kind == "N":
            self.rows[name] = r = -1 if 0 in self.row_places else 0
        else:
            self.kinds.append(kind)
            self.rows[name] = r = len(self.kinds)
        self.row_places[r] = self.place

    def _coefficients(self, words: list[str]) -> None:
        self._require(words[1:2] != ["'MARKER'"], "integer variables are not read, only continuous ones")
        self._require(len(words) in (3, 5), "right in COLUMNS is a variable, and once or twice a row and a number")
        if words[0] not in self.variables:
            self.variables[words[0]] = len(self.variables)
            self.column = set()
        i = self.variables[words[0]]
        self._require(i == len(self.variables) - 1, f"the lines of {shorten(words[0])} do not follow each other")
        for r, value in self._pairs(words[1:]):
            self._require(r < 0 or r not in self.column, "a coefficient is given twice")
            self.column.add(r)
            if r >= 0:
                self.terms.add_linear(r, [i], [value])

    def _right_sides(self, section: str, known: dict[int, float], words: list[str]) -> None:
        self._require(2 <= len(words) <= 5, f"right in {section} is a name, and once or twice a row and a number")
        self._check_set(section, words.pop(0) if len(words) % 2 else "")
        for r, value in self._pairs(words, infinite=True):
            self._require(r > 0 or section == "RHS", "an objective has no range")
            self._require(r < 0 or r not in known, f"{section} of a row is given twice")
            known[r] = value
            self.row_places[r] = self.place

    def _bound(self, words: list[str]) -> None:
        kind, *words = words
        kind = kind.upper()
        right = ", ".join(dict.fromkeys(_LOWER + _UPPER))
        self._require(kind in _LOWER + _UPPER, f"{shorten(kind)} is no bound of a continuous variable; right: {right}")
        valued = kind in _VALUED
        fits = len(words) in ((2, 3) if valued else (1, 2, 3))
        self._require(fits, f"right in BOUNDS is {kind}, a name, a variable{' and a number' if valued else ''}")
        named = len(words) > (2 if valued else 1)
        self._check_set("BOUNDS", words[0] if named else "")
        i, value = self._variable(words[named]), self._number(words[-1], infinite=True) if valued else np.inf
        for known, kinds, sign in ((self.lower, _LOWER, -1), (self.upper, _UPPER, 1)):
            if kind in kinds:
                self._require(i not in known, f"a bound of {shorten(words[named])} is given twice")
                known[i] = bounded(value) if valued else sign * value
        self.bound_places[i] = self.place

    def _matrix(self, section: str, row: int, begin: int, end: int) -> None:
        """Adds ½xᵀQx to the objective, xᵀQx to a constraint; of QUADOBJ one triangle is listed."""
        self._require(row > 0 or section != "QCMATRIX", "QCMATRIX needs a constraint")
        header, parts = self.place, [np.empty((3, 0))]
        while begin < end:
            self.place = begin
            found = _ENTRIES.match(self.content, begin, end)
            if found is None:
                raise self._error(f"right in {section} are two variables and a number")
            words = found[0].split()
            entries = [*map(self.variables.get, words[::3])], [*map(self.variables.get, words[1::3])], words[2::3]
            parts.append(np.array(entries, dtype=np.float64))
            if not np.isfinite(parts[-1]).all():
                self._refuse_entry(begin, found.end())
            begin = found.end()
        self.place = header
        i, j, values = np.concatenate(parts, axis=1)
        if section != "QUADOBJ":
            forth, back = np.lexsort((j, i)), np.lexsort((i, j))
            same = all((one[forth] == two[back]).all() for one, two in ((i, j), (j, i), (values, values)))
            self._require(same, f"{section} is not symmetric; right are both triangles")
            lower = i >= j
            i, j, values = i[lower], j[lower], values[lower]
        squares, others = (1.0, 2.0) if row else (0.5, 1.0)
        with np.errstate(over="ignore"):
            values = values * np.where(i == j, squares, others)
        self.terms.add_products(row, i.astype(int).tolist(), j.astype(int).tolist(), values.tolist())

    def _refuse_entry(self, begin: int, end: int) -> None:
        for line in _LINE.finditer(self.content, begin, end):
            if words := line[0].split():
                self.place = line.start()
                self._variable(words[0])
                self._variable(words[1])
                self._number(words[2])

    def _row_range(self, r: int, kind: str) -> tuple[float, float]:
        side, span = bounded(self.sides.get(r, 0.0)), self.ranges.get(r)
        low, high = (-np.inf if kind == "L" else side), (np.inf if kind == "G" else side)
        if span is not None:
            upwards = kind == "G" or (kind == "E" and span > 0)
            low, high = (low, bounded(low + abs(span))) if upwards else (bounded(high - abs(span)), high)
        return self._checked(low, high, self.row_places[r])

    def _bound_range(self, i: int) -> tuple[float, float]:
        low, high = self.lower.get(i, 0.0), self.upper.get(i, np.inf)
        self.place = self.bound_places.get(i, 0)
        self._require(i in self.lower or high >= 0, "a negative UP needs a lower bound: LO or MI")
        return self._checked(low, high, self.place)

    def _checked(self, low: float, high: float, place: int) -> tuple[float, float]:
        self.place = place
        holds = low <= high and low < np.inf and high > -np.inf
        self._require(holds, f"the range from {low} to {high} holds no number")
        return low, high

    def _pairs(self, words: list[str], infinite: bool = False) -> Iterator[tuple[int, float]]:
        for name, word in zip(words[::2], words[1::2], strict=True):
            yield self._row_number(name), self._number(word, infinite)

    def _check_set(self, section: str, name: str) -> None:
        """Of right sides, ranges and bounds there may be several sets in a file; read is one."""
        self._require(self.sets.setdefault(section, name) == name, f"a second set of {section}, {shorten(name)}")

    def _row_number(self, name: str) -> int:
        self._require(name in self.rows, f"{shorten(name)} is no row")
        return self.rows[name]

    def _variable(self, name: str) -> int:
        self._require(name in self.variables, f"{shorten(name)} is no variable")
        return self.variables[name]

    def _number(self, word: str, infinite: bool = False) -> float:
        if infinite and _INFINITY.fullmatch(word):
            return float(word)
        self._require(_NUMBER.fullmatch(word) is not None, f"{shorten(word)} is no number")
        self._require(abs(float(word)) < np.inf, f"{shorten(word)} is larger than any floating-point number")
        return float(word)

    def _error(self, message: str) -> QcqpbenchError:
        return self.text.error(message, 1 + self.content.count("\n", 0, self.place))

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise self._error(message)
