"""Figure `overlap`: w_1·w_2 of trained weights against load, in theory 0 for large m."""

import math
import statistics
from collections.abc import Sequence

from qcqpbench.problem.maxmargin import unit_rows
from qcqpbench.run.suite import Settings, Suite

from .base import (
    Axes,
    Data,
    Figure,
    MeasuredRow,
    Table,
    count_distinct,
    count_pattern_sets,
    describe_parameters,
    entry,
    grid,
    group_by,
    point_of,
    with_points,
)
from .style import BLACK, PALE, SOLVERS, curve, symbols


def _suite(quick: bool) -> Suite:
    loads = [0.5, 1, 2] if quick else [0.25, 0.5, 1, 1.5, 2, 2.5, 3]
    problems = grid("covariance_perceptron", m=50, n=2, f=0.1, c=0.5, load=loads, seed=range(2 if quick else 5))
    ipopt = entry("ipopt[formulation=epigraph]", Settings(starts=3 if quick else 10, time_limit=60))
    return Suite("overlap", "", tuple(problems), (ipopt, entry("gip", Settings(time_limit=60))))


def _data(rows: Sequence[MeasuredRow]) -> Data:
    """Return the overlap R_12 = w_1·w_2 of each run, and its mean and standard error at each load.

    Only pattern sets count as independent, because starts on the same patterns often reach the same point.
    """
    table: Table = []
    rows = with_points(rows)
    for (series, load), group in group_by(rows, "series", "load").items():
        name = {"series": series, "load": load}
        overlaps = [[_overlap(row) for row in one_set] for one_set in group_by(group, "seed").values()]
        table += [{"kind": "run", **name, "overlap": overlap} for one_set in overlaps for overlap in one_set]
        means = [statistics.fmean(one_set) for one_set in overlaps]
        mean = statistics.fmean(means)
        error = statistics.stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0
        bars = {"overlap_low": mean - error, "overlap_high": mean + error}
        table.append({"kind": "mean", **name, "overlap": mean, **bars, "sets": len(means)})
    m = rows[0].facts["m"]
    table.append({"kind": "theory", "overlap": 0.0, "overlap_low": -1 / math.sqrt(m), "overlap_high": 1 / math.sqrt(m)})
    return Data(table, _caption(rows))


def _caption(rows: Sequence[MeasuredRow]) -> str:
    solvers = [
        f"{series} from {count_distinct((row.start for row in group), 'start')}"
        for (series,), group in group_by(rows, "series").items()
    ]
    return (
        f"Overlap R₁₂ = w₁·w₂ of the two weight vectors after training against the load P̂ = p/(nm). Symbols: mean of "
        f"{count_pattern_sets(rows)}, bars: its standard error over the sets; faint: every run. Weights found by "
        f"{' and '.join(solvers)}, drawn side by side. Black line: theory, R₁₂ → 0 as m → ∞. Grey: ±1/√m, the standard "
        f"deviation of R₁₂ for weights in random directions. "
        f"{describe_parameters(rows[0], 'm', 'n', 'f', 'c')}."
    )


def _overlap(row: MeasuredRow) -> float:
    first, second = unit_rows(point_of(row))
    return float(first @ second)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    (panel,) = axes
    (theory,) = data.where(kind="theory")
    panel.axhspan(theory["overlap_low"], theory["overlap_high"], color=PALE, linewidth=0, zorder=0)
    panel.axhline(theory["overlap"], color=BLACK, label="theory, m → ∞", zorder=1)
    for name, side in (("IPOPT epigraph", -1), ("gip", 1)):
        color, marker = SOLVERS[name]
        lines = [line | {"load": line["load"] + side * 0.02} for line in data.where(series=name)]
        runs, means = ([line for line in lines if line["kind"] == kind] for kind in ("run", "mean"))
        curve(panel, runs, "load", "overlap", marker, color=color, alpha=0.3, markersize=2.5, markeredgewidth=0)
        symbols(panel, means, "load", "overlap", marker, color, label=name)
    reach = 1.4 * max(abs(line[name]) for line in data.table for name in ("overlap", "overlap_high") if name in line)
    panel.set(xlabel="load P̂", ylabel="overlap R₁₂", ylim=(-reach, reach))
    panel.set_xlim(left=0)
    panel.legend(loc="upper right", ncols=3)


OVERLAP = Figure("overlap", _suite, _data, _paint, panels=1)
