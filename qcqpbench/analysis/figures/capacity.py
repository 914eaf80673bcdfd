"""Figure `capacity`: margins found by solvers against load, theories, certified upper bounds, and success rates."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis import metrics
from qcqpbench.analysis.rows import FULL_RSB, REPLICA_SYMMETRY
from qcqpbench.catalog.status import Scope
from qcqpbench.run.suite import Settings, Suite
from qcqpbench.run.suite_file import load_suite

from .base import (
    Axes,
    Data,
    Figure,
    MeasuredRow,
    Table,
    best_of_sets,
    count_pattern_sets,
    describe_parameters,
    entry,
    grid,
    group_by,
    mean_and_range,
)
from .style import BLACK, GREEN, GREY, SOLVERS, curve, symbols

_BOUND = "certified bound"
# The paper's figure has the second line only.
_THEORIES: dict[str, Literal[0, "full"]] = {FULL_RSB: "full", REPLICA_SYMMETRY: 0}
# Smaller margins are outside the panel.
_MIN_KAPPA_BAR = -1.0


def _suite(quick: bool) -> Suite:
    if not quick:
        return load_suite("capacity")
    problems = grid("covariance_perceptron", m=20, n=2, f=0.2, c=0.5, load=[0.5, 1, 2, 3], seed=range(2))
    starts = {
        "gip": 1,
        "certificate": 1,
        "ipopt[formulation=epigraph]": 2,
        "ipopt[formulation=min_norm]": 2,
        "soft_margin": 2,
        "qcqp[improve=admm,formulation=min_norm]": 1,
    }
    entries = (entry(spec, Settings(starts=count, time_limit=5)) for spec, count in starts.items())
    return Suite("capacity", "", tuple(problems), tuple(entries))


def _data(rows: Sequence[MeasuredRow]) -> Data:
    """Return theories, upper bounds, and by solver, m and load the largest κ̄ and the fraction of runs with κ > 0.

    Every returned point counts, with rows scaled to unit length. Runs without a point count as κ ≤ 0.
    """
    table = [*_theory_lines(rows), *_bound_lines(rows)]
    # Solvers that prove bounds round their points from a relaxation and do not compete.
    local = [row for row in rows if row.scope is not Scope.BOUND]
    for (series, m, load), group in group_by(local, "series", "m", "load").items():
        positive = sum((row.margin or 0) > 0 for row in group)
        line = {"series": series, "m": m, "load": load, **mean_and_range("kappa_bar", best_of_sets(group))}
        line |= {"starts": len({(row.start_seed, row.start) for row in group}), "runs": len(group)}
        table.append(line | {"positive": positive, "positive_fraction": positive / len(group)})
    return Data(table, _caption(rows, table))


def _theory_lines(rows: Sequence[MeasuredRow]) -> Table:
    loads = [row.facts["load"] for row in rows]
    grid_loads = np.geomspace(0.9 * min(loads), max(loads), 200).tolist()
    # The prediction depends on the load alone, so p = 2·load and m = 1 stand for every size.
    return [
        {"series": series, "load": load, "kappa_bar": float(theory.covariance_kappa_bar(2 * load, 1, rsb=rsb))}
        for series, rsb in _THEORIES.items()
        for load in grid_loads
    ]


def _bound_lines(rows: Sequence[MeasuredRow]) -> Table:
    least = metrics.bounds(rows, metrics.best_known(rows)).least
    table: Table = []
    for (m, load), group in group_by(rows, "m", "load").items():
        if bounds := [least[id] for id in {row.problem_id for row in group} & least.keys()]:
            table.append({"series": _BOUND, "m": m, "load": load, **mean_and_range("kappa_bar", bounds)})
    return table


def _caption(rows: Sequence[MeasuredRow], table: Table) -> str:
    largest = max(rows, key=lambda row: row.facts["m"])
    starts = [
        f"{max(line['starts'] for line in lines)} of {name}{'' if m == largest.facts['m'] else f' (m = {m})'}"
        for name, m, lines in _shown(table)
    ]
    limits = {row.time_limit for row in rows if math.isfinite(row.time_limit)}
    limit = f", {max(limits):g} s per run" if limits else ""
    return (
        f"a: load P̂ = p/(nm) against the margin κ̄ = κ/√(fc²), the largest over starts; symbols: mean of "
        f"{count_pattern_sets(rows)}, bars: range over the sets; margins below {_MIN_KAPPA_BAR:g} are not shown. "
        f"Black: theory for m → ∞, not a bound at finite m; dashed: full replica-symmetry breaking (RSB), solid: "
        f"replica symmetry, the line of the paper. Grey: certified upper bounds on the margins of the same pattern "
        f"sets. b: fraction of all runs, starts × sets, with a positive margin; a run without a point has none. Random "
        f"starts: {', '.join(starts)}{limit}; gip follows many paths in each run. "
        f"{describe_parameters(largest, 'm', 'n', 'f', 'c')}."
    )


def _shown(table: Table) -> list[tuple[str, int, Table]]:
    """Return, for each solver, its name, the largest m it was run at, and the lines for that m."""
    lines: dict[str, Table] = {}
    for line in table:
        if line["series"] not in (*_THEORIES, _BOUND):
            lines.setdefault(line["series"], []).append(line)
    largest = {name: max(line["m"] for line in lines[name]) for name in sorted(lines, key=[*SOLVERS, *lines].index)}
    return [(name, m, [line for line in lines[name] if line["m"] == m]) for name, m in largest.items()]


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    for series, style in ((FULL_RSB, "--"), (REPLICA_SYMMETRY, "-")):
        curve(left, data.where(series=series), "kappa_bar", "load", style, color=BLACK, label=series)
    shown = _shown(data.table)
    largest = max(m for _, m, _ in shown)
    symbols(left, data.where(series=_BOUND, m=largest), "kappa_bar", "load", "|", GREY, label=_BOUND)
    for name, m, lines in shown:
        color, marker = SOLVERS.get(name, (GREEN, "P"))
        label = name if m == largest else f"{name}, m = {m}"
        symbols(left, [line for line in lines if line["sets"]], "kappa_bar", "load", marker, color, label=label)
        curve(right, lines, "load", "positive_fraction", f"{marker}-", color=color, mfc="none")
    left.axvline(0, color=GREY, linewidth=0.5, zorder=0)
    left.set(
        xlabel="margin κ̄",
        ylabel="load P̂",
        xlim=(_MIN_KAPPA_BAR, 1.05 * max(line["kappa_bar"] for line in data.where(series=REPLICA_SYMMETRY))),
    )
    left.set_ylim(bottom=0)
    left.legend(loc="upper right")
    right.set(xlabel="load P̂", ylabel="fraction of positive margins", ylim=(-0.03, 1.03))
    right.set_xlim(left=0)


CAPACITY = Figure("capacity", _suite, _data, _paint)
