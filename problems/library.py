"""Folders of instances with an index of best known values, such as QPLIB's; each line of the index is a problem."""

import csv
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.family import Family
from qcqpbench.errors import QcqpbenchError, nearest, require, system_reason
from qcqpbench.problem.formats.by_suffix import FORMATS, read
from qcqpbench.problem.formats.qplib import read_point
from qcqpbench.problem.formats.reading.text import NUMBER
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import BestKnown
from qcqpbench.problem.qcqp import QCQP

INDEX = "index.csv"
# Difference between a stated objective and that of a published point, relative to the larger of 1 and the former.
_OBJECTIVE_TOLERANCE = 1e-8
_FEASIBILITY_TOLERANCE = 1e-6


class _Line(NamedTuple):
    """A line of the index: file and line number, and the best known value if there is one."""

    location: str
    best: float | None


@dataclass(frozen=True)
class Library(Family):
    """Instances of a folder with an index.csv.

    The column `name` of index.csv names the instances; the column `best`, which is optional, holds their best known
    values. A published point INSTANCE.sol must have the objective that the index states.

    Parameters
    ----------
    path
        The folder, made absolute.
    instance
        Name of the instance, the file INSTANCE.qplib or one of another format. A suite takes all by default.
    """

    name = "library"
    stored = True

    path: str | None = None
    instance: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.path), "library: path must be a folder with an index.csv, got none: library[path=FOLDER]")
        assert self.path is not None
        # Rows keep the spec, which must lead to the folder from every working directory.
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
                f"{self.spec}: instance must be one of {len(index)} problems, such as instance={first}, got none"
            )
        line = self._line(index)
        problem = read(self._file(line))
        metadata = replace(problem.metadata, spec=self.spec)
        if line.best is not None:
            metadata = replace(metadata, best_known=BestKnown(line.best, INDEX))
        point = self._folder / f"{self.instance}.sol"
        if point.is_file() and isinstance(problem, QCQP):
            x, value = _read_published_point(point, problem, line)
            metadata = replace(metadata, reference=x, best_known=BestKnown(value, point.name))
        return replace(problem, metadata=metadata)

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
        files = [file for end in FORMATS if (file := self._folder / f"{self.instance}{end}").is_file()]
        allowed = ", ".join(f"{self.instance}{end}" for end in FORMATS)
        names = ", ".join(file.name for file in files) or "none"
        require(len(files) == 1, f"{line.location}: there must be exactly one of the files {allowed}, got {names}")
        return files[0]

    def _index(self) -> dict[str, _Line]:
        """Return the lines of the index by the names of the instances."""
        path = self._folder / INDEX
        (head, columns), *lines = _read_csv(path)
        for column, least in (("name", 1), ("best", 0)):
            count = columns.count(column)
            allowed = "exactly one column" if least else "at most one column"
            require(least <= count <= 1, f"{head}: there must be {allowed} {column}, as in name,best, got {count}")
        index: dict[str, _Line] = {}
        for location, cells in lines:
            fits = len(cells) == len(columns)
            require(fits, f"{location}: there must be {len(columns)} cells, as in the first line, got {len(cells)}")
            line = dict(zip(columns, cells, strict=True))
            new = line["name"] not in ("", *index)
            require(new, f"{location}: name must be neither empty nor repeated, got {line['name']!r}")
            index[line["name"]] = _Line(location, _parse_best(location, line.get("best", "")))
        require(bool(index), f"{path}: there must be a line for each instance, got none")
        return index


def _read_published_point(path: Path, problem: QCQP, line: _Line) -> tuple[NDArray[np.float64], float]:
    """Return the point in a file and its objective, which must be the stated one."""
    x, stated = read_point(path, problem)
    value, violation = float(problem.objective(x)), problem.violation(x, relative=True)
    for location, claim in ((line.location, line.best), (str(path), stated)):
        agree = claim is None or abs(claim - value) <= _OBJECTIVE_TOLERANCE * max(1.0, abs(claim))
        require(agree, f"{location}: claims {claim!r}, but the objective at the point of {path.name} is {value!r}")
    feasible = violation <= _FEASIBILITY_TOLERANCE
    require(feasible, f"{path}: relative violation must be at most {_FEASIBILITY_TOLERANCE:g}, got {violation:.3g}")
    return x, value


def _read_csv(path: Path) -> list[tuple[str, list[str]]]:
    """Return the location and the cells of each line of a CSV file that is not empty; at least one line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                lines = [(f"{path}:{reader.line_num}", list(map(str.strip, cells))) for cells in reader if any(cells)]
            except csv.Error as error:
                raise QcqpbenchError(f"{path}:{reader.line_num}: is not valid CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise QcqpbenchError(f"{path}: is not UTF-8: {error}") from error
    except (OSError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    return lines or [(f"{path}:1", [])]


def _parse_best(location: str, text: str) -> float | None:
    if not text:
        return None
    value = float(text) if re.fullmatch(NUMBER, text) else math.nan
    require(math.isfinite(value), f"{location}: best must be a finite number or empty, got {text!r}")
    return value
