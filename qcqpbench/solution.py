"""What a solver claims. Stored, never believed: see `qcqpbench.verify`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .status import Termination


@dataclass(frozen=True, eq=False)
class Solution:
    """A solver's own account of a run.

    x             its best point: x of a QCQP, W of a task; None if it has none
    termination   why it stopped
    objective     the objective (of a task: the margin) it claims for x
    bound         a bound it claims to have proved: no point is better
    multipliers   of a task: λ ≥ 0 of the stabilities, shape (p, N), which sum to one
    message       its own words
    details       further facts by name, such as the version of a library inside
    """

    x: NDArray[np.float64] | None
    termination: Termination
    objective: float | None = None
    bound: float | None = None
    iterations: int | None = None
    multipliers: NDArray[np.float64] | None = None
    message: str = ""
    details: Mapping[str, str | float] = field(default_factory=dict)
