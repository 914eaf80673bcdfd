"""Figure `active`: numbers of active stabilities at the best optima and their multipliers, compared with theory."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis.figures.base import Axes, Data, Figure, MeasuredRow, Table, group_by
from qcqpbench.analysis.figures.style import BLACK, GREY, curve, symbols
from qcqpbench.analysis.rows import REPLICA_SYMMETRY

from .margins import SHOWN_ENSEMBLE
from .measurements.extrapolation import mean_and_error
from .measurements.optima import ACTIVE_TOLERANCE, COLORS, best_optima
from .measurements.runs import finite_size_suite

# The load at which the share of replica symmetry is 1. At most one more generic stability can be active than W has free
# directions, so replica symmetry contradicts itself at larger loads.
HYPERSTATIC_LOAD = 1.2507435529613828


def _data(rows: Sequence[MeasuredRow]) -> Data:
    table: Table = []
    line: dict[str, Any]
    for (ensemble, m, load), group in group_by(best_optima(rows), "ensemble", "m", "load").items():
        shares = [row.active / (2 * m - 1) for row in group]
        line = {"ensemble": ensemble, "m": m, "load": load, "sets": len(group), "free": 2 * m - 2}
        line |= {"active": float(np.mean([row.active for row in group])), **mean_and_error("share", shares)}
        line |= mean_and_error("unconstrained", [1 - share for share in shares])
        line |= mean_and_error("multiplier_ratio", [row.multiplier_ratio for row in group])
        table.append(line | _theory_columns(load))
    for load in np.linspace(0.02, max(line["load"] for line in table), 100).tolist():
        table.append({"ensemble": "theory", "load": load, **_theory_columns(load)})
    caption = (
        f"Active stabilities, within {ACTIVE_TOLERANCE:g} √(fc²) of the margin, at the best points found; the "
        f"{SHOWN_ENSEMBLE} ensemble, n = 2, means over pattern sets, bars: standard errors. a: their number over "
        f"2m − 1, the maximum for generic patterns, because W has 2m − 2 free directions. Black: full RSB. Dashed: "
        f"replica symmetry, p Φ(κ̄)/(2m), which exceeds 1 beyond P̂ = {HYPERSTATIC_LOAD:.2f}. b: an identity of full "
        f"RSB for m → ∞: the share 1 − c without an active stability equals κ̄²(Σl)²/(4mΣl²), where l are "
        f"the multipliers of the active stabilities. Grey: equality. Crosses: full RSB at each load."
    )
    return Data(table, caption)


def _theory_columns(load: float) -> dict[str, float]:
    """Return the share of full RSB with the ends of its bracket, and that of replica symmetry."""
    full, symmetric = (float(theory.active_share(2 * load, 1, rsb=rsb)) for rsb in ("full", 0))
    low, high = map(float, theory.active_share_bracket(2 * load, 1))
    return {"share_theory": full, "share_theory_low": low, "share_theory_high": high, "share_rs": symmetric}


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    curve(left, data.where(ensemble="theory"), "load", "share_theory", color=BLACK, label="full RSB")
    curve(left, data.where(ensemble="theory"), "load", "share_rs", "--", color=BLACK, label=REPLICA_SYMMETRY)
    left.axhline(1, color=GREY, linewidth=0.8, zorder=0)
    right.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, zorder=0)
    shown = data.where(ensemble=SHOWN_ENSEMBLE)
    for m, color, marker in zip(sorted({line["m"] for line in shown}), COLORS, "osD^v<", strict=False):
        at_size = [line for line in shown if line["m"] == m]
        symbols(left, at_size, "load", "share", marker, color, label=f"m = {m}")
        symbols(right, at_size, "unconstrained", "multiplier_ratio", marker, color, label=f"m = {m}")
    expected = [{"x": 1 - share} for share in sorted({line["share_theory"] for line in shown})]
    curve(right, expected, "x", "x", "x", color=BLACK, markersize=6, zorder=5, label="full RSB")
    left.set(xlabel="load P̂", ylabel="active / (2m − 1)", xlim=(0, None), ylim=(0, 1.6))
    left.legend(loc="lower right")
    right.set(xlabel="1 − c = 1 − active / (2m − 1)", ylabel="κ̄²(Σl)²/(4mΣl²)", xlim=(0, 1), ylim=(0, 1))
    right.legend(loc="upper left")


ACTIVE = Figure("active", finite_size_suite, _data, _paint)
