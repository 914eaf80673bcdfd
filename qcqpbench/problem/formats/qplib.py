"""QPLIB files (.qplib), as in Furini et al., Math. Prog. Comp. 11 (2019), and the points (.sol) that go with them.

A file lists the lower triangles of matrices Q^0..Q^c, and every listed entry counts once:

    f_r(x) = ½ Σ_listed Q^r_ij x_i x_j + b^r·x (+ constant for r = 0)

Three letters say which sections there are: one for the objective (L: linear), one for the variables (C: continuous,
the only ones here), one for the constraints (N, B: none; L: linear). Vectors are a default value and a list of the
others. Blank lines, lines that begin with !, % or #, and words behind what a line must have are comments. Starting
values of multipliers are read past. What is written reads back exactly, but for the metadata and for names
that are no words.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.atomic_files import text_matching, writing_text
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP, Sense, Vector

from ._common import qcqp_only
from ._text import MOST_DECLARED, NUMBER, Text, open_text, shorten

# A number behind what a line must have is no comment: something is wrong with the line.
_REST = r"(?:\s+[^\s0-9+.-].*)?"
_OBJECTIVE = re.compile(rf"objvar\s+({NUMBER}){_REST}")
_COORDINATE = re.compile(rf"x([0-9]+)\s+({NUMBER}){_REST}")
_WORD = re.compile(rf"(\S+){_REST}")
_ENTRIES = {width: re.compile(r"([0-9]+)\s+" * width + rf"({NUMBER}){_REST}") for width in (1, 2, 3)}
_PLAIN = {width: re.compile(rf"(?:[ \t]*+{'[0-9]{1,9}[ ]++' * width}{NUMBER}[ \t\r]*+\n)*+") for width in (1, 2, 3)}
_BLOCK = 1 << 12
_NAMED = re.compile(rf"([0-9]+)\s+(\S+){_REST}")
_COMMENTS = "!%#"
# Written for infinity.
_LARGEST = float(np.finfo(np.float64).max)

Indices = NDArray[np.int64]


def read(path: Path) -> QCQP:
    """The problem in a file."""
    with open_text(path) as text:
        return _Reader(text).problem()


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open file."""
    lines = (f"{line}\n" for line in _lines(qcqp_only(problem, ".qplib")))
    while block := "".join(islice(lines, _BLOCK)):
        file.write(block.encode("ascii"))


def read_point(path: str | Path, problem: QCQP) -> tuple[Vector, float]:
    """The point x in a .sol file, and the objective that the file states.

    The lines are ``objvar v`` and then ``x<k> v``, where x2 is the first variable; what is not listed is 0.
    """
    with open_text(Path(path)) as text:
        reader = _Reader(text)
        objective = text.number(reader.row(_OBJECTIVE, "objvar and the objective")[1])
        point, seen = np.zeros(problem.n_variables), set()
        while reader.more():
            word, value = reader.row(_COORDINATE, "a variable and its value, such as x2 0.5").groups()
            k = text.whole(word, "number of a variable", len(point) + 1, least=2) - 2
            text.require(k not in seen, f"x{k + 2} is given twice")
            seen.add(k)
            point[k] = text.number(value)
    return point, objective


def write_point(x: ArrayLike, problem: QCQP, path: str | Path) -> None:
    """Write a point x to a .sol file, with its objective."""
    point = np.asarray(x, dtype=np.float64)
    fits = point.shape == (problem.n_variables,) and bool(np.isfinite(point).all())
    require(fits, f"a point of this problem is {problem.n_variables} finite numbers")
    lines = [f"objvar {float(problem.objective(point))!r}"]
    lines += [f"x{k + 2} {float(point[k])!r}" for k in np.flatnonzero(point)]
    with writing_text(path, text_matching("a .sol file", r"^\s*objvar\b")) as file:
        file.write("\n".join(lines) + "\n")


# --- reading ---


class _Reader:
    """A file being read, line by line; nothing is made as large as the file merely says."""

    def __init__(self, text: Text) -> None:
        self.text = text
        lines = (line.strip() for line in text)
        self._lines = (line for line in lines if line and line[0] not in _COMMENTS)
        self._next: str | None = None

    def more(self) -> bool:
        """Whether there is another line that says something."""
        if self._next is None:
            self._next = next(self._lines, None)
        return self._next is not None

    def row(self, pattern: re.Pattern[str], right: str) -> re.Match[str]:
        """The next line, which must have the pattern."""
        self.text.require(self.more(), f"the file ends here; needed: {right}")
        line, self._next = self._next or "", None
        found = pattern.fullmatch(line)
        if found is None:
            raise self.text.error(f"{shorten(line)} is not allowed here; right is {right}")
        return found

    def problem(self) -> QCQP:
        self.row(re.compile(".*"), "the name of the problem")
        objective, constraints = self._type()
        sense: Sense = "minimize" if self._choice("minimize", "maximize") == "minimize" else "maximize"
        n = self._count("number of variables", MOST_DECLARED)
        c = 0 if constraints in "NB" else self._count("number of constraints", MOST_DECLARED)
        none = np.zeros((3, 0), dtype=np.int64), np.zeros(0)
        first = self._terms("quadratic terms in the objective", n, n) if objective != "L" else none
        gradient, _, _ = self._vector("linear coefficients in the objective", n)
        constant = self._number("constant of the objective")
        second = self._terms("quadratic terms in the constraints", n, n, rows=c) if constraints in "DCQ" else none
        linear = self._terms("linear terms in the constraints", n, rows=c) if constraints not in "NB" else none
        infinity = self._number("value for infinity", finite=False)
        self.text.require(infinity > 0, f"{infinity} is no value for infinity; right is a positive number")
        lower, upper = self._range("constraints", c, infinity) if constraints not in "NB" else (np.zeros(0),) * 2
        x_lower, x_upper = self._range("variables", n, infinity)
        start, given, _ = self._vector("starting values of variables", n)
        if constraints not in "NB":
            self._vector("starting values of multipliers of constraints", c)
        self._vector("starting values of multipliers of bounds", n)
        variable_names, constraint_names = self._names("variables", "x", n), self._names("constraints", "c", c)
        self.text.require(not self.more(), "the problem ends before this line; right is nothing more")
        rows, i, j = np.concatenate([first[0], second[0]], axis=1)
        return QCQP.from_terms(
            n,
            sense=sense,
            quadratic=(rows, i, j, np.concatenate([first[1], second[1]]) / 2),
            linear=(
                np.concatenate([np.zeros(n, dtype=np.int64), linear[0][0]]),
                np.concatenate([np.arange(n), linear[0][1]]),
                np.concatenate([gradient, linear[1]]),
            ),
            constant=constant,
            lower=lower,
            upper=upper,
            x_lower=x_lower,
            x_upper=x_upper,
            start=start if given else None,
            variable_names=variable_names,
            constraint_names=constraint_names,
        )

    def _type(self) -> tuple[str, str]:
        """The letters of the objective and of the constraints."""
        kind = self.row(_WORD, "the type of the problem")[1].upper()
        known = re.fullmatch("[LDCQ][CBMIG][NBLDCQ]", kind) is not None
        self.text.require(known, f"{shorten(kind)} is no type of a problem; right are three letters such as QCQ")
        discrete = f"type {kind} has discrete variables, qcqpbench has none; right is a C in the middle, as in QCQ"
        self.text.require(kind[1] == "C", discrete)
        return kind[0], kind[2]

    def _choice(self, *allowed: str) -> str:
        right = " or ".join(allowed)
        word = self.row(_WORD, right)[1].lower()
        self.text.require(word in allowed, f"{shorten(word)} is not allowed here; right is {right}")
        return word

    def _count(self, what: str, *most: int) -> int:
        return self.text.whole(self.row(_WORD, f"the {what}")[1], what, *most)

    def _number(self, what: str, finite: bool = True) -> float:
        return self.text.number(self.row(_WORD, f"the {what}")[1], finite)

    def _entries(self, what: str, *sizes: int, finite: bool = True) -> tuple[Indices, Vector, Indices]:
        """A count and that many lines of indices and a value: the indices from 0, a row for each size; values; lines.

        The same indices twice are an error: readers disagree on whether they add up.
        """
        count = self._count(f"number of {what}")
        content, lines = array("d"), array("q")
        while len(lines) < count and self._block(min(_BLOCK, count - len(lines)), len(sizes), content, lines):
            pass
        pattern, right = _ENTRIES[len(sizes)], f"{'index ' * len(sizes)}value, of {what}"
        while len(lines) < count:
            *words, value = self.row(pattern, right).groups()
            content.extend(int(word) if len(word) < 10 else MOST_DECLARED + 1 for word in words)
            content.append(self.text.number(value, finite))
            lines.append(self.text.line)
        table = np.array(content).reshape(-1, len(sizes) + 1).T
        indices = table[:-1].astype(np.int64) - 1
        keys = np.zeros(count, dtype=np.int64)
        for row, size in zip(indices, sizes, strict=True):
            if (wrong := np.flatnonzero((row < 0) | (row >= size))).size:
                right = f"right is 1 to {size}"
                raise self.text.error(f"an index of {what} is out of range; {right}", lines[wrong[0]])
            keys = keys * size + row
        order = np.argsort(keys, kind="stable")
        if (again := np.flatnonzero(np.diff(keys[order]) == 0)).size:
            line = lines[order[again[0] + 1]]
            raise self.text.error(f"an entry of {what} is given a second time; right is once", line)
        return indices, table[-1].copy(), np.array(lines, dtype=np.int64)

    def _block(self, count: int, width: int, content: "array[float]", lines: "array[int]") -> bool:
        """Take that many lines of bare numbers at once, which is fast; if there are others among them, none."""
        begin = self.text.line + 1
        block = self.text.block(count)
        numbers = np.fromstring(block, sep=" ") if _PLAIN[width].fullmatch(block) else np.zeros(0)
        if len(numbers) == count * (width + 1) and np.isfinite(numbers).all():
            content.frombytes(numbers.tobytes())
            lines.extend(range(begin, begin + count))
            return True
        self.text.put_back()
        return False

    def _terms(self, what: str, *sizes: int, rows: int | None = None) -> tuple[Indices, Vector]:
        """Terms as `QCQP.from_terms` takes them: rows (0 is the objective) and variables; values. Of products (i, j)
        the lower triangle."""
        table, values, lines = self._entries(what, *(() if rows is None else (rows,)), *sizes)
        table = np.vstack([np.zeros((1, len(values)), dtype=np.int64), table]) if rows is None else table.copy()
        if rows is not None:
            table[0] += 1
        if len(sizes) == 2 and (above := np.flatnonzero(table[1] < table[2])).size:
            line = int(lines[above[0]])
            raise self.text.error(f"an entry of {what} is above the diagonal; right is row ≥ column", line)
        return table, values

    def _vector(self, what: str, size: int, finite: bool = True) -> tuple[Vector, bool, Indices]:
        """A vector; whether the file says more of it than that it is 0; the line of each entry."""
        default = self._number(f"default of {what}", finite)
        vector, lines = np.full(size, default), np.full(size, self.text.line)
        (places,), values, own = self._entries(what, size, finite=finite)
        vector[places], lines[places] = values, own
        return vector, default != 0 or values.size > 0, lines

    def _range(self, what: str, size: int, infinity: float) -> tuple[Vector, Vector]:
        (lower, _, one), (upper, _, two) = (
            self._vector(f"{side} bounds of {what}", size, finite=False) for side in ("lower", "upper")
        )
        for side in (lower, upper):
            side[np.abs(side) >= infinity] *= np.inf
        wrong = np.flatnonzero(~((lower <= upper) & (lower < np.inf) & (upper > -np.inf)))
        if wrong.size:
            k = wrong[0]
            message = f"number {k + 1} of the {what} has the range [{lower[k]}, {upper[k]}], which holds no number"
            raise self.text.error(message, int(max(one[k], two[k])))
        return lower, upper

    def _names(self, what: str, letter: str, size: int) -> tuple[str, ...] | None:
        count = self._count(f"number of names of {what}")
        names: dict[int, str] = {}
        for _ in range(count):
            word, name = self.row(_NAMED, f"index name, of {what}").groups()
            k = self.text.whole(word, f"index of {what}", size, least=1)
            self.text.require(k not in names, f"a second name of {what} {k}; right is one")
            names[k] = name
        all_names = tuple(names.get(k, f"{letter}{k}") for k in range(1, size + 1)) if names else ()
        self.text.require(len(set(all_names)) == len(all_names), f"two of the {what} have the same name")
        return all_names or None


# --- writing ---


def _lines(problem: QCQP) -> Iterator[str]:
    n, c = problem.n_variables, problem.n_constraints
    quadratic, linear = problem.quadratic.tocoo(), problem.linear.tocoo()
    letters = _letters(problem)
    name = problem.metadata.spec or ""
    yield name if re.fullmatch(r"[!-~]+", name) and name[0] not in _COMMENTS else "qcqpbench"
    yield letters
    yield problem.sense
    yield f"{n} # number of variables"
    if c:
        yield f"{c} # number of constraints"
    i, j = problem.products[quadratic.col].T + 1
    fits = bool((np.abs(quadratic.data) <= _LARGEST / 2).all())
    require(fits, f"a quadratic coefficient is too large for a .qplib file; at most {_LARGEST / 2} is right")
    values = 2 * quadratic.data
    first = quadratic.row == 0
    if letters[0] != "L":
        yield from _entries("quadratic terms in objective", values[first], i[first], j[first])
    yield from _vector("linear coefficients in objective", problem.linear[[0]].toarray()[0])
    yield f"{problem.constant!r} # objective constant"
    if letters[2] == "Q":
        rest = ~first
        rows = quadratic.row[rest]
        yield from _entries("quadratic terms in all constraints", values[rest], rows, i[rest], j[rest])
    if c:
        rest = linear.row > 0
        yield from _entries(
            "linear terms in all constraints", linear.data[rest], linear.row[rest], linear.col[rest] + 1
        )
    yield f"{_LARGEST!r} # value for infinity"
    if c:
        yield from _vector("left-hand sides", _bounds(problem.lower))
        yield from _vector("right-hand sides", _bounds(problem.upper))
    yield from _vector("variable lower bounds", _bounds(problem.x_lower))
    yield from _vector("variable upper bounds", _bounds(problem.x_upper))
    if problem.start is None:
        yield from _vector("variable primal values in starting point", np.zeros(0))
    else:
        # Every value, also 0: without any, there is no starting point.
        yield "0.0 # default variable primal value in starting point"
        yield from _entries("variable primal values in starting point", problem.start, np.arange(1, n + 1))
    if c:
        yield from _vector("constraint dual values in starting point", np.zeros(0))
    yield from _vector("variable bound dual values in starting point", np.zeros(0))
    yield from _names("variable", problem.variable_names)
    yield from _names("constraint", problem.constraint_names)


def _letters(problem: QCQP) -> str:
    ends = problem.quadratic.indptr
    bounded = np.isfinite(problem.x_lower).any() or np.isfinite(problem.x_upper).any()
    constraints = "Q" if ends[-1] > ends[1] else "L"
    return ("Q" if ends[1] else "L") + "C" + (constraints if problem.n_constraints else "B" if bounded else "N")


def _entries(what: str, values: Vector, *indices: Indices) -> Iterator[str]:
    yield f"{len(values)} # number of {what}"
    columns = [each.tolist() for each in indices]
    for *place, value in zip(*columns, values.tolist(), strict=True):
        yield f"{' '.join(map(str, place))} {value!r}"


def _vector(what: str, vector: Vector) -> Iterator[str]:
    """The most frequent value as default, then what differs from it."""
    values, counts = np.unique(vector, return_counts=True)
    default = float(values[counts.argmax()]) if values.size else 0.0
    yield f"{default!r} # default of {what}"
    places = np.flatnonzero(vector != default)
    yield from _entries(f"non-default {what}", vector[places], places + 1)


def _bounds(bounds: Vector) -> Vector:
    there = np.abs(bounds) != _LARGEST
    require(bool(there.all()), f"a bound of {_LARGEST} cannot be told from infinity in a .qplib file")
    return np.clip(bounds, -_LARGEST, _LARGEST)


def _names(what: str, names: Sequence[str] | None) -> Iterator[str]:
    """The names, if all of them are words."""
    fit = [name for name in names or () if re.fullmatch(r"[!-~]+", name)]
    fit = fit if names and len(fit) == len(names) else []
    yield f"{len(fit)} # number of non-default {what} names"
    yield from (f"{k} {name}" for k, name in enumerate(fit, 1))
