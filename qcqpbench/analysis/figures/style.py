"""How pictures look, and how they are saved: the same data give the same bytes. All that needs matplotlib is here."""

import csv
import importlib.util
import os
import re
import textwrap
from pathlib import Path
from typing import Any

from qcqpbench.atomic_files import magic, text_matching, writing, writing_text
from qcqpbench.errors import QcqpbenchError, require

from .base import Axes, Data, Figure, Table

FORMATS = ("pdf", "svg", "png")
_KINDS = {
    "pdf": magic("a PDF file", b"%PDF"),
    "svg": text_matching("an SVG image", r"\A\s*<(\?xml|!doctype svg|svg)\b"),
    "png": magic("a PNG image", b"\x89PNG"),
    "csv": text_matching("a CSV table", r"\A\w+(,\w+)*\r?\n"),
}

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

# Inches, and points; a line of the caption holds so many characters.
_WIDTH, _HEIGHT, _MARGIN = 7.0, 3.0, 0.1
_SMALL, _CHARACTERS = 7.0, 132
_LINE = 1.4 * _SMALL / 72

_LOOK: dict[str, Any] = {
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
    "legend.fontsize": _SMALL,
    "legend.title_fontsize": _SMALL,
    # Fonts go into the file, so that it looks the same wherever it is opened.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "qcqpbench",
    "savefig.dpi": 200,
}
# Neither date nor version: bytes are to depend on the data alone.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Creator": "qcqpbench", "Producer": None},
    "svg": {"Date": None, "Creator": "qcqpbench"},
    "png": {"Software": "qcqpbench"},
}


def prepare(folder: Path) -> None:
    """Make the folder; what is missing is an error now rather than after hours of runs."""
    found = importlib.util.find_spec("matplotlib") is not None
    require(found, "figures need the package matplotlib: pip install 'qcqpbench[figures]'")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise QcqpbenchError(f"{folder}: cannot be made: {error.strerror or error}") from error
    require(os.access(folder, os.W_OK), f"{folder}: cannot be written")


def save(figure: Figure, data: Data, folder: Path) -> None:
    """Write the picture in all FORMATS, and its numbers as CSV, into a folder."""
    _draw(figure, data, folder)
    with writing_text(folder / f"{figure.name}.csv", _KINDS["csv"]) as file:
        columns = dict.fromkeys(name for line in data.table for name in line)
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(data.table)


def _draw(figure: Figure, data: Data, folder: Path) -> None:
    from matplotlib import style  # noqa: PLC0415 (slow to import, and optional)
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    # A line does not end within `m = 100` or after `a:`, and a minus is no hyphen.
    caption = re.sub(" [=→×] |[ab]: ", lambda found: found[0].replace(" ", "\u00a0"), data.caption)
    lines = textwrap.wrap(re.sub(r"\B-(?=\d)", "−", caption), _CHARACTERS)
    below = _LINE * len(lines) + 2 * _MARGIN
    height = _HEIGHT + below
    rest = (0, below / height, 1, _HEIGHT / height)
    # Whatever the user's own settings are.
    with style.context(_LOOK, after_reset=True):
        layout = ConstrainedLayoutEngine(rect=rest, w_pad=0.08, h_pad=0.04, wspace=0.04)
        picture = Picture(figsize=(_WIDTH, height), layout=layout)
        axes = picture.subplots(1, figure.panels, squeeze=False)[0]
        for letter, panel in zip("ab" if figure.panels > 1 else " ", axes, strict=True):
            panel.set_title(letter)
        figure.paint(axes, data)
        at = (_MARGIN / _WIDTH, _MARGIN / height)
        picture.text(*at, "\n".join(lines), fontsize=_SMALL, va="bottom", linespacing=1.4)
        for form in FORMATS:
            with writing(folder / f"{figure.name}.{form}", _KINDS[form]) as file:
                picture.savefig(file, format=form, metadata=_METADATA[form])


def curve(panel: Axes, lines: Table, x: str, y: str, style: str = "-", **look: Any) -> None:
    """Two columns of a table against each other."""
    panel.plot([line[x] for line in lines], [line[y] for line in lines], style, **look)


def symbols(panel: Axes, lines: Table, x: str, y: str, marker: str, color: str, **look: Any) -> None:
    """The same as symbols, with bars where a column has a range as `spread` names it."""
    bars: dict[str, Any] = {
        axis: [[abs(line[name] - line[f"{name}_{end}"]) for line in lines] for end in ("low", "high")]
        for axis, name in (("xerr", x), ("yerr", y))
        if all(f"{name}_low" in line for line in lines)
    }
    xs, ys = ([line[name] for line in lines] for name in (x, y))
    bars |= {"mfc": "none", "linewidth": 1, "zorder": 4} | look
    panel.errorbar(xs, ys, fmt=marker, color=color, **bars)
