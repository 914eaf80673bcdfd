"""Figure `pattern_capacity`: number of patterns against the margin, for covariance and classical perceptrons."""

import math
from collections.abc import Sequence

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis.rows import extend_row
from qcqpbench.catalog.status import PointStatus
from qcqpbench.run.suite import Settings, Suite

from .base import (
    Axes,
    Data,
    Figure,
    MeasuredRow,
    Table,
    best_of_sets,
    count_pattern_sets,
    entry,
    grid,
    group_by,
    mean_and_range,
)
from .style import BLACK, BLUE, GREEN, ORANGE, curve, symbols

_COVARIANCE, _CLASSICAL = "covariance_perceptron", "classical_perceptron"
# Numbers of patterns as fractions of the capacity at κ = 0, 8m/(n − 1) and 2m. In theory the margins are then equal.
_FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
_LOOKS = {2: (BLACK, "o"), 3: (ORANGE, "^"), 5: (GREEN, "D"), 1: (BLUE, "s")}


def _suite(quick: bool) -> Suite:
    m, sets = (40, range(2)) if quick else (100, range(5))
    problems: list[str] = []
    for fraction in _FRACTIONS:
        for n in (2, 3, 5):
            problems += grid(_COVARIANCE, m=m, n=n, f=0.2, c=0.5, p=round(fraction * 8 * m / (n - 1)), seed=sets)
        problems += grid(_CLASSICAL, m=m, p=round(fraction * 2 * m), seed=sets)
    settings = Settings(time_limit=30 if quick else 300)
    entries = entry("gip", settings, name=_COVARIANCE), entry("slsqp", settings, name=_CLASSICAL)
    return Suite("pattern_capacity", "", tuple(problems), entries)


def _data(rows: Sequence[MeasuredRow]) -> Data:
    """Return measured margins and those of replica symmetry, as in the paper; n = 1 is the classical perceptron."""
    table: Table = []
    rows = [_with_margin(row) for row in rows]
    m = rows[0].facts["m"]
    for n in sorted({row.facts["n"] for row in rows}):
        for kappa_bar in np.linspace(0, 3, 121).tolist():
            p = theory.classical_capacity(kappa_bar, m) if n == 1 else theory.covariance_capacity(kappa_bar, m, n)
            table.append({"kind": "theory", "n": n, "p": float(p), "load": float(p) / (n * m), "kappa_bar": kappa_bar})
    for (n, p), group in group_by(rows, "n", "p").items():
        if values := best_of_sets(group):
            table.append(
                {"kind": "measured", "n": n, "p": p, "load": p / (n * m), **mean_and_range("kappa_bar", values)}
            )
    caption = (
        f"Pattern capacity against the margin κ̄ = κ/√(fc²). Lines: theory for m → ∞, replica symmetry, "
        f"P = 4m/((n−1) I(κ̄)) for covariances, P = m/I(κ̄) for the classical perceptron. Symbols: the largest "
        f"margin found for p patterns, mean of {count_pattern_sets(rows)}, bars: range over the sets; found by "
        f"gip for covariances, and as a convex program (SLSQP) for the classical perceptron, "
        f"without the sets that are not separable. a: per synapse, P̂ = P/(nm); in theory twice the classical one for "
        f"n = 2 outputs. b: P for several numbers of outputs n; in theory equal to the classical one for n = 5. "
        f"Parameters: m = {m}, f = 0.2, c = 0.5; classical patterns are ±1."
    )
    return Data(table, caption)


def _with_margin(row: MeasuredRow) -> MeasuredRow:
    """Set κ̄ = 1/‖w‖ in a copy of the row if it has a feasible point w of the classical problem, minimize ‖w‖²."""
    if row.facts["name"] != _CLASSICAL or row.point_status is not PointStatus.FEASIBLE or row.objective is None:
        return row
    return extend_row(MeasuredRow, row, {"kappa_bar": 1 / math.sqrt(row.objective)})


def _paint(axes: Sequence[Axes], data: Data) -> None:
    for panel, column, outputs in zip(axes, ("load", "p"), ((2, 1), tuple(_LOOKS)), strict=True):
        for n in outputs:
            color, marker = _LOOKS[n]
            # The classical curve coincides with that of n = 5, which is visible between the dashes.
            style = "--" if n == 1 and 5 in outputs else "-"
            curve(panel, data.where(kind="theory", n=n), "kappa_bar", column, style, color=color)
            label = f"n = {n}" if n > 1 else "classical"
            symbols(panel, data.where(kind="measured", n=n), "kappa_bar", column, marker, color, label=label)
        panel.set(xlabel="margin κ̄", xlim=(-0.05, 3))
        panel.set_ylim(bottom=0)
        panel.legend(loc="upper right", title="lines: replica symmetry, symbols: measured")
    axes[0].set_ylabel("patterns per synapse P̂")
    axes[1].set_ylabel("patterns P")


PATTERN_CAPACITY = Figure("pattern_capacity", _suite, _data, _paint)
