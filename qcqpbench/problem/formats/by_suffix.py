"""Reading and writing of problem files, one module per file format, chosen by the suffix of the file's name."""

import gzip
import importlib
import zlib
from pathlib import Path
from types import ModuleType

from qcqpbench.atomic_files import Kind, writing
from qcqpbench.errors import QcqpbenchError, require, system_reason
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .reading.text import GZIP

_TEXTS = {".qplib": "qplib", ".lp": "lp", ".mps": "mps", ".nl": "nl"}
# The module of each format by suffix; text may be compressed. A module is imported when it is first used, so that
# worker processes start faster.
FORMATS: dict[str, str] = {".npz": "npz", **_TEXTS, **{suffix + GZIP: name for suffix, name in _TEXTS.items()}}


def is_file(problem: str) -> bool:
    """Return whether `problem`, a spec or a path, ends with the suffix of a problem file format."""
    return problem.lower().endswith(tuple(FORMATS))


def is_path(problem: str) -> bool:
    """Return whether `problem` is a path rather than a spec; the name of a spec contains neither a dot nor a slash."""
    name = problem.partition("[")[0]
    return is_file(problem) or "." in name or "/" in name


def read(path: str | Path) -> MaxMargin | QCQP:
    """Read a problem from a file.

    Parameters
    ----------
    path
        The file. Its suffix determines the format: .npz, .qplib, .lp, .mps or .nl; the text formats may be compressed,
        as in .mps.gz.

    Returns
    -------
    MaxMargin or QCQP
        The problem. Only .npz files hold max-margin tasks and metadata.

    Raises
    ------
    QcqpbenchError
        If the file cannot be read or contains no valid problem; the message names the file and, for text, the line.
    """
    path = _checked_path(path)
    reader = _format(path)
    try:
        is_file = path.is_file()
    except (OSError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    require(is_file, f"{path}: no such file")
    problem: MaxMargin | QCQP = reader.read(path)
    return problem


def write(problem: MaxMargin | QCQP, path: str | Path) -> None:
    """Write a problem to a file, atomically.

    Parameters
    ----------
    problem
        The problem. Formats other than .npz hold QCQPs only: give them ``formulation("epigraph").encode(task)``.
    path
        The file; its suffix determines the format, as in `read`. An existing file of that format is replaced.

    Raises
    ------
    QcqpbenchError
        If the file cannot be written, is of another kind, or its format cannot hold the problem.
    """
    require(isinstance(problem, MaxMargin | QCQP), f"problem must be a MaxMargin or a QCQP, got {problem!r:.100}")
    path = _checked_path(path)
    writer = _format(path)
    try:
        with writing(path, _kind(path, writer.KIND)) as file:
            if path.suffix.lower() == GZIP:
                with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                    writer.write(problem, packed)
            else:
                writer.write(problem, file)
    except QcqpbenchError:
        raise
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error}") from error


def _checked_path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise QcqpbenchError(f"path must be the path of a file, got {path!r:.100}")
    return Path(path)


def _kind(path: Path, kind: Kind) -> Kind:
    if path.suffix.lower() != GZIP:
        return kind
    return Kind(f"{kind.name}, compressed", lambda head: kind.recognize(_unpacked(head)))


def _unpacked(head: bytes) -> bytes:
    """Return the first bytes of the unpacked content of a gzip file; empty if `head` is not gzip."""
    try:
        return zlib.decompressobj(31).decompress(head, 1 << 16)
    except zlib.error:
        return b""


def _format(path: Path) -> ModuleType:
    """Return the module of the format that the suffix of `path` denotes; raise QcqpbenchError if there is none."""
    for suffix, module in FORMATS.items():
        if path.name.lower().endswith(suffix):
            return importlib.import_module(f".{module}", __package__)
    raise QcqpbenchError(f"{path}: unknown file format {path.suffix!r}; allowed: {', '.join(FORMATS)}")
