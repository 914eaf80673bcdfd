"""Summary of a report in at most six sentences, and the list of what the report leaves out."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from qcqpbench.analysis import metrics
from qcqpbench.analysis.intervals import MIN_INSTANCES

from .numbers.capacity import CapacityPanel
from .numbers.contents import ReportContents, SolverBounds, SolverSummary
from .numbers.facts import Location
from .numbers.general import GeneralContents, GeneralProblem, GeneralSolver
from .numbers.ranking import MAX_GAP, Lead, Ranking
from .table import percent

MAX_SENTENCES = 6
_TARGET = 0.95
# Longer enumerations and names are cut off.
_MAX_NAMED = 3
_MAX_NAME_CHARACTERS = 60
_MAX_REASON_CHARACTERS = 200


class _Sentence(NamedTuple):
    """Sentence of a verdict; of too many sentences, those with the largest number in `order` are left out."""

    order: int
    text: str


def verdict(contents: ReportContents) -> list[str]:
    """Return at most MAX_SENTENCES sentences: the best solver, by how much, how sure, how fast, and cautions."""
    margins, general = contents.ranking, contents.general
    where = " on general QCQPs" if contents.tasks else ""
    sentences = [
        *_in_order(0, _best(margins, "finds", "find", "the largest margins")),
        *_in_order(2, _certainty(margins)),
        *_in_order(4, _fastest(contents)),
        *_in_order(0, _best(general.ranking, "comes", "come", f"closest to the best known values{where}")),
        *_in_order(3, _certainty(general.ranking)),
        *_in_order(5, _improved(general.problems)),
        *_in_order(8, _fastest_general(general, where)),
        *_in_order(9, _infeasible(general, where)),
        *_in_order(7, _theory(contents.capacity)),
        *_in_order(10, _failures(contents)),
        *_in_order(11, _proved(contents.summary)),
        *_in_order(12, _bounds(contents.bounds, "Upper bounds")),
        *_in_order(12, _bounds(contents.general_bounds, "Bounds on general QCQPs")),
        *_in_order(1, _false_claims(contents)),
        *_in_order(6, _unranked(contents.unknown_sense)),
        *_in_order(6, _care(contents)),
        *_in_order(13, _micro(contents)),
    ]
    kept = sorted(sentences, key=lambda sentence: sentence.order)[:MAX_SENTENCES]
    return [sentence.text for sentence in sentences if sentence in kept] or ["No solver was run."]


def _in_order(order: int, texts: Sequence[str]) -> list[_Sentence]:
    return [_Sentence(order, text) for text in texts]


def _name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[: _MAX_NAME_CHARACTERS - 1]}…"


def _enumerate(parts: Sequence[str], last: str = " and ") -> str:
    """Join the parts; replace those after the first _MAX_NAMED by their number if there are too many."""
    shown = parts if len(parts) <= _MAX_NAMED + 1 else [*parts[:_MAX_NAMED], f"{len(parts) - _MAX_NAMED} more"]
    return last.join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _brief(share: float) -> str:
    """Return a share in per cent with two significant digits."""
    return percent(share) if 0 < abs(share) < metrics.SAME or abs(share) >= 1 else f"{100 * share:.2g} %"


# --- who is the best, and how sure that is ---


def _best(ranking: Ranking, finds: str, find: str, object: str) -> list[str]:
    if not ranking.solvers:
        return []
    first = [line for line in ranking.solvers if line.rank == 1]
    best, total = first[0], ranking.problems
    if best.gap >= MAX_GAP:
        return [f"No solver comes within {percent(MAX_GAP)} of the best known value of any problem."]
    who = f"{_enumerate([_name(line.solver) for line in first])} {finds if len(first) == 1 else find} {object}"
    if best.reached == total:
        problems = {1: "the only problem", 2: "both problems"}.get(total, f"all {total} problems")
        return [f"{who}: the best known on {problems}."]
    reached = f"the best known on {best.reached} of {_count(total, 'problem')}"
    return [f"{who}: {reached}, with a mean gap of {_brief(best.gap)}."]


def _certainty(ranking: Ranking) -> list[str]:
    if not ranking.solvers or ranking.solvers[0].gap >= MAX_GAP:
        return []
    if len(ranking.solvers) == 1:
        return ["No other solver was run, so this report does not rank it."]
    if ranking.lead is None:
        return ["All solvers are equally good here: their mean gaps differ by less than 0.01 %."]
    difference = f"{_points(ranking.lead.difference)} percentage points"
    text = f"Next is {_name(ranking.lead.next)}, whose mean gap is {difference} larger"
    return [f"{text}; {_chance(ranking.lead, ranking.problems)}."]


def _chance(lead: Lead, problems: int) -> str:
    if lead.interval is None:
        few = "one problem is" if problems == 1 else f"{problems} problems are"
        return f"{few} too few to tell whether that is chance"
    low, high = lead.interval
    interval = f"95 % interval {_points(low)} to {_points(high)}, over {problems} problems"
    # Smaller differences are rounding errors of points that are the same.
    return f"this {'is unlikely to' if low > metrics.SAME else 'may'} be chance ({interval})"


def _points(share: float) -> str:
    """Return a difference of shares in percentage points: in whole points from 10 on, else to two digits."""
    points = 100 * share
    return f"{points:.0f}" if abs(points) >= 10 else "0" if abs(points) < 0.01 else f"{points:.2g}"


def _theory(panels: Sequence[CapacityPanel]) -> list[str]:
    """Return a sentence that compares the best margins with full RSB, at the largest m and the extreme loads."""
    for panel in sorted(panels, key=lambda panel: -panel.m):
        best: dict[float, float] = {}
        for point in panel.points:
            load = point.load
            if point.best and load in panel.theory.at_loads:
                best[load] = max(point.best.middle, best.get(load, -math.inf))
        if best:
            loads = sorted({min(best), max(best)})
            reached = _enumerate([f"{round(best[load], 3) + 0:.3f} at load {load:g}" for load in loads])
            predicted = _enumerate([f"{panel.theory.at_loads[load]:.3f}" for load in loads])
            return [f"Largest κ̄ at m = {panel.m}: {reached}; theory (full RSB) predicts {predicted} for m → ∞."]
    return []


# --- times, failures, claims ---


def _fastest(contents: ReportContents) -> list[str]:
    if not contents.ranking.solvers:
        return []
    of_target = [line for line in contents.targets if line.quality == _TARGET]
    times = sorted((line.typical, line.solver) for line in of_target if line.typical is not None)
    if not times:
        return [f"No solver reaches {percent(_TARGET)} of the best known margin on more than half of the problems."]
    (least, fastest), best = times[0], contents.ranking.solvers[0].solver
    if len(contents.ranking.solvers) == 1:
        return [f"{_name(fastest)} takes {least:.2g} s to {percent(_TARGET)} of the best known margin (median)."]
    others = [f"{_name(name)} takes {time:.2g} s" for time, name in times[1:] if name == best]
    others = others or [f"{_name(name)} takes {time:.2g} s" for time, name in times[1:2]]
    text = f"Fastest to {percent(_TARGET)} of the best known margin is {_name(fastest)} with {least:.2g} s"
    return [f"{'; '.join([text, *others])} (median over the problems)."]


def _fastest_general(general: GeneralContents, where: str) -> list[str]:
    lines = sorted((line.restarts, line.solver) for line in general.summary if line.reached and line.restarts)
    if len(lines) < 2:
        return []
    times = _enumerate([f"{_name(name)} {time:.2g} s" for time, name in lines])
    return [f"Fastest to the best known value{where}: {times} (geometric means, failures at 3× the time limit)."]


def _improved(problems: Sequence[GeneralProblem]) -> list[str]:
    parts = [
        f"{line.found:.8g} on {_name(line.problem)} by {_enumerate([*map(_name, line.solvers)])}, "
        f"previously {line.published:.8g}"
        for line in problems
        if line.record
    ]
    if len(parts) > 1:
        return [f"New best known values on {len(parts)} problems: {parts[0]}; …"]
    return [f"New best known values: {parts[0]}."] if parts else []


def _infeasible(general: GeneralContents, where: str) -> list[str]:
    parts = [
        f"{_name(line.solver)} {line.runs - line.feasible} of {line.runs}"
        for line in general.summary
        if line.feasible < line.runs
    ]
    return [f"Runs without a feasible point{where}: {_enumerate(parts)}."] if parts else []


def _failures(contents: ReportContents) -> list[str]:
    unsolved = contents.unsolved
    texts = [f"No run has a positive margin on {_location(unsolved)}."] if unsolved.problems else []
    lines = [(line.solver, line.failed) for line in contents.summary if line.failed.runs]
    lines.sort(key=lambda line: (-line[1].runs / line[1].of, line[0]))
    parts = [f"{_name(name)} {failed.runs} of {failed.of}" for name, failed in lines]
    texts += [f"Runs that fail where others succeed: {_enumerate(parts)}."] if parts else []
    return [" ".join(texts)] if texts else []


def _location(where: Location) -> str:
    low, high = where.loads or (None, None)
    loads = "" if low is None else f", load {low:g}" if low == high else f", loads {low:g} to {high:g}"
    return _count(where.problems, "problem") + loads


def _proved(lines: Sequence[SolverSummary]) -> list[str]:
    order = sorted((line for line in lines if line.proved), key=lambda line: (-line.optimal / line.proved, line.solver))
    parts = [f"{_name(line.solver)} {line.optimal} of {line.proved}" for line in order]
    return [f"Proved optima that are reached: {_enumerate(parts)}."] if parts else []


def _bounds(lines: Sequence[SolverBounds], title: str) -> list[str]:
    order = sorted((line for line in lines if line.bounded), key=lambda line: (-line.bounded, line.solver))
    parts = [
        f"{_name(line.solver)} on {line.bounded} of {_count(line.problems, 'problem')} "
        f"(median gap {percent(line.gap_median)})"
        for line in order
    ]
    return [f"{title}: {_enumerate(parts)}."] if parts else []


def _false_claims(contents: ReportContents) -> list[str]:
    counts: Counter[str] = Counter()
    for line in contents.statuses:
        counts[line.solver] += line.false_claims
    claims = [f"{_name(name)} {count}" for name, count in counts.items() if count]
    texts = [f"Claims refuted by verification: {_enumerate(claims)}."] if claims else []
    names = sorted({bound.solver for bound in contents.refuted})
    texts += [f"Bounds refuted by a verified point: {_enumerate([*map(_name, names)])}."] if names else []
    return [" ".join(texts)] if texts else []


def _care(contents: ReportContents) -> list[str]:
    skipped = sum(not solver.ran for solver in contents.solvers)
    partly = sum(line.missing > 0 for line in contents.summary)
    partly += sum(line.missing > 0 for line in contents.general.summary)
    reasons = [
        *(["time or memory limits differ between runs"] if _differ_in_limits(contents) else []),
        *([f"{_count(partly, 'solver')} {'was' if partly == 1 else 'were'} not run on all problems"] if partly else []),
        *([f"{_count(skipped, 'solver')} {'was' if skipped == 1 else 'were'} skipped"] if skipped else []),
        *(["the machines differ"] if _differ_in_machines(contents) else []),
    ]
    return [f"Compare with care: {_enumerate(reasons)} (see What was left out)."] if reasons else []


def _differ_in_limits(contents: ReportContents) -> bool:
    return len({solver.limits for solver in contents.solvers}) > 1


def _differ_in_machines(contents: ReportContents) -> bool:
    return len({str(machine.facts.cpu) for machine in contents.machines}) > 1


def _unranked(problems: Sequence[str]) -> list[str]:
    if not problems:
        return []
    verb, pronoun, possessive = ("is", "it", "its") if len(problems) == 1 else ("are", "they", "their")
    why = f"{pronoun} cannot be loaded, and {possessive} rows do not store the sense"
    return [f"{_count(len(problems), 'problem')} {verb} not ranked because {why}: {_enumerate(problems)}."]


def _micro(contents: ReportContents) -> list[str]:
    count = len(contents.micro)
    return [f"pytest-benchmark: {_count(count, 'benchmark')}, in the last table."] if count else []


# --- what was left out ---


def left_out(contents: ReportContents, missing_plots: Sequence[str] = ()) -> list[str]:
    """Return sentences about rows, solvers, problems and plots that the report leaves out, with the reasons."""
    bounding = [solver.name for solver in contents.solvers if solver.ran and not solver.competes]
    few = [r.problems for r in (contents.ranking, contents.general.ranking) if 0 < r.problems < MIN_INSTANCES]
    return [
        *([f"Rows left out: {contents.left_out}."] if contents.left_out else []),
        *_skipped(contents),
        *_not_run(contents.summary, contents.tasks, "problems"),
        *_not_run(contents.general.summary, len(contents.general.problems), "general QCQPs"),
        *([f"Ranks of {', '.join(bounding)}: they prove bounds and do not compete for points."] if bounding else []),
        *_unranked(contents.unknown_sense),
        *_without_points(contents),
        *(f"Intervals of ranks: they need {MIN_INSTANCES} problems, the results have {count}." for count in few),
        *([_limits(contents)] if _differ_in_limits(contents) else []),
        *(["Times of different CPU models are shown together and not comparable."] * _differ_in_machines(contents)),
        *missing_plots,
    ]


def _skipped(contents: ReportContents) -> list[str]:
    return [
        f"Runs of {solver.name} on {_count(count, 'problem')}: skipped"
        + (f" ({reason[:_MAX_REASON_CHARACTERS]})." if reason else ".")
        for solver in contents.solvers
        for reason, count in solver.skipped.items()
    ]


def _not_run(lines: Sequence[SolverSummary | GeneralSolver], total: int, noun: str) -> list[str]:
    names: dict[int, list[str]] = {}
    for line in lines:
        names.setdefault(line.missing, []).append(line.solver)
    return [
        f"{', '.join(solvers)}: not run on {count} of {total} {noun}, which count with a gap of {percent(MAX_GAP)}."
        for count, solvers in sorted(names.items())
        if count
    ]


def _without_points(contents: ReportContents) -> list[str]:
    total = contents.tasks + len(contents.general.problems)
    count = total - contents.ranking.problems - contents.general.ranking.problems
    if not count:
        return []
    return [f"Ranks on {_count(count, 'problem')}: no run has a feasible point there, and no value is known."]


def _limits(contents: ReportContents) -> str:
    names_by_limits: dict[str, list[str]] = {}
    for solver in contents.solvers:
        names_by_limits.setdefault(solver.limits, []).append(solver.name)
    parts = [f"{limits}: {', '.join(names)}" for limits, names in names_by_limits.items()]
    return f"Limits differ, so times and failures are not directly comparable. {'; '.join(parts)}."
