"""Accuracy of recordings: share of the held-out trials that the network of a run classifies correctly."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from qcqpbench.analysis import metrics
from qcqpbench.analysis.rows import ReportRow

from .facts import Facts, Spread


@dataclass(frozen=True)
class Accuracy:
    """Accuracies of one solver on one recording.

    Attributes
    ----------
    solver, problem
        Labels of the solver and of the problem.
    runs
        Number of runs with an accuracy.
    best
        Accuracy of the run with the largest margin.
    all
        Mean accuracy of the runs, and its range.
    gap
        Gap of the largest margin to the best known one.
    gaps, accuracies
        Gap and accuracy of each run.
    """

    solver: str
    problem: str
    runs: int
    best: float
    all: Spread
    gap: float
    gaps: tuple[float, ...]
    accuracies: tuple[float, ...]


def accuracies(facts: Facts) -> tuple[Accuracy, ...]:
    """Return the accuracies of each solver on each recording with held-out trials."""
    lines = [
        _accuracy(facts, rows)
        for id in facts.problems
        for name in facts.solvers
        if (rows := [row for row in facts.runs.get((name, id), ()) if _has_accuracy(row)])
    ]
    return tuple(lines)


def _has_accuracy(row: ReportRow) -> bool:
    return row.test_accuracy is not None and metrics.score(row) is not None


def _accuracy(facts: Facts, rows: Sequence[ReportRow]) -> Accuracy:
    values = [row.test_accuracy or 0.0 for row in rows]
    gaps = [metrics.gap(metrics.score(row) or 0.0, facts.best[row.problem_id]) for row in rows]
    best = min(range(len(rows)), key=gaps.__getitem__)
    return Accuracy(
        solver=rows[0].label,
        problem=rows[0].problem_label,
        runs=len(rows),
        best=values[best],
        all=Spread(statistics.fmean(values), min(values), max(values)),
        gap=gaps[best],
        gaps=tuple(gaps),
        accuracies=tuple(values),
    )
