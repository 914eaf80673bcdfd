"""The best known margins of the canonical instances, the problems of the suite `best_known`, and what proves them.

best_known.csv          a line per instance: a `Record`
best_known_proofs.csv   a line per instance: a `Proof`, as base64 of little-endian numbers

Both are text with one line per instance, so that an improvement is a change of one line in each.
"""

import base64
import contextlib
import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import QcqpbenchError, require
from .maxmargin import MaxMargin
from .metadata import BestKnown, Bound
from .qcqp import QCQP

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """What is known of an instance.

    problem         its spec with all parameters; n, m and p are its shape, problem_id is the sha256 of its content
    margin          of the point in its proof; kappa_bar is the same, rescaled
    bound           no margin is larger, as the multipliers in its proof show
    solver          what found the point, with its version, qcqpbench's commit ("+": changed files) and the command
    bound_solver    what found the multipliers
    """

    problem: str
    n: int
    m: int
    p: int
    margin: float
    kappa_bar: float
    bound: float
    solver: str
    version: str
    commit: str
    command: str
    bound_solver: str
    problem_id: str

    @property
    def gap(self) -> float:
        """Between bound and margin, relative to the larger of them."""
        return (self.bound - self.margin) / max(abs(self.bound), abs(self.margin), 1e-300)


@dataclass(frozen=True, eq=False)
class Proof:
    """W, shape (n, m), which has the margin; y, shape (n,), and λ, shape (p, N), which prove the bound.

    λ is kept in float32: every λ ≥ 0 proves a bound, so the rounded one does.
    """

    point: Array
    offsets: Array
    multipliers: NDArray[np.float32]


COLUMNS = tuple(field.name for field in fields(Record))
_PROOF = ("problem_id", "point", "offsets", "multipliers")
_TYPES = {"point": "<f8", "offsets": "<f8", "multipliers": "<f4"}


def shipped() -> Path:
    """The list that comes with qcqpbench."""
    return Path(str(files("qcqpbench.problems") / "data" / "best_known.csv"))


@cache
def known() -> dict[str, Record]:
    """The records of the list that comes with qcqpbench, by problem_id."""
    return read_records(shipped())


@cache
def _shapes() -> set[tuple[int, int, int]]:
    return {(record.n, record.m, record.p) for record in known().values()}


def with_best_known(problem: MaxMargin | QCQP) -> MaxMargin | QCQP:
    """The problem, with best_known and bounds in its metadata if it is one of the list."""
    # Its id is a pass over its patterns: not taken where no instance has the shape.
    if not isinstance(problem, MaxMargin) or (problem.n, problem.m, problem.p) not in _shapes():
        return problem
    record = known().get(problem.id)
    if record is None:
        return problem
    best = BestKnown(record.margin, record.solver)
    metadata = replace(problem.metadata, best_known=best, bounds=(Bound(record.bound, "shor"),))
    return replace(problem, metadata=metadata, trusted=True)


def read_records(path: Path) -> dict[str, Record]:
    """The records of a list, by problem_id."""
    found: dict[str, Record] = {}
    for where, line in _lines(path, COLUMNS):
        values: dict[str, Any] = dict(line)
        for field in fields(Record):
            if field.type in (int, float):
                values[field.name] = _number(field.type, line[field.name], f"{where}: {field.name}")
        record = Record(**values)
        require(record.problem_id not in found, f"{where}: {record.problem} stands in it twice")
        found[record.problem_id] = record
    return found


def read_proofs(path: Path, records: Mapping[str, Record]) -> dict[str, Proof]:
    """The proofs of a list's records, by problem_id; there is one for each."""
    found: dict[str, Proof] = {}
    path = proofs_of(path)
    for where, line in _lines(path, _PROOF):
        record = records.get(line["problem_id"])
        if record is None:
            raise QcqpbenchError(f"{where}: {line['problem_id']} is the problem_id of no line in the list")
        require(record.problem_id not in found, f"{where}: {record.problem} stands in it twice")
        n, m, pairs = record.n, record.m, record.n * (record.n - 1) // 2
        shapes = {"point": (n, m), "offsets": (n,), "multipliers": (record.p, pairs)}
        arrays = {name: _array(line[name], name, shape, where) for name, shape in shapes.items()}
        found[record.problem_id] = Proof(**arrays)
    for id, record in records.items():
        require(id in found, f"{path}: has no proof of {record.problem}")
    return found


def write_list(path: Path, records: Mapping[str, Record], proofs: Mapping[str, Proof]) -> None:
    """Write a list, its two files whole or not at all."""
    lines = {
        path: [COLUMNS, *([getattr(record, name) for name in COLUMNS] for record in records.values())],
        proofs_of(path): [_PROOF, *([id, *_texts(proofs[id])] for id in records)],
    }
    parts = {target: target.with_name(f".{target.name}.part") for target in lines}
    try:
        try:
            for target, part in parts.items():
                with part.open("w", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(lines[target])
            for target, part in parts.items():
                part.replace(target)
        finally:
            for part in parts.values():
                part.unlink(missing_ok=True)
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error.strerror or error}") from error


def proofs_of(path: Path) -> Path:
    """The file beside a list that holds its proofs."""
    return path.with_name(f"{path.stem}_proofs.csv")


def _lines(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines of a file after its first, by column, each with its place for error messages."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise QcqpbenchError(f"{path}: is no list of best known margins: it is not UTF-8") from None
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise QcqpbenchError(f"{path}: is no list of best known margins: {error}") from None
    first = ",".join(lines[0]) if lines else ""
    right = ",".join(columns)
    require(first == right, f"{path}: is no list of best known margins: it begins with {first[:80]!r}, not {right!r}")
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}:{number}"
        require(len(line) == len(columns), f"{where}: has {len(line)} columns, needed: {len(columns)}")
        yield where, dict(zip(columns, line, strict=True))
    require(text.endswith("\n"), f"{path}:{len(lines)}: is cut off: its end is missing")


def _number(kind: Any, text: str, where: str) -> Any:
    with contextlib.suppress(ValueError):
        value = kind(text)
        if math.isfinite(value):
            return value
    raise QcqpbenchError(f"{where} is {text!r}, needed: a number")


def _texts(proof: Proof) -> list[str]:
    arrays = ((getattr(proof, name), dtype) for name, dtype in _TYPES.items())
    return [base64.b64encode(array.astype(dtype).tobytes()).decode() for array, dtype in arrays]


def _array(text: str, name: str, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    dtype = np.dtype(_TYPES[name])
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise QcqpbenchError(f"{where}: its {name} is not base64") from None
    right = math.prod(shape) * dtype.itemsize
    require(len(data) == right, f"{where}: its {name} has {len(data)} bytes, needed: {right} for the shape {shape}")
    array = np.frombuffer(data, dtype).astype(dtype.newbyteorder("=")).reshape(shape)
    require(bool(np.isfinite(array).all()), f"{where}: its {name} holds a value that is not finite")
    return array
