"""Instances in a folder, such as those of QPLIB, with an index of their names and best known values."""

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
# Largest difference between a stated objective and that of a published point, relative to max(1, |stated objective|).
_OBJECTIVE_TOLERANCE = 1e-8
_FEASIBILITY_TOLERANCE = 1e-6


class _Line(NamedTuple):
    """Line of the index: location as FILE:LINE, and the best known value if the line states one."""

    location: str
    best: float | None


@dataclass(frozen=True)
class Library(Family):
    """Library of instances: files in a folder that has an index.csv.

    The column `name` of index.csv holds the names of the instances, the optional column `best` their best known values.
    If a file INSTANCE.sol with a published point exists, the objective of the point must equal the value in `best`.

    Parameters
    ----------
    path
        Path of the folder; a relative path is made absolute.
    instance
        Name of the instance in the file INSTANCE.qplib or in one of another format. By default, a suite takes all
        instances.
    """

    name = "library"
    stored = True

    path: str | None = None
    instance: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            bool(self.path),
            f"library: path must be a folder with an index.csv, as in library[path=FOLDER], got {self.path!r}",
        )
        assert self.path is not None
        # Rows store the spec, so the path must be valid in every working directory.
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
                f"{self.spec}: instance must be one of the {len(index)} instances, such as instance={first}, got None"
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
        return problem.replace(metadata=metadata)

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
        require(len(files) == 1, f"{line.location}: exactly one of the files {allowed} must exist, got {names}")
        return files[0]

    def _index(self) -> dict[str, _Line]:
        """Read the index and return its lines by the names of the instances."""
        path = self._folder / INDEX
        (head, columns), *lines = _read_csv(path)
        for column, least in (("name", 1), ("best", 0)):
            count = columns.count(column)
            allowed = "exactly one column" if least else "at most one column"
            require(
                least <= count <= 1,
                f"{head}: header must have {allowed} {column!r}, as in 'name,best', got {','.join(columns)!r:.80}",
            )
        index: dict[str, _Line] = {}
        for location, cells in lines:
            fits = len(cells) == len(columns)
            require(fits, f"{location}: line must have {len(columns)} cells, as the header has, got {len(cells)}")
            line = dict(zip(columns, cells, strict=True))
            new = line["name"] not in ("", *index)
            require(new, f"{location}: name must be neither empty nor repeated, got {line['name']!r}")
            index[line["name"]] = _Line(location, _parse_best(location, line.get("best", "")))
        require(bool(index), f"{path}: must have at least one line after the header, got none")
        return index


def _read_published_point(path: Path, problem: QCQP, line: _Line) -> tuple[NDArray[np.float64], float]:
    """Return the point in the file `path` and its objective.

    Raises
    ------
    QcqpbenchError
        If the point is infeasible, or if its objective differs from that in the file or in the `line` of the index.
    """
    x, stated = read_point(path, problem)
    value, violation = float(problem.objective(x)), problem.violation(x, relative=True)
    for location, claim in ((line.location, line.best), (str(path), stated)):
        agree = claim is None or abs(claim - value) <= _OBJECTIVE_TOLERANCE * max(1.0, abs(claim))
        require(
            agree, f"{location}: stated objective must be {value!r}, that of the point in {path.name}, got {claim!r}"
        )
    feasible = violation <= _FEASIBILITY_TOLERANCE
    require(feasible, f"{path}: relative violation must be at most {_FEASIBILITY_TOLERANCE:g}, got {violation:.3g}")
    return x, value


def _read_csv(path: Path) -> list[tuple[str, list[str]]]:
    """Return the location FILE:LINE and the cells of each line of a CSV file, without empty lines.

    The result for a file without content is one line without cells.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                lines = [(f"{path}:{reader.line_num}", list(map(str.strip, cells))) for cells in reader if any(cells)]
            except csv.Error as error:
                raise QcqpbenchError(f"{path}:{reader.line_num}: line must be valid CSV, got {error}") from error
    except QcqpbenchError:
        raise
    except UnicodeDecodeError as error:
        raise QcqpbenchError(f"{path}: must be UTF-8 text, got other bytes: {error}") from error
    except (OSError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    return lines or [(f"{path}:1", [])]


def _parse_best(location: str, text: str) -> float | None:
    """Return the number in a cell of the column `best`, or None if the cell is empty."""
    if not text:
        return None
    value = float(text) if re.fullmatch(NUMBER, text) else math.nan
    require(math.isfinite(value), f"{location}: best must be a finite number or empty, got {text!r:.40}")
    return value
