"""What rows of results say about solvers: pure functions over rows as `Store.rows` gives them.

A row may say more than the store does:

    label         what to call the solver; its spec if missing
    scope         of the solver: "bound" if it proves bounds and does not compete for margins
    variables     of a general QCQP, and `constraints`: its size
    trace         (seconds since the solver's entry, kappa_bar) of what a run on a task reported
    known_bound   of a task in the list of best known margins: its bound, which needs no belief

Everything is by score, of which more is better: κ̄ of a task, the objective of a QCQP with its sign. κ̄ is that of W with
unit rows, which violates nothing, even if the x that W was decoded from is infeasible in its QCQP. The point of a
general QCQP has a score only if it is feasible, whatever the solver claims, and if the sense is known, which old rows
lack. A problem is told by its problem_id.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qcqpbench.catalog.status import Termination
from qcqpbench.theory import margin_integral

Row = Mapping[str, Any]
Runs = dict[tuple[str, str], list[Row]]

TERMINATIONS = {str(each): each for each in Termination}
QUALITIES = (0.9, 0.95, 0.99)
PENALTIES = (1, 3)
# Two scores this close, relative to the larger, are the same.
SAME = 1e-4
# Near 0 a share of a score means nothing: shares are of this at least.
FLOOR = 0.01
# A bound is claimed in floating point, and points are feasible to a tolerance.
_SLACK = 1e-5


def meaning(termination: str) -> str:
    """Return what a termination means; the word itself if it is one of a newer version."""
    known = TERMINATIONS.get(termination)
    return termination if known is None else known.message


def label(row: Row) -> str:
    return str(row.get("label", row["solver"]))


def sign(row: Row) -> float | None:
    """What makes a value of the row a score: −1 where less is better, None where the row does not say it."""
    return 1.0 if row["kappa_bar"] is not None else {"maximize": 1.0, "minimize": -1.0}.get(row["sense"])


def value(row: Row) -> float | None:
    """Return κ̄, or the objective of a feasible point; None for every other run, and if it is not finite."""
    if row["kappa_bar"] is not None:
        return float(row["kappa_bar"]) if _is_finite(row["kappa_bar"]) else None
    return float(row["objective"]) if row["point_status"] == "feasible" and _is_finite(row["objective"]) else None


def _is_finite(number: float | None) -> bool:
    return number is not None and math.isfinite(number)


def score(row: Row) -> float | None:
    """The value with its sign."""
    found, turn = value(row), sign(row)
    return None if found is None or turn is None else turn * found


def is_solved(row: Row) -> bool:
    """Return whether a run gave a feasible point, on a task one with a positive margin."""
    return value(row) is not None and (row["margin"] is None or row["margin"] > 0)


def was_run(row: Row) -> bool:
    """False if the solver could not run where it was tried."""
    return bool(row["termination"] != "skipped")


def competes(row: Row) -> bool:
    """The solver was run, and is after good points rather than bounds."""
    return was_run(row) and row.get("scope") != "bound"


def general(rows: Iterable[Row]) -> set[str]:
    """The problems that are no max-margin tasks: rows give their sense, or an objective, and never a margin."""
    found, tasks = set(), set()
    for row in rows:
        if row["margin"] is not None:
            tasks.add(row["problem_id"])
        elif row["sense"] or row["objective"] is not None:
            found.add(row["problem_id"])
    return found - tasks


def group(rows: Iterable[Row]) -> Runs:
    """The rows that were run, by (solver, problem), in the order of their starts."""
    found: Runs = defaultdict(list)
    for row in rows:
        if was_run(row):
            found[label(row), row["problem_id"]].append(row)
    return {key: sorted(each, key=lambda row: (row["seed"], row["start"])) for key, each in found.items()}


def best_known(rows: Sequence[Row]) -> dict[str, float]:
    """The best score of any row, or the published one if it is better, by problem that has a score."""
    best: dict[str, float] = {}
    for row in rows:
        if (found := score(row)) is not None:
            best[row["problem_id"]] = max(found, best.get(row["problem_id"], -math.inf))
    to_score = units(rows)
    for row in rows:
        id, published = row["problem_id"], row.get("best_known")
        if published is not None and id in best and id in to_score:
            best[id] = max(best[id], to_score[id] * float(published))
    return best


def gap(value: float, best: float, floor: float = FLOOR) -> float:
    """How far a score is below another, relative to the other, or to the floor if that is more."""
    return (best - value) / max(abs(best), floor)


def scales(rows: Iterable[Row]) -> dict[str, float]:
    """κ̄ of a margin of 1, by task."""
    return {
        row["problem_id"]: row["kappa_bar"] / row["margin"]
        for row in rows
        if row["kappa_bar"] and row["margin"] and _is_finite(row["kappa_bar"]) and _is_finite(row["margin"])
    }


def units(rows: Sequence[Row]) -> dict[str, float]:
    """What makes a margin or an objective a score, by problem; bounds and published values are such."""
    plain = {
        row["problem_id"]: turn
        for row in rows
        if row["kappa_bar"] is None and value(row) is not None and (turn := sign(row)) is not None
    }
    return plain | scales(rows)


@dataclass(frozen=True)
class Bounds:
    """Of those that no point refutes, the smallest bound on the score, by problem: of any solver, and of each.

    refuted   rows whose bound is below the best known score
    """

    least: dict[str, float]
    of_solvers: dict[str, dict[str, float]]
    refuted: list[Row]


def bounds(rows: Sequence[Row], best: Mapping[str, float]) -> Bounds:
    """What the list of best known margins has, and what solvers claim to have proved, as far as no point is better.
    A bound needs no point of its own."""
    to_score = units(rows)
    least: dict[str, float] = {}
    of_solvers: dict[str, dict[str, float]] = defaultdict(dict)
    refuted = []
    for row in rows:
        id = row["problem_id"]
        if id not in best or id not in to_score:
            continue
        if row.get("known_bound") is not None:
            least[id] = min(to_score[id] * float(row["known_bound"]), least.get(id, math.inf))
        if not _is_finite(row["bound"]):
            continue
        bound = to_score[id] * float(row["bound"])
        if bound < best[id] and gap(bound, best[id]) > _SLACK:
            refuted.append(row)
        else:
            for known in (least, of_solvers[label(row)]):
                known[id] = min(bound, known.get(id, math.inf))
    return Bounds(least, dict(of_solvers), refuted)


def is_false_claim(row: Row, best: Mapping[str, float], solved: Container[str]) -> bool:
    """The solver claims a solution, and its point is none; or optimality, or infeasibility, and a point refutes it.

    best     the best score by problem
    solved   the problems that some run solved
    """
    claim, own, id = TERMINATIONS.get(row["termination"]), score(row), row["problem_id"]
    if claim is Termination.INFEASIBLE:
        return id in solved
    if claim is Termination.OPTIMAL and own is not None:
        return gap(own, best[id]) > SAME
    return claim is not None and claim.claims_a_solution and value(row) is None


# --- time ---


def target(best: float, quality: float) -> float:
    """The score that counts as that share of the best one: best − (1 − quality)·max(|best|, FLOOR)."""
    return best - (1 - quality) * max(abs(best), FLOOR)


def seconds(row: Row) -> float:
    """Build and solve; the time limit where a killed run has no time of its own."""
    solve = row["solve_seconds"]
    return float(row["build_seconds"] or 0) + float((limit(row) if solve is None else solve) or 0)


def limit(row: Row) -> float | None:
    return None if row["time_limit"] is None or math.isinf(row["time_limit"]) else float(row["time_limit"])


def limits_of(rows: Iterable[Row]) -> dict[str, float]:
    """The largest time limit of any run on a problem, by problem; without a limit, the longest time of any."""
    found: dict[str, float] = defaultdict(float)
    for row in rows:
        found[row["problem_id"]] = max(found[row["problem_id"]], limit(row) or seconds(row))
    return dict(found)


def seconds_to(row: Row, wanted: float) -> float:
    """Until the run had a score, build included: when it first reported one, or else at its end.

    Infinite if the point that it returned does not have the score.
    """
    final = score(row)
    if final is None or final < wanted:
        return math.inf
    reported = [at for at, value in row.get("trace") or () if value >= wanted]
    end = seconds(row)
    return min(end, float(row["build_seconds"] or 0) + reported[0]) if reported else end


def expected_seconds(runs: Sequence[Row], wanted: float) -> float:
    """The time all runs took until the score or their end, over the number of runs that have it.

    The expected time of restarts until success; infinite if no run succeeds.
    """
    times = [seconds_to(row, wanted) for row in runs]
    hits = sum(map(math.isfinite, times))
    spent = sum(time if math.isfinite(time) else seconds(row) for time, row in zip(times, runs, strict=True))
    return spent / hits if hits else math.inf


def penalized_seconds(runs: Sequence[Row], wanted: float, most: float, penalty: float) -> float:
    """The mean time until the score, where a run that fails counts penalty × its limit; no run at all is a failure.

    most   the limit where a run has none
    """
    times = [seconds_to(row, wanted) for row in runs]
    failed = [penalty * (limit(row) or most) for row in runs] or [penalty * most]
    values = [time if math.isfinite(time) else fail for time, fail in zip(times or [math.inf], failed, strict=True)]
    return statistics.fmean(values)


def restart_seconds(runs: Sequence[Row], wanted: float, most: float, penalty: float) -> float:
    """The expected time of restarts until success, at most penalty × the limit, which is also what failure counts."""
    own = max((limit(row) or most for row in runs), default=most)
    return min(expected_seconds(runs, wanted), penalty * own)


def shifted_geometric_mean(values: Sequence[float], shift: float) -> float:
    """exp(mean(log(value + shift))) − shift."""
    return math.exp(statistics.fmean(math.log(value + shift) for value in values)) - shift


def fitting_shift(values: Iterable[float]) -> float:
    """The power of ten nearest to the median of the finite values; 1 if there is none."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    return 10.0 ** round(math.log10(statistics.median(finite))) if finite else 1.0


@dataclass(frozen=True)
class Growth:
    """seconds ≈ coefficient · size^exponent, from `sizes` different sizes."""

    exponent: float
    coefficient: float
    sizes: int


def growth(sizes: Sequence[float], times: Sequence[float]) -> Growth | None:
    """A straight line through the logarithms, by least squares; None with fewer than three sizes."""
    pairs = [(size, time) for size, time in zip(sizes, times, strict=True) if size > 0 and time > 0]
    distinct = len({size for size, _ in pairs})
    if distinct < 3:
        return None
    x, y = np.log(np.array(pairs)).T
    exponent = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    return Growth(exponent, math.exp(float(y.mean() - exponent * x.mean())), distinct)


def quality_at(runs: Sequence[Row], best: float, times: Sequence[float]) -> list[float]:
    """The share of the best known score that runs have at some times, on average; what has no point yet has 0.

    Of a trace only what a run reported before its end, if it ended with a feasible point. best > 0.
    """
    total = np.zeros(len(times))
    for row in runs:
        if (final := score(row)) is None:
            continue
        build = float(row["build_seconds"] or 0)
        events = sorted([*((build + at, value) for at, value in row.get("trace") or ()), (seconds(row), final)])
        at, values = np.array(events).T
        so_far = np.concatenate([[0.0], np.maximum.accumulate(np.maximum(values, 0.0))])
        total += so_far[np.searchsorted(at, times, "right")] / best
    return [float(value) for value in total / max(1, len(runs))]


# --- profiles ---

Times = Mapping[str, Mapping[str, float]]


def performance_profile(times: Times, problems: Sequence[str], ratios: Sequence[float]) -> dict[str, list[float]]:
    """Per solver, the share of the problems on which its time is within each ratio of the least time of any solver.

    A time that is missing is infinite, and problems that nobody solves stay in the denominator.
    """
    least = {id: min((own.get(id, math.inf) for own in times.values()), default=math.inf) for id in problems}

    def ratio(own: Mapping[str, float], id: str) -> float:
        time = own.get(id, math.inf)
        return time / max(least[id], 1e-9) if math.isfinite(time) else math.inf

    return {name: _shares([ratio(own, id) for id in problems], ratios) for name, own in times.items()}


def data_profile(times: Times, problems: Sequence[str], budgets: Sequence[float]) -> dict[str, list[float]]:
    """Per solver, the share of the problems that it solves within each budget of seconds."""
    return {name: _shares([own.get(id, math.inf) for id in problems], budgets) for name, own in times.items()}


def _shares(values: Sequence[float], levels: Sequence[float]) -> list[float]:
    ordered = np.sort(np.array(values, dtype=float))
    # What is on the level counts, also after rounding.
    return [float(np.searchsorted(ordered, level * (1 + 1e-12), "right") / max(1, len(values))) for level in levels]


# --- theory ---


def theory_curve(loads: Sequence[float], kappa_bars: Sequence[float], points: int = 80) -> list[tuple[float, float]]:
    """(load, κ̄) of the curve on which predictions lie, from a bit below the least load to a bit above the largest.

    In every replica-symmetric theory here load · I(κ̄) is the same at all loads, see `theory`.
    """
    if not loads:
        return []
    constants = np.asarray(loads) * margin_integral(kappa_bars)
    if np.ptp(constants) > 1e-6 * constants.max():
        return []
    low, high = min(loads) * 0.8, max(loads) * 1.1
    wanted = constants[0] / np.geomspace(low, high, points)
    # I grows with κ̄: its inverse by interpolation in logarithms.
    grid = np.linspace(-6, 2 + math.sqrt(wanted.max()), 20_000)
    found = np.interp(np.log(wanted), np.log(margin_integral(grid)), grid)
    return [(float(x), float(y)) for x, y in zip(constants[0] / wanted, found, strict=True)]
