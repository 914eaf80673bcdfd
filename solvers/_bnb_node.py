"""Bounds of nodes of branch and bound, compared with a target.

The method of `_bnb_interior_point` stops at a node as soon as a dual point proves that the value of its relaxation is
below the target, or a primal point that it is above.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._bnb_interior_point import MIN_LENGTH, InteriorPoint, Mask, Node, State, Step
from ._bnb_relaxation import Relaxation

Array = NDArray[np.float64]

_MAX_STEPS = 80
# After a step whose κ is above the target but whose primal point is infeasible, a step towards the centre makes the
# next one feasible.
_CENTRING_SHARE = 0.8


class Verdict(Enum):
    """Result of the comparison of a relaxation with the target."""

    BELOW = auto()
    ABOVE = auto()
    UNDECIDED = auto()


class NodeResult(NamedTuple):
    """Dual point (y, λ, μ) of a node, in multiples of the unit of the relaxation, and primal matrices (K, d, d)."""

    verdict: Verdict
    offsets: Array
    weights: Array
    cut_multipliers: Array
    matrices: Array
    steps: int


class NodeSolver:
    """Comparison of the relaxations of nodes of a task with a target.

    Parameters
    ----------
    relaxation
        The relaxation without cuts.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self.method = InteriorPoint(relaxation)

    def solve(
        self, nodes: Sequence[Node], target: float, looseness: float, has_time: Callable[[], bool]
    ) -> list[NodeResult]:
        """Compare the values of the relaxations of nodes with `target`, in multiples of the unit.

        Parameters
        ----------
        nodes
            The nodes.
        target
            The value to compare with.
        looseness
            If the value is above the target, the method stops when the dual value exceeds it by at most `looseness`
            times its distance from the target. The matrices of the result are the first that prove that it is above:
            far from the optimum of the relaxation, they lead to better branchings and smaller trees.
        has_time
            Function that returns whether there is time for one more step.
        """
        results: dict[int, NodeResult] = {}
        state, steps = self.method.start(nodes), 0
        while len(state.x) and steps < _MAX_STEPS and has_time():
            is_below = self.method.proves(state, target)
            results |= self._results(state.where(is_below), steps, Verdict.BELOW)
            state = state.where(~is_below)
            if not len(state.x):
                break
            step, steps = self.method.step(state), steps + 1
            is_done = ~step.is_solved | self._is_above(state, step, target, looseness)
            results |= self._results(state.where(is_done), steps)
            state, step = state.where(~is_done), step.where(~is_done)
            state, lengths = self.method.advance(state, step)
            centring = (step.kappa > target) & ~state.is_above
            state.shares[centring] = np.maximum(state.shares[centring], _CENTRING_SHARE)
            is_stuck = lengths < MIN_LENGTH
            results |= self._results(state.where(is_stuck), steps)
            state = state.where(~is_stuck)
        results |= self._results(state, steps)
        return [results[number] for number in range(len(nodes))]

    def _is_above(self, state: State, step: Step, target: float, looseness: float) -> Mask:
        """Note the primal points that prove values above the target; return whether they are as close as demanded."""
        is_first = step.is_feasible & ~state.is_above
        state.kept[is_first], state.has_kept[is_first] = step.matrices[is_first], True
        excess = step.kappa - target
        is_above: Mask = step.is_feasible & (excess > 0)
        state.is_above[is_above] = True
        distance = state.x[:, : self.method.free].sum(axis=1) - step.kappa
        # An infinite looseness times zero is no number.
        is_above[is_above] = distance[is_above] <= looseness * excess[is_above]
        return is_above

    def _results(self, state: State, steps: int, verdict: Verdict | None = None) -> dict[int, NodeResult]:
        """Return the results of all nodes of `state` by their numbers."""
        results = {}
        for i, number in enumerate(state.numbers.tolist()):
            x = state.x[i, : self.method.free + int(state.is_real[i].sum())]
            y, weights, mu = np.split(x, [self.method.free, self.method.known])
            matrices = state.kept[i] if state.has_kept[i] else state.matrices[i]
            either = Verdict.ABOVE if state.is_above[i] else Verdict.UNDECIDED
            results[number] = NodeResult(verdict or either, y, weights, mu, matrices, steps)
        return results
