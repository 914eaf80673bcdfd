"""A folder of instances with an index of best known values, such as QPLIB's: one problem for each line of the index."""

import csv
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.family import Family
from qcqpbench.errors import QcqpbenchError, nearest, require
from qcqpbench.problem.formats._text import NUMBER
from qcqpbench.problem.formats.by_suffix import FORMATS, read
from qcqpbench.problem.formats.qplib import read_point
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import BestKnown
from qcqpbench.problem.qcqp import QCQP, Vector

INDEX = "index.csv"
# What is claimed of a published point and what it has may differ by this, relative to the larger of 1 and the claim.
_AGREE = 1e-8
_FEASIBLE = 1e-6


class _Line(NamedTuple):
    """A line of the index: where it stands, and the best known value, if it gives one."""

    where: str
    best: float | None


@dataclass(frozen=True)
class Library(Family):
    """The file INSTANCE.qplib (or of another format) in the folder `path`, which the spec has as an absolute path.

    The folder's index.csv names the instances in its column `name`, and in `best`, if it is there, their best known
    values. A published point INSTANCE.sol must have the value that the index claims.
    """

    name = "library"
    stored = True

    path: str | None = None
    instance: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.path), "library: path is missing; right is a folder with an index.csv: library[path=FOLDER]")
        assert self.path is not None
        # Rows keep the spec: it must lead to the folder from wherever it is read.
        object.__setattr__(self, "path", absolute(self.path))

    def members(self) -> list["Family"]:
        index = self._index()
        if self.instance is not None:
            self._line(index)
            return [self]
        return [replace(self, instance=instance) for instance in index]

    def generate(self) -> MaxMargin | QCQP:
        index = self._index()
        if self.instance is None:
            first = next(iter(index))
            raise QcqpbenchError(
                f"{self.spec} stands for {len(index)} problems; right is one of them, such as instance={first}"
            )
        line = self._line(index)
        problem = read(self._file(line))
        known = replace(problem.metadata, spec=self.spec)
        if line.best is not None:
            known = replace(known, best_known=BestKnown(line.best, INDEX))
        point = self._folder / f"{self.instance}.sol"
        if point.is_file() and isinstance(problem, QCQP):
            x, value = _published(point, problem, line)
            known = replace(known, reference=x, best_known=BestKnown(value, point.name))
        return replace(problem, metadata=known)

    @property
    def _folder(self) -> Path:
        assert self.path is not None
        return Path(self.path)

    def _line(self, index: dict[str, _Line]) -> _Line:
        assert self.instance is not None
        if self.instance not in index:
            raise nearest(self.instance, index, f"instance of {self._folder / INDEX}")
        return index[self.instance]

    def _file(self, line: _Line) -> Path:
        found = [file for end in FORMATS if (file := self._folder / f"{self.instance}{end}").is_file()]
        allowed = ", ".join(f"{self.instance}{end}" for end in FORMATS)
        there = ", ".join(file.name for file in found) or "none"
        require(len(found) == 1, f"{line.where}: right is one of the files {allowed}; there: {there}")
        return found[0]

    def _index(self) -> dict[str, _Line]:
        """The lines of the index by the names of the instances."""
        path = self._folder / INDEX
        (head, columns), *lines = _table(path)
        for column, least in (("name", 1), ("best", 0)):
            times = columns.count(column)
            require(least <= times <= 1, f"{head}: has {times} columns {column}; right is a line such as name,best")
        index: dict[str, _Line] = {}
        for where, cells in lines:
            fits = len(cells) == len(columns)
            require(fits, f"{where}: has {len(cells)} cells; right are {len(columns)}, as in the first line")
            line = dict(zip(columns, cells, strict=True))
            require(line["name"] not in ("", *index), f"{where}: the name {line['name']!r} is empty or not the first")
            index[line["name"]] = _Line(where, _number(where, line.get("best", "")))
        require(bool(index), f"{path}: names no instance; right is a line for each")
        return index


def _published(path: Path, problem: QCQP, line: _Line) -> tuple[Vector, float]:
    """The point in a file and its objective, which must be what is claimed."""
    x, stated = read_point(path, problem)
    value, miss = float(problem.objective(x)), problem.violation(x, relative=True)
    for where, claim in ((line.where, line.best), (str(path), stated)):
        agree = claim is None or abs(claim - value) <= _AGREE * max(1.0, abs(claim))
        require(agree, f"{where}: claims {claim!r}, but the objective at the point of {path.name} is {value!r}")
    right = f"right is {_FEASIBLE:g} at most"
    require(miss <= _FEASIBLE, f"{path}: misses a constraint by {miss:.3g} of its bound; {right}")
    return x, value


def _table(path: Path) -> list[tuple[str, list[str]]]:
    """The cells of each line of a CSV file that is not empty, at least one, and where it stands."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                lines = [(f"{path}:{reader.line_num}", list(map(str.strip, cells))) for cells in reader if any(cells)]
            except csv.Error as error:
                raise QcqpbenchError(f"{path}:{reader.line_num}: is not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise QcqpbenchError(f"{path}: is not UTF-8: {error}") from error
    except (OSError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return lines or [(f"{path}:1", [])]


def _number(where: str, text: str) -> float | None:
    if not text:
        return None
    value = float(text) if re.fullmatch(NUMBER, text) else math.nan
    require(math.isfinite(value), f"{where}: best is {text!r}; right is a number, or nothing")
    return value
