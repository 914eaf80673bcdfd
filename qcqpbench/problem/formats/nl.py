"""The text format .nl of AMPL, which AMPL and Pyomo give to solvers; Gay, Writing .nl Files (2005).

The reader accepts expressions that are quadratic when expanded: sums, products, powers and quotients of numbers,
variables and defined variables. The writer writes sums of products, coefficient · x_i x_j, and the linear parts in
their segments, where AMPL requires every variable of a function, also with coefficient 0.

The format orders variables: first those in products of both constraints and objective, then of constraints, of the
objective, and the others. Constraints with products come before linear ones. A problem in another order is reordered,
with suffixes for the original places: the reader restores it to the last bit but for names and metadata. Other programs
ignore the suffixes.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from qcqpbench.atomic_files import text_matching
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP, Sense, Vector

from ._common import linear_terms, qcqp_only, quadratic_terms
from .reading.nl_expressions import Expressions, Polynomial
from .reading.text import MAX_DECLARED, Text, open_text, shorten

Indices = NDArray[np.int64]
_ORDER_SUFFIX = "qcqpbench_order"

# An .nl file begins with a header of ten lines of numbers.
_LINE_END = r"[ \t]*+(?:#[^\n]*+)?+\r?\n"
KIND = text_matching(
    "an .nl file", rf"g\d+(?:[ \t]+[-+.\de]+)*+{_LINE_END}(?:[ \t]*+\d+(?:[ \t]+\d+)*+{_LINE_END}){{9}}"
)


def read(path: Path) -> QCQP:
    """Read a problem from an .nl file."""
    with open_text(path) as text:
        return _Reader(text).problem()


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open .nl file."""
    file.writelines(part.encode("ascii") for part in _parts(qcqp_only(problem, ".nl")))


# --- writing ---


def _parts(problem: QCQP) -> Iterator[str]:
    n, c = problem.n_variables, problem.n_constraints
    x_order, order, curved_counts = _orders(problem)
    place = np.argsort(x_order)
    rows = [_Row(problem, row, place) for row in (0, *(order + 1))]
    objective, constraints = rows[0], rows[1:]
    columns = np.zeros(n, dtype=np.int64)
    for row in constraints:
        columns[row.variables] += 1
    yield from _header(problem, objective, constraints, int(columns.sum()), curved_counts)
    for kind, moved in enumerate((x_order, order)):
        if (np.diff(moved) != 1).any():
            yield f"S{kind} {len(moved)} {_ORDER_SUFFIX}\n" + "".join(f"{k} {to}\n" for k, to in enumerate(moved))
    for k, row in enumerate(constraints):
        yield f"C{k}\n"
        yield from row.expression(0.0)
    yield f"O0 {int(problem.sense == 'maximize')}\n"
    yield from objective.expression(problem.constant)
    if problem.start is not None:
        yield f"x{n}\n" + "".join(f"{k} {value!r}\n" for k, value in enumerate(problem.start[x_order].tolist()))
    if c:
        yield "r\n" + "".join(map(_range, problem.lower[order].tolist(), problem.upper[order].tolist()))
    yield "b\n" + "".join(map(_range, problem.x_lower[x_order].tolist(), problem.x_upper[x_order].tolist()))
    yield f"k{n - 1}\n" + "".join(f"{count}\n" for count in columns.cumsum()[:-1])
    for k, row in enumerate(constraints):
        yield from row.coefficients(f"J{k}")
    yield from objective.coefficients("G0")


def _header(
    problem: QCQP, objective: "_Row", constraints: Sequence["_Row"], nonzeros: int, curved_counts: tuple[int, int, int]
) -> Iterator[str]:
    """Yield the ten lines of the header."""
    n, c = problem.n_variables, problem.n_constraints
    both, in_constraints, in_objective = curved_counts
    has_lower, has_upper = problem.lower > -np.inf, problem.upper < np.inf
    equations = np.count_nonzero(has_lower & (problem.lower == problem.upper))
    ranges = np.count_nonzero(has_lower & has_upper) - equations
    curved = sum(row.curved for row in constraints)
    yield "g3 1 1 0\t# problem qcqpbench\n"
    yield f" {n} {c} 1 {ranges} {equations}\t# vars, constraints, objectives, ranges, eqns\n"
    yield f" {curved} {int(objective.curved)}\t# nonlinear constraints, objectives\n"
    yield " 0 0\t# network constraints: nonlinear, linear\n"
    yield f" {in_constraints} {in_objective} {both}\t# nonlinear vars in constraints, objectives, both\n"
    yield " 0 0 0 1\t# linear network variables; functions; arith, flags\n"
    yield " 0 0 0 0 0\t# discrete variables: binary, integer, nonlinear (b,c,o)\n"
    yield f" {nonzeros} {len(objective.variables)}\t# nonzeros in Jacobian, gradients\n"
    yield " 0 0\t# max name lengths: constraints, variables\n"
    yield " 0 0 0 0 0\t# common exprs: b,c,o,c1,o1\n"


def _orders(problem: QCQP) -> tuple[Indices, Indices, tuple[int, int, int]]:
    """Return the variables and the constraints in the order of AMPL, and its counts of nonlinear variables.

    The counts are those of the header: variables in products of both constraints and objective, of constraints, and of
    objectives.
    """
    ends = problem.quadratic.indptr
    curved = np.zeros((2, problem.n_variables), dtype=bool)
    for target, part in zip(curved, (slice(ends[1], None), slice(0, ends[1])), strict=True):
        target[problem.products[problem.quadratic.indices[part]].ravel()] = True
    constraints, objective = curved
    x_order = np.argsort(np.where(constraints, np.where(objective, 0, 1), np.where(objective, 2, 3)), kind="stable")
    order = np.argsort(np.diff(ends)[1:] == 0, kind="stable")
    both, first, total = (int(part.sum()) for part in (constraints & objective, constraints, curved.any(axis=0)))
    return x_order, order, (both, first, total if total > first else both)


class _Row:
    """Function f_row of the problem, where variable i of the problem has the number place[i] in the file."""

    def __init__(self, problem: QCQP, row: int, place: Indices) -> None:
        self._problem, self._row, self._place = problem, row, place
        span = slice(*problem.quadratic.indptr[row : row + 2])
        products = problem.products[problem.quadratic.indices[span]].ravel()
        linear, values = linear_terms(problem, row)
        self.curved = products.size > 0
        self.linear = dict(zip(place[linear].tolist(), values, strict=True)) if linear else {}
        self.variables = np.union1d(place[products], np.array(list(self.linear), dtype=np.int64))

    def expression(self, constant: float) -> Iterator[str]:
        """Yield the lines of an expression for the quadratic terms plus `constant`."""
        if constant or not self.curved:
            yield f"o0\nn{constant!r}\n" if self.curved else f"n{constant!r}\n"
        if self.curved:
            i, j, values = quadratic_terms(self._problem, self._row)
            yield "" if len(i) == 1 else "o0\n" if len(i) == 2 else f"o54\n{len(i)}\n"
            terms = zip(values, self._place[i].tolist(), self._place[j].tolist(), strict=True)
            yield "".join([f"o2\nn{value!r}\no2\nv{first}\nv{second}\n" for value, first, second in terms])

    def coefficients(self, name: str) -> Iterator[str]:
        """Yield the segment `name` with the linear coefficient of each variable of the function, also if it is 0."""
        if len(self.variables):
            yield f"{name} {len(self.variables)}\n"
            yield "".join(f"{k} {self.linear.get(k, 0.0)!r}\n" for k in self.variables.tolist())


def _range(lower: float, upper: float) -> str:
    """Return the line of the range [lower, upper] in a segment b or r."""
    if lower == upper:
        return f"4 {lower!r}\n"
    if lower == -math.inf:
        return f"1 {upper!r}\n" if upper < math.inf else "3\n"
    return f"0 {lower!r} {upper!r}\n" if upper < math.inf else f"2 {lower!r}\n"


# --- reading ---

# For each kind of range, the sides (l and u) that each number after the kind sets.
_RANGES = {"0": ("l", "u"), "1": ("u",), "2": ("l",), "3": (), "4": ("lu",)}


class _Reader:
    """Reader of an .nl file; the constructor reads the header, `problem` the segments."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self._lines = iter(text)
        first = self._line("g and a digit")
        text.require(not first.startswith("b"), "an .nl file must be text, as of AMPL's option -og, got a binary one")
        text.require(
            re.match("g[0-9]", first) is not None, f"an .nl file must begin with g and a digit, got {shorten(first)}"
        )
        self.n, self.c, self.objectives, _, _, *others = self._sizes("variables, constraints, objectives, ranges", 5)
        text.require(self.n > 0, "the file must have variables, got none")
        text.require(self.objectives <= 1, f"the file must have at most 1 objective, got {self.objectives} objectives")
        self._require_none("logical constraints", others)
        self._require_none("complementarity conditions", self._sizes("nonlinear constraints and objectives", 2)[2:])
        self._require_none("network constraints", self._sizes("network constraints", 2))
        self._sizes("nonlinear variables", 2)
        self._require_none("network variables or functions", self._sizes("network variables and functions", 2)[:2])
        self._require_none("integer variables", self._sizes("discrete variables", 2))
        self.nonzeros = self._sizes("nonzeros in Jacobian and gradient", 2, MAX_DECLARED**2)
        self._sizes("lengths of names", 2)
        self.n_defined = sum(self._sizes("common expressions", 2))

        self.expressions = Expressions(text, self._line, self.n, self.n_defined)
        self.functions: dict[int, Polynomial] = {}
        self.linear: dict[int, Polynomial] = {}
        self.sense: Sense = "minimize"
        self.ranges: dict[str, tuple[Vector, Vector]] = {}
        self.start: Vector | None = None
        self.columns: list[int] | None = None
        self.orders = {0: np.arange(self.n), 1: np.arange(self.c)}

    def problem(self) -> QCQP:
        """Read the segments and return the problem."""
        segments = {
            "C": self._constraint,
            "O": self._objective,
            "V": self._definition,
            "S": self._suffix,
            "d": self._multipliers,
            "x": self._start,
            "r": self._constraint_ranges,
            "b": self._variable_ranges,
            "k": self._columns,
            "J": self._jacobian,
            "G": self._gradient,
        }
        for raw in self._lines:
            line = self._clean(raw)
            begins = line[:1] in segments
            self.text.require(begins, f"a segment must begin with one of {', '.join(segments)}, got {shorten(line)}")
            segments[line[0]](line[1:].split())
        self._check_counts()
        return self._assembled()

    # --- lines ---

    def _line(self, expected: str) -> str:
        """Return the next line without its comment; raise an error that names `expected` at the end of the file."""
        raw = next(self._lines, None)
        if raw is None:
            raise self.text.error(f"expected {expected}, got the end of the file")
        return self._clean(raw)

    def _clean(self, raw: str) -> str:
        """Return a line without its comment; raise an error if it does not end with a newline."""
        if raw[-1] != "\n":
            raise self.text.error(f"the line must end with a newline, got {shorten(raw)}: the file is cut off")
        return raw.partition("#")[0].strip()

    def _sizes(self, names: str, least: int, most: int = MAX_DECLARED) -> list[int]:
        """Read a header line and return its numbers, each at most `most`; raise an error for fewer than `least`."""
        sizes = [self.text.whole(word, f"number of {names}", most) for word in self._line(names).split()]
        self.text.require(len(sizes) >= least, f"expected at least {least} numbers of {names}, got {len(sizes)}")
        return sizes

    def _require_none(self, names: str, counts: Sequence[int]) -> None:
        self.text.require(not any(counts), f"the file must have no {names}, got {sum(counts)}")

    def _whole(self, words: Sequence[str], place: int, name: str, end: int, begin: int = 0) -> int:
        """Return the whole number words[place]; raise an error unless it is from `begin` to `end` − 1."""
        self.text.require(len(words) > place, f"expected the {name}, got the end of the line")
        self.text.require(
            end > begin, f"the {name} must agree with the header, which declares none, got {words[place]!r:.40}"
        )
        return self.text.whole(words[place], name, end - 1, begin)

    def _entries(self, words: Sequence[str], place: int, name: str, size: int) -> dict[int, float]:
        """Read words[place] lines "index value" and return the values by index; an index must be below `size`."""
        entries: dict[int, float] = {}
        for _ in range(self._whole(words, place, f"number of {name}", size + 1)):
            entry = self._line(f"index value, of {name}").split()
            self.text.require(len(entry) == 2, f"expected index value, got {shorten(' '.join(entry))}")
            k = self._whole(entry, 0, f"index of {name}", size)
            self.text.require(k not in entries, f"index {k} of {name} must be given once, got it a second time")
            entries[k] = self.text.number(entry[1])
        return entries

    # --- segments ---

    def _constraint(self, words: Sequence[str]) -> None:
        self._function(1 + self._whole(words, 0, "number of a constraint", self.c))

    def _objective(self, words: Sequence[str]) -> None:
        self._whole(words, 0, "number of an objective", self.objectives)
        self.sense = "maximize" if self._whole(words, 1, "sense", 2) else "minimize"
        self._function(0)

    def _function(self, row: int) -> None:
        self.text.require(row not in self.functions, "a function must be given once, got it a second time")
        self.functions[row] = self.expressions.read()

    def _definition(self, words: Sequence[str]) -> None:
        k = self._whole(words, 0, "number of a defined variable", self.n + self.n_defined, self.n)
        self.text.require(k not in self.expressions.defined, f"v{k} must be defined once, got it a second time")
        linear = self._entries(words, 1, "linear terms", self.n)
        self.expressions.defined[k] = self.expressions.sum(self.expressions.read(), self.expressions.linear(linear))

    def _suffix(self, words: Sequence[str]) -> None:
        kind = self._whole(words, 0, "kind of a suffix", 8)
        size = (self.n, self.c, self.objectives, 1)[kind & 3]
        values = self._entries(words, 1, "values of a suffix", size)
        if words[2:] == [_ORDER_SUFFIX] and kind in self.orders:
            order = np.array([values.get(k, 0.0) for k in range(size)])
            fits = np.array_equal(np.sort(order), np.arange(size))
            self.text.require(fits, f"the order must hold each of 0 to {size - 1} once, got {order.tolist()!s:.40}")
            self.orders[kind] = order.astype(np.int64)

    def _multipliers(self, words: Sequence[str]) -> None:
        self._entries(words, 0, "starting values of multipliers", self.c)

    def _start(self, words: Sequence[str]) -> None:
        self.start = np.zeros(self.n)
        for k, value in self._entries(words, 0, "starting values", self.n).items():
            self.start[k] = value

    def _constraint_ranges(self, _: Sequence[str]) -> None:
        self._ranges("r", self.c)

    def _variable_ranges(self, _: Sequence[str]) -> None:
        self._ranges("b", self.n)

    def _ranges(self, letter: str, count: int) -> None:
        self.text.require(letter not in self.ranges, f"segment {letter} must be given once, got it a second time")
        lower, upper = self.ranges[letter] = np.full(count, -np.inf), np.full(count, np.inf)
        for k in range(count):
            kind, *words = self._line("a range").split() or [""]
            fits = kind in _RANGES and len(words) == len(_RANGES[kind])
            got = shorten(" ".join([kind, *words]))
            self.text.require(fits, f"a range must be 0 l u, 1 u, 2 l, 3 or 4 c, got {got}")
            for sides, word in zip(_RANGES[kind], words, strict=True):
                for side in sides:
                    (lower if side == "l" else upper)[k] = self.text.number(word)
            self.text.require(lower[k] <= upper[k], f"a range must contain a number, got [{lower[k]}, {upper[k]}]")

    def _columns(self, words: Sequence[str]) -> None:
        self._whole(words, 0, "number of variables but one", self.n, self.n - 1)
        most = self.nonzeros[0] + 1
        self.columns = [self._whole([self._line("a count")], 0, "count", most) for _ in range(self.n - 1)]

    def _jacobian(self, words: Sequence[str]) -> None:
        self._coefficients(1 + self._whole(words, 0, "number of a constraint", self.c), words)

    def _gradient(self, words: Sequence[str]) -> None:
        self._whole(words, 0, "number of an objective", self.objectives)
        self._coefficients(0, words)

    def _coefficients(self, row: int, words: Sequence[str]) -> None:
        self.text.require(row not in self.linear, "coefficients must be given once, got them a second time")
        self.linear[row] = self.expressions.linear(self._entries(words, 1, "coefficients", self.n))

    # --- the problem ---

    def _check_counts(self) -> None:
        """Raise an error unless the segments agree with the header and with each other."""
        for name, count, declared in (
            ("functions", len(self.functions), self.objectives + self.c),
            ("defined variables", len(self.expressions.defined), self.n_defined),
            ("nonzeros in the Jacobian", sum(len(self.linear[row]) for row in self.linear if row), self.nonzeros[0]),
            ("nonzeros in the gradient", len(self.linear.get(0, ())), sum(self.nonzeros[1:])),
            ("segments b", int("b" in self.ranges), 1),
            ("segments r", int("r" in self.ranges), max(int(self.c > 0), int("r" in self.ranges))),
        ):
            self.text.require(count == declared, f"the file must have {declared} {name}, got {count}")
        if self.columns is not None:
            counts = np.zeros(self.expressions.size, dtype=np.int64)
            for row in self.linear.keys() - {0}:
                counts[[key // self.expressions.size for key in self.linear[row]]] += 1
            fits = np.array_equal(np.cumsum(counts[1:-1]), self.columns)
            self.text.require(fits, f"segment k must agree with the columns of segments J, got {self.columns!s:.40}")

    def _assembled(self) -> QCQP:
        """Return the problem, with variables and constraints in their original order."""
        x_order, order = self.orders[0], self.orders[1]
        lower, upper = self.ranges.get("r", (np.zeros(0), np.zeros(0)))
        rows, keys, values = [np.zeros(0)], [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
        for functions in (self.functions, self.linear):
            for row, function in functions.items():
                if row and function.get(0):
                    self._subtract(function[0], row, lower, upper)
                rows.append(np.full(len(function), order[row - 1] + 1 if row else 0.0))
                keys.append(np.fromiter(function, dtype=np.int64))
                values.append(np.fromiter(function.values(), dtype=np.float64))
        of_row, value = np.concatenate(rows), np.concatenate(values)
        first, second = np.divmod(np.concatenate(keys), self.expressions.size)
        product, linear = second > 0, (first > 0) & (second == 0)
        place = np.concatenate([[0], x_order])
        first, second = place[first], place[second]
        x_lower, x_upper = self.ranges["b"]
        x_back, back = np.argsort(x_order), np.argsort(order)
        try:
            return QCQP.from_terms(
                self.n,
                sense=self.sense,
                quadratic=(of_row[product], first[product], second[product], value[product]),
                linear=(of_row[linear], first[linear], value[linear]),
                constant=self.functions.get(0, {}).get(0, 0.0),
                lower=lower[back],
                upper=upper[back],
                x_lower=x_lower[x_back],
                x_upper=x_upper[x_back],
                start=None if self.start is None else self.start[x_back],
            )
        except QcqpbenchError as error:
            raise self.text.error(str(error)) from error

    def _subtract(self, constant: float, row: int, *sides: Vector) -> None:
        """Subtract `constant` from the `sides` of constraint f_row in place; raise an error if one becomes infinite."""
        for side in sides:
            was_finite = bool(np.isfinite(side[row - 1]))
            side[row - 1] -= constant
            fits = was_finite == bool(np.isfinite(side[row - 1]))
            self.text.require(fits, f"the constant of constraint {row - 1} must leave its sides finite, got {constant}")
