"""Best known margins of the canonical instances (those of the suites `best_known` and `proved`), with their proofs.

A list is a CSV file with one line per instance, so that an improvement changes one line. A line holds the fields of a
`Record`, then the arrays of its `Proof` as base64 of little-endian numbers. A bound that branch and bound has proved is
in a file of its own, a `GlobalCertificate` in the folder ``trees`` beside the list, which the line names instead of its
offsets and multipliers.
"""

import base64
import contextlib
import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.atomic_files import magic, writing_text
from qcqpbench.errors import QcqpbenchError, require, system_reason
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import BestKnown, Bound, relative_gap
from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """Best known margin and upper bound of an instance, and their origin.

    Parameters
    ----------
    problem, problem_id
        The spec with all parameters, and the id (sha256) of the problem.
    n, m, p
        Numbers of outputs, inputs and patterns.
    margin, kappa_bar
        The margin of the point in the proof, and the rescaled margin.
    bound
        The upper bound that the multipliers in the proof, or the tree, prove.
    solver, version, commit, command
        The solver that found the point, its version, the commit of qcqpbench ("+" marks changed files) and the command.
    bound_solver
        The solver that found the multipliers or the tree.
    tree
        The name of the file in the folder ``trees`` that proves the bound; empty if the multipliers do.
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
    tree: str = ""

    @property
    def gap(self) -> float:
        """Relative optimality gap, (bound − margin) / max(|bound|, |margin|)."""
        return relative_gap(self.margin, self.bound)


@dataclass(frozen=True, eq=False)
class Proof:
    """Proof of a record: a point W that attains its margin, and the y and λ that prove its upper bound.

    `qcqpbench.catalog.certificate.shor` defines y and λ. Both are None if a tree proves the bound.

    Parameters
    ----------
    point
        W, shape (n, m).
    offsets
        y, shape (n,).
    multipliers
        λ, shape (p, N) with N = n(n−1)/2, in float32: every λ ≥ 0 proves a bound, also after rounding to float32.
    """

    point: Array
    offsets: Array | None
    multipliers: NDArray[np.float32] | None


_RECORD_COLUMNS = tuple(field.name for field in fields(Record))
_PROOF_TYPES = {"point": "<f8", "offsets": "<f8", "multipliers": "<f4"}
_COLUMNS = (*_RECORD_COLUMNS, *_PROOF_TYPES)
# Lists of earlier versions do not have this column.
_NEW_COLUMN = "tree"
_HEADERS = (",".join(_COLUMNS), ",".join(name for name in _COLUMNS if name != _NEW_COLUMN))
_KIND = magic("a list of best known margins", *(header.encode() for header in _HEADERS))
_TREE_NAME = re.compile(r"[0-9a-f-]{1,100}\.npz")


def shipped_path() -> Path:
    """Return the path of the list that is shipped with qcqpbench."""
    return Path(str(files("qcqpbench.problems") / "data" / "best_known.csv"))


@cache
def shipped_records() -> dict[str, Record]:
    """Return the records of the list that is shipped with qcqpbench, by problem_id."""
    return read_records(shipped_path())


@cache
def _shapes() -> set[tuple[int, int, int]]:
    """Return (n, m, p) of all shipped records."""
    return {(record.n, record.m, record.p) for record in shipped_records().values()}


def with_best_known(problem: MaxMargin | QCQP) -> MaxMargin | QCQP:
    """Return `problem`, with `best_known` and `bounds` set in its metadata if the shipped list contains it."""
    # Computing the id takes a pass over all patterns, which is skipped if no listed instance has this shape.
    if not isinstance(problem, MaxMargin) or (problem.n, problem.m, problem.p) not in _shapes():
        return problem
    record = shipped_records().get(problem.id)
    if record is None:
        return problem
    best, bound = BestKnown(record.margin, record.solver), Bound(record.bound, "tree" if record.tree else "shor")
    metadata = replace(problem.metadata, best_known=best, bounds=(bound,))
    return problem.replace(metadata=metadata)


def read_records(path: Path) -> dict[str, Record]:
    """Read the list at `path` and return its records by problem_id."""
    return {record.problem_id: record for _, _, record in _read(path)}


def read_list(path: Path) -> tuple[dict[str, Record], dict[str, Proof]]:
    """Read the list at `path` and return its records and its proofs, each by problem_id."""
    records: dict[str, Record] = {}
    proofs: dict[str, Proof] = {}
    for where, line, record in _read(path):
        n, m, pairs = record.n, record.m, record.n * (record.n - 1) // 2
        shapes = {"point": (n, m), "offsets": (n,), "multipliers": (record.p, pairs)}
        stated = {name: shape for name, shape in shapes.items() if name == "point" or not record.tree}
        arrays = {name: _array(line[name], name, shape, where) for name, shape in stated.items()}
        proof = Proof(arrays["point"], arrays.get("offsets"), arrays.get("multipliers"))
        records[record.problem_id], proofs[record.problem_id] = record, proof
    return records, proofs


def tree_path(path: Path, record: Record) -> Path:
    """Return the file with the tree that proves the bound of a record of the list at `path`."""
    return path.parent / "trees" / record.tree


def write_list(path: Path, records: Mapping[str, Record], proofs: Mapping[str, Proof]) -> None:
    """Write `records` and their `proofs` to the list at `path`, atomically."""
    lines = (
        [*(getattr(record, name) for name in _RECORD_COLUMNS), *_proof_texts(proofs[id])]
        for id, record in records.items()
    )
    with writing_text(path, _KIND) as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *lines])


def _read(path: Path) -> Iterator[tuple[str, dict[str, str], Record]]:
    """Yield (position for error messages, cells by column, record) for each line of the list at `path`."""
    seen = set()
    for where, line in _lines(path):
        values: dict[str, Any] = {name: line[name] for name in _RECORD_COLUMNS}
        for field in fields(Record):
            if field.type in (int, float):
                values[field.name] = _number(field.type, line[field.name], f"{where}: {field.name}")
        record = Record(**values)
        require(record.problem_id not in seen, f"{where}: {record.problem} must be in the list once, got it twice")
        is_name = not record.tree or _TREE_NAME.fullmatch(record.tree)
        require(bool(is_name), f"{where}: tree must be the name of an .npz file, got {record.tree!r:.40}")
        seen.add(record.problem_id)
        yield where, line, record


def _lines(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (position for error messages, cells by column) for each line of the list at `path` after its header."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    except UnicodeDecodeError:
        raise QcqpbenchError(f"{path}: must be a list of best known margins in UTF-8, got other bytes") from None
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise QcqpbenchError(f"{path}: must be a list of best known margins, got a damaged file: {error}") from None
    first = ",".join(lines[0]) if lines else ""
    require(
        first in _HEADERS, f"{path}: a list of best known margins must begin with {_HEADERS[0]!r}, got {first[:80]!r}"
    )
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}:{number}"
        require(len(line) == len(lines[0]), f"{where}: the line must have {len(lines[0])} columns, got {len(line)}")
        yield where, {_NEW_COLUMN: ""} | dict(zip(lines[0], line, strict=True))
    require(
        text.endswith("\n"),
        f"{path}:{len(lines)}: the line must end with a newline, got {text[-20:]!r}: the file is cut off",
    )


def _number(kind: Any, text: str, where: str) -> Any:
    """Return the finite number in `text` as the type `kind`; errors begin with `where`."""
    with contextlib.suppress(ValueError):
        value = kind(text)
        if math.isfinite(value):
            return value
    raise QcqpbenchError(f"{where} must be a finite {kind.__name__}, got {text!r:.40}")


def _proof_texts(proof: Proof) -> list[str]:
    """Return the point, offsets and multipliers of `proof`, each as base64 text, in the order of the columns."""
    arrays = ((getattr(proof, name), dtype) for name, dtype in _PROOF_TYPES.items())
    return [
        "" if array is None else base64.b64encode(array.astype(dtype).tobytes()).decode() for array, dtype in arrays
    ]


def _array(text: str, name: str, shape: tuple[int, ...], where: str) -> NDArray[Any]:
    """Return the array of `shape` that `text` encodes as base64; errors begin with `where` and `name`."""
    dtype = np.dtype(_PROOF_TYPES[name])
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise QcqpbenchError(f"{where}: {name} must be base64, got {text!r:.40}") from None
    size = math.prod(shape) * dtype.itemsize
    require(len(data) == size, f"{where}: {name} must have {size} bytes for the shape {shape}, got {len(data)}")
    array = np.frombuffer(data, dtype).astype(dtype.newbyteorder("=")).reshape(shape)
    require(bool(np.isfinite(array).all()), f"{where}: {name} must be finite, got inf or NaN")
    return array
