"""Tables of a report on general QCQPs."""

from qcqpbench.analysis.report.numbers.contents import ReportContents
from qcqpbench.analysis.report.numbers.general import GeneralContents
from qcqpbench.analysis.report.numbers.ranking import MAX_GAP
from qcqpbench.analysis.report.table import PreciseFloat, ReportTable, Share, percent

from .shared import (
    PROFILE_COLUMNS,
    PROFILE_NOTE,
    RANK_INTERVAL,
    bounds_table,
    group_columns,
    rank_interval,
    without_empty_columns,
)


def general_tables(contents: ReportContents) -> list[ReportTable]:
    """Return the tables on general QCQPs, also empty ones, in the order of the report."""
    general = contents.general
    return [
        _ranking(general),
        _summary(general),
        _families(general),
        _problems(general),
        bounds_table("general-bounds", "Bounds on general QCQPs", contents.general_bounds),
        _profiles(general),
    ]


def _ranking(general: GeneralContents) -> ReportTable:
    summary = {line.solver: line for line in general.summary}
    return without_empty_columns(
        ReportTable(
            "general-ranking",
            "Solvers on general QCQPs, best first",
            ("solver", "rank", RANK_INTERVAL, "mean gap", *group_columns(general.ranking),
             "best known", "runs without a point", "runs", "median s", "false claims", "limits"),
            [
                (e.solver, e.rank, rank_interval(e), Share(e.gap), *map(Share.of, e.gaps), e.reached,
                 summary[e.solver].runs - summary[e.solver].feasible,
                 summary[e.solver].runs, summary[e.solver].median, summary[e.solver].false_claims or None,
                 general.limits_of_solvers[e.solver])
                for e in general.ranking.solvers
            ],
            "mean gap: of the best start to the best known objective, negative if better, between "
            f"−{percent(MAX_GAP)} and {percent(MAX_GAP)} on each problem; a problem without a feasible point, or that "
            f"the solver was not run on, counts {percent(MAX_GAP)}. rank: by mean gap; {RANK_INTERVAL}: bootstrap over "
            f"problems. best known: problems, of {general.ranking.problems}, whose best known value is reached. "
            "median s: of a whole run.",
        )
    )  # fmt: skip


def _summary(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-summary",
        "Runs, gaps and times on general QCQPs",
        ("solver", "problems", "not run", "starts", "runs", "feasible runs", "runs at best known",
         "problems at best known", "new best", "no point", "median gap", "largest gap", "median s", "mean s, restarts",
         "false claims", "limits"),
        [
            (e.solver, e.problems, e.missing, e.starts, e.runs, e.feasible, e.there, e.reached,
             e.better, e.no_point, Share.of(e.gap_median), Share.of(e.gap_max), e.median, e.restarts, e.false_claims,
             general.limits_of_solvers[e.solver])
            for e in general.summary
        ],
        "best known: the published value, or the best of all rows if none is published. at best known: feasible, and "
        "worse by at most 0.0001·max(0.01, |best known|); for a problem, the best start counts. new best: better than "
        "the published value by more than that. Gaps are of the best start, relative to max(0.01, |best known|), and "
        "negative if it is better; a problem without a feasible point has an infinite gap. median s: of a whole run. "
        f"mean s, restarts: shifted geometric mean over all problems, shift {general.shift:g} s, of the expected "
        "time of restarts until the best known value, at most 3× the time limit, which is also its value if no start "
        "succeeds.",
    )  # fmt: skip


def _families(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-families",
        "General QCQPs by family",
        ("problems of", "solver", "problems", "starts", "runs", "feasible runs", "runs at best known",
         "problems at best known", "no point", "median gap", "largest gap", "median s", "limits"),
        [
            (family, e.solver, e.problems, e.starts, e.runs, e.feasible, e.there, e.reached, e.no_point,
             Share.of(e.gap_median), Share.of(e.gap_max), e.median, general.limits_of_solvers[e.solver])
            for family, lines in general.families.items()
            for e in lines
        ],
        "The columns of the table above, for the problems of each family alone.",
    )  # fmt: skip


def _problems(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-problems",
        "General QCQPs",
        ("problem", "variables", "constraints", "sense", "best known", "best found", "gap", "relative gap", "found by",
         "runs at best known", "feasible runs", "runs", "violation", "relative violation", "proved bound", "theory",
         "median s"),
        [
            (e.problem, e.variables, e.constraints, e.sense, _precise(e.published), _precise(e.found), e.gap,
             Share.of(e.relative_gap), ", ".join(e.solvers) or None, e.there, e.feasible, e.runs, e.violation,
             e.relative_violation, _precise(e.bound), e.theory, e.median)
            for e in general.problems
        ],
        "best known: the published value; without one, gaps are to the best found. best found: the best feasible point "
        "of any run. found by: the solvers within 0.0001 of it. Gaps are of the best found, negative if it is better "
        "than the best known; the relative gap is divided by max(0.01, |best known|). at best known: within 0.0001. "
        "theory: prediction for typical large problems of the family. Violations are of the best found point, or of "
        "the least infeasible one. A point is feasible if it violates no constraint by more than 1e-6, or the suite's "
        "tolerance if that is smaller, relative to max(1, |bound of the constraint|). median s: of a whole run.",
    )  # fmt: skip


def _precise(value: float | None) -> PreciseFloat | None:
    return None if value is None else PreciseFloat(value)


def _profiles(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-profiles",
        "Performance and data profiles on general QCQPs",
        ("solver", *PROFILE_COLUMNS, "limits"),
        [
            (name, *levels, general.limits_of_solvers[name])
            for profile in general.profiles
            for name, levels in profile.levels.items()
        ],
        PROFILE_NOTE,
    )
