"""Newton steps of the paths of gip, and the stabilities along them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import unit_rows

from ._gip_passes import Passes

Array = NDArray[np.float64]


@dataclass
class Steps:
    """Newton steps of several paths; the first axis of each array is the path.

    Parameters
    ----------
    paths
        Indices of the paths in the batch.
    W, t, multipliers
        Directions in W, t and the multipliers λ.
    change
        Derivatives of the stabilities g along the directions.
    length, dual_length
        Largest step lengths in (W, t) and in λ.
    value, slope
        Values of the barrier function at the current points and its derivatives along the directions.
    """

    paths: NDArray[np.intp]
    W: Array
    t: Array
    change: Array
    multipliers: Array
    length: Array
    dual_length: Array
    value: Array
    slope: Array

    def stretch(self, length: Array) -> Array:
        """Return the norms of the rows of W after tangent steps of the given lengths, shape (paths, n)."""
        return np.sqrt(1.0 + length[:, None] ** 2 * np.sum(self.W**2, axis=2))

    def only(self, which: NDArray[np.bool_]) -> "Steps":
        """Return the steps of the paths that the mask `which` selects."""
        return Steps(**{name: value[which] for name, value in vars(self).items()})


class Line:
    """Stabilities and products along steps, computed from their values at both ends of each step.

    One pass, at the points of the largest step lengths, suffices for all lengths: before the rows of W are scaled to
    unit length, the products are linear and the stabilities quadratic in the step length.
    """

    def __init__(self, passes: Passes, steps: Steps, W: Array, g: Array, double: bool) -> None:
        self.passes, self.steps, self.g = passes, steps, g
        longest = steps.length[:, None]
        self.end_stretch = steps.stretch(steps.length)
        self.end_wP, self.end_Pw, self.end_g = passes.products(unit_rows(W + longest[:, :, None] * steps.W), double)
        self.bend = (self.end_g * passes.by_pair(self.end_stretch) - g - longest * steps.change) / longest**2

    def stabilities(self, length: Array) -> Array:
        """Return the stabilities after steps of the given lengths, shape (paths, R) for R stabilities."""
        at = length[:, None]
        stretch = self.passes.by_pair(self.steps.stretch(length))
        g = (self.g + at * self.steps.change + at**2 * self.bend) / stretch
        return np.where(at == self.steps.length[:, None], self.end_g, g)

    def products(self, place: int, length: float, stretch: Array, begin: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return wᵀP and Pw of one path after a step of the given length.

        `place` is the index of the path in `steps`, `stretch` holds the norms of its rows of W after the step, and
        `begin` holds wᵀP and Pw before the step.
        """
        end = self.end_wP[:, place], self.end_Pw[:, place]
        part = length / self.steps.length[place]
        if part >= 1.0:
            return end
        dtype = self.end_wP.dtype
        of_begin = ((1.0 - part) / stretch).astype(dtype)[:, None]
        of_end = (part * self.end_stretch[place] / stretch).astype(dtype)[:, None]
        wP = of_begin * begin[0] + of_end * end[0]
        return wP, wP if self.passes.symmetric else of_begin * begin[1] + of_end * end[1]
