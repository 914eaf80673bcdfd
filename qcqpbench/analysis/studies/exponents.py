"""Figure `exponents`: how the difference between full RSB and the margins found falls with the size m."""

from collections.abc import Sequence
from typing import Any

from qcqpbench.analysis.figures.base import Axes, Data, Figure, MeasuredRow, Table, group_by
from qcqpbench.analysis.figures.style import BLUE, GREY, ORANGE, SKY, VERMILION, curve, symbols

from .margins import LOOKS, SHOWN_ENSEMBLE, deficit_columns, predictions, size_columns, size_means
from .measurements.extrapolation import CHI2_LIMIT, EXPONENT_RANGE, Comparison, PowerLaw, compare_limits
from .measurements.runs import finite_size_suite, require_rows, with_nominal_load

_LOAD_LOOKS = {1.0: (BLUE, "o"), 2.0: (ORANGE, "s"), 2.5: (VERMILION, "D"), 3.0: (SKY, "^")}
_SHOWN_EXPONENTS = ("gaussian", "paper")


def _data(rows: Sequence[MeasuredRow]) -> Data:
    rows = require_rows([row for row in rows if row.facts["n"] == 2])
    table: Table = []
    for (ensemble, load), group in group_by(map(with_nominal_load, rows), "ensemble", "load").items():
        name = {"ensemble": ensemble, "load": load, **predictions(load)}
        sizes = size_means(group, ensemble, name["kappa_bar_theory"])
        lines = [{"kind": "size", **name, **size_columns(size)} for size in sizes.all]
        table += [line | deficit_columns(line) for line in lines]
        fits = compare_limits(sizes.fitted, name["kappa_bar_theory"])
        table += [] if fits is None else [{"kind": "fit", **name, **columns} for columns in _fit_lines(fits)]
    caption = (
        f"Full RSB minus the mean of the largest κ̄ found by gip, n = 2, at several sizes m. a: the {SHOWN_ENSEMBLE} "
        f"ensemble, with standard errors and fits of a m^(−ω), the limit being full RSB. b: the fitted exponents ω "
        f"with standard errors; fits that end at a bound of {EXPONENT_RANGE[0]:g} ≤ ω ≤ {EXPONENT_RANGE[1]:g} are left "
        f"out. Grey: ω = 2/3. {_verdict(table)}"
    )
    return Data(table, caption)


def _fit_lines(fits: Comparison) -> Table:
    """Return the columns of each fit, with the comparison of the fits if there is one."""
    verdict = {} if fits.free is None else {"delta_chi2": fits.delta_chi2, "preferred": fits.preferred}
    models = {"fixed": fits.fixed, "free": fits.free, "two_thirds": fits.two_thirds}
    return [{"model": name, **_fit_columns(fit), **verdict} for name, fit in models.items() if fit is not None]


def _fit_columns(fit: PowerLaw) -> dict[str, Any]:
    return {
        "amplitude": fit.amplitude,
        "amplitude_error": fit.amplitude_error,
        "exponent": fit.exponent,
        "exponent_error": fit.exponent_error,
        "exponent_low": fit.exponent - fit.exponent_error,
        "exponent_high": fit.exponent + fit.exponent_error,
        "at_bound": fit.at_bound,
        "kappa_bar": fit.limit,
        "kappa_bar_error": fit.limit_error,
        "chi2": fit.chi2,
        "dof": fit.dof,
    }


def _verdict(table: Table) -> str:
    """Return a sentence with the number of loads at which a fitted limit is preferred."""
    compared = [line for line in table if line.get("model") == "fixed" and "preferred" in line]
    if not compared:
        return "There are too few sizes to fit the limit too."
    count = sum(line["preferred"] == "free" for line in compared)
    return (
        f"Fits whose limit is fitted too are significantly better (χ² lower by more than {CHI2_LIMIT:g}) in {count} of "
        f"{len(compared)} cases (ensembles and loads)."
    )


def _paint(axes: Sequence[Axes], data: Data) -> None:
    _paint_deficits(axes[0], data)
    _paint_exponents(axes[1], data)


def _paint_deficits(panel: Axes, data: Data) -> None:
    # A logarithmic axis has no place for means above full RSB.
    lines = [line for line in data.where(kind="size", ensemble=SHOWN_ENSEMBLE) if line["deficit"] > 0]
    lines = require_rows([line for line in lines if line["load"] in _LOAD_LOOKS])
    ends = 0.9 * min(line["m"] for line in lines), 1.1 * max(line["m"] for line in lines)
    for load, (color, marker) in _LOAD_LOOKS.items():
        at_load = [line for line in lines if line["load"] == load]
        if not at_load:
            continue
        symbols(panel, at_load, "m", "deficit", marker, color, label=f"P̂ = {load:g}")
        for fit in data.where(kind="fit", ensemble=SHOWN_ENSEMBLE, load=load, model="fixed"):
            power = [{"m": m, "deficit": fit["amplitude"] * m ** -fit["exponent"]} for m in ends]
            curve(panel, power, "m", "deficit", color=color, linewidth=0.8)
    set_deficit_axes(panel, lines)


def set_deficit_axes(panel: Axes, lines: Table) -> None:
    """Set logarithmic axes for the deficits of `lines` against m, and draw a power law m^(−2/3) below them."""
    sizes, deficits = sorted({line["m"] for line in lines}), [line["deficit"] for line in lines]
    factor = 0.5 * min(line["deficit"] * line["m"] ** (2 / 3) for line in lines)
    guide = [{"m": m, "deficit": factor * m ** (-2 / 3)} for m in (sizes[0], sizes[-1])]
    curve(panel, guide, "m", "deficit", "--", color=GREY, linewidth=0.8, label="m^(−2/3)")
    panel.set(xlabel="inputs m", ylabel="full RSB − κ̄", xscale="log", yscale="log")
    panel.set(xlim=(0.8 * sizes[0], 1.25 * sizes[-1]), ylim=(0.3 * min(deficits), 4 * max(deficits)))
    panel.set_xticks(sizes, [f"{m}" for m in sizes])
    panel.set_xticks([], minor=True)
    panel.legend(loc="upper right")


def _paint_exponents(panel: Axes, data: Data) -> None:
    panel.axhline(2 / 3, color=GREY, linewidth=0.8, zorder=0)
    for number, ensemble in enumerate(_SHOWN_EXPONENTS):
        color, marker = LOOKS[ensemble]
        fits = data.where(kind="fit", ensemble=ensemble, model="fixed", at_bound=False)
        # Side by side, so that the ensembles do not hide each other.
        shifted = [line | {"load": line["load"] + 0.04 * (2 * number - 1)} for line in fits]
        symbols(panel, shifted, "load", "exponent", marker, color, label=ensemble)
    panel.set(xlabel="load P̂", ylabel="exponent ω", xlim=(0, None), ylim=(0, 2))
    panel.legend(loc="upper right")


EXPONENTS = Figure("exponents", finite_size_suite, _data, _paint)
