"""The tables of a report, the same for HTML and Markdown."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """id: where the page puts it; note: what must be known to read it."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    note: str = ""


def show(value: Any) -> str:
    """A cell: numbers to four digits, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def percent(value: float | None) -> str:
    if value is None:
        return ""
    return "less than 0.0001 %" if abs(value) < 1e-6 else f"{100 * value:.3g} %"


def tables(contents: dict[str, Any]) -> list[Table]:
    """Those that have rows, in the order of the report."""
    limits = {each["name"]: each["limits"] for each in contents["solvers"]}
    found = [
        _summary(contents),
        _capacity(contents),
        _growth(contents, limits),
        _targets(contents, limits),
        _statuses(contents),
        Table(
            "messages",
            "What was said",
            ("solver", "termination", "runs", "message", "first on"),
            [(e["solver"], e["termination"], e["runs"], e["message"], e["first"]) for e in contents["messages"]],
            "Of runs that did not end well or claimed too much.",
        ),
        Table(
            "refuted",
            "Bounds that a point refutes",
            ("solver", "bound", "problem"),
            [(e["solver"], e["bound"], e["problem"]) for e in contents["refuted"]],
            "Counted nowhere else in this report.",
        ),
        Table(
            "settings",
            "Solvers",
            ("solver", "all settings", "versions", "limits"),
            [(e["name"], e["spec"], e["version"], e["limits"]) for e in contents["solvers"]],
        ),
        Table(
            "micro",
            "pytest-benchmark",
            ("group", "name", "min s", "median s", "stddev s", "rounds", "further"),
            [
                (e["group"], e["name"], e["min"], e["median"], e["stddev"], e["rounds"], e["extra"])
                for e in contents["micro"]
            ],
        ),
    ]
    return [table for table in found if table.rows]


def _summary(contents: dict[str, Any]) -> Table:
    return Table(
        "summary",
        "Solvers at a glance",
        ("solver", "problems", "not run", "runs", "solved", "best known", "no point", "median gap", "largest gap",
         "gap to bound", "bounds", "false claims", "limits"),
        [
            (e["solver"], e["problems"], e["missing"], e["runs"], e["solved"], e["best"], e["no_point"],
             e["gap_median"], e["gap_max"], e["gap_bound"], e["bounded"], e["false_claims"], e["limits"])
            for e in contents["summary"]
        ],
        "solved: runs with a feasible point, on tasks with a positive margin. best known: problems on which the best "
        "start is within 0.0001 of the best of all rows; gaps are of the best start too, relative to the best known "
        "(to the least proved bound), a problem without a point at infinity (an empty cell says that the median is). "
        "A value below 0.01 counts as 0.01 in the denominator.",
    )  # fmt: skip


def _capacity(contents: dict[str, Any]) -> Table:
    limits = {each["solver"]: each["limits"] for each in contents["summary"]}
    return Table(
        "capacity-data",
        "Margins by load",
        ("problem", "m", "load", "solver", "κ̄ best", "least", "largest", "κ̄ median", "with point", "sets",
         "positive runs", "runs", "positive sets", "median gap", "gap to bound", "limits"),
        [
            (panel["variant"], panel["m"], p["load"], p["solver"], *(p["best"] or (None,) * 3),
             p["median"] and p["median"][0], p["with_point"], p["sets"], p["positive_runs"], p["runs"],
             p["positive_sets"], p["gap_best"], p["gap_bound"],
             limits[p["solver"]])
            for panel in contents["capacity"]
            for p in panel["points"]
        ],
        "Of each pattern set the best (the median) start; then mean, least and largest over sets with a point.",
    )  # fmt: skip


def _growth(contents: dict[str, Any], limits: dict[str, str]) -> Table:
    return Table(
        "growth",
        "Growth with size",
        ("problem", "load", "solver", "part", "exponent", "seconds at m=1", "sizes", "runs at the limit", "limits"),
        [
            (panel["variant"], panel["load"], fit["solver"], fit["what"], fit["exponent"], fit["coefficient"],
             fit["sizes"], fit["at_limit"], limits[fit["solver"]])
            for panel in contents["sizes"]
            for fit in panel["fits"]
        ],
        "seconds ≈ a·m^exponent at fixed load, least squares on the logarithms of the medians, three sizes at least. "
        "Runs at the limit count with the limit, so that the true growth is larger.",
    )  # fmt: skip


def _targets(contents: dict[str, Any], limits: dict[str, str]) -> Table:
    return Table(
        "targets",
        "Time to a share of the best known",
        ("share", "solver", "runs there", "runs", "problems there", "problems", "not run", "median s",
         "restarts s, common", "1×, common", "3×, common", "restarts s, all", "1×, all", "3×, all", "limits"),
        [
            (e["quality"], e["solver"], e["hits"], e["runs"], e["reached"], e["problems"], e["missing"], e["median"],
             e["common_restarts"], e["common_1"], e["common_3"], e["all_restarts"], e["all_1"], e["all_3"],
             limits[e["solver"]])
            for e in contents["targets"]
        ],
        f"Build included. Means are shifted geometric, shift {contents['shift']:g} s, over problems: 1×, 3×: of the "
        "mean over starts, failed runs at 1× or 3× their time limit; restarts: of the expected time of restarts until "
        "success, 3× the limit at most and where no start succeeds; common: the "
        f"{contents['common']} problems that all solvers were run on; all: what was not run counts as failed. "
        "The median is of the runs that get there.",
    )  # fmt: skip


def _statuses(contents: dict[str, Any]) -> Table:
    limits = {each["name"]: each["limits"] for each in contents["solvers"]}
    return Table(
        "statuses",
        "Claimed and verified",
        ("solver", "claimed", "meaning", "verified point", "runs", "solved", "false claim", "limits"),
        [
            (e["solver"], e["termination"], e["claim"], e["point_status"], e["runs"], e["solved"], e["false"],
             limits[e["solver"]])
            for e in contents["statuses"]
        ],
    )  # fmt: skip
