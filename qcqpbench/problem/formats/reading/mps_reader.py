"""Reader of the MPS format, which `mps` documents."""

import re
from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.qcqp import QCQP

from .._common import Terms, bounded, content, tidied
from .text import NUMBER, Text, shorten

_COMMENT = re.compile(r"^\*[^\n]*+", re.M)
_HEADER = re.compile(r"^\S[^\n]*+", re.M)
_LINE = re.compile(r"[^\n]++")
# Lines of two names and a number. The number of lines is limited to bound the memory.
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


class MpsReader:
    """Reader of the sections of an MPS file; errors name the line at `place`."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.content = _COMMENT.sub("", content(text))
        self.place = 0
        self.terms = Terms()
        self.sense = ""
        # Row 0 is the objective; further N rows have the number −1.
        self.rows: dict[str, int] = {}
        self.kinds: list[str] = []
        self.variables: dict[str, int] = {}
        self.column: set[int] = set()
        self.sets: dict[str, str] = {}
        # Values by row or variable. The places are the positions of the last entries, for error messages.
        self.sides: dict[int, float] = {}
        self.ranges: dict[int, float] = {}
        self.lower: dict[int, float] = {}
        self.upper: dict[int, float] = {}
        self.row_places: dict[int, int] = {}
        self.bound_places: dict[int, int] = {}

    def problem(self) -> QCQP:
        """Read the file and return its problem."""
        self._sections()
        self._require(0 in self.row_places, "the file must have an objective, a row of kind N, got none")
        self._require(bool(self.variables), "the file must have variables, got none")
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
        """Read all sections."""
        first = _HEADER.search(self.content)
        begins = first is not None and not self.content[: first.start()].strip()
        beginning = shorten(" ".join(self.content[:200].split()))
        self._require(begins, f"expected NAME at the beginning of an MPS file, got {beginning}")
        done: set[tuple[str, ...]] = set()
        for header, after in pairwise(chain(_HEADER.finditer(self.content), [None])):
            assert header is not None
            self.place = header.start()
            section, *words = header[0].split()
            section = section.upper()
            begin, end = header.end() + 1, len(self.content) if after is None else after.start()
            self._check_words(section, words)
            key = ("QUADOBJ",) if section == "QMATRIX" else (section, *words) if section == "QCMATRIX" else (section,)
            self._require(key not in done, f"a section must occur once, got a second {shorten(' '.join(key))}")
            done.add(key)
            if section == "ENDATA":
                rest = self.content[begin:].strip()
                self._require(not rest, f"expected nothing after ENDATA, got {shorten(rest)}")
                return
            if key[0] in ("QUADOBJ", "QCMATRIX"):
                self._matrix(section, self._row_number(words[0]) if words else 0, begin, end)
            else:
                self._lines(section, words, begin, end)
        raise self._error("expected ENDATA, got the end of the file")

    def _check_words(self, section: str, words: list[str]) -> None:
        """Raise an error unless `section` is known and the number of `words` that follow its name is allowed."""
        self._require(section in _SECTIONS, f"a section must be one of {', '.join(_SECTIONS)}, got {shorten(section)}")
        most = {"NAME": len(words), "OBJSENSE": 1, "QCMATRIX": 1}.get(section, 0)
        least = 1 if section == "QCMATRIX" else 0
        self._require(
            least <= len(words) <= most, f"{section} must be followed by {least} to {most} words, got {len(words)}"
        )

    def _lines(self, section: str, words: list[str], begin: int, end: int) -> None:
        """Read the lines of a section other than a matrix."""
        readers = {
            "OBJSENSE": self._sense,
            "ROWS": self._row,
            "COLUMNS": self._coefficients,
            "RHS": lambda entry: self._right_sides("RHS", self.sides, entry),
            "RANGES": lambda entry: self._right_sides("RANGES", self.ranges, entry),
            "BOUNDS": self._bound,
        }
        if words and section == "OBJSENSE":
            self._sense(words)
        for line in _LINE.finditer(self.content, begin, end):
            if entry := line[0].split():
                self.place = line.start()
                self._require(section in readers, f"expected a section after {section}, got {entry[0]!r:.40}")
                readers[section](entry)

    def _sense(self, words: list[str]) -> None:
        """Read the sense of the objective."""
        word = " ".join(words)
        self._require(not self.sense, f"the sense must be given once, got a second, {shorten(word)}")
        self._require(word.upper() in _SENSES, f"the sense must be MAX or MIN, got {shorten(word)}")
        self.sense = _SENSES[word.upper()]

    def _row(self, words: list[str]) -> None:
        """Read a line of ROWS."""
        kind, name = words[0].upper(), words[-1]
        fits = len(words) == 2 and kind in ("N", "L", "G", "E")
        self._require(fits, f"a row must be N, L, G or E, and a name, got {shorten(' '.join(words))}")
        self._require(name not in self.rows, f"names of rows must differ, got {shorten(name)} twice")
        if kind == "N":
            self.rows[name] = r = -1 if 0 in self.row_places else 0
        else:
            self.kinds.append(kind)
            self.rows[name] = r = len(self.kinds)
        self.row_places[r] = self.place

    def _coefficients(self, words: list[str]) -> None:
        """Read a line of COLUMNS."""
        self._require(words[1:2] != ["'MARKER'"], "variables must be continuous, got a MARKER of integer variables")
        entries = "a variable, and once or twice a row and a number"
        self._require(len(words) in (3, 5), f"a line in COLUMNS must be {entries}, got {len(words)} words")
        if words[0] not in self.variables:
            self.variables[words[0]] = len(self.variables)
            self.column = set()
        i = self.variables[words[0]]
        self._require(
            i == len(self.variables) - 1,
            f"the lines of {shorten(words[0])} must follow each other, got others between them",
        )
        for r, value in self._pairs(words[1:]):
            self._require(
                r < 0 or r not in self.column, f"a coefficient must be given once, got that of {words[0]!r:.40} twice"
            )
            self.column.add(r)
            if r >= 0:
                self.terms.add_linear(r, [i], [value])

    def _right_sides(self, section: str, target: dict[int, float], words: list[str]) -> None:
        """Read a line of RHS or RANGES into `target`."""
        fits = 2 <= len(words) <= 5
        entries = "an optional name, and once or twice a row and a number"
        self._require(fits, f"a line in {section} must be {entries}, got {len(words)} words")
        self._check_set(section, words.pop(0) if len(words) % 2 else "")
        for r, value in self._pairs(words, infinite=True):
            self._require(r > 0 or section == "RHS", "RANGES must be of constraints, got one of an objective")
            self._require(r < 0 or r not in target, f"{section} of a row must be given once, got it twice")
            target[r] = value
            self.row_places[r] = self.place

    def _bound(self, words: list[str]) -> None:
        """Read a line of BOUNDS."""
        kind, *words = words
        kind = kind.upper()
        kinds = ", ".join(dict.fromkeys(_LOWER + _UPPER))
        self._require(kind in _LOWER + _UPPER, f"a bound must be one of {kinds}, got {shorten(kind)}")
        valued = kind in _VALUED
        fits = len(words) in ((2, 3) if valued else (1, 2, 3))
        rest = " and a number" if valued else ""
        self._require(fits, f"BOUNDS must be {kind}, an optional name, a variable{rest}, got {len(words) + 1} words")
        named = len(words) > (2 if valued else 1)
        self._check_set("BOUNDS", words[0] if named else "")
        i, value = self._variable(words[named]), self._number(words[-1], infinite=True) if valued else np.inf
        for target, of_target, sign in ((self.lower, _LOWER, -1), (self.upper, _UPPER, 1)):
            if kind in of_target:
                self._require(i not in target, f"a bound of {shorten(words[named])} must be given once, got it twice")
                target[i] = bounded(value) if valued else sign * value
        self.bound_places[i] = self.place

    def _matrix(self, section: str, row: int, begin: int, end: int) -> None:
        """Read a matrix Q, and add ½xᵀQx to the objective or xᵀQx to a constraint; QUADOBJ lists one triangle."""
        self._require(row > 0 or section != "QCMATRIX", "QCMATRIX must be of a constraint, got the objective")
        header = self.place
        i, j, values = self._matrix_entries(section, begin, end)
        self.place = header
        if section != "QUADOBJ":
            forth, back = np.lexsort((j, i)), np.lexsort((i, j))
            same = all((one[forth] == two[back]).all() for one, two in ((i, j), (j, i), (values, values)))
            self._require(same, f"{section} must be symmetric, with both triangles, got another matrix")
            lower = i >= j
            i, j, values = i[lower], j[lower], values[lower]
        squares, others = (1.0, 2.0) if row else (0.5, 1.0)
        with np.errstate(over="ignore"):
            values = values * np.where(i == j, squares, others)
        self.terms.add_products(row, i.astype(int).tolist(), j.astype(int).tolist(), values.tolist())

    def _matrix_entries(self, section: str, begin: int, end: int) -> NDArray[np.float64]:
        """Read the E entries of a matrix; return an array (3, E) of row variables, column variables and values."""
        parts = [np.empty((3, 0))]
        while begin < end:
            self.place = begin
            match = _ENTRIES.match(self.content, begin, end)
            if match is None:
                line = shorten(self.content[begin : begin + 200].partition("\n")[0].strip())
                raise self._error(f"a line in {section} must be two variables and a number, got {line}")
            words = match[0].split()
            entries = [*map(self.variables.get, words[::3])], [*map(self.variables.get, words[1::3])], words[2::3]
            parts.append(np.array(entries, dtype=np.float64))
            if not np.isfinite(parts[-1]).all():
                self._refuse_entry(begin, match.end())
            begin = match.end()
        return np.concatenate(parts, axis=1)

    def _refuse_entry(self, begin: int, end: int) -> None:
        """Raise the error of the first invalid matrix entry between `begin` and `end`."""
        for line in _LINE.finditer(self.content, begin, end):
            if words := line[0].split():
                self.place = line.start()
                self._variable(words[0])
                self._variable(words[1])
                self._number(words[2])

    def _row_range(self, r: int, kind: str) -> tuple[float, float]:
        """Return the lower and upper sides of constraint `r`, a row of `kind` L, G or E."""
        side, span = bounded(self.sides.get(r, 0.0)), self.ranges.get(r)
        low, high = (-np.inf if kind == "L" else side), (np.inf if kind == "G" else side)
        if span is not None:
            upwards = kind == "G" or (kind == "E" and span > 0)
            low, high = (low, bounded(low + abs(span))) if upwards else (bounded(high - abs(span)), high)
        return self._checked(low, high, self.row_places[r])

    def _bound_range(self, i: int) -> tuple[float, float]:
        """Return the lower and upper bounds of variable `i`."""
        low, high = self.lower.get(i, 0.0), self.upper.get(i, np.inf)
        self.place = self.bound_places.get(i, 0)
        self._require(
            i in self.lower or high >= 0, f"a negative UP must have a lower bound, LO or MI, got only UP {high}"
        )
        return self._checked(low, high, self.place)

    def _checked(self, low: float, high: float, place: int) -> tuple[float, float]:
        """Return `low` and `high`; raise an error that names the line at `place` if [low, high] contains no number."""
        self.place = place
        holds = low <= high and low < np.inf and high > -np.inf
        self._require(holds, f"a range must contain a number, got {low} to {high}")
        return low, high

    def _pairs(self, words: list[str], infinite: bool = False) -> Iterator[tuple[int, float]]:
        """Yield (number of the row, value) for each pair of words; a value may be infinite if `infinite`."""
        for name, word in zip(words[::2], words[1::2], strict=True):
            yield self._row_number(name), self._number(word, infinite)

    def _check_set(self, section: str, name: str) -> None:
        """Raise an error if `section` has lines of a second set; sets are alternative right sides, ranges or bounds."""
        is_first = self.sets.setdefault(section, name) == name
        self._require(is_first, f"{section} must have one set, got a second, {shorten(name)}")

    def _row_number(self, name: str) -> int:
        self._require(name in self.rows, f"expected a row, got {shorten(name)}")
        return self.rows[name]

    def _variable(self, name: str) -> int:
        self._require(name in self.variables, f"expected a variable, got {shorten(name)}")
        return self.variables[name]

    def _number(self, word: str, infinite: bool = False) -> float:
        if infinite and _INFINITY.fullmatch(word):
            return float(word)
        self._require(_NUMBER.fullmatch(word) is not None, f"expected a number, got {shorten(word)}")
        self._require(abs(float(word)) < np.inf, f"a number must be in the floating-point range, got {shorten(word)}")
        return float(word)

    def _error(self, message: str) -> QcqpbenchError:
        return self.text.error(message, 1 + self.content.count("\n", 0, self.place))

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise self._error(message)
