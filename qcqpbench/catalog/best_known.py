"""The best known margins of the canonical instances, the problems of the suite `best_known`, and what proves them.

A list is a text file with a line per instance, so that an improvement is a change of one line: the `Record`, then its
`Proof` as base64 of little-endian numbers. One file, so that no record is ever without the proof that belongs to it.
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

from qcqpbench.atomic_files import magic, writing_text
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import BestKnown, Bound
from qcqpbench.problem.qcqp import QCQP

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


_RECORD = tuple(field.name for field in fields(Record))
_PROOF = {"point": "<f8", "offsets": "<f8", "multipliers": "<f4"}
_COLUMNS = (*_RECORD, *_PROOF)
_KIND = magic("a list of best known margins", ",".join(_COLUMNS).encode())


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
    return {record.problem_id: record for _, _, record in _read(path)}


def read_list(path: Path) -> tuple[dict[str, Record], dict[str, Proof]]:
    """The records of a list and their proofs, by problem_id."""
    records: dict[str, Record] = {}
    proofs: dict[str, Proof] = {}
    for where, line, record in _read(path):
        n, m, pairs = record.n, record.m, record.n * (record.n - 1) // 2
        shapes = {"point": (n, m), "offsets": (n,), "multipliers": (record.p, pairs)}
        arrays = {name: _array(line[name], name, shape, where) for name, shape in shapes.items()}
        records[record.problem_id], proofs[record.problem_id] = record, Proof(**arrays)
    return records, proofs


def write_list(path: Path, records: Mapping[str, Record], proofs: Mapping[str, Proof]) -> None:
    """Write a list, whole or not at all, whenever it is stopped."""
    lines = ([*(getattr(each, name) for name in _RECORD), *_texts(proofs[id])] for id, each in records.items())
    with writing_text(path, _KIND) as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *lines])


def _read(path: Path) -> Iterator[tuple[str, dict[str, str], Record]]:
    """The records of a list, each with its line by column, and the line's place for error messages."""
    seen = set()
    for where, line in _lines(path):
        values: dict[str, Any] = {name: line[name] for name in _RECORD}
        for field in fields(Record):
            if field.type in (int, float):
                values[field.name] = _number(field.type, line[field.name], f"{where}: {field.name}")
        record = Record(**values)
        require(record.problem_id not in seen, f"{where}: {record.problem} stands in it twice")
        seen.add(record.problem_id)
        yield where, line, record


def _lines(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
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
    right = ",".join(_COLUMNS)
    require(first == right, f"{path}: is no list of best known margins: it begins with {first[:80]!r}, not {right!r}")
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}:{number}"
        require(len(line) == len(_COLUMNS), f"{where}: has {len(line)} columns, needed: {len(_COLUMNS)}")
        yield where, dict(zip(_COLUMNS, line, strict=True))
    require(text.endswith("\n"), f"{path}:{len(lines)}: is cut off: its end is missing")


def _number(kind: Any, text: str, where: str) -> Any:
    with contextlib.suppress(ValueError):
        value = kind(text)
        if math.isfinite(value):
            return value
    raise QcqpbenchError(f"{where} is {text!r}, needed: a number")


def _texts(proof: Proof) -> list[str]:
    arrays = ((getattr(proof, name), dtype) for name, dtype in _PROOF.items())
    return [base64.b64encode(array.astype(dtype).tobytes()).decode() for array, dtype in arrays]


def _array(text: str, name: str, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    dtype = np.dtype(_PROOF[name])
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise QcqpbenchError(f"{where}: its {name} is not base64") from None
    right = math.prod(shape) * dtype.itemsize
    require(len(data) == right, f"{where}: its {name} has {len(data)} bytes, needed: {right} for the shape {shape}")
    array = np.frombuffer(data, dtype).astype(dtype.newbyteorder("=")).reshape(shape)
    require(bool(np.isfinite(array).all()), f"{where}: its {name} holds a value that is not finite")
    return array
