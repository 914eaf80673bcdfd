"""Style, drawing and saving of figures. Equal data give equal bytes. Only this module imports matplotlib."""

import csv
import importlib.util
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from qcqpbench.atomic_files import Kind, text_matching, writing, writing_text
from qcqpbench.errors import QcqpbenchError, require, system_reason

from .base import Axes, Data, Figure, Table

FORMATS = ("pdf", "svg", "png")
# The pictures that may be replaced have the metadata below: a PDF at its end, the others at their beginning.
_KINDS = {
    "pdf": Kind("a PDF file of qcqpbench", lambda head: head.startswith(b"%PDF"), end_marker=b"/Creator (qcqpbench)"),
    "svg": text_matching("an SVG image of qcqpbench", r"<\?xml[^\0]{0,4000}<dc:title>qcqpbench</dc:title>"),
    "png": Kind(
        "a PNG image of qcqpbench",
        lambda head: head.startswith(b"\x89PNG") and b"tEXtSoftware\0qcqpbench" in head[:1000],
    ),
}
# Columns at the beginning of a figure's table that are always the same, by which the table is recognized.
_KEY_COLUMNS = 3

# Okabe and Ito's colours, which most colour-blind readers tell apart; black is for theory.
BLACK, GREY, PALE, RED = "#000000", "#8c8c8c", "#e3e3e3", "#C1272D"
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
SOLVERS = {
    "gip": (VERMILION, "o"),
    "IPOPT epigraph": (BLUE, "s"),
    "IPOPT min-norm": (SKY, "D"),
    "soft margin": (ORANGE, "^"),
    "ADMM": (PURPLE, "v"),
}

_PYPLOT_INCHES = (8.0, 4.5)
_WIDTH_INCHES, _PANEL_INCHES, _MARGIN_INCHES = 7.0, 3.0, 0.1
_SMALL_POINTS, _LINE_SPACING, _CAPTION_CHARACTERS = 7.0, 1.4, 132
_CAPTION_LINE_INCHES = _LINE_SPACING * _SMALL_POINTS / 72

_RC_PARAMS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": _SMALL_POINTS,
    "legend.title_fontsize": _SMALL_POINTS,
    # Fonts are embedded, so that the file looks the same everywhere.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "qcqpbench",
    "savefig.dpi": 200,
}
# No date and no version, so that the bytes depend on the data alone.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": "qcqpbench", "Producer": None},
    "svg": {"Date": None, "Creator": "qcqpbench"},
    "png": {"Software": "qcqpbench"},
}


def prepare(folder: Path) -> None:
    """Create `folder`; raise QcqpbenchError if it cannot be written or matplotlib is not installed."""
    _require_matplotlib()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise QcqpbenchError(f"{folder}: cannot be created: {system_reason(error)}") from error
    require(os.access(folder, os.W_OK), f"{folder}: must be a writable folder, got one without write permission")


def _require_matplotlib() -> None:
    has_matplotlib = importlib.util.find_spec("matplotlib") is not None
    require(has_matplotlib, "figures need the package matplotlib: pip install 'qcqpbench[figures]'")


def new_axes() -> Axes:
    """Return the axes of a new pyplot figure, which notebooks show."""
    _require_matplotlib()
    from matplotlib import pyplot  # noqa: PLC0415 (slow to import, and optional)

    _, axes = pyplot.subplots(figsize=_PYPLOT_INCHES, layout="constrained")
    return axes


def checked_axes(ax: object) -> Axes:
    """Return `ax`; raise QcqpbenchError if it is not axes, such as the array that ``pyplot.subplots(2)`` returns."""
    _require_matplotlib()
    from matplotlib import axes  # noqa: PLC0415 (slow to import, and optional)

    if not isinstance(ax, axes.Axes):
        raise QcqpbenchError(f"ax must be matplotlib axes, got {ax!r:.100}")
    return ax


def save(figure: Figure, data: Data, folder: Path) -> None:
    """Write the figure in all FORMATS, and its table as CSV, to `folder`."""
    _draw(figure, data, folder)
    columns = list(dict.fromkeys(name for line in data.table for name in line))
    header = re.escape(",".join(columns[:_KEY_COLUMNS]))
    kind = text_matching("a table of this figure", rf"{header}[,\r\n]")
    with writing_text(folder / f"{figure.name}.csv", kind) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(data.table)


def _draw(figure: Figure, data: Data, folder: Path) -> None:
    from matplotlib import style  # noqa: PLC0415 (slow to import, and optional)
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    lines = _caption_lines(data.caption)
    caption_height = _CAPTION_LINE_INCHES * len(lines) + 2 * _MARGIN_INCHES
    height = _PANEL_INCHES + caption_height
    panel_area = (0, caption_height / height, 1, _PANEL_INCHES / height)
    # The user's matplotlib settings are ignored.
    with style.context(_RC_PARAMS, after_reset=True):
        layout = ConstrainedLayoutEngine(rect=panel_area, w_pad=0.08, h_pad=0.04, wspace=0.04)
        picture = Picture(figsize=(_WIDTH_INCHES, height), layout=layout)
        axes = picture.subplots(1, figure.panels, squeeze=False)[0]
        for letter, panel in zip("ab" if figure.panels > 1 else " ", axes, strict=True):
            panel.set_title(letter)
        figure.paint(axes, data)
        corner = (_MARGIN_INCHES / _WIDTH_INCHES, _MARGIN_INCHES / height)
        picture.text(*corner, "\n".join(lines), fontsize=_SMALL_POINTS, va="bottom", linespacing=_LINE_SPACING)
        for form in FORMATS:
            with writing(folder / f"{figure.name}.{form}", _KINDS[form]) as file:
                picture.savefig(file, format=form, metadata=_METADATA[form])


def _caption_lines(caption: str) -> list[str]:
    """Wrap the caption without line breaks within `m = 100` or after `a:`, and replace hyphens by minus signs."""
    caption = re.sub(" [=→×] |[ab]: ", lambda match: match[0].replace(" ", "\u00a0"), caption)
    return textwrap.wrap(re.sub(r"\B-(?=\d)", "−", caption), _CAPTION_CHARACTERS)


def curve(panel: Axes, lines: Table, x: str, y: str, style: str = "-", **look: Any) -> None:
    """Plot column `y` of a table against column `x` as a curve."""
    panel.plot([line[x] for line in lines], [line[y] for line in lines], style, **look)


def symbols(panel: Axes, lines: Table, x: str, y: str, marker: str, color: str, **look: Any) -> None:
    """Plot column `y` against column `x` as symbols, with error bars for columns with a range, see `mean_and_range`."""
    bars: dict[str, Any] = {
        axis: [[abs(line[name] - line[f"{name}_{end}"]) for line in lines] for end in ("low", "high")]
        for axis, name in (("xerr", x), ("yerr", y))
        if all(f"{name}_low" in line for line in lines)
    }
    xs, ys = ([line[name] for line in lines] for name in (x, y))
    bars |= {"mfc": "none", "linewidth": 1, "zorder": 4} | look
    panel.errorbar(xs, ys, fmt=marker, color=color, **bars)
