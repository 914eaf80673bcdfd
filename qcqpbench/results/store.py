"""The results file: a row per attempt, only ever appended to, safe against a kill at any moment.

invocation   one call of the program: its command, when it began, the machine as JSON
machine      the machines of runs that are not the one of their invocation, each once, as JSON
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.run.attempt import Attempt
from qcqpbench.run.job import Job, Outcome

from ._blobs import pack, pack_trace, unpack, unpack_trace
from .schema import check_integrity, one_line, open_database, reading

Array = NDArray[np.float64]
Row = dict[str, Any]
Self = TypeVar("Self", bound="Store")
T = TypeVar("T")

_PAYLOAD = ("point", "x", "multipliers", "trace")
_JOB = tuple(field.name for field in fields(Job))
_ATTEMPT = tuple(field.name for field in fields(Attempt) if field.name not in (*_JOB, *_PAYLOAD))
COLUMNS = ("id", "invocation", "number", "key", "worker", "begun", *_JOB, *_ATTEMPT, "machine")

_INTEGERS = frozenset(
    ("id", "invocation", "number", "start", "seed", "memory_limit", "threads", "iterations", "peak_memory_bytes")
)
_TEXTS = frozenset(
    ("key", "worker", "problem", "problem_id", "solver", "version", "formulation", "termination", "point_status")
) | {"message", "sense", "scope"}
_KINDS: dict[str, tuple[Any, str]] = {
    name: (int, "a whole number") if name in _INTEGERS else (str, "text") if name in _TEXTS else (float, "a number")
    for name in COLUMNS
    if name not in ("details", "machine")
}
_MAX_SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class LeftOut:
    """Rows of a file that do not count.

    replaced   a newer row of the same job stands for it
    skipped    the solver could not run, and another row of the job, also of another version, stands for it
    """

    replaced: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        parts = [(self.replaced, "replaced by newer rows of the same runs"), (self.skipped, "skipped and run later")]
        return ", ".join(f"{count} {why}" for count, why in parts if count)


class Store:
    """A results file, open.

    write   to add rows: the file is made if it is missing, and nobody else can add to it meanwhile
    """

    def __init__(self, path: str | Path, write: bool = False) -> None:
        self.path = Path(path)
        self._invocation: int | None = None
        self._machine = ""
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
        self._machine = _facts(machine)
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
        # No limit is NULL, whatever else infinity may mean.
        row[_TIME_LIMIT] = None if row[_TIME_LIMIT] == math.inf else row[_TIME_LIMIT]
        arrays = (attempt.point, attempt.x, attempt.multipliers)
        payload = (
            plain(outcome.output),
            *(None if array is None else pack(array) for array in arrays),
            pack_trace(attempt.trace) if attempt.trace else None,
        )
        with self._transaction():
            added = self._connection.execute(_INSERT, [*row, self._machine_id(outcome.machine)])
            if any(payload):
                self._connection.execute(_INSERT_PAYLOAD, (added.lastrowid, *payload))
        self._number += 1
        assert added.lastrowid is not None
        return added.lastrowid

    def finished(self) -> set[str]:
        """The keys of the jobs that need not be run again."""
        return {key for (key,) in self._read("SELECT DISTINCT key FROM run WHERE termination <> 'skipped'")}

    def _machine_id(self, machine: Mapping[str, Any] | None) -> int | None:
        """Return the id of a machine, adding it if it is new; None for the one of the invocation."""
        if machine is None or (facts := _facts(machine)) == self._machine:
            return None
        self._connection.execute("INSERT INTO machine (facts) VALUES (?) ON CONFLICT DO NOTHING", (facts,))
        return int(self._connection.execute("SELECT id FROM machine WHERE facts = ?", (facts,)).fetchone()[0])

    def rows(self, all_rows: bool = False, order: str = "id") -> Iterator[Row]:
        """The rows as dicts of the COLUMNS: of each job the one that counts, or all; by default as they were added.

        None stands for what has no value, and in time_limit and memory_limit for no limit. `machine` holds the facts
        about the machine that the run was made on.
        """
        table = "run" if all_rows else "temp.latest"
        require(order in COLUMNS, f"the rows have no {order}; right is one of {', '.join(COLUMNS)}")
        of_invocations = {id: each["machine"] for id, each in self.invocations().items()}
        machines = {id: self._json(facts, f"machine {id}") for id, facts in self._read("SELECT id, facts FROM machine")}
        for values in self._read(f"SELECT {', '.join(COLUMNS)} FROM {table} ORDER BY {order}, id"):
            row = dict(zip(COLUMNS, values, strict=True))
            where = f"run {row['id']}"
            for name, (kind, wanted) in _KINDS.items():
                value = row[name]
                if value is not None and type(value) is not kind:
                    text = repr(value)[:_MAX_SHOWN_CHARACTERS]
                    raise QcqpbenchError(f"{self.path}: {where}: {name} must be {wanted}, got {text}")
            if row["details"] is not None:
                row["details"] = self._json(row["details"], f"{where}: details")
            machine = row["machine"]
            row["machine"] = of_invocations[row["invocation"]] if machine is None else machines[machine]
            yield row

    def left_out(self) -> LeftOut:
        """Count the rows that `rows` leaves out unless it is asked for all of them."""
        (skipped, replaced), *_ = self._read(
            "SELECT coalesce(sum(termination = 'skipped'), 0), coalesce(sum(termination <> 'skipped'), 0) "
            "FROM run WHERE id NOT IN (SELECT id FROM temp.latest)"
        )
        return LeftOut(replaced=int(replaced), skipped=int(skipped))

    def check(self) -> None:
        """Refuse a file in which SQLite finds any inconsistency."""
        check_integrity(self.path, self._connection)

    def invocations(self) -> dict[int, Row]:
        """Each call of the program by its id: uid, command, begun, machine (a dict)."""
        calls = self._read("SELECT id, uid, command, begun, machine FROM invocation ORDER BY id")
        return {
            id: {
                "uid": str(uid),
                "command": str(command),
                "begun": begun,
                "machine": self._json(machine, f"invocation {id}: machine"),
            }
            for id, uid, command, begun, machine in calls
        }

    def _json(self, text: Any, where: str) -> dict[str, Any]:
        try:
            # JSON has no infinity; files that were not written here may.
            content = json.loads(text, parse_constant=str)
        except (TypeError, ValueError, RecursionError) as error:
            reason = str(error)[:_MAX_SHOWN_CHARACTERS]
            raise QcqpbenchError(f"{self.path}: {where} must be JSON, got text that is not ({reason})") from error
        if not isinstance(content, dict):
            raise QcqpbenchError(f"{self.path}: {where} must be a JSON object, got {type(content).__name__}")
        return content

    def output(self, run: int) -> str:
        """What the solver printed."""
        return str(self._payload(run, "output") or "")

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
        return self._unpacked(run, "trace", unpack_trace) or ()

    def merge(self, source: str | Path) -> int:
        """Take over what another results file has and this has not; returns the number of new rows."""
        with contextlib.closing(Store(source)) as other:
            if other.path.samefile(self.path):
                return 0
            for _ in other.rows(all_rows=True):
                # A row that cannot be read here would make the whole of this file unreadable.
                pass
        with one_line(other.path):
            self._connection.execute("ATTACH ? AS source", (reading(other.path),))
        with one_line(self.path):
            try:
                before = self.count()
                with one_line(other.path):
                    (sound,) = self._connection.execute("PRAGMA source.quick_check(1)").fetchone()
                    require(sound == "ok", f"{other.path}: is damaged: {sound}")
                with self._transaction():
                    for statement in _MERGE:
                        self._connection.execute(statement)
            finally:
                self._connection.execute("DETACH source")
            return self.count() - before

    def count(self) -> int:
        """Return the number of all rows."""
        ((count,),) = self._read("SELECT count(*) FROM run")
        return int(count)

    def _array(self, run: int, name: str) -> Array | None:
        return self._unpacked(run, name, unpack)

    def _unpacked(self, run: int, name: str, read: Callable[[bytes], T]) -> T | None:
        blob = self._payload(run, name)
        if blob is None:
            return None
        try:
            if not isinstance(blob, bytes):
                raise ValueError(f"it must be bytes, got {type(blob).__name__}")
            return read(blob)
        except ValueError as error:
            raise QcqpbenchError(f"{self.path}: run {run}: cannot read its {name}: {error}") from error

    def _payload(self, run: int, name: str) -> Any:
        found = list(self._read(f"SELECT {name} FROM payload WHERE run = ?", (run,)))
        return found[0][0] if found else None

    def _read(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        with one_line(self.path):
            # Not `yield from`, which closes the cursor if the reader stops early, perhaps after the file was closed.
            for row in self._connection.execute(query, values):  # noqa: UP028
                yield row

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


_TIME_LIMIT = COLUMNS.index("time_limit") - 1
_INSERT = f"INSERT INTO run ({', '.join(COLUMNS[1:])}) VALUES ({', '.join('?' * len(COLUMNS[1:]))})"
_INSERT_PAYLOAD = f"INSERT INTO payload (run, output, {', '.join(_PAYLOAD)}) VALUES (?, ?, ?, ?, ?, ?)"

_MERGE = (
    """INSERT INTO main.invocation (uid, command, begun, machine)
    SELECT uid, command, begun, machine FROM source.invocation WHERE true ON CONFLICT DO NOTHING""",
    "INSERT INTO main.machine (facts) SELECT facts FROM source.machine WHERE true ON CONFLICT DO NOTHING",
    f"""INSERT INTO main.run (invocation, {", ".join(COLUMNS[2:-1])}, machine)
    SELECT here.id, {", ".join(f"theirs.{name}" for name in COLUMNS[2:-1])}, known.id FROM source.run AS theirs
    JOIN source.invocation AS there ON there.id = theirs.invocation
    JOIN main.invocation AS here USING (uid)
    LEFT JOIN source.machine AS named ON named.id = theirs.machine
    LEFT JOIN main.machine AS known ON known.facts = named.facts
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
    """Return a value as the file takes it: numbers of 64 bits, text that is Unicode, dicts as JSON; None for NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, Mapping):
        return json.dumps(_jsonable(value))
    return None if value is None else str(value).encode(errors="replace").decode()


def _jsonable(value: Any) -> Any:
    """Return a value that JSON has: numbers that are not finite and whole ones beyond 64 bits become text."""
    if isinstance(value, Mapping):
        return {str(name): _jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def _facts(machine: Mapping[str, Any]) -> str:
    """Return the facts about a machine as text that is the same whatever order they are given in."""
    return json.dumps(_jsonable(machine), sort_keys=True)
