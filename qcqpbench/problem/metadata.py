"""Metadata of a problem: its origin, reference values and bounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


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


@dataclass(frozen=True, eq=False)
class Metadata:
    """Origin and reference values of a problem; never part of its id.

    Parameters
    ----------
    spec, seed
        The full spec of the generator and its seed.
    reference
        A known good point: x of a QCQP, W of a task.
    best_known
        The best known objective.
    bounds
        Known bounds on the objective.
    notes
        Further facts by name, such as ``smallest_eigenvalue``.
    """

    spec: str | None = None
    seed: int | None = None
    reference: NDArray[np.float64] | None = None
    best_known: BestKnown | None = None
    bounds: tuple[Bound, ...] = ()
    notes: Mapping[str, str | float] = field(default_factory=dict)
