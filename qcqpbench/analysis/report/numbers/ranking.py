"""Order of the solvers by quality: mean gaps, ranks with intervals over problems, and the lead of the best solver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qcqpbench.analysis import metrics
from qcqpbench.analysis.intervals import Array, Interval, mean_interval, rank_intervals
from qcqpbench.analysis.rows import family_of

from .facts import Facts, scores_of

# A problem without a point counts with this gap, and so does a worse point: 100 %.
MAX_GAP = 1.0
# More groups of problems would make the table too wide.
_MAX_GROUPS = 4


@dataclass(frozen=True)
class RankedSolver:
    """Quality of one solver.

    Attributes
    ----------
    solver
        Label of the solver.
    rank, interval
        Rank by mean gap, where 1 is the best, and its interval over problems; None for too few problems.
    gap
        Mean gap of the best start over all problems, at most MAX_GAP each; the gap of a problem without a point, or
        that the solver was not run on, is MAX_GAP.
    gaps
        The same mean over each of `Ranking.groups`; None if the solver was run on no problem of the group.
    reached
        Number of problems whose best known value the solver reaches.
    """

    solver: str
    rank: int
    interval: Interval | None
    gap: float
    gaps: tuple[float | None, ...]
    reached: int


@dataclass(frozen=True)
class Lead:
    """Difference between the mean gaps of the best solver and of the next one, with its interval over problems."""

    next: str
    difference: float
    interval: Interval | None


@dataclass(frozen=True)
class Ranking:
    """Solvers from the best to the worst.

    Attributes
    ----------
    problems
        Number of problems.
    groups
        Names of the groups of problems, such as "m = 20"; empty if there is one group, or too many.
    solvers
        The solvers.
    lead
        Lead of the best solver; None if all solvers share the first rank.
    """

    problems: int
    groups: tuple[str, ...]
    solvers: tuple[RankedSolver, ...]
    lead: Lead | None


def ranking(facts: Facts, best_known: Mapping[str, float]) -> Ranking:
    """Return the order of the solvers by their gaps to the scores `best_known`, by problem id."""
    problems = [id for id in facts.problems if id in best_known]
    if not problems or not facts.solvers:
        return Ranking(len(problems), (), (), None)
    gaps = np.array([[_gap(facts, name, id, best_known[id]) for name in facts.solvers] for id in problems])
    members = _groups(facts, problems)
    ranked = [
        RankedSolver(
            solver=name,
            rank=rank,
            interval=interval,
            gap=float(column.mean()),
            gaps=tuple(_mean_of_group(facts, name, problems, column, ids) for ids in members.values()),
            reached=int((column <= metrics.SAME).sum()),
        )
        for name, column, (rank, interval) in zip(
            facts.solvers, gaps.T, rank_intervals(gaps, metrics.SAME), strict=True
        )
    ]
    ranked.sort(key=lambda line: (line.rank, line.gap, line.solver))
    columns = dict(zip(facts.solvers, gaps.T, strict=True))
    return Ranking(len(problems), tuple(members), tuple(ranked), _lead(ranked, columns))


def _gap(facts: Facts, solver: str, id: str, best_known: float) -> float:
    """Return the gap of the best start, between −MAX_GAP and MAX_GAP, which is that of a missing point."""
    scores = scores_of(facts.runs.get((solver, id), ()))
    return min(MAX_GAP, max(-MAX_GAP, metrics.gap(max(scores), best_known))) if scores else MAX_GAP


def _lead(ranked: Sequence[RankedSolver], columns: Mapping[str, Array]) -> Lead | None:
    first = ranked[0]
    following = next((line for line in ranked if line.rank > 1), None)
    if following is None:
        return None
    differences = columns[following.solver] - columns[first.solver]
    return Lead(following.solver, float(differences.mean()), mean_interval(differences))


def _groups(facts: Facts, problems: Sequence[str]) -> Mapping[str, list[str]]:
    """Return the ids of the problems by size if they differ in nothing else, or else by family.

    The groups are empty if there is one group, or too many.
    """
    places = {id: facts.places[id] for id in problems}
    differ_in_size = len({place.variant for place in places.values()}) == 1
    groups: dict[str, list[str]] = {}
    for id, place in sorted(places.items(), key=lambda item: (item[1].variant, item[1].m or 0)):
        groups.setdefault(f"m = {place.m}" if differ_in_size else family_of(place.variant), []).append(id)
    return groups if 2 <= len(groups) <= _MAX_GROUPS else {}


def _mean_of_group(facts: Facts, solver: str, problems: Sequence[str], gaps: Array, ids: Sequence[str]) -> float | None:
    if not facts.of(solver, ids):
        return None
    return float(np.mean([gap for id, gap in zip(problems, gaps, strict=True) if id in ids]))
