"""Times in a report: growth with size, anytime curves, times to targets, profiles and means."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qcqpbench.analysis import metrics
from qcqpbench.analysis.metrics import PENALTIES
from qcqpbench.analysis.profiles import SECONDS, Curves, Profile, log_grid, profile, rounded
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.catalog.status import Termination

from .facts import Facts, Spread, median

# Takes the place of a load in the keys of panels, and sorts before all loads.
_ALL_LOADS = -math.inf
_BySize = Mapping[int, Mapping[str, Sequence[ReportRow]]]


@dataclass(frozen=True)
class SizePoint:
    """Seconds of one solver at one size: median and range of the build and of the solve time, and numbers of runs."""

    solver: str
    size: int
    build: Spread | None
    solve: Spread | None
    runs: int
    at_limit: int


@dataclass(frozen=True)
class SizeFit:
    """Power law, see `metrics.Growth`, of the time that a solver takes to "build" or to "solve"."""

    solver: str
    what: str
    exponent: float
    coefficient: float
    sizes: int
    at_limit: int


@dataclass(frozen=True)
class SizePanel:
    """Times against the size, "m" or "p" as `axis` says, of the problems of one variant.

    `at` states in words the parameter that these problems have in common.
    """

    variant: str
    axis: str
    at: str
    points: tuple[SizePoint, ...]
    fits: tuple[SizeFit, ...]


@dataclass(frozen=True)
class AnytimePanel:
    """Margins against time, for the problems of one variant and m.

    Attributes
    ----------
    variant, m, load
        See `rows.Place`; the load is None if the panel is for all loads.
    problems
        Number of problems.
    best
        Mean best known κ̄; 1 if the load is None, because values are then fractions of the best known κ̄.
    seconds, curves
        Times, and the mean value of each solver at these times.
    levels
        Mean value of each solver at the times SECONDS.
    """

    variant: str
    m: int
    load: float | None
    problems: int
    best: float
    seconds: tuple[float, ...]
    curves: Curves
    levels: Curves


@dataclass(frozen=True)
class Target:
    """Times of one solver to a fraction of the best known scores.

    Attributes
    ----------
    quality, solver
        The fraction, and the label of the solver.
    runs, hits
        Number of runs, and of those that reach the target.
    problems, reached, missing
        Number of problems, of those on which a run reaches the target, and of those without a run.
    median
        Median seconds of the runs that reach the target.
    typical
        Median over all problems of the expected seconds of restarts; None if at least half are not reached.
    mean_1, mean_3
        Mean seconds over all problems, where failed runs count 1 or 3 times their time limit.
    all_1, all_3, all_restarts
        Shifted geometric means over all problems of the same times, and of the expected times of restarts.
    common_1, common_3, common_restarts
        The same means over the problems that all solvers were run on.
    """

    quality: float
    solver: str
    runs: int
    hits: int
    problems: int
    reached: int
    missing: int
    median: float | None
    typical: float | None
    mean_1: float | None
    mean_3: float | None
    all_1: float | None
    all_3: float | None
    all_restarts: float | None
    common_1: float | None
    common_3: float | None
    common_restarts: float | None


@dataclass(frozen=True)
class Timing:
    """Part of a report that concerns time.

    Attributes
    ----------
    sizes, anytime
        Times against size, and margins against time.
    shift
        Shift of the geometric means in seconds.
    common
        Number of problems that all solvers were run on.
    targets, profiles
        Times to each of `metrics.QUALITIES`, and their profiles.
    """

    sizes: tuple[SizePanel, ...]
    anytime: tuple[AnytimePanel, ...]
    shift: float
    common: int
    targets: tuple[Target, ...]
    profiles: tuple[Profile, ...]


def timing(facts: Facts) -> Timing:
    """Return the numbers of a report that concern time."""
    problems = [id for id in facts.problems if id in facts.limits]
    common = [id for id in problems if all((name, id) in facts.runs for name in facts.solvers)]
    goals = [_Goal.of(facts, problems, quality) for quality in metrics.QUALITIES]
    shift = metrics.fitting_shift(
        time for goal in goals for by_problem in goal.expected.values() for time in by_problem.values()
    )
    return Timing(
        sizes=_sizes(facts),
        anytime=_anytime(facts),
        shift=shift,
        common=len(common),
        targets=tuple(_target(goal, name, common, shift) for goal in goals for name in facts.solvers),
        profiles=tuple(profile(goal.quality, goal.expected, problems) for goal in goals),
    )


# --- growth with size ---


def _sizes(facts: Facts) -> tuple[SizePanel, ...]:
    """Return panels with build and solve seconds by size, and fitted power laws.

    Each variant and load has a panel against m, and each variant and m one against p. Panels with one size are omitted.
    """
    panels: dict[tuple[str, str, float], dict[int, dict[str, list[ReportRow]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for (name, id), rows in facts.runs.items():
        place = facts.places[id]
        if name in facts.solvers and place.m is not None and place.load is not None and place.p is not None:
            panels[place.variant, "m", place.load][place.m][name] += rows
            panels[place.variant, "p", place.m][place.p][name] += rows
    return tuple(
        _size_panel(*panel, by_size, facts.solvers) for panel, by_size in sorted(panels.items()) if len(by_size) >= 2
    )


def _size_panel(variant: str, axis: str, fixed: float, by_size: _BySize, solvers: Sequence[str]) -> SizePanel:
    points: list[SizePoint] = []
    fits: list[SizeFit] = []
    for name in solvers:
        solver_points = [
            _size_point(name, size, by_size[size][name]) for size in sorted(by_size) if name in by_size[size]
        ]
        points += solver_points
        fits += filter(None, [_size_fit(name, "build", solver_points), _size_fit(name, "solve", solver_points)])
    at = f"load {fixed:g}" if axis == "m" else f"m = {fixed}"
    return SizePanel(variant, axis, at, tuple(points), tuple(fits))


def _size_fit(name: str, phase: str, points: Sequence[SizePoint]) -> SizeFit | None:
    """Fit a power law to a solver's median times in the phase "build" or "solve"; return None for too few sizes."""
    spreads = [(point.size, point.build if phase == "build" else point.solve) for point in points]
    medians = [(size, spread.middle) for size, spread in spreads if spread]
    growth = metrics.growth(*zip(*medians, strict=True)) if medians else None
    if growth is None:
        return None
    at_limit = sum(point.at_limit for point in points) if phase == "solve" else 0
    return SizeFit(name, phase, growth.exponent, growth.coefficient, growth.sizes, at_limit)


def _size_point(name: str, size: int, rows: Sequence[ReportRow]) -> SizePoint:
    at_limit = [row.termination is Termination.TIME_LIMIT for row in rows]
    # A run that was killed at the time limit has no solve time; it took at least the limit.
    solve = [
        metrics.limit(row) if row.solve_seconds is None and late else row.solve_seconds
        for row, late in zip(rows, at_limit, strict=True)
    ]
    return SizePoint(
        solver=name,
        size=size,
        build=_median_and_range(row.build_seconds for row in rows),
        solve=_median_and_range(solve),
        runs=len(rows),
        at_limit=sum(at_limit),
    )


def _median_and_range(values: Iterable[float | None]) -> Spread | None:
    """Return median, minimum and maximum of the values that are not None; None if there are none."""
    ordered = sorted(value for value in values if value is not None)
    return Spread(statistics.median(ordered), ordered[0], ordered[-1]) if ordered else None


# --- margins against time ---


def _anytime(facts: Facts) -> tuple[AnytimePanel, ...]:
    """Return panels with margins against time, for the tasks whose best known margin is positive.

    Each variant and m has a panel with the mean fraction of the best known κ̄ over all loads, and a panel per load with
    the mean κ̄. Runs count as 0 before their first point, and so do problems that a solver was not run on.
    """
    panels: dict[tuple[str, int, float], list[str]] = defaultdict(list)
    tasks = {id for (_, id), rows in facts.runs.items() if any(row.margin is not None for row in rows)}
    for id in facts.problems:
        place = facts.places[id]
        if id in tasks and facts.best.get(id, 0.0) > 0 and place.m is not None and place.load is not None:
            for load in (_ALL_LOADS, place.load):
                panels[place.variant, place.m, load].append(id)
    return tuple(_anytime_panel(facts, *panel, ids) for panel, ids in sorted(panels.items()))


def _anytime_panel(facts: Facts, variant: str, m: int, load: float, ids: Sequence[str]) -> AnytimePanel:
    rows = [row for name in facts.solvers for id in ids for row in facts.runs.get((name, id), ())]
    first = [(row.build_seconds or 0.0) + row.trace[0][0] for row in rows if row.trace]
    times = log_grid([*first, *map(metrics.seconds, rows)])
    goals = {id: 1.0 if load == _ALL_LOADS else facts.best[id] for id in ids}
    curves, levels = {}, {}
    for name in facts.solvers:
        shares = [
            goals[id] * np.array(metrics.quality_at(runs, facts.best[id], [*times, *SECONDS]))
            for id, runs in facts.of(name, ids).items()
        ]
        if shares:
            mean = rounded(np.sum(shares, axis=0) / len(ids))
            curves[name], levels[name] = mean[: len(times)], mean[len(times) :]
    return AnytimePanel(
        variant=variant,
        m=m,
        load=None if load == _ALL_LOADS else load,
        problems=len(ids),
        best=statistics.fmean(goals.values()),
        seconds=times,
        curves=curves,
        levels=levels,
    )


# --- times to targets ---


@dataclass(frozen=True)
class _Goal:
    """Scores that runs are to reach, and the times of the solvers.

    Attributes
    ----------
    facts, problems
        Rows of the report, and ids of the problems with a time limit.
    quality
        Fraction of the best known scores.
    wanted
        Score by problem; infinite if no score is known.
    expected
        `metrics.expected_seconds` to these scores, by solver and problem.
    """

    facts: Facts
    problems: Sequence[str]
    quality: float
    wanted: Mapping[str, float]
    expected: metrics.Times

    @classmethod
    def of(cls, facts: Facts, problems: Sequence[str], quality: float) -> "_Goal":
        best = facts.best
        wanted = {id: metrics.target(best[id], quality) if id in best else math.inf for id in problems}
        expected = {
            name: {id: metrics.expected_seconds(rows, wanted[id]) for id, rows in facts.of(name, problems).items()}
            for name in facts.solvers
        }
        return cls(facts, problems, quality, wanted, expected)

    def penalized(self, solver: str, ids: Sequence[str], penalty: float) -> list[float]:
        """Return `metrics.penalized_seconds` of a solver on the problems `ids`."""
        runs, limits = self.facts.runs, self.facts.limits
        return [
            metrics.penalized_seconds(runs.get((solver, id), ()), self.wanted[id], limits[id], penalty) for id in ids
        ]

    def restarts(self, solver: str, ids: Sequence[str]) -> list[float]:
        """Return `metrics.restart_seconds` of a solver on the problems `ids`."""
        runs, limits = self.facts.runs, self.facts.limits
        return [
            metrics.restart_seconds(runs.get((solver, id), ()), self.wanted[id], limits[id], PENALTIES[-1])
            for id in ids
        ]


def _target(goal: _Goal, name: str, common: Sequence[str], shift: float) -> Target:
    runs = goal.facts.of(name, goal.problems)
    times = [metrics.seconds_to(row, goal.wanted[id]) for id, rows in runs.items() for row in rows]
    hits = [time for time in times if math.isfinite(time)]

    def shifted(seconds: Sequence[float]) -> float | None:
        return metrics.shifted_geometric_mean(seconds, shift) if seconds else None

    of_all, of_common = ([goal.penalized(name, ids, k) for k in PENALTIES] for ids in (goal.problems, common))
    return Target(
        quality=goal.quality,
        solver=name,
        runs=len(times),
        hits=len(hits),
        problems=len(goal.problems),
        reached=sum(map(math.isfinite, goal.expected[name].values())),
        missing=len(goal.problems) - len(runs),
        median=statistics.median(hits) if hits else None,
        typical=median(list(filter(math.isfinite, goal.expected[name].values())), len(goal.problems)),
        mean_1=statistics.fmean(of_all[0]) if of_all[0] else None,
        mean_3=statistics.fmean(of_all[1]) if of_all[1] else None,
        all_1=shifted(of_all[0]),
        all_3=shifted(of_all[1]),
        all_restarts=shifted(goal.restarts(name, goal.problems)),
        common_1=shifted(of_common[0]),
        common_3=shifted(of_common[1]),
        common_restarts=shifted(goal.restarts(name, common)),
    )
