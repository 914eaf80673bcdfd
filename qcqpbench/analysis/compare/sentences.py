"""Comparisons in words."""

import math

from qcqpbench.analysis.report.table import percent

from .comparison import Comparison, Measure, SolverComparison, Verdict
from .paired import LEVEL, POWER, fewest_instances

NAMES = {"kappa_bar": "κ̄", "relative_gap": "relative gap", "seconds": "time"}
_CONFIDENCE = percent(1 - LEVEL)


def verdict_sentences(comparison: Comparison) -> tuple[str, ...]:
    """Return one sentence for each solver and quantity."""
    verdicts = sum(len(solver.measures) for solver in comparison.solvers)
    return tuple(
        f"{_heading(solver)}, {NAMES[measure.quantity]}: "
        f"{measure.verdict}{_details(measure, comparison.effect, verdicts)}."
        for solver in comparison.solvers
        for measure in solver.measures
    )


def conventions(comparison: Comparison) -> list[str]:
    """Return sentences on the signs, the intervals and the verdicts of a comparison."""
    verdicts = sum(len(solver.measures) for solver in comparison.solvers)
    correction = f", corrected for {verdicts} verdicts by Holm's method" if verdicts > 1 else ""
    alone = " of one comparison alone" if verdicts > 1 else ""
    return [
        "Differences are positive if the second is better; ratios of times are second / first, below 1 if the second "
        "is faster. Wins are those of the second.",
        f"Intervals are bootstrap-t intervals{alone} with a confidence of {_CONFIDENCE}; instances are resampled, and "
        f"the starts of an instance are averaged first. A verdict needs p ≤ {percent(LEVEL)} in a sign-flip test and "
        f"in the bootstrap{correction}; times must also differ by {percent(comparison.effect)}.",
        "A run without a point counts as the least κ̄ of both solvers on the instance, at most 0; as a relative gap of "
        "100 %, the largest that counts; and as 3 times its time limit.",
    ]


def _heading(solver: SolverComparison) -> str:
    against = f"{solver.second.label} against {solver.first.label}"
    return f"{solver.title}, {against}" if solver.first.solver == solver.second.solver else against


def _details(measure: Measure, effect: float, verdicts: int) -> str:
    count = len(measure.instances)
    if measure.verdict is Verdict.SAME:
        return f" on {_instances(count)}" + (", to a relative 0.0001" if measure.quantity != "seconds" else "")
    if measure.verdict is Verdict.TOO_FEW:
        return f" for a verdict: {count} of the {fewest_instances(LEVEL / verdicts)} that it needs{_numbers(measure)}"
    if measure.verdict is not Verdict.NO_EVIDENCE:
        return _numbers(measure)
    if measure.excludes_effect:
        power = f"a difference of {percent(effect)} is excluded"
    elif (more := measure.instances_needed - count) > 0:
        power = f"about {_instances(more, ' more')} would tell {percent(effect)}"
    else:
        power = f"{percent(effect)} would have been told with a probability of {percent(POWER)}"
    return f" of a difference{_numbers(measure)}; {power}"


def _numbers(measure: Measure) -> str:
    """Return the difference with its interval, the number of instances, and wins, ties and losses."""
    ends = "" if measure.interval is None else f" ({_CONFIDENCE} interval {_range(measure)})"
    score = f"{measure.wins} wins, {measure.ties} ties, {measure.losses} losses"
    if measure.quantity == "seconds":
        return f": {measure.difference:.3g} times the time{ends}, {_instances(len(measure.instances))}: {score}"
    return f": {signed(measure.difference)}{ends}, {_instances(len(measure.instances))}: {score}"


def _range(measure: Measure) -> str:
    assert measure.interval is not None
    show = "{:.3g}".format if measure.quantity == "seconds" else signed
    return f"{show(measure.interval.low)} to {show(measure.interval.high)}"


def signed(value: float) -> str:
    """Return a number with its sign and three significant digits; 0 has none."""
    return "0" if value == 0 or not math.isfinite(value) else f"{value:+.3g}".replace("-", "−")


def _instances(count: int, more: str = "") -> str:
    return f"{count}{more} instance{'s' * (count != 1)}"
