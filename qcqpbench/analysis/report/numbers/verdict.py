"""The report in a few sentences, with the numbers they rest on."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from qcqpbench.analysis import metrics

from .tables import percent

_QUALITY = 0.95
# Solvers that a sentence names.
_NAMED = 4


def verdict(contents: dict[str, Any]) -> list[str]:
    """Who finds the largest margins, who is fastest to a given quality, who fails where: nine sentences at most, and
    five on problems that are not max-margin."""
    margins, general = contents["summary"], contents["general"]["summary"]
    said = [_best(contents), *_theory(contents["capacity"])] if margins else []
    said += _bounds(contents["bounds"], "Bounds")
    if margins:
        fastest = [line for line in contents["targets"] if line["quality"] == _QUALITY]
        said += [_fastest(fastest, contents), _failures(contents)]
    said += _general(contents["general"], contents["tasks"] > 0) if general else []
    said += _bounds(contents["general_bounds"], "Bounds on problems that are not max-margin")
    said += _unknown(contents["unknown_sense"])
    said += [*_claims(contents), *_missing(contents)]
    said += [_limits(contents)] if margins or general else []
    said += [f"Rows left out: {contents['left_out']}."] if contents["left_out"] else []
    said += _micro(contents["micro"])
    return said or ["No solver was run."]


def _some(parts: Sequence[str], joint: str = ", ") -> str:
    """The first of them, and how many more there are."""
    shown = parts if len(parts) <= _NAMED + 1 else [*parts[:_NAMED], f"{len(parts) - _NAMED} more"]
    return joint.join(shown)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _best(contents: dict[str, Any]) -> str:
    order = sorted(contents["summary"], key=lambda line: (-line["best"], _last(line["gap_median"]), line["solver"]))
    most = order[0]["best"]
    if not most:
        gap = order[0]["gap_median"]
        told = "" if gap is None else f"; nearest is {order[0]['solver']}, with a median gap of {percent(gap)}"
        return f"No solver reaches a best known answer{told}."
    first = [f"{line['solver']} ({_count(line['starts'], 'start')})" for line in order if line["best"] == most]
    verb = "finds" if len(first) == 1 else "find"
    problems = _count(contents["tasks"], "problem")
    text = f"{_some(first)} {verb} the largest margins: the best known on {most} of {problems}"
    others = [
        f"{line['solver']} ({_count(line['starts'], 'start')}) on {line['best']}"
        + ("" if line["gap_median"] is None else f" with a median gap of {percent(line['gap_median'])}")
        for line in order[len(first) :]
    ]
    return text + (f"; next {', '.join(others[:2])}" if others else "") + "."


def _theory(panels: list[dict[str, Any]]) -> list[str]:
    """At the largest size, what theory predicts and the best solver reaches, at the least load and the largest."""
    for panel in sorted(panels, key=lambda each: -each["m"]):
        best: dict[float, float] = {}
        for point in panel["points"]:
            load = point["load"]
            if point["best"] and load in panel["predicted"]:
                best[load] = max(point["best"][0], best.get(load, -math.inf))
        if best:
            said = "; ".join(
                f"κ̄ = {round(best[load], 3) + 0:.3f} at load {load:g}, theory {panel['predicted'][load]:.3f}"
                for load in sorted({min(best), max(best)})
            )
            return [f"Largest margins against theory, m = {panel['m']}: {said}."]
    return []


def _bounds(found: list[dict[str, Any]], title: str) -> list[str]:
    lines = sorted((line for line in found if line["bounded"]), key=lambda line: (-line["bounded"], line["solver"]))
    told = [
        f"{line['solver']} on {line['bounded']} of {_count(line['problems'], 'problem')}, median gap from the best "
        f"known {percent(line['gap_median'])}, optimum proved on {line['tight']}"
        for line in lines
    ]
    return [f"{title}: {_some(told, '; ')}."] if told else []


def _fastest(lines: list[dict[str, Any]], contents: dict[str, Any]) -> str:
    scope, count = ("common", contents["common"]) if contents["common"] else ("all", contents["tasks"])
    order = sorted((line for line in lines if line["hits"]), key=lambda line: _last(line[f"{scope}_restarts"]))
    if not order:
        return f"No run reaches {percent(_QUALITY)} of a best known answer."
    told = _some([f"{e['solver']} {e[f'{scope}_restarts']:.3g} s ({e['reached']} of {e['problems']})" for e in order])
    which = f"the {_count(count, 'problem')} all were run on" if scope == "common" else "all problems"
    return (
        f"Fastest to {percent(_QUALITY)} of the best known (and on how many problems ever): {told}; shifted geometric "
        f"means over {which}, shift {contents['shift']:g} s, build included, restarts until success, failure at "
        f"{metrics.PENALTIES[-1]}× the time limit."
    )


def _failures(contents: dict[str, Any]) -> str:
    none = contents["unsolved"]
    text = ""
    if none["problems"]:
        text = f"No run has a positive margin on {_where(none)}. "
    lines = [(line["solver"], line["failed"]) for line in contents["summary"] if line["failed"]["runs"]]
    if not lines:
        other = "other " if text else ""
        if contents["general"]["problems"]:
            return f"{text}Every {other}run on a max-margin task gave a positive margin."
        return f"{text}Every {other}run gave a feasible point, on tasks with a positive margin."
    lines.sort(key=lambda line: (-line[1]["runs"] / line[1]["of"], line[0]))
    told = [
        f"{name} {failed['runs']} of {failed['of']} on {_where(failed['where'])} "
        f"({', '.join(f'{n} {way}' for way, n in failed['ways'].items())})"
        for name, failed in lines
    ]
    return f"{text}Runs that fail where others succeed: {_some(told, '; ')}."


def _where(found: dict[str, Any]) -> str:
    low, high = found["loads"] or (None, None)
    loads = "" if low is None else f", load {low:g}" if low == high else f", loads {low:g} to {high:g}"
    return _count(found["problems"], "problem") + loads


def _general(found: dict[str, Any], beside_tasks: bool) -> list[str]:
    """Who reaches the best known values, who finds better ones, how fast, and who finds no feasible point."""
    order = sorted(found["summary"], key=lambda line: (-line["reached"], _last(line["gap_median"]), line["solver"]))
    where = " on problems that are not max-margin" if beside_tasks else ""
    told = [
        f"{line['solver']} ({_count(line['starts'], 'start')}) {line['reached']} of {len(found['problems'])}"
        + ("" if line["gap_median"] is None else f" with a median gap of {percent(line['gap_median'])}")
        for line in order
    ]
    said = [f"Best known values reached{where}, to 0.0001 of max(1, |value|): {_some(told)}."]
    better = [
        f"{each['found']:.10g} on {each['problem']} by {_some(each['solvers'])}, was {each['published']:.10g}"
        for each in found["problems"]
        if each["record"]
    ]
    said += [f"Better than the best known value: {_some(better, '; ')}."] if better else []
    fast = [line for line in found["summary"] if line["reached"]]
    fast.sort(key=lambda line: _last(line["restarts"]))
    if len(fast) > 1:
        told = [f"{line['solver']} {line['restarts']:.3g} s" for line in fast]
        said.append(
            f"Fastest to them: {_some(told)}; shifted geometric means, shift {found['shift']:g} s, build included, "
            f"restarts until success, failure at {metrics.PENALTIES[-1]}× the time limit."
        )
    failed = [f"{e['solver']} {e['runs'] - e['feasible']} of {e['runs']}" for e in order if e["feasible"] < e["runs"]]
    if failed:
        said.append(f"Runs without a feasible point{' there' if beside_tasks else ''}: {_some(failed)}.")
    elif not beside_tasks:
        said.append("Every run gave a feasible point.")
    return said


def _unknown(names: list[str]) -> list[str]:
    count, own = _count(len(names), "problem"), "its" if len(names) == 1 else "their"
    why = f"cannot be read here, and {own} old rows do not say whether more is better"
    return [f"No gaps, no ranks on {count} that {why}: {_some(names)}."] if names else []


def _claims(contents: dict[str, Any]) -> list[str]:
    wrong: Counter[str] = Counter()
    for each in contents["statuses"]:
        wrong[each["solver"]] += each["false"]
    told = [f"{name} {count}" for name, count in wrong.items() if count]
    text = f"Claims that a verified point refutes: {_some(told)}. " if told else ""
    names = sorted({each["solver"] for each in contents["refuted"]})
    if names:
        text += f"Bounds that a feasible point refutes: {len(contents['refuted'])}, by {_some(names)}."
    return [text.strip()] if text else []


def _missing(contents: dict[str, Any]) -> list[str]:
    text = ""
    for lines, count, which in (
        (contents["summary"], contents["tasks"], "problems"),
        (contents["general"]["summary"], len(contents["general"]["problems"]), "problems that are not max-margin"),
    ):
        missing = [f"{line['solver']} on {line['missing']}" for line in lines if line["missing"]]
        text += f"Not run: {_some(missing)} of {count} {which}. " if missing else ""
    skipped = [each["name"] for each in contents["solvers"] if not each["ran"]]
    text += f"Could not run here: {_some(skipped)}." if skipped else ""
    return [text.strip()] if text else []


def _limits(contents: dict[str, Any]) -> str:
    by_limits: dict[str, list[str]] = {}
    for each in contents["solvers"]:
        by_limits.setdefault(each["limits"], []).append(each["name"])
    if len(by_limits) == 1:
        text = f"All within the same limits: {next(iter(by_limits))}."
    else:
        told = _some([f"{limits}: {_some(names)}" for limits, names in by_limits.items()], "; ")
        text = f"Limits differ, so times and failures do not compare one to one: {told}."
    processors = {str(each["facts"].get("cpu")) for each in contents["machines"]}
    return text + (f" Times are of {len(processors)} kinds of CPU and do not compare." if len(processors) > 1 else "")


def _micro(found: list[dict[str, Any]]) -> list[str]:
    return [f"pytest-benchmark: {_count(len(found), 'benchmark')}, in the last table."] if found else []


def _last(value: float | None) -> float:
    return math.inf if value is None else value
