"""Comparisons of solvers, versions and results files, with verdicts."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from html import escape
from pathlib import Path

from qcqpbench.analysis import metrics
from qcqpbench.analysis.intervals import Interval
from qcqpbench.errors import QcqpbenchError, require

from .measures import InstanceValues, Quantity, paired_values
from .paired import LEVEL, fewest_instances, holm, instances_needed, paired_test
from .sides import Side, choose_sides

DEFAULT_EFFECT = 0.05


class Verdict(StrEnum):
    """Verdict on the second side; of times, better means faster."""

    BETTER = "better"
    WORSE = "worse"
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "the same"
    NO_EVIDENCE = "no evidence"
    TOO_FEW = "too few instances"

    @property
    def is_loss(self) -> bool:
        """True if the second side is significantly worse or slower."""
        return self in (Verdict.WORSE, Verdict.SLOWER)


@dataclass(frozen=True)
class Measure:
    """Comparison of one quantity.

    Attributes
    ----------
    quantity
        "kappa_bar" of max-margin tasks, "relative_gap" of general QCQPs, or "seconds" of all.
    verdict
        The verdict on the second side.
    first, second
        Means over the instances; of seconds, geometric means.
    difference, interval
        Mean difference, positive if the second side is better, and its interval of confidence 1 − LEVEL; of seconds,
        the geometric mean of second / first, below 1 if the second side is faster. The interval is None if there are
        too few differences.
    wins, ties, losses
        Numbers of instances on which the second side is better, equal and worse.
    p_value, adjusted_p_value
        p-value of the difference, and the same adjusted by Holm's method for all verdicts of the comparison.
    effect
        The difference that matters, in the unit of `difference`: a share of the mean |κ̄| of the first side, a relative
        gap, or a ratio of times.
    instances_needed
        Number of instances with which a true difference of `effect` would be found with a probability of 80 %.
    instances
        The values of each instance, the largest losses first.
    """

    quantity: Quantity
    verdict: Verdict
    first: float
    second: float
    difference: float
    interval: Interval | None
    wins: int
    ties: int
    losses: int
    p_value: float
    adjusted_p_value: float
    effect: float
    instances_needed: int
    instances: tuple[InstanceValues, ...]

    @property
    def excludes_effect(self) -> bool:
        """True if the interval contains no difference as large as `effect`."""
        if self.interval is None:
            return False
        least = 1 / self.effect if self.quantity == "seconds" else -self.effect
        return least < self.interval.low and self.interval.high < self.effect


@dataclass(frozen=True)
class SolverComparison:
    """Comparison of two sides, with sentences on the runs that were left out."""

    title: str
    first: Side
    second: Side
    measures: tuple[Measure, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Result of `qcqpbench.Results.compare`.

    Attributes
    ----------
    solvers
        One entry for each pair of sides.
    effect
        The difference that matters, as a fraction.
    left_out
        Sentences on solvers that were not compared.
    """

    solvers: tuple[SolverComparison, ...]
    effect: float
    left_out: tuple[str, ...] = ()

    @property
    def is_loss(self) -> bool:
        """True if a second side is significantly worse or slower."""
        return any(measure.verdict.is_loss for solver in self.solvers for measure in solver.measures)

    @property
    def verdict(self) -> tuple[str, ...]:
        """One sentence for each solver and quantity."""
        from .sentences import verdict_sentences  # noqa: PLC0415 (it imports this module)

        return verdict_sentences(self)

    def to_markdown(self) -> str:
        """Return the comparison as Markdown."""
        return self._text("md")

    def to_html(self) -> str:
        """Return the comparison as an HTML page."""
        return self._text("html")

    def to_json(self) -> str:
        """Return all numbers as JSON."""
        return self._text("json")

    def write(self, path: str | Path) -> None:
        """Write the comparison to a .md, .html or .json file; only an earlier comparison is overwritten."""
        from .output import write  # noqa: PLC0415 (it imports this module)

        write(self, Path(path))

    def _text(self, form: str) -> str:
        from .output import RENDERERS  # noqa: PLC0415 (it imports this module)

        return RENDERERS[form](self)

    def __str__(self) -> str:
        return "\n".join(self.verdict)

    def __repr__(self) -> str:
        verdicts = [f"{m.quantity} {m.verdict}" for solver in self.solvers for m in solver.measures]
        return f"<Comparison of {len(self.solvers)} solvers: {', '.join(verdicts)}>"

    def _repr_html_(self) -> str:
        return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in self.verdict)}</ul>"


def compare(
    paths: Sequence[str | Path],
    solvers: Sequence[str] = (),
    versions: Sequence[str] = (),
    labels: Sequence[str] = (),
    effect: float = DEFAULT_EFFECT,
) -> Comparison:
    """Compare the solvers of one or two results files, see `qcqpbench.Results.compare`."""
    valid = isinstance(effect, int | float) and not isinstance(effect, bool) and 0 < effect < math.inf
    require(valid, f"effect must be a positive fraction, got {effect!r}")
    sides = choose_sides(paths, solvers, versions, labels)
    compared, left_out = list[SolverComparison](), list(sides.left_out)
    for first, second in sides.pairs:
        try:
            paired = paired_values(first, second, sides.rows)
        except QcqpbenchError as error:
            if len(sides.pairs) == 1:
                raise
            left_out.append(f"{first.solver_label} is not compared: {error}.")
            continue
        measures = tuple(_measure(name, values, effect) for name, values in paired.values.items())
        compared.append(SolverComparison(_title(first, second), first, second, measures, paired.left_out))
    require(bool(compared), f"no solver can be compared: {' '.join(left_out)}")
    return Comparison(tuple(_with_verdicts(compared, effect)), effect, tuple(left_out))


def _title(first: Side, second: Side) -> str:
    return first.solver_label if first.solver == second.solver else f"{first.label} and {second.label}"


def _measure(quantity: Quantity, instances: Sequence[InstanceValues], effect: float) -> Measure:
    """Return the measure of a quantity, without a verdict."""
    test = paired_test([instance.difference for instance in instances])
    signs = [_sign(instance, quantity, effect) for instance in instances]
    firsts, seconds = [instance.first for instance in instances], [instance.second for instance in instances]
    measure = Measure(
        quantity=quantity,
        verdict=Verdict.NO_EVIDENCE,
        first=statistics.fmean(firsts),
        second=statistics.fmean(seconds),
        difference=test.mean,
        interval=test.interval,
        wins=signs.count(1),
        ties=signs.count(0),
        losses=signs.count(-1),
        p_value=test.p_value,
        adjusted_p_value=test.p_value,
        effect=effect,
        instances_needed=0,
        instances=tuple(sorted(instances, key=lambda instance: instance.difference)),
    )
    if quantity == "kappa_bar":
        return replace(measure, effect=effect * max(metrics.FLOOR, statistics.fmean(map(abs, firsts))))
    if quantity == "seconds":
        ends = test.interval and Interval(math.exp(-test.interval.high), math.exp(-test.interval.low))
        return replace(
            measure,
            first=statistics.geometric_mean(firsts),
            second=statistics.geometric_mean(seconds),
            difference=math.exp(-test.mean),
            interval=ends,
            effect=1 + effect,
        )
    return measure


def _sign(instance: InstanceValues, quantity: Quantity, effect: float) -> int:
    """Return 1 if the second side wins, −1 if it loses, and 0 for a tie; times within `effect` are ties."""
    tie = math.log1p(effect) if quantity == "seconds" else 0.0
    return (instance.difference > tie) - (instance.difference < -tie)


def _with_verdicts(compared: Sequence[SolverComparison], effect: float) -> list[SolverComparison]:
    """Return the comparisons with verdicts, of which one or more is false with a probability of LEVEL."""
    measures = [measure for solver in compared for measure in solver.measures]
    adjusted = iter(holm([measure.p_value for measure in measures]))
    level = LEVEL / len(measures)
    return [
        replace(solver, measures=tuple(_judged(measure, next(adjusted), level) for measure in solver.measures))
        for solver in compared
    ]


def _judged(measure: Measure, adjusted_p_value: float, level: float) -> Measure:
    """Return the measure with its verdict and the number of instances needed for tests at `level`."""
    is_time = measure.quantity == "seconds"
    differences = [instance.difference for instance in measure.instances]
    spread = statistics.stdev(differences) if len(differences) > 1 else math.inf
    effect = math.log(measure.effect) if is_time else measure.effect
    needed = instances_needed(spread, effect, level) if math.isfinite(spread) else fewest_instances(level)
    verdict = Verdict.NO_EVIDENCE
    if not any(differences):
        verdict = Verdict.SAME
    elif adjusted_p_value <= LEVEL:
        verdict = _significant(measure, is_time)
    elif len(differences) < fewest_instances(level):
        verdict = Verdict.TOO_FEW
    return replace(measure, verdict=verdict, adjusted_p_value=adjusted_p_value, instances_needed=needed)


def _significant(measure: Measure, is_time: bool) -> Verdict:
    """Return the verdict of a significant difference; a ratio of times must also exceed the effect."""
    if not is_time:
        return Verdict.BETTER if measure.difference > 0 else Verdict.WORSE
    if 1 / measure.effect < measure.difference < measure.effect:
        return Verdict.NO_EVIDENCE
    return Verdict.FASTER if measure.difference < 1 else Verdict.SLOWER
