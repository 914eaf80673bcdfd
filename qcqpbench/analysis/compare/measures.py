"""Values of two solvers on each instance that both ran: margins, relative gaps and times."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from qcqpbench.analysis import metrics
from qcqpbench.analysis.rows import AnalysisRow, extend_row
from qcqpbench.catalog.machine import Machine
from qcqpbench.errors import QcqpbenchError
from qcqpbench.results.row import Row
from qcqpbench.run.run_spec import OPTIONS

from .sides import Side

Quantity = Literal["kappa_bar", "relative_gap", "seconds"]
# A relative gap of more than this, and a run without a feasible point, count as this.
MAX_GAP = 1.0
# A run without a feasible point counts this many times its time limit.
PENALTY = metrics.PENALTIES[-1]
_MIN_SECONDS = 1e-9
_MAX_NAMED = 3
# Facts about the machine that must agree for a comparison of times.
_MACHINE_FACTS = ("cpu", "physical_cores", "logical_cores", "system", "python")
# Options that must agree for any comparison. Starts are compared with equal starts, so their seed is not one of them.
_LIMITS = tuple(name for name in OPTIONS if name != "start_seed")


@dataclass(frozen=True)
class InstanceValues:
    """Values of both sides on one problem, means over the starts that both ran, and the difference that is tested.

    `difference` is positive if the second is better, and 0 for a tie: κ̄ of the second minus that of the first, gap of
    the first minus that of the second, or log(seconds of the first / seconds of the second).
    """

    problem: str
    runs: int
    first: float
    second: float
    difference: float


@dataclass(frozen=True)
class PairedValues:
    """Values by instance of each quantity that can be compared, and sentences on what was left out."""

    values: Mapping[Quantity, tuple[InstanceValues, ...]]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Pair:
    """Runs of both sides on the same problem, from the same start, with the same limits."""

    first: AnalysisRow
    second: AnalysisRow


def paired_values(first: Side, second: Side, rows: Sequence[Row]) -> PairedValues:
    """Return the values of two sides on the instances that both ran.

    Parameters
    ----------
    first, second
        The two sides.
    rows
        All rows of the files, from which the best known objectives of general QCQPs are taken.

    Raises
    ------
    QcqpbenchError
        If no run of one side has a counterpart on the other.
    """
    instances = _pairs(first, second)
    general, best = metrics.general(rows), metrics.best_known(rows)
    senses = {row.problem_id for row in rows if metrics.sign(row) is not None}
    unknown = [id for id in instances if id in general and id not in senses]
    qualities: dict[Quantity, list[InstanceValues]] = {"kappa_bar": [], "relative_gap": []}
    for id, pairs in instances.items():
        if id in unknown:
            continue
        quantity: Quantity = "relative_gap" if id in general else "kappa_bar"
        qualities[quantity].append(_gaps(pairs, best.get(id)) if id in general else _margins(pairs))
    timed = {id: same for id, pairs in instances.items() if (same := [pair for pair in pairs if _same_machine(pair)])}
    values = {**qualities, "seconds": [_seconds(pairs) for pairs in timed.values()]}
    left_out = [*_without_counterpart(first, second, instances), *_other_machines(instances, timed)]
    if unknown:
        left_out.append(f"Objectives of {len(unknown)} instances are not compared because the sense is not stored.")
    return PairedValues({name: tuple(items) for name, items in values.items() if items}, tuple(left_out))


# --- pairs of runs ---


def _pairs(first: Side, second: Side) -> dict[str, list[_Pair]]:
    """Return the pairs of runs by problem id, in the order of the first side."""
    others = {_run(row): row for row in second.rows}
    pairs: dict[str, list[_Pair]] = defaultdict(list)
    for row in first.rows:
        if (other := others.get(_run(row))) is not None:
            pairs[row.problem_id].append(_Pair(_labelled(row, first), _labelled(other, second)))
    if not pairs:
        raise QcqpbenchError(f"{first.label} and {second.label} cannot be compared: {_obstacle(first, second)}")
    return dict(pairs)


def _run(row: Row) -> tuple[object, ...]:
    return row.problem_id, row.start_seed, row.start, *(getattr(row, name) for name in _LIMITS)


def _labelled(row: Row, side: Side) -> AnalysisRow:
    return extend_row(AnalysisRow, row, {"label": side.label, "problem_label": row.problem, "trace": ()})


def _obstacle(first: Side, second: Side) -> str:
    """Return why no run of the first side has a counterpart on the second."""

    def common(facts: Callable[[Row], object]) -> bool:
        return not {facts(row) for row in first.rows}.isdisjoint(facts(row) for row in second.rows)

    if not common(lambda row: row.problem_id):
        return "they have no problem in common"
    if not common(lambda row: (row.problem_id, row.start_seed, row.start)):
        return "they have no start in common"
    parts = []
    for name in _LIMITS:
        values = [sorted({str(getattr(row, name)) for row in side.rows}) for side in (first, second)]
        if values[0] != values[1]:
            parts.append(f"{name} {' or '.join(values[0])} against {' or '.join(values[1])}")
    return f"their runs have other limits: {'; '.join(parts) or 'no pair of runs has the same'}"


def _without_counterpart(first: Side, second: Side, instances: Mapping[str, Sequence[_Pair]]) -> Iterator[str]:
    count = sum(map(len, instances.values()))
    for side in (first, second):
        if rest := len(side.rows) - count:
            missing = len({row.problem_id for row in side.rows} - instances.keys())
            where = f", on {missing} problems among others" if missing else ""
            yield (
                f"Left out: {rest} runs of {side.label} that the other has not made{where}, or not from the same start "
                "with the same limits."
            )


def _same_machine(pair: _Pair) -> bool:
    machines = pair.first.machine, pair.second.machine
    return machines[0].cpu is not None and _facts(machines[0]) == _facts(machines[1])


def _facts(machine: Machine) -> tuple[object, ...]:
    return tuple(getattr(machine, name) for name in _MACHINE_FACTS)


def _other_machines(instances: Mapping[str, Sequence[_Pair]], timed: Mapping[str, Sequence[_Pair]]) -> Iterator[str]:
    pairs = [pair for id, group in instances.items() for pair in group if pair not in timed.get(id, ())]
    if pairs:
        count = len(instances) - len(timed)
        what = (
            "Times are not compared" if not timed else f"Times of {count or 'some runs on'} instances are not compared"
        )
        yield f"{what}: {_list(_machine_difference(pair) for pair in pairs)}."


def _machine_difference(pair: _Pair) -> str:
    if pair.first.machine.cpu is None or pair.second.machine.cpu is None:
        return "the machine is not known"
    one, two = _facts(pair.first.machine), _facts(pair.second.machine)
    parts = [f"{name} {a} against {b}" for name, a, b in zip(_MACHINE_FACTS, one, two, strict=True) if a != b]
    return f"other machine ({', '.join(parts)})"


def _list(texts: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    more = len(distinct) - _MAX_NAMED
    return "; ".join(distinct[:_MAX_NAMED]) + (f"; {more} more" if more > 0 else "")


# --- values of an instance ---


def _values(pairs: Sequence[_Pair], first: float, second: float, difference: float) -> InstanceValues:
    return InstanceValues(pairs[0].first.problem, len(pairs), first, second, difference)


def _margins(pairs: Sequence[_Pair]) -> InstanceValues:
    """Return the mean κ̄ of both sides; a run without a point counts as the least κ̄ of either side, at most 0."""
    scores = [(metrics.score(pair.first), metrics.score(pair.second)) for pair in pairs]
    least = min(0.0, *(score for pair in scores for score in pair if score is not None))
    first, second = (
        statistics.fmean(least if score is None else score for score in side) for side in zip(*scores, strict=True)
    )
    best = max(first, second)
    is_tie = metrics.gap(min(first, second), best) <= metrics.SAME
    return _values(pairs, first, second, 0.0 if is_tie else second - first)


def _gaps(pairs: Sequence[_Pair], best: float | None) -> InstanceValues:
    """Return the mean gap of both sides to the best known objective, each gap at most MAX_GAP."""

    def gap(row: Row) -> float:
        score = metrics.score(row)
        return MAX_GAP if score is None or best is None else min(MAX_GAP, metrics.gap(score, best))

    first = statistics.fmean(gap(pair.first) for pair in pairs)
    second = statistics.fmean(gap(pair.second) for pair in pairs)
    return _values(pairs, first, second, 0.0 if abs(first - second) <= metrics.SAME else first - second)


def _seconds(pairs: Sequence[_Pair]) -> InstanceValues:
    """Return the mean seconds of both sides; a run without a point counts PENALTY times its limit."""
    sides = [pair.first for pair in pairs], [pair.second for pair in pairs]
    (most,) = metrics.limits_of([*sides[0], *sides[1]]).values()
    first, second = (max(_MIN_SECONDS, metrics.penalized_seconds(side, -math.inf, most, PENALTY)) for side in sides)
    return _values(pairs, first, second, math.log(first / second))
