"""pattern_capacity: how many patterns a margin allows, of covariance and classical perceptrons."""

import math
from collections.abc import Sequence

import numpy as np

from qcqpbench import theory
from qcqpbench.results.store import Row
from qcqpbench.run.suite import Settings, Suite

from .base import Axes, Data, Figure, Table, best_of_sets, by, entry, grid, set_count, spread
from .style import BLACK, BLUE, GREEN, ORANGE, curve, symbols

_COVARIANCE, _CLASSICAL = "covariance_perceptron", "classical_perceptron"
# Patterns as a share of the capacity at κ = 0, 8m/(n − 1) and 2m: by theory the same margins for all.
_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4)
_LOOKS = {2: (BLACK, "o"), 3: (ORANGE, "^"), 5: (GREEN, "D"), 1: (BLUE, "s")}


def _suite(quick: bool) -> Suite:
    m, sets = (40, range(2)) if quick else (100, range(5))
    problems: list[str] = []
    for share in _SHARES:
        for n in (2, 3, 5):
            problems += grid(_COVARIANCE, m=m, n=n, f=0.2, c=0.5, p=round(share * 8 * m / (n - 1)), seed=sets)
        problems += grid(_CLASSICAL, m=m, p=round(share * 2 * m), seed=sets)
    settings = Settings(time_limit=30 if quick else 300)
    entries = entry("gip", settings, name=_COVARIANCE), entry("slsqp", settings, name=_CLASSICAL)
    return Suite("pattern_capacity", "", tuple(problems), entries)


def _data(rows: Sequence[Row]) -> Data:
    """n = 1 is the classical perceptron."""
    table: Table = []
    rows = [_with_margin(row) for row in rows]
    m = rows[0]["facts"]["m"]
    for n in sorted({row["facts"]["n"] for row in rows}):
        for kappa_bar in np.linspace(0, 3, 121).tolist():
            p = theory.classical_capacity(kappa_bar, m) if n == 1 else theory.covariance_capacity(kappa_bar, m, n)
            table.append({"kind": "theory", "n": n, "p": float(p), "load": float(p) / (n * m), "kappa_bar": kappa_bar})
    for (n, p), each in by(rows, "n", "p").items():
        if values := best_of_sets(each):
            table.append({"kind": "measured", "n": n, "p": p, "load": p / (n * m), **spread("kappa_bar", values)})
    caption = (
        f"Pattern capacity against the margin κ̄ = κ/√(fc²). Lines: theory for m → ∞, P = 4m/((n−1) I(κ̄)) for "
        f"covariances, P = m/I(κ̄) for the classical perceptron. Symbols: the largest margin found for p patterns, mean "
        f"of {set_count(rows)}, bars: range over the sets; found by gip for covariances, as a convex program (SLSQP) "
        f"for the classical perceptron, where sets that are not separable are left out. a: per synapse, P̂ = P/(nm); by "
        f"theory that of n = 2 outputs is twice the classical one. b: P for several numbers of outputs n; by theory "
        f"that of n = 5 is the classical one. Parameters: m = {m}, f = 0.2, c = 0.5; classical patterns are ±1."
    )
    return Data(table, caption)


def _with_margin(row: Row) -> Row:
    """The classical perceptron is given as: minimize ‖w‖². The margin of a feasible point is 1/‖w‖."""
    if row["facts"]["name"] != _CLASSICAL or row["point_status"] != "feasible":
        return row
    return row | {"kappa_bar": 1 / math.sqrt(row["objective"])}


def _paint(axes: Sequence[Axes], data: Data) -> None:
    for panel, what, shown in zip(axes, ("load", "p"), ((2, 1), tuple(_LOOKS)), strict=True):
        for n in shown:
            color, marker = _LOOKS[n]
            # The classical curve lies on that of n = 5, which shows between its dashes.
            style = "--" if n == 1 and 5 in shown else "-"
            curve(panel, data.of(kind="theory", n=n), "kappa_bar", what, style, color=color)
            label = f"n = {n}" if n > 1 else "classical"
            symbols(panel, data.of(kind="measured", n=n), "kappa_bar", what, marker, color, label=label)
        panel.set(xlabel="margin κ̄", xlim=(-0.05, 3))
        panel.set_ylim(bottom=0)
        panel.legend(loc="upper right", title="lines: theory, symbols: measured")
    axes[0].set_ylabel("patterns per synapse P̂")
    axes[1].set_ylabel("patterns P")


PATTERN_CAPACITY = Figure("pattern_capacity", _suite, _data, _paint)
