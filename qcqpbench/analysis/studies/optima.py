"""active, gaps, overlaps: what the optima look like that were found, against what replica symmetry says of them."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from qcqpbench import theory
from qcqpbench.analysis.figures.base import ONE_PATH, Axes, Data, Figure, Table, by, counted, spread
from qcqpbench.analysis.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, curve, symbols
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.results.store import Row
from qcqpbench.run.job import load_problem

from .runs import ENSEMBLES, nominal, runs, there

Array = NDArray[np.float64]

# In units of √(fc²). gip leaves active stabilities 10⁻⁹ to 10⁻⁵ above the margin; the next ones are 10⁻⁴ and more.
_ACTIVE = 1e-4
# Larger ones take minutes to make again.
_LARGEST = 200
_COLORS = (PURPLE, BLUE, GREEN, ORANGE, VERMILION, SKY)
_BINS = np.geomspace(1e-3, 10, 17)
# Of the gaps at jamming (Charbonneau, Kurchan, Parisi, Urbani, Zamponi 2014).
_JAMMING = 0.41269


def theory_active(load: float) -> float:
    """The active stabilities by replica symmetry, p Φ(κ̄), over the 2m directions of W, for n = 2."""
    return load * float(ndtr(theory.covariance_kappa_bar(2 * load, 1)))


# The load at which it is 1. Generic stabilities that are active are no more than W has directions, but for one: beyond,
# replica symmetry contradicts itself.
HYPERSTATIC = 1.2507435529613828


@cache
def _gaps(problem: str, point: bytes) -> Array:
    """The stabilities less the margin in units of √(fc²), in increasing order."""
    task = load_problem(problem)
    assert isinstance(task, MaxMargin)
    stabilities = task.stabilities(unit_rows(np.frombuffer(point).reshape(task.n, task.m))).ravel()
    return np.sort(stabilities - stabilities.min()) / task.scale


def _best(rows: Iterable[Row]) -> list[Row]:
    """Of each problem the row with the largest margin, with its gaps and the number of active stabilities.

    Without points that are no optima to full precision, and those such as (e_a ± e_b)/√2, where all stabilities of
    symmetric patterns are 0.
    """
    kept = [row for row in rows if row["facts"]["n"] == 2 and row["facts"]["m"] <= _LARGEST]
    kept = [nominal(row) for row in kept if row["point"] is not None]
    found = [max(each, key=lambda row: row["margin"]) for each in by(kept, "problem_id").values()]
    found = [row for row in found if row["termination"] == str(Termination.LOCALLY_OPTIMAL)]
    for row in found:
        gaps = _gaps(row["problem"], np.asarray(row["point"], np.float64).tobytes())
        row |= {"gaps": gaps, "active": int((gaps < _ACTIVE).sum())}
    return there([row for row in found if row["active"] <= 2 * row["facts"]["m"]])


def _active(rows: Sequence[Row]) -> Data:
    table: Table = []
    rows = _best(rows)
    for (ensemble, m, load), each in by(rows, "ensemble", "m", "load").items():
        shares = spread("share", [row["active"] / (2 * m - 1) for row in each])
        mean = {"active": float(np.mean([row["active"] for row in each])), "free": 2 * m - 2}
        table.append({"ensemble": ensemble, "m": m, "load": load, **mean, **shares})
    for load in np.linspace(0.02, max(line["load"] for line in table), 100).tolist():
        table.append({"ensemble": "theory", "load": load, "share": theory_active(load)})
    caption = (
        f"Active stabilities, those within {_ACTIVE:g} √(fc²) of the margin, at the best point found, over 2m − 1, the "
        f"most that generic ones can be: W has 2m − 2 free directions. Means over pattern sets, bars: their range. "
        f"Black: replica symmetry, p Φ(κ̄), which is more than 2m beyond P̂ = {HYPERSTATIC:.2f} (dotted). a: the paper's "
        f"ensemble, by size. b: three ensembles, m = {_common(table)}."
    )
    return Data(table, caption)


def _common(table: Table) -> int:
    """The largest size that all ensembles that were run have."""
    sizes = [{line["m"] for line in table if line["ensemble"] == ensemble} for ensemble in ENSEMBLES]
    return max(set.intersection(*filter(None, sizes)), default=0)


def _paint_active(axes: Sequence[Axes], data: Data) -> None:
    m_common = _common(data.table)
    sizes = sorted({line["m"] for line in data.of(ensemble="paper")})
    parts = [[(f"m = {m}", data.of(ensemble="paper", m=m)) for m in sizes]]
    parts.append([(ensemble, data.of(ensemble=ensemble, m=m_common)) for ensemble in ENSEMBLES])
    for panel, part in zip(axes, parts, strict=True):
        curve(panel, data.of(ensemble="theory"), "load", "share", color=BLACK, label="replica symmetry")
        panel.axhline(1, color=GREY, linewidth=0.8)
        panel.axvline(HYPERSTATIC, color=GREY, linestyle=":", linewidth=0.8, zorder=0)
        for (label, lines), color, marker in zip(part, _COLORS, "osD^v", strict=False):
            symbols(panel, lines, "load", "share", marker, color, label=label)
        panel.set(xlabel="load P̂", ylabel="active / (2m − 1)", xlim=(0, None), ylim=(0, 1.6))
        panel.legend(loc="lower right")


ACTIVE = Figure("active", runs, _active, _paint_active)


def _density(rows: Sequence[Row]) -> Table:
    """The density of the gaps of the patterns that are not active, over those of all pattern sets."""
    pooled = np.concatenate([row["gaps"] for row in rows])
    counts, _ = np.histogram(pooled, _BINS)
    density = counts / np.diff(_BINS) / len(pooled)
    middle = np.sqrt(_BINS[1:] * _BINS[:-1])
    return [
        {"gap": x, "density": y, "count": int(count)}
        for x, y, count in zip(middle.tolist(), density.tolist(), counts, strict=True)
        if count
    ]


def _gaps_data(rows: Sequence[Row]) -> Data:
    table: Table = []
    rows = _best(rows)
    for (ensemble, m, load), each in by(rows, "ensemble", "m", "load").items():
        expected = float(theory.covariance_kappa_bar(2 * load, 1))
        for line in _density(each):
            rs = float(np.exp(-((expected + line["gap"]) ** 2) / 2) / np.sqrt(2 * np.pi))
            table.append({"ensemble": ensemble, "m": m, "load": load, **line, "density_theory": rs})
    caption = (
        f"Density of the gaps h between the stabilities and the margin, in units of √(fc²), at the best points found; "
        f"over all stabilities, but without the active ones; the paper's ensemble. a: m = "
        f"{max(line['m'] for line in table)}, several loads; lines: replica symmetry, φ(κ̄ + h), finite as h → 0. b: "
        f"several sizes; dashed: h^(−{_JAMMING:.2f}), the law at jamming, drawn through the gaps 0.01 to 0.3 of the "
        f"largest."
    )
    return Data(table, caption)


def _paint_gaps(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    lines = there(data.of(ensemble="paper"))
    largest = max(line["m"] for line in lines)
    loads = sorted({line["load"] for line in lines if line["m"] == largest and 0.5 <= line["load"] <= 3})
    shown = [load for load in loads if load in (0.5, 1, 2, 3)] or loads
    for load, color in zip(shown, _COLORS, strict=False):
        some = data.of(ensemble="paper", m=largest, load=load)
        curve(left, some, "gap", "density", "o", color=color, mfc="none", label=f"P̂ = {load:g}")
        curve(left, some, "gap", "density_theory", color=color, linewidth=0.8)
    load = shown[-1]
    for m, color in zip(sorted({line["m"] for line in lines}), _COLORS, strict=False):
        curve(right, data.of(ensemble="paper", m=m, load=load), "gap", "density", "o-", color=color, mfc="none",
              linewidth=0.8, label=f"m = {m}")  # fmt: skip
    middle = [line for line in data.of(ensemble="paper", m=largest, load=load) if 0.01 < line["gap"] < 0.3]
    if middle:
        factor = float(np.exp(np.mean([np.log(line["density"]) + _JAMMING * np.log(line["gap"]) for line in middle])))
        guide = [{"gap": x, "density": factor * x**-_JAMMING} for x in (1e-3, 1.0)]
        curve(right, guide, "gap", "density", "--", color=BLACK, label=f"h^(−{_JAMMING:.2f})")
    for panel in axes:
        panel.set(xlabel="gap h", ylabel="density", xscale="log", yscale="log", ylim=(0.02, 5))
        panel.legend(loc="upper right")
    right.set_title(f"b   P̂ = {load:g}")


GAPS = Figure("gaps", runs, _gaps_data, _paint_gaps)


def overlap(first: Array, second: Array, symmetric: bool) -> float:
    """How alike two points are: the mean |w_i·w'_i|, for symmetric patterns and n = 2 the larger of both orders."""
    between = np.abs(unit_rows(first) @ unit_rows(second).T)
    n = len(between)
    orders = permutations(range(n)) if symmetric and n == 2 else [tuple(range(n))]
    return max(float(between[range(n), order].mean()) for order in orders)


def _overlaps_data(rows: Sequence[Row]) -> Data:
    table: Table = []
    paths = there([row for row in rows if row["series"] == ONE_PATH and row["point"] is not None])
    for (ensemble, m, load), each in by(map(nominal, paths), "ensemble", "m", "load").items():
        name = {"ensemble": ensemble, "m": m, "load": load}
        found = [
            overlap(first["point"], second["point"], ensemble != "gaussian")
            for some in by(each, "problem_id").values()
            for first, second in combinations(some, 2)
        ]
        table += [{"kind": "pair", **name, "overlap": value} for value in sorted(found)]
        mean = {"overlap": float(np.mean(found)), "same": float(np.mean(np.array(found) > 0.999)), "pairs": len(found)}
        table.append({"kind": "mean", **name, **mean, "between_random": 2 / np.sqrt(2 * np.pi * m)})
    caption = (
        f"Overlap q between optima on the same patterns, found independently by gip with a single path each: the mean "
        f"of |w₁·w₁′| and |w₂·w₂′|, for symmetric patterns in the better order. "
        f"{counted((row['start'] for row in paths), 'path')} on each of "
        f"{counted((row['facts']['seed'] for row in paths), 'pattern set')}. a: cumulative distribution, paper's "
        f"ensemble, m = {_largest_paper(table)}; one step at q = 1 would be a single optimum. b: the mean "
        f"against the load."
    )
    return Data(table, caption)


def _largest_paper(table: Table) -> int:
    return max((line["m"] for line in table if line["ensemble"] == "paper"), default=0)


def _paint_overlaps(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    largest = _largest_paper(data.table)
    means = data.of(kind="mean", ensemble="paper")
    for line, color in zip([line for line in means if line["m"] == largest], _COLORS, strict=False):
        pairs = data.of(kind="pair", ensemble="paper", m=largest, load=line["load"])
        steps = [{"q": pair["overlap"], "share": (k + 1) / len(pairs)} for k, pair in enumerate(pairs)]
        curve(left, steps, "q", "share", drawstyle="steps-post", color=color, label=f"P̂ = {line['load']:g}")
    left.set(xlabel="overlap q", ylabel="share of pairs ≤ q", xlim=(0, 1.02), ylim=(0, 1.02))
    left.legend(loc="upper left")
    for m, color, marker in zip(sorted({line["m"] for line in means}), _COLORS, "osD^v", strict=False):
        curve(right, [line for line in means if line["m"] == m], "load", "overlap", f"{marker}-", color=color,
              mfc="none", label=f"m = {m}")  # fmt: skip
    right.set(xlabel="load P̂", ylabel="mean overlap", xlim=(0, None), ylim=(0, 1.02))
    right.legend(loc="lower left")


OVERLAPS = Figure("overlaps", runs, _overlaps_data, _paint_overlaps)
