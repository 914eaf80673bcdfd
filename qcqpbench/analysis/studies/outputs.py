"""Figure `outputs`: capacity against the number of outputs n, where replica symmetry predicts 4m/((n−1) I(κ̄))."""

from collections.abc import Sequence

from qcqpbench import theory
from qcqpbench.analysis.figures.base import Axes, Data, Figure, MeasuredRow, Table, group_by
from qcqpbench.analysis.figures.style import BLACK, BLUE, ORANGE, VERMILION, curve, symbols
from qcqpbench.analysis.rows import extend_row

from .margins import margin_lines
from .runs import FRACTIONS, OUTPUT_ENSEMBLES, finite_size_suite, require_rows

_LOOKS = {2: (VERMILION, "o"), 3: (BLUE, "s"), 5: (ORANGE, "^")}


def _data(rows: Sequence[MeasuredRow]) -> Data:
    """Return margins by n, and `capacity_ratio` = p (n−1) I(κ̄)/(4m), the ratio of p to its replica-symmetric value."""
    rows = [extend_row(MeasuredRow, row, {"facts": {**row.facts, "fraction": _fraction(row)}}) for row in rows]
    rows = [row for row in rows if row.facts["fraction"] in FRACTIONS and row.facts["ensemble"] in OUTPUT_ENSEMBLES]
    table: Table = []
    for (ensemble, n, fraction), group in group_by(require_rows(rows), "ensemble", "n", "fraction").items():
        predicted = float(theory.covariance_kappa_bar(4 * fraction, 1, rsb=0))
        table += margin_lines(group, ensemble=ensemble, n=n, fraction=fraction, kappa_bar_rs=predicted)
    for line in table:
        for end in ("", "_low", "_high"):
            line[f"capacity_ratio{end}"] = line["fraction"] * float(theory.margin_integral(line[f"kappa_bar{end}"]))
    return Data(table, _caption(rows))


def _fraction(row: MeasuredRow) -> float:
    parameters = row.facts
    return float(parameters["p"] * (parameters["n"] - 1) / (4 * parameters["m"]))


def _caption(rows: Sequence[MeasuredRow]) -> str:
    largest = {n: max(row.facts["m"] for row in group) for (n,), group in group_by(rows, "n").items()}
    sizes = ", ".join(f"m = {m} for n = {n}" for n, m in largest.items())
    return (
        f"Margins for n = 2, 3, 5 outputs at the same p (n−1)/(4m), where theory predicts the same margin for every n. "
        f"a: margins at the largest size ({sizes}; open symbols, means and standard errors) and their limits for m → ∞ "
        f"(filled), the {OUTPUT_ENSEMBLES[0]} ensemble, compared with replica symmetry. b: the number of patterns over "
        f"its value with replica symmetry at the limiting margin, p (n−1) I(κ̄∞)/(4m): 1 where 4m/(n−1) holds; bars "
        f"as in the figure margins. "
        f"Filled: {OUTPUT_ENSEMBLES[0]}, open: {OUTPUT_ENSEMBLES[1]}."
    )


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    curve(left, _theory_curve(data.table), "x", "y", color=BLACK, label="replica symmetry, m → ∞")
    right.axhline(1, color=BLACK, label="4m/(n−1)")
    for number, n in enumerate(_LOOKS):
        # Side by side, so that the symbols do not hide each other.
        _paint_outputs(left, right, data, n, shift=0.02 * (number - 1))
    left.set(xlabel="p (n−1)/(4m)", ylabel="margin κ̄", xlim=(0, None))
    left.legend(loc="upper right")
    right.set(xlabel="p (n−1)/(4m)", ylabel="p (n−1) I(κ̄∞)/(4m)", xlim=(0, None), ylim=(0.5, 1.1))
    right.legend(loc="lower left")


def _theory_curve(table: Table) -> Table:
    fractions = [line["fraction"] for line in table]
    low, high = min(fractions), max(fractions)
    grid = [low + (high - low) * k / 100 for k in range(101)]
    return [{"x": x, "y": float(theory.covariance_kappa_bar(4 * x, 1, rsb=0))} for x in grid]


def _paint_outputs(left: Axes, right: Axes, data: Data, n: int, shift: float) -> None:
    """Draw margins and limits of the first ensemble on the left, capacity ratios of both ensembles on the right."""
    color, marker = _LOOKS[n]
    for ensemble in OUTPUT_ENSEMBLES:
        limits = _shifted(data.where(kind="limit", n=n, ensemble=ensemble), shift)
        if ensemble == OUTPUT_ENSEMBLES[0]:
            filled = {"mfc": color, "label": f"n = {n}"}
            symbols(right, limits, "fraction", "capacity_ratio", marker, color, **filled)
            symbols(left, limits, "fraction", "kappa_bar", marker, color, **filled)
        else:
            symbols(right, limits, "fraction", "capacity_ratio", marker, color)
    sizes = data.where(kind="size", n=n, ensemble=OUTPUT_ENSEMBLES[0])
    largest = max((line["m"] for line in sizes), default=0)
    last = _shifted([line for line in sizes if line["m"] == largest], shift)
    symbols(left, last, "fraction", "kappa_bar", marker, color)


def _shifted(lines: Table, shift: float) -> Table:
    return [line | {"fraction": line["fraction"] + shift} for line in lines]


OUTPUTS = Figure("outputs", finite_size_suite, _data, _paint)
