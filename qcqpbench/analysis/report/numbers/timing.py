"""The numbers of a report that are about time: growth, anytime curves, times to targets, profiles, means."""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from qcqpbench.analysis import metrics
from qcqpbench.analysis.metrics import Runs

_POINTS = 48
# No load, sorted before all of them.
_ALL = -math.inf
# Where tables read the curves.
RATIOS = (1, 2, 5, 10, 100)
SECONDS = (0.01, 0.1, 1, 10, 100)
Places = Mapping[str, Mapping[str, Any]]


def timing(
    runs: Runs,
    best: Mapping[str, float],
    limits: Mapping[str, float],
    solvers: Sequence[str],
    problems: Sequence[str],
    places: Places,
) -> dict[str, Any]:
    """Runs by (solver, problem), the best known score and the time limit of problems, where they stand."""
    return {
        "sizes": _sizes(runs, solvers, places),
        "anytime": _anytime(runs, best, solvers, problems, places),
        **_targets(runs, best, limits, solvers, [id for id in problems if id in limits]),
    }


def _sizes(runs: Runs, solvers: Sequence[str], places: Places) -> list[dict[str, Any]]:
    """Build and solve seconds by size, and how they grow: a panel per variant and load against m, then per m against p.

    Only where there are two sizes.
    """
    found: dict[tuple[str, str, float], dict[int, dict[str, list[metrics.Row]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for (name, id), rows in runs.items():
        where = places[id]
        if name in solvers and where["m"] is not None:
            found[where["variant"], "m", where["load"]][where["m"]][name] += rows
            found[where["variant"], "p", where["m"]][where["p"]][name] += rows
    panels = []
    for (variant, axis, fixed), by_size in sorted(found.items()):
        if len(by_size) < 2:
            continue
        points, fits = [], []
        for name in solvers:
            own = [_size_point(name, size, by_size[size][name]) for size in sorted(by_size) if name in by_size[size]]
            points += own
            for what in ("build", "solve"):
                known = [(each["size"], each[what][0]) for each in own if each[what]]
                if known and (fit := metrics.growth(*zip(*known, strict=True))):
                    late = sum(each["at_limit"] for each in own) if what == "solve" else 0
                    fits.append({"solver": name, "what": what, **vars(fit), "at_limit": late})
        at = f"load {fixed:g}" if axis == "m" else f"m = {fixed}"
        panels.append({"variant": variant, "axis": axis, "at": at, "points": points, "fits": fits})
    return panels


def _size_point(name: str, size: int, rows: Sequence[metrics.Row]) -> dict[str, Any]:
    def spread(values: Iterable[float | None]) -> list[float] | None:
        known = sorted(value for value in values if value is not None)
        return [statistics.median(known), known[0], known[-1]] if known else None

    late = [row["termination"] == "time_limit" for row in rows]
    # A killed run took its limit at least.
    solve = [
        metrics.limit(row) if row["solve_seconds"] is None and over else row["solve_seconds"]
        for row, over in zip(rows, late, strict=True)
    ]
    return {
        "solver": name,
        "size": size,
        "build": spread(row["build_seconds"] for row in rows),
        "solve": spread(solve),
        "runs": len(rows),
        "at_limit": sum(late),
    }


def _anytime(
    runs: Runs, best: Mapping[str, float], solvers: Sequence[str], problems: Sequence[str], places: Places
) -> list[dict[str, Any]]:
    """Margins against seconds, over problems whose best known one is positive; what has no point yet has 0.

    A panel per variant and m: the share of the best known, on average over all loads; and one per load: the mean κ̄. A
    problem that a solver was not run on counts 0.
    """
    panels: dict[tuple[str, int, float], list[str]] = defaultdict(list)
    tasks = {id for (_, id), rows in runs.items() if any(row["margin"] is not None for row in rows)}
    for id in problems:
        where = places[id]
        if id in tasks and best.get(id, 0.0) > 0 and where["m"] is not None:
            for load in (_ALL, where["load"]):
                panels[where["variant"], where["m"], load].append(id)
    found = []
    for (variant, m, load), ids in sorted(panels.items()):
        here = [row for name in solvers for id in ids for row in runs.get((name, id), ())]
        begun = [float(row["build_seconds"] or 0) + row["trace"][0][0] for row in here if row.get("trace")]
        times = _grid([*begun, *map(metrics.seconds, here)])
        goals = {id: 1.0 if load == _ALL else best[id] for id in ids}
        curves, levels = {}, {}
        for name in solvers:
            own = [id for id in ids if (name, id) in runs]
            if own:
                shares = [
                    goals[id] * np.array(metrics.quality_at(runs[name, id], best[id], [*times, *SECONDS])) for id in own
                ]
                mean = _short(np.sum(shares, axis=0) / len(ids))
                curves[name], levels[name] = mean[: len(times)], mean[len(times) :]
        panel = {"variant": variant, "m": m, "load": None if load == _ALL else load, "problems": len(ids)}
        found.append(
            {**panel, "best": statistics.fmean(goals.values()), "seconds": times, "curves": curves, "levels": levels}
        )
    return found


def _targets(
    runs: Runs,
    best: Mapping[str, float],
    limits: Mapping[str, float],
    solvers: Sequence[str],
    problems: Sequence[str],
) -> dict[str, Any]:
    """For each quality: how often and how fast it is reached, with shifted geometric means, and the profiles."""
    common = [id for id in problems if all((name, id) in runs for name in solvers)]
    tables, profiles = [], []
    wanted = {
        quality: {id: metrics.target(best[id], quality) if id in best else math.inf for id in problems}
        for quality in metrics.QUALITIES
    }
    expected = {
        quality: {
            name: {id: metrics.expected_seconds(runs[name, id], goal[id]) for id in problems if (name, id) in runs}
            for name in solvers
        }
        for quality, goal in wanted.items()
    }
    shift = metrics.fitting_shift(time for own in expected.values() for each in own.values() for time in each.values())
    for quality, goal in wanted.items():
        times = expected[quality]
        for name in solvers:
            rows = [(row, id) for id in problems for row in runs.get((name, id), ())]
            hits = [time for row, id in rows if math.isfinite(time := metrics.seconds_to(row, goal[id]))]
            line = {
                "quality": quality,
                "solver": name,
                "runs": len(rows),
                "hits": len(hits),
                "problems": len(problems),
                "reached": sum(map(math.isfinite, times[name].values())),
                "missing": sum((name, id) not in runs for id in problems),
                "median": statistics.median(hits) if hits else None,
            }
            for scope, ids in (("all", problems), ("common", common)):
                for penalty in metrics.PENALTIES:
                    values = [
                        metrics.penalized_seconds(runs.get((name, id), ()), goal[id], limits[id], penalty) for id in ids
                    ]
                    line[f"{scope}_{penalty}"] = metrics.shifted_geometric_mean(values, shift) if values else None
                    if scope == "all":
                        line[f"mean_{penalty}"] = statistics.fmean(values) if values else None
                worst = metrics.PENALTIES[-1]
                values = [metrics.restart_seconds(runs.get((name, id), ()), goal[id], limits[id], worst) for id in ids]
                line[f"{scope}_restarts"] = metrics.shifted_geometric_mean(values, shift) if values else None
            tables.append(line)
        profiles.append(profile(quality, times, problems))
    return {"shift": shift, "common": len(common), "targets": tables, "profiles": profiles}


def profile(quality: float, times: metrics.Times, problems: Sequence[str]) -> dict[str, Any]:
    finite = [time for own in times.values() for time in own.values() if math.isfinite(time)]
    spread = max(finite) / max(min(finite), 1e-9) if finite else 1.0
    ratios = [float(f"{each:.4g}") for each in np.geomspace(1, max(10.0, min(1e4, spread)), _POINTS)]
    budgets = _grid(finite)

    def shares(names: Sequence[str], at: Sequence[float] = ratios) -> dict[str, list[float]]:
        found = metrics.performance_profile({name: times[name] for name in names}, problems, at)
        return {name: _short(values) for name, values in found.items()}

    def within(at: Sequence[float]) -> dict[str, list[float]]:
        return {name: _short(values) for name, values in metrics.data_profile(times, problems, at).items()}

    names = list(times)
    return {
        "quality": quality,
        "ratios": ratios,
        "all": shares(names),
        "pairs": [[a, b, *shares([a, b]).values()] for a, b in itertools.combinations(names, 2)],
        "budgets": budgets,
        "data": within(budgets),
        "levels": {name: [*values, *within(SECONDS)[name]] for name, values in shares(names, RATIOS).items()},
    }


def _grid(values: Iterable[float]) -> list[float]:
    """Levels evenly spread in logarithms around the finite values."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    if not finite:
        return []
    return [float(f"{each:.4g}") for each in np.geomspace(min(finite) * 0.9, max(finite) * 1.1, _POINTS)]


def _short(values: Iterable[float]) -> list[float]:
    return [round(float(value), 4) for value in values]
