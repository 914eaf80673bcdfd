"""Results as a table for other programs: CSV and Parquet, the same columns in both."""

import csv
import importlib.util
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import QcqpbenchError, require
from .store import COLUMNS, Store

_OF_INVOCATION = ("cpu", "commit", "command")
# Numbers that mean something in one file only.
_LOCAL = ("id", "number")
EXPORTED = (*(name for name in COLUMNS if name not in _LOCAL), *_OF_INVOCATION)
_WHOLE = ("start", "seed", "memory_limit", "threads", "iterations", "peak_memory_bytes")
_TEXT = (
    *("invocation", "key", "worker", "problem", "problem_id", "solver", "version", "formulation", "termination"),
    *("point_status", "message", "details", "sense"),
    *_OF_INVOCATION,
)
_BATCH = 10_000


def export(store: Store, target: str | Path, all_rows: bool = False) -> int:
    """Write the rows to a file (.csv, .parquet), which appears whole or not at all; returns how many.

    An empty cell of the CSV and a null of the Parquet stand for what has no value; details are JSON.
    """
    target = Path(target)
    writers = {".csv": _write_csv, ".parquet": _write_parquet}
    allowed = ", ".join(writers)
    require(target.suffix in writers, f"{target}: unknown file format {target.suffix!r}; allowed: {allowed}")
    part = target.with_name(f".{target.name}.part")
    try:
        try:
            count = writers[target.suffix](_table(store, all_rows), part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise QcqpbenchError(f"{target}: cannot be written: {error.strerror or error}") from error
    return count


def _table(store: Store, all_rows: bool) -> Iterator[tuple[Any, ...]]:
    invocations = store.invocations()
    for row in store.rows(all_rows):
        invocation = invocations[row["invocation"]]
        facts = {"command": invocation["command"], **invocation["machine"], "invocation": invocation["uid"]}
        row |= {name: facts.get(name) for name in ("invocation", *_OF_INVOCATION)}
        row["details"] = None if row["details"] is None else json.dumps(row["details"])
        yield tuple(row[name] for name in EXPORTED)


def _write_csv(table: Iterator[tuple[Any, ...]], path: Path) -> int:
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(EXPORTED)
        for count, row in enumerate(table, 1):  # noqa: B007 (the last one is the number of rows)
            writer.writerow(row)
    return count


def _write_parquet(table: Iterator[tuple[Any, ...]], path: Path) -> int:
    if importlib.util.find_spec("pyarrow") is None:
        raise QcqpbenchError("Parquet needs the package pyarrow: pip install 'qcqpbench[parquet]'")
    import pyarrow  # noqa: PLC0415 (an extra)
    from pyarrow import parquet  # noqa: PLC0415

    kinds = {name: pyarrow.string() for name in _TEXT} | {name: pyarrow.int64() for name in _WHOLE}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in EXPORTED])
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        while batch := list(itertools.islice(table, _BATCH)):
            columns = zip(*batch, strict=True)
            arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pyarrow.table(arrays, schema=schema))
            count += len(batch)
    return count
