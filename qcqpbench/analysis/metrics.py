"""Metrics of solvers: pure functions of the rows of results files.

All metrics use scores, for which larger is better: κ̄ of a max-margin task, the signed objective of a general QCQP.
κ̄ is computed from W with rows scaled to unit length. This W satisfies the constraints of the task even if the point x
that W was decoded from is infeasible in its QCQP. A point of a general QCQP has a score only if the sense is known
(old rows lack it) and the point is feasible, both to the tolerance of its run and to 1e-6, so that runs with different
tolerances can be compared. Problems are identified by `problem_id`.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from qcqpbench import theory
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.problem.metadata import relative_gap
from qcqpbench.results.row import Row
from qcqpbench.run.attempt import RunValues
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE

from .rows import AnalysisRow

R = TypeVar("R", bound=AnalysisRow)

QUALITIES = (0.9, 0.95, 0.99)
PENALTIES = (1, 3)
# Scores with a relative gap of at most this are considered equal.
SAME = 1e-4
# Smallest denominator of relative gaps, because relative to a score near 0 every difference is large.
FLOOR = 0.01
# Bounds are computed in floating point, and points are feasible only to a tolerance.
_BOUND_TOLERANCE = 1e-5
# A score with at most this gap to a bound is proved optimal.
PROVED_GAP = SAME + _BOUND_TOLERANCE
_MIN_LEAST_SECONDS = 1e-9
_LEVEL_ROUNDING = 1e-12
# Full RSB is tabulated at these margins and little beyond; elsewhere it takes seconds per load.
_CURVE_MARGINS: Mapping[object, tuple[float, float]] = {0: (-6.0, 1000.0), "full": (-2.499, 19.9)}
_THEORIES = {"classical_perceptron": (theory.classical_capacity, theory.classical_kappa_bar)}


def sign(row: RunValues) -> float | None:
    """Return +1 for maximization, −1 for minimization, None if the sense is unknown."""
    return 1.0 if row.kappa_bar is not None else {"maximize": 1.0, "minimize": -1.0}.get(row.sense or "")


def value(row: RunValues) -> float | None:
    """Return κ̄ of a task, or the objective of a point feasible to 1e-6; None if there is none or it is not finite."""
    violation = row.relative_violation
    refused = row.kappa_bar is None and violation is not None and violation > FEASIBILITY_TOLERANCE
    return None if refused else _value_by_own_tolerance(row)


def _value_by_own_tolerance(row: RunValues) -> float | None:
    """Return κ̄ of a task, or the objective of a point feasible to the tolerance of its run; None if not finite."""
    is_valid = row.kappa_bar is not None or row.point_status is PointStatus.FEASIBLE
    number = row.objective if row.kappa_bar is None else row.kappa_bar
    return number if is_valid and number is not None and math.isfinite(number) else None


def score(row: RunValues) -> float | None:
    """Return the value times its sign, so that larger is better; None if the value or the sense is unknown."""
    row_value, row_sign = value(row), sign(row)
    return None if row_value is None or row_sign is None else row_sign * row_value


def is_solved(row: RunValues) -> bool:
    """Return whether a run returned a feasible point and, on a task, a positive margin."""
    return value(row) is not None and (row.margin is None or row.margin > 0)


def was_run(row: Row) -> bool:
    """Return whether the solver was run; False if it was skipped because it cannot run on the machine."""
    return row.termination is not Termination.SKIPPED


def competes(row: Row) -> bool:
    """Return whether the solver was run and searches for points rather than bounds."""
    return was_run(row) and row.scope is not Scope.BOUND


def general(rows: Iterable[Row]) -> set[str]:
    """Return the ids of general QCQPs: problems with a sense or an objective in some row and a margin in none."""
    candidates, tasks = set(), set()
    for row in rows:
        if row.margin is not None:
            tasks.add(row.problem_id)
        elif row.sense or row.objective is not None:
            candidates.add(row.problem_id)
    return candidates - tasks


def group(rows: Iterable[R]) -> dict[tuple[str, str], list[R]]:
    """Group the rows that were run by (solver label, problem id), each group sorted by seed and start."""
    runs: dict[tuple[str, str], list[R]] = defaultdict(list)
    for row in rows:
        if was_run(row):
            runs[row.label, row.problem_id].append(row)
    return {key: sorted(group, key=lambda row: (row.start_seed, row.start)) for key, group in runs.items()}


def best_known(rows: Sequence[Row]) -> dict[str, float]:
    """Return the best known score by problem: the best score of any row, or the published one if it is larger."""
    best: dict[str, float] = {}
    for row in rows:
        if (row_score := score(row)) is not None:
            best[row.problem_id] = max(row_score, best.get(row.problem_id, -math.inf))
    to_score = units(rows)
    for row in rows:
        id, published = row.problem_id, row.best_known
        if published is not None and id in best and id in to_score:
            best[id] = max(best[id], to_score[id] * published)
    return best


def gap(value: float, best: float, floor: float = FLOOR) -> float:
    """Return (best − value) / max(|best|, floor), the gap from the score `value` to the score `best`."""
    return relative_gap(value, best, floor)


def scales(rows: Iterable[Row]) -> dict[str, float]:
    """Return κ̄/κ, the factor that converts a margin to κ̄, by problem id of the tasks with a nonzero finite margin."""
    return {
        row.problem_id: row.kappa_bar / row.margin
        for row in rows
        if row.kappa_bar and row.margin and math.isfinite(row.kappa_bar) and math.isfinite(row.margin)
    }


def units(rows: Sequence[Row]) -> dict[str, float]:
    """Return the factor that converts a margin, an objective or a bound to a score, by problem."""
    signs = {
        row.problem_id: row_sign
        for row in rows
        if row.kappa_bar is None and value(row) is not None and (row_sign := sign(row)) is not None
    }
    return signs | scales(rows)


@dataclass(frozen=True)
class Bounds(Generic[R]):
    """Upper bounds on scores, and the rows whose bounds are refuted.

    Attributes
    ----------
    least, of_solvers
        Smallest bound by problem, of all solvers and the list of best known margins, and by solver and problem.
    refuted
        Rows whose bound is below the best known score. Their bounds are not in `least` and `of_solvers`.
    """

    least: dict[str, float]
    of_solvers: dict[str, dict[str, float]]
    refuted: list[R]


def bounds(rows: Sequence[R], best: Mapping[str, float]) -> Bounds[R]:
    """Return the bounds in the list of best known margins, and the bounds of solvers that no point refutes.

    Bounds of rows without a point count too. Problems without a score in `best` are omitted.
    """
    to_score = units(rows)
    least: dict[str, float] = {}
    of_solvers: dict[str, dict[str, float]] = defaultdict(dict)
    refuted: list[R] = []
    for row in rows:
        id = row.problem_id
        if id not in best or id not in to_score:
            continue
        if row.known_bound is not None:
            least[id] = min(to_score[id] * row.known_bound, least.get(id, math.inf))
        if row.bound is None or not math.isfinite(row.bound):
            continue
        bound = to_score[id] * row.bound
        if bound < best[id] and gap(bound, best[id]) > _BOUND_TOLERANCE:
            refuted.append(row)
        else:
            for smallest in (least, of_solvers[row.label]):
                smallest[id] = min(bound, smallest.get(id, math.inf))
    return Bounds(least, dict(of_solvers), refuted)


def is_false_claim(row: Row, best: Mapping[str, float], solved: Container[str]) -> bool:
    """Return whether the solver claims a solution without a feasible point, or a point refutes its claim.

    Parameters
    ----------
    best
        Best known score by problem. A better score than that of the row refutes a claim of optimality.
    solved
        Ids of the problems that some run solved, which refutes a claim of infeasibility.
    """
    claim, row_score, id = row.termination, score(row), row.problem_id
    if claim is Termination.INFEASIBLE:
        return id in solved
    if claim is Termination.OPTIMAL and row_score is not None:
        return gap(row_score, best[id]) > SAME
    return claim.claims_a_solution and _value_by_own_tolerance(row) is None


# --- time ---


def target(best: float, quality: float) -> float:
    """Return the score that reaches a fraction `quality` of `best`: best − (1 − quality)·max(|best|, FLOOR)."""
    return best - (1 - quality) * max(abs(best), FLOOR)


def seconds(row: Row) -> float:
    """Return the build time plus the solve time in seconds; a missing solve time counts as the time limit, or 0."""
    solve = row.solve_seconds
    return _build_seconds(row) + ((limit(row) if solve is None else solve) or 0.0)


def _build_seconds(row: Row) -> float:
    return row.build_seconds or 0.0


def _end_seconds(row: Row) -> float:
    """Return the seconds until the end of a run; infinite if it has neither a solve time nor a time limit."""
    return math.inf if row.solve_seconds is None and limit(row) is None else seconds(row)


def limit(row: Row) -> float | None:
    """Return the time limit in seconds; None if there is none."""
    return None if math.isinf(row.time_limit) else row.time_limit


def limits_of(rows: Iterable[Row]) -> dict[str, float]:
    """Return the largest time limit of any run by problem; a run without a limit counts with its own time."""
    limits: dict[str, float] = defaultdict(float)
    for row in rows:
        limits[row.problem_id] = max(limits[row.problem_id], limit(row) or seconds(row))
    return dict(limits)


def seconds_to(row: AnalysisRow, wanted: float) -> float:
    """Return the seconds, including the build time, until a run first reported a score of at least `wanted`.

    This is the end of the run if the trace has no such score, and infinite if the final score is below `wanted`.
    """
    final = score(row)
    if final is None or final < wanted:
        return math.inf
    reported = [at for at, kappa_bar in row.trace if kappa_bar >= wanted]
    end = _end_seconds(row)
    return min(end, _build_seconds(row) + reported[0]) if reported else end


def expected_seconds(runs: Sequence[AnalysisRow], wanted: float) -> float:
    """Return the expected seconds of restarts until a run reaches the score `wanted`; infinite if no run does.

    This is the total time of all runs, until they reach `wanted` or end, divided by the number that reach it.
    """
    times = [seconds_to(row, wanted) for row in runs]
    hits = sum(map(math.isfinite, times))
    spent = sum(time if math.isfinite(time) else seconds(row) for time, row in zip(times, runs, strict=True))
    return spent / hits if hits else math.inf


def penalized_seconds(runs: Sequence[AnalysisRow], wanted: float, most: float, penalty: float) -> float:
    """Return the mean seconds until runs reach the score `wanted`; a run that fails counts `penalty` times its limit.

    Runs without a time limit have the limit `most`. An empty `runs` counts as one failed run.
    """
    times = [seconds_to(row, wanted) for row in runs]
    failed = [penalty * (limit(row) or most) for row in runs] or [penalty * most]
    values = [time if math.isfinite(time) else fail for time, fail in zip(times or [math.inf], failed, strict=True)]
    return statistics.fmean(values)


def restart_seconds(runs: Sequence[AnalysisRow], wanted: float, most: float, penalty: float) -> float:
    """Return `expected_seconds`, at most `penalty` times the largest time limit; runs without a limit have `most`."""
    longest = max((limit(row) or most for row in runs), default=most)
    return min(expected_seconds(runs, wanted), penalty * longest)


def shifted_geometric_mean(values: Sequence[float], shift: float) -> float:
    """Return exp(mean(log(value + shift))) − shift."""
    return math.exp(statistics.fmean(math.log(value + shift) for value in values)) - shift


def fitting_shift(values: Iterable[float]) -> float:
    """Return the power of ten nearest to the median of the finite positive values; 1 if there are none."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    return 10.0 ** round(math.log10(statistics.median(finite))) if finite else 1.0


@dataclass(frozen=True)
class Growth:
    """Power law seconds ≈ coefficient · size^exponent, fitted to `sizes` distinct sizes."""

    exponent: float
    coefficient: float
    sizes: int


def growth(sizes: Sequence[float], times: Sequence[float]) -> Growth | None:
    """Fit a power law by least squares in logarithms; return None for fewer than three distinct sizes."""
    pairs = [(size, time) for size, time in zip(sizes, times, strict=True) if size > 0 and time > 0]
    distinct = len({size for size, _ in pairs})
    if distinct < 3:
        return None
    x, y = np.log(np.array(pairs)).T
    exponent = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return Growth(exponent, math.exp(float(y.mean() - exponent * x.mean())), distinct)


def quality_at(runs: Sequence[AnalysisRow], best: float, times: Sequence[float]) -> list[float]:
    """Return the mean score of `runs` at each of `times`, as a fraction of the score `best` > 0.

    The score of a run at a time is the largest one reported until then, at least 0. Runs that end without a point
    count as 0 at all times.
    """
    total = np.zeros(len(times))
    for row in runs:
        if (final := score(row)) is None:
            continue
        build = _build_seconds(row)
        events = [*((build + at, kappa_bar) for at, kappa_bar in row.trace), (_end_seconds(row), final)]
        at, values = np.array(sorted(events)).T
        so_far = np.concatenate([[0.0], np.maximum.accumulate(np.maximum(values, 0.0))])
        total += so_far[np.searchsorted(at, times, "right")] / best
    return [float(share) for share in total / max(1, len(runs))]


# --- profiles ---

Times = Mapping[str, Mapping[str, float]]


def performance_profile(times: Times, problems: Sequence[str], ratios: Sequence[float]) -> dict[str, list[float]]:
    """Return, by solver, the fraction of problems solved within each of `ratios` times the least time of any solver.

    `times` are seconds by solver and problem id; missing ones are infinite. Problems that no solver solves count in the
    denominator.
    """
    least = {id: min((column.get(id, math.inf) for column in times.values()), default=math.inf) for id in problems}

    def ratio(solver_times: Mapping[str, float], id: str) -> float:
        time = solver_times.get(id, math.inf)
        return time / max(least[id], _MIN_LEAST_SECONDS) if math.isfinite(time) else math.inf

    return {name: _shares([ratio(solver_times, id) for id in problems], ratios) for name, solver_times in times.items()}


def data_profile(times: Times, problems: Sequence[str], budgets: Sequence[float]) -> dict[str, list[float]]:
    """Return, by solver, the fraction of problems solved within each of `budgets` seconds."""
    return {
        name: _shares([solver_times.get(id, math.inf) for id in problems], budgets)
        for name, solver_times in times.items()
    }


def _shares(values: Sequence[float], levels: Sequence[float]) -> list[float]:
    """Return the fraction of values that are at most each level, up to rounding error."""
    ordered = np.sort(np.array(values, dtype=float))
    places = [np.searchsorted(ordered, level * (1 + _LEVEL_ROUNDING), "right") for level in levels]
    return [float(place / max(1, len(values))) for place in places]


# --- theory ---


def theory_curve(
    family: str, predictions: Mapping[float, float], rsb: Literal[0, "full"], points: int = 80
) -> list[tuple[float, float]]:
    """Return pairs (load, κ̄) on the curve of a theory, from 0.8 times the least to 1.1 times the largest load.

    In theory the number of patterns at a margin is the load times a constant, which depends on the number of outputs.
    If the given predictions do not satisfy this, or a margin is far out of the usual range, the pairs are the
    predictions.

    Parameters
    ----------
    family
        Name of the family of the problems: classical_perceptron, or any other for covariances.
    predictions
        Predicted κ̄ by load.
    rsb
        The theory: 0 for replica symmetry, "full" for full RSB.
    points
        Number of pairs on the curve.
    """
    least, largest = _CURVE_MARGINS[rsb]
    loads, kappa_bars = np.array(list(predictions)), np.array(list(predictions.values()))
    if predictions and least < kappa_bars.min() and kappa_bars.max() < largest:
        capacity, margin = _THEORIES.get(family, (theory.covariance_capacity, theory.covariance_kappa_bar))
        factors = capacity(kappa_bars, 1, rsb=rsb) / loads
        if np.ptp(factors) <= 1e-6 * factors.max():
            low, high = capacity(np.array([largest, least]), 1, rsb=rsb) / factors[0]
            grid = np.geomspace(max(low, loads.min() * 0.8), min(high, loads.max() * 1.1), points)
            curve = margin(grid * factors[0], 1, rsb=rsb)
            return list(zip(grid.tolist(), curve.tolist(), strict=True))
    return sorted(predictions.items())
