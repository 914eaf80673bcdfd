"""Comparison of solvers with the best known values of general QCQPs in a report.

The best known value of a problem is the published one, or the best of all rows if none is published. The gap of a
feasible point is the difference between its objective and the best known value, relative to max(0.01, |best known|).
The gap is negative if the point is better.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qcqpbench.analysis import metrics
from qcqpbench.analysis.metrics import PENALTIES, SAME
from qcqpbench.analysis.profiles import Profile, profile
from qcqpbench.analysis.rows import ReportRow, family_of

from .facts import Facts, limits, limits_of_solvers, median, scores_of
from .ranking import Ranking, ranking


@dataclass(frozen=True)
class GeneralProblem:
    """Results of all solvers on one problem.

    Attributes
    ----------
    problem, variables, constraints, sense
        Label, size and sense of the problem; the size is None if the problem cannot be loaded.
    published, found, bound, theory
        The published value, the best objective of any run, the tightest proved bound, and the prediction of theory.
    gap, relative_gap
        Gap between `found` and the best known value, negative if `found` is better.
    record
        Whether a run improves the published value.
    solvers
        Labels of the solvers within a relative gap of 1e-4 of `found`.
    there, feasible, runs
        Number of runs at the best known value, of runs with a feasible point, and of all runs.
    violation, relative_violation
        Violation of the best point, or of the least infeasible one if no point is feasible.
    median
        Median seconds of a run.
    """

    problem: str
    variables: int | None
    constraints: int | None
    sense: str | None
    published: float | None
    found: float | None
    gap: float | None
    relative_gap: float | None
    record: bool
    solvers: tuple[str, ...]
    there: int
    feasible: int
    runs: int
    violation: float | None
    relative_violation: float | None
    bound: float | None
    theory: float | None
    median: float | None


@dataclass(frozen=True)
class GeneralSolver:
    """Results of one solver on all problems.

    Attributes
    ----------
    solver
        Label of the solver.
    problems, missing, starts, runs
        Number of problems with runs, of problems without runs, of starts per problem at most, and of runs.
    feasible, there
        Number of runs with a feasible point, and of runs at the best known value.
    reached, better, no_point
        Number of problems at the best known value, with a better value than the published one, and without a point.
    gap_median, gap_max
        Median and largest gap of the best start to the best known value; the median is None if it is infinite.
    median, restarts
        Median seconds of a run, and shifted geometric mean of the expected seconds of restarts until success.
    false_claims
        Number of false claims.
    """

    solver: str
    problems: int
    missing: int
    starts: int
    runs: int
    feasible: int
    there: int
    reached: int
    better: int
    no_point: int
    gap_median: float | None
    gap_max: float | None
    median: float
    restarts: float | None
    false_claims: int


@dataclass(frozen=True)
class GeneralContents:
    """Part of a report about general QCQPs.

    Attributes
    ----------
    problems, ranking, summary, families
        One line per problem, the order of the solvers, one line per solver in this order, and those of each family
        alone, by its name; `families` is empty if all problems are of one family.
    shift
        Shift of the geometric means in seconds.
    limits, limits_of_solvers
        Limits of the runs in words, of all solvers together and by solver.
    profiles
        Profiles of the times to the best known values; empty without solvers.
    """

    problems: tuple[GeneralProblem, ...]
    ranking: Ranking
    summary: tuple[GeneralSolver, ...]
    families: Mapping[str, tuple[GeneralSolver, ...]]
    shift: float
    limits: str
    limits_of_solvers: Mapping[str, str]
    profiles: tuple[Profile, ...]


def general_problems(facts: Facts) -> GeneralContents:
    """Return the numbers of general QCQPs: one line per problem, one line per solver, and profiles of the solvers."""
    best_known = _best_known(facts)
    order = ranking(facts, best_known)
    facts.order_solvers(line.solver for line in order.solvers)
    targets = {id: metrics.target(best_known[id], 1 - SAME) if id in best_known else math.inf for id in facts.problems}
    times = {
        name: {id: metrics.expected_seconds(rows, targets[id]) for id, rows in facts.of(name, facts.problems).items()}
        for name in facts.solvers
    }
    shift = metrics.fitting_shift(time for by_problem in times.values() for time in by_problem.values())
    return GeneralContents(
        problems=tuple(_problem(facts, id, best_known.get(id)) for id in facts.problems),
        ranking=order,
        summary=tuple(_solver(facts, name, facts.problems, best_known, targets, shift) for name in facts.solvers),
        families=_families(facts, best_known, targets, shift),
        shift=shift,
        limits=limits(facts.rows),
        limits_of_solvers=limits_of_solvers(facts),
        profiles=(profile(1 - SAME, times, facts.problems),) if facts.solvers else (),
    )


def relative_gap(score: float, best_known: float) -> float:
    """Return (best_known − score) / max(0.01, |best_known|)."""
    return metrics.gap(score, best_known)


def _best_known(facts: Facts) -> dict[str, float]:
    """Return the published score by problem, or the best score of any row if none is published."""
    published = {
        row.problem_id: sign * row.best_known
        for row in facts.rows
        if row.best_known is not None and (sign := metrics.sign(row)) is not None
    }
    return facts.best | published


def _problem(facts: Facts, id: str, best_known: float | None) -> GeneralProblem:
    rows = [row for row in facts.rows if row.problem_id == id and metrics.was_run(row)]
    described = next(row for row in facts.rows if row.problem_id == id and row.sense)
    sign = metrics.sign(described) or 0.0
    best = min((row for row in rows if row.relative_violation is not None), key=_rank, default=None)
    score = None if best is None else metrics.score(best)
    gaps = [relative_gap(value, best_known) for value in scores_of(rows)] if best_known is not None else []
    bound = facts.bounds.least.get(id)
    is_published = described.best_known is not None and best_known is not None
    return GeneralProblem(
        problem=described.problem_label,
        variables=described.variables,
        constraints=described.constraints,
        sense=described.sense,
        published=described.best_known,
        found=None if score is None else sign * score,
        gap=None if score is None or best_known is None else best_known - score,
        relative_gap=None if score is None or best_known is None else relative_gap(score, best_known),
        record=is_published and any(_improves(row, best_known) for row in rows),
        solvers=() if score is None else _solvers_reaching(score, rows),
        there=sum(gap <= SAME for gap in gaps),
        feasible=len(gaps),
        runs=len(rows),
        violation=None if best is None else best.violation,
        relative_violation=None if best is None else best.relative_violation,
        bound=None if bound is None else sign * bound,
        theory=described.objective_theory,
        median=statistics.median(map(metrics.seconds, rows)) if rows else None,
    )


def _solvers_reaching(score: float, rows: Sequence[ReportRow]) -> tuple[str, ...]:
    """Return the labels of the solvers with a run within a relative gap SAME of `score`, in the order of the rows."""
    scores = [(row.label, metrics.score(row)) for row in rows]
    near = [name for name, value in scores if value is not None and relative_gap(value, score) <= SAME]
    return tuple(dict.fromkeys(near))


def _improves(row: ReportRow, best_known: float | None) -> bool:
    """Return whether the score of a run is better than `best_known` by a relative gap of more than SAME."""
    score = metrics.score(row)
    return score is not None and best_known is not None and relative_gap(score, best_known) < -SAME


def _rank(row: ReportRow) -> tuple[float, float]:
    """Return a sort key: feasible points by decreasing score, then infeasible points by increasing violation."""
    score = metrics.score(row)
    return (0.0, -score) if score is not None else (1.0, row.relative_violation or 0.0)


def _families(
    facts: Facts, best_known: Mapping[str, float], targets: Mapping[str, float], shift: float
) -> dict[str, tuple[GeneralSolver, ...]]:
    """Return the lines of the solvers on the problems of each family; empty if there is only one family."""
    ids: dict[str, list[str]] = defaultdict(list)
    for row in {row.problem_id: row for row in facts.rows}.values():
        ids[family_of(row.problem)].append(row.problem_id)
    return {
        family: tuple(
            _solver(facts, name, ids[family], best_known, targets, shift)
            for name in facts.solvers
            if facts.of(name, ids[family])
        )
        for family in (sorted(ids) if len(ids) > 1 else ())
    }


def _solver(
    facts: Facts,
    name: str,
    problems: Sequence[str],
    best_known: Mapping[str, float],
    targets: Mapping[str, float],
    shift: float,
) -> GeneralSolver:
    runs = facts.of(name, problems)
    rows = [row for group in runs.values() for row in group]
    gaps = {id: relative_gap(max(scores), best_known[id]) for id, group in runs.items() if (scores := scores_of(group))}
    published = {row.problem_id for row in rows if row.best_known is not None}
    restarts = [
        metrics.restart_seconds(runs.get(id, ()), targets[id], facts.limits[id], PENALTIES[-1])
        for id in problems
        if id in facts.limits
    ]
    return GeneralSolver(
        solver=name,
        problems=len(runs),
        missing=len(problems) - len(runs),
        starts=max(map(len, runs.values())),
        runs=len(rows),
        feasible=len(scores_of(rows)),
        there=sum(math.isfinite(metrics.seconds_to(row, targets[row.problem_id])) for row in rows),
        reached=sum(gap <= SAME for gap in gaps.values()),
        better=sum(any(_improves(row, best_known[id]) for row in runs[id]) for id in published & gaps.keys()),
        no_point=len(runs) - len(gaps),
        gap_median=median(list(gaps.values()), len(runs)),
        gap_max=max(gaps.values(), default=None),
        median=statistics.median(map(metrics.seconds, rows)),
        restarts=metrics.shifted_geometric_mean(restarts, shift) if restarts else None,
        false_claims=sum(map(facts.is_false, rows)),
    )
