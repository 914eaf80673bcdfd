"""Problems in files, one module per file format; the file's suffix says which."""

import gzip
from pathlib import Path
from types import ModuleType

from ..errors import QcqpbenchError, require
from ..maxmargin import MaxMargin
from ..qcqp import QCQP
from . import lp, mps, nl, npz, qplib
from ._text import GZIP

_TEXTS = {".qplib": qplib, ".lp": lp, ".mps": mps, ".nl": nl}
# By how a file's name ends; text may be compressed.
FORMATS: dict[str, ModuleType] = {".npz": npz, **_TEXTS, **{suffix + GZIP: _TEXTS[suffix] for suffix in _TEXTS}}


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
    """Write a problem to a file, which appears whole or not at all."""
    path = Path(path)
    writer = _format(path)
    part = path.with_name(f".{path.name}.part")
    try:
        try:
            with part.open("wb") as file:
                if path.suffix.lower() == GZIP:
                    with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                        writer.write(problem, packed)
                else:
                    writer.write(problem, file)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error.strerror or error}") from error
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error}") from error


def _format(path: Path) -> ModuleType:
    for suffix, module in FORMATS.items():
        if path.name.lower().endswith(suffix):
            return module
    raise QcqpbenchError(f"{path}: unknown file format {path.suffix!r}; allowed: {', '.join(FORMATS)}")
