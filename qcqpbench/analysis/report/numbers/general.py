"""The numbers of a report on problems that are no max-margin tasks: how near solvers come to the best known values.

The best known value of a problem is the published one, or if there is none the best of all rows. The gap of a feasible
point is how much worse its objective is, negative if it is better; relative to max(1, |best known|).
"""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from qcqpbench.analysis import metrics
from qcqpbench.analysis.metrics import PENALTIES, SAME, Row
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE

from .facts import Facts, limits, limits_of_solvers, median, problem_label, scores_of
from .timing import profile


def general_problems(facts: Facts) -> dict[str, Any]:
    """A line for each problem and for each solver, and the solvers' profiles."""
    known = _best_known(facts)
    wanted = {id: known[id] - SAME * max(1.0, abs(known[id])) if id in known else math.inf for id in facts.problems}
    times = {
        name: {id: metrics.expected_seconds(rows, wanted[id]) for id, rows in facts.of(name, facts.problems).items()}
        for name in facts.solvers
    }
    shift = metrics.fitting_shift(time for own in times.values() for time in own.values())
    return {
        "problems": [_problem(facts, id, known.get(id)) for id in facts.problems],
        "summary": [_solver(facts, name, known, wanted, times[name], shift) for name in facts.solvers],
        "shift": shift,
        "limits": limits(facts.rows),
        "limits_of_solvers": limits_of_solvers(facts),
        "profiles": [profile(1 - SAME, times, facts.problems)] if facts.solvers else [],
    }


def relative_gap(value: float, best: float) -> float:
    """Of a score."""
    return metrics.gap(value, best, floor=1.0)


def _best_known(facts: Facts) -> dict[str, float]:
    """As scores, by problem."""
    published = {
        row["problem_id"]: sign * row["best_known"]
        for row in facts.rows
        if row["best_known"] is not None and (sign := metrics.sign(row)) is not None
    }
    return facts.best | published


def _problem(facts: Facts, id: str, known: float | None) -> dict[str, Any]:
    rows = [row for row in facts.rows if row["problem_id"] == id and metrics.was_run(row)]
    one = next(row for row in facts.rows if row["problem_id"] == id and row["sense"])
    sign = metrics.sign(one) or 0.0
    best = min((row for row in rows if row["relative_violation"] is not None), key=_order, default=None)
    score = None if best is None else metrics.score(best)
    gaps = [relative_gap(value, known) for value in scores_of(rows)] if known is not None else []
    near = {} if score is None else {
        metrics.label(row): None for row in rows
        if (own := metrics.score(row)) is not None and relative_gap(own, score) <= SAME
    }  # fmt: skip
    bound = facts.bounds.least.get(id)
    return {
        "problem": problem_label(one),
        "variables": one.get("variables"),
        "constraints": one.get("constraints"),
        "sense": one["sense"],
        "published": one["best_known"],
        "found": None if score is None else sign * score,
        "gap": None if score is None or known is None else known - score,
        "relative_gap": None if score is None or known is None else relative_gap(score, known),
        "record": one["best_known"] is not None and known is not None and any(_is_better(row, known) for row in rows),
        "solvers": list(near),
        "there": sum(gap <= SAME for gap in gaps),
        "feasible": len(gaps),
        "runs": len(rows),
        "violation": None if best is None else best["violation"],
        "relative_violation": None if best is None else best["relative_violation"],
        "bound": None if bound is None else sign * bound,
        "median": statistics.median(map(metrics.seconds, rows)) if rows else None,
    }


def _is_better(row: Row, known: float) -> bool:
    """Return whether a run improves a published value; for that its point must be feasible to the usual tolerance,
    whatever the suite's own is."""
    score, violation = metrics.score(row), row["relative_violation"]
    if score is None or (violation is not None and violation > FEASIBILITY_TOLERANCE):
        return False
    return relative_gap(score, known) < -SAME


def _order(row: Row) -> tuple[float, float]:
    """Feasible points first, by their scores; then the others by what they miss."""
    score = metrics.score(row)
    return (0.0, -score) if score is not None else (1.0, row["relative_violation"])


def _solver(
    facts: Facts,
    name: str,
    known: Mapping[str, float],
    wanted: Mapping[str, float],
    times: Mapping[str, float],
    shift: float,
) -> dict[str, Any]:
    own = facts.of(name, facts.problems)
    rows = [row for each in own.values() for row in each]
    gaps = {id: relative_gap(max(scores), known[id]) for id, each in own.items() if (scores := scores_of(each))}
    published = {row["problem_id"] for row in rows if row["best_known"] is not None}
    worst = PENALTIES[-1]
    restarts = [
        metrics.restart_seconds(own.get(id, ()), wanted[id], facts.limits[id], worst)
        for id in facts.problems
        if id in facts.limits
    ]
    return {
        "solver": name,
        "problems": len(own),
        "missing": len(facts.problems) - len(own),
        "starts": max(map(len, own.values())),
        "runs": len(rows),
        "feasible": len(scores_of(rows)),
        "there": sum(math.isfinite(metrics.seconds_to(row, wanted[row["problem_id"]])) for row in rows),
        "reached": sum(gap <= SAME for gap in gaps.values()),
        "better": sum(any(_is_better(row, known[id]) for row in own[id]) for id in published & gaps.keys()),
        "no_point": len(own) - len(gaps),
        "gap_median": median(list(gaps.values()), len(own)),
        "gap_max": max(gaps.values(), default=None),
        "median": statistics.median(map(metrics.seconds, rows)),
        "restarts": metrics.shifted_geometric_mean(restarts, shift) if restarts else None,
        "false_claims": sum(map(facts.is_false, rows)),
    }
