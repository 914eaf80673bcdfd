"""Results files: append-only SQLite databases with one row per attempt, safe if the process is killed at any time.

invocation   one call of the program: its command, its start time, and its machine as JSON
machine      machines, as JSON, of runs on a machine other than that of their invocation
run          one attempt: its spec, the claims of the solver, and the values computed by the suite
payload      the long values of a run: its output, and arrays encoded by `_encoding.pack`
latest       view of run: the newest row of each run, without superseded skipped rows

A run is finished once it has a row, however it ended, unless its solver could not run on this machine (skipped).
A skipped row is superseded by a newer or non-skipped row with the same problem, solver, start, seed and limits, also if
the version of the solver differs.
"""

import contextlib
import json
import math
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.run.attempt import Outcome, RunValues
from qcqpbench.run.run_spec import RunSpec

from ._encoding import pack, pack_trace, plain, sorted_json, unpack, unpack_trace
from .row import COLUMNS, Row, find_fault, is_duration, make_row
from .schema import check_integrity, open_database, read_uri, readable_errors

Array = NDArray[np.float64]
Self = TypeVar("Self", bound="Store")
T = TypeVar("T")

_ARRAYS = ("point", "formulation_point", "multipliers", "offsets", "tree")
_PAYLOAD = ("output", *_ARRAYS, "trace")
_SPEC = tuple(field.name for field in fields(RunSpec))
_VALUES = tuple(field.name for field in fields(RunValues))
_INSERTED = ("invocation", "number", "key", "worker", "begun", *_SPEC, *_VALUES, "machine")
_SECONDS = ("build_seconds", "solve_seconds", "cpu_seconds")
_MAX_SHOWN_CHARACTERS = 80
# JSON has no infinity, but a file that another program wrote may.
_DECODER = json.JSONDecoder(parse_constant=str)


@dataclass(frozen=True)
class Invocation:
    """One call of the program: its unique id, its command, its start time in seconds since 1970, and its machine."""

    uid: str
    command: str
    begun: float
    machine: Machine


@dataclass(frozen=True)
class LeftOut:
    """Numbers of rows that `Store.rows` leaves out by default.

    Attributes
    ----------
    replaced
        Number of rows that have a newer row of the same run.
    skipped
        Number of skipped rows that another row supersedes, also one with another version of the solver.
    """

    replaced: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        parts = [(self.replaced, "replaced by newer rows of the same runs"), (self.skipped, "skipped and run later")]
        return ", ".join(f"{count} {reason}" for count, reason in parts if count)


class Store:
    """An open results file.

    Parameters
    ----------
    path
        The file.
    write
        Open the file for adding rows: create it if it does not exist, and exclude other writers.

    Raises
    ------
    QcqpbenchError
        If the file cannot be opened, is damaged, or is not a results file.

    Examples
    --------
    >>> with Store("results.db") as store:  # doctest: +SKIP
    ...     margins = [row.margin for row in store.rows()]
    """

    def __init__(self, path: str | Path, write: bool = False) -> None:
        self.path = Path(path)
        self._invocation: int | None = None
        # Machines of the added rows and their ids, None for that of the invocation.
        self._machines: list[tuple[Machine, int | None]] = []
        self._number = 0
        self._resources = contextlib.ExitStack()
        self._connection = self._resources.enter_context(open_database(self.path, write))

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and release the writer lock, if held."""
        self._resources.close()

    def begin(self, command: str, machine: Machine) -> int:
        """Record a new invocation, to which subsequently added rows belong; return its id."""
        row = (uuid.uuid4().hex, plain(command), time.time(), plain(asdict(machine)))
        with self._transaction():
            added = self._connection.execute(
                "INSERT INTO invocation (uid, command, begun, machine) VALUES (?, ?, ?, ?)", row
            )
        self._invocation, self._number, self._machines = added.lastrowid, 0, [(machine, None)]
        assert self._invocation is not None
        return self._invocation

    def add(self, outcome: Outcome) -> int:
        """Store an outcome in one transaction and return the id of its row.

        The row survives a later kill of this process. Repeated skips of a run are not stored; the id of the existing
        row is returned.
        """
        require(self._invocation is not None, "Store.begin must be called before Store.add")
        if outcome.attempt.termination is Termination.SKIPPED:
            query = "SELECT id FROM run WHERE key = ? ORDER BY id DESC"
            existing = self._connection.execute(query, (outcome.spec.key,)).fetchone()
            if existing:
                return int(existing[0])
        payload = _payload_values(outcome)
        with self._transaction():
            values = [self._invocation, self._number, *_run_values(outcome), self._machine_id(outcome.machine)]
            added = self._connection.execute(_INSERT, values)
            if any(payload):
                self._connection.execute(_INSERT_PAYLOAD, (added.lastrowid, *payload))
        self._number += 1
        assert added.lastrowid is not None
        return added.lastrowid

    def finished(self) -> set[str]:
        """Return the keys of all runs that have a row other than a skipped one."""
        return {key for (key,) in self._read("SELECT DISTINCT key FROM run WHERE termination <> 'skipped'")}

    def _machine_id(self, machine: Machine | None) -> int | None:
        """Return the id of `machine`, inserting it if it is new; None for the machine of the invocation."""
        if machine is None:
            return None
        for known, known_id in self._machines:
            if known == machine:
                return known_id
        facts = sorted_json(asdict(machine))
        self._connection.execute("INSERT INTO machine (facts) VALUES (?) ON CONFLICT DO NOTHING", (facts,))
        id = int(self._connection.execute("SELECT id FROM machine WHERE facts = ?", (facts,)).fetchone()[0])
        self._machines.append((machine, id))
        return id

    def rows(self, all_rows: bool = False, order: str = "id") -> Iterator[Row]:
        """Yield the rows.

        Parameters
        ----------
        all_rows
            Yield all rows, not only the newest row of each run.
        order
            The column to sort by; rows with equal values are sorted by id.

        Raises
        ------
        QcqpbenchError
            If a value is of a wrong type or outside its range.
        """
        table = "run" if all_rows else "temp.latest"
        require(order in COLUMNS, f"order must be one of {', '.join(COLUMNS)}, got {order!r}")
        calls = {id: call.machine for id, call in self.invocations().items()}
        facts = self._read("SELECT id, facts FROM machine")
        machines = {id: self._machine_of(text, f"machine {id}") for id, text in facts}
        for values in self._read(f"SELECT {', '.join(COLUMNS)} FROM {table} ORDER BY {order}, id"):
            row = dict(zip(COLUMNS, values, strict=True))
            if (fault := find_fault(row)) is not None:
                raise QcqpbenchError(f"{self.path}: run {row['id']}: {fault}")
            if row["details"] is not None:
                row["details"] = self._json(row["details"], f"run {row['id']}: details")
            machine = row["machine"]
            row["machine"] = calls[row["invocation"]] if machine is None else machines[machine]
            yield make_row(row)

    def left_out(self) -> LeftOut:
        """Return the numbers of rows that `rows` leaves out by default."""
        (skipped, replaced), *_ = self._read(
            "SELECT coalesce(sum(termination = 'skipped'), 0), coalesce(sum(termination <> 'skipped'), 0) "
            "FROM run WHERE id NOT IN (SELECT id FROM temp.latest)"
        )
        return LeftOut(replaced=int(replaced), skipped=int(skipped))

    def check(self) -> None:
        """Raise QcqpbenchError if SQLite finds the file inconsistent."""
        check_integrity(self.path, self._connection)

    def invocations(self) -> dict[int, Invocation]:
        """Return the invocations by id."""
        calls = self._read("SELECT id, uid, command, begun, machine FROM invocation ORDER BY id")
        return {
            id: Invocation(str(uid), str(command), begun, self._machine_of(machine, f"invocation {id}: machine"))
            for id, uid, command, begun, machine in calls
        }

    def _machine_of(self, facts: Any, where: str) -> Machine:
        return Machine.from_facts(self._json(facts, where))

    def _json(self, text: Any, where: str) -> dict[str, Any]:
        try:
            content = _DECODER.decode(text)
        except (TypeError, ValueError, RecursionError) as error:
            reason = str(error)[:_MAX_SHOWN_CHARACTERS]
            raise QcqpbenchError(
                f"{self.path}: {where} must be JSON, got {repr(text)[:_MAX_SHOWN_CHARACTERS]}: {reason}"
            ) from error
        if not isinstance(content, dict):
            raise QcqpbenchError(f"{self.path}: {where} must be a JSON object, got {type(content).__name__}")
        return content

    def output(self, run: int) -> str:
        """Return the stored end of the solver's output in run `run`."""
        return str(self._payload(run, "output") or "")

    def point(self, run: int) -> Array | None:
        """Return the solver's best point in run `run`: W of a task, x of a QCQP; None if there is none."""
        return self._unpacked(run, "point", unpack)

    def formulation_point(self, run: int) -> Array | None:
        """Return the point of the formulation as the solver returned it; None if not stored (as in schema 1)."""
        return self._unpacked(run, "formulation_point", unpack)

    def offsets(self, run: int) -> Array | None:
        """Return the offsets of the certificate that proves the bound; None if the solver returned none."""
        return self._unpacked(run, "offsets", unpack)

    def tree(self, run: int) -> Array | None:
        """Return the tree certificate that proves the bound, as a vector; None if the solver returned none."""
        return self._unpacked(run, "tree", unpack)

    def multipliers(self, run: int) -> Array | None:
        """Return the multipliers of a task's stabilities; None if the solver returned none."""
        return self._unpacked(run, "multipliers", unpack)

    def trace(self, run: int) -> tuple[tuple[float, Array], ...]:
        """Return the (seconds, point) pairs that the solver reported, thinned by `proposal.thin_trace`."""
        return self._unpacked(run, "trace", unpack_trace) or ()

    def merge(self, source: str | Path) -> int:
        """Add the rows of the results file `source` that this file does not have; return the number of added rows."""
        with contextlib.closing(Store(source)) as other:
            if other.path.samefile(self.path):
                return 0
            for _ in other.rows(all_rows=True):
                # Every row is read before the merge, because one invalid row would make this whole file unreadable.
                pass
        with readable_errors(other.path):
            self._connection.execute("ATTACH ? AS source", (read_uri(other.path),))
        try:
            before = self.count()
            with readable_errors(other.path):
                (result,) = self._connection.execute("PRAGMA source.quick_check(1)").fetchone()
                require(result == "ok", f"{other.path}: must be a qcqpbench results file, but it is damaged: {result}")
            with self._transaction():
                for statement in _MERGE:
                    self._connection.execute(statement)
        finally:
            with readable_errors(self.path):
                self._connection.execute("DETACH source")
        return self.count() - before

    def has(self, row: Row) -> bool:
        """Return whether `row` is a row of this file."""
        query = "SELECT 1 FROM run WHERE id = ? AND key = ? AND begun = ?"
        return bool(list(self._read(query, (row.id, row.key, row.begun))))

    def count(self) -> int:
        """Return the number of rows, including those that `rows` leaves out by default."""
        ((count,),) = self._read("SELECT count(*) FROM run")
        return int(count)

    def _unpacked(self, run: int, name: str, read: Callable[[bytes], T]) -> T | None:
        blob = self._payload(run, name)
        if blob is None:
            return None
        try:
            if not isinstance(blob, bytes):
                raise ValueError(f"the value must be bytes, got {type(blob).__name__}")
            return read(blob)
        except ValueError as error:
            raise QcqpbenchError(f"{self.path}: run {run}: {name} must be an encoded array: {error}") from error

    def _payload(self, run: int, name: str) -> Any:
        values = list(self._read(f"SELECT {name} FROM payload WHERE run = ?", (run,)))
        return values[0][0] if values else None

    def _read(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        with readable_errors(self.path):
            # Not `yield from`, which closes the cursor if the reader stops early, perhaps after the file was closed.
            for row in self._connection.execute(query, values):  # noqa: UP028
                yield row

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with readable_errors(self.path, adding_rows=True):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # A machine may have been inserted in this transaction.
                del self._machines[1:]
                # SQLite has rolled back already if the disk is full.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


_INSERT = f"INSERT INTO run ({', '.join(_INSERTED)}) VALUES ({', '.join('?' * len(_INSERTED))})"
_INSERT_PAYLOAD = f"INSERT INTO payload (run, {', '.join(_PAYLOAD)}) VALUES ({', '.join('?' * (1 + len(_PAYLOAD)))})"

_MERGE = (
    """INSERT INTO main.invocation (uid, command, begun, machine)
    SELECT uid, command, begun, machine FROM source.invocation WHERE true ON CONFLICT DO NOTHING""",
    "INSERT INTO main.machine (facts) SELECT facts FROM source.machine WHERE true ON CONFLICT DO NOTHING",
    f"""INSERT INTO main.run (invocation, {", ".join(_INSERTED[1:-1])}, machine)
    SELECT new_call.id, {", ".join(f"old_run.{name}" for name in _INSERTED[1:-1])}, new_machine.id
    FROM source.run AS old_run
    JOIN source.invocation AS old_call ON old_call.id = old_run.invocation
    JOIN main.invocation AS new_call USING (uid)
    LEFT JOIN source.machine AS old_machine ON old_machine.id = old_run.machine
    LEFT JOIN main.machine AS new_machine ON new_machine.facts = old_machine.facts
    WHERE true ORDER BY old_run.id ON CONFLICT DO NOTHING""",
    f"""INSERT INTO main.payload (run, {", ".join(_PAYLOAD)})
    SELECT new_run.id, {", ".join(_PAYLOAD)} FROM source.payload
    JOIN source.run AS old_run ON old_run.id = payload.run
    JOIN source.invocation AS old_call ON old_call.id = old_run.invocation
    JOIN main.invocation AS new_call USING (uid)
    JOIN main.run AS new_run ON new_run.invocation = new_call.id AND new_run.number = old_run.number
    WHERE true ON CONFLICT DO NOTHING""",
)


def _run_values(outcome: Outcome) -> list[Any]:
    """Return the values of the columns from `key` to the last value of the attempt, in the order of `_INSERTED`."""
    spec, attempt = outcome.spec, outcome.attempt
    values = {name: plain(getattr(spec, name)) for name in _SPEC}
    values |= {name: plain(getattr(attempt, name)) for name in _VALUES}
    # NULL means no limit.
    values["time_limit"] = None if values["time_limit"] == math.inf else values["time_limit"]
    # A solver can set back the clock of its process; such a time is unknown, and must not make the file unreadable.
    values |= {name: None for name in _SECONDS if not is_duration(values[name])}
    return [spec.key, plain(outcome.worker), outcome.begun, *(values[name] for name in (*_SPEC, *_VALUES))]


def _payload_values(outcome: Outcome) -> tuple[Any, ...]:
    """Return the output and the encoded arrays of an outcome, in the order of `_PAYLOAD`."""
    attempt = outcome.attempt
    arrays = [getattr(attempt, name) for name in _ARRAYS]
    return (
        plain(outcome.reply.output),
        *(None if array is None else pack(array) for array in arrays),
        pack_trace(attempt.trace) if attempt.trace else None,
    )
