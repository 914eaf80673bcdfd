"""Export of results as CSV or Parquet tables with the same columns.

Spreadsheets interpret text that begins with = + - @, a tab or a carriage return as a formula. In a CSV file such text,
also after leading apostrophes, is prefixed with an apostrophe, which `unescape` removes. Numbers are not changed.
"""

import csv
import importlib.util
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from qcqpbench.atomic_files import Kind, check_target, is_text, magic, writing, writing_text
from qcqpbench.errors import QcqpbenchError, require

from .store import COLUMNS, Store

_MACHINE_COLUMNS = ("cpu", "commit")
# Columns left out: ids that are local to one file, and the machine, of which _MACHINE_COLUMNS are exported.
_LOCAL = ("id", "number", "machine")
EXPORTED = (*(name for name in COLUMNS if name not in _LOCAL), *_MACHINE_COLUMNS, "command")
_INTEGERS = ("start", "seed", "memory_limit", "threads", "iterations", "peak_memory_bytes")
_TEXTS = (
    *("invocation", "key", "worker", "problem", "problem_id", "solver", "version", "formulation", "termination"),
    *("point_status", "message", "details", "sense", "scope"),
    *(*_MACHINE_COLUMNS, "command"),
)
_BATCH_ROWS = 10_000
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

Rows = Iterator[tuple[Any, ...]]


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
        Write all rows, not only the newest row of each job.

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
    writers: dict[str, tuple[Callable[[Rows, Path], int], Kind]] = {
        ".csv": (_write_csv, _CSV),
        ".parquet": (_write_parquet, _PARQUET),
    }
    allowed = ", ".join(writers)
    require(target.suffix in writers, f"{target}: unknown file format {target.suffix!r}; allowed: {allowed}")
    write, kind = writers[target.suffix]
    check_target(target, kind)
    return write(_table(store, all_rows), target)


def escape(text: str) -> str:
    """Return `text`, prefixed with an apostrophe if a spreadsheet would interpret it as a formula."""
    return f"'{text}" if _FORMULA_START.match(text) else text


def unescape(cell: str) -> str:
    """Return the text from which `escape` made `cell`."""
    return cell[1:] if cell.startswith("'") and _FORMULA_START.match(cell) else cell


def _table(store: Store, all_rows: bool) -> Rows:
    """Yield the values of each row in the order of `EXPORTED`."""
    invocations = store.invocations()
    for row in store.rows(all_rows):
        invocation = invocations[row["invocation"]]
        facts = {name: row["machine"].get(name) for name in _MACHINE_COLUMNS}
        row |= {name: None if value is None else str(value) for name, value in facts.items()}
        row |= {"command": invocation["command"], "invocation": invocation["uid"]}
        row["details"] = None if row["details"] is None else json.dumps(row["details"])
        yield tuple(row[name] for name in EXPORTED)


def _write_csv(table: Rows, path: Path) -> int:
    count = 0
    with writing_text(path, _CSV) as file:
        writer = csv.writer(file)
        writer.writerow(EXPORTED)
        for count, row in enumerate(table, 1):  # noqa: B007 (counts the rows)
            writer.writerow([escape(cell) if isinstance(cell, str) else cell for cell in row])
    return count


def _write_parquet(table: Rows, path: Path) -> int:
    if importlib.util.find_spec("pyarrow") is None:
        raise QcqpbenchError("Parquet needs the package pyarrow: pip install 'qcqpbench[parquet]'")
    with writing(path, _PARQUET) as file:
        return _fill_parquet(table, file)


def _fill_parquet(table: Rows, file: BinaryIO) -> int:
    import pyarrow  # noqa: PLC0415 (an extra)
    from pyarrow import parquet  # noqa: PLC0415

    types = {name: pyarrow.string() for name in _TEXTS} | {name: pyarrow.int64() for name in _INTEGERS}
    schema = pyarrow.schema([(name, types.get(name, pyarrow.float64())) for name in EXPORTED])
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        while batch := list(itertools.islice(table, _BATCH_ROWS)):
            columns = zip(*batch, strict=True)
            arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pyarrow.table(arrays, schema=schema))
            count += len(batch)
    return count
