"""What the commands share: exit codes, problems from the command line, cells of tables."""

from typing import Any

from ..job import load_problem as problem_of

__all__ = ["DONE", "FAILED", "INTERRUPTED", "USAGE", "cell", "problem_of", "width"]

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


def width(column: str) -> int:
    return max(len(column), {"termination": 18}.get(column, 8))


def cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
