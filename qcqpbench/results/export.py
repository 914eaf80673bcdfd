"""Results as a table for other programs: CSV and Parquet, the same columns in both.

A text cell of the CSV that a spreadsheet would take for a formula, because it begins with = + - @, a tab or a carriage
return, perhaps after apostrophes, has an apostrophe before it. `unescape` removes it. Numbers are written as they are.
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

_OF_MACHINE = ("cpu", "commit")
# Numbers that mean something in one file only, and what is spread over the columns of _OF_MACHINE.
_LOCAL = ("id", "number", "machine")
EXPORTED = (*(name for name in COLUMNS if name not in _LOCAL), *_OF_MACHINE, "command")
_WHOLE = ("start", "seed", "memory_limit", "threads", "iterations", "peak_memory_bytes")
_TEXT = (
    *("invocation", "key", "worker", "problem", "problem_id", "solver", "version", "formulation", "termination"),
    *("point_status", "message", "details", "sense", "scope"),
    *(*_OF_MACHINE, "command"),
)
_BATCH = 10_000
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
# In exports of every version.
_ALWAYS = {"invocation", "problem_id", "termination", "point_status"}
_CSV = Kind(
    "a CSV table that export wrote",
    lambda head: is_text(head) and set(head.partition(b"\n")[0].decode(errors="replace").strip().split(",")) >= _ALWAYS,
)
_PARQUET = magic("a Parquet file", b"PAR1")

Rows = Iterator[tuple[Any, ...]]


def export(store: Store, target: str | Path, all_rows: bool = False) -> int:
    """Write the rows to a file (.csv, .parquet), which appears whole or not at all; returns how many.

    An empty cell of the CSV and a null of the Parquet stand for what has no value; details are JSON. A file that exists
    and is not such a table is not replaced.
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
    """Return a text cell that no spreadsheet takes for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unescape(cell: str) -> str:
    """Return the text that `escape` made a cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _table(store: Store, all_rows: bool) -> Rows:
    invocations = store.invocations()
    for row in store.rows(all_rows):
        invocation = invocations[row["invocation"]]
        facts = {name: row["machine"].get(name) for name in _OF_MACHINE}
        row |= {name: None if value is None else str(value) for name, value in facts.items()}
        row |= {"command": invocation["command"], "invocation": invocation["uid"]}
        row["details"] = None if row["details"] is None else json.dumps(row["details"])
        yield tuple(row[name] for name in EXPORTED)


def _write_csv(table: Rows, path: Path) -> int:
    count = 0
    with writing_text(path, _CSV) as file:
        writer = csv.writer(file)
        writer.writerow(EXPORTED)
        for count, row in enumerate(table, 1):  # noqa: B007 (the last one is the number of rows)
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

    kinds = {name: pyarrow.string() for name in _TEXT} | {name: pyarrow.int64() for name in _WHOLE}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in EXPORTED])
    count = 0
    with parquet.ParquetWriter(file, schema) as writer:
        while batch := list(itertools.islice(table, _BATCH)):
            columns = zip(*batch, strict=True)
            arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pyarrow.table(arrays, schema=schema))
            count += len(batch)
    return count
