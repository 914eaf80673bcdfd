"""Submissions: small files of rows with their points and proofs, which anyone can re-evaluate.

A file is JSON Lines: a header with the machines and the calls of the program, then a line for each row. A line holds
the columns of the row that are not None; its arrays are compressed, in base64. Numbers are exact to the bit. Nothing
is pickled, so reading a file executes nothing. The key of a row is not stored, because the other columns determine it;
nor are the trace, the output of the solver and the name of the worker.
"""

import base64
import hashlib
import json
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from qcqpbench.atomic_files import magic, writing_text
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.errors import QcqpbenchError, require, system_reason
from qcqpbench.results._encoding import pack, sorted_json, unpack
from qcqpbench.results.row import COLUMNS, Row, find_fault, make_row
from qcqpbench.results.store import Array, Store
from qcqpbench.run.attempt import Attempt, Outcome, RunValues
from qcqpbench.run.proposal import Proposal, RunReply
from qcqpbench.run.run_spec import RunSpec

SUFFIX = ".jsonl"
ARRAYS = ("point", "formulation_point", "multipliers", "offsets", "tree")
_FORMAT = "qcqpbench submission"
_SCHEMA = 1
_KIND = magic("a submission", f'{{"format": "{_FORMAT}"'.encode())
# Columns of the file that a line does not have, or has in another form.
_OMITTED = ("id", "key", "worker", "machine")
_COLUMNS = tuple(name for name in COLUMNS if name not in _OMITTED)
_REQUIRED = ("invocation", "begun", *(field.name for field in fields(RunSpec)), "termination", "point_status", "scope")
_MAY_BE_MISSING = ("formulation", "time_limit", "memory_limit_bytes")
_ENUMS: Mapping[str, Any] = {"termination": Termination, "point_status": PointStatus, "scope": Scope}
_MAX_FILE_BYTES = 10_000_000
# Limit of the unpacked size of an array: a tree with 10⁶ numbers.
_MAX_ARRAY_BYTES = 100_000_000


@dataclass(frozen=True)
class Call:
    """One call of the program: its unique id, its command, and its start time in seconds since 1970."""

    uid: str
    command: str
    begun: float


@dataclass(frozen=True, eq=False)
class Entry:
    """A row of a submission, with its arrays by name. The `invocation` of the row is an index into the calls."""

    row: Row
    arrays: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Submission:
    """Rows of one results file, with their points and proofs.

    Attributes
    ----------
    calls
        The calls of the program that made the runs.
    entries
        The rows, sorted by problem, solver and start.
    """

    calls: tuple[Call, ...]
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, store: Store, keep: Callable[[Row], bool] = lambda _: True) -> "Submission":
        """Return the submission of the newest row of each run of a results file, without skipped runs.

        Parameters
        ----------
        keep
            Function that returns whether a row is to be submitted.

        Raises
        ------
        QcqpbenchError
            If no row remains, or the key of a row is not that of its run.
        """
        rows = [row for row in store.rows() if row.termination is not Termination.SKIPPED and keep(row)]
        require(bool(rows), f"{store.path}: must hold at least one row to submit, got none")
        for row in rows:
            is_own = row.key == row.spec.key
            require(is_own, f"{store.path}: run {row.id}: key must be {row.spec.key}, that of the run, got {row.key}")
        rows.sort(key=lambda row: (row.problem, row.solver, row.start_seed, row.start, row.key))
        calls = {id: call for id, call in store.invocations().items() if any(row.invocation == id for row in rows)}
        places = {id: place for place, id in enumerate(calls)}
        entries = [
            Entry(_changed(row, id=number, invocation=places[row.invocation]), _stored_arrays(store, row.id))
            for number, row in enumerate(rows, 1)
        ]
        return cls(tuple(Call(call.uid, call.command, call.begun) for call in calls.values()), tuple(entries))

    @property
    def rows(self) -> list[Row]:
        """The rows."""
        return [entry.row for entry in self.entries]

    def default_name(self) -> str:
        """Return a name for the file of the submission: the day of its last call, and a hash of its content."""
        day = time.strftime("%Y-%m-%d", time.gmtime(max(call.begun for call in self.calls)))
        return f"{day}-{hashlib.sha256(self.text().encode()).hexdigest()[:8]}{SUFFIX}"

    def text(self) -> str:
        """Return the content of the file."""
        machines = list(dict.fromkeys(sorted_json(asdict(row.machine)) for row in self.rows))
        header = {
            "format": _FORMAT,
            "schema": _SCHEMA,
            "machines": [json.loads(facts) for facts in machines],
            "calls": [asdict(call) for call in self.calls],
        }
        lines = [header, *(_line(entry, machines.index(_machine_text(entry.row))) for entry in self.entries)]
        return "".join(f"{json.dumps(line, ensure_ascii=False, allow_nan=False)}\n" for line in lines)

    def write(self, path: Path) -> None:
        """Write the submission to a file; an existing file is replaced only if it is a submission."""
        text = self.text()
        size = len(text.encode())
        rule = f"a submission must have at most {_MAX_FILE_BYTES} bytes: choose rows with -s and -p, or omit proofs"
        require(size <= _MAX_FILE_BYTES, f"{rule}, got {size}")
        with writing_text(path, _KIND) as file:
            file.write(text)

    def without(self, ids: set[int]) -> "Submission":
        """Return the submission without the rows whose ids are in `ids`."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.row.id not in ids))

    def add_to(self, store: Store) -> dict[int, Row]:
        """Add the rows to a results file that is open for writing, and return them by the ids of the added rows."""
        rows: dict[int, Row] = {}
        for place, call in enumerate(self.calls):
            entries = [entry for entry in self.entries if entry.row.invocation == place]
            if entries:
                store.begin(call.command, entries[0].row.machine)
                rows |= {store.add(_outcome(entry)): entry.row for entry in entries}
        return rows


def is_submission(path: Path) -> bool:
    """Return whether a file has the suffix of submissions."""
    return path.suffix == SUFFIX


def read(path: Path) -> Submission:
    """Read a submission; none of its claims are checked, see `qcqpbench.results.public.check_submission`.

    Raises
    ------
    QcqpbenchError
        If the file cannot be read, or a line is not that of a row.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    size = len(data)
    require(size <= _MAX_FILE_BYTES, f"{path}: a submission must have at most {_MAX_FILE_BYTES} bytes, got {size}")
    lines = data.split(b"\n")
    require(not lines.pop(), f"{path}: the last line must end with a newline: the file is cut off")
    require(len(lines) > 1, f"{path}: a submission must hold a header and at least one row, got {len(lines)} lines")
    try:
        machines, calls = _header(_object(lines[0]))
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}:1: {error}") from error
    entries = []
    for number, line in enumerate(lines[1:], 1):
        try:
            entries.append(_entry(number, _object(line), machines, calls))
        except QcqpbenchError as error:
            raise QcqpbenchError(f"{path}:{number + 1}: {error}") from error
    return Submission(calls, tuple(entries))


def read_folder(folder: Path) -> dict[str, Submission]:
    """Return the submissions in a folder by the names of their files, sorted."""
    require(folder.is_dir(), f"{folder}: must be a folder of submissions")
    return {path.name: read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))}


def _changed(row: Row, **values: Any) -> Row:
    changed = object.__new__(Row)
    changed.__dict__.update(vars(row) | values)
    return changed


def _stored_arrays(store: Store, run: int) -> dict[str, Array]:
    arrays = {name: getattr(store, name)(run) for name in ARRAYS}
    return {name: array for name, array in arrays.items() if array is not None}


def _machine_text(row: Row) -> str:
    return sorted_json(asdict(row.machine))


def _line(entry: Entry, machine: int) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(entry.row, name) for name in _COLUMNS}
    values |= {name: str(values[name]) for name in _ENUMS if values[name] is not None}
    values["time_limit"] = None if math.isinf(entry.row.time_limit) else entry.row.time_limit
    values["details"] = None if entry.row.details is None else dict(entry.row.details)
    values["machine"] = machine
    arrays = {name: _pack(array) for name, array in entry.arrays.items()}
    return {name: value for name, value in (values | arrays).items() if value is not None}


def _pack(array: Array) -> str:
    packed = pack(array)
    assert packed is not None
    return base64.b64encode(zlib.compress(packed, 9)).decode()


def _unpack(name: str, text: Any) -> Array:
    """Return the array that a text of a line encodes; raise QcqpbenchError if it is malformed or too large."""
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(base64.b64decode(text, validate=True), _MAX_ARRAY_BYTES)
        is_whole = decompressor.eof and not decompressor.unused_data
        require(is_whole, f"the compressed data must end within {_MAX_ARRAY_BYTES} bytes, and hold nothing else")
        return unpack(data)
    except (ValueError, TypeError, zlib.error) as error:
        raise QcqpbenchError(f"{name} must be an encoded array: {error}") from error


def _object(line: bytes) -> dict[str, Any]:
    def refuse(text: str) -> None:
        raise ValueError(f"{text} is no number of JSON")

    try:
        content = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise QcqpbenchError(f"the line must be JSON: {str(error)[:100]}") from error
    require(isinstance(content, dict), f"the line must be a JSON object, got {content!r:.40}")
    return cast(dict[str, Any], content)


def _header(header: dict[str, Any]) -> tuple[list[Machine], tuple[Call, ...]]:
    require(header.get("format") == _FORMAT, f"the format must be {_FORMAT!r}, got {header.get('format')!r:.40}")
    require(header.get("schema") == _SCHEMA, f"the schema must be {_SCHEMA}, got {header.get('schema')!r:.40}")
    machines, calls = header.get("machines"), header.get("calls")
    parts = [part if isinstance(part, list) else [None] for part in (machines, calls)]
    are_objects = all(isinstance(item, dict) for part in parts for item in part)
    require(are_objects, "machines and calls must be lists of objects")
    return [Machine.from_facts(facts) for facts in machines or ()], tuple(_call(call) for call in calls or ())


def _call(call: Mapping[str, Any]) -> Call:
    kinds = {"uid": str, "command": str, "begun": float}
    is_valid = call.keys() == kinds.keys() and all(type(call[name]) is kind for name, kind in kinds.items())
    require(is_valid, f"a call must have the texts uid and command and the number begun, got {call!r:.100}")
    return Call(**call)


def _entry(number: int, line: dict[str, Any], machines: Sequence[Machine], calls: Sequence[Call]) -> Entry:
    unknown = sorted(line.keys() - {*_COLUMNS, *ARRAYS, "machine"})
    require(not unknown, f"the columns must be those of rows, got {', '.join(unknown)[:100]}")
    missing = [name for name in _REQUIRED if name not in line and name not in _MAY_BE_MISSING]
    require(not missing, f"a row must have the columns {', '.join(_REQUIRED)}, got no {', '.join(missing)}")
    arrays = {name: _unpack(name, line.pop(name)) for name in ARRAYS if name in line}
    machine = line.pop("machine", None)
    details = line.get("details")
    require(details is None or isinstance(details, dict), f"details must be an object, got {details!r:.40}")
    values: dict[str, Any] = dict.fromkeys(COLUMNS) | {"id": number, "key": "", "worker": "", "message": ""} | line
    if (fault := find_fault(values)) is not None:
        raise QcqpbenchError(fault)
    for name, kind in _ENUMS.items():
        allowed = [member.value for member in kind]
        require(values[name] in allowed, f"{name} must be one of {', '.join(allowed)}, got {values[name]!r:.40}")
    for name, index, count in (("machine", machine, len(machines)), ("invocation", values["invocation"], len(calls))):
        is_index = type(index) is int and 0 <= index < count
        require(is_index, f"{name} must be one of the {count} in the header, got {index!r:.40}")
    row = make_row(values | {"machine": machines[cast(int, machine)]})
    return Entry(_changed(row, key=row.spec.key), arrays)


def _outcome(entry: Entry) -> Outcome:
    row = entry.row
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields(RunValues)}
    attempt = Attempt(spec=row.spec, **(values | dict(entry.arrays)))
    return Outcome(attempt, RunReply(Proposal(row.termination)), row.worker, row.begun, row.machine)
