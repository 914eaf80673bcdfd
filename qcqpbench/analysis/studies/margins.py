"""Figure `margins`: the largest margins found at every size, ensemble and load, and their limits for m → ∞."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis import metrics
from qcqpbench.analysis.figures.base import (
    Axes,
    Data,
    Figure,
    MeasuredRow,
    Table,
    count_distinct,
    group_by,
    kappa_bars,
    mean_and_range,
)
from qcqpbench.analysis.figures.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, curve, symbols
from qcqpbench.analysis.rows import REPLICA_SYMMETRY

from .measurements.extrapolation import Mean, limit, means
from .measurements.runs import ENSEMBLES, finite_size_suite, require_rows, with_nominal_load

LOOKS = {"paper": (VERMILION, "o"), "psd": (BLUE, "s"), "gaussian": (GREEN, "D")}
# Patterns of the gaussian ensemble do not contain the identity matrix, which reduces finite-size corrections.
SHOWN_ENSEMBLE = "gaussian"
_LOAD_COLORS = {0.5: PURPLE, 1.0: BLUE, 2.0: ORANGE, 3.0: SKY}
# Runs whose κ̄ differs by less have found the same margin.
_SAME_KAPPA_BAR = 1e-5


def predictions(alpha: float) -> dict[str, float]:
    """Return κ̄ of full RSB and of replica symmetry as columns, for alpha = p(n−1)/(2m); for n = 2 it is the load."""
    full, symmetric = (float(theory.covariance_kappa_bar(2 * alpha, 1, rsb=rsb)) for rsb in ("full", 0))
    return {"kappa_bar_theory": full, "kappa_bar_rs": symmetric}


class SizeMeans(NamedTuple):
    """Means of the largest κ̄ by size, and those of them to which limits and exponents are fitted."""

    all: list[Mean]
    fitted: list[Mean]


def size_means(rows: Sequence[MeasuredRow], ensemble: str, kappa_bar_theory: float) -> SizeMeans:
    """Return the mean of the largest κ̄ on each pattern set, by size.

    Symmetric patterns with ones on the diagonal have the margin 0 at (e_a ± e_b)/√2. Sizes at which this is the best
    point of some set, or a better one than that found, are not fitted.

    Parameters
    ----------
    rows
        Rows of problems that differ only in m and seed.
    ensemble
        Ensemble of the problems.
    kappa_bar_theory
        Prediction of full RSB at the nominal load. Where p is rounded, κ̄ is corrected by the effect of the rounding on
        this prediction.
    """
    best_by_size: dict[int, list[float]] = defaultdict(list)
    at_zero: set[int] = set()
    with_margin = [row for row in rows if row.kappa_bar is not None]
    for (m, _), group in group_by(with_margin, "m", "problem_id").items():
        best, predicted = max(kappa_bars(group)), group[0].kappa_bar_theory
        best_by_size[m].append(best + (0.0 if predicted is None else kappa_bar_theory - predicted))
        if ensemble != "gaussian" and best < _SAME_KAPPA_BAR:
            at_zero.add(m)
    sizes = means(best_by_size)
    return SizeMeans(sizes, [size for size in sizes if size.m not in at_zero])


def margin_lines(rows: Sequence[MeasuredRow], **name: Any) -> Table:
    """Return table lines with the mean of the largest κ̄ at each size, and its limit for m → ∞.

    Parameters
    ----------
    rows
        Rows of problems that differ only in m and seed.
    name
        Columns that the lines have in common, including `ensemble` and `kappa_bar_theory`, see `size_means`.

    Returns
    -------
    Table
        One line per size, with `agree`, the fraction of pairs of gip runs on the same patterns that found the same
        margin, and `missed`, the mean difference between the best gip run on the same patterns and each of them. Then
        one line for the limit, if at least three sizes can be fitted.
    """
    agreement = _agreement(rows)
    sizes = size_means(rows, name["ensemble"], name["kappa_bar_theory"])
    table = [{"kind": "size", **name, **size_columns(size), **agreement.get(size.m, {})} for size in sizes.all]
    if (end := limit(sizes.fitted)) is not None:
        ends = {"kappa_bar_low": end.low, "kappa_bar_high": end.high}
        fit = {"error": end.error, "slope": end.slope, "mismatch": end.mismatch}
        table.append({"kind": "limit", **name, "kappa_bar": end.value, **ends, **fit})
    return [line | deficit_columns(line) for line in table]


def deficit_columns(line: dict[str, Any]) -> dict[str, float]:
    """Return the columns `deficit`, full RSB minus κ̄, and its ends."""
    ends = {"deficit": "kappa_bar", "deficit_low": "kappa_bar_high", "deficit_high": "kappa_bar_low"}
    return {name: line["kappa_bar_theory"] - line[end] for name, end in ends.items()}


def with_difference(lines: Table) -> Table:
    """Return the lines with the column `difference`, κ̄ minus full RSB, and its ends."""
    ends = {"difference": "deficit", "difference_low": "deficit_high", "difference_high": "deficit_low"}
    return [line | {name: -line[end] for name, end in ends.items()} for line in lines]


def theory_curves(low: float, high: float) -> Table:
    """Return κ̄ of full RSB and of replica symmetry, and their difference, at 101 values x of p(n−1)/(2m)."""
    table = [{"x": x, **predictions(x)} for x in np.linspace(low, high, 101).tolist()]
    return [line | {"difference": line["kappa_bar_rs"] - line["kappa_bar_theory"]} for line in table]


def size_columns(size: Mean) -> dict[str, float]:
    """Return the columns of a mean, with κ̄ ± standard error as the ends of κ̄."""
    ends = {"kappa_bar_low": size.value - size.error, "kappa_bar_high": size.value + size.error}
    return {"m": size.m, "sets": size.sets, "kappa_bar": size.value, **ends}


def _agreement(rows: Sequence[MeasuredRow]) -> dict[int, dict[str, float]]:
    """Return the columns `agree` and `missed` by m, for sizes with several gip runs on the same patterns."""
    gip = [row for row in rows if row.series == "gip"]
    agree: dict[int, list[bool]] = defaultdict(list)
    missed: dict[int, list[float]] = defaultdict(list)
    for (m, _), group in group_by(gip, "m", "problem_id").items():
        if len(values := kappa_bars(group)) > 1:
            agree[m] += [abs(a - b) < _SAME_KAPPA_BAR for a, b in combinations(values, 2)]
            missed[m] += [max(values) - value for value in values]
    return {m: {"agree": fmean(agree[m]), "missed": fmean(missed[m])} for m in agree}


def _data(rows: Sequence[MeasuredRow]) -> Data:
    rows = require_rows([row for row in rows if row.facts["n"] == 2])
    table: Table = []
    least = metrics.bounds(rows, metrics.best_known(rows)).least
    for (ensemble, load), group in group_by(map(with_nominal_load, rows), "ensemble", "load").items():
        name = {"ensemble": ensemble, "load": load, **predictions(load)}
        table += margin_lines(group, **name)
        for (m,), same_size in group_by(group, "m").items():
            if bounds := [least[id] for id in {row.problem_id for row in same_size} & least.keys()]:
                line = {"kind": "bound", **name, "m": m, **mean_and_range("kappa_bar", bounds)}
                table.append(line | deficit_columns(line))
    return Data(table, _caption(rows))


def _caption(rows: Sequence[MeasuredRow]) -> str:
    sets = [
        f"{count_distinct((row.facts['seed'] for row in group), 'set')} at m = {m}"
        for (m,), group in group_by(rows, "m").items()
    ]
    return (
        f"Largest margins κ̄ found by gip, n = 2: up to {', '.join(sets)}. a: the {SHOWN_ENSEMBLE} ensemble, means and "
        f"standard errors against m^(−2/3), with fits κ̄∞ + a m^(−2/3). Theory for m → ∞: crosses, full "
        f"replica-symmetry breaking (full RSB); open circles on the axis, replica symmetry. b: the limits κ̄∞ minus "
        f"full RSB; bars: range over the exponents 1/2, 2/3 and 1, with and without the smallest size, and errors. "
        f"Dashed: replica symmetry minus full RSB."
    )


def _paint(axes: Sequence[Axes], data: Data) -> None:
    _paint_sizes(axes[0], data)
    _paint_limits(axes[1], data)


def _paint_sizes(panel: Axes, data: Data) -> None:
    for load, color in _LOAD_COLORS.items():
        sizes = data.where(kind="size", ensemble=SHOWN_ENSEMBLE, load=load)
        if not sizes:
            continue
        sizes = [line | {"x": line["m"] ** (-2 / 3)} for line in sizes]
        symbols(panel, sizes, "x", "kappa_bar", "o", color, label=f"P̂ = {load:g}")
        panel.plot(0, sizes[0]["kappa_bar_rs"], "o", color=BLACK, mfc="white", markersize=3, clip_on=False, zorder=5)
        panel.plot(0, sizes[0]["kappa_bar_theory"], "x", color=BLACK, markersize=5, clip_on=False, zorder=6)
        for end in data.where(kind="limit", ensemble=SHOWN_ENSEMBLE, load=load):
            fit = [{"x": x, "y": end["kappa_bar"] + end["slope"] * x} for x in (0.0, 1.1 * sizes[0]["x"])]
            curve(panel, fit, "x", "y", color=color, linewidth=0.8)
    panel.set(xlabel="m^(−2/3)", ylabel="margin κ̄", xlim=(0, None))
    # Above the panel, because the lines leave gaps at different heights for different loads.
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, columnspacing=1, handletextpad=0.2)


def _paint_limits(panel: Axes, data: Data) -> None:
    panel.axhline(0, color=BLACK, label="full RSB", zorder=1)
    limits = with_difference(data.where(kind="limit"))
    loads = [line["load"] for line in data.table]
    curve(panel, theory_curves(min(loads), max(loads)), "x", "difference", "--", color=BLACK, label=REPLICA_SYMMETRY)
    for number, ensemble in enumerate(ENSEMBLES):
        color, marker = LOOKS[ensemble]
        # Side by side, so that the ensembles do not hide each other.
        shifted = [
            line | {"load": line["load"] + 0.05 * (number - 1)} for line in limits if line["ensemble"] == ensemble
        ]
        symbols(panel, shifted, "load", "difference", marker, color, label=ensemble)
    panel.set(xlabel="load P̂", ylabel="κ̄∞ − full RSB", xlim=(0, None), ylim=(-0.15, 0.15))
    panel.legend(loc="lower right", ncols=2)


MARGINS = Figure("margins", finite_size_suite, _data, _paint)
