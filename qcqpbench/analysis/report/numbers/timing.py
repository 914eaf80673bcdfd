"""Times in a report: growth with size, anytime curves, times to targets, profiles and means."""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qcqpbench.analysis import metrics
from qcqpbench.analysis.metrics import PENALTIES, Runs
from qcqpbench.results.store import Row

_CURVE_POINTS = 48
_MAX_RATIO = 1e4
_MIN_LEAST_SECONDS = 1e-9
# Takes the place of a load in the keys of panels, and sorts before all loads.
_ALL_LOADS = -math.inf
# Levels at which tables show the profiles and anytime curves.
RATIOS = (1, 2, 5, 10, 100)
SECONDS = (0.01, 0.1, 1, 10, 100)
Places = Mapping[str, Mapping[str, Any]]
_BySize = Mapping[int, Mapping[str, Sequence[Row]]]


def timing(
    runs: Runs,
    best: Mapping[str, float],
    limits: Mapping[str, float],
    solvers: Sequence[str],
    problems: Sequence[str],
    places: Places,
) -> dict[str, Any]:
    """Return the numbers of a report that concern time, as JSON values.

    Parameters
    ----------
    runs
        Rows by (solver label, problem id).
    best, limits
        Best known score and time limit in seconds, by problem id.
    solvers, problems
        Labels of the competing solvers and ids of the problems.
    places
        Variant, m, load and p by problem id, see `facts.place`.
    """
    with_limit = [id for id in problems if id in limits]
    return {
        "sizes": _sizes(runs, solvers, places),
        "anytime": _anytime(runs, best, solvers, problems, places),
        **_targets(_Timed(runs, best, limits, solvers, with_limit)),
    }


# --- growth with size ---


def _sizes(runs: Runs, solvers: Sequence[str], places: Places) -> list[dict[str, Any]]:
    """Return panels with build and solve seconds by size, and fitted power laws.

    Each variant and load has a panel against m, and each variant and m one against p. Panels with one size are omitted.
    """
    panels: dict[tuple[str, str, float], dict[int, dict[str, list[Row]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for (name, id), rows in runs.items():
        where = places[id]
        if name in solvers and where["m"] is not None:
            panels[where["variant"], "m", where["load"]][where["m"]][name] += rows
            panels[where["variant"], "p", where["m"]][where["p"]][name] += rows
    return [_size_panel(*panel, by_size, solvers) for panel, by_size in sorted(panels.items()) if len(by_size) >= 2]


def _size_panel(variant: str, axis: str, fixed: float, by_size: _BySize, solvers: Sequence[str]) -> dict[str, Any]:
    points, fits = [], []
    for name in solvers:
        solver_points = [
            _size_point(name, size, by_size[size][name]) for size in sorted(by_size) if name in by_size[size]
        ]
        points += solver_points
        fits += [fit for phase in ("build", "solve") if (fit := _size_fit(name, phase, solver_points))]
    at = f"load {fixed:g}" if axis == "m" else f"m = {fixed}"
    return {"variant": variant, "axis": axis, "at": at, "points": points, "fits": fits}


def _size_fit(name: str, phase: str, points: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Fit a power law to a solver's median times in the phase "build" or "solve"; return None for too few sizes."""
    medians = [(point["size"], point[phase][0]) for point in points if point[phase]]
    growth = metrics.growth(*zip(*medians, strict=True)) if medians else None
    if growth is None:
        return None
    at_limit = sum(point["at_limit"] for point in points) if phase == "solve" else 0
    return {"solver": name, "what": phase, **vars(growth), "at_limit": at_limit}


def _size_point(name: str, size: int, rows: Sequence[Row]) -> dict[str, Any]:
    at_limit = [row["termination"] == "time_limit" for row in rows]
    # A run that was killed at the time limit has no solve time; it took at least the limit.
    solve = [
        metrics.limit(row) if row["solve_seconds"] is None and late else row["solve_seconds"]
        for row, late in zip(rows, at_limit, strict=True)
    ]
    return {
        "solver": name,
        "size": size,
        "build": _median_and_range(row["build_seconds"] for row in rows),
        "solve": _median_and_range(solve),
        "runs": len(rows),
        "at_limit": sum(at_limit),
    }


def _median_and_range(values: Iterable[float | None]) -> list[float] | None:
    """Return median, minimum and maximum of the values that are not None; None if there are none."""
    ordered = sorted(value for value in values if value is not None)
    return [statistics.median(ordered), ordered[0], ordered[-1]] if ordered else None


# --- margins against time ---


def _anytime(
    runs: Runs, best: Mapping[str, float], solvers: Sequence[str], problems: Sequence[str], places: Places
) -> list[dict[str, Any]]:
    """Return panels with margins against time, for the tasks whose best known margin is positive.

    Each variant and m has a panel with the mean fraction of the best known κ̄ over all loads, and a panel per load with
    the mean κ̄. Runs count as 0 before their first point, and so do problems that a solver was not run on.
    """
    panels: dict[tuple[str, int, float], list[str]] = defaultdict(list)
    tasks = {id for (_, id), rows in runs.items() if any(row["margin"] is not None for row in rows)}
    for id in problems:
        where = places[id]
        if id in tasks and best.get(id, 0.0) > 0 and where["m"] is not None:
            for load in (_ALL_LOADS, where["load"]):
                panels[where["variant"], where["m"], load].append(id)
    return [_anytime_panel(runs, best, solvers, *panel, ids) for panel, ids in sorted(panels.items())]


def _anytime_panel(
    runs: Runs,
    best: Mapping[str, float],
    solvers: Sequence[str],
    variant: str,
    m: int,
    load: float,
    ids: Sequence[str],
) -> dict[str, Any]:
    rows = [row for name in solvers for id in ids for row in runs.get((name, id), ())]
    first = [float(row["build_seconds"] or 0) + row["trace"][0][0] for row in rows if row.get("trace")]
    times = _grid([*first, *map(metrics.seconds, rows)])
    goals = {id: 1.0 if load == _ALL_LOADS else best[id] for id in ids}
    curves, levels = {}, {}
    for name in solvers:
        shares = [
            goals[id] * np.array(metrics.quality_at(runs[name, id], best[id], [*times, *SECONDS]))
            for id in ids
            if (name, id) in runs
        ]
        if shares:
            mean = _rounded(np.sum(shares, axis=0) / len(ids))
            curves[name], levels[name] = mean[: len(times)], mean[len(times) :]
    return {
        "variant": variant,
        "m": m,
        "load": None if load == _ALL_LOADS else load,
        "problems": len(ids),
        "best": statistics.fmean(goals.values()),
        "seconds": times,
        "curves": curves,
        "levels": levels,
    }


# --- times to targets ---


@dataclass(frozen=True)
class _Timed:
    """The arguments of `timing`, restricted to problems with an entry in `limits`."""

    runs: Runs
    best: Mapping[str, float]
    limits: Mapping[str, float]
    solvers: Sequence[str]
    problems: Sequence[str]

    def of(self, solver: str, id: str) -> Sequence[Row]:
        return self.runs.get((solver, id), ())

    def wanted(self, quality: float) -> dict[str, float]:
        """Return the score that reaches a fraction `quality` of the best known one, by problem; infinite if unknown."""
        return {id: metrics.target(self.best[id], quality) if id in self.best else math.inf for id in self.problems}

    def expected_seconds(self, wanted: Mapping[str, float]) -> dict[str, dict[str, float]]:
        """Return `metrics.expected_seconds` to the scores `wanted`, by solver and problem."""
        return {
            name: {
                id: metrics.expected_seconds(self.of(name, id), wanted[id])
                for id in self.problems
                if (name, id) in self.runs
            }
            for name in self.solvers
        }


def _targets(timed: _Timed) -> dict[str, Any]:
    """Return the hits, mean times and profiles of the solvers for each of `metrics.QUALITIES`."""
    common = [id for id in timed.problems if all((name, id) in timed.runs for name in timed.solvers)]
    wanted = {quality: timed.wanted(quality) for quality in metrics.QUALITIES}
    expected = {quality: timed.expected_seconds(scores) for quality, scores in wanted.items()}
    shift = metrics.fitting_shift(
        time for by_solver in expected.values() for times in by_solver.values() for time in times.values()
    )
    lines = []
    for quality, scores in wanted.items():
        for name in timed.solvers:
            line = {"quality": quality, "solver": name, **_hits(timed, name, scores, expected[quality][name])}
            for scope, ids in (("all", timed.problems), ("common", common)):
                line |= _means(timed, name, scores, scope, ids, shift)
            lines.append(line)
    profiles = [profile(quality, times, timed.problems) for quality, times in expected.items()]
    return {"shift": shift, "common": len(common), "targets": lines, "profiles": profiles}


def _hits(timed: _Timed, name: str, wanted: Mapping[str, float], expected: Mapping[str, float]) -> dict[str, Any]:
    """Return the number of runs and problems on which a solver reaches the scores `wanted`, and the median time."""
    rows = [(row, id) for id in timed.problems for row in timed.of(name, id)]
    times = [time for row, id in rows if math.isfinite(time := metrics.seconds_to(row, wanted[id]))]
    return {
        "runs": len(rows),
        "hits": len(times),
        "problems": len(timed.problems),
        "reached": sum(map(math.isfinite, expected.values())),
        "missing": sum((name, id) not in timed.runs for id in timed.problems),
        "median": statistics.median(times) if times else None,
    }


def _means(
    timed: _Timed, name: str, wanted: Mapping[str, float], scope: str, ids: Sequence[str], shift: float
) -> dict[str, float | None]:
    """Return shifted geometric means of a solver's times over problems `ids`; for scope "all", arithmetic means too."""
    means: dict[str, float | None] = {}
    for penalty in PENALTIES:
        times = [metrics.penalized_seconds(timed.of(name, id), wanted[id], timed.limits[id], penalty) for id in ids]
        means[f"{scope}_{penalty}"] = metrics.shifted_geometric_mean(times, shift) if times else None
        if scope == "all":
            means[f"mean_{penalty}"] = statistics.fmean(times) if times else None
    times = [metrics.restart_seconds(timed.of(name, id), wanted[id], timed.limits[id], PENALTIES[-1]) for id in ids]
    means[f"{scope}_restarts"] = metrics.shifted_geometric_mean(times, shift) if times else None
    return means


# --- profiles ---


def profile(quality: float, times: metrics.Times, problems: Sequence[str]) -> dict[str, Any]:
    """Return the data profiles of all solvers, and the performance profiles of all solvers and of each pair."""
    finite = [time for by_problem in times.values() for time in by_problem.values() if math.isfinite(time)]
    spread = max(finite) / max(min(finite), _MIN_LEAST_SECONDS) if finite else 1.0
    ratios = _short(np.geomspace(1, max(10.0, min(_MAX_RATIO, spread)), _CURVE_POINTS))
    budgets = _grid(finite)

    def performance(names: Sequence[str], at: Sequence[float] = ratios) -> dict[str, list[float]]:
        shares = metrics.performance_profile({name: times[name] for name in names}, problems, at)
        return {name: _rounded(values) for name, values in shares.items()}

    def data(at: Sequence[float]) -> dict[str, list[float]]:
        return {name: _rounded(values) for name, values in metrics.data_profile(times, problems, at).items()}

    names = list(times)
    within = data(SECONDS)
    return {
        "quality": quality,
        "ratios": ratios,
        "all": performance(names),
        "pairs": [[a, b, *performance([a, b]).values()] for a, b in itertools.combinations(names, 2)],
        "budgets": budgets,
        "data": data(budgets),
        "levels": {name: [*values, *within[name]] for name, values in performance(names, RATIOS).items()},
    }


def _grid(values: Iterable[float]) -> list[float]:
    """Return logarithmically spaced levels that cover the finite positive values; empty if there are none."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    if not finite:
        return []
    return _short(np.geomspace(min(finite) * 0.9, max(finite) * 1.1, _CURVE_POINTS))


def _short(values: Iterable[float]) -> list[float]:
    """Round the values to four significant digits."""
    return [float(f"{value:.4g}") for value in values]


def _rounded(values: Iterable[float]) -> list[float]:
    """Round the values to four decimals."""
    return [round(float(value), 4) for value in values]
