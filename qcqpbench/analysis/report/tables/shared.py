"""Parts that several tables of a report share."""

from collections.abc import Sequence
from dataclasses import replace

from qcqpbench.analysis.profiles import RATIOS, SECONDS
from qcqpbench.analysis.report.numbers.contents import SolverBounds
from qcqpbench.analysis.report.numbers.ranking import RankedSolver, Ranking
from qcqpbench.analysis.report.table import ReportTable, Share

NO_BREAK_SPACE = "\u00a0"
RANK_INTERVAL = f"rank, 95{NO_BREAK_SPACE}%"
PROFILE_COLUMNS = (*(f"{ratio}×" for ratio in RATIOS), *(f"{seconds:g} s" for seconds in SECONDS))
PROFILE_NOTE = (
    "Fraction of the problems that the solver solves within a multiple of the fastest solver's time, and within a "
    "number of seconds."
)
FALSE_CLAIMS = "false claims: the solver claims a solution, optimality or infeasibility, and verification refutes it."


def rank_interval(line: RankedSolver) -> str | None:
    """Return the interval of a rank in words; None if there is none."""
    if line.interval is None:
        return None
    low, high = line.interval
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def group_columns(ranking: Ranking) -> list[str]:
    """Return the headings of the gaps over groups of problems."""
    return [f"gap, {name.replace(' ', NO_BREAK_SPACE)}" for name in ranking.groups]


def without_empty_columns(table: ReportTable) -> ReportTable:
    """Return the table without the columns that have None in all rows."""
    if not table.rows:
        return table
    kept = [k for k in range(len(table.columns)) if any(line[k] is not None for line in table.rows)]
    columns, *rows = (tuple(line[k] for k in kept) for line in (table.columns, *table.rows))
    return replace(table, columns=columns, rows=rows)


def bounds_table(id: str, title: str, lines: Sequence[SolverBounds]) -> ReportTable:
    return ReportTable(
        id,
        title,
        ("solver", "problems", "with bound", "tightest", "median gap", "largest gap", "proved optimal", "refuted",
         "median s", "limits"),
        [
            (e.solver, e.problems, e.bounded, e.least, Share.of(e.gap_median), Share.of(e.gap_max), e.tight,
             e.refuted, e.median, e.limits)
            for e in lines
        ],
        "tightest: problems on which no solver proved a tighter bound. Gaps are between the bound and the best known "
        "value of any solver, relative to the bound. proved optimal: problems with a gap of at most 0.0001. median s: "
        "time of a whole run.",
    )  # fmt: skip
