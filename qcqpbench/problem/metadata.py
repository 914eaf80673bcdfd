"""What is known of a problem beside the problem itself: where it came from, and how good its answers can be."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BestKnown:
    """The best value of the objective (of a task: the margin) anybody found, and who or what found it."""

    value: float
    source: str


@dataclass(frozen=True)
class Bound:
    """A bound no point can beat, and what makes it one: ``kind`` is for instance "shor" or "branch_and_bound"."""

    value: float
    kind: str


@dataclass(frozen=True, eq=False)
class Metadata:
    """Provenance and references; never part of a problem's id.

    spec, seed   the generator's full spelling and its seed
    reference    a known good point: x of a QCQP, W of a task
    notes        further facts by name, such as ``smallest_eigenvalue``
    """

    spec: str | None = None
    seed: int | None = None
    reference: NDArray[np.float64] | None = None
    best_known: BestKnown | None = None
    bounds: tuple[Bound, ...] = ()
    notes: Mapping[str, str | float] = field(default_factory=dict)
