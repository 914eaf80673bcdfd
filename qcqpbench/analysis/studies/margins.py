"""Figure `margins`: the largest margins found at every size, ensemble and load, and their limits for m → ∞."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

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
from qcqpbench.analysis.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, curve, symbols

from .active import HYPERSTATIC_LOAD
from .extrapolation import Mean, limit, means
from .runs import ENSEMBLES, finite_size_suite, require_rows, with_nominal_load

_LOOKS = {"paper": (VERMILION, "o"), "psd": (BLUE, "s"), "gaussian": (GREEN, "D")}
_LOAD_COLORS = {0.5: PURPLE, 1.0: BLUE, 2.0: ORANGE, 3.0: SKY}
# Runs whose κ̄ differs by less have found the same margin.
_SAME_KAPPA_BAR = 1e-5


def margin_lines(rows: Sequence[MeasuredRow], **name: Any) -> Table:
    """Return table lines with the mean of the largest κ̄ at each size, and its limit for m → ∞.

    Parameters
    ----------
    rows
        Rows of problems that differ only in m and seed.
    name
        Columns that the lines have in common, including `ensemble` and `kappa_bar_rs`. Where p is rounded, κ̄ is
        corrected by the effect of the rounding on the replica-symmetric prediction.

    Returns
    -------
    Table
        One line per size, with `agree`, the fraction of pairs of gip runs on the same patterns that found the same
        margin, and `missed`, the mean difference between the best gip run on the same patterns and each of them. Then
        one line for the limit, unless a mean is not positive although a margin of 0 is attainable: symmetric patterns
        with ones on the diagonal have margin 0 at (e_a ± e_b)/√2.
    """
    best_by_size: dict[int, list[float]] = defaultdict(list)
    with_margin = [row for row in rows if row.kappa_bar is not None]
    for (m, _), group in group_by(with_margin, "m", "problem_id").items():
        best = max(kappa_bars(group))
        best_by_size[m].append(best + name["kappa_bar_rs"] - group[0].kappa_bar_rs)
    agreement = _agreement(rows)
    sizes = means(best_by_size)
    table = [{"kind": "size", **name, **_size_columns(size), **agreement.get(size.m, {})} for size in sizes]
    is_avoidable = name["ensemble"] != "gaussian" and any(size.value <= 0 for size in sizes)
    if not is_avoidable and (end := limit(sizes)) is not None:
        ends = {"kappa_bar_low": end.low, "kappa_bar_high": end.high}
        fit = {"error": end.error, "slope": end.slope, "mismatch": end.mismatch}
        table.append({"kind": "limit", **name, "kappa_bar": end.value, **ends, **fit})
    return table


def _size_columns(size: Mean) -> dict[str, float]:
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
        predicted = float(theory.covariance_kappa_bar(2 * load, 1, rsb=0))
        name = {"ensemble": ensemble, "load": load, "kappa_bar_rs": predicted}
        table += margin_lines(group, **name)
        for (m,), same_size in group_by(group, "m").items():
            if bounds := [least[id] for id in {row.problem_id for row in same_size} & least.keys()]:
                table.append({"kind": "bound", **name, "m": m, **mean_and_range("kappa_bar", bounds)})
    for line in table:
        line["difference"] = line["kappa_bar"] - line["kappa_bar_rs"]
        for end in ("low", "high"):
            line[f"difference_{end}"] = line[f"kappa_bar_{end}"] - line["kappa_bar_rs"]
    return Data(table, _caption(rows, table))


def _caption(rows: Sequence[MeasuredRow], table: Table) -> str:
    sets = [
        f"{count_distinct((row.facts['seed'] for row in group), 'set')} at m = {m}"
        for (m,), group in group_by(rows, "m").items()
    ]
    return (
        f"Largest margins κ̄ found by gip, n = 2: {', '.join(sets)}. a: the paper's ensemble, means and standard errors "
        f"against m^(−2/3), with fits κ̄∞ + a m^(−2/3); crosses: replica symmetry for m → ∞. b: the limits κ̄∞ "
        f"minus replica symmetry; bars: range over the exponents 1/2, 2/3 and 1, with and without the smallest size, "
        f"and errors. Grey: certified upper bounds at m = {_size_of_bounds(table)}. Dotted: the load "
        f"P̂ = {HYPERSTATIC_LOAD:.2f} above which replica symmetry has more active stabilities than W has directions."
    )


def _size_of_bounds(table: Table) -> int:
    """Return the m with bounds at the largest number of loads; of several, the largest m."""
    sizes = [line["m"] for line in table if line["kind"] == "bound" and line["ensemble"] == "paper"]
    return max(sizes, key=lambda m: (sizes.count(m), m), default=0)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    _paint_sizes(axes[0], data)
    _paint_limits(axes[1], data)


def _paint_sizes(panel: Axes, data: Data) -> None:
    for load, color in _LOAD_COLORS.items():
        sizes = [line | {"x": line["m"] ** (-2 / 3)} for line in data.where(kind="size", ensemble="paper", load=load)]
        if not sizes:
            continue
        symbols(panel, sizes, "x", "kappa_bar", "o", color, label=f"P̂ = {load:g}")
        panel.plot(0, sizes[0]["kappa_bar_rs"], "x", color=BLACK, clip_on=False, zorder=5)
        for end in data.where(kind="limit", ensemble="paper", load=load):
            fit = [{"x": x, "y": end["kappa_bar"] + end["slope"] * x} for x in (0.0, 1.1 * sizes[0]["x"])]
            curve(panel, fit, "x", "y", color=color, linewidth=0.8)
    panel.set(xlabel="m^(−2/3)", ylabel="margin κ̄", xlim=(0, None))
    panel.legend(loc=(0.45, 0.3), ncols=2)


def _paint_limits(panel: Axes, data: Data) -> None:
    panel.axhline(0, color=BLACK, label="replica symmetry, m → ∞", zorder=1)
    m = _size_of_bounds(data.table)
    bounds = data.where(kind="bound", ensemble="paper", m=m)
    symbols(panel, bounds, "load", "difference", "_", GREY, label=f"bound, m = {m}")
    for number, ensemble in enumerate(ENSEMBLES):
        color, marker = _LOOKS[ensemble]
        # Side by side, so that the ensembles do not hide each other.
        limits = [
            line | {"load": line["load"] + 0.05 * (number - 1)} for line in data.where(kind="limit", ensemble=ensemble)
        ]
        symbols(panel, limits, "load", "difference", marker, color, label=ensemble)
    panel.axvline(HYPERSTATIC_LOAD, color=GREY, linestyle=":", linewidth=0.8, zorder=0)
    panel.set(xlabel="load P̂", ylabel="κ̄∞ − replica symmetry", xlim=(0, None), ylim=(-0.3, 0.4))
    panel.legend(loc="lower right", ncols=2)


MARGINS = Figure("margins", finite_size_suite, _data, _paint)
