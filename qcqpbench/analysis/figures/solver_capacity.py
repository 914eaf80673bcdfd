"""Plot of the margins that solvers reach against the load, for any results."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qcqpbench.analysis import metrics
from qcqpbench.analysis.rows import FULL_RSB, REPLICA_SYMMETRY, labels_of_solvers, place
from qcqpbench.catalog.spec import parse
from qcqpbench.errors import require
from qcqpbench.results.row import Row

from .base import Axes
from .style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, checked_axes, new_axes

# Six colours and seven markers: 42 solvers look different.
_COLORS = (VERMILION, BLUE, GREEN, ORANGE, SKY, PURPLE)
_MARKERS = "osD^vPX"
_THEORY_STYLES = ("--", ":", "-.")
_FULL: Literal["full"] = "full"
_SYMMETRIC: Literal[0] = 0
# Larger legends stand beside the plot.
_MAX_ENTRIES_INSIDE = 5
# Margins below this fraction of the largest one are cut off, because they would compress everything else.
_MIN_SHOWN_MARGIN = -0.4


@dataclass(frozen=True)
class CapacitySeries:
    """Margins of one solver on the problems of one variant and m.

    Attributes
    ----------
    solver, variant, m
        Spec of the solver, and the problems, see `rows.Place`.
    loads
        The loads, in increasing order.
    means, lows, highs
        Mean and range over instances of κ̄ of the best start.
    complete
        Whether every instance at a load has a point. Instances without a point do not count in the mean.
    """

    solver: str
    variant: str
    m: int
    loads: tuple[float, ...]
    means: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    complete: tuple[bool, ...]


def plot_capacity(rows: Sequence[Row], ax: "Axes | None" = None) -> Axes:
    """Plot the margin κ̄ reached by each solver against the load, with predictions by full RSB and replica symmetry.

    Black lines are full replica-symmetry breaking (RSB), the best theory; grey lines are replica symmetry. Other lines
    connect means over instances, bars are ranges over instances. A marker is hollow if the solver has no point on some
    instance. Solvers that only prove bounds are left out.

    Parameters
    ----------
    rows
        Rows of results; problems without a load are ignored.
    ax
        The axes to draw into; by default new ones.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    QcqpbenchError
        If no row has a margin and a load, or matplotlib is not installed.
    """
    series = capacity_series(rows)
    require(bool(series), "rows must hold a run with a margin on a problem with a load, got none")
    axes = new_axes() if ax is None else checked_axes(ax)
    _draw_theory(axes, rows)
    names = _names(series, rows)
    solvers = list(dict.fromkeys(line.solver for line in series))
    sizes = sorted({line.m for line in series})
    for line, name in zip(series, names, strict=True):
        number = solvers.index(line.solver)
        color, marker = _COLORS[number % len(_COLORS)], _MARKERS[number % len(_MARKERS)]
        # The larger the problems, the more solid their line.
        alpha = 0.4 + 0.6 * (sizes.index(line.m) + 1) / len(sizes)
        _draw_series(axes, line, color=color, marker=marker, alpha=alpha, label=name)
    axes.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    axes.set(xlabel="load p/(nm)", ylabel="margin κ̄")
    _cut_off(axes, series)
    _add_legend(axes)
    return axes


def capacity_series(rows: Sequence[Row]) -> list[CapacitySeries]:
    """Return the margins by solver, variant and m, in the order of the names of the solvers."""
    groups: dict[tuple[str, str, int], dict[float, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in filter(metrics.competes, rows):
        where = place(row.problem)
        if where.m is not None and where.exact_load is not None:
            margins = groups[row.solver, where.variant, where.m][where.exact_load][row.problem_id]
            if row.kappa_bar is not None and (kappa_bar := metrics.value(row)) is not None:
                margins.append(kappa_bar)
    series = [_series(*key, by_load) for key, by_load in sorted(groups.items())]
    return [line for line in series if line.loads]


def _series(solver: str, variant: str, m: int, by_load: dict[float, dict[str, list[float]]]) -> CapacitySeries:
    best = {load: [max(margins) for margins in by_problem.values() if margins] for load, by_problem in by_load.items()}
    loads = tuple(sorted(load for load, values in best.items() if values))
    return CapacitySeries(
        solver=solver,
        variant=variant,
        m=m,
        loads=loads,
        means=tuple(statistics.fmean(best[load]) for load in loads),
        lows=tuple(min(best[load]) for load in loads),
        highs=tuple(max(best[load]) for load in loads),
        complete=tuple(len(best[load]) == len(by_load[load]) for load in loads),
    )


def _names(series: Sequence[CapacitySeries], rows: Sequence[Row]) -> list[str]:
    """Return the label of the solver of each series, with the problem if there are several variants or sizes."""
    labels = labels_of_solvers(rows)
    has_variants = len({line.variant for line in series}) > 1
    has_sizes = len({line.m for line in series}) > 1
    return [labels[line.solver] + f", {line.variant}" * has_variants + f", m = {line.m}" * has_sizes for line in series]


def _draw_theory(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw the curves of both theories for each variant, or lines between predictions that are on no common curve."""
    full: dict[str, dict[float, float]] = defaultdict(dict)
    symmetric: dict[str, dict[float, float]] = defaultdict(dict)
    for row in rows:
        where = place(row.problem)
        if where.exact_load is not None:
            for predictions, kappa_bar in ((full, row.kappa_bar_theory), (symmetric, row.kappa_bar_rs)):
                if kappa_bar is not None:
                    predictions[where.variant][where.exact_load] = kappa_bar
    variants = sorted(full.keys() | symmetric.keys())
    for number, variant in enumerate(variants):
        look: dict[str, Any] = {"linestyle": _THEORY_STYLES[number % len(_THEORY_STYLES)], "linewidth": 1.2}
        ending = f", {variant}" * (len(variants) > 1)
        for name, by_load, rsb, color in (
            (FULL_RSB, full[variant], _FULL, BLACK),
            (REPLICA_SYMMETRY, symmetric[variant], _SYMMETRIC, GREY),
        ):
            if curve := metrics.theory_curve(parse(variant)[0], by_load, rsb):
                axes.plot(*zip(*curve, strict=True), color=color, label=f"{name}{ending}", zorder=1, **look)


def _draw_series(axes: Axes, line: CapacitySeries, color: str, marker: str, alpha: float, label: str) -> None:
    bars = [
        [mean - low for mean, low in zip(line.means, line.lows, strict=True)],
        [high - mean for mean, high in zip(line.means, line.highs, strict=True)],
    ]
    look: dict[str, Any] = {"color": color, "alpha": alpha, "markersize": 5}
    axes.errorbar(line.loads, line.means, bars, fmt=f"{marker}-", linewidth=1, label=label, **look)
    hollow = [
        (load, mean)
        for load, mean, is_complete in zip(line.loads, line.means, line.complete, strict=True)
        if not is_complete
    ]
    if hollow:
        axes.plot(*zip(*hollow, strict=True), marker, mfc="white", zorder=5, **look)


def _cut_off(axes: Axes, series: Sequence[CapacitySeries]) -> None:
    """Cut off very negative margins, and say so at the axis."""
    floor = _MIN_SHOWN_MARGIN * max(0.5, *(high for line in series for high in line.highs))
    if min(low for line in series for low in line.lows) < floor:
        axes.set_ylim(bottom=floor)
        axes.set_ylabel(f"margin κ̄ (below {floor:.2g} not shown)".replace("-", "−"))


def _add_legend(axes: Axes) -> None:
    count = len(axes.get_legend_handles_labels()[0])
    if count <= _MAX_ENTRIES_INSIDE:
        axes.legend(frameon=False, fontsize="small")
    else:
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
