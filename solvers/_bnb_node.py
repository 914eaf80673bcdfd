"""Nodes of branch and bound, and what a method that bounds them gets and returns."""

from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Cut, Groups, cut_vectors, cuts_of_matrices
from qcqpbench.catalog.solver import Budget

from ._bnb_relaxation import Relaxation

Array = NDArray[np.float64]


class Settings(NamedTuple):
    """Settings of the interior-point method.

    Attributes
    ----------
    first_share, long_share, middle_share, short_share
        τ is this share of the mean complementarity: in the first step, and after steps whose shorter length is more
        than 0.8, more than 0.5, or less.
    centring_share
        Least share after a step whose κ is above the target but whose primal point is infeasible: a step towards the
        centre makes the next one feasible.
    backtrack, boundary_share, min_length
        Factor of a length that leaves the cone, share of the way to the boundary, and the least length of a step.
    equal_share, first_cut_weight, first_shift, shift_growth
        Start: share of equal weights in λ; sum of the multipliers of new cuts, and the multiple of the identity that is
        added to F, relative to the norm of F; growth of the latter as long as F with half of it is not positive.
    max_steps
        Limit on the number of steps.
    """

    first_share: float = 0.3
    long_share: float = 0.2
    middle_share: float = 0.3
    short_share: float = 0.4
    centring_share: float = 0.8
    backtrack: float = 0.75
    boundary_share: float = 0.98
    min_length: float = 1e-8
    equal_share: float = 0.02
    first_cut_weight: float = 0.004
    first_shift: float = 0.005
    shift_growth: float = 3.0
    max_steps: int = 80


class Node:
    """A node: the vectors u, v of its cuts uᵀXv ≥ 0, and y, λ, μ of its parent, if any.

    Parameters
    ----------
    groups, cuts
        As in a `Leaf`; the cuts are sorted.
    start
        y, λ and μ of the parent in multiples of the unit of the relaxation; μ is NaN for cuts that the parent lacks.
    """

    def __init__(self, groups: Groups, cuts: tuple[Cut, ...], start: tuple[Array, Array, Array] | None) -> None:
        self.cuts, self.start = cuts, start
        self.first, self.second = cut_vectors(groups, cuts)

    @property
    def cuts_of_matrices(self) -> list[tuple[int, slice]]:
        """The matrices that have cuts, and the places of their cuts."""
        return [(k, slice(places[0], places[-1] + 1)) for k, places in cuts_of_matrices(self.cuts)]


class Verdict(IntEnum):
    """Result of the comparison of a relaxation with the target."""

    UNDECIDED, BELOW, ABOVE = range(3)


class NodeResult(NamedTuple):
    """Dual point (y, λ, μ) of a node, in multiples of the unit of the relaxation, and primal matrices (K, d, d)."""

    verdict: Verdict
    offsets: Array
    weights: Array
    cut_multipliers: Array
    matrices: Array
    steps: int


class Clock:
    """Time control of a thread: a step begins if one as long as the longest so far would end in time.

    Parameters
    ----------
    budget
        Has the time limit.

    Attributes
    ----------
    reserve_seconds
        Time before the limit that is left for what follows the search.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.reserve_seconds = 0.0
        self.is_out_of_time = False
        self.longest_seconds = 0.0
        self._begin: float | None = None

    def remaining(self) -> float:
        """Return the seconds that are left for steps; negative if the reserve is in use."""
        return self.budget.remaining() - self.reserve_seconds

    def end_step(self) -> None:
        """Forget the begin of the last step; what follows is not part of it."""
        self._begin = None

    def has_time(self) -> bool:
        """Return whether there is time for the step that now begins."""
        now = self.budget.seconds()
        if self._begin is not None:
            self.longest_seconds = max(self.longest_seconds, now - self._begin)
        self._begin = now
        self.is_out_of_time = self.remaining() <= self.longest_seconds
        return not self.is_out_of_time


class NodeSolver(Protocol):
    """Comparison of the relaxations of nodes of a task with a target."""

    def solve(self, node: Node, target: float, looseness: float, clock: Clock) -> NodeResult:
        """Compare the value of the relaxation of a node with `target`, in multiples of the unit.

        Parameters
        ----------
        node
            The node.
        target
            The value to compare with.
        looseness
            If the value is above the target, the method stops when the dual value exceeds it by at most `looseness`
            times its distance from the target. The matrices of the result are the first that prove that it is above:
            far from the optimum of the relaxation, they lead to better branchings and smaller trees.
        clock
            Tells whether there is time for one more step.
        """


def first_point(relaxation: Relaxation, node: Node, settings: Settings) -> tuple[Array, NDArray[np.bool_]]:
    """Return x = (y, λ, μ) of the parent, zero for new cuts, with λ away from zero; and which cuts are new."""
    R, free = relaxation.stability_count, relaxation.offset_count
    if node.start is None:
        y, weights, mu = np.zeros(free), np.full(R, 1.0 / R), np.full(len(node.cuts), np.nan)
    else:
        y, weights, mu = node.start
        weights = settings.equal_share / R + (1.0 - settings.equal_share) * weights / weights.sum()
    is_new = np.isnan(mu)
    return np.concatenate([y, weights, np.where(is_new, 0.0, mu)]), is_new
