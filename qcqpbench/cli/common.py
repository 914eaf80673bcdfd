"""What the commands share: exit codes, problems from the command line, cells of tables."""

from typing import Any

from qcqpbench.run.job import load_problem as problem_of

__all__ = ["DONE", "FAILED", "INTERRUPTED", "USAGE", "cell", "problem_of", "rows_in_words", "shown", "width"]

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
_MAX_SHOWN_CHARACTERS = 200


def shown(text: str) -> str:
    """Return text of a file in one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN_CHARACTERS else f"{line[:_MAX_SHOWN_CHARACTERS]}…"


def rows_in_words(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


def width(column: str) -> int:
    return max(len(column), {"termination": 18}.get(column, 8))


def cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
