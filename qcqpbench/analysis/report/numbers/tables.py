"""Tables of a report, shared by HTML and Markdown."""

from collections.abc import Sequence
from dataclasses import replace

from qcqpbench.analysis.profiles import RATIOS, SECONDS, Profile
from qcqpbench.analysis.report.table import PreciseFloat, ReportTable, percent
from qcqpbench.analysis.rows import FULL_RSB, REPLICA_SYMMETRY

from .contents import MessageCount, RefutedBound, ReportContents, ReportSolver, SolverBounds
from .general import GeneralContents
from .sources import MicroBenchmark

_PROFILE_COLUMNS = (*(f"{ratio}×" for ratio in RATIOS), *(f"{seconds:g} s" for seconds in SECONDS))
_PROFILE_NOTE = (
    "Fraction of the problems that the solver solves within a multiple of the fastest solver's time, and within a "
    "number of seconds."
)
_FALSE_CLAIMS = "false claims: the solver claims a solution, optimality or infeasibility, and verification refutes it."


def tables(contents: ReportContents) -> list[ReportTable]:
    """Return the tables that are not empty, in the order of the report."""
    return [table for table in all_tables(contents) if table.rows]


def all_tables(contents: ReportContents) -> list[ReportTable]:
    """Return all tables, also empty ones, in the order of the report."""
    unfolded = [
        _summary(contents),
        _capacity(contents),
        _bounds("bounds", "Upper bounds", contents.bounds),
        _growth(contents),
        _anytime(contents),
        _targets(contents),
        _means(contents),
        _profiles(contents),
        _pairs(contents.profiles),
        _general_summary(contents.general),
        _general_families(contents.general),
        _general_problems(contents.general),
        _bounds("general-bounds", "Bounds on general QCQPs", contents.general_bounds),
        _general_profiles(contents.general),
        _statuses(contents),
        _messages(contents.messages),
        _refuted(contents.refuted),
        _settings(contents.solvers),
        _micro(contents.micro),
    ]
    return [_without_constant_columns(table) for table in unfolded]


def _without_constant_columns(table: ReportTable) -> ReportTable:
    """Move the columns "limits" and "family" to the note of the table if their value is the same in all rows."""
    for name in ("limits", "family"):
        position = table.columns.index(name) if name in table.columns else -1
        if position >= 0 and len({row[position] for row in table.rows}) == 1:
            columns, *rows = ((*row[:position], *row[position + 1 :]) for row in (table.columns, *table.rows))
            note = f"{table.note} {name.capitalize()}: {table.rows[0][position]}.".strip()
            table = replace(table, columns=columns, rows=rows, note=note)
    return table


# --- max-margin tasks ---


def _summary(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "summary",
        "Solvers at a glance",
        ("solver", "problems", "not run", "starts", "runs", "solved", "best known", "no point", "median gap",
         "largest gap", "optimality gap", "with bound", "optimal", "proved optima", "false claims", "limits"),
        [
            (e.solver, e.problems, e.missing, e.starts, e.runs, e.solved, e.best, e.no_point,
             e.gap_median, e.gap_max, e.gap_bound, e.bounded, e.optimal, e.proved, e.false_claims, limits[e.solver])
            for e in contents.summary
        ],
        "solved: runs with a positive margin. best known: problems whose best start is within a relative 0.0001 of the "
        "best known margin, the largest of all rows and of the published one. All gaps are relative and of the best "
        "start. median gap, largest gap: to the best known margin. optimality gap: median gap to the smallest proved "
        "upper bound, over the problems with a bound. optimal: problems solved to optimality, of those with proved "
        "optima, whose best known margin is within 0.00011 of a proved bound. A problem without a point has an "
        "infinite gap; an empty cell is "
        f"an infinite median. Denominators are at least 0.01. {_FALSE_CLAIMS} Solvers that only prove bounds are in "
        "the table of upper bounds.",
    )  # fmt: skip


def _capacity(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "capacity-data",
        "Margins by load",
        ("solver", "m", "load", "κ̄ best", "min", "max", "κ̄ median", FULL_RSB, REPLICA_SYMMETRY,
         "with point", "sets", "positive runs", "runs", "positive sets", "median gap", "optimality gap", "family",
         "limits"),
        [
            (p.solver, panel.m, p.load, *(p.best or (None,) * 3), p.median and p.median.middle,
             panel.theory.at_loads.get(p.load), panel.replica_symmetry.at_loads.get(p.load), p.with_point, p.sets,
             p.positive_runs, p.runs, p.positive_sets, p.gap_best, p.gap_bound, panel.variant, limits[p.solver])
            for panel in contents.capacity
            for p in panel.points
        ],
        "κ̄ best, min, max: mean, minimum and maximum over the pattern sets with a point, of the best start on each. "
        f"κ̄ median: mean of the median start. {FULL_RSB}, {REPLICA_SYMMETRY}: κ̄ predicted for m → ∞ by full "
        "replica-symmetry breaking, the best theory, and by replica symmetry.",
    )  # fmt: skip


def _bounds(id: str, title: str, lines: Sequence[SolverBounds]) -> ReportTable:
    return ReportTable(
        id,
        title,
        ("solver", "problems", "with bound", "tightest", "median gap", "largest gap", "proved optimal", "refuted",
         "median s", "limits"),
        [
            (e.solver, e.problems, e.bounded, e.least, e.gap_median, e.gap_max, e.tight,
             e.refuted, e.median, e.limits)
            for e in lines
        ],
        "tightest: problems on which no solver proved a tighter bound. Gaps are between the bound and the best known "
        "value of any solver, relative to the bound. proved optimal: problems with a gap of at most 0.0001. median s: "
        "time of a whole run.",
    )  # fmt: skip


def _growth(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "growth",
        "Growth of time with size",
        ("solver", "part", "size", "fixed", "exponent", "seconds at size 1", "sizes", "runs at time limit", "family",
         "limits"),
        [
            (fit.solver, fit.what, panel.axis, panel.at, fit.exponent, fit.coefficient, fit.sizes,
             fit.at_limit, panel.variant, limits[fit.solver])
            for panel in contents.sizes
            for fit in panel.fits
        ],
        "Fit of seconds ≈ a·size^exponent to the medians, by least squares on logarithms, with three sizes or more. "
        "The size is m at fixed load, or p at fixed m, where the load grows too. Runs at the time limit count with the "
        "limit, so the exponent is then underestimated.",
    )  # fmt: skip


def _anytime(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "anytime",
        "Fraction of the best known margin against time",
        ("solver", "m", *(f"{seconds:g} s" for seconds in SECONDS), "problems", "family", "limits"),
        [
            (name, panel.m, *levels, panel.problems, panel.variant, limits[name])
            for panel in contents.anytime
            if panel.load is None
            for name, levels in panel.levels.items()
        ],
    )


def _targets(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "targets",
        "Time to target",
        ("solver", "target", "runs reaching it", "runs", "problems reached", "problems", "not run", "median s",
         "mean s, failed 1×", "mean s, failed 3×", "limits"),
        [
            (e.solver, e.quality, e.hits, e.runs, e.reached, e.problems, e.missing, e.median,
             e.mean_1, e.mean_3, limits[e.solver])
            for e in contents.targets
        ],
        "target: fraction of the best known margin. Times include the build. median s: over the runs that reach the "
        "target. mean s: over all problems, of the mean over starts, with failed runs at 1× or 3× their time limit "
        "(PAR1, PAR3); problems that were not run count as failed.",
    )  # fmt: skip


def _means(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "means",
        "Shifted geometric mean time to target",
        ("solver", "target", "restarts, common", "1×, common", "3×, common", "restarts, all", "1×, all", "3×, all",
         "limits"),
        [
            (e.solver, e.quality, e.common_restarts, e.common_1, e.common_3, e.all_restarts,
             e.all_1, e.all_3, limits[e.solver])
            for e in contents.targets
        ],
        f"Seconds to the target, a fraction of the best known margin; build included; shift {contents.shift:g} s. "
        "1×, 3×: mean over starts, with failed runs at 1× or 3× their time limit. restarts: expected time of restarts "
        "until success, at most 3× the time limit, which is also its value if no start succeeds. common: over the "
        f"{contents.common} problems that all solvers were run on. all: over all problems; those that were not run "
        "count as failed.",
    )  # fmt: skip


def _profiles(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "profiles",
        "Performance and data profiles",
        ("solver", "target", *_PROFILE_COLUMNS, "limits"),
        [
            (name, profile.quality, *levels, limits[name])
            for profile in contents.profiles
            for name, levels in profile.levels.items()
        ],
        _PROFILE_NOTE,
    )


def _pairs(profiles: Sequence[Profile]) -> ReportTable:
    return ReportTable(
        "pairs",
        "Pairwise comparison",
        ("first", "second", *(f"{percent(e.quality)}: {who}" for e in profiles for who in ("first", "second"))),
        [
            (
                same_pair[0].first,
                same_pair[0].second,
                *(shares[0] for pair in same_pair for shares in (pair.first_shares, pair.second_shares)),
            )
            for same_pair in zip(*(profile.pairs for profile in profiles), strict=True)
        ],
        "Fraction of the problems on which the first, and the second, solver is the faster of the two to that fraction "
        "of the best known margin: the performance profile of the pair at ratio 1.",
    )


# --- general QCQPs ---


def _general_summary(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-summary",
        "Solvers on general QCQPs",
        ("solver", "problems", "not run", "starts", "runs", "feasible runs", "runs at best known",
         "problems at best known", "new best", "no point", "median gap", "largest gap", "median s", "mean s, restarts",
         "false claims", "limits"),
        [
            (e.solver, e.problems, e.missing, e.starts, e.runs, e.feasible, e.there, e.reached,
             e.better, e.no_point, e.gap_median, e.gap_max, e.median, e.restarts, e.false_claims,
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


def _general_families(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-families",
        "Solvers on general QCQPs by family",
        ("problems of", "solver", "problems", "starts", "runs", "feasible runs", "runs at best known",
         "problems at best known", "no point", "median gap", "largest gap", "median s", "limits"),
        [
            (family, e.solver, e.problems, e.starts, e.runs, e.feasible, e.there, e.reached, e.no_point, e.gap_median,
             e.gap_max, e.median, general.limits_of_solvers[e.solver])
            for family, lines in general.families.items()
            for e in lines
        ],
        "The columns of the table above, for the problems of each family alone.",
    )  # fmt: skip


def _general_problems(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-problems",
        "General QCQPs",
        ("problem", "variables", "constraints", "sense", "best known", "best found", "gap", "relative gap", "found by",
         "runs at best known", "feasible runs", "runs", "violation", "relative violation", "proved bound", "theory",
         "median s"),
        [
            (e.problem, e.variables, e.constraints, e.sense, _precise(e.published), _precise(e.found), e.gap,
             e.relative_gap, ", ".join(e.solvers) or None, e.there, e.feasible, e.runs, e.violation,
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


def _general_profiles(general: GeneralContents) -> ReportTable:
    return ReportTable(
        "general-profiles",
        "Performance and data profiles on general QCQPs",
        ("solver", *_PROFILE_COLUMNS, "limits"),
        [
            (name, *levels, general.limits_of_solvers[name])
            for profile in general.profiles
            for name, levels in profile.levels.items()
        ],
        _PROFILE_NOTE,
    )


# --- all problems ---


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
        f"{_FALSE_CLAIMS} peak MB: of the whole process, modules loaded before the run included.",
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
