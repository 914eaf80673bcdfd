"""Types of plots as data: axes, series, bands and menus. The plots of a report are in `plots`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from qcqpbench.errors import require

# Sections of the page that hold plots.
Section = Literal["capacity", "gaps", "accuracy", "time", "anytime", "profiles", "general"]


@dataclass(frozen=True)
class Axis:
    """Axis of a plot.

    Attributes
    ----------
    label
        Name and unit of the quantity.
    scale
        Linear or logarithmic.
    min, max
        Ends of the axis; by default, the axis covers the values.
    floor
        Values below it are cut off at the edge of the plot.
    percent
        Whether values are fractions that are shown as percentages.
    ticks
        Values with a label, if they are few enough; by default, round numbers.
    """

    label: str
    scale: Literal["linear", "log"] = "linear"
    min: float | None = None
    max: float | None = None
    floor: float | None = None
    percent: bool = False
    ticks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Series:
    """Line of a plot. All columns that are not empty have the length of `x`.

    Attributes
    ----------
    name
        Name in the legend.
    x, y
        Coordinates of the points; a point whose y is None is not drawn.
    low, high
        Ends of the vertical bars.
    hollow
        Whether the mark of each point is hollow.
    notes
        Texts that are shown when a point is selected.
    kind
        A line with marks, marks alone, steps, or a reference curve, dashed or dotted.
    solver
        Solver whose button highlights the series, and whose color and marks it has; empty for none.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    hollow: Sequence[bool] = ()
    notes: Sequence[str] = ()
    kind: Literal["points", "marks", "steps", "curve", "dotted"] = "points"
    solver: str = ""

    def __post_init__(self) -> None:
        _check_lengths(self.name, self.x, self.y, *filter(None, (self.low, self.high, self.hollow, self.notes)))


@dataclass(frozen=True)
class Band:
    """Shaded area of a plot between two lines; `notes` are texts about its points, in downloaded files."""

    name: str
    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        _check_lengths(self.name, self.x, self.low, self.high, self.notes or self.x)


@dataclass(frozen=True)
class Menu:
    """Menu that selects one of the plots of a figure, and of all figures with the same menu.

    Attributes
    ----------
    id, label
        Id of the element, and text beside it.
    first
        Position of the option that is selected at first: 0 for the first one, -1 for the last one.
    """

    id: str
    label: str
    first: Literal[0, -1] = 0


@dataclass(frozen=True)
class Plot:
    """One plot of a report.

    Attributes
    ----------
    id
        Id of the figure, and name of downloaded files.
    section
        Section of the page with the figure.
    title, note
        Texts above and below the plot.
    x, y
        Axes.
    series, bands
        Lines and shaded areas.
    choices
        Option of each menu with which the plot is shown. The options of a menu depend on the menus before it.
    is_wide
        Whether the figure takes the full width of the page.
    """

    id: str
    section: Section
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    bands: tuple[Band, ...] = ()
    note: str = ""
    choices: tuple[tuple[Menu, str], ...] = ()
    is_wide: bool = False

    def __post_init__(self) -> None:
        allowed = ", ".join(get_args(Section))
        require(self.section in get_args(Section), f"section must be one of {allowed}, got {self.section!r}")

    @property
    def has_points(self) -> bool:
        """True if anything is drawn."""
        return bool(self.bands) or any(y is not None for line in self.series for y in line.y)


def _check_lengths(name: str, x: Sequence[float], *columns: Sequence[object]) -> None:
    is_equal = all(len(column) == len(x) for column in columns)
    require(is_equal, f"columns of {name!r} must have the length of x, {len(x)}, got {[*map(len, columns)]}")
