"""Terminations that solvers claim, statuses that verification finds, and messages of unsuccessful runs."""

import re
from collections import defaultdict
from dataclasses import dataclass

from qcqpbench.analysis import metrics
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.catalog.status import PointStatus, Termination

from .facts import Facts

_MAX_MESSAGE_CHARACTERS = 300


@dataclass(frozen=True)
class StatusCount:
    """Runs of one solver with the same termination and point status, their longest time and peak memory in bytes."""

    solver: str
    termination: Termination
    point_status: PointStatus
    runs: int
    solved: int
    false_claims: int
    seconds: float
    memory: int | None


@dataclass(frozen=True)
class MessageCount:
    """Runs of one solver with messages that differ only in numbers; `first` is the label of the first problem."""

    solver: str
    termination: Termination
    message: str
    runs: int
    first: str


def statuses(facts: Facts) -> tuple[StatusCount, ...]:
    """Count rows, skipped ones included, by solver, claimed termination and verified point status."""
    rows_by_status: dict[tuple[str, Termination, PointStatus], list[ReportRow]] = defaultdict(list)
    for row in facts.rows:
        rows_by_status[row.label, row.termination, row.point_status].append(row)
    return tuple(
        StatusCount(
            solver=name,
            termination=termination,
            point_status=status,
            runs=len(rows),
            solved=sum(map(metrics.is_solved, rows)),
            false_claims=sum(map(facts.is_false, rows)),
            seconds=max(map(metrics.seconds, rows)),
            memory=max((row.peak_memory_bytes for row in rows if row.peak_memory_bytes), default=None),
        )
        for (name, termination, status), rows in sorted(rows_by_status.items(), key=_as_texts)
    )


def messages(facts: Facts) -> tuple[MessageCount, ...]:
    """Return the messages of unsuccessful runs and false claims, merging messages that differ only in numbers."""
    rows_by_message: dict[tuple[str, Termination, str], list[ReportRow]] = defaultdict(list)
    for row in facts.rows:
        if (not row.termination.is_regular or facts.is_false(row)) and row.message:
            pattern = re.sub(r"\d[\d.e+-]*", "#", row.message)
            rows_by_message[row.label, row.termination, pattern].append(row)
    return tuple(
        MessageCount(
            solver=solver,
            termination=termination,
            message=" ".join(rows[0].message.split())[:_MAX_MESSAGE_CHARACTERS],
            runs=len(rows),
            first=rows[0].problem_label,
        )
        for (solver, termination, _), rows in sorted(rows_by_message.items(), key=_as_texts)
    )


def _as_texts(item: tuple[tuple[object, ...], list[ReportRow]]) -> list[str]:
    return [str(part) for part in item[0]]
