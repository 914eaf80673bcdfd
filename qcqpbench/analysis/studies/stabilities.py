"""Figure `stabilities`: distribution of the stabilities at the best optima, compared with theory."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import ndtr

from qcqpbench import theory
from qcqpbench.analysis.figures.base import Array, Axes, Data, Figure, MeasuredRow, Table, group_by
from qcqpbench.analysis.figures.style import BLACK, curve
from qcqpbench.analysis.rows import REPLICA_SYMMETRY

from .margins import SHOWN_ENSEMBLE
from .measurements.optima import COLORS, best_optima
from .measurements.runs import finite_size_suite, require_rows

_DELTAS = np.array([0.01, 0.02, 0.05, 0.1, 0.15, *(k / 10 for k in range(2, 13)), 1.4, 1.6, 1.8, 2.0])
_BIN_EDGES = np.geomspace(1e-3, 10, 21)
_SHOWN_LOADS = (0.5, 1, 2, 3)


def _data(rows: Sequence[MeasuredRow]) -> Data:
    table: Table = []
    for (ensemble, m, load), group in group_by(best_optima(rows), "ensemble", "m", "load").items():
        name = {"ensemble": ensemble, "m": m, "load": load, "sets": len(group)}
        gaps = np.concatenate([row.gaps for row in group])
        table += [{"kind": "tail", **name, **line} for line in _tail_lines(gaps, load)]
        table += [{"kind": "density", **name, **line} for line in _density_lines(gaps, load)]
    caption = (
        f"Stabilities g at the best points found, n = 2, in units of √(fc²), of all pattern sets together; the "
        f"{SHOWN_ENSEMBLE} ensemble. a: share of stabilities more than δ above the margin κ, m = "
        f"{_largest_size(table)}, several loads (symbols); lines: full RSB; dashed: replica symmetry, Φ(−κ̄ − δ). b: "
        f"density of the gaps h = g − κ, normalized to all stabilities and drawn without the active ones, at the load "
        f"P̂ = {_highest_load(table):g}, by size; line: full RSB; dashed: replica symmetry, φ(κ̄ + h); "
        f"means over the same bins."
    )
    return Data(table, caption)


@cache
def _full_rsb(load: float) -> theory.StabilityDistribution:
    return theory.stability_density(2 * load, 1)


def _replica_symmetric_margin(load: float) -> float:
    return float(theory.covariance_kappa_bar(2 * load, 1, rsb=0))


def _tail_lines(gaps: Array, load: float) -> Table:
    """Return the share of gaps above each of _DELTAS, with the predictions."""
    shares = [float(np.mean(gaps > delta)) for delta in _DELTAS]
    full = _full_rsb(load)
    predicted = full.tail(full.kappa_bar + _DELTAS).tolist()
    symmetric = ndtr(-_replica_symmetric_margin(load) - _DELTAS).tolist()
    return [
        {"delta": delta, "share": share, "share_theory": share_theory, "share_rs": share_rs}
        for delta, share, share_theory, share_rs in zip(_DELTAS.tolist(), shares, predicted, symmetric, strict=True)
    ]


def _density_lines(gaps: Array, load: float) -> Table:
    """Return the density of the gaps in each nonempty bin, with the predictions."""
    counts, _ = np.histogram(gaps, _BIN_EDGES)
    densities = counts / np.diff(_BIN_EDGES) / len(gaps)
    centers = np.sqrt(_BIN_EDGES[1:] * _BIN_EDGES[:-1])
    full = _full_rsb(load)
    predicted = _bin_densities(full.tail(full.kappa_bar + _BIN_EDGES))
    symmetric = _bin_densities(ndtr(-_replica_symmetric_margin(load) - _BIN_EDGES))
    return [
        {
            "gap": float(centers[k]),
            "density": float(densities[k]),
            "density_theory": float(predicted[k]),
            "density_rs": float(symmetric[k]),
            "count": int(counts[k]),
        }
        for k in np.flatnonzero(counts)
    ]


def _bin_densities(tails: Array) -> Array:
    """Return the mean density in each bin, given the probability of gaps above each edge."""
    return -np.diff(tails) / np.diff(_BIN_EDGES)


def _largest_size(table: Table) -> int:
    return max((line["m"] for line in table if line["ensemble"] == SHOWN_ENSEMBLE), default=0)


def _highest_load(table: Table) -> float:
    """Return the highest load of the drawn ensemble up to 3; at higher loads some margins are negative."""
    loads = {float(line["load"]) for line in table if line["ensemble"] == SHOWN_ENSEMBLE}
    return max((load for load in loads if load <= 3), default=0.0)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    require_rows(data.where(ensemble=SHOWN_ENSEMBLE))
    _paint_tails(axes[0], data)
    _paint_densities(axes[1], data)


def _paint_tails(panel: Axes, data: Data) -> None:
    m = _largest_size(data.table)
    for load, color in zip(_SHOWN_LOADS, COLORS, strict=False):
        lines = data.where(kind="tail", ensemble=SHOWN_ENSEMBLE, m=m, load=load)
        if lines:
            curve(panel, lines, "delta", "share", "o", color=color, mfc="none", label=f"P̂ = {load:g}")
            curve(panel, lines, "delta", "share_theory", color=color, linewidth=0.8)
            curve(panel, lines, "delta", "share_rs", "--", color=color, linewidth=0.8)
    # Lines without points, which explain the lines above in the legend.
    panel.plot([], [], "-", color=BLACK, linewidth=0.8, label="full RSB")
    panel.plot([], [], "--", color=BLACK, linewidth=0.8, label=REPLICA_SYMMETRY)
    panel.set(xlabel="δ", ylabel="share of stabilities above κ + δ", xlim=(0, None), ylim=(0, None))
    panel.legend(loc="upper right")


def _paint_densities(panel: Axes, data: Data) -> None:
    load = _highest_load(data.table)
    lines = data.where(kind="density", ensemble=SHOWN_ENSEMBLE, load=load)
    for m, color in zip(sorted({line["m"] for line in lines}), COLORS, strict=False):
        at_size = [line for line in lines if line["m"] == m]
        curve(panel, at_size, "gap", "density", "o", color=color, mfc="none", label=f"m = {m}")
    bins = sorted({line["gap"]: line for line in lines}.values(), key=lambda line: line["gap"])
    curve(panel, bins, "gap", "density_theory", color=BLACK, label="full RSB")
    curve(panel, bins, "gap", "density_rs", "--", color=BLACK, label=REPLICA_SYMMETRY)
    panel.set(xlabel="gap h", ylabel="density", xscale="log", yscale="log", ylim=(0.003, 5))
    panel.legend(loc="lower left")


STABILITIES = Figure("stabilities", finite_size_suite, _data, _paint)
