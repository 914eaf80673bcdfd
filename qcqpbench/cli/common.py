"""What the commands share: exit codes, problems from the command line, cells of tables."""

from typing import Any

from ..formats import FORMATS, read
from ..maxmargin import MaxMargin
from ..qcqp import QCQP
from ..registry import problem

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def problem_of(text: str) -> MaxMargin | QCQP:
    """A problem from a spec or a file: what has a known file suffix is a file."""
    return read(text) if text.endswith(tuple(FORMATS)) and "[" not in text else problem(text)


def width(column: str) -> int:
    return max(len(column), {"termination": 18}.get(column, 8))


def cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
