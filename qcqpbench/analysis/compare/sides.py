"""The two sides of comparisons: which rows of results files are compared with which."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qcqpbench.analysis.metrics import competes, was_run
from qcqpbench.analysis.rows import labels_of_solvers
from qcqpbench.errors import QcqpbenchError, nearest, require
from qcqpbench.results.row import Row, name_and_parameters
from qcqpbench.results.store import Store
from qcqpbench.run.isolation.description import solver_facts


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the newest rows of one version of a solver in a results file.

    Attributes
    ----------
    label
        Name of the side in tables and sentences.
    file, solver, version
        Name of the results file, spec and version of the solver.
    solver_label
        Short spec of the solver.
    rows
        The rows, without skipped ones.
    """

    label: str
    file: str
    solver: str
    version: str
    solver_label: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Sides:
    """Pairs of sides to compare, all rows of the files, and sentences on what was left out."""

    pairs: tuple[tuple[Side, Side], ...]
    rows: tuple[Row, ...]
    left_out: tuple[str, ...]


class _File:
    """Rows of a results file that were run, by solver and version."""

    def __init__(self, path: str | Path, name: str) -> None:
        with Store(path) as store:
            self.rows = [row for row in store.rows() if was_run(row)]
        self.name = name
        self.labels = labels_of_solvers(self.rows)
        self._versions: dict[str, dict[str, list[Row]]] = {}
        # A version is as old as its first run.
        for row in sorted(self.rows, key=lambda row: row.begun):
            self._versions.setdefault(row.solver, {}).setdefault(row.version, []).append(row)

    def solvers(self) -> list[str]:
        """Return the specs of the solvers that search for points, sorted."""
        return sorted(spec for spec in self._versions if self._competes(spec))

    def bounding_solvers(self) -> list[str]:
        """Return the labels of the solvers that only prove bounds, sorted."""
        return sorted(self.labels[spec] for spec in self._versions if not self._competes(spec))

    def solver(self, text: str) -> str:
        """Return the spec of the only solver with the name and the parameters in `text`."""
        name, parameters = name_and_parameters(text)
        matches = [
            spec
            for spec in self._versions
            if name_and_parameters(spec)[0] == name and parameters.items() <= name_and_parameters(spec)[1].items()
        ]
        if len(matches) > 1:
            # As in other commands, parameters that are not given have their defaults.
            matches = [spec for spec in matches if spec == _full_spec(text)] or matches
        if not matches:
            raise nearest(text, self.labels.values(), f"solver in {self.name}:")
        options = ", ".join(sorted(self.labels[spec] for spec in matches))
        require(len(matches) == 1, f"solvers must each denote one solver in {self.name}, got {text!r} for {options}")
        require(self._competes(matches[0]), f"solvers must search for points, got {text!r}, which only proves bounds")
        return matches[0]

    def versions(self, spec: str) -> list[str]:
        """Return the versions of a solver, the oldest first."""
        return list(self._versions[spec])

    def version(self, spec: str, text: str) -> str:
        """Return the only version of a solver that contains `text`."""
        matches = [version for version in self._versions[spec] if text in version]
        options = "; ".join(self._versions[spec])
        require(
            len(matches) == 1,
            f"versions must each be in one version of {self.labels[spec]} in {self.name}, got {text!r} for: {options}",
        )
        return matches[0]

    def side(self, spec: str, version: str) -> Side:
        """Return the side of a version of a solver, labelled by the file."""
        return Side(self.name, self.name, spec, version, self.labels[spec], tuple(self._versions[spec][version]))

    def _competes(self, spec: str) -> bool:
        return any(competes(row) for rows in self._versions[spec].values() for row in rows)


def choose_sides(
    paths: Sequence[str | Path],
    solvers: Sequence[str] = (),
    versions: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Sides:
    """Return the sides that `compare` compares, see `qcqpbench.Results.compare`.

    Raises
    ------
    QcqpbenchError
        If a file cannot be read, or the arguments do not denote two sides.
    """
    require(len(paths) in (1, 2), f"files must be one or two results files, got {len(paths)}")
    require(len(solvers) <= 2, f"solvers must be at most two, got {len(solvers)}")
    require(len(versions) in (0, 2), f"versions must be two, the first and the second, got {len(versions)}")
    require(len(labels) in (0, 2), f"labels must be two, the first and the second, got {len(labels)}")
    require(not versions or len(solvers) > 0, "versions must be given with a solver, got none")
    files = [_File(path, name) for path, name in zip(paths, _names(paths), strict=True)]
    first, second = files[0], files[-1]
    left_out = []
    if solvers:
        specs = [(first.solver(solvers[0]), second.solver(solvers[-1]))]
    else:
        specs = [(spec, spec) for spec in first.solvers() if spec in second.solvers()]
        if len(files) == 1:
            specs = [pair for pair in specs if len(first.versions(pair[0])) > 1]
            require(
                bool(specs), f"{first.name}: must hold two versions of a solver, or solvers must be two, got neither"
            )
        left_out = [*_one_sided(first, second), *_bounding(files)]
    pairs = [_pair(first, second, *pair, versions, labels) for pair in specs]
    require(bool(pairs), f"{first.name} and {second.name}: must have a solver in common, got none")
    return Sides(tuple(pairs), tuple(row for file in files for row in file.rows), tuple(left_out))


def _pair(
    first: _File, second: _File, solver_1: str, solver_2: str, versions: Sequence[str], labels: Sequence[str]
) -> tuple[Side, Side]:
    """Return the two sides with distinct labels."""
    if versions:
        version_1, version_2 = first.version(solver_1, versions[0]), second.version(solver_2, versions[1])
    else:
        version_1, version_2 = first.versions(solver_1)[-1], second.versions(solver_2)[-1]
        if first is second and solver_1 == solver_2:
            older = first.versions(solver_1)[:-1]
            require(
                bool(older), f"{first.name}: must hold two versions of {first.labels[solver_1]}, got one: {version_1}"
            )
            version_1 = older[-1]
    sides = first.side(solver_1, version_1), second.side(solver_2, version_2)
    same = first is second and (solver_1, version_1) == (solver_2, version_2)
    require(not same, f"the two sides must differ, got {first.labels[solver_1]} of {first.name} twice")
    one, two = labels or _distinct_labels(*sides)
    return replace(sides[0], label=one), replace(sides[1], label=two)


def _distinct_labels(first: Side, second: Side) -> tuple[str, str]:
    """Return labels of what differs first: the solvers, the files, or the parts of the versions."""
    if first.solver != second.solver:
        where = ("", "") if first.file == second.file else (f" ({first.file})", f" ({second.file})")
        return first.solver_label + where[0], second.solver_label + where[1]
    if first.file != second.file:
        return first.file, second.file
    parts = first.version.split(", "), second.version.split(", ")
    return _without(parts[0], parts[1]), _without(parts[1], parts[0])


def _without(parts: Sequence[str], others: Sequence[str]) -> str:
    return ", ".join([part for part in parts if part not in others] or parts)


def _full_spec(text: str) -> str | None:
    try:
        return solver_facts(text).spec
    except QcqpbenchError:
        # The solver is not installed, or has other parameters now.
        return None


def _names(paths: Iterable[str | Path]) -> list[str]:
    """Return the names of files without their folders if these are distinct, else their paths."""
    texts = [os.fsencode(path).decode(errors="backslashreplace") for path in paths]
    names = [Path(text).name for text in texts]
    require(len({*texts}) == len(texts), f"files must be two different results files, got {texts[0]} twice")
    return names if len({*names}) == len(names) else texts


def _one_sided(first: _File, second: _File) -> list[str]:
    """Return sentences on solvers that only one file has."""
    only: Mapping[str, list[str]] = {
        one.name: [one.labels[spec] for spec in one.solvers() if spec not in other.solvers()]
        for one, other in ((first, second), (second, first))
    }
    return [
        f"Not compared because only {name} has runs: {', '.join(labels)}." for name, labels in only.items() if labels
    ]


def _bounding(files: Sequence[_File]) -> list[str]:
    names = sorted({label for file in files for label in file.bounding_solvers()})
    return [f"Not compared because they only prove bounds: {', '.join(names)}."] if names else []
