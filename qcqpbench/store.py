"""The results file: a row per attempt, only ever appended to, safe against a kill at any moment.

invocation   one call of the program: its command, when it began, the machine as JSON
run          one attempt: its job, what the solver claimed, what the suite found
payload      what is too long for a row: output, and arrays as `pack` writes them
latest       a view of run: of each job the newest row that counts

A job is finished once it has a row, whatever became of it. Only a solver that could not run here (skipped) is to be
tried again; such a row counts until the job has another, also of another version of the solver.
"""

import contextlib
import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .attempt import Attempt
from .database import one_line, open_database, reading
from .errors import require
from .job import Job, Outcome
from .packing import pack, pack_trace, unpack, unpack_trace
from .status import Termination

Array = NDArray[np.float64]
Row = dict[str, Any]
Self = TypeVar("Self", bound="Store")

_PAYLOAD = ("point", "x", "multipliers", "trace")
_JOB = tuple(field.name for field in fields(Job))
_ATTEMPT = tuple(field.name for field in fields(Attempt) if field.name not in (*_JOB, *_PAYLOAD))
COLUMNS = ("id", "invocation", "number", "key", "worker", "begun", *_JOB, *_ATTEMPT)


class Store:
    """A results file, open.

    write   to add rows: the file is made if it is missing, and nobody else can add to it meanwhile
    """

    def __init__(self, path: str | Path, write: bool = False) -> None:
        self.path = Path(path)
        self._invocation: int | None = None
        self._number = 0
        self._open = contextlib.ExitStack()
        self._connection = self._open.enter_context(open_database(self.path, write))

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()

    def begin(self, command: str, machine: Mapping[str, Any]) -> int:
        """Note that a call of the program begins; what is added from now on belongs to it. Returns its id."""
        row = (uuid.uuid4().hex, plain(command), time.time(), plain(dict(machine)))
        with self._transaction():
            added = self._connection.execute(
                "INSERT INTO invocation (uid, command, begun, machine) VALUES (?, ?, ?, ?)", row
            )
        self._invocation, self._number = added.lastrowid, 0
        assert self._invocation is not None
        return self._invocation

    def add(self, outcome: Outcome) -> int:
        """Keep an outcome; once this returns, no kill undoes it. Returns the row's id.

        A solver that was skipped before, and is again, adds nothing: it would be no news.
        """
        require(self._invocation is not None, "nothing can be added before begin")
        job, attempt = outcome.job, outcome.attempt
        key = job.key
        if attempt.termination is Termination.SKIPPED:
            known = self._connection.execute("SELECT id FROM run WHERE key = ? ORDER BY id DESC", (key,)).fetchone()
            if known:
                return int(known[0])
        values = [getattr(job, name) for name in _JOB] + [getattr(attempt, name) for name in _ATTEMPT]
        row = [self._invocation, self._number, key, plain(outcome.worker), outcome.begun, *map(plain, values)]
        arrays = (attempt.point, attempt.x, attempt.multipliers)
        payload = (
            plain(outcome.output),
            *(None if array is None else pack(array) for array in arrays),
            pack_trace(attempt.trace) if attempt.trace else None,
        )
        with self._transaction():
            added = self._connection.execute(_INSERT, row)
            if any(payload):
                self._connection.execute(_INSERT_PAYLOAD, (added.lastrowid, *payload))
        self._number += 1
        assert added.lastrowid is not None
        return added.lastrowid

    def finished(self) -> set[str]:
        """The keys of the jobs that need not be run again."""
        return {key for (key,) in self._read("SELECT DISTINCT key FROM run WHERE termination <> 'skipped'")}

    def rows(self, all_rows: bool = False, order: str = "id") -> Iterator[Row]:
        """The rows as dicts of the COLUMNS: of each job the one that counts, or all; by default as they were added.

        None stands for what has no value, and in time_limit and memory_limit for no limit.
        """
        table = "run" if all_rows else "latest"
        require(order in COLUMNS, f"the rows have no {order}; right is one of {', '.join(COLUMNS)}")
        details = COLUMNS.index("details")
        for values in self._read(f"SELECT {', '.join(COLUMNS)} FROM {table} ORDER BY {order}, id"):
            row = dict(zip(COLUMNS, values, strict=True))
            if values[details] is not None:
                row["details"] = json.loads(values[details])
            yield row

    def invocations(self) -> dict[int, Row]:
        """Each call of the program by its id: uid, command, begun, machine (a dict)."""
        found = self._read("SELECT id, uid, command, begun, machine FROM invocation ORDER BY id")
        return {
            id: {"uid": uid, "command": command, "begun": begun, "machine": json.loads(machine)}
            for id, uid, command, begun, machine in found
        }

    def output(self, run: int) -> str:
        """What the solver printed."""
        return self._payload(run, "output") or ""

    def point(self, run: int) -> Array | None:
        """The solver's best point: W of a task, x of a QCQP."""
        return self._array(run, "point")

    def x(self, run: int) -> Array | None:
        """Of a task in a formulation: what the solver returned. Files of schema 1 did not keep it."""
        return self._array(run, "x")

    def multipliers(self, run: int) -> Array | None:
        return self._array(run, "multipliers")

    def trace(self, run: int) -> tuple[tuple[float, Array], ...]:
        """(seconds, point) of what the solver reported on the way, thinned as `packing.pack_trace` says."""
        blob = self._payload(run, "trace")
        return () if blob is None else unpack_trace(blob)

    def merge(self, source: str | Path) -> int:
        """Take over what another results file has and this has not; returns the number of new rows."""
        with contextlib.closing(Store(source)) as other:
            if other.path.samefile(self.path):
                return 0
        with one_line(other.path):
            self._connection.execute("ATTACH ? AS source", (reading(other.path),))
        with one_line(self.path):
            try:
                before = self._count()
                with one_line(other.path):
                    (sound,) = self._connection.execute("PRAGMA source.quick_check(1)").fetchone()
                    require(sound == "ok", f"{other.path}: is damaged: {sound}")
                with self._transaction():
                    for statement in _MERGE:
                        self._connection.execute(statement)
            finally:
                self._connection.execute("DETACH source")
            return self._count() - before

    def _count(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM run").fetchone()[0])

    def _array(self, run: int, name: str) -> Array | None:
        blob = self._payload(run, name)
        return None if blob is None else unpack(blob)

    def _payload(self, run: int, name: str) -> Any:
        found = list(self._read(f"SELECT {name} FROM payload WHERE run = ?", (run,)))
        return found[0][0] if found else None

    def _read(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        with one_line(self.path):
            yield from self._connection.execute(query, values)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with one_line(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk has rolled back already.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


_INSERT = f"INSERT INTO run ({', '.join(COLUMNS[1:])}) VALUES ({', '.join('?' * len(COLUMNS[1:]))})"
_INSERT_PAYLOAD = f"INSERT INTO payload (run, output, {', '.join(_PAYLOAD)}) VALUES (?, ?, ?, ?, ?, ?)"

_MERGE = (
    """INSERT INTO main.invocation (uid, command, begun, machine)
    SELECT uid, command, begun, machine FROM source.invocation WHERE true ON CONFLICT DO NOTHING""",
    f"""INSERT INTO main.run (invocation, {", ".join(COLUMNS[2:])})
    SELECT here.id, {", ".join(f"theirs.{name}" for name in COLUMNS[2:])} FROM source.run AS theirs
    JOIN source.invocation AS there ON there.id = theirs.invocation
    JOIN main.invocation AS here USING (uid)
    WHERE true ORDER BY theirs.id ON CONFLICT DO NOTHING""",
    f"""INSERT INTO main.payload (run, output, {", ".join(_PAYLOAD)})
    SELECT ours.id, output, {", ".join(_PAYLOAD)} FROM source.payload
    JOIN source.run AS theirs ON theirs.id = payload.run
    JOIN source.invocation AS there ON there.id = theirs.invocation
    JOIN main.invocation AS here USING (uid)
    JOIN main.run AS ours ON ours.invocation = here.id AND ours.number = theirs.number
    WHERE true ON CONFLICT DO NOTHING""",
)


def plain(value: Any) -> Any:
    """A value as the file takes it: numbers finite and of 64 bits, text that is Unicode, dicts as JSON; else None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, dict):
        # JSON has no infinity.
        lost = {name for name, each in value.items() if each is not None and plain(each) is None}
        return json.dumps({name: str(each) if name in lost else each for name, each in value.items()})
    return None if value is None else str(value).encode(errors="replace").decode()
