"""Certificates of global optimality: a point of a task, and a tree that proves an upper bound on all margins.

A file is an .npz archive. ``header`` holds JSON as bytes: the format, the problem, the origin and the values that the
certificate states; the other members are the point and the arrays of the `TreeCertificate`. Nothing is pickled, so
reading a file executes nothing.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.atomic_files import writing
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.metadata import relative_gap
from qcqpbench.problem.npz_archive import header_kind, read_npz

from .tree import TreeCertificate

Array = NDArray[np.float64]

_FORMAT = "qcqpbench global certificate"
_SCHEMA = 1
KIND = header_kind("a global certificate", _FORMAT)
_MAX_BYTES = 1 << 32
_HEAD_BYTES = 1 << 16
_TEXTS = ("problem", "problem_id", "solver", "version", "command")
_NUMBERS = ("margin", "bound")
# Types of the arrays in files. Vectors and multipliers are rounded to float32 before their bounds are computed.
_TYPES = {
    "nodes": "<i4",
    "vectors": "<f4",
    "multipliers": "<f4",
    "offsets": "<f8",
    "bounds": "<f8",
    "cuts": "<i4",
    "cut_multipliers": "<f4",
}
# Largest difference between a stated and a recomputed value, relative to the larger of the value and the largest entry
# of the patterns.
_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class GlobalCertificate:
    """Point of a task, and a proof that no point has a margin above a bound.

    Parameters
    ----------
    problem, problem_id
        The spec or the file of the task, and its id.
    solver, version, command
        The solver that found the point and the tree, its version, and the command that repeats the run.
    margin, bound
        The margin of the point, and the upper bound that the tree proves. Both are claims until `check` has passed.
    point
        W, shape (n, m).
    tree
        The proof of the bound.
    """

    problem: str
    problem_id: str
    solver: str
    version: str
    command: str
    margin: float
    bound: float
    point: Array
    tree: TreeCertificate

    @classmethod
    def of(cls, task: MaxMargin, point: Array, tree: TreeCertificate, **origin: str) -> "GlobalCertificate":
        """Return the certificate of a point and a tree, with the values that their rounded numbers prove.

        `origin` holds `problem`, `solver`, `version` and `command`.
        """
        tree, W = tree.rounded(task), unit_rows(point)
        margin = float(task.margin(W))
        return cls(**origin, problem_id=task.id, margin=margin, bound=tree.bound, point=W, tree=tree)

    @property
    def gap(self) -> float:
        """Relative optimality gap, (bound − margin) / max(abs(bound), abs(margin))."""
        return relative_gap(self.margin, self.bound)

    def __repr__(self) -> str:
        values = f"margin={self.margin:.6g}, bound={self.bound:.6g}, gap={self.gap:.2g}, leaves={len(self.tree.bounds)}"
        return f"<GlobalCertificate: {self.problem or self.problem_id[:12]}, {values}>"

    def check(self, task: MaxMargin) -> None:
        """Recompute the margin and the bound from the point and the tree.

        Raises
        ------
        QcqpbenchError
            If the certificate is of another task, a value differs from the recomputed one, or the tree is no proof.
        """
        require(self.problem_id == task.id, f"problem_id must be {task.id}, that of the task, got {self.problem_id}")
        shape = (task.n, task.m)
        require(self.point.shape == shape, f"point must have the shape {shape}, got {self.point.shape}")
        is_usable = bool(np.isfinite(self.point).all() and self.point.any(axis=1).all())
        require(is_usable, "point must be finite without rows of zeros, got one that has no margin")
        values = {"margin": float(task.margin(unit_rows(self.point))), "bound": self.tree.verified_bound(task)}
        scale = float(np.abs(task.patterns).max())
        for name, value in values.items():
            stated = getattr(self, name)
            agrees = abs(stated - value) <= _TOLERANCE * max(abs(value), scale)
            require(agrees, f"{name} must be {value!r} according to the certificate, got {stated!r}")

    def write(self, path: str | Path) -> None:
        """Write the certificate to a file; an existing file is replaced only if it is a certificate."""
        header = {"format": _FORMAT, "schema": _SCHEMA, "formulation": self.tree.formulation}
        header |= {name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS)}
        arrays = {name: getattr(self.tree, name).astype(dtype) for name, dtype in _TYPES.items()}
        text = np.frombuffer(json.dumps(header, ensure_ascii=False).encode(), dtype=np.uint8)
        with writing(path, KIND) as file:
            np.savez_compressed(file, allow_pickle=False, header=text, point=self.point.astype("<f8"), **arrays)


def is_certificate(path: Path) -> bool:
    """Return whether a file begins like a global certificate; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return KIND.recognize(file.read(_HEAD_BYTES))
    except OSError:
        return False


def read_certificate(path: str | Path) -> GlobalCertificate:
    """Read a certificate of global optimality; none of its claims are checked, see `GlobalCertificate.check`.

    Raises
    ------
    QcqpbenchError
        If the file cannot be read, or is not a global certificate.
    """
    path = Path(path)
    content = read_npz(path, KIND.name, _MAX_BYTES)
    try:
        header = _header(content.pop("header", np.zeros(0, np.uint8)))
        names = {"point", *_TYPES}
        require(content.keys() == names, f"the arrays must be {', '.join(sorted(names))}, got {', '.join(content)}")
        for name, array in content.items():
            require(array.dtype.kind in "iuf", f"{name} must hold real numbers, got {array.dtype}")
        point = content.pop("point").astype(np.float64)
        tree = TreeCertificate.from_arrays(header["formulation"], content)
        return GlobalCertificate(**{name: header[name] for name in (*_TEXTS, *_NUMBERS)}, point=point, tree=tree)
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error


def _header(data: NDArray[Any]) -> dict[str, Any]:
    """Return the header of a file; raise QcqpbenchError if it is not that of a global certificate."""
    try:
        header = json.loads(data.astype(np.uint8).tobytes())
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise QcqpbenchError(f"must be {KIND.name}, got another .npz file")
    require(header.get("schema") == _SCHEMA, f"the schema must be {_SCHEMA}, got {header.get('schema')!r:.40}")
    for name in ("formulation", *_TEXTS):
        value = header.get(name)
        require(isinstance(value, str) and value.isprintable(), f"{name} must be printable text, got {value!r:.40}")
    for name in _NUMBERS:
        value = header.get(name)
        is_number = isinstance(value, float) and np.isfinite(value)
        require(is_number, f"{name} must be a finite number, got {value!r:.40}")
    return header
