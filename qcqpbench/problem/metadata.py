"""Metadata of a problem: its origin, reference values and bounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import require

# Scale of the optimality gap between two zeros, which is 0.
_LEAST_SCALE = 1e-300


@dataclass(frozen=True)
class BestKnown:
    """Best known objective of a problem (for a task, the margin), and the person or solver that found it."""

    value: float
    source: str


@dataclass(frozen=True)
class Bound:
    """A bound on the objective of every feasible point, and its kind, such as "shor" or "branch_and_bound"."""

    value: float
    kind: str


@dataclass(frozen=True)
class TheoryPrediction:
    """Optimal values that theory predicts for a typical problem of a family as its size grows.

    Parameters
    ----------
    kappa_bar
        The best prediction of the rescaled margin κ̄ there is: full replica-symmetry breaking (RSB). None where it is
        unknown.
    kappa_bar_rs
        The prediction of κ̄ with replica symmetry, the paper's κ(P). None if there is none.
    objective, objective_rs
        The same predictions of the objective of a QCQP that is not a max-margin task; None if there are none.
    """

    kappa_bar: float | None = None
    kappa_bar_rs: float | None = None
    objective: float | None = None
    objective_rs: float | None = None

    def notes(self) -> dict[str, str | float]:
        """Return the notes of a `Metadata` with these predictions, without those that are None."""
        notes = {name: getattr(self, attribute) for name, attribute in THEORY_NOTES.items()}
        return {name: value for name, value in notes.items() if value is not None}


# Names of the notes of a `Metadata`, with the attributes of the `TheoryPrediction` that they hold.
THEORY_NOTES = {
    "kappa_bar_theory": "kappa_bar",
    "kappa_bar_rs": "kappa_bar_rs",
    "objective_theory": "objective",
    "objective_rs": "objective_rs",
}


@dataclass(frozen=True, eq=False, repr=False)
class Metadata:
    """Origin and reference values of a problem; never part of its id.

    Parameters
    ----------
    spec, seed
        Spec of the problem with all parameters, and its seed; None if the problem was not generated.
    reference
        A known good point: x of shape (n_variables,) for a QCQP, W of shape (n, m) for a task; None if unknown.
    best_known
        The best known objective and its source; None if unknown.
    bounds
        Known bounds on the objective.
    notes
        Further facts by name, such as ``smallest_eigenvalue``, and those of `TheoryPrediction.notes`.
    """

    spec: str | None = None
    seed: int | None = None
    reference: NDArray[np.float64] | None = None
    best_known: BestKnown | None = None
    bounds: tuple[Bound, ...] = ()
    notes: Mapping[str, str | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(isinstance(self.spec, str | None), f"spec must be text or None, got {self.spec!r:.100}")
        value = self.best_known
        require(isinstance(value, BestKnown | None), f"best_known must be a BestKnown or None, got {value!r:.100}")

    @property
    def theory(self) -> TheoryPrediction:
        """The predictions of theory in the notes."""
        stated = {THEORY_NOTES[name]: float(value) for name, value in self.notes.items() if name in THEORY_NOTES}
        return TheoryPrediction(**stated)

    def __repr__(self) -> str:
        shown = {field.name: repr(getattr(self, field.name)) for field in fields(self) if field.name != "reference"}
        if self.reference is not None:
            shown["reference"] = f"<array of shape {np.shape(self.reference)}>"
        stated = (f"{name}={value}" for name, value in shown.items() if value not in ("None", "()", "{}"))
        return f"Metadata({', '.join(stated)})"


def relative_gap(value: float, reference: float, floor: float | None = None) -> float:
    """Return the gap from `value` to `reference`, (reference − value) divided by a scale.

    The gap is positive if `value` is below `reference`, such as a margin below its upper bound, or a score below the
    best known score.

    Parameters
    ----------
    value
        Margin, objective or score of a point.
    reference
        Bound on the value, or best known value.
    floor
        None for the optimality gap, whose scale is max(|reference|, |value|). Otherwise the scale is
        max(|reference|, floor), because relative to a reference near 0 every difference is large.

    Returns
    -------
    float
        The relative gap.
    """
    least, other = (_LEAST_SCALE, abs(value)) if floor is None else (floor, 0.0)
    return (reference - value) / max(abs(reference), other, least)
