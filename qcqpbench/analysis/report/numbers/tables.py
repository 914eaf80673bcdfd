"""The tables of a report, the same for HTML and Markdown."""

from dataclasses import dataclass, replace
from typing import Any

from .timing import RATIOS, SECONDS

# Of text in a cell: files may come from anywhere.
MAX_CELL_CHARACTERS = 2000
_LEVELS = (*(f"{each}×" for each in RATIOS), *(f"{each:g} s" for each in SECONDS))
_WITHIN = (
    "The share of the problems on which the solver is within so many times the least time of any, and within so many "
    "seconds."
)


@dataclass(frozen=True)
class ReportTable:
    """id: where the page puts it; note: what must be known to read it."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""


class Long(float):
    """A number of which more than four digits count."""


def show(value: Any) -> str:
    """A cell: numbers to four digits or ten, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}" if isinstance(value, Long) else f"{value:.4g}"
    text = str(value)
    return text if len(text) <= MAX_CELL_CHARACTERS else f"{text[:MAX_CELL_CHARACTERS]}…"


def percent(value: float | None) -> str:
    if value is None:
        return ""
    return "less than 0.0001 %" if abs(value) < 1e-6 else f"{100 * value:.3g} %"


def tables(contents: dict[str, Any]) -> list[ReportTable]:
    """Those that have rows, in the order of the report."""
    limits, everywhere = contents["limits_of_solvers"], {each["name"]: each["limits"] for each in contents["solvers"]}
    found = [
        _summary(contents, limits),
        _capacity(contents, limits),
        _bounds("bounds", "Proved bounds", contents["bounds"]),
        _growth(contents, limits),
        _anytime(contents, limits),
        _targets(contents, limits),
        _means(contents, limits),
        _profiles(contents, limits),
        _pairs(contents),
        _general_summary(contents["general"]),
        _general_problems(contents["general"]),
        _bounds("general-bounds", "Proved bounds on problems that are not max-margin", contents["general_bounds"]),
        _general_profiles(contents["general"]),
        _statuses(contents, everywhere),
        ReportTable(
            "messages",
            "What was said",
            ("solver", "termination", "runs", "message", "first on"),
            [(e["solver"], e["termination"], e["runs"], e["message"], e["first"]) for e in contents["messages"]],
            "Of runs that did not end well or claimed too much; messages that differ only in numbers count as one.",
        ),
        ReportTable(
            "refuted",
            "Bounds that a point refutes",
            ("solver", "bound", "problem"),
            [(e["solver"], e["bound"], e["problem"]) for e in contents["refuted"]],
            "Counted nowhere else in this report.",
        ),
        ReportTable(
            "settings",
            "Solvers",
            ("solver", "all settings", "versions", "limits"),
            [(e["name"], e["spec"], e["version"], e["limits"]) for e in contents["solvers"]],
        ),
        ReportTable(
            "micro",
            "pytest-benchmark",
            ("group", "name", "min s", "median s", "stddev s", "rounds", "further"),
            [
                (e["group"], e["name"], e["min"], e["median"], e["stddev"], e["rounds"], e["extra"])
                for e in contents["micro"]
            ],
        ),
    ]
    return [_briefly(table) for table in found if table.rows]


def _briefly(table: ReportTable) -> ReportTable:
    """Limits, and a family of problems, that are the same in all rows stand in the note."""
    for name in ("limits", "family"):
        place = table.columns.index(name) if name in table.columns else -1
        if place >= 0 and len({row[place] for row in table.rows}) == 1:
            columns, *rows = ((*row[:place], *row[place + 1 :]) for row in (table.columns, *table.rows))
            note = f"{table.note} {name.capitalize()}: {table.rows[0][place]}.".strip()
            table = replace(table, columns=columns, rows=rows, note=note)
    return table


def _summary(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "summary",
        "Solvers at a glance",
        ("solver", "problems", "not run", "starts", "runs", "solved", "best known", "no point", "median gap",
         "largest gap", "gap to bound", "with bound", "false claims", "limits"),
        [
            (e["solver"], e["problems"], e["missing"], e["starts"], e["runs"], e["solved"], e["best"], e["no_point"],
             e["gap_median"], e["gap_max"], e["gap_bound"], e["bounded"], e["false_claims"], limits[e["solver"]])
            for e in contents["summary"]
        ],
        "solved: runs with a feasible point, on tasks with a positive margin. best known: problems on which the best "
        "start is within 0.0001 of the best of all rows, or of the published one; gaps are of the best start too, "
        "relative to the best known (medians to the least proved bound: of the problems with one), a problem without a "
        "point at infinity (an empty cell says that the median is). A value below 0.01 counts as 0.01 in the "
        "denominator. false claims: solved, optimal or infeasible, and a verified point says otherwise. Solvers that "
        "only prove bounds stand in their own table.",
    )  # fmt: skip


def _capacity(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "capacity-data",
        "Margins by load",
        ("solver", "m", "load", "κ̄ best", "least", "largest", "κ̄ median", "with point", "sets", "positive runs", "runs",
         "positive sets", "median gap", "gap to bound", "family", "limits"),
        [
            (p["solver"], panel["m"], p["load"], *(p["best"] or (None,) * 3), p["median"] and p["median"][0],
             p["with_point"], p["sets"], p["positive_runs"], p["runs"], p["positive_sets"], p["gap_best"],
             p["gap_bound"], panel["variant"], limits[p["solver"]])
            for panel in contents["capacity"]
            for p in panel["points"]
        ],
        "Of each pattern set the best (the median) start; then mean, least and largest over sets with a point.",
    )  # fmt: skip


def _bounds(id: str, title: str, lines: list[dict[str, Any]]) -> ReportTable:
    return ReportTable(
        id,
        title,
        ("solver", "problems", "with bound", "least of all", "median gap", "largest gap", "optimum proved", "refuted",
         "median s", "limits"),
        [
            (e["solver"], e["problems"], e["bounded"], e["least"], e["gap_median"], e["gap_max"], e["tight"],
             e["refuted"], e["median"], e["limits"])
            for e in lines
        ],
        "least of all: problems on which no solver proved a smaller one. Gaps are from the best known answer of any "
        "solver up to the bound, relative to the bound; optimum proved: problems where that is 0.0001 at most. "
        "Seconds are of whole runs.",
    )  # fmt: skip


def _growth(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "growth",
        "Growth with size",
        ("solver", "part", "size", "at", "exponent", "seconds at size 1", "sizes", "runs at the limit", "family",
         "limits"),
        [
            (fit["solver"], fit["what"], panel["axis"], panel["at"], fit["exponent"], fit["coefficient"], fit["sizes"],
             fit["at_limit"], panel["variant"], limits[fit["solver"]])
            for panel in contents["sizes"]
            for fit in panel["fits"]
        ],
        "seconds ≈ a·size^exponent, with m at fixed load and with p at fixed m, where the load grows too; least "
        "squares on the logarithms of the medians, three sizes at least. Runs at the limit count with the limit, so "
        "that the true growth is larger.",
    )  # fmt: skip


def _anytime(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "anytime",
        "Share of the best known margin after some time",
        ("solver", "m", *(f"{each:g} s" for each in SECONDS), "problems", "family", "limits"),
        [
            (name, panel["m"], *levels, panel["problems"], panel["variant"], limits[name])
            for panel in contents["anytime"]
            if panel["load"] is None
            for name, levels in panel["levels"].items()
        ],
    )


def _targets(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "targets",
        "Time to a share of the best known",
        ("solver", "share", "runs there", "runs", "problems there", "problems", "not run", "median s",
         "mean s, failed 1×", "mean s, failed 3×", "limits"),
        [
            (e["solver"], e["quality"], e["hits"], e["runs"], e["reached"], e["problems"], e["missing"], e["median"],
             e["mean_1"], e["mean_3"], limits[e["solver"]])
            for e in contents["targets"]
        ],
        "Build included. The median is of the runs that get there; the means are over all problems, of the mean over "
        "starts, with failed runs at 1× and at 3× their time limit, and what was not run counted as failed.",
    )  # fmt: skip


def _means(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "means",
        "Shifted geometric means",
        ("solver", "share", "restarts, common", "1×, common", "3×, common", "restarts, all", "1×, all", "3×, all",
         "limits"),
        [
            (e["solver"], e["quality"], e["common_restarts"], e["common_1"], e["common_3"], e["all_restarts"],
             e["all_1"], e["all_3"], limits[e["solver"]])
            for e in contents["targets"]
        ],
        f"Seconds to the share of the best known, build included; shift {contents['shift']:g} s. 1×, 3×: of the mean "
        "over starts, failed runs at 1× or 3× their time limit. restarts: of the expected time of restarts until "
        f"success, 3× the limit at most and where no start succeeds. common: the {contents['common']} problems that "
        "all solvers were run on; all: what was not run counts as failed.",
    )  # fmt: skip


def _profiles(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "profiles",
        "Profiles in numbers",
        ("solver", "share", *_LEVELS, "limits"),
        [
            (name, profile["quality"], *levels, limits[name])
            for profile in contents["profiles"]
            for name, levels in profile["levels"].items()
        ],
        _WITHIN,
    )


def _general_summary(general: dict[str, Any]) -> ReportTable:
    return ReportTable(
        "general-summary",
        "Solvers on problems that are not max-margin",
        ("solver", "problems", "not run", "starts", "runs", "feasible runs", "runs at best known",
         "problems at best known", "new best", "no point", "median gap", "largest gap", "median s", "mean s, restarts",
         "false claims", "limits"),
        [
            (e["solver"], e["problems"], e["missing"], e["starts"], e["runs"], e["feasible"], e["there"], e["reached"],
             e["better"], e["no_point"], e["gap_median"], e["gap_max"], e["median"], e["restarts"], e["false_claims"],
             general["limits_of_solvers"][e["solver"]])
            for e in general["summary"]
        ],
        "best known: the published value, or the best of all rows if there is none. at best known: feasible, and worse "
        "by 0.0001 of max(1, |best known|) at most; of a problem, the best start counts. new best: better than the "
        "published value by more than that. Gaps are of the best start, relative to max(1, |best known|), positive if "
        "it is worse and negative if it is better; a problem without a feasible point is at infinity. median s: of "
        "whole runs. mean s, restarts: shifted geometric mean over all problems, shift "
        f"{general['shift']:g} s, of the expected time of restarts until the best known value, 3× the limit at most "
        "and where no start gets there.",
    )  # fmt: skip


def _general_problems(general: dict[str, Any]) -> ReportTable:
    return ReportTable(
        "general-problems",
        "Problems that are not max-margin",
        ("problem", "variables", "constraints", "sense", "best known", "best found", "gap", "relative gap", "by",
         "runs there", "feasible runs", "runs", "violation", "relative violation", "proved bound", "median s"),
        [
            (e["problem"], e["variables"], e["constraints"], e["sense"], _long(e["published"]), _long(e["found"]),
             e["gap"], e["relative_gap"], ", ".join(e["solvers"]) or None, e["there"], e["feasible"], e["runs"],
             e["violation"], e["relative_violation"], _long(e["bound"]), e["median"])
            for e in general["problems"]
        ],
        "best known: as published; without it, gaps are from the best found. best found: the best feasible point of "
        "any run, by: the solvers that have it to 0.0001. Gaps are positive if it is worse than the best known and "
        "negative if it is better; the relative one is over max(1, |best known|). runs there: at the best known to "
        "0.0001. The violations are of the point found, or, with no feasible one, of the point that misses least; a "
        "point is feasible if it misses no constraint by more than the suite's tolerance (1e-6 by default), relative "
        "to max(1, |bound of the constraint|). median s: of whole runs. An empty size: the problem "
        "cannot be read here.",
    )  # fmt: skip


def _long(value: float | None) -> Long | None:
    return None if value is None else Long(value)


def _general_profiles(general: dict[str, Any]) -> ReportTable:
    return ReportTable(
        "general-profiles",
        "Profiles on problems that are not max-margin",
        ("solver", *_LEVELS, "limits"),
        [
            (name, *levels, general["limits_of_solvers"][name])
            for profile in general["profiles"]
            for name, levels in profile["levels"].items()
        ],
        _WITHIN,
    )


def _pairs(contents: dict[str, Any]) -> ReportTable:
    profiles = contents["profiles"]
    return ReportTable(
        "pairs",
        "Pairs",
        ("first", "second", *(f"{percent(e['quality'])}: {who}" for e in profiles for who in ("first", "second"))),
        [
            (*names[:2], *(values[0] for pair in same for values in pair[2:]))
            for same in zip(*(each["pairs"] for each in profiles), strict=True)
            for names in same[:1]
        ],
        "The share of the problems on which the first, and the second, is the faster of the two to that share of the "
        "best known, from their own profile.",
    )


def _statuses(contents: dict[str, Any], limits: dict[str, str]) -> ReportTable:
    return ReportTable(
        "statuses",
        "Claimed and verified",
        ("solver", "claimed", "verified point", "runs", "solved", "false claims", "longest s", "most MB", "meaning",
         "limits"),
        [
            (e["solver"], e["termination"], e["point_status"], e["runs"], e["solved"], e["false"], e["seconds"],
             None if e["memory"] is None else round(e["memory"] / 1e6), e["claim"], limits[e["solver"]])
            for e in contents["statuses"]
        ],
        "false claims: solved, optimal or infeasible, and a verified point says otherwise. most MB: of the process, "
        "with all that it had loaded before.",
    )  # fmt: skip
