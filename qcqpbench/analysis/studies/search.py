"""Figure `search`: margins that several solvers find on the same patterns, compared with the best and with theory."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from qcqpbench.analysis.figures.base import (
    Axes,
    Data,
    Figure,
    MeasuredRow,
    Table,
    count_distinct,
    group_by,
    kappa_bars,
)
from qcqpbench.analysis.figures.style import curve, symbols

from .exponents import set_deficit_axes
from .measurements.extrapolation import mean_and_error
from .measurements.optima import COLORS
from .measurements.runs import require_rows, search_suite, with_nominal_load

# A solver has reached the best margin if its κ̄ is lower by less than this.
_SAME_KAPPA_BAR = 1e-5
_MARKERS = "osD^v<"
# Shortfalls below this are drawn on a linear scale, because many are 0.
_LINEAR_SHORTFALL = 1e-4


def _data(rows: Sequence[MeasuredRow]) -> Data:
    rows = require_rows([with_nominal_load(row) for row in rows])
    table: Table = []
    for (m, load), group in group_by(rows, "m", "load").items():
        best = {problem: max(values) for problem, values in _values(group).items() if values}
        name = {"m": m, "load": load}
        table.append({"kind": "all", **name, "series": "best of all", **_best_columns(group)})
        for (series,), runs in group_by(group, "label").items():
            table.append({"kind": "solver", **name, "series": series, **_best_columns(runs), **_columns(runs, best)})
    caption = (
        f"Margins that several solvers found on the same patterns of the gaussian ensemble, n = 2, "
        f"{_instances(rows)}. a: κ̄ of the best of all solvers on an instance minus κ̄ of the best run of a solver, "
        f"means over instances; the axis is linear up to {_LINEAR_SHORTFALL:g}. b: full RSB minus the mean κ̄ of gip "
        f"(open) and of the best of all solvers (filled), with standard errors, and the slope m^(−2/3)."
    )
    return Data(table, caption)


def _instances(rows: Sequence[MeasuredRow]) -> str:
    return ", ".join(
        f"{count_distinct((row.facts['seed'] for row in group), 'set')} at m = {m}"
        for (m,), group in group_by(rows, "m").items()
    )


def _values(rows: Sequence[MeasuredRow]) -> dict[str, list[float]]:
    """Return κ̄ of the runs that have one, by problem."""
    return {problem: kappa_bars(group) for (problem,), group in group_by(rows, "problem").items()}


def _best_columns(rows: Sequence[MeasuredRow]) -> dict[str, float]:
    """Return the number of instances, the mean over them of the largest κ̄, and the deficit from full RSB.

    Instances without a point count in `instances` but not in the means.
    """
    groups = group_by(rows, "problem").values()
    columns: dict[str, float] = {"instances": len(groups)}
    best = [(max(values), group[0].kappa_bar_theory) for group in groups if (values := kappa_bars(group))]
    if not best:
        return columns
    columns["kappa_bar"] = fmean(kappa_bar for kappa_bar, _ in best)
    deficits = [predicted - kappa_bar for kappa_bar, predicted in best if predicted is not None]
    return columns | (mean_and_error("deficit", deficits) if deficits else {})


def _columns(rows: Sequence[MeasuredRow], best: Mapping[str, float]) -> dict[str, Any]:
    """Return the columns of one solver: its runs compared with `best`, the largest κ̄ of all solvers by problem."""
    values = _values(rows)
    shortfalls = [best[problem] - max(attained) for problem, attained in values.items() if attained]
    columns: dict[str, Any] = {
        "runs": len(rows),
        "reached": sum(shortfall < _SAME_KAPPA_BAR for shortfall in shortfalls) / len(values),
    }
    if shortfalls:
        columns["kappa_bar_single"] = fmean(fmean(attained) for attained in values.values() if attained)
        columns["shortfall"] = fmean(shortfalls)
    if seconds := [row.solve_seconds for row in rows if row.solve_seconds is not None]:
        columns["seconds"] = fmean(seconds)
    return columns


def _paint(axes: Sequence[Axes], data: Data) -> None:
    _paint_shortfalls(axes[0], data)
    _paint_deficits(axes[1], data)


def _paint_shortfalls(panel: Axes, data: Data) -> None:
    groups = [(line["m"], line["load"]) for line in data.where(kind="all")]
    series_names = sorted({line["series"] for line in data.where(kind="solver")})
    for number, (series, color, marker) in enumerate(zip(series_names, COLORS, _MARKERS, strict=False)):
        # Side by side, so that the solvers do not hide each other.
        shift = 0.12 * (number - (len(series_names) - 1) / 2)
        lines = [line for line in data.where(kind="solver", series=series) if "shortfall" in line]
        shifted = [line | {"x": groups.index((line["m"], line["load"])) + shift} for line in lines]
        curve(panel, shifted, "x", "shortfall", marker, color=color, mfc="none", label=series, clip_on=False)
    panel.set_xticks(range(len(groups)), [f"{m}\n{load:g}" for m, load in groups])
    panel.set_yscale("symlog", linthresh=_LINEAR_SHORTFALL)
    shortfalls = [line["shortfall"] for line in data.with_column("shortfall")]
    panel.set(
        xlabel="inputs m, and load P̂ below", ylabel="shortfall of κ̄ from the best", xlim=(-0.5, len(groups) - 0.5)
    )
    panel.set_ylim(0, 20 * max(_LINEAR_SHORTFALL, *shortfalls))
    panel.legend(loc="upper left", ncols=2)


def _paint_deficits(panel: Axes, data: Data) -> None:
    # A logarithmic axis has no place for means above full RSB.
    best = [line for line in data.where(kind="all") if line.get("deficit", 0) > 0]
    gip = [line for line in data.where(kind="solver", series="gip") if line.get("deficit", 0) > 0]
    require_rows(best + gip)
    for load, color, marker in zip(sorted({line["load"] for line in best + gip}), COLORS, _MARKERS, strict=False):
        symbols(panel, [line for line in gip if line["load"] == load], "m", "deficit", marker, color)
        filled = {"mfc": color, "label": f"P̂ = {load:g}"}
        symbols(panel, [line for line in best if line["load"] == load], "m", "deficit", marker, color, **filled)
    set_deficit_axes(panel, best + gip)


SEARCH = Figure("search", search_suite, _data, _paint)
