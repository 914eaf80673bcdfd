"""Margins against the load in a report: margins found by solvers, predictions of theory, and upper bounds."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qcqpbench.analysis import metrics

from .facts import Facts, median, scores_of


def capacity(facts: Facts) -> list[dict[str, Any]]:
    """Return one panel per variant and m: κ̄ by solver and load, theory, and the best known κ̄ with upper bounds."""
    predictions = {
        row["problem_id"]: row["kappa_bar_theory"] for row in facts.rows if row["kappa_bar_theory"] is not None
    }
    panels = []
    for (variant, m), loads in sorted(_problems_by_load(facts).items(), key=lambda item: item[0]):
        predicted = {load: predictions[ids[0]] for load, ids in sorted(loads.items()) if ids[0] in predictions}
        points = [_point(facts, name, load, ids) for name in facts.solvers for load, ids in sorted(loads.items())]
        panels.append(
            {
                "variant": variant,
                "m": m,
                "theory": metrics.theory_curve(list(predicted), list(predicted.values())),
                "predicted": predicted,
                "points": [point for point in points if point["runs"]],
                "band": [band for load, ids in sorted(loads.items()) if (band := _band(facts, load, ids))],
            }
        )
    return panels


def _problems_by_load(facts: Facts) -> Mapping[tuple[str, int], Mapping[float, list[str]]]:
    """Return the ids of the tasks with a load and a nonzero margin in some row, by (variant, m) and load."""
    panels: dict[tuple[str, int], dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    tasks = metrics.scales(facts.rows)
    for id in facts.problems:
        place = facts.places[id]
        if place["load"] is not None and id in tasks:
            panels[place["variant"], place["m"]][place["load"]].append(id)
    return panels


def _point(facts: Facts, solver: str, load: float, ids: Sequence[str]) -> dict[str, Any]:
    runs = facts.of(solver, ids)
    scores_by_set = {id: scores for id, rows in runs.items() if (scores := scores_of(rows))}
    rows = [row for group in runs.values() for row in group]

    def over_sets(choose: Callable[[list[float]], float]) -> list[float] | None:
        return _mean_and_range([choose(scores) for scores in scores_by_set.values()])

    best = {id: max(scores) for id, scores in scores_by_set.items()}
    gaps = [metrics.gap(score, facts.best[id]) for id, score in best.items()]
    bounds = facts.bounds.least
    optimality_gaps = [metrics.gap(score, bounds[id]) for id, score in best.items() if id in bounds]
    return {
        "solver": solver,
        "load": load,
        "best": over_sets(max),
        "median": over_sets(statistics.median),
        "sets": len(ids),
        "with_point": len(scores_by_set),
        "runs": len(rows),
        "positive_runs": sum(map(metrics.is_solved, rows)),
        "positive_sets": sum(any(map(metrics.is_solved, group)) for group in runs.values()),
        "gap_best": median(gaps, len(runs)),
        "gap_bound": median(optimality_gaps, len(runs.keys() & bounds.keys())),
    }


def _mean_and_range(values: Sequence[float]) -> list[float] | None:
    """Return mean, minimum and maximum of the values; None if there are none."""
    return [statistics.fmean(values), min(values), max(values)] if values else None


def _band(facts: Facts, load: float, ids: Sequence[str]) -> list[float] | None:
    """Return the load, mean best known κ̄, mean upper bound, number of pattern sets with a bound and of all sets.

    The means are over the pattern sets with a bound. Return None if no set has a bound.
    """
    bounded = [id for id in ids if id in facts.bounds.least]
    if not bounded:
        return None
    low, high = (statistics.fmean(values[id] for id in bounded) for values in (facts.best, facts.bounds.least))
    return [load, low, high, len(bounded), len(ids)]
