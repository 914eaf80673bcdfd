"""Figure `gaps`: density of gaps between stabilities and margin at the best optima, compared with replica symmetry."""

from collections.abc import Sequence

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis.figures.base import Axes, Data, Figure, MeasuredRow, Table, group_by
from qcqpbench.analysis.figures.style import BLACK, curve

from .optima import COLORS, Optimum, best_optima
from .runs import finite_size_suite, require_rows

_BIN_EDGES = np.geomspace(1e-3, 10, 17)
# Exponent of the gap density at jamming (Charbonneau, Kurchan, Parisi, Urbani, Zamponi 2014).
_JAMMING_EXPONENT = 0.41269


def _data(rows: Sequence[MeasuredRow]) -> Data:
    table: Table = []
    for (ensemble, m, load), group in group_by(best_optima(rows), "ensemble", "m", "load").items():
        kappa_bar = float(theory.covariance_kappa_bar(2 * load, 1, rsb=0))
        for line in _density(group):
            predicted = float(np.exp(-((kappa_bar + line["gap"]) ** 2) / 2) / np.sqrt(2 * np.pi))
            table.append({"ensemble": ensemble, "m": m, "load": load, **line, "density_theory": predicted})
    caption = (
        f"Density of the gaps h between stabilities and margin, in units of √(fc²), at the best points found, "
        f"normalized to all stabilities and drawn without the active ones; the paper's ensemble. a: m = "
        f"{max(line['m'] for line in table)}, several loads; lines: replica symmetry, φ(κ̄ + h), finite as h → 0. b: "
        f"several sizes; dashed: h^(−{_JAMMING_EXPONENT:.2f}), the power law at jamming, fitted to the gaps 0.01 to "
        f"0.3 of the largest size."
    )
    return Data(table, caption)


def _density(rows: Sequence[Optimum]) -> Table:
    """Return the density of the gaps of all rows, with one line per nonempty bin."""
    pooled = np.concatenate([row.gaps for row in rows])
    counts, _ = np.histogram(pooled, _BIN_EDGES)
    density = counts / np.diff(_BIN_EDGES) / len(pooled)
    centers = np.sqrt(_BIN_EDGES[1:] * _BIN_EDGES[:-1])
    return [
        {"gap": x, "density": y, "count": int(count)}
        for x, y, count in zip(centers.tolist(), density.tolist(), counts, strict=True)
        if count
    ]


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    lines = require_rows(data.where(ensemble="paper"))
    largest = max(line["m"] for line in lines)
    loads = _shown_loads([line for line in lines if line["m"] == largest])
    for load, color in zip(loads, COLORS, strict=False):
        at_load = data.where(ensemble="paper", m=largest, load=load)
        curve(left, at_load, "gap", "density", "o", color=color, mfc="none", label=f"P̂ = {load:g}")
        curve(left, at_load, "gap", "density_theory", color=color, linewidth=0.8)
    load = loads[-1]
    for m, color in zip(sorted({line["m"] for line in lines}), COLORS, strict=False):
        at_size = data.where(ensemble="paper", m=m, load=load)
        curve(right, at_size, "gap", "density", "o-", color=color, mfc="none", linewidth=0.8, label=f"m = {m}")
    if guide := _power_law(data.where(ensemble="paper", m=largest, load=load)):
        curve(right, guide, "gap", "density", "--", color=BLACK, label=f"h^(−{_JAMMING_EXPONENT:.2f})")
    for panel in axes:
        panel.set(xlabel="gap h", ylabel="density", xscale="log", yscale="log", ylim=(0.02, 5))
        panel.legend(loc="upper right")
    right.set_title(f"b   P̂ = {load:g}")


def _shown_loads(lines: Table) -> list[float]:
    loads = sorted({line["load"] for line in lines if 0.5 <= line["load"] <= 3})
    return [load for load in loads if load in (0.5, 1, 2, 3)] or loads


def _power_law(lines: Table) -> Table:
    """Return two points of the jamming power law, fitted to gaps between 0.01 and 0.3; empty if there are none."""
    middle = [line for line in lines if 0.01 < line["gap"] < 0.3]
    if not middle:
        return []
    offsets = [np.log(line["density"]) + _JAMMING_EXPONENT * np.log(line["gap"]) for line in middle]
    factor = float(np.exp(np.mean(offsets)))
    return [{"gap": x, "density": factor * x**-_JAMMING_EXPONENT} for x in (1e-3, 1.0)]


GAPS = Figure("gaps", finite_size_suite, _data, _paint)
