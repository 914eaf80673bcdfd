"""The QPLIB format (.qplib) of Furini et al., Math. Prog. Comp. 11 (2019), and its points (.sol).

A file lists the lower triangles of matrices Q^0..Q^c, where every listed entry counts once:

    f_r(x) = ½ Σ_listed Q^r_ij x_i x_j + b^r·x (+ constant for r = 0)

Three letters determine the sections: one for the objective (L: linear), one for the variables (C: continuous, the only
ones supported), one for the constraints (N, B: none; L: linear). Vectors are a default value and a list of the others.
Blank lines, lines that begin with !, % or #, and words after the required ones of a line are comments. Starting values
of multipliers are ignored. Problems are read back exactly, except for metadata and for names that contain spaces.
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
from .reading.text import MAX_DECLARED, NUMBER, Text, open_text, shorten

# Text after the required words of a line is a comment, except that a number there is an error.
_REST = r"(?:\s+[^\s0-9+.-].*)?"
_OBJECTIVE = re.compile(rf"objvar\s+({NUMBER}){_REST}")
_COORDINATE = re.compile(rf"x([0-9]+)\s+({NUMBER}){_REST}")
_WORD = re.compile(rf"(\S+){_REST}")
_ENTRIES = {width: re.compile(r"([0-9]+)\s+" * width + rf"({NUMBER}){_REST}") for width in (1, 2, 3)}
_PLAIN = {width: re.compile(rf"(?:[ \t]*+{'[0-9]{1,9}[ ]++' * width}{NUMBER}[ \t\r]*+\n)*+") for width in (1, 2, 3)}
_BLOCK_LINES = 1 << 12
_NAMED = re.compile(rf"([0-9]+)\s+(\S+){_REST}")
_COMMENTS = "!%#"
_SKIP = rf"(?:\s|[{_COMMENTS}][^\n]*+\n)*+"
# A name, the type of the problem and its sense.
KIND = text_matching(
    "a QPLIB file", rf"{_SKIP}\S[^\n]*+\n{_SKIP}[LDCQ][CBMIG][NBLDCQ](?!\S)[^\n]*+\n{_SKIP}(?:min|max)imize(?!\S)"
)
_POINT_KIND = text_matching("a .sol file", rf"{_SKIP}objvar\s+{NUMBER}\s")
# The value that the writer declares for infinity.
_LARGEST = float(np.finfo(np.float64).max)

Indices = NDArray[np.int64]


def read(path: Path) -> QCQP:
    """Read a problem from a QPLIB file."""
    with open_text(path) as text:
        return _Reader(text).problem()


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open QPLIB file."""
    lines = (f"{line}\n" for line in _lines(qcqp_only(problem, ".qplib")))
    while block := "".join(islice(lines, _BLOCK_LINES)):
        file.write(block.encode("ascii"))


def read_point(path: str | Path, problem: QCQP) -> tuple[Vector, float]:
    """Read a point x of `problem`, shape (n,), and the objective that the file states, from a .sol file.

    The lines are ``objvar v`` and then ``x<k> v``, where x2 is the first variable; variables that are not listed are 0.
    """
    with open_text(Path(path)) as text:
        reader = _Reader(text)
        objective = text.number(reader.row(_OBJECTIVE, "objvar and the objective")[1])
        point, seen = np.zeros(problem.n_variables), set()
        while reader.more():
            word, value = reader.row(_COORDINATE, "a variable and its value, such as x2 0.5").groups()
            k = text.whole(word, "number of a variable", len(point) + 1, least=2) - 2
            text.require(k not in seen, f"x{k + 2} must be given once, got it twice")
            seen.add(k)
            point[k] = text.number(value)
    return point, objective


def write_point(x: ArrayLike, problem: QCQP, path: str | Path) -> None:
    """Write a point x, shape (n,), and its objective to the .sol file `path`."""
    point = np.asarray(x, dtype=np.float64)
    fits = point.shape == (problem.n_variables,) and bool(np.isfinite(point).all())
    require(fits, f"x must be {problem.n_variables} finite numbers, got {np.array2string(point, threshold=6)}")
    lines = [f"objvar {float(problem.objective(point))!r}"]
    lines += [f"x{k + 2} {float(point[k])!r}" for k in np.flatnonzero(point)]
    with writing_text(path, _POINT_KIND) as file:
        file.write("\n".join(lines) + "\n")


# --- reading ---


class _Reader:
    """Reader of a QPLIB file; memory grows with the lines that are read, not with the sizes that the file declares."""

    def __init__(self, text: Text) -> None:
        self.text = text
        lines = (line.strip() for line in text)
        self._lines = (line for line in lines if line and line[0] not in _COMMENTS)
        self._next: str | None = None

    def more(self) -> bool:
        """Return whether there is another line that is neither blank nor a comment."""
        if self._next is None:
            self._next = next(self._lines, None)
        return self._next is not None

    def row(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        """Return the match of `pattern` with the next line; raise an error that names `expected` if there is none."""
        self.text.require(self.more(), f"expected {expected}, got the end of the file")
        line, self._next = self._next or "", None
        match = pattern.fullmatch(line)
        if match is None:
            raise self.text.error(f"expected {expected}, got {shorten(line)}")
        return match

    def problem(self) -> QCQP:
        """Read the file and return its problem."""
        self.row(re.compile(".*"), "the name of the problem")
        objective, constraints = self._type()
        sense: Sense = "minimize" if self._choice("minimize", "maximize") == "minimize" else "maximize"
        n = self._count("number of variables", MAX_DECLARED)
        c = 0 if constraints in "NB" else self._count("number of constraints", MAX_DECLARED)
        none = np.zeros((3, 0), dtype=np.int64), np.zeros(0)
        first = self._terms("quadratic terms in the objective", n, n) if objective != "L" else none
        gradient, _, _ = self._vector("linear coefficients in the objective", n)
        constant = self._number("constant of the objective")
        second = self._terms("quadratic terms in the constraints", n, n, rows=c) if constraints in "DCQ" else none
        linear = self._terms("linear terms in the constraints", n, rows=c) if constraints not in "NB" else none
        infinity = self._number("value for infinity", finite=False)
        self.text.require(infinity > 0, f"the value for infinity must be positive, got {infinity}")
        lower, upper = self._range("constraints", c, infinity) if constraints not in "NB" else (np.zeros(0),) * 2
        x_lower, x_upper = self._range("variables", n, infinity)
        start, given, _ = self._vector("starting values of variables", n)
        if constraints not in "NB":
            self._vector("starting values of multipliers of constraints", c)
        self._vector("starting values of multipliers of bounds", n)
        variable_names, constraint_names = self._names("variables", "x", n), self._names("constraints", "c", c)
        self.text.require(not self.more(), f"expected the end of the file, got {shorten(self._next or '')}")
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
        """Read the type of the problem, and return its letters for the objective and for the constraints."""
        kind = self.row(_WORD, "the type of the problem")[1].upper()
        is_type = re.fullmatch("[LDCQ][CBMIG][NBLDCQ]", kind) is not None
        self.text.require(is_type, f"the type of the problem must be three letters such as QCQ, got {shorten(kind)}")
        self.text.require(
            kind[1] == "C", f"variables must be continuous, type C in the middle, got discrete ones, {kind}"
        )
        return kind[0], kind[2]

    def _choice(self, *allowed: str) -> str:
        """Read a line, and return its first word, which must be one of `allowed`."""
        expected = " or ".join(allowed)
        word = self.row(_WORD, expected)[1].lower()
        self.text.require(word in allowed, f"expected {expected}, got {shorten(word)}")
        return word

    def _count(self, name: str, *most: int) -> int:
        """Read a line and return its whole number, at most `most` if given; `name` is for messages."""
        return self.text.whole(self.row(_WORD, f"the {name}")[1], name, *most)

    def _number(self, name: str, finite: bool = True) -> float:
        """Read a line and return its number; `name` is for messages."""
        return self.text.number(self.row(_WORD, f"the {name}")[1], finite)

    def _entries(self, name: str, *sizes: int, finite: bool = True) -> tuple[Indices, Vector, Indices]:
        """Read a count E and then E lines, each of len(sizes) indices and a value.

        Return the zero-based indices, shape (len(sizes), E), the values and the line numbers, each of shape (E,). An
        index in row k must be below sizes[k]. Repeated indices are an error, because programs disagree on whether to
        sum them.
        """
        count = self._count(f"number of {name}")
        content, lines = array("d"), array("q")
        while len(lines) < count and self._block(min(_BLOCK_LINES, count - len(lines)), len(sizes), content, lines):
            pass
        pattern, expected = _ENTRIES[len(sizes)], f"{'index ' * len(sizes)}value, of {name}"
        while len(lines) < count:
            *words, value = self.row(pattern, expected).groups()
            content.extend(int(word) if len(word) < 10 else MAX_DECLARED + 1 for word in words)
            content.append(self.text.number(value, finite))
            lines.append(self.text.line)
        table = np.array(content).reshape(-1, len(sizes) + 1).T
        indices = table[:-1].astype(np.int64) - 1
        keys = np.zeros(count, dtype=np.int64)
        for row, size in zip(indices, sizes, strict=True):
            if (wrong := np.flatnonzero((row < 0) | (row >= size))).size:
                index = int(row[wrong[0]]) + 1
                got = index if index <= MAX_DECLARED else f"more than {MAX_DECLARED}"
                raise self.text.error(f"an index of {name} must be from 1 to {size}, got {got}", lines[wrong[0]])
            keys = keys * size + row
        order = np.argsort(keys, kind="stable")
        if (again := np.flatnonzero(np.diff(keys[order]) == 0)).size:
            line = lines[order[again[0] + 1]]
            raise self.text.error(f"an entry of {name} must be given once, got it a second time", line)
        return indices, table[-1].copy(), np.array(lines, dtype=np.int64)

    def _block(self, count: int, width: int, content: "array[float]", lines: "array[int]") -> bool:
        """Read `count` lines, each of `width` indices and a value, at once for speed, and append them to `content`.

        Append the line numbers to `lines`. Return False, and read nothing, if a line has any other text.
        """
        begin = self.text.line + 1
        block = self.text.block(count)
        numbers = np.fromstring(block, sep=" ") if _PLAIN[width].fullmatch(block) else np.zeros(0)
        if len(numbers) == count * (width + 1) and np.isfinite(numbers).all():
            content.frombytes(numbers.tobytes())
            lines.extend(range(begin, begin + count))
            return True
        self.text.put_back()
        return False

    def _terms(self, name: str, *sizes: int, rows: int | None = None) -> tuple[Indices, Vector]:
        """Read terms for `QCQP.from_terms`; return a table of their indices and their values.

        The columns of the table are (row, i) for linear terms and (row, i, j) for products, where row 0 is the
        objective. Raise an error for a product with i < j.
        """
        table, values, lines = self._entries(name, *(() if rows is None else (rows,)), *sizes)
        table = np.vstack([np.zeros((1, len(values)), dtype=np.int64), table]) if rows is None else table.copy()
        if rows is not None:
            table[0] += 1
        if len(sizes) == 2 and (above := np.flatnonzero(table[1] < table[2])).size:
            line = int(lines[above[0]])
            raise self.text.error(
                f"an entry of {name} must have row ≥ column, got {(table[1:, above[0]] + 1).tolist()}", line
            )
        return table, values

    def _vector(self, name: str, size: int, finite: bool = True) -> tuple[Vector, bool, Indices]:
        """Read a vector; return it, whether the file gives entries or a nonzero default, and the line of each entry."""
        default = self._number(f"default of {name}", finite)
        vector, lines = np.full(size, default), np.full(size, self.text.line)
        (places,), values, entry_lines = self._entries(name, size, finite=finite)
        vector[places], lines[places] = values, entry_lines
        return vector, default != 0 or values.size > 0, lines

    def _range(self, name: str, size: int, infinity: float) -> tuple[Vector, Vector]:
        """Read and return the lower and upper bounds, each of shape (size,), of the variables or constraints.

        Magnitudes of `infinity` or more are infinite. Raise an error if a range contains no number.
        """
        (lower, _, lower_lines), (upper, _, upper_lines) = (
            self._vector(f"{side} bounds of {name}", size, finite=False) for side in ("lower", "upper")
        )
        for side in (lower, upper):
            side[np.abs(side) >= infinity] *= np.inf
        wrong = np.flatnonzero(~((lower <= upper) & (lower < np.inf) & (upper > -np.inf)))
        if wrong.size:
            k = wrong[0]
            message = f"the range of number {k + 1} of the {name} must contain a number, got [{lower[k]}, {upper[k]}]"
            raise self.text.error(message, int(max(lower_lines[k], upper_lines[k])))
        return lower, upper

    def _names(self, kind: str, letter: str, size: int) -> tuple[str, ...] | None:
        """Read the names of the variables or constraints; return None if the file gives none."""
        count = self._count(f"number of names of {kind}")
        names: dict[int, str] = {}
        for _ in range(count):
            word, name = self.row(_NAMED, f"index name, of {kind}").groups()
            k = self.text.whole(word, f"index of {kind}", size, least=1)
            self.text.require(
                k not in names, f"number {k} of the {kind} must have one name, got a second, {shorten(name)}"
            )
            names[k] = name
        all_names = tuple(names.get(k, f"{letter}{k}") for k in range(1, size + 1)) if names else ()
        repeated = len(all_names) - len(set(all_names))
        self.text.require(repeated == 0, f"names of {kind} must differ, got {repeated} repeated")
        return all_names or None


# --- writing ---


def _lines(problem: QCQP) -> Iterator[str]:
    """Yield the lines of the QPLIB file of a problem."""
    letters = _letters(problem)
    name = problem.metadata.spec or ""
    yield name if re.fullmatch(r"[!-~]+", name) and name[0] not in _COMMENTS else "qcqpbench"
    yield letters
    yield problem.sense
    yield f"{problem.n_variables} # number of variables"
    if problem.n_constraints:
        yield f"{problem.n_constraints} # number of constraints"
    yield from _functions(problem, letters)
    yield f"{_LARGEST!r} # value for infinity"
    if problem.n_constraints:
        yield from _vector("left-hand sides", _bounds(problem.lower))
        yield from _vector("right-hand sides", _bounds(problem.upper))
    yield from _vector("variable lower bounds", _bounds(problem.x_lower))
    yield from _vector("variable upper bounds", _bounds(problem.x_upper))
    yield from _starting_point(problem)
    yield from _names("variable", problem.variable_names)
    yield from _names("constraint", problem.constraint_names)


def _functions(problem: QCQP, letters: str) -> Iterator[str]:
    """Yield the lines of the terms of the objective and of the constraints; `letters` is the type of the problem."""
    quadratic, linear = problem.quadratic.tocoo(), problem.linear.tocoo()
    i, j = problem.products[quadratic.col].T + 1
    fits = bool((np.abs(quadratic.data) <= _LARGEST / 2).all())
    largest = np.abs(quadratic.data).max(initial=0.0)
    require(fits, f"quadratic coefficients in a .qplib file must be at most {_LARGEST / 2}, got {largest}")
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
    if problem.n_constraints:
        rest = linear.row > 0
        rows = linear.row[rest]
        yield from _entries("linear terms in all constraints", linear.data[rest], rows, linear.col[rest] + 1)


def _starting_point(problem: QCQP) -> Iterator[str]:
    """Yield the lines of the starting point, with all multipliers 0."""
    if problem.start is None:
        yield from _vector("variable primal values in starting point", np.zeros(0))
    else:
        # All values are written, also 0: a file without values has no starting point.
        yield "0.0 # default variable primal value in starting point"
        places = np.arange(1, problem.n_variables + 1)
        yield from _entries("variable primal values in starting point", problem.start, places)
    if problem.n_constraints:
        yield from _vector("constraint dual values in starting point", np.zeros(0))
    yield from _vector("variable bound dual values in starting point", np.zeros(0))


def _letters(problem: QCQP) -> str:
    """Return the three-letter type of a problem."""
    ends = problem.quadratic.indptr
    bounded = np.isfinite(problem.x_lower).any() or np.isfinite(problem.x_upper).any()
    constraints = "Q" if ends[-1] > ends[1] else "L"
    return ("Q" if ends[1] else "L") + "C" + (constraints if problem.n_constraints else "B" if bounded else "N")


def _entries(name: str, values: Vector, *indices: Indices) -> Iterator[str]:
    """Yield the number of entries, then a line of indices and value for each entry."""
    yield f"{len(values)} # number of {name}"
    columns = [column.tolist() for column in indices]
    for *place, value in zip(*columns, values.tolist(), strict=True):
        yield f"{' '.join(map(str, place))} {value!r}"


def _vector(name: str, vector: Vector) -> Iterator[str]:
    """Yield the lines of a vector: its most frequent value as default, then the other entries."""
    values, counts = np.unique(vector, return_counts=True)
    default = float(values[counts.argmax()]) if values.size else 0.0
    yield f"{default!r} # default of {name}"
    places = np.flatnonzero(vector != default)
    yield from _entries(f"non-default {name}", vector[places], places + 1)


def _bounds(bounds: Vector) -> Vector:
    """Return `bounds` with ±inf replaced by ±`_LARGEST`, the value for infinity in the file."""
    fits = bool((np.abs(bounds) != _LARGEST).all())
    require(
        fits, f"|bounds| in a .qplib file must be infinite or below {_LARGEST}, its value for infinity, got ±{_LARGEST}"
    )
    return np.clip(bounds, -_LARGEST, _LARGEST)


def _names(kind: str, names: Sequence[str] | None) -> Iterator[str]:
    """Yield the lines of the names; none if a name is not printable ASCII without spaces."""
    words = [name for name in names or () if re.fullmatch(r"[!-~]+", name)]
    words = words if names and len(words) == len(names) else []
    yield f"{len(words)} # number of non-default {kind} names"
    yield from (f"{k} {word}" for k, word in enumerate(words, 1))
