"""Exit codes, options of runs and formatting of tables, shared by all commands."""

import argparse
import math
from collections.abc import Collection, Sequence
from typing import Any

from qcqpbench.run.run_spec import OPTIONS, RunOptions

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
_MAX_SHOWN_CHARACTERS = 200
# Column widths of tables that are printed row by row, before the longest cell is known.
_MIN_CELL_CHARACTERS = 10
_TERMINATION_CHARACTERS = 18


def add_run_options(command: argparse.ArgumentParser, show_defaults: bool = False) -> None:
    """Add a flag for each field of `RunOptions`; a flag that the user does not give has the value None."""
    defaults = RunOptions()
    for name, facts in OPTIONS.items():
        default = f" (default: {_default_text(getattr(defaults, name))})" if show_defaults else ""
        command.add_argument(
            facts.flag, dest=name, type=facts.kind, metavar=facts.metavar, help=f"{facts.help}{default}"
        )


def given_run_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the flags that the user gave, by field of `RunOptions` and in its units."""
    return {
        name: facts.from_user(value, facts.flag)
        for name, facts in OPTIONS.items()
        if (value := getattr(options, name)) is not None
    }


def _default_text(default: float | None) -> str:
    return "none" if default is None or math.isinf(default) else f"{default:g}"


def shown(text: str) -> str:
    """Return `text` on one line, truncated to _MAX_SHOWN_CHARACTERS."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN_CHARACTERS else f"{line[:_MAX_SHOWN_CHARACTERS]}…"


def rows_in_words(count: int) -> str:
    """Return the text "1 row" or "`count` rows"."""
    return f"{count} row{'' if count == 1 else 's'}"


def cell(value: Any) -> str:
    """Return the text of a table cell: floats with five significant digits, None as an empty text."""
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def width(column: str) -> int:
    """Return the width of a column in characters, for a table whose rows are printed one by one."""
    return max(len(column), _TERMINATION_CHARACTERS if column == "termination" else _MIN_CELL_CHARACTERS)


def align(rows: Sequence[Sequence[str]], left: Collection[int] = (0,), widths: Sequence[int] = ()) -> list[str]:
    """Return the lines of a table with aligned columns.

    Parameters
    ----------
    rows
        Cells of each row, including the headings.
    left
        Indices of left-aligned columns; the others are right-aligned. Index -1 is the last column.
    widths
        Minimum widths of the columns in characters, for a table that is printed row by row.
    """
    columns = range(len(rows[0]))
    least = widths or [0 for _ in columns]
    wide = [max(least[k], *(len(row[k]) for row in rows)) for k in columns]
    flush_left = {k % len(columns) for k in left}
    return [
        " ".join(row[k].ljust(wide[k]) if k in flush_left else row[k].rjust(wide[k]) for k in columns).rstrip()
        for row in rows
    ]
