"""Tables of a report on max-margin tasks."""

import statistics
from collections.abc import Sequence

from qcqpbench.analysis.profiles import SECONDS, Profile
from qcqpbench.analysis.report.numbers.contents import ReportContents
from qcqpbench.analysis.report.numbers.ranking import MAX_GAP
from qcqpbench.analysis.report.table import ReportTable, Share, percent
from qcqpbench.analysis.rows import FULL_RSB, REPLICA_SYMMETRY

from .shared import (
    FALSE_CLAIMS,
    PROFILE_COLUMNS,
    PROFILE_NOTE,
    RANK_INTERVAL,
    bounds_table,
    group_columns,
    rank_interval,
    without_empty_columns,
)

# Columns of the first table with the times to a share of the best known margin.
_TIME_COLUMNS = {"s\u00a0to\u00a095\u00a0%": 0.95, "s\u00a0to\u00a099\u00a0%": 0.99}


def task_tables(contents: ReportContents) -> list[ReportTable]:
    """Return the tables on tasks, also empty ones, in the order of the report."""
    return [
        _ranking(contents),
        _summary(contents),
        _accuracy(contents),
        _capacity(contents),
        bounds_table("bounds", "Upper bounds", contents.bounds),
        _growth(contents),
        _anytime(contents),
        _targets(contents),
        _means(contents),
        _profiles(contents),
        _pairs(contents.profiles),
    ]


def _ranking(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    summary = {line.solver: line for line in contents.summary}
    times = {(line.solver, line.quality): line.typical for line in contents.targets}
    accuracy: dict[str, list[float]] = {}
    for line in contents.accuracy:
        accuracy.setdefault(line.solver, []).append(line.best)
    lines = contents.ranking.solvers
    return without_empty_columns(
        ReportTable(
            "ranking",
            "Solvers, best first",
            ("solver", "rank", RANK_INTERVAL, "mean gap", *group_columns(contents.ranking),
             "best known", "failed runs", "runs", *_TIME_COLUMNS,
             "accuracy", "false claims", "limits"),
            [
                (e.solver, e.rank, rank_interval(e), Share(e.gap), *map(Share.of, e.gaps), e.reached,
                 summary[e.solver].failed.runs, summary[e.solver].runs,
                 *(times[e.solver, quality] for quality in _TIME_COLUMNS.values()),
                 Share.of(statistics.fmean(accuracy[e.solver]) if e.solver in accuracy else None),
                 summary[e.solver].false_claims or None, limits[e.solver])
                for e in lines
            ],
            f"mean gap: relative distance of the best start to the best known margin, at most {percent(MAX_GAP)} on "
            "each problem, which is also the gap of a problem without a point, or that the solver was not run on. "
            f"rank: by mean gap; {RANK_INTERVAL}: the range of the rank if other problems of this kind had been drawn "
            f"(bootstrap over problems). best known: problems, of {contents.ranking.problems}, whose best known "
            "margin is reached to 0.01 %. failed runs: runs without a positive margin on problems where "
            "another run has one. s to 95 %, 99 %: median over problems of the expected seconds of restarts until "
            "that share of the best known margin; empty if half "
            "of the problems are not reached. accuracy: of the held-out trials of recordings, for the largest margin.",
        )
    )  # fmt: skip


def _summary(contents: ReportContents) -> ReportTable:
    limits = contents.limits_of_solvers
    return ReportTable(
        "summary",
        "Runs, gaps and claims",
        ("solver", "problems", "not run", "starts", "runs", "solved", "best known", "no point", "median gap",
         "largest gap", "optimality gap", "with bound", "optimal", "proved optima", "false claims", "limits"),
        [
            (e.solver, e.problems, e.missing, e.starts, e.runs, e.solved, e.best, e.no_point,
             Share.of(e.gap_median), Share.of(e.gap_max), Share.of(e.gap_bound), e.bounded, e.optimal, e.proved,
             e.false_claims, limits[e.solver])
            for e in contents.summary
        ],
        "solved: runs with a positive margin. best known: problems whose best start is within 0.01 % of the best known "
        "margin, the largest of all rows and of the published one. All gaps are relative and of the best start. "
        "median gap, largest gap: to the best known margin. optimality gap: median gap to the smallest proved upper "
        "bound, over the problems with a bound. optimal: problems solved to optimality, of those with proved optima, "
        "whose best known margin is within 0.011 % of a proved bound. A problem without a point has an infinite gap; "
        f"an empty cell is an infinite median. Denominators are at least 0.01. {FALSE_CLAIMS} Solvers that only prove "
        "bounds are in the table of upper bounds.",
    )  # fmt: skip


def _accuracy(contents: ReportContents) -> ReportTable:
    return ReportTable(
        "accuracy",
        "Accuracy on held-out trials",
        ("solver", "problem", "accuracy", "gap", "runs", "mean accuracy", "lowest", "highest"),
        [
            (e.solver, e.problem, Share(e.best), Share(e.gap), e.runs, *map(Share, e.all))
            for e in contents.accuracy
        ],
        "accuracy: of the run with the largest margin. gap: of this margin to the best known one. mean, lowest, "
        "highest: over all runs with a point.",
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
             p.positive_runs, p.runs, p.positive_sets, Share.of(p.gap_best), Share.of(p.gap_bound), panel.variant,
             limits[p.solver])
            for panel in contents.capacity
            for p in panel.points
        ],
        "κ̄ best, min, max: mean, minimum and maximum over the pattern sets with a point, of the best start on each. "
        f"κ̄ median: mean of the median start. {FULL_RSB}, {REPLICA_SYMMETRY}: κ̄ predicted for m → ∞ by full "
        "replica-symmetry breaking, the best theory, and by replica symmetry.",
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
        ("solver", "target", *PROFILE_COLUMNS, "limits"),
        [
            (name, profile.quality, *levels, limits[name])
            for profile in contents.profiles
            for name, levels in profile.levels.items()
        ],
        PROFILE_NOTE,
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
