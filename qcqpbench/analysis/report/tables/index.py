"""All tables of a report, shared by HTML and Markdown."""

from collections.abc import Sequence
from dataclasses import replace

from qcqpbench.analysis.report.numbers.contents import RefutedBound, ReportContents, ReportSolver
from qcqpbench.analysis.report.numbers.statuses import MessageCount
from qcqpbench.analysis.report.pytest_benchmark import MicroBenchmark
from qcqpbench.analysis.report.table import ReportTable

from .general import general_tables
from .shared import FALSE_CLAIMS, without_empty_columns
from .tasks import task_tables


def tables(contents: ReportContents) -> list[ReportTable]:
    """Return the tables that are not empty, in the order of the report."""
    return [table for table in all_tables(contents) if table.rows]


def all_tables(contents: ReportContents) -> list[ReportTable]:
    """Return all tables, also empty ones, in the order of the report."""
    unfolded = [
        *task_tables(contents),
        *general_tables(contents),
        without_empty_columns(_statuses(contents)),
        _messages(contents.messages),
        _refuted(contents.refuted),
        _settings(contents.solvers),
        _micro(contents.micro),
    ]
    return [_without_constant_parts(table) for table in unfolded]


def _without_constant_parts(table: ReportTable) -> ReportTable:
    """Move the parts of the columns "limits" and "family" that are the same in all rows to the note of the table."""
    for name, separator in (("limits", ", "), ("family", "\n")):
        position = table.columns.index(name) if name in table.columns else -1
        if position < 0 or not table.rows:
            continue
        parts = [str(row[position]).split(separator) for row in table.rows]
        shared = [part for part in parts[0] if all(part in others for others in parts)]
        cells = [separator.join(part for part in others if part not in shared) for others in parts]
        rows = [(*row[:position], cell, *row[position + 1 :]) for row, cell in zip(table.rows, cells, strict=True)]
        columns = table.columns
        if not any(cells):
            columns, *rows = ((*row[:position], *row[position + 1 :]) for row in (columns, *rows))
        noted = f"{name.capitalize()}: {separator.join(shared)}." if shared else ""
        table = replace(table, columns=columns, rows=rows, note=f"{table.note} {noted}".strip())
    return table


def _statuses(contents: ReportContents) -> ReportTable:
    limits = {solver.name: solver.limits for solver in contents.solvers}
    return ReportTable(
        "statuses",
        "Claimed termination and verified point",
        ("solver", "claimed", "verified point", "runs", "solved", "false claims", "longest s", "peak MB", "meaning",
         "limits"),
        [
            (e.solver, str(e.termination), str(e.point_status), e.runs, e.solved, e.false_claims, e.seconds,
             None if e.memory is None else round(e.memory / 1e6), e.termination.message, limits[e.solver])
            for e in contents.statuses
        ],
        f"{FALSE_CLAIMS} peak MB: of the whole process, modules loaded before the run included.",
    )  # fmt: skip


def _messages(messages: Sequence[MessageCount]) -> ReportTable:
    return ReportTable(
        "messages",
        "Messages",
        ("solver", "termination", "runs", "message", "first problem"),
        [(e.solver, str(e.termination), e.runs, e.message, e.first) for e in messages],
        "Messages of unsuccessful runs and of false claims. Messages that differ only in numbers count as one.",
    )


def _refuted(bounds: Sequence[RefutedBound]) -> ReportTable:
    return ReportTable(
        "refuted",
        "Refuted bounds",
        ("solver", "bound", "problem"),
        [(e.solver, e.bound, e.problem) for e in bounds],
        "A verified point is better than these bounds. They count nowhere else in this report.",
    )


def _settings(solvers: Sequence[ReportSolver]) -> ReportTable:
    return ReportTable(
        "settings",
        "Solvers",
        ("solver", "all settings", "versions", "limits"),
        [(e.name, e.spec, e.version, e.limits) for e in solvers],
    )


def _micro(benchmarks: Sequence[MicroBenchmark]) -> ReportTable:
    return ReportTable(
        "micro",
        "pytest-benchmark",
        ("group", "name", "min s", "median s", "stddev s", "rounds", "extra info"),
        [(e.group, e.name, e.min, e.median, e.stddev, e.rounds, e.extra) for e in benchmarks],
    )
