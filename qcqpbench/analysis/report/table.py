"""Table of a report, and the texts of its cells."""

from dataclasses import dataclass
from typing import Any

# Results files may come from anywhere, with texts of any length.
MAX_CELL_CHARACTERS = 2000


@dataclass(frozen=True)
class ReportTable:
    """Table of a report.

    Attributes
    ----------
    id
        Id by which the HTML page places the table.
    title
        Title above the table.
    columns
        Headings of the columns.
    rows
        Cells of each row, in the order of `columns`.
    note
        Explanation of the columns below the table.
    """

    id: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""


class PreciseFloat(float):
    """Number that is displayed with ten significant digits instead of four."""


class Share(float):
    """Fraction that is displayed in per cent."""

    @classmethod
    def of(cls, value: float | None) -> "Share | None":
        """Return a share, or None for None."""
        return None if value is None else cls(value)


def cell_text(value: Any) -> str:
    """Return the text of a cell, shortened to MAX_CELL_CHARACTERS; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Share):
        return percent(value)
    if isinstance(value, float):
        return f"{value:.10g}" if isinstance(value, PreciseFloat) else f"{value:.4g}"
    text = str(value)
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[:MAX_CELL_CHARACTERS]}…"


def percent(value: float | None) -> str:
    """Return a fraction as a percentage, empty for None."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 5e-5:
        return f"{100 * value:,.0f} %" if 10 <= abs(value) < 1e4 else f"{100 * value:.3g} %"
    return "< 0.01 %" if value > 0 else "> −0.01 %"
