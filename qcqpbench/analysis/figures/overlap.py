"""overlap: w_1·w_2 of trained weights against load; theory says 0 for large m."""

import math
import statistics
from collections.abc import Sequence

from qcqpbench.problem.maxmargin import unit_rows
from qcqpbench.results.store import Row
from qcqpbench.run.suite import Settings, Suite

from .base import Axes, Data, Figure, Table, by, counted, entry, grid, parameters, set_count
from .style import BLACK, PALE, SOLVERS, curve, symbols


def _suite(quick: bool) -> Suite:
    loads = [0.5, 1, 2] if quick else [0.25, 0.5, 1, 1.5, 2, 2.5, 3]
    problems = grid("covariance_perceptron", m=50, n=2, f=0.1, c=0.5, load=loads, seed=range(2 if quick else 5))
    ipopt = entry("ipopt[formulation=epigraph]", Settings(starts=3 if quick else 10, time_limit=60))
    return Suite("overlap", "", tuple(problems), (ipopt, entry("gip", Settings(time_limit=60))))


def _data(rows: Sequence[Row]) -> Data:
    """R_12 of each run; the mean at each load, and its standard error.

    Starts on the same patterns often end in the same point, so the sets alone count as independent.
    """
    table: Table = []
    rows = [row for row in rows if row["point"] is not None]
    for (series, load), each in by(rows, "series", "load").items():
        name = {"series": series, "load": load}
        sets = [[_overlap(row) for row in one] for one in by(each, "seed").values()]
        table += [{"kind": "run", **name, "overlap": overlap} for one in sets for overlap in one]
        means = [statistics.fmean(one) for one in sets]
        mean = statistics.fmean(means)
        error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0
        bars = {"overlap_low": mean - error, "overlap_high": mean + error}
        table.append({"kind": "mean", **name, "overlap": mean, **bars, "sets": len(means)})
    m = rows[0]["facts"]["m"]
    table.append({"kind": "theory", "overlap": 0.0, "overlap_low": -1 / math.sqrt(m), "overlap_high": 1 / math.sqrt(m)})
    found = [
        f"{series} from {counted((row['start'] for row in each), 'start')}"
        for (series,), each in by(rows, "series").items()
    ]
    caption = (
        f"Overlap R₁₂ = w₁·w₂ of the two weight vectors after training against the load P̂ = p/(nm). Symbols: mean of "
        f"{set_count(rows)}, bars: its standard error over the sets; faint: every run. Weights found by "
        f"{' and '.join(found)}, drawn side by side. Black line: theory, R₁₂ → 0 as m → ∞. Grey: ±1/√m, the standard "
        f"deviation of R₁₂ for weights in random directions. "
        f"{parameters(rows[0], 'm', 'n', 'f', 'c')}."
    )
    return Data(table, caption)


def _overlap(row: Row) -> float:
    first, second = unit_rows(row["point"])
    return float(first @ second)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    (panel,) = axes
    (theory,) = data.of(kind="theory")
    panel.axhspan(theory["overlap_low"], theory["overlap_high"], color=PALE, linewidth=0, zorder=0)
    panel.axhline(theory["overlap"], color=BLACK, label="theory, m → ∞", zorder=1)
    for name, side in (("IPOPT epigraph", -1), ("gip", 1)):
        color, marker = SOLVERS[name]
        lines = [line | {"load": line["load"] + side * 0.02} for line in data.of(series=name)]
        runs, means = ([line for line in lines if line["kind"] == kind] for kind in ("run", "mean"))
        curve(panel, runs, "load", "overlap", marker, color=color, alpha=0.3, markersize=2.5, markeredgewidth=0)
        symbols(panel, means, "load", "overlap", marker, color, label=name)
    reach = 1.4 * max(abs(line[name]) for line in data.table for name in ("overlap", "overlap_high") if name in line)
    panel.set(xlabel="load P̂", ylabel="overlap R₁₂", ylim=(-reach, reach))
    panel.set_xlim(left=0)
    panel.legend(loc="upper right", ncols=3)


OVERLAP = Figure("overlap", _suite, _data, _paint, panels=1)
