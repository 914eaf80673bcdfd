"""Checks of what a figure shows, read from matplotlib's artists and from the files."""

import math
import re
import zlib
from collections.abc import Mapping, Sequence
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
    series
        Points by the label in the legend; None if they are not compared.
    looks
        Points by colour and marker ("None" for curves); None if they are not compared.
    levels
        Axis, 0 for a vertical line, and position of the lines across the whole panel.
    bands
        Axis and ends of the coloured bands across the whole panel.
    shown
        Smallest and largest x of the points that must be within the limits of the axes; None if they are not compared.
    """

    labels: tuple[str, str]
    points: Sequence[Point]
    bars: tuple[int, Sequence[Point]] | None = None
    guides: int = 0
    shift: float = 0.0
    series: Mapping[str, Sequence[Point]] | None = None
    looks: Mapping[tuple[str, str], Sequence[Point]] | None = None
    levels: Sequence[tuple[int, float]] = ()
    bands: Sequence[tuple[int, float, float]] = ()
    shown: tuple[float, float] | None = None


def columns(lines: Sequence[dict[str, Any]], x: str, y: str) -> list[Point]:
    return [(line[x], line[y]) for line in lines]


def assert_painted(figure: Figure, data: Data, expected: Sequence[Panel]) -> None:
    """Paint the data, and compare every panel with the expected one."""
    from matplotlib.figure import Figure as Picture  # noqa: PLC0415 (optional)

    axes = Picture().subplots(1, figure.panels, squeeze=False)[0]
    figure.paint(axes, data)
    for axis, panel in zip(axes, expected, strict=True):
        assert (axis.get_xlabel(), axis.get_ylabel()) == panel.labels
        # Lines across the whole panel, such as axhline, have another transform.
        lines = [line for line in axis.lines if line.get_transform() is axis.transData]
        assert len(_points(lines)) == len(panel.points) + panel.guides, figure.name
        _assert_among(panel.points, lines, panel.shift)
        if panel.series is not None:
            _assert_labelled(axis, panel.series, panel.shift)
        if panel.looks is not None:
            assert {(line.get_color(), line.get_marker()) for line in lines} == panel.looks.keys()
            for look, points in panel.looks.items():
                alike = [line for line in lines if (line.get_color(), line.get_marker()) == look]
                assert len(_points(alike)) == len(points), look
                _assert_among(points, alike, panel.shift)
        _assert_across(axis, panel)
        _assert_bars(axis, panel)
        if panel.shown is not None:
            (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
            for x, y in _points(lines):
                visible = left <= x <= right and bottom <= y <= top
                assert visible or not panel.shown[0] <= x <= panel.shown[1], (figure.name, x, y)


def _points(lines: Sequence[Any]) -> Any:
    return np.array([point for line in lines for point in zip(*line.get_data(), strict=True)], dtype=float)


def _assert_among(expected: Sequence[Point], lines: Sequence[Any], shift: float) -> None:
    """Check that each expected point is one of the points of `lines`."""
    points = _points(lines)
    for x, y in expected:
        near = (np.abs(points[:, 0] - x) <= shift + 1e-12) & np.isclose(points[:, 1], y, rtol=1e-12, atol=0)
        assert near.any(), (x, y)


def _assert_labelled(axis: Any, expected: Mapping[str, Sequence[Point]], shift: float) -> None:
    """Compare the points of each series, of curves by their labels, of error bars by those of their containers."""
    lines = [(line.get_label(), line) for line in axis.lines if line.get_transform() is axis.transData]
    lines += [(container.get_label(), container.lines[0]) for container in axis.containers]
    series: dict[str, list[Any]] = {}
    for label, line in lines:
        if not label.startswith("_") and len(line.get_xdata()):
            series.setdefault(label, []).append(line)
    assert series.keys() == {label for label, points in expected.items() if points}
    for label, lines_of_label in series.items():
        assert len(_points(lines_of_label)) == len(expected[label]), label
        _assert_among(expected[label], lines_of_label, shift)


def _assert_across(axis: Any, panel: Panel) -> None:
    """Compare the lines and bands across the whole panel, whose other coordinate goes from 0 to 1."""
    levels = []
    for line in axis.lines:
        if line.get_transform() is not axis.transData:
            x, y = line.get_data()
            levels.append((0, x[0]) if x[0] == x[1] else (1, y[0]))
    np.testing.assert_allclose(sorted(levels), sorted(panel.levels), rtol=1e-12)
    bands = []
    for patch in axis.patches:
        (left, bottom), (right, top) = patch.get_path().get_extents(patch.get_patch_transform()).get_points()
        bands.append((1, bottom, top) if (left, right) == (0, 1) else (0, left, right))
    np.testing.assert_allclose(sorted(bands), sorted(panel.bands), rtol=1e-9)


def _assert_bars(axis: Any, panel: Panel) -> None:
    from matplotlib.collections import LineCollection  # noqa: PLC0415 (optional)

    if panel.bars is None:
        return
    direction, ends = panel.bars
    segments = [
        segment
        for collection in axis.collections
        if isinstance(collection, LineCollection)
        for segment in collection.get_segments()
    ]
    drawn = sorted(sorted(segment[:, direction].tolist()) for segment in segments)
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
