"""Text files as the readers of formats see them: lines with their numbers, plain ASCII, every size bounded."""

import contextlib
import functools
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from qcqpbench.errors import QcqpbenchError

# Far above what fits a benchmark, far below what fills a machine. Memory grows with what a file holds; what it merely
# declares, such as its number of variables, is bounded apart.
MOST_BYTES = 1 << 29
MOST_IN_A_LINE = 1 << 20
# A short line takes as long to read as one of so many bytes.
LEAST_OF_A_LINE = 8
# Text that people compress shrinks to a fifth or a twentieth; gzip can make a thousandth of a bomb.
MOST_EXPANSION = 200
GZIP = ".gz"
MOST_DECLARED = 1_000_000

_NO_TEXT = re.compile(rb"[^\t\n\r\x20-\x7e]")
# Python's float() also takes 1_000, infinity and the digits of other scripts.
NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER = re.compile(NUMBER)
_WHOLE = re.compile(r"\+?[0-9]+")
_LARGE = 10**18


class Text:
    """A text file being read line by line; every error names the file and the line that was read last."""

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile, most: int) -> None:
        self.path = path
        self.line = 0
        self._left = self._most = most
        self._next = functools.partial(file.readline, MOST_IN_A_LINE)
        self._block: list[bytes] = []
        self._again: list[bytes] = []

    def __iter__(self) -> Iterator[str]:
        """The lines that are left, with their ends."""
        while raw := self._again.pop() if self._again else self._next():
            self.line += 1
            self._left -= max(len(raw), LEAST_OF_A_LINE)
            if self._left < 0:
                raise self.error(f"the text is longer than {self._most} bytes, which is the most that is read")
            if len(raw) == MOST_IN_A_LINE:
                raise self.error(f"the line is longer than {MOST_IN_A_LINE} characters")
            if found := _NO_TEXT.search(raw):
                raise self.error(f"byte 0x{raw[found.start()]:02x} is no ASCII text; is this another kind of file?")
            yield raw.decode("ascii")

    def block(self, count: int) -> str:
        """The next lines, that many, at once, which is fast; nothing if they are fewer, too long or no text."""
        self._block, size = [], 0
        while len(self._block) < count and size < MOST_IN_A_LINE:
            raw = self._again.pop() if self._again else self._next()
            if not raw:
                break
            self._block.append(raw)
            size += len(raw)
        self._charge(1)
        block = b"".join(self._block)
        if len(self._block) == count and self._left >= 0 and size < MOST_IN_A_LINE and not _NO_TEXT.search(block):
            return block.decode("ascii")
        self.put_back()
        return ""

    def put_back(self) -> None:
        """Have the lines of the last block read again."""
        self._charge(-1)
        self._again.extend(reversed(self._block))
        self._block = []

    def _charge(self, sign: int) -> None:
        self.line += sign * len(self._block)
        self._left -= sign * max(sum(map(len, self._block)), LEAST_OF_A_LINE * len(self._block))

    def error(self, message: str, line: int | None = None) -> QcqpbenchError:
        return QcqpbenchError(f"{self.path}:{max(1, self.line if line is None else line)}: {message}")

    def require(self, condition: bool, message: str, line: int | None = None) -> None:
        if not condition:
            raise self.error(message, line)

    def number(self, word: str, finite: bool = True) -> float:
        """A number; not finite: what is larger than any floating-point number may be infinite."""
        self.require(_NUMBER.fullmatch(word) is not None, f"{shorten(word)} is no number")
        value = float(word)
        in_range = not finite or abs(value) < float("inf")
        self.require(in_range, f"{shorten(word)} is larger than any floating-point number")
        return value

    def whole(self, word: str, what: str, most: int = _LARGE, least: int = 0) -> int:
        """A whole number in a range."""
        self.require(_WHOLE.fullmatch(word) is not None, f"{shorten(word)} is no {what}; right is a whole number")
        value = int(word) if len(word) < 19 else _LARGE
        self.require(least <= value <= most, f"{shorten(word)} is no {what}; right is {least} to {most}")
        return value


def shorten(word: str) -> str:
    """A word of a file in an error."""
    return repr(word if len(word) <= 40 else f"{word[:40]}…")


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[Text]:
    """A text file to read, compressed or not; what the system or gzip says of it is an error of ours."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if path.suffix.lower() != GZIP:
                yield Text(path, file, MOST_BYTES)
                return
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield Text(path, unpacked, min(MOST_BYTES, (1 << 18) + MOST_EXPANSION * size))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise QcqpbenchError(f"{path}: cannot be read: {reason}") from error
