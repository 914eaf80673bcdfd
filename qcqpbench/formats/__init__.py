"""Problems in files, one module per file format; the file's suffix says which."""

from pathlib import Path
from types import ModuleType

from ..errors import QcqpbenchError, require
from ..maxmargin import MaxMargin
from ..qcqp import QCQP
from . import npz

FORMATS = {".npz": npz}


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
                writer.write(problem, file)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error.strerror or error}") from error
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error}") from error


def _format(path: Path) -> ModuleType:
    if path.suffix not in FORMATS:
        raise QcqpbenchError(f"{path}: unknown file format {path.suffix!r}; allowed: {', '.join(FORMATS)}")
    return FORMATS[path.suffix]
