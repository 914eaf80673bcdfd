"""Figure `outputs`: margins for several numbers of outputs n, which theory predicts to depend on p(n−1)/(2m) only."""

from collections.abc import Sequence

from qcqpbench.analysis.figures.base import Axes, Data, Figure, MeasuredRow, Table, group_by
from qcqpbench.analysis.figures.style import BLACK, BLUE, ORANGE, VERMILION, curve, symbols
from qcqpbench.analysis.rows import REPLICA_SYMMETRY, extend_row

from .margins import margin_lines, predictions, theory_curves, with_difference
from .measurements.runs import FRACTIONS, OUTPUT_ENSEMBLES, finite_size_suite, require_rows

_LOOKS = {2: (VERMILION, "o"), 3: (BLUE, "s"), 5: (ORANGE, "^")}
_X_LABEL = "α = p(n−1)/(2m)"


def _data(rows: Sequence[MeasuredRow]) -> Data:
    """Return margins by n and `alpha` = p(n−1)/(2m), compared with theory."""
    alphas = [2 * fraction for fraction in FRACTIONS]
    rows = [extend_row(MeasuredRow, row, {"facts": {**row.facts, "alpha": _alpha(row)}}) for row in rows]
    rows = [row for row in rows if row.facts["alpha"] in alphas and row.facts["ensemble"] in OUTPUT_ENSEMBLES]
    table: Table = []
    for (ensemble, n, alpha), group in group_by(require_rows(rows), "ensemble", "n", "alpha").items():
        table += margin_lines(group, ensemble=ensemble, n=n, alpha=alpha, **predictions(alpha))
    return Data(table, _caption(rows))


def _alpha(row: MeasuredRow) -> float:
    return float(row.facts["p"] * (row.facts["n"] - 1) / (2 * row.facts["m"]))


def _caption(rows: Sequence[MeasuredRow]) -> str:
    largest = {n: max(row.facts["m"] for row in group) for (n,), group in group_by(rows, "n").items()}
    sizes = ", ".join(f"m = {m} for n = {n}" for n, m in largest.items())
    return (
        f"Margins for n = 2, 3, 5 outputs at the same number α of stabilities per weight, where theory predicts the "
        f"same margin for every n. a: margins at the largest size ({sizes}; open symbols, means and standard errors) "
        f"and their limits for m → ∞ (filled), the {OUTPUT_ENSEMBLES[0]} ensemble. Black: full RSB, dashed: replica "
        f"symmetry. b: the limits minus full RSB, bars as in the figure margins. Dashed: replica symmetry minus full "
        f"RSB. Filled: {OUTPUT_ENSEMBLES[0]}, open: {OUTPUT_ENSEMBLES[1]}."
    )


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    alphas = [line["alpha"] for line in data.table]
    curves = theory_curves(min(alphas), max(alphas))
    curve(left, curves, "x", "kappa_bar_theory", color=BLACK, label="full RSB")
    curve(left, curves, "x", "kappa_bar_rs", "--", color=BLACK, label=REPLICA_SYMMETRY)
    right.axhline(0, color=BLACK, label="full RSB", zorder=1)
    curve(right, curves, "x", "difference", "--", color=BLACK, label=REPLICA_SYMMETRY)
    for number, n in enumerate(_LOOKS):
        # Side by side, so that the symbols do not hide each other.
        _paint_outputs(left, right, data, n, shift=0.04 * (number - 1))
    left.set(xlabel=_X_LABEL, ylabel="margin κ̄", xlim=(0, None))
    left.legend(loc="upper right")
    right.set(xlabel=_X_LABEL, ylabel="κ̄∞ − full RSB", xlim=(0, None), ylim=(-0.15, 0.15))
    right.legend(loc="lower left", ncols=2)


def _paint_outputs(left: Axes, right: Axes, data: Data, n: int, shift: float) -> None:
    """Draw margins and limits of the first ensemble on the left, limits minus theory of both ensembles on the right."""
    color, marker = _LOOKS[n]
    for number, ensemble in enumerate(OUTPUT_ENSEMBLES):
        limits = _shifted(with_difference(data.where(kind="limit", n=n, ensemble=ensemble)), shift)
        if number == 0:
            filled = {"mfc": color, "label": f"n = {n}"}
            symbols(right, limits, "alpha", "difference", marker, color, **filled)
            symbols(left, limits, "alpha", "kappa_bar", marker, color, **filled)
        else:
            symbols(right, limits, "alpha", "difference", marker, color)
    sizes = data.where(kind="size", n=n, ensemble=OUTPUT_ENSEMBLES[0])
    largest = max((line["m"] for line in sizes), default=0)
    last = _shifted([line for line in sizes if line["m"] == largest], shift)
    symbols(left, last, "alpha", "kappa_bar", marker, color)


def _shifted(lines: Table, shift: float) -> Table:
    return [line | {"alpha": line["alpha"] + shift} for line in lines]


OUTPUTS = Figure("outputs", finite_size_suite, _data, _paint)
