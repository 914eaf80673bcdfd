"""The report in a few sentences, with the numbers they rest on."""

from itertools import pairwise
from typing import Any

from .. import metrics
from .tables import percent, show

_QUALITY = 0.95


def verdict(contents: dict[str, Any]) -> list[str]:
    """Who finds the largest margins, who is fastest to a given quality, who fails where."""
    summary, targets = contents["summary"], contents["targets"]
    if not summary:
        return ["No solver was run."]
    return [
        *_best(summary, contents["problems"]),
        *_theory(contents["capacity"]),
        *_fastest([line for line in targets if line["quality"] == _QUALITY], contents),
        *_failures(summary, contents["statuses"]),
        *_claims(summary, contents["refuted"]),
        *_missing(summary, contents),
        _limits(contents["solvers"]),
    ]


def _best(summary: list[dict[str, Any]], problems: int) -> list[str]:
    order = sorted(summary, key=lambda line: (-line["best"], _last(line["gap_median"]), line["solver"]))
    first, *others = order
    text = f"{first['solver']} finds the best answers: the best known on {first['best']} of {problems} problems"
    if first["gap_median"] is not None:
        text += f", a median gap of {percent(first['gap_median'])}"
    if others and others[0]["best"]:
        text += f"; next is {others[0]['solver']} with {others[0]['best']}"
        if others[0]["gap_median"] is not None:
            text += f" and a median gap of {percent(others[0]['gap_median'])}"
    return [text + "."]


def _theory(panels: list[dict[str, Any]]) -> list[str]:
    """At the largest size, what theory predicts and the best solver reaches, at the least load and the largest."""
    known = [panel for panel in panels if panel["theory"] and panel["points"]]
    if not known:
        return []
    panel = max(known, key=lambda each: each["m"])
    parts = []
    for load in sorted({point["load"] for point in panel["points"]}):
        here = [point for point in panel["points"] if point["load"] == load and point["best"]]
        if here:
            parts.append((load, max(point["best"][0] for point in here), predicted(panel["theory"], load)))
    if not parts:
        return []
    chosen = [parts[0], parts[-1]] if len(parts) > 1 else parts
    said = "; ".join(f"at load {load:g} κ̄ = {best:.3f}, theory {theory:.3f}" for load, best, theory in chosen)
    return [f"Largest margins against theory, m = {panel['m']}: {said}."]


def predicted(curve: list[tuple[float, float]], load: float) -> float:
    """The theory curve at a load, by interpolation."""
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x0 <= load <= x1:
            return y0 + (y1 - y0) * (load - x0) / (x1 - x0)
    return curve[-1][1]


def _fastest(lines: list[dict[str, Any]], contents: dict[str, Any]) -> list[str]:
    scope, count = ("common", contents["common"]) if contents["common"] else ("all", contents["problems"])
    order = sorted(lines, key=lambda line: _last(line[f"{scope}_restarts"]))
    order = [line for line in order if line["hits"]]
    if not order:
        return [f"No run reaches {percent(_QUALITY)} of a best known answer."]
    what = "the problems all were run on" if scope == "common" else "all problems, what was not run counted as failed"
    told = ", ".join(
        f"{line['solver']} {show(line[f'{scope}_restarts'])} s ({line['reached']} of {line['problems']} problems, "
        f"{line['hits']} of {line['runs']} runs get there)"
        for line in order[:3]
    )
    return [
        f"Fastest to {percent(_QUALITY)} of the best known, restarted until success, build included: {told}; shifted "
        f"geometric means over {what} ({count}), shift {contents['shift']:g} s, a problem without success counted at "
        f"{metrics.PENALTIES[-1]}× the time limit."
    ]


def _failures(summary: list[dict[str, Any]], statuses: list[dict[str, Any]]) -> list[str]:
    sentences = []
    for line in sorted(summary, key=lambda line: (line["solved"] / max(1, line["runs"]), line["solver"])):
        failed = line["runs"] - line["solved"]
        if failed:
            ways: dict[str, int] = {}
            for each in statuses:
                if each["solver"] == line["solver"] and each["termination"] != "skipped":
                    lost = each["runs"] - each["solved"]
                    ways[each["termination"]] = ways.get(each["termination"], 0) + lost
            told = ", ".join(f"{n} {way}" for way, n in sorted(ways.items(), key=lambda way: -way[1]) if n)
            sentences.append(f"{line['solver']} {failed} of {line['runs']} ({told})")
    if not sentences:
        return ["Every run gave a feasible point, on tasks with a positive margin."]
    return [f"Runs without a feasible point or a positive margin: {'; '.join(sentences)}."]


def _claims(summary: list[dict[str, Any]], refuted: list[dict[str, Any]]) -> list[str]:
    wrong = [f"{line['solver']} {line['false_claims']}" for line in summary if line["false_claims"]]
    text = [f"Claimed solved, but the point is not feasible: {', '.join(wrong)} runs."] if wrong else []
    names = sorted({each["solver"] for each in refuted})
    return text + ([f"Bounds that a feasible point refutes: {len(refuted)}, by {', '.join(names)}."] if names else [])


def _missing(summary: list[dict[str, Any]], contents: dict[str, Any]) -> list[str]:
    missing = [f"{line['solver']} on {line['missing']}" for line in summary if line["missing"]]
    text = [f"Not run: {', '.join(missing)} of {contents['problems']} problems."] if missing else []
    skipped = [each["name"] for each in contents["solvers"] if not each["ran"]]
    return text + ([f"Could not run here: {', '.join(skipped)}."] if skipped else [])


def _limits(solvers: list[dict[str, Any]]) -> str:
    by_limits: dict[str, list[str]] = {}
    for each in solvers:
        by_limits.setdefault(each["limits"], []).append(each["name"])
    if len(by_limits) == 1:
        return f"All within the same limits: {next(iter(by_limits))}."
    told = "; ".join(f"{limits}: {', '.join(names)}" for limits, names in by_limits.items())
    return f"Limits differ, so times and failures do not compare one to one: {told}."


def _last(value: float | None) -> float:
    return float("inf") if value is None else value
