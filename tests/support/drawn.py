"""Checks of what a figure shows, read from matplotlib's artists and from the files."""

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from qcqpbench.analysis.figures.base import Data, Figure

Point = tuple[float, float]


@dataclass(frozen=True)
class Panel:
    """The expected contents of one panel.

    Parameters
    ----------
    labels
        Labels of the horizontal and the vertical axis.
    points
        All points of curves and symbols, in any order.
    bars
        Axis, 0 or 1, and ends of the error bars along it, in any order; None if they are not compared.
    guides
        Number of further points, of lines that only guide the eye.
    shift
        Largest horizontal distance of a symbol from its x, by which symbols are moved apart.
    """

    labels: tuple[str, str]
    points: Sequence[Point]
    bars: tuple[int, Sequence[Point]] | None = None
    guides: int = 0
    shift: float = 0.0


def columns(lines: Sequence[dict[str, Any]], x: str, y: str) -> list[Point]:
    return [(line[x], line[y]) for line in lines]


def assert_painted(figure: Figure, data: Data, expected: Sequence[Panel]) -> None:
    """Paint the data, and compare labels, points and bars of every panel with the expected ones."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415 (optional)
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415

    axes = Picture().subplots(1, figure.panels, squeeze=False)[0]
    figure.paint(axes, data)
    for panel, panel_expected in zip(axes, expected, strict=True):
        assert (panel.get_xlabel(), panel.get_ylabel()) == panel_expected.labels
        # Lines across the whole panel, such as axhline, have another transform.
        lines = [line for line in panel.lines if line.get_transform() is panel.transData]
        points = np.array([point for line in lines for point in zip(*line.get_data(), strict=True)], dtype=float)
        assert len(points) == len(panel_expected.points) + panel_expected.guides, figure.name
        for x, y in panel_expected.points:
            near = (np.abs(points[:, 0] - x) <= panel_expected.shift + 1e-12) & np.isclose(
                points[:, 1], y, rtol=1e-12, atol=0
            )
            assert near.any(), (figure.name, x, y)
        if panel_expected.bars is not None:
            axis, ends = panel_expected.bars
            segments = [
                segment
                for collection in panel.collections
                if isinstance(collection, LineCollection)
                for segment in collection.get_segments()
            ]
            drawn = sorted(sorted(segment[:, axis].tolist()) for segment in segments)
            np.testing.assert_allclose(drawn, sorted(map(sorted, ends)), rtol=1e-9, atol=1e-12)


def assert_files_show(folder: Path, figure: Figure, expected: Sequence[Panel]) -> None:
    """Check that SVG, PNG and PDF have ink in every panel, and that the SVG has the axis labels."""
    path = folder / f"{figure.name}.svg"
    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    text = path.read_text(encoding="utf-8")
    for panel in expected:
        for label in panel.labels:
            # Text is drawn as outlines; matplotlib repeats it in a comment.
            assert f"<!-- {label} -->" in text, label
    numbers = sum(len(panel.points) for panel in expected)
    vertices = sum(len(re.findall("[ML] ", outline)) for outline in re.findall(r'<path d="([^"]*)"', text))
    assert vertices + text.count("<use ") > min(numbers, 100)
    assert_ink(folder / f"{figure.name}.png", figure.panels)
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", (folder / f"{figure.name}.pdf").read_bytes(), re.DOTALL)
    pages = [page for page in map(decompressed, streams) if b" re\n" in page or b" l\n" in page]
    assert max(page.count(b" l\n") + page.count(b" Do") for page in pages) > 30


def assert_ink(path: Path, panels: int) -> None:
    """Check that no panel of a PNG is blank or filled."""
    from matplotlib.image import imread  # noqa: PLC0415 (optional)

    pixels = imread(path)[:, :, :3]
    assert pixels.shape[1] == 1400
    for part in np.array_split(pixels[: int(0.6 * len(pixels))], panels, axis=1):
        assert 0.003 < float((part < 0.9).any(axis=2).mean()) < 0.95
        colours = np.rint(255 * part).astype(int) @ (1 << 16, 1 << 8, 1)
        assert len(np.unique(colours)) > 10


def decompressed(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


def spans(lines: Sequence[dict[str, Any]], name: str) -> list[Point]:
    """Return the range of a value in each line of a table."""
    return [(line[f"{name}_low"], line[f"{name}_high"]) for line in lines]


def power(m: float) -> float:
    return math.pow(m, -2 / 3)
