"""Text files for the readers of formats: lines with their numbers, in ASCII, with every size bounded."""

import contextlib
import functools
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from qcqpbench.errors import QcqpbenchError, system_reason

# Far above the sizes of benchmarks, and far below the memory of a machine. Memory grows with the content of a file; the
# sizes that it declares, such as the number of variables, have their own limit.
_MAX_BYTES = 1 << 29
_MAX_LINE_BYTES = 1 << 20
MAX_DECLARED = 1_000_000
# A shorter line counts as this many bytes, because reading it takes as long.
_MIN_LINE_BYTES = 8
# Gzip compresses problems to a fifth or a twentieth, but repetitions to a thousandth.
_MAX_GZIP_EXPANSION = 200
GZIP = ".gz"

_NOT_ASCII_TEXT = re.compile(rb"[^\t\n\r\x20-\x7e]")
# Numbers are matched before conversion, because Python's float() also accepts 1_000, infinity and non-ASCII digits.
NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(NUMBER)
_WHOLE = re.compile(r"\+?[0-9]+")
_MAX_WHOLE = 10**18


class Text:
    """Text file that is read line by line; every error names the file and the last line read."""

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile, max_bytes: int) -> None:
        self.path = path
        self.line = 0
        self._left = self._max_bytes = max_bytes
        self._next = functools.partial(file.readline, _MAX_LINE_BYTES)
        self._block: list[bytes] = []
        self._again: list[bytes] = []

    def __iter__(self) -> Iterator[str]:
        """Yield the remaining lines, with their line ends."""
        while raw := self._again.pop() if self._again else self._next():
            self.line += 1
            self._left -= max(len(raw), _MIN_LINE_BYTES)
            if self._left < 0:
                raise self.error(f"the text must have at most {self._max_bytes} bytes, got more")
            if len(raw) == _MAX_LINE_BYTES:
                raise self.error(f"the line must have fewer than {_MAX_LINE_BYTES} bytes, got as many or more")
            if match := _NOT_ASCII_TEXT.search(raw):
                raise self.error(
                    f"the text must be ASCII, got byte 0x{raw[match.start()]:02x}; is this another kind of file?"
                )
            yield raw.decode("ascii")

    def block(self, count: int) -> str:
        """Return the next `count` lines at once, for speed; empty if fewer remain, or any is too long or not ASCII."""
        self._block, size = [], 0
        while len(self._block) < count and size < _MAX_LINE_BYTES:
            raw = self._again.pop() if self._again else self._next()
            if not raw:
                break
            self._block.append(raw)
            size += len(raw)
        self._charge(1)
        block = b"".join(self._block)
        fits = len(self._block) == count and self._left >= 0 and size < _MAX_LINE_BYTES
        if fits and not _NOT_ASCII_TEXT.search(block):
            return block.decode("ascii")
        self.put_back()
        return ""

    def put_back(self) -> None:
        """Put the lines of the last block back, so that they are read again."""
        self._charge(-1)
        self._again.extend(reversed(self._block))
        self._block = []

    def _charge(self, sign: int) -> None:
        """Count the lines of the last block as read if `sign` is 1, or as not read if `sign` is −1."""
        self.line += sign * len(self._block)
        self._left -= sign * max(sum(map(len, self._block)), _MIN_LINE_BYTES * len(self._block))

    def error(self, message: str, line: int | None = None) -> QcqpbenchError:
        """Return a QcqpbenchError that names the file and `line`, by default the last line read."""
        return QcqpbenchError(f"{self.path}:{max(1, self.line if line is None else line)}: {message}")

    def require(self, condition: bool, message: str, line: int | None = None) -> None:
        """Raise the error of `error` unless `condition` holds."""
        if not condition:
            raise self.error(message, line)

    def number(self, word: str, finite: bool = True) -> float:
        """Return the number in `word`.

        A number beyond the floating-point range raises an error if `finite`, and becomes infinite otherwise.
        """
        self.require(_NUMBER.fullmatch(word) is not None, f"expected a number, got {shorten(word)}")
        value = float(word)
        in_range = not finite or abs(value) < float("inf")
        self.require(in_range, f"a number must be in the floating-point range, got {shorten(word)}")
        return value

    def whole(self, word: str, name: str, most: int = _MAX_WHOLE, least: int = 0) -> int:
        """Return the whole number in `word`, called `name`; raise an error unless it is from `least` to `most`."""
        self.require(_WHOLE.fullmatch(word) is not None, f"the {name} must be a whole number, got {shorten(word)}")
        value = int(word) if len(word) < 19 else _MAX_WHOLE
        self.require(least <= value <= most, f"the {name} must be from {least} to {most}, got {shorten(word)}")
        return value


def shorten(word: str) -> str:
    """Return `word` quoted and cut to 40 characters, for error messages."""
    return repr(word if len(word) <= 40 else f"{word[:40]}…")


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[Text]:
    """Open a text file for reading, gzip-compressed or not; convert system and gzip errors to QcqpbenchError."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if path.suffix.lower() != GZIP:
                yield Text(path, file, _MAX_BYTES)
                return
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield Text(path, unpacked, min(_MAX_BYTES, (1 << 18) + _MAX_GZIP_EXPANSION * size))
    except (OSError, EOFError, zlib.error) as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
