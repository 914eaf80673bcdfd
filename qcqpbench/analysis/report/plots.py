"""Plots of a report, declared as data: the page draws them and knows nothing else of them.

To add a plot, write a function that returns its plots and append a `Figure` with it to `PLOTS`. Plots with the same id
share one figure; their `choices` become the menus that select which of them is shown. Empty plots are left out.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from qcqpbench.analysis import metrics
from qcqpbench.analysis.profiles import Curves, PairProfile, Profile
from qcqpbench.analysis.rows import FULL_RSB, REPLICA_SYMMETRY

from .numbers.capacity import CapacityPanel, CapacityPoint
from .numbers.contents import ReportContents
from .numbers.facts import Spread
from .numbers.ranking import MAX_GAP
from .numbers.timing import SizePanel, SizePoint
from .plot import Axis, Band, Menu, Plot, Series
from .table import percent

_Column = Sequence[float | None]
# Smaller gaps count as reached, larger ones as having no point.
_DRAWN_GAPS = (metrics.SAME, MAX_GAP)
_GAP_NOTE = f"Gaps are drawn between {percent(_DRAWN_GAPS[0])}, which counts as reached, and {percent(_DRAWN_GAPS[1])}."
_GAP = Axis("gap", "log", min=_DRAWN_GAPS[0], max=_DRAWN_GAPS[1], percent=True)
# Margins below this fraction of the largest one are cut off: they would compress everything else.
_MIN_DRAWN_MARGIN = -0.25
_ALL = "all"
_VARIANT, _SIZE = Menu("variant", "problem"), Menu("m", "m", first=-1)
_FORMULATION, _START = Menu("formulation", "formulation"), Menu("choice", "start")
_GROWTH, _ANYTIME = Menu("size", "problem"), Menu("anytime", "problem")
_TARGET, _PAIR = Menu("quality", "target"), Menu("pair", "solvers")
_RECORDING = Menu("recording", "recording")
_LOAD = Axis("load p/(nm)")
_FRACTION = Axis("fraction of problems", min=0, max=1, percent=True)
_SECONDS = Axis("seconds", "log")
_RATIO = Axis("time / shortest time", "log", min=1)


class Figure(NamedTuple):
    """Plots that share a figure.

    Attributes
    ----------
    build
        Function that returns the plots.
    subject, needs
        Subject of the figure, and what results must hold to have it; the report states both if the figure is empty,
        unless `needs` is empty.
    is_general
        Whether the figure is about general QCQPs.
    """

    build: Callable[[ReportContents], Iterable[Plot]]
    subject: str
    needs: str
    is_general: bool = False


def plots(numbers: ReportContents) -> tuple[Plot, ...]:
    """Return the plots of a report that show something, in the order of the page."""
    return tuple(plot for figure in PLOTS for plot in figure.build(numbers) if plot.has_points)


def missing_plots(numbers: ReportContents) -> list[str]:
    """Return a sentence about each figure that would be empty, for the kinds of problems in the report."""
    has_problems = {False: numbers.tasks > 0, True: bool(numbers.general.problems)}
    return [
        f"Plot of {figure.subject}: it needs {figure.needs}."
        for figure in PLOTS
        if figure.needs and has_problems[figure.is_general] and not any(p.has_points for p in figure.build(numbers))
    ]


# --- margins and gaps against the load ---


def capacity(numbers: ReportContents) -> Iterator[Plot]:
    """Yield κ̄ against the load, with both theories and proved bounds."""
    for panel, choices, points in _views_by_load(numbers):
        for start in ("best", "median"):
            margins = [point.best if start == "best" else point.median for point in points]
            series = _series_by_load(points, margins, shows_missing=True)
            series += _theories(panel)
            floor = _MIN_DRAWN_MARGIN * max(0.5, *(y for line in series for y in line.y if y is not None), 0.0)
            is_cut = any(margin is not None and margin.low < floor for margin in margins)
            cut = ["the band at the top"] * bool(panel.band) + ["lines at the bottom"] * is_cut
            yield Plot(
                *("capacity", "capacity", f"κ̄ against load, {start} start", _LOAD, Axis("κ̄", floor=floor), series),
                bands=_bands(panel),
                note=_note(numbers, f"m = {panel.m}.", f"The plot may cut off {' and '.join(cut)}." if cut else ""),
                choices=(*choices, (_START, start)),
                is_wide=True,
            )


def positive(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the fraction of pattern sets, or of runs, with a positive margin against the load."""
    for panel, choices, points in _views_by_load(numbers):
        of_sets = [point.positive_sets / point.sets for point in points]
        of_runs = [point.positive_runs / point.runs for point in points]
        for start, counted, values in (("best", "pattern sets", of_sets), ("median", "runs", of_runs)):
            yield Plot(
                *("positive", "capacity", f"Fraction of {counted} with a positive margin"),
                *(_LOAD, Axis(f"fraction of {counted}", min=0, max=1, percent=True), _series_by_load(points, values)),
                note=_note(numbers, f"m = {panel.m}. Failed runs are included."),
                choices=(*choices, (_START, start)),
                is_wide=True,
            )


def gap_to_best(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the relative gap to the best known margin against the load."""
    return _gaps(numbers, "gap-best", "Gap to the best known margin", lambda point: point.gap_best)


def gap_to_bound(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the relative gap to the smallest proved upper bound against the load."""
    title = "Optimality gap, to the smallest upper bound"
    return _gaps(numbers, "gap-bound", title, lambda point: point.gap_bound)


def _gaps(numbers: ReportContents, id: str, title: str, gap: Callable[[CapacityPoint], float | None]) -> Iterator[Plot]:
    for panel, choices, points in _views_by_load(numbers):
        gaps = [_drawn_gap(gap(point)) for point in points]
        series = _series_by_load(points, gaps, shows_missing=True)
        note = _note(numbers, f"m = {panel.m}. {_GAP_NOTE}")
        yield Plot(id, "gaps", title, _LOAD, _GAP, series, note=note, choices=choices, is_wide=True)


def _drawn_gap(gap: float | None) -> float | None:
    return None if gap is None else min(max(_DRAWN_GAPS[0], gap), _DRAWN_GAPS[1])


def accuracy(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the accuracy on held-out trials against the gap of the margin, one mark per run."""
    for problem in dict.fromkeys(line.problem for line in numbers.accuracy):
        lines = [line for line in numbers.accuracy if line.problem == problem]
        series = tuple(
            Series(
                *(line.solver, [_drawn_gap(gap) or 0.0 for gap in line.gaps], line.accuracies),
                kind="marks",
                solver=line.solver,
            )
            for line in lines
        )
        y = Axis("accuracy", percent=True)
        title = "Accuracy on held-out trials against the gap to the best known margin"
        note = _note(numbers, f"{problem}. One mark per run. {_GAP_NOTE}")
        choices = ((_RECORDING, problem),)
        yield Plot("accuracy", "accuracy", title, _GAP, y, series, note=note, choices=choices, is_wide=True)


def _views_by_load(
    numbers: ReportContents,
) -> Iterator[tuple[CapacityPanel, tuple[tuple[Menu, str], ...], list[CapacityPoint]]]:
    """Yield (panel, choices, points) for each panel, with all of its points and then with those of each formulation.

    `choices` are the menu options that select the view.
    """
    formulations = {
        solver.name: solver.formulation or "none (task solvers)" for solver in numbers.solvers if solver.competes
    }
    distinct = list(dict.fromkeys(formulations.values()))
    for panel in numbers.capacity:
        choices = ((_VARIANT, panel.variant), (_SIZE, str(panel.m)))
        if len(distinct) < 2:
            yield panel, choices, list(panel.points)
            continue
        for option in (_ALL, *distinct):
            points = [point for point in panel.points if option in (_ALL, formulations[point.solver])]
            yield panel, (*choices, (_FORMULATION, option)), points


def _series_by_load(
    points: Iterable[CapacityPoint], values: Iterable[Spread | float | None], *, shows_missing: bool = False
) -> tuple[Series, ...]:
    """Return one series per solver; `shows_missing` draws hollow marks where pattern sets have no point."""
    series = []
    for solver, group in itertools.groupby(zip(points, values, strict=True), key=lambda pair: pair[0].solver):
        solver_points, solver_values = zip(*group, strict=True)
        is_missing = [point.with_point < point.sets for point in solver_points]
        notes = [f"{p.runs} runs, {p.with_point} of {p.sets} pattern sets with a point" for p in solver_points]
        loads = [point.load for point in solver_points]
        hollow = is_missing if shows_missing else ()
        series.append(Series(solver, loads, *_columns(solver_values), hollow, notes, solver=solver))
    return tuple(series)


def _columns(values: Sequence[Spread | float | None]) -> tuple[_Column, _Column, _Column]:
    """Return the columns y, low and high of a series; low and high are empty if no value is a spread."""
    middles = [value.middle if isinstance(value, Spread) else value for value in values]
    spreads = [value if isinstance(value, Spread) else None for value in values]
    if not any(spreads):
        return middles, (), ()
    return middles, [spread and spread.low for spread in spreads], [spread and spread.high for spread in spreads]


def _theories(panel: CapacityPanel) -> tuple[Series, ...]:
    """Return the curves of full RSB and of replica symmetry, without those that the rows do not predict."""
    full, symmetric = panel.theory.curve, panel.replica_symmetry.curve
    lines = (
        Series(FULL_RSB, [load for load, _ in full], [y for _, y in full], kind="curve"),
        Series(REPLICA_SYMMETRY, [load for load, _ in symmetric], [y for _, y in symmetric], kind="dotted"),
    )
    return tuple(line for line in lines if line.x)


def _bands(panel: CapacityPanel) -> tuple[Band, ...]:
    if not panel.band:
        return ()
    loads, lows, highs, bounded_sets, sets = zip(*panel.band, strict=True)
    notes = tuple(
        f"best known to bound, {bounded} of {count} pattern sets with a bound"
        for bounded, count in zip(bounded_sets, sets, strict=True)
    )
    return (Band("proved bound", loads, lows, highs, notes),)


def _note(numbers: ReportContents, *texts: str) -> str:
    return " ".join(filter(None, (*texts, f"Limits: {numbers.task_limits}.")))


# --- time ---


def build_time(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the build time against the size of the problem."""
    for panel in numbers.sizes:
        values = [(point, point.build, False) for point in panel.points]
        yield _growth(numbers, panel, "build", "Build time", values)


def solve_time(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the solve time against the size of the problem."""
    for panel in numbers.sizes:
        values = [(point, point.solve, point.at_limit > 0) for point in panel.points]
        yield _growth(numbers, panel, "solve", "Solve time", values)


def _growth(
    numbers: ReportContents,
    panel: SizePanel,
    phase: str,
    title: str,
    values: Iterable[tuple[SizePoint, Spread | None, bool]],
) -> Plot:
    """Return a plot of times against size; `values` holds (point, its time, whether its mark is hollow)."""
    exponents = {fit.solver: f" ∝ {panel.axis}^{fit.exponent:z.1f}" for fit in panel.fits if fit.what == phase}
    timed = [value for value in values if value[1] is not None]
    series = []
    for solver, group in itertools.groupby(timed, key=lambda value: value[0].solver):
        points, spreads, hollow = zip(*group, strict=True)
        notes = [f"{point.runs} runs, {point.at_limit} at the time limit" for point in points]
        name, x = f"{solver}{exponents.get(solver, '')}", [point.size for point in points]
        series.append(Series(name, x, *_columns(spreads), hollow, notes, solver=solver))
    sizes = tuple(sorted({point.size for point in panel.points}))
    return Plot(
        *(phase, "time", title, Axis("patterns p" if panel.axis == "p" else "m", "log", ticks=sizes), _SECONDS),
        tuple(series),
        note=_note(
            numbers,
            f"{panel.variant}, {panel.at}. Medians, bars: minimum to maximum; hollow: some runs at the time limit.",
        ),
        choices=((_GROWTH, f"{panel.variant}, {panel.at}"),),
    )


def anytime(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the margin of the best point so far against time."""
    for panel in numbers.anytime:
        series = _steps(panel.curves, panel.seconds)
        title, y = "Fraction of the best known margin against time", Axis("fraction", min=0, max=1, percent=True)
        loads = "all loads"
        if panel.load is not None:
            loads = f"load {panel.load:g}"
            title, y = f"κ̄ against time, {loads}", Axis("κ̄", min=0)
            ends = [*panel.seconds[:1], *panel.seconds[-1:]]
            series += (Series("best known", ends, [panel.best] * len(ends), kind="curve"),)
        problems = "1 problem" if panel.problems == 1 else f"{panel.problems} problems"
        yield Plot(
            *("anytime", "anytime", title, _SECONDS, y, series),
            note=_note(numbers, f"{panel.variant}, m = {panel.m}, {problems}."),
            choices=((_ANYTIME, f"{panel.variant}, m = {panel.m}, {loads}"),),
            is_wide=True,
        )


# --- profiles ---


def performance(numbers: ReportContents) -> Iterator[Plot]:
    """Yield performance profiles of all solvers, and of each pair."""
    for profile in filter(_is_reached, numbers.profiles):
        views: list[tuple[str, str, Curves]] = [(_ALL, "all solvers", profile.all)]
        for pair in profile.pairs:
            shares = {pair.first: pair.first_shares, pair.second: pair.second_shares}
            views.append((_pair_name(pair), f"{_pair_name(pair)} only", shares))
        for option, shown, curves in views:
            title, series = f"Performance profile, {shown}", _steps(curves, profile.ratios)
            choices = ((_TARGET, _target(profile)), (_PAIR, option))
            note = _note(numbers, f"Target: {_target(profile)}.")
            yield Plot("performance", "profiles", title, _RATIO, _FRACTION, series, note=note, choices=choices)


def data(numbers: ReportContents) -> Iterator[Plot]:
    """Yield data profiles of all solvers, and of each pair."""
    for profile in filter(_is_reached, numbers.profiles):
        views: list[tuple[str, Curves]] = [(_ALL, profile.data)]
        for pair in profile.pairs:
            views.append((_pair_name(pair), {name: profile.data[name] for name in (pair.first, pair.second)}))
        for option, curves in views:
            series, note = _steps(curves, profile.budgets), _note(numbers, f"Target: {_target(profile)}.")
            choices = ((_TARGET, _target(profile)), (_PAIR, option))
            yield Plot("data", "profiles", "Data profile", _SECONDS, _FRACTION, series, note=note, choices=choices)


def general_data(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the data profile on general QCQPs."""
    for profile in numbers.general.profiles:
        title, x = "Data profile, general QCQPs", Axis("seconds, with restarts until success", "log")
        series, note = _steps(profile.data, profile.budgets), _general_note(numbers)
        yield Plot("general-data", "general", title, x, _FRACTION, series, note=note)


def general_performance(numbers: ReportContents) -> Iterator[Plot]:
    """Yield the performance profile on general QCQPs."""
    for profile in filter(_is_reached, numbers.general.profiles):
        title, series = "Performance profile, general QCQPs", _steps(profile.all, profile.ratios)
        note = _general_note(numbers)
        yield Plot("general-performance", "general", title, _RATIO, _FRACTION, series, note=note)


def _steps(curves: Curves, levels: Sequence[float]) -> tuple[Series, ...]:
    return tuple(Series(name, levels, values, kind="steps", solver=name) for name, values in curves.items())


def _is_reached(profile: Profile) -> bool:
    return bool(profile.budgets)


def _target(profile: Profile) -> str:
    return f"{profile.quality * 100:.0f} % of the best known margin"


def _pair_name(pair: PairProfile) -> str:
    return f"{pair.first} and {pair.second}"


def _general_note(numbers: ReportContents) -> str:
    target = "Target: the best known value to within 0.0001·max(0.01, |best known|)."
    return f"{target} Limits: {numbers.general.limits}."


_A_LOAD = "tasks with a number of inputs m and a load, and a feasible point"
_A_VALUE = "a solver that reaches a best known value"
PLOTS: tuple[Figure, ...] = (
    Figure(capacity, "margins against load", _A_LOAD),
    Figure(positive, "positive margins", _A_LOAD),
    Figure(gap_to_best, "gaps to the best known margins", _A_LOAD),
    Figure(gap_to_bound, "optimality gaps", f"{_A_LOAD}, and proved upper bounds"),
    Figure(accuracy, "accuracy against the gap", ""),
    Figure(build_time, "build times", "tasks of two sizes"),
    Figure(solve_time, "solve times", "tasks of two sizes"),
    Figure(anytime, "margins against time", "tasks with a load whose best known margin is positive"),
    Figure(performance, "performance profiles", "a solver that reaches 90 % of a best known margin"),
    Figure(data, "data profiles", "a solver that reaches 90 % of a best known margin"),
    Figure(general_data, "data profiles of general QCQPs", _A_VALUE, is_general=True),
    Figure(general_performance, "performance profiles of general QCQPs", _A_VALUE, is_general=True),
)
