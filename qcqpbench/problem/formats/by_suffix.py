"""Problems in files, one module per file format; the file's suffix says which."""

import gzip
import importlib
import zlib
from pathlib import Path
from types import ModuleType

from qcqpbench.atomic_files import Kind, text_matching, writing
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from ._text import GZIP

_TEXTS = {".qplib": "qplib", ".lp": "lp", ".mps": "mps", ".nl": "nl"}
# The module of each format by how a file's name ends; text may be compressed. They are imported when first used: every
# worker process would wait for them.
FORMATS: dict[str, str] = {".npz": "npz", **_TEXTS, **{suffix + GZIP: name for suffix, name in _TEXTS.items()}}

# What a file must look like to be replaced by one of the same name.
_KINDS = {
    ".npz": Kind("a problem in qcqpbench's .npz format", lambda head: head[30:40] == b"header.npy"),
    ".qplib": text_matching("a QPLIB file", r"^\s*[LDCQ][CBMIG][NBLDCQ]\b"),
    ".lp": text_matching("an LP file", r"^\s*(min|max)(imi[sz]e|imum)?\b"),
    ".mps": text_matching("an MPS file", r"^(NAME|ROWS)\b"),
    ".nl": text_matching("an .nl file", r"\A[gb]\d"),
}


def read(path: str | Path) -> MaxMargin | QCQP:
    """The problem in a file."""
    path = Path(path)
    reader = _format(path)
    try:
        is_file = path.is_file()
    except (OSError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be read: {error}") from error
    require(is_file, f"{path}: no such file")
    problem: MaxMargin | QCQP = reader.read(path)
    return problem


def write(problem: MaxMargin | QCQP, path: str | Path) -> None:
    """Write a problem to a file, which appears whole or not at all; a file of another kind is not replaced."""
    path = Path(path)
    writer = _format(path)
    try:
        with writing(path, _kind(path)) as file:
            if path.suffix.lower() == GZIP:
                with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                    writer.write(problem, packed)
            else:
                writer.write(problem, file)
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error}") from error


def _kind(path: Path) -> Kind:
    suffix = next(suffix for suffix in _KINDS if path.name.lower().removesuffix(GZIP).endswith(suffix))
    kind = _KINDS[suffix]
    if path.suffix.lower() != GZIP:
        return kind
    return Kind(f"{kind.name}, compressed", lambda head: kind.recognize(_unpacked(head)))


def _unpacked(head: bytes) -> bytes:
    """Return the beginning of what compressed bytes hold; empty if they are not gzip."""
    try:
        return zlib.decompressobj(31).decompress(head, 1 << 16)
    except zlib.error:
        return b""


def _format(path: Path) -> ModuleType:
    for suffix, module in FORMATS.items():
        if path.name.lower().endswith(suffix):
            return importlib.import_module(f".{module}", __package__)
    raise QcqpbenchError(f"{path}: unknown file format {path.suffix!r}; allowed: {', '.join(FORMATS)}")
