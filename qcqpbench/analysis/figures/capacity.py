"""capacity: the margins that solvers find against load, with theory and certified bounds; how often they succeed."""

from collections.abc import Sequence

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis import metrics
from qcqpbench.catalog.status import Scope
from qcqpbench.results.store import Row
from qcqpbench.run.suite import Settings, Suite, load_suite

from .base import Axes, Data, Figure, Table, best_of_sets, by, entry, grid, parameters, set_count, spread
from .style import BLACK, GREEN, GREY, SOLVERS, curve, symbols

_THEORY, _BOUND = "theory", "certified bound"
# Margins further to the left are not shown.
_LEFT = -1.0


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


def _data(rows: Sequence[Row]) -> Data:
    """Per solver, m and load: of each pattern set the largest κ̄ of its starts; the share of all runs with κ > 0.

    Every point a solver returns counts, scaled to unit rows; a run without a point has no positive margin.
    """
    table: Table = []
    loads = [row["facts"]["load"] for row in rows]
    for load in np.geomspace(0.9 * min(loads), max(loads), 200).tolist():
        # It depends on the load alone, whatever m.
        table.append({"series": _THEORY, "load": load, "kappa_bar": float(theory.covariance_kappa_bar(2 * load, 1))})
    least = metrics.bounds(rows, metrics.best_known(rows)).least
    for (m, load), each in by(rows, "m", "load").items():
        if bounds := [least[id] for id in {row["problem_id"] for row in each} & least.keys()]:
            table.append({"series": _BOUND, "m": m, "load": load, **spread("kappa_bar", bounds)})
    # What only proves bounds has its points from others.
    local = [row for row in rows if row["scope"] is not Scope.BOUND]
    for (series, m, load), each in by(local, "series", "m", "load").items():
        positive = sum((row["margin"] or 0) > 0 for row in each)
        line = {"series": series, "m": m, "load": load, **spread("kappa_bar", best_of_sets(each))}
        line |= {"starts": len({(row["seed"], row["start"]) for row in each}), "runs": len(each)}
        table.append(line | {"positive": positive, "positive_fraction": positive / len(each)})
    return Data(table, _caption(rows, table))


def _caption(rows: Sequence[Row], table: Table) -> str:
    largest = max(rows, key=lambda row: row["facts"]["m"])
    starts = [
        f"{max(line['starts'] for line in lines)} of {name}{'' if m == largest['facts']['m'] else f' (m = {m})'}"
        for name, m, lines in _shown(table)
    ]
    limits = {row["time_limit"] for row in rows if row["time_limit"]}
    limit = f", {max(limits):g} s a run" if limits else ""
    return (
        f"a: load P̂ = p/(nm) against the margin κ̄ = κ/√(fc²): the largest over starts, mean of {set_count(rows)}, "
        f"bars: range over the sets; below {_LEFT:g} not shown. Black: theory for m → ∞, not a bound at finite m. "
        f"Grey: certified upper bounds on the largest margin of the same pattern sets. b: fraction of positive margins "
        f"among all runs, starts × sets; a run without a point has none. Random starts: {', '.join(starts)}{limit}; "
        f"gip follows many paths in each run. {parameters(largest, 'm', 'n', 'f', 'c')}."
    )


def _shown(table: Table) -> list[tuple[str, int, Table]]:
    """Of each solver the largest m that it was run at, and the lines of that."""
    found: dict[str, Table] = {}
    for line in table:
        if line["series"] not in (_THEORY, _BOUND):
            found.setdefault(line["series"], []).append(line)
    most = {name: max(line["m"] for line in found[name]) for name in sorted(found, key=[*SOLVERS, *found].index)}
    return [(name, m, [line for line in found[name] if line["m"] == m]) for name, m in most.items()]


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    curve(left, data.of(series=_THEORY), "kappa_bar", "load", color=BLACK, label=_THEORY)
    shown = _shown(data.table)
    largest = max(m for _, m, _ in shown)
    symbols(left, data.of(series=_BOUND, m=largest), "kappa_bar", "load", "|", GREY, label=_BOUND)
    for name, m, lines in shown:
        color, marker = SOLVERS.get(name, (GREEN, "P"))
        label = name if m == largest else f"{name}, m = {m}"
        symbols(left, [line for line in lines if line["sets"]], "kappa_bar", "load", marker, color, label=label)
        curve(right, lines, "load", "positive_fraction", f"{marker}-", color=color, mfc="none")
    left.axvline(0, color=GREY, linewidth=0.5, zorder=0)
    left.set(
        xlabel="margin κ̄",
        ylabel="load P̂",
        xlim=(_LEFT, 1.05 * max(line["kappa_bar"] for line in data.of(series=_THEORY))),
    )
    left.set_ylim(bottom=0)
    left.legend(loc="upper right")
    right.set(xlabel="load P̂", ylabel="fraction of positive margins", ylim=(-0.03, 1.03))
    right.set_xlim(left=0)


CAPACITY = Figure("capacity", _suite, _data, _paint)
