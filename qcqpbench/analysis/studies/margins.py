"""margins: the largest margins found at every size, ensemble and load, and where they tend to as m → ∞."""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from qcqpbench import theory
from qcqpbench.analysis import metrics
from qcqpbench.analysis.figures.base import Axes, Data, Figure, Table, by, counted, spread
from qcqpbench.analysis.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, curve, symbols
from qcqpbench.results.store import Row

from .extrapolation import limit, means
from .optima import HYPERSTATIC
from .runs import ENSEMBLES, nominal, runs, there

LOOK = {"paper": (VERMILION, "o"), "psd": (BLUE, "s"), "gaussian": (GREEN, "D")}
_SHOWN = {0.5: PURPLE, 1.0: BLUE, 2.0: ORANGE, 3.0: SKY}
# Two runs found the same margin.
_SAME = 1e-5


def lines(rows: Sequence[Row], **name: Any) -> Table:
    """Lines of a table for problems that differ in m and seed: the largest κ̄ at every size, and their limit.

    name    what they have in common, kappa_bar_theory among it. Where p is rounded, κ̄ is moved by what that makes in
            theory.
    agree   of the pairs of runs of gip on the same patterns, the share that found the same margin
    missed  by how much a run of gip is below the best one on the same patterns, on average, where there are several

    No limit where margins are negative that a solver could have avoided: symmetric patterns with ones on the diagonal
    have a margin of 0 at (e_a ± e_b)/√2.
    """
    values: dict[int, list[float]] = {}
    agree: dict[int, list[bool]] = {}
    missed: dict[int, list[float]] = {}
    for (m, _), each in by((row for row in rows if row["kappa_bar"] is not None), "m", "problem_id").items():
        best = max(row["kappa_bar"] for row in each)
        values.setdefault(m, []).append(best + name["kappa_bar_theory"] - each[0]["kappa_bar_theory"])
        repeated = [row["kappa_bar"] for row in each if row["series"] == "gip"]
        if len(repeated) > 1:
            agree.setdefault(m, []).extend(abs(a - b) < _SAME for a, b in combinations(repeated, 2))
            missed.setdefault(m, []).extend(max(repeated) - value for value in repeated)
    sizes = means(values)
    table: Table = []
    for size in sizes:
        ends = {"kappa_bar_low": size.value - size.error, "kappa_bar_high": size.value + size.error}
        line = {"kind": "size", **name, "m": size.m, "sets": size.sets, "kappa_bar": size.value, **ends}
        several = {"agree": fmean(agree[size.m]), "missed": fmean(missed[size.m])} if size.m in agree else {}
        table.append(line | several)
    avoidable = name["ensemble"] != "gaussian" and any(size.value <= 0 for size in sizes)
    if not avoidable and (end := limit(sizes)) is not None:
        ends = {"kappa_bar_low": end.low, "kappa_bar_high": end.high}
        rest = {"error": end.error, "slope": end.slope, "mismatch": end.mismatch}
        table.append({"kind": "limit", **name, "kappa_bar": end.value, **ends, **rest})
    return table


def _data(rows: Sequence[Row]) -> Data:
    rows = there([row for row in rows if row["facts"]["n"] == 2])
    table: Table = []
    least = metrics.bounds(rows, metrics.best_known(rows)).least
    for (ensemble, load), each in by(map(nominal, rows), "ensemble", "load").items():
        expected = float(theory.covariance_kappa_bar(2 * load, 1))
        name = {"ensemble": ensemble, "load": load, "kappa_bar_theory": expected}
        table += lines(each, **name)
        for (m,), some in by(each, "m").items():
            if found := [least[id] for id in {row["problem_id"] for row in some} & least.keys()]:
                table.append({"kind": "bound", **name, "m": m, **spread("kappa_bar", found)})
    for line in table:
        line["difference"] = line["kappa_bar"] - line["kappa_bar_theory"]
        for end in ("low", "high"):
            line[f"difference_{end}"] = line[f"kappa_bar_{end}"] - line["kappa_bar_theory"]
    return Data(table, _caption(rows, table))


def _caption(rows: Sequence[Row], table: Table) -> str:
    sets = [
        f"{counted((row['facts']['seed'] for row in each), 'set')} at m = {m}" for (m,), each in by(rows, "m").items()
    ]
    largest = _bounded(table)
    return (
        f"Largest margins κ̄ that gip finds, n = 2: {', '.join(sets)}. a: the paper's ensemble, means and standard "
        f"errors against m^(−2/3), with fits κ̄∞ + a m^(−2/3); crosses: theory for m → ∞. b: the limits κ̄∞ less "
        f"theory; bars: with the exponents 1/2 and 1, without the smallest size, and errors. Grey: certified upper "
        f"bounds at m = {largest}. Dotted: the load P̂ = {HYPERSTATIC:.2f} from which theory has more stabilities at "
        f"the margin than W has directions."
    )


def _bounded(table: Table) -> int:
    """The size with bounds at the most loads, the largest of those."""
    sizes = [line["m"] for line in table if line["kind"] == "bound" and line["ensemble"] == "paper"]
    return max(sizes, key=lambda m: (sizes.count(m), m), default=0)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    for load, color in _SHOWN.items():
        sizes = [line | {"x": line["m"] ** (-2 / 3)} for line in data.of(kind="size", ensemble="paper", load=load)]
        if not sizes:
            continue
        symbols(left, sizes, "x", "kappa_bar", "o", color, label=f"P̂ = {load:g}")
        left.plot(0, sizes[0]["kappa_bar_theory"], "x", color=BLACK, clip_on=False, zorder=5)
        for end in data.of(kind="limit", ensemble="paper", load=load):
            fit = [{"x": x, "y": end["kappa_bar"] + end["slope"] * x} for x in (0.0, 1.1 * sizes[0]["x"])]
            curve(left, fit, "x", "y", color=color, linewidth=0.8)
    left.set(xlabel="m^(−2/3)", ylabel="margin κ̄", xlim=(0, None))
    left.legend(loc=(0.45, 0.3), ncols=2)
    right.axhline(0, color=BLACK, label="theory, m → ∞", zorder=1)
    largest = _bounded(data.table)
    bounds = data.of(kind="bound", ensemble="paper", m=largest)
    symbols(right, bounds, "load", "difference", "_", GREY, label=f"bound, m = {largest}")
    for number, ensemble in enumerate(ENSEMBLES):
        color, marker = LOOK[ensemble]
        limits = [
            line | {"load": line["load"] + 0.05 * (number - 1)} for line in data.of(kind="limit", ensemble=ensemble)
        ]
        symbols(right, limits, "load", "difference", marker, color, label=ensemble)
    right.axvline(HYPERSTATIC, color=GREY, linestyle=":", linewidth=0.8, zorder=0)
    right.set(xlabel="load P̂", ylabel="κ̄∞ − theory", xlim=(0, None), ylim=(-0.3, 0.4))
    right.legend(loc="lower right", ncols=2)


MARGINS = Figure("margins", runs, _data, _paint)
