"""Export of results as CSV or Parquet tables with the same columns.

Spreadsheets interpret text that begins with = + - @, a tab or a carriage return as a formula. In a CSV file such text,
also after leading apostrophes, is prefixed with an apostrophe, which `unescape` removes. Numbers are not changed.
"""

import csv
import importlib.util
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from qcqpbench.atomic_files import Kind, check_target, is_text, magic, writing, writing_text
from qcqpbench.errors import QcqpbenchError, require

from .row import STORED_TYPES, name_and_parameters
from .store import Store

# Columns left out: the number within an invocation, whose uid is exported, and the machine, of which two facts are.
_LOCAL = ("number", "machine", "invocation", "details")
# Columns that the table has in addition to those of rows, or with another meaning than there.
ADDED_COLUMNS = {
    "invocation": "Unique id of the call of the program that made the run, the same in all files.",
    "command": "Command line of that call.",
    "cpu": "Model of the processor.",
    "commit": "Commit of the checkout of qcqpbench that made the run.",
    "problem_name": "Name of the problem's family; of a file, its path.",
    "solver_name": "Name of the solver.",
}
_KINDS = {name: kind for name, (kind, _) in STORED_TYPES.items() if name not in _LOCAL}
_GROUP_ROWS = 10_000
_MAX_INT = 1 << 63
_FORMULA_START = re.compile(r"'*[=+\-@\t\r]")
# Columns in the exports of every version.
_COMMON_COLUMNS = {"invocation", "problem_id", "termination", "point_status"}
_CSV = Kind(
    "a CSV table that export wrote",
    lambda head: (
        is_text(head) and set(head.partition(b"\n")[0].decode(errors="replace").strip().split(",")) >= _COMMON_COLUMNS
    ),
)
_PARQUET = magic("a Parquet file", b"PAR1")


def export(store: Store, target: str | Path, all_rows: bool = False) -> int:
    """Write the rows of a results file to a .csv or .parquet file, atomically.

    A missing value is an empty cell in CSV and null in Parquet; the column `details` holds JSON.

    Parameters
    ----------
    store
        The results file.
    target
        The file to write. An existing file is replaced only if it is a table of the same format.
    all_rows
        Write all rows, not only the newest row of each run.

    Returns
    -------
    int
        The number of rows written.

    Raises
    ------
    QcqpbenchError
        If the suffix of `target` is unknown, or `target` cannot be written or is a file of another kind.
    """
    target = Path(target)
    writers: dict[str, tuple[Callable[[Sequence[Column], Path], int], Kind]] = {
        ".csv": (_write_csv, _CSV),
        ".parquet": (_write_parquet, _PARQUET),
    }
    allowed = ", ".join(writers)
    require(target.suffix in writers, f"{target}: unknown file format {target.suffix!r}; allowed: {allowed}")
    write, kind = writers[target.suffix]
    check_target(target, kind)
    return write(table(store, all_rows), target)


def escape(text: str) -> str:
    """Return `text`, prefixed with an apostrophe if a spreadsheet would interpret it as a formula."""
    return f"'{text}" if _FORMULA_START.match(text) else text


def unescape(cell: str) -> str:
    """Return the text that `escape` converted to `cell`."""
    return cell[1:] if cell.startswith("'") and _FORMULA_START.match(cell) else cell


@dataclass(frozen=True)
class Column:
    """A column of the table of results: its name, the type of its values, and the values, None if missing."""

    name: str
    kind: type[int] | type[float] | type[str] | type[bool]
    values: list[Any]


def table(store: Store, all_rows: bool = False) -> list[Column]:
    """Return the rows of a results file as columns.

    The columns are those of `Row`, with `details` as JSON text; `cpu` and `commit` of the machine; `command` and the
    unique id `invocation` of the call of the program; `problem_name` and the parameters of the problems, each with a
    column of its name (with the prefix ``problem_`` if there is such a column already); `solver_name` and the
    parameters of the solvers, with the prefix ``solver_`` (and a suffix ``_`` if there is such a column already). A
    missing limit means no limit.
    """
    calls = store.invocations()
    names = (*_KINDS, "details", "invocation", "machine")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    values_of_row = attrgetter(*names)
    rows = iter(store.rows(all_rows))
    # Few rows are kept at a time, because Python's garbage collector takes long to visit many objects.
    while group := [values_of_row(row) for row in islice(rows, _GROUP_ROWS)]:
        for name, values in zip(names, zip(*group, strict=True), strict=True):
            columns[name] += map(_text, values) if name == "details" else values
    columns["command"] = [calls[number].command for number in columns["invocation"]]
    columns["invocation"] = [calls[number].uid for number in columns["invocation"]]
    columns["cpu"] = [machine.cpu for machine in columns["machine"]]
    columns["commit"] = [machine.commit for machine in columns.pop("machine")]
    for kind in ("problem", "solver"):
        columns[f"{kind}_name"] = [name_and_parameters(spec)[0] for spec in columns[kind]]
    columns["time_limit"] = [None if limit == math.inf else limit for limit in columns["time_limit"]]
    for name in ("termination", "point_status", "scope"):
        columns[name] = [None if member is None else member.value for member in columns[name]]
    fixed = [Column(name, _KINDS.get(name, str), values) for name, values in columns.items()]
    taken = set(columns)
    return [
        *fixed,
        *_parameter_columns(columns["problem"], lambda name: f"problem_{name}" if name in columns else name, taken),
        *_parameter_columns(columns["solver"], lambda name: f"solver_{name}", taken),
    ]


def _text(details: Mapping[str, Any] | None) -> str | None:
    """Return the details of a row as JSON."""
    return None if details is None else json.dumps(details) if details else "{}"


def _parameter_columns(specs: Sequence[str], column_name: Callable[[str], str], taken: set[str]) -> Iterator[Column]:
    """Yield a column for each parameter that occurs; a parameter with values of several types is a text column."""
    parameters = {spec: name_and_parameters(spec)[1] for spec in dict.fromkeys(specs)}
    for name in dict.fromkeys(name for values in parameters.values() for name in values):
        column = column_name(name)
        while column in taken:
            column += "_"
        taken.add(column)
        value_of_spec = {spec: values.get(name) for spec, values in parameters.items()}
        kind = _kind(value for value in value_of_spec.values() if value is not None)
        cell_of_spec = {spec: None if value is None else kind(value) for spec, value in value_of_spec.items()}
        yield Column(column, kind, list(map(cell_of_spec.__getitem__, specs)))


def _kind(values: Iterable[Any]) -> type[int] | type[float] | type[str] | type[bool]:
    """Return the type of a column with these values: their common type, or text."""
    present = list(values)
    kinds = {type(value) for value in present}
    kind = kinds.pop() if len(kinds) == 1 else float if kinds <= {int, float} else str
    # Seeds may have more than 64 bits.
    is_too_large = kind is int and any(abs(value) >= _MAX_INT for value in present)
    return str if is_too_large else kind


def _write_csv(columns: Sequence[Column], path: Path) -> int:
    with writing_text(path, _CSV) as file:
        writer = csv.writer(file)
        writer.writerow([column.name for column in columns])
        for row in zip(*(column.values for column in columns), strict=True):
            writer.writerow([escape(cell) if isinstance(cell, str) else cell for cell in row])
    return len(columns[0].values)


def _write_parquet(columns: Sequence[Column], path: Path) -> int:
    if importlib.util.find_spec("pyarrow") is None:
        raise QcqpbenchError("Parquet needs the package pyarrow: pip install 'qcqpbench[parquet]'")
    import pyarrow  # noqa: PLC0415 (an extra)
    from pyarrow import parquet  # noqa: PLC0415

    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string(), bool: pyarrow.bool_()}
    arrays = {column.name: pyarrow.array(column.values, types[column.kind]) for column in columns}
    with writing(path, _PARQUET) as file:
        parquet.write_table(pyarrow.table(arrays), file, row_group_size=_GROUP_ROWS)
    return len(columns[0].values)
