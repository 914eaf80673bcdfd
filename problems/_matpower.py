"""Reader of MATPOWER case files (version 2), which are MATLAB programs: parsed as data, never executed."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.formats.reading.text import NUMBER, Text, open_text, shorten

# Least numbers of columns; columns after these are optional.
COLUMNS = {"bus": 13, "gen": 10, "branch": 11, "gencost": 5}
# Other fields that change the optimal power flow, and that are not supported unless they are empty.
_UNSUPPORTED = ("dcline", "if", "A", "l", "u", "N", "H", "Cw", "reserves", "softlims")
_ASSIGNMENT = re.compile(r"mpc\.([A-Za-z]\w*)\s*=\s*(.*)", re.DOTALL)
_VALUE = re.compile(rf"{NUMBER}|[+-]?[Ii]nf")
# A string, so that the % in it begins no comment, or a comment.
_STRING_OR_COMMENT = re.compile(r"'(?:[^'\n]|'')*'|%.*")
_CLOSING = {"[": "]", "{": "}"}


@dataclass
class Table:
    """Matrix of a case: its rows, and where each of them stands, as FILE:LINE or in words."""

    rows: list[list[float]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[str, list[float]]]:
        return iter(zip(self.places, self.rows, strict=True))


@dataclass(frozen=True)
class Case:
    """Contents of a case file: the base of the per-unit system in MVA, and the matrices of MATPOWER's manual."""

    name: str
    base_mva: float
    bus: Table
    gen: Table
    branch: Table
    gencost: Table


def read_case(path: Path) -> Case:
    """Read the case file `path`, gzip-compressed or not.

    Raises
    ------
    QcqpbenchError
        If the file cannot be read, or holds anything but assignments of numbers, in one line with the line number.
    """
    with open_text(path) as text:
        fields = _Fields(text)
        fields.read()
    return _case(str(path), fields.base_mva, fields.tables)


def case_from_arrays(name: str, base_mva: float, tables: dict[str, Sequence[Sequence[float]]]) -> Case:
    """Return the case of these matrices, such as those of PYPOWER."""
    return _case(
        name,
        float(base_mva),
        {
            key: Table(
                [[float(value) for value in row] for row in rows],
                [f"{name}: {key} row {number}" for number in range(1, 1 + len(rows))],
            )
            for key, rows in tables.items()
        },
    )


def _case(name: str, base_mva: float | None, tables: dict[str, Table]) -> Case:
    require(base_mva is not None, f"{name}: the case must have mpc.baseMVA, got none")
    assert base_mva is not None
    require(0 < base_mva < float("inf"), f"{name}: mpc.baseMVA must be positive and finite, got {base_mva}")
    for key, least in COLUMNS.items():
        require(bool(tables.get(key, Table()).rows), f"{name}: the case must have rows in mpc.{key}, got none")
        width = len(tables[key].rows[0])
        for place, row in tables[key]:
            require(
                len(row) >= least, f"{place}: a row of mpc.{key} must have at least {least} numbers, got {len(row)}"
            )
            require(len(row) == width, f"{place}: all rows of mpc.{key} must have {width} numbers, got {len(row)}")
    return Case(name, base_mva, **{key: tables[key] for key in COLUMNS})


class _Fields:
    """Fields of a case file, filled by `read`."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.base_mva: float | None = None
        self.tables: dict[str, Table] = {}
        self._lines = iter(text)

    def read(self) -> None:
        """Read all statements of the file."""
        version = None
        for statement in self._statements():
            if re.fullmatch(r"function\s+mpc\s*=\s*\w+", statement):
                continue
            match = _ASSIGNMENT.fullmatch(statement)
            if match is None:
                raise self.text.error(
                    f"a statement must be 'mpc.FIELD = VALUE' with numbers as value, got {shorten(statement)}; "
                    "programs in case files are not executed"
                )
            name, value = match.groups()
            if name == "version":
                version = value.strip().strip("'\"")
                self.text.require(version == "2", f"mpc.version must be '2', got {shorten(value.strip())}")
            elif name == "baseMVA":
                self.base_mva = self.text.number(value.strip())
            elif value[:1] in _CLOSING:
                self._read_matrix(name, value)
            else:
                self._refuse(name)
        self.text.require(version is not None, "the case must have mpc.version = '2', got no version")

    def _statements(self) -> Iterator[str]:
        """Yield the statements outside matrices, without comments and semicolons.

        Of an assignment of a matrix, the first line is yielded; `_read_matrix` consumes the other lines.
        """
        for line in self._lines:
            rest = _without_comment(line).strip()
            while rest:
                opening = re.match(r"[^;\[{]*=\s*[\[{]", rest)
                if opening:
                    yield rest
                    break
                statement, _, rest = rest.partition(";")
                if statement.strip():
                    yield statement.strip()
                rest = rest.strip()

    def _read_matrix(self, name: str, value: str) -> None:
        """Read the rows of the matrix or cell array `name`, of which `value` is the first line."""
        begin = self.text.line
        self.text.require(name not in self.tables, f"mpc.{name} must be assigned once, got a second assignment")
        closing, table = _CLOSING[value[0]], Table()
        is_used = name in COLUMNS
        line: str | None = value[1:]
        while line is not None:
            content, end, rest = _cut(line, closing)
            for words in content.split(";"):
                row = words.replace(",", " ").split()
                if row and is_used:
                    table.rows.append([self._number(word) for word in row])
                    table.places.append(f"{self.text.path}:{self.text.line}")
                elif row:
                    self._refuse(name)
            if end:
                self.text.require(
                    not rest.strip(" \t\r\n;"),
                    f"a line must end after the {closing} of mpc.{name}, got {shorten(rest.strip())}",
                )
                if is_used:
                    self.tables[name] = table
                return
            following = next(self._lines, None)
            line = None if following is None else _without_comment(following)
        raise self.text.error(f"mpc.{name} must end with {closing}, got the end of the file", begin)

    def _number(self, word: str) -> float:
        self.text.require(_VALUE.fullmatch(word) is not None, f"expected a number, got {shorten(word)}")
        return float(word)

    def _refuse(self, name: str) -> None:
        """Raise QcqpbenchError if the optimal power flow depends on the field `name`."""
        self.text.require(
            name not in _UNSUPPORTED, f"mpc.{name} must be absent or empty, because it is not supported, got a value"
        )


def _without_comment(line: str) -> str:
    """Return a line without its comment."""
    return _STRING_OR_COMMENT.sub(lambda match: match[0] if match[0].startswith("'") else "", line)


def _cut(line: str, closing: str) -> tuple[str, str, str]:
    """Split a line at the bracket `closing` that is outside strings; the second part is empty if there is none."""
    for match in re.finditer(rf"'(?:[^'\n]|'')*'|{re.escape(closing)}", line):
        if match[0] == closing:
            return line[: match.start()], closing, line[match.end() :]
    return line, "", ""


def check_whole(place: str, name: str, value: float) -> int:
    """Return `value` as an int; raise QcqpbenchError unless it is a whole number, 1 or more."""
    if not (value == int(value) if abs(value) < 1e15 else False) or value < 1:
        raise QcqpbenchError(f"{place}: {name} must be a whole number, 1 or more, got {value:g}")
    return int(value)
