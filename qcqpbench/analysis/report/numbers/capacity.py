"""Margins against the load in a report: margins found by solvers, predictions of theory, and upper bounds."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from qcqpbench.analysis import metrics
from qcqpbench.catalog.spec import parse

from .facts import Facts, Spread, median, scores_of


class Band(NamedTuple):
    """Range between the best known κ̄ and the upper bound at one load.

    Attributes
    ----------
    load, low, high
        The load, the mean best known κ̄ and the mean upper bound. Means are over the pattern sets with a bound.
    bounded_sets, sets
        Number of pattern sets with a bound, and of all sets.
    """

    load: float
    low: float
    high: float
    bounded_sets: int
    sets: int


@dataclass(frozen=True)
class Prediction:
    """Margins that a theory predicts.

    Attributes
    ----------
    at_loads
        κ̄ by load of the problems.
    curve
        Pairs (load, κ̄) on the curve through them.
    """

    at_loads: Mapping[float, float]
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class CapacityPoint:
    """Margins of one solver at one load.

    Attributes
    ----------
    solver, load
        Label of the solver, and the load.
    best, median
        κ̄ of the best and of the median start: mean and range over the pattern sets with a point.
    sets, with_point, positive_sets
        Number of pattern sets, of those with a point, and of those with a positive margin.
    runs, positive_runs
        Number of runs, and of those with a positive margin.
    gap_best, gap_bound
        Median gap of the best start to the best known κ̄ and to the upper bound; None if it is infinite.
    """

    solver: str
    load: float
    best: Spread | None
    median: Spread | None
    sets: int
    with_point: int
    runs: int
    positive_runs: int
    positive_sets: int
    gap_best: float | None
    gap_bound: float | None


@dataclass(frozen=True)
class CapacityPanel:
    """Margins against the load, for the problems of one variant and m.

    Attributes
    ----------
    variant, m
        See `rows.Place`.
    theory, replica_symmetry
        κ̄ predicted by full RSB and by replica symmetry.
    points
        Margins by solver and load.
    band
        Best known κ̄ and upper bounds by load.
    """

    variant: str
    m: int
    theory: Prediction
    replica_symmetry: Prediction
    points: tuple[CapacityPoint, ...]
    band: tuple[Band, ...]


def capacity(facts: Facts) -> tuple[CapacityPanel, ...]:
    """Return one panel per variant and m: κ̄ by solver and load, theories, and the best known κ̄ with upper bounds."""
    full = {row.problem_id: row.kappa_bar_theory for row in facts.rows if row.kappa_bar_theory is not None}
    symmetric = {row.problem_id: row.kappa_bar_rs for row in facts.rows if row.kappa_bar_rs is not None}
    panels = []
    for (variant, m), loads in sorted(_problems_by_load(facts).items(), key=lambda item: item[0]):
        points = [_point(facts, name, load, ids) for name in facts.solvers for load, ids in sorted(loads.items())]
        panels.append(
            CapacityPanel(
                variant=variant,
                m=m,
                theory=_prediction(full, variant, loads, "full"),
                replica_symmetry=_prediction(symmetric, variant, loads, 0),
                points=tuple(point for point in points if point.runs),
                band=tuple(band for load, ids in sorted(loads.items()) if (band := _band(facts, load, ids))),
            )
        )
    return tuple(panels)


def _prediction(
    kappa_bars: Mapping[str, float], variant: str, loads: Mapping[float, list[str]], rsb: Literal[0, "full"]
) -> Prediction:
    """Return the prediction for a variant from the predicted κ̄ by problem id, and the ids by load."""
    at_loads = {load: kappa_bars[ids[0]] for load, ids in sorted(loads.items()) if ids[0] in kappa_bars}
    return Prediction(at_loads, tuple(metrics.theory_curve(parse(variant)[0], at_loads, rsb)))


def _problems_by_load(facts: Facts) -> Mapping[tuple[str, int], Mapping[float, list[str]]]:
    """Return the ids of the tasks with a load and a nonzero margin in some row, by (variant, m) and load."""
    panels: dict[tuple[str, int], dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    tasks = metrics.scales(facts.rows)
    for id in facts.problems:
        place = facts.places[id]
        if place.m is not None and place.load is not None and id in tasks:
            panels[place.variant, place.m][place.load].append(id)
    return panels


def _point(facts: Facts, solver: str, load: float, ids: Sequence[str]) -> CapacityPoint:
    runs = facts.of(solver, ids)
    scores_by_set = {id: scores for id, rows in runs.items() if (scores := scores_of(rows))}
    rows = [row for group in runs.values() for row in group]

    def over_sets(choose: Callable[[list[float]], float]) -> Spread | None:
        return _mean_and_range([choose(scores) for scores in scores_by_set.values()])

    best = {id: max(scores) for id, scores in scores_by_set.items()}
    gaps = [metrics.gap(score, facts.best[id]) for id, score in best.items()]
    bounds = facts.bounds.least
    optimality_gaps = [metrics.gap(score, bounds[id]) for id, score in best.items() if id in bounds]
    return CapacityPoint(
        solver=solver,
        load=load,
        best=over_sets(max),
        median=over_sets(statistics.median),
        sets=len(ids),
        with_point=len(scores_by_set),
        runs=len(rows),
        positive_runs=sum(map(metrics.is_solved, rows)),
        positive_sets=sum(any(map(metrics.is_solved, group)) for group in runs.values()),
        gap_best=median(gaps, len(runs)),
        gap_bound=median(optimality_gaps, len(runs.keys() & bounds.keys())),
    )


def _mean_and_range(values: Sequence[float]) -> Spread | None:
    """Return mean, minimum and maximum of the values; None if there are none."""
    return Spread(statistics.fmean(values), min(values), max(values)) if values else None


def _band(facts: Facts, load: float, ids: Sequence[str]) -> Band | None:
    """Return the band at one load; None if no pattern set has a bound."""
    bounded = [id for id in ids if id in facts.bounds.least]
    if not bounded:
        return None
    low, high = (statistics.fmean(values[id] for id in bounded) for values in (facts.best, facts.bounds.least))
    return Band(load, low, high, len(bounded), len(ids))
