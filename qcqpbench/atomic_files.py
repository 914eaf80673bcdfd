"""Atomic writing of files, which never replaces a file of another kind.

Every file that qcqpbench writes for a user goes through `writing`, which writes a temporary file beside the target,
flushes it to the disk and renames it. An existing target is replaced only if its content is of the same kind; results
files are never replaced.
"""

import codecs
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

from .errors import QcqpbenchError, require, system_reason

SQLITE_MAGIC = b"SQLite format 3\0"
GZIP_MAGIC = b"\x1f\x8b"
# Number of bytes read at each end of an existing file to recognize its kind.
_END_BYTES = 1 << 16
_MAGICS = {
    SQLITE_MAGIC: "a SQLite database",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive",
    GZIP_MAGIC: "a gzip archive",
    b"%PDF": "a PDF file",
    b"\x89PNG": "a PNG image",
}
# Names of this process's streams. Opening one by name would overwrite the beginning of a file it is redirected to.
_STREAM = re.compile(r"/dev/(?:fd/)?(stdout|stderr|\d+)|/proc/self/fd/(\d+)")
_STREAMS = {"stdout": 1, "stderr": 2}


@dataclass(frozen=True)
class Kind:
    """Kind of file, recognized by the first and last bytes of its files.

    Parameters
    ----------
    name
        The kind with its article, for messages, such as "a PNG image".
    recognize
        Function that returns whether the given first bytes of a file belong to this kind.
    end_marker
        Byte string that occurs among the last bytes of every file of this kind.
    """

    name: str
    recognize: Callable[[bytes], bool]
    end_marker: bytes = b""


def absolute(path: str) -> str:
    """Return `path` as an absolute path.

    Raises
    ------
    QcqpbenchError
        If `path` is not valid UTF-8, which results files require, or is relative to a deleted working directory.
    """
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise QcqpbenchError(f"a path must be UTF-8 to be stored in results files, got {path!r}") from error
    try:
        return str(Path(path).absolute())
    except OSError as error:
        raise QcqpbenchError(f"a path must be absolute if the working directory is deleted, got {path!r}") from error


def magic(name: str, *beginnings: bytes) -> Kind:
    """Return the kind `name`, whose files begin with one of the byte strings `beginnings`."""
    return Kind(name, lambda head: head.startswith(beginnings))


def is_text(head: bytes) -> bool:
    """Return whether `head`, the first bytes of a file, is UTF-8 text; its last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def text_matching(name: str, pattern: str) -> Kind:
    """Return the kind `name` of text files that begin with a match of the regular expression `pattern`, in any case."""
    compiled = re.compile(pattern.encode(), re.IGNORECASE)
    return Kind(name, lambda head: is_text(head) and compiled.match(head) is not None)


def check_target(path: Path, kind: Kind) -> None:
    """Check that `path` does not exist, or is a file that content of `kind` may replace.

    Raises
    ------
    QcqpbenchError
        If `path` is a folder, a nonempty file of another kind, or cannot be accessed.
    """
    with _as_qcqpbench_error(path):
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode) or _stream(path) is not None or status.st_size == 0:
            return
        with path.open("rb") as file:
            head = file.read(_END_BYTES)
            file.seek(max(0, status.st_size - _END_BYTES))
            end = file.read()
    fits = not head.startswith(SQLITE_MAGIC) and kind.recognize(head) and kind.end_marker in end
    refusal = f"must be a new file or {kind.name} to be replaced, got {_describe(head)}; move the file away"
    require(fits, f"{path}: {refusal}")


@contextlib.contextmanager
def writing(path: str | Path, kind: Kind) -> Iterator[BinaryIO]:
    """Open `path` for binary writing; the file is created or replaced when the block ends without an error.

    Devices and pipes, such as /dev/stdout, receive the whole content at the end.

    Raises
    ------
    QcqpbenchError
        If the file cannot be written, or exists and is of another kind. The existing file is left unchanged.
    """
    path = Path(path)
    check_target(path, kind)
    with _as_qcqpbench_error(path):
        if _stream(path) is not None or _is_device(path):
            with tempfile.TemporaryFile() as content:
                yield content
                content.seek(0)
                with _open_device(path) as target:
                    shutil.copyfileobj(content, target)
            return
        # A symbolic link is kept, and the file that it points to is replaced.
        target_path = Path(os.path.realpath(path))
        part = target_path.with_name(f".qcqpbench-{secrets.token_hex(8)}.part")
        try:
            with part.open("xb") as file:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copymode(target_path, part)
                yield file
                file.flush()
                os.fsync(file.fileno())
            # Another process may have written the target meanwhile.
            check_target(path, kind)
            part.replace(target_path)
        finally:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def writing_text(path: str | Path, kind: Kind) -> Iterator[IO[str]]:
    """Open a UTF-8 text file as `writing` does; line ends are not translated, lone surrogates are escaped."""
    with writing(path, kind) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        try:
            yield text
            text.flush()
        finally:
            # A failed flush has raised its error already.
            with contextlib.suppress(OSError):
                text.detach()


@contextlib.contextmanager
def _as_qcqpbench_error(path: Path) -> Iterator[None]:
    """Convert errors of the operating system, and null bytes in `path`, to a QcqpbenchError."""
    try:
        yield
    except BrokenPipeError:
        # The reader of the pipe has exited, which the command line does not report as an error.
        raise
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be written: {system_reason(error)}") from error
    except ValueError as error:
        if "null byte" not in str(error):
            raise
        raise QcqpbenchError(f"{path}: must be a file name, got one with a null byte") from error


def _describe(head: bytes) -> str:
    """Return the kind of file that begins with `head`, with its article."""
    for beginning, name in _MAGICS.items():
        if head.startswith(beginning):
            return name
    return "text of another format" if is_text(head) else "binary data"


def _stream(path: Path) -> int | None:
    """Return the file descriptor that a path such as /dev/stdout names; None for other paths."""
    match = _STREAM.fullmatch(str(path))
    if match is None:
        return None
    name = match[1] or match[2]
    return _STREAMS[name] if name in _STREAMS else int(name)


def _is_device(path: Path) -> bool:
    """Return whether `path` exists and is not a regular file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def _open_device(path: Path) -> IO[bytes]:
    """Open a device, pipe or stream of this process for writing; flush stdout and stderr before a stream."""
    number = _stream(path)
    if number is None:
        return path.open("wb")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return os.fdopen(os.dup(number), "wb")
