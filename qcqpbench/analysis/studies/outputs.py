"""outputs: does the capacity fall as 4m/(n−1) with the number of outputs?"""

from collections.abc import Sequence

from qcqpbench import theory
from qcqpbench.analysis.figures.base import Axes, Data, Figure, Table, by
from qcqpbench.analysis.figures.style import BLACK, BLUE, ORANGE, VERMILION, curve, symbols
from qcqpbench.results.store import Row

from .margins import lines
from .runs import FRACTIONS, OF_OUTPUTS, runs, there

_LOOK = {2: (VERMILION, "o"), 3: (BLUE, "s"), 5: (ORANGE, "^")}


def _data(rows: Sequence[Row]) -> Data:
    """`capacity_ratio` is p (n−1) I(κ̄)/(4m): what the margin says of the number of patterns, against theory."""
    table: Table = []
    rows = [row | {"facts": row["facts"] | {"fraction": _fraction(row)}} for row in rows]
    rows = [row for row in rows if row["facts"]["fraction"] in FRACTIONS and row["facts"]["ensemble"] in OF_OUTPUTS]
    for (ensemble, n, fraction), each in by(there(rows), "ensemble", "n", "fraction").items():
        expected = float(theory.covariance_kappa_bar(4 * fraction, 1))
        table += lines(each, ensemble=ensemble, n=n, fraction=fraction, kappa_bar_theory=expected)
    for line in table:
        for end in ("", "_low", "_high"):
            line[f"capacity_ratio{end}"] = line["fraction"] * float(theory.margin_integral(line[f"kappa_bar{end}"]))
    largest = {n: max(row["facts"]["m"] for row in each) for (n,), each in by(rows, "n").items()}
    sizes = ", ".join(f"m = {m} for n = {n}" for n, m in largest.items())
    caption = (
        f"Numbers of outputs n = 2, 3, 5 at the same p (n−1)/(4m), where theory has the same margin whatever n is. "
        f"a: margins at the largest size ({sizes}; open symbols, means and standard errors) and their limits for m → ∞ "
        f"(filled), the {OF_OUTPUTS[0]} ensemble, against theory. b: the number of patterns over the one at which "
        f"theory has the limiting margin, p (n−1) I(κ̄∞)/(4m): 1 where 4m/(n−1) holds; bars as in margins. Filled: "
        f"{OF_OUTPUTS[0]}, open: {OF_OUTPUTS[1]}."
    )
    return Data(table, caption)


def _fraction(row: Row) -> float:
    known = row["facts"]
    return float(known["p"] * (known["n"] - 1) / (4 * known["m"]))


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    expected = {line["fraction"]: line["kappa_bar_theory"] for line in data.table}
    grid = [min(expected) + (max(expected) - min(expected)) * k / 100 for k in range(101)]
    smooth = [{"x": x, "y": float(theory.covariance_kappa_bar(4 * x, 1))} for x in grid]
    curve(left, smooth, "x", "y", color=BLACK, label="theory, m → ∞")
    right.axhline(1, color=BLACK, label="4m/(n−1)")
    for number, (n, (color, marker)) in enumerate(_LOOK.items()):
        shift = 0.02 * (number - 1)
        for ensemble in OF_OUTPUTS:
            limits = data.of(kind="limit", n=n, ensemble=ensemble)
            moved = [line | {"fraction": line["fraction"] + shift} for line in limits]
            filled = {"mfc": color} if ensemble == OF_OUTPUTS[0] else {}
            label = {"label": f"n = {n}"} if filled else {}
            symbols(right, moved, "fraction", "capacity_ratio", marker, color, **filled, **label)
            if filled:
                symbols(left, moved, "fraction", "kappa_bar", marker, color, **filled, **label)
        sizes = data.of(kind="size", n=n, ensemble=OF_OUTPUTS[0])
        largest = max((line["m"] for line in sizes), default=0)
        last = [line | {"fraction": line["fraction"] + shift} for line in sizes if line["m"] == largest]
        symbols(left, last, "fraction", "kappa_bar", marker, color)
    left.set(xlabel="p (n−1)/(4m)", ylabel="margin κ̄", xlim=(0, None))
    left.legend(loc="upper right")
    right.set(xlabel="p (n−1)/(4m)", ylabel="p (n−1) I(κ̄∞)/(4m)", xlim=(0, None), ylim=(0.5, 1.1))
    right.legend(loc="lower left")


OUTPUTS = Figure("outputs", runs, _data, _paint)
