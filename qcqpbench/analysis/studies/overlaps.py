"""Figure `overlaps`: similarity of optima found independently on the same patterns."""

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np

from qcqpbench.analysis.figures.base import (
    ONE_PATH,
    Array,
    Axes,
    Data,
    Figure,
    MeasuredRow,
    Table,
    count_distinct,
    count_pattern_sets,
    group_by,
    point_of,
    with_points,
)
from qcqpbench.analysis.figures.style import curve
from qcqpbench.problem.maxmargin import unit_rows

from .measurements.optima import COLORS
from .measurements.runs import finite_size_suite, require_rows, with_nominal_load

# Points with a larger overlap are the same optimum.
_SAME_OVERLAP = 0.999


def overlap(first: Array, second: Array, symmetric: bool) -> float:
    """Return the mean over i of |w_i·w'_i| for the unit rows of two points, each of shape (n, m).

    If `symmetric` and n = 2, return the maximum over both orders of the rows.
    """
    products = np.abs(unit_rows(first) @ unit_rows(second).T)
    n = len(products)
    orders = permutations(range(n)) if symmetric and n == 2 else [tuple(range(n))]
    return max(float(products[range(n), order].mean()) for order in orders)


def _data(rows: Sequence[MeasuredRow]) -> Data:
    table: Table = []
    paths = require_rows([row for row in with_points(rows) if row.series == ONE_PATH])
    for (ensemble, m, load), group in group_by(map(with_nominal_load, paths), "ensemble", "m", "load").items():
        name = {"ensemble": ensemble, "m": m, "load": load}
        values = [
            overlap(point_of(first), point_of(second), ensemble != "gaussian")
            for one_set in group_by(group, "problem_id").values()
            for first, second in combinations(one_set, 2)
        ]
        table += [{"kind": "pair", **name, "overlap": value} for value in sorted(values)]
        same = float(np.mean(np.array(values) > _SAME_OVERLAP))
        mean = {"overlap": float(np.mean(values)), "same": same, "pairs": len(values)}
        table.append({"kind": "mean", **name, **mean, "between_random": 2 / np.sqrt(2 * np.pi * m)})
    caption = (
        f"Overlap q between optima on the same patterns, found independently by gip with a single path each: the mean "
        f"of |w₁·w₁′| and |w₂·w₂′|, for symmetric patterns in the better order. "
        f"{count_distinct((row.start for row in paths), 'path')} on each of {count_pattern_sets(paths)}. a: "
        f"cumulative distribution, the paper's ensemble, m = {_largest_paper_size(table)}; a single optimum would be "
        f"one step at q = 1. b: the mean against the load."
    )
    return Data(table, caption)


def _largest_paper_size(table: Table) -> int:
    return max((line["m"] for line in table if line["ensemble"] == "paper"), default=0)


def _paint(axes: Sequence[Axes], data: Data) -> None:
    left, right = axes
    largest = _largest_paper_size(data.table)
    means = data.where(kind="mean", ensemble="paper")
    for line, color in zip([line for line in means if line["m"] == largest], COLORS, strict=False):
        pairs = data.where(kind="pair", ensemble="paper", m=largest, load=line["load"])
        steps = [{"q": pair["overlap"], "share": (k + 1) / len(pairs)} for k, pair in enumerate(pairs)]
        curve(left, steps, "q", "share", drawstyle="steps-post", color=color, label=f"P̂ = {line['load']:g}")
    left.set(xlabel="overlap q", ylabel="share of pairs ≤ q", xlim=(0, 1.02), ylim=(0, 1.02))
    left.legend(loc="upper left")
    for m, color, marker in zip(sorted({line["m"] for line in means}), COLORS, "osD^v", strict=False):
        at_size = [line for line in means if line["m"] == m]
        curve(right, at_size, "load", "overlap", f"{marker}-", color=color, mfc="none", label=f"m = {m}")
    right.set(xlabel="load P̂", ylabel="mean overlap", xlim=(0, None), ylim=(0, 1.02))
    right.legend(loc="lower left")


OVERLAPS = Figure("overlaps", finite_size_suite, _data, _paint)
