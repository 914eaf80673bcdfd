"""Figure `active`: numbers of active stabilities at the best optima, compared with replica symmetry."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from qcqpbench import theory
from qcqpbench.analysis.figures.base import Axes, Data, Figure, MeasuredRow, Table, group_by, mean_and_range
from qcqpbench.analysis.figures.style import BLACK, GREY, curve, symbols

from .optima import ACTIVE_TOLERANCE, COLORS, best_optima
from .runs import ENSEMBLES, finite_size_suite

# The load at which `active_fraction_theory` is 1. At most one more generic stability can be active than W has free
# directions, so replica symmetry contradicts itself at larger loads.
HYPERSTATIC_LOAD = 1.2507435529613828


def active_fraction_theory(load: float) -> float:
    """Return the replica-symmetric number of active stabilities for n = 2, p Φ(κ̄), divided by 2m."""
    return load * float(ndtr(theory.covariance_kappa_bar(2 * load, 1, rsb=0)))


def _data(rows: Sequence[MeasuredRow]) -> Data:
    table: Table = []
    for (ensemble, m, load), group in group_by(best_optima(rows), "ensemble", "m", "load").items():
        shares = mean_and_range("share", [row.active / (2 * m - 1) for row in group])
        mean = {"active": float(np.mean([row.active for row in group])), "free": 2 * m - 2}
        table.append({"ensemble": ensemble, "m": m, "load": load, **mean, **shares})
    for load in np.linspace(0.02, max(line["load"] for line in table), 100).tolist():
        table.append({"ensemble": "theory", "load": load, "share": active_fraction_theory(load)})
    caption = (
        f"Active stabilities, within {ACTIVE_TOLERANCE:g} √(fc²) of the margin, at the best point found, over 2m − 1, "
        f"the maximum for generic patterns, because W has 2m − 2 free directions. Means over pattern sets, bars: "
        f"range. Black: replica symmetry, p Φ(κ̄), which exceeds 2m beyond P̂ = {HYPERSTATIC_LOAD:.2f} (dotted). a: the "
        f"paper's ensemble, by size. b: three ensembles, m = {_largest_common_size(table)}."
    )
    return Data(table, caption)


def _largest_common_size(table: Table) -> int:
    """Return the largest m at which the table has lines of all its ensembles; 0 if there is none."""
    sizes = [{line["m"] for line in table if line["ensemble"] == ensemble} for ensemble in ENSEMBLES]
    return max(set.intersection(*filter(None, sizes)), default=0)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    m_common = _largest_common_size(data.table)
    sizes = sorted({line["m"] for line in data.where(ensemble="paper")})
    by_size = [(f"m = {m}", data.where(ensemble="paper", m=m)) for m in sizes]
    by_ensemble = [(ensemble, data.where(ensemble=ensemble, m=m_common)) for ensemble in ENSEMBLES]
    for panel, series in zip(axes, (by_size, by_ensemble), strict=True):
        curve(panel, data.where(ensemble="theory"), "load", "share", color=BLACK, label="replica symmetry")
        panel.axhline(1, color=GREY, linewidth=0.8)
        panel.axvline(HYPERSTATIC_LOAD, color=GREY, linestyle=":", linewidth=0.8, zorder=0)
        for (label, lines), color, marker in zip(series, COLORS, "osD^v", strict=False):
            symbols(panel, lines, "load", "share", marker, color, label=label)
        panel.set(xlabel="load P̂", ylabel="active / (2m − 1)", xlim=(0, None), ylim=(0, 1.6))
        panel.legend(loc="lower right")


ACTIVE = Figure("active", finite_size_suite, _data, _paint)
