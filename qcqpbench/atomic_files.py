"""Write files whole or not at all, and never over a file of another kind.

Every file that qcqpbench writes for a user goes through `writing`: the content is written to a temporary file beside
the target, flushed to the disk and renamed. A target that exists is replaced only if its content shows that it is of
the kind that is written; results files are never replaced.
"""

import contextlib
import errno
import io
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from .errors import QcqpbenchError, require

SQLITE_MAGIC = b"SQLite format 3\0"
GZIP_MAGIC = b"\x1f\x8b"
# The first bytes of an existing file that decide what kind it is.
_HEAD_BYTES = 1 << 16
_MAGICS = {
    SQLITE_MAGIC: "a SQLite database",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive",
    GZIP_MAGIC: "a gzip archive",
    b"%PDF": "a PDF file",
    b"\x89PNG": "a PNG image",
}
# The streams of this process by name; opening them anew would begin at the start of a file they lead to.
_STREAM = re.compile(r"/dev/(?:fd/)?(stdout|stderr|\d+)|/proc/self/fd/(\d+)")
_STREAMS = {"stdout": 1, "stderr": 2}


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    name        with its article, for messages, such as "a PNG image"
    recognize   tells from the first bytes of a file whether it is of this kind
    """

    name: str
    recognize: Callable[[bytes], bool]


def absolute(path: str) -> str:
    """Return a path that leads to the same file from every folder, and that a results file can keep."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise QcqpbenchError(f"{path}: must be UTF-8 to be kept in results files, got other bytes") from error
    try:
        return str(Path(path).absolute())
    except OSError as error:
        raise QcqpbenchError(
            f"{path}: must be an absolute path where the working directory is gone, got a relative one"
        ) from error


def magic(name: str, *beginnings: bytes) -> Kind:
    """Return the kind of file that begins with one of some bytes."""
    return Kind(name, lambda head: head.startswith(beginnings))


def is_text(head: bytes) -> bool:
    """Return whether bytes are UTF-8 text; the last character may be cut off."""
    try:
        head[:-3].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def text_matching(name: str, pattern: str) -> Kind:
    """Return the kind of text file in whose first bytes a regular expression is found; ^ is the start of a line."""
    compiled = re.compile(pattern.encode(), re.IGNORECASE | re.MULTILINE)
    return Kind(name, lambda head: is_text(head) and compiled.search(head) is not None)


def check_target(path: Path, kind: Kind) -> None:
    """Refuse to replace a file that is not of a kind.

    Raises
    ------
    QcqpbenchError
        If the path is a folder, or a file with content of another kind.
    """
    with _one_line(path):
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode) or _stream(path) is not None or status.st_size == 0:
            return
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    fits = not head.startswith(SQLITE_MAGIC) and kind.recognize(head)
    require(fits, f"{path}: must be a new file or {kind.name} to be replaced, got {_describe(head)}")


@contextlib.contextmanager
def writing(path: str | Path, kind: Kind) -> Iterator[BinaryIO]:
    """Open a file to be written: it appears, or replaces one of its kind, only once the block ends without an error.

    Devices and pipes, such as /dev/stdout, get the whole content at the end.

    Raises
    ------
    QcqpbenchError
        If the file cannot be written, or exists and is of another kind. What was there is left as it was.
    """
    path = Path(path)
    check_target(path, kind)
    with _one_line(path):
        if _stream(path) is not None or _is_device(path):
            with tempfile.TemporaryFile() as content:
                yield content
                content.seek(0)
                with _open_device(path) as target:
                    shutil.copyfileobj(content, target)
            return
        # A link stays a link: the file that it leads to is replaced.
        target_path = Path(os.path.realpath(path))
        part = target_path.with_name(f".qcqpbench-{secrets.token_hex(8)}.part")
        try:
            with part.open("xb") as file:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copymode(target_path, part)
                yield file
                file.flush()
                os.fsync(file.fileno())
            # It may have become another file meanwhile.
            check_target(path, kind)
            part.replace(target_path)
        finally:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def writing_text(path: str | Path, kind: Kind) -> Iterator[IO[str]]:
    """Open a UTF-8 text file as `writing` does; lines end as they are written, lone surrogates are escaped."""
    with writing(path, kind) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        try:
            yield text
            text.flush()
        finally:
            # What could not be flushed is an error already.
            with contextlib.suppress(OSError):
                text.detach()


@contextlib.contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # The reader has left: for the command line that is the end, and no error.
        raise
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be written: {error.strerror or error}") from error
    except ValueError as error:
        if "null byte" not in str(error):
            raise
        raise QcqpbenchError(f"{path}: must be a file name, got one with a null byte") from error


def _describe(head: bytes) -> str:
    for beginning, name in _MAGICS.items():
        if head.startswith(beginning):
            return name
    return "text that looks different" if is_text(head) else "binary data"


def _stream(path: Path) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout names."""
    found = _STREAM.fullmatch(str(path))
    if found is None:
        return None
    name = found[1] or found[2]
    return _STREAMS[name] if name in _STREAMS else int(name)


def _is_device(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _open_device(path: Path) -> IO[bytes]:
    number = _stream(path)
    if number is None:
        return path.open("wb")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.fdopen(os.dup(number), "wb")
