"""List of the solver sources whose rows may be submitted: ``solvers.csv`` in the folder of submissions.

A line names a solver, the hash of its source as rows hold it, and its origin: for a solver that is shipped with
qcqpbench the commit that contains the source, from which the hash can be computed again; for another solver the package
``name==version`` that contains it.
"""

import contextlib
import csv
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from qcqpbench.atomic_files import magic, writing_text
from qcqpbench.catalog.identity import source_hash_in
from qcqpbench.catalog.registry import solver_names, solver_plugin
from qcqpbench.errors import QcqpbenchError, require, system_reason
from qcqpbench.results.row import Row
from qcqpbench.run.isolation.description import solver_facts

LIST = "solvers.csv"
# Folders of the checkout that hold the source of shipped solvers.
_SOURCES = ("solvers", "qcqpbench/catalog/certificate")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+==\S+")
_VERSION = re.compile(r"(?P<packages>.+), source (?P<source>[0-9a-f]{12})")
_UNKNOWN_VERSION = "?"


@dataclass(frozen=True, order=True)
class SolverVersion:
    """Line of the list.

    Parameters
    ----------
    solver
        Name of the solver.
    source
        Hash of its source files.
    origin
        The commit of qcqpbench (40 digits) or the package ``name==version`` that contains the source.
    """

    solver: str
    source: str
    origin: str


_HEADER = ",".join(field.name for field in fields(SolverVersion))
_KIND = magic("a list of solver versions", _HEADER.encode())


def read_versions(folder: Path) -> set[SolverVersion]:
    """Return the lines of the list in a folder of submissions; none if there is no list.

    Raises
    ------
    QcqpbenchError
        If the list cannot be read, or a line is malformed.
    """
    path = folder / LIST
    if not path.exists():
        return set()
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline=""), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    require(bool(lines) and ",".join(lines[0]) == _HEADER, f"{path}: the list must begin with {_HEADER}")
    for number, line in enumerate(lines[1:], 2):
        is_line = len(line) == 3 and bool(_COMMIT.fullmatch(line[2]) or _REQUIREMENT.fullmatch(line[2]))
        rule = "a line must hold a solver, a hash, and a commit or a package name==version"
        require(is_line, f"{path}:{number}: {rule}, got {','.join(line)[:100]}")
    return {SolverVersion(*line) for line in lines[1:]}


def write_versions(folder: Path, versions: Iterable[SolverVersion]) -> None:
    """Write the list in a folder of submissions."""
    with writing_text(folder / LIST, _KIND) as file:
        csv.writer(file, lineterminator="\n").writerows([_HEADER.split(","), *map(astuple, sorted(versions))])


def version_of(row: Row, listed: Iterable[SolverVersion]) -> SolverVersion:
    """Return the line of the list for the solver of a row: the listed one, or a new one for an installed solver.

    Parameters
    ----------
    listed
        The lines of the list.

    Raises
    ------
    QcqpbenchError
        If the version in the row is incomplete, contradicts the packages of its machine, or is unknown: its source is
        neither listed, nor the source of the installed solver.
    """
    match = _VERSION.fullmatch(row.version)
    if match is None:
        raise QcqpbenchError(
            f"version must name packages and end with the hash of the source, got {row.version!r:.100}"
        )
    packages, source = _packages(row, match["packages"]), match["source"]
    known = [line for line in listed if (line.solver, line.source) == (row.solver_name, source)]
    if known:
        _check_plugin(row, packages, known[0])
        return known[0]
    if row.solver_name not in solver_names():
        raise QcqpbenchError(f"version must be known: {row.solver_name} is neither installed nor listed in {LIST}")
    return _installed(row, packages, source)


def _packages(row: Row, text: str) -> dict[str, str]:
    """Return the versions of packages that a row states, after comparing them with the packages of its machine."""
    versions: dict[str, str] = {}
    for part in text.split(", "):
        name, _, version = part.rpartition(" ")
        stated = bool(name) and version != _UNKNOWN_VERSION
        require(stated, f"version must state the versions of all packages, got {part!r:.100}")
        versions[name] = version
    on_machine = {"qcqpbench": row.machine.qcqpbench, **row.machine.packages}
    for name, version in versions.items():
        stated_version = on_machine.get(name, version)
        rule = f"version must state {name} {stated_version}, as the machine of the row does"
        require(stated_version == version, f"{rule}, got {version}")
    return versions


def _check_plugin(row: Row, packages: dict[str, str], line: SolverVersion) -> None:
    """Raise QcqpbenchError if a row of a plug-in states another package than the list."""
    if not _COMMIT.fullmatch(line.origin):
        name, _, version = line.origin.partition("==")
        stated = packages.get(name)
        require(stated == version, f"version must state {name} {version}, as {LIST} does, got {stated}")


def _installed(row: Row, packages: dict[str, str], source: str) -> SolverVersion:
    """Return the line for the installed solver; raise QcqpbenchError if its source is not that of the row."""
    facts = solver_facts(row.solver)
    require(facts.spec == row.solver, f"solver must be the full spec {facts.spec}, got {row.solver}")
    installed = facts.version.rpartition(" ")[2]
    rule = f"the source must be that of the installed {row.solver_name}, {installed}, or be listed in {LIST}"
    require(source == installed, f"version must be known: {rule}, got {source}")
    if solver_plugin(row.solver_name) is not None:
        require(
            row.version == facts.version,
            f"version must be that of the installed solver, {facts.version}, got {row.version}",
        )
        name, version = next(iter(packages.items()))
        return SolverVersion(row.solver_name, source, f"{name}=={version}")
    commit = row.machine.commit or ""
    rule = f"the source {source} is not listed in {LIST}, so the row must state the commit of its checkout"
    require(bool(_COMMIT.fullmatch(commit)), f"version must be known: {rule}, got {row.machine.commit}")
    return SolverVersion(row.solver_name, source, commit)


def traced(checkout: Path, rows: Iterable[Row]) -> set[SolverVersion]:
    """Return the lines for the sources of shipped solvers that git finds in the commits that rows state.

    These solvers may differ from the installed ones. Without git, or without a commit, no line is returned.
    """
    lines = set()
    for row in rows:
        match, commit = _VERSION.fullmatch(row.version), row.machine.commit or ""
        if match is not None and _COMMIT.fullmatch(commit):
            lines.add(SolverVersion(row.solver_name, match["source"], commit))
    confirmed = set()
    for line in lines:
        with contextlib.suppress(QcqpbenchError):
            if not check_origins(checkout, [line]):
                confirmed.add(line)
    return confirmed


def check_origins(checkout: Path, versions: Iterable[SolverVersion]) -> list[str]:
    """Compute the hashes of the listed sources of shipped solvers again, from their commits.

    Parameters
    ----------
    checkout
        A folder of a git checkout of qcqpbench that has the commits.

    Returns
    -------
    list of str
        An error message for each line whose hash differs.

    Raises
    ------
    QcqpbenchError
        If git is missing, or a commit is not in the checkout.
    """
    faults = []
    by_commit: dict[str, list[SolverVersion]] = {}
    for line in sorted(versions):
        if _COMMIT.fullmatch(line.origin):
            by_commit.setdefault(line.origin, []).append(line)
    for commit, lines in by_commit.items():
        with tempfile.TemporaryDirectory() as folder:
            _extract(checkout, commit, Path(folder))
            for line in lines:
                source = source_hash_in(Path(folder), line.solver)
                if source != line.source:
                    faults.append(
                        f"the source of {line.solver} must be {source}, that in commit {commit}, got {line.source}"
                    )
    return faults


def _extract(checkout: Path, commit: str, target: Path) -> None:
    """Write the source of the shipped solvers in a commit to the folder `target`."""
    top = _git(checkout, "rev-parse", "--show-toplevel").stdout.decode(errors="surrogateescape").strip()
    done = _git(Path(top or checkout), "archive", commit, "--", *_SOURCES)
    if done.returncode:
        reason = done.stderr.decode(errors="replace")[:200]
        raise QcqpbenchError(f"the commit {commit} must be in the git checkout {checkout}: {reason}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")


def _git(folder: Path, *words: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=False)
    except OSError as error:
        raise QcqpbenchError(f"git must be installed: {system_reason(error)}") from error
