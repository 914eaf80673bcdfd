"""Summary of a report in a few sentences."""

import math
from collections import Counter
from collections.abc import Sequence

from qcqpbench.analysis import metrics
from qcqpbench.analysis.report.table import percent

from .capacity import CapacityPanel
from .contents import ReportContents, SolverBounds, SolverSummary
from .facts import Location
from .general import GeneralContents, GeneralProblem, GeneralSolver
from .sources import MicroBenchmark
from .timing import Target

_TARGET = 0.95
# Longer enumerations are cut off.
_MAX_NAMED = 4


def verdict(contents: ReportContents) -> list[str]:
    """Return sentences that summarize the `contents` of a report: margins, bounds, times, failures, general QCQPs."""
    margins, general = contents.summary, contents.general.summary
    sentences = [_largest_margins(contents), *_theory(contents.capacity)] if margins else []
    sentences += [*_proved(margins), *_bounds(contents.bounds, "Upper bounds")]
    if margins:
        sentences += [_fastest(contents), _failures(contents)]
    if general:
        sentences += _general(contents.general, beside_tasks=contents.tasks > 0)
    sentences += _bounds(contents.general_bounds, "Bounds on general QCQPs")
    sentences += _unranked(contents.unknown_sense)
    sentences += [*_false_claims(contents), *_not_run(contents)]
    sentences += [_limits(contents)] if margins or general else []
    sentences += [f"Rows left out: {contents.left_out}."] if contents.left_out else []
    sentences += _micro(contents.micro)
    return sentences or ["No solver was run."]


def _enumerate(parts: Sequence[str], separator: str = ", ") -> str:
    """Join the parts; replace those after the first _MAX_NAMED by their number if there are too many."""
    shown = parts if len(parts) <= _MAX_NAMED + 1 else [*parts[:_MAX_NAMED], f"{len(parts) - _MAX_NAMED} more"]
    return separator.join(shown)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _or_infinity(value: float | None) -> float:
    return math.inf if value is None else value


def _with_gap(line: SolverSummary | GeneralSolver) -> str:
    return "" if line.gap_median is None else f" with a median gap of {percent(line.gap_median)}"


# --- max-margin tasks ---


def _largest_margins(contents: ReportContents) -> str:
    def rank(line: SolverSummary) -> tuple[int, float, str]:
        return -line.best, _or_infinity(line.gap_median), line.solver

    order = sorted(contents.summary, key=rank)
    most = order[0].best
    if not most:
        closest = "" if order[0].gap_median is None else f"; closest is {order[0].solver}{_with_gap(order[0])}"
        return f"No solver reaches the best known margin of any problem{closest}."
    names = [f"{line.solver} ({_count(line.starts, 'start')})" for line in order]
    first = [name for name, line in zip(names, order, strict=True) if line.best == most]
    verb = "finds" if len(first) == 1 else "find"
    problems = _count(contents.tasks, "problem")
    text = f"{_enumerate(first)} {verb} the largest margins: the best known on {most} of {problems}"
    others = [f"{name} on {line.best}{_with_gap(line)}" for name, line in zip(names, order, strict=True)]
    following = others[len(first) : len(first) + 2]
    return text + (f"; next {', '.join(following)}" if following else "") + "."


def _theory(panels: Sequence[CapacityPanel]) -> list[str]:
    """Return a sentence that compares the best margins with full RSB, at the largest m and the extreme loads."""
    for panel in sorted(panels, key=lambda panel: -panel.m):
        best: dict[float, float] = {}
        for point in panel.points:
            load = point.load
            if point.best and load in panel.theory.at_loads:
                best[load] = max(point.best.middle, best.get(load, -math.inf))
        if best:
            values = "; ".join(
                f"κ̄ = {round(best[load], 3) + 0:.3f} at load {load:g}, theory {panel.theory.at_loads[load]:.3f}"
                for load in sorted({min(best), max(best)})
            )
            return [f"Largest margins against theory with full RSB, m = {panel.m}: {values}."]
    return []


def _proved(lines: Sequence[SolverSummary]) -> list[str]:
    order = sorted((line for line in lines if line.proved), key=lambda line: (-line.optimal / line.proved, line.solver))
    parts = [f"{line.solver} {line.optimal} of {line.proved}" for line in order]
    return [f"Problems with a proved optimum that a solver solves to optimality: {_enumerate(parts)}."] if parts else []


def _bounds(lines: Sequence[SolverBounds], title: str) -> list[str]:
    order = sorted((line for line in lines if line.bounded), key=lambda line: (-line.bounded, line.solver))
    parts = [
        f"{line.solver} on {line.bounded} of {_count(line.problems, 'problem')}, median gap to the best "
        f"known {percent(line.gap_median)}, optimality proved on {line.tight}"
        for line in order
    ]
    return [f"{title}: {_enumerate(parts, '; ')}."] if parts else []


def _fastest(contents: ReportContents) -> str:
    scope, count = ("common", contents.common) if contents.common else ("all", contents.tasks)
    lines = [line for line in contents.targets if line.quality == _TARGET and line.hits]
    if not lines:
        return f"No run reaches {percent(_TARGET)} of the best known margin of any problem."

    def restarts(line: Target) -> float:
        return _or_infinity(line.common_restarts if scope == "common" else line.all_restarts)

    lines.sort(key=restarts)
    times = [f"{line.solver} {restarts(line):.3g} s ({line.reached} of {line.problems})" for line in lines]
    which = f"the {_count(count, 'problem')} all solvers were run on" if scope == "common" else "all problems"
    return (
        f"Fastest to {percent(_TARGET)} of the best known margin (problems on which it is reached): "
        f"{_enumerate(times)}; {_mean_in_words(contents.shift)}, over {which}."
    )


def _mean_in_words(shift: float) -> str:
    return (
        f"shifted geometric means of the expected time with restarts, shift {shift:g} s, build included, failures at "
        f"{metrics.PENALTIES[-1]}× the time limit"
    )


def _failures(contents: ReportContents) -> str:
    unsolved = contents.unsolved
    text = f"No run has a positive margin on {_location(unsolved)}. " if unsolved.problems else ""
    lines = [(line.solver, line.failed) for line in contents.summary if line.failed.runs]
    if not lines:
        task = " on a max-margin task" if contents.general.problems else ""
        return f"{text}Every {'other ' if text else ''}run{task} has a positive margin."
    lines.sort(key=lambda line: (-line[1].runs / line[1].of, line[0]))
    parts = [
        f"{name} {failed.runs} of {failed.of} on {_location(failed.where)} "
        f"({', '.join(f'{count} {termination}' for termination, count in failed.ways.items())})"
        for name, failed in lines
    ]
    return f"{text}Runs that fail where others succeed: {_enumerate(parts, '; ')}."


def _location(where: Location) -> str:
    low, high = where.loads or (None, None)
    loads = "" if low is None else f", load {low:g}" if low == high else f", loads {low:g} to {high:g}"
    return _count(where.problems, "problem") + loads


# --- general QCQPs ---


def _general(general: GeneralContents, beside_tasks: bool) -> list[str]:
    """Return sentences on general QCQPs: best known values reached and improved, times, infeasible runs."""
    where = " on general QCQPs" if beside_tasks else ""
    return [
        _reached(general, where),
        *_improved(general.problems),
        *_fastest_general(general, where),
        *_infeasible(general.summary, where),
    ]


def _general_order(lines: Sequence[GeneralSolver]) -> list[GeneralSolver]:
    return sorted(lines, key=lambda line: (-line.reached, _or_infinity(line.gap_median), line.solver))


def _reached(general: GeneralContents, where: str) -> str:
    parts = [
        f"{line.solver} ({_count(line.starts, 'start')}) {line.reached} of {len(general.problems)}{_with_gap(line)}"
        for line in _general_order(general.summary)
    ]
    return f"Best known values reached{where}, to within 0.0001·max(0.01, |value|): {_enumerate(parts)}."


def _improved(problems: Sequence[GeneralProblem]) -> list[str]:
    parts = [
        f"{line.found:.10g} on {line.problem} by {_enumerate(line.solvers)}, previously {line.published:.10g}"
        for line in problems
        if line.record
    ]
    return [f"New best known values: {_enumerate(parts, '; ')}."] if parts else []


def _fastest_general(general: GeneralContents, where: str) -> list[str]:
    lines = sorted((line for line in general.summary if line.reached), key=lambda line: _or_infinity(line.restarts))
    if len(lines) < 2:
        return []
    times = [f"{line.solver} {line.restarts:.3g} s" for line in lines]
    return [f"Fastest to the best known value{where}: {_enumerate(times)}; {_mean_in_words(general.shift)}."]


def _infeasible(lines: Sequence[GeneralSolver], where: str) -> list[str]:
    parts = [
        f"{line.solver} {line.runs - line.feasible} of {line.runs}"
        for line in _general_order(lines)
        if line.feasible < line.runs
    ]
    if parts:
        return [f"Runs without a feasible point{where}: {_enumerate(parts)}."]
    return [] if where else ["Every run has a feasible point."]


# --- all problems ---


def _unranked(problems: Sequence[str]) -> list[str]:
    if not problems:
        return []
    verb, pronoun, possessive = ("is", "it", "its") if len(problems) == 1 else ("are", "they", "their")
    why = f"{pronoun} cannot be loaded, and {possessive} rows do not store the sense"
    return [f"{_count(len(problems), 'problem')} {verb} not ranked because {why}: {_enumerate(problems)}."]


def _false_claims(contents: ReportContents) -> list[str]:
    counts: Counter[str] = Counter()
    for line in contents.statuses:
        counts[line.solver] += line.false_claims
    claims = [f"{name} {count}" for name, count in counts.items() if count]
    text = f"Claims refuted by verification: {_enumerate(claims)}. " if claims else ""
    names = sorted({bound.solver for bound in contents.refuted})
    if names:
        text += f"Bounds refuted by a verified point: {len(contents.refuted)}, by {_enumerate(names)}."
    return [text.strip()] if text else []


def _not_run(contents: ReportContents) -> list[str]:
    text = ""
    for lines, count, noun in (
        ([*contents.summary], contents.tasks, "problems"),
        ([*contents.general.summary], len(contents.general.problems), "general QCQPs"),
    ):
        missing = [f"{line.solver} on {line.missing}" for line in lines if line.missing]
        text += f"Not run: {_enumerate(missing)} of {count} {noun}. " if missing else ""
    skipped = [solver.name for solver in contents.solvers if not solver.ran]
    text += f"Skipped because unavailable: {_enumerate(skipped)}." if skipped else ""
    return [text.strip()] if text else []


def _limits(contents: ReportContents) -> str:
    names_by_limits: dict[str, list[str]] = {}
    for solver in contents.solvers:
        names_by_limits.setdefault(solver.limits, []).append(solver.name)
    if len(names_by_limits) == 1:
        text = f"All runs have the same limits: {next(iter(names_by_limits))}."
    else:
        parts = [f"{limits}: {_enumerate(names)}" for limits, names in names_by_limits.items()]
        text = f"Limits differ, so times and failures are not directly comparable: {_enumerate(parts, '; ')}."
    processors = {str(machine.facts.cpu) for machine in contents.machines}
    return text + (f" Times are from {len(processors)} CPU models and not comparable." if len(processors) > 1 else "")


def _micro(benchmarks: Sequence[MicroBenchmark]) -> list[str]:
    return [f"pytest-benchmark: {_count(len(benchmarks), 'benchmark')}, in the last table."] if benchmarks else []
