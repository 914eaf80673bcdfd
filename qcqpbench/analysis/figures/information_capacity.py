"""Figure `information_capacity`: bits per synapse against the number of outputs, and ratio to classical perceptrons."""

from collections.abc import Sequence

import numpy as np

from qcqpbench import theory
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
from .style import BLACK, BLUE, ORANGE, RED, curve, symbols

_M, _F, _P = 500, 0.2, 50
# Colors by sparseness f.
_SHADES = {1.0: BLACK, 0.5: "#555555", _F: "#7a7a7a", 0.05: "#9e9e9e", 0.01: "#bfbfbf"}


def _suite(quick: bool) -> Suite:
    outputs, sets = ((2, 3), range(1)) if quick else ((2, 3, 5, 8), range(3))
    problems = grid("covariance_perceptron", m=_M, n=outputs, f=_F, c=0.5, p=_P, seed=sets)
    return Suite("information_capacity", "", tuple(problems), (entry("gip[starts=1]", Settings(time_limit=1200)),))


def _data(rows: Sequence[MeasuredRow]) -> Data:
    """Return the information capacity of theory at κ = 0, and its ratio to the classical one from measured margins.

    Theory is replica symmetry, as in the paper. Runs do not measure the capacity at κ = 0, but in theory the ratio is
    the same at every margin. So the information in p patterns classified with margin κ̄ is compared with the capacity
    of classical perceptrons at κ̄, for which the theory is proved: p · (bits of a pattern and its labels) /
    (m/I(κ̄) · (m + n)).
    """
    table = [*_theory_lines(), *_measured_lines(rows)]
    kappa_bars = [line["kappa_bar"] for line in table if line["kind"] == "measured"]
    caption = (
        f"a: information capacity per synapse, Î = P (log₂K + N)/(nm), against the number of outputs n at κ = 0; "
        f"theory for m → ∞ (replica symmetry), covariances of sparseness f (black to grey) and the classical "
        f"perceptron (blue). b: its ratio to the classical one; dotted line at 2, the limit for n ≫ m, and for f = 1 "
        f"the value at n = m. Symbols: measured. Runs do not measure the capacity at κ = 0, but in theory "
        f"the ratio is the same at every margin, so {_P} patterns and the margins that gip finds for them "
        f"(κ̄ = {min(kappa_bars):.1f} to {max(kappa_bars):.1f}; mean of {count_pattern_sets(rows)}, bars: range) are "
        f"compared with the capacity of classical perceptrons at that margin. Parameters: m = {_M}, measured "
        f"at f = {_F:g}, c = 0.5."
    )
    return Data(table, caption)


def _theory_lines() -> Table:
    table: Table = []
    for n in np.unique(np.geomspace(2, 10_000, 120).round()).astype(int).tolist():
        classical = float(theory.per_synapse(theory.classical_information(0.0, _M, n), _M, n))
        table.append({"kind": "classical", "n": n, "information_per_synapse": classical})
        for f in _SHADES:
            bits = float(theory.per_synapse(theory.covariance_information(0.0, _M, n, f), _M, n))
            table.append({"kind": "theory", "n": n, "f": f, "information_per_synapse": bits, "ratio": bits / classical})
    return table


def _measured_lines(rows: Sequence[MeasuredRow]) -> Table:
    table: Table = []
    for (n,), group in group_by(rows, "n").items():
        margins = best_of_sets(group)
        ratios = [
            float(_P * theory.covariance_pattern_bits(_M, n, _F) / theory.classical_information(kappa_bar, _M, n))
            for kappa_bar in margins
        ]
        if ratios:
            table.append(
                {
                    "kind": "measured",
                    "n": n,
                    "f": _F,
                    **mean_and_range("kappa_bar", margins),
                    **mean_and_range("ratio", ratios),
                }
            )
    return table


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    for f, color in _SHADES.items():
        for panel, column in ((left, "information_per_synapse"), (right, "ratio")):
            style = "-" if f == 1 else "--"
            curve(panel, data.where(kind="theory", f=f), "n", column, style, color=color, label=f"f = {f:g}")
    curve(left, data.where(kind="classical"), "n", "information_per_synapse", color=BLUE, label="classical")
    right.axhline(2, color=RED, linestyle=":")
    symbols(right, data.where(kind="measured"), "n", "ratio", "o", ORANGE, label=f"measured, f = {_F:g}")
    for panel in axes:
        panel.set(xscale="log", yscale="log", xlabel="outputs n")
        panel.legend(loc="upper right")
    left.set_ylabel("bits per synapse Î")
    right.set_ylabel("ratio to classical Î")


INFORMATION_CAPACITY = Figure("information_capacity", _suite, _data, _paint)
