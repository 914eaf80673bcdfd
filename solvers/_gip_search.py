"""Search of gip on tasks with few weights: many paths from random points, then from crossings of the best optima."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

from ._gip_crossings import MAX_PARENTS, Crossings, seed_of
from ._gip_kernel import newton_steps
from ._gip_passes import Passes, Patterns, distinct
from ._gip_paths import Mask, Paths, Rules, Status, Steps, continued, new_paths

Array = NDArray[np.float64]

# Largest number of weights, n m, of the tasks that are solved here.
FEW_WEIGHTS = 150
# The default number of random starts grows with the stabilities per weight up to this limit.
_MIN_STARTS, _MAX_STABILITIES_PER_WEIGHT = 8, 2.5
# First width of the paths from random points: at least the first number, and m over the second. Pace of all widths.
_MIN_RANDOM_WIDTH, _INPUTS_PER_WIDTH, _SHRINK = 1.0, 50, 0.4
# First width of the paths from crossings, the factor by which it falls in every step, and the width where that ends.
_CROSSING_WIDTH, _HURRY, _SETTLE_WIDTH = 1.6, 0.5, 0.05
# A path ends at this width at first, or when its optimum will not be crossed; only the best of all go on to the end.
_EXPLORED_WIDTH, _MAX_AGE, _MAX_POLISHED = 0.004, 80, 40
# Number of generations of crossings, and of the paths from all of them for each random start but the first.
_GENERATIONS, _CROSSINGS_PER_START = 4, 1.0
# Paths from points so close to each of the best optima begin at this width; at most one for so many crossings.
_NEIGHBOURS, _NEIGHBOUR_DISTANCE, _NEIGHBOUR_WIDTH, _CROSSINGS_PER_NEIGHBOUR = 12, 0.15, 0.002, 8
# Points that overlap by more than this are one optimum.
_MAX_OVERLAP = 0.99
# Share of the paths that go on when they have converged at a width.
_SHARE = 0.8
# Largest number of entries of the products of the paths that begin together, and smallest number of these paths.
_MAX_ENTRIES, _MIN_TOGETHER = 20_000_000, 16
# Number of operations of a call that follows paths: it takes milliseconds.
_OPERATIONS_PER_CALL = 20_000_000


def random_start_count(task: MaxMargin) -> int:
    """Return the default number of random starts of a task with few weights.

    The numbers were chosen so that a run takes up to five times as long as one start of IPOPT, about twice at m = 50.
    """
    stabilities_per_weight = task.labels.size / (task.n * task.m)
    slope = min(17_000 / (task.m + 10), task.n * min(300, 63_000 / task.m**2))
    return round(_MIN_STARTS + slope * min(stabilities_per_weight, _MAX_STABILITIES_PER_WEIGHT))


class Search:
    """Paths of gip on a task with few weights.

    Parameters
    ----------
    passes
        The patterns of the task.
    W, crossed
        Random starts, and crossings of optima that are known, shape (b, n, m) each, with unit rows.
    mu0, shrink, tol
        As in `Gip`.

    Attributes
    ----------
    optima
        Paths that ended, the largest t first, and at most one of each group of close paths.
    running
        Paths that have not ended.
    started
        Number of paths that have begun.
    step_count
        Number of steps of all paths.
    is_finished
        Whether the best optima have been followed to the end.
    """

    def __init__(
        self, passes: Passes, W: Array, crossed: Array, mu0: float | None, shrink: float | None, tol: float
    ) -> None:
        self.passes, self.shrink, self.tol = passes, _SHRINK if shrink is None else shrink, tol
        self._starts, self._crossed = W, crossed
        self._width = max(_MIN_RANDOM_WIDTH, passes.task.m / _INPUTS_PER_WIDTH) if mu0 is None else mu0
        self._crossing_count = round(_CROSSINGS_PER_START * (len(W) - 1))
        self._crossings = Crossings(passes, seed_of(W[0]), 0, self._crossing_count, perturbed=True)
        self._patterns = self._with_precision(passes.single is not None)
        entries = passes.task.n * passes.task.patterns[..., 0].size + passes.task.labels.size
        self._together = max(_MAX_ENTRIES // entries, _MIN_TOGETHER)
        # A run without time for a step returns the best of these.
        self.running = new_paths(self._patterns, np.concatenate([W, crossed])[: self._together], self._width)
        self.optima = self._ended = self.running.only([])
        self.started = self.step_count = 0
        self.is_finished = False

    def _with_precision(self, single: bool) -> Patterns:
        return Patterns(self.passes.task, self.passes.unit, self.passes.symmetric, single)

    def run(self, max_iter: int) -> Iterator[None]:
        """Follow all paths to a small width, then the best to the end, in at most `max_iter` steps each.

        Yield after some steps, again and again.
        """
        age = min(max_iter, _MAX_AGE)
        rules = Rules(self.shrink, _EXPLORED_WIDTH, self.tol, max_age=age)
        yield from self._explore(newton_steps(self._patterns, rules), self._starts, self._width)
        explore = newton_steps(self._patterns, rules._replace(settle_width=_SETTLE_WIDTH, hurry=_HURRY))
        yield from self._explore(explore, self._crossed, _CROSSING_WIDTH)
        for generation in range(1, _GENERATIONS + 1):
            self._merge()
            # The optima of the last generation are not crossed, so only a better one than the best is of use.
            rank = MAX_PARENTS if generation < _GENERATIONS else 1
            floor = -np.inf if len(self.optima.t) < rank else float(self.optima.margins[rank - 1])
            count = generation * self._crossing_count // _GENERATIONS - self._crossings.taken
            if count:
                W = self._crossings.take(self.optima.W, count)
                yield from self._explore(explore, W, _CROSSING_WIDTH, floor)
        self._merge()
        least = self.optima.margins.max() - _EXPLORED_WIDTH * self.passes.unit
        patterns, best = self._with_precision(False), self.optima.only(np.flatnonzero(self.optima.t >= least))
        neighbours = new_paths(patterns, self._neighbours(best.W), _NEIGHBOUR_WIDTH)
        self.started += len(neighbours.t)
        self.running = continued(patterns, best.only(np.arange(len(best.t)) < _MAX_POLISHED)).joined(neighbours)
        polish = newton_steps(patterns, Rules(self.shrink, 0.1 * self.tol, self.tol, max_age=max_iter))
        yield from self._descend(polish, lambda _: self.running.expected_margins >= self.running.margins.max())
        self.is_finished = True

    def _neighbours(self, W: Array) -> Array:
        """Return points close to the first of `W`: optima with almost the same margin can be too close to be merged."""
        count = min(_NEIGHBOURS * min(len(W), MAX_PARENTS), self._crossing_count // _CROSSINGS_PER_NEIGHBOUR)
        moves = np.empty((count, *W.shape[1:]))
        moves = unit_rows(rng.normals(rng.stream(seed_of(self._starts[0]), "starts", 0, 4), moves))
        return unit_rows(W[np.arange(count) // _NEIGHBOURS] + _NEIGHBOUR_DISTANCE * moves)

    def _explore(self, explore: Steps, W: Array, width: float, floor: float = -np.inf) -> Iterator[None]:
        """Follow paths from the points `W` to a small width, as many at a time as fit into memory.

        Whenever paths have converged at a μ, a share of them goes on: those with the largest t, if their optima are
        expected to be above `floor`.
        """

        def select(arrived: Mask) -> Mask:
            t = self.running.arrived_t
            return (t >= np.quantile(t[arrived], 1 - _SHARE)) & (self.running.expected_margins >= floor)

        for first in range(0, len(W), self._together):
            self.running = new_paths(self._patterns, W[first : first + self._together], width)
            self.started += len(self.running.t)
            yield from self._descend(explore, select)

    def _descend(self, stepper: Steps, select: Callable[[Mask], Mask]) -> Iterator[None]:
        """Follow the running paths until all have ended, or were not selected among those that arrived at a new μ."""
        task, age = self.passes.task, int(self.running.age.sum())
        work = task.labels.size * (task.n * task.m + 1) ** 2
        while len(self.running.t):
            stepper.follow(self.running, max(_OPERATIONS_PER_CALL // work, 1))
            self.step_count += int(self.running.age.sum()) - age
            if not (self.running.status == Status.RUNNING).any():
                arrived = self.running.status == Status.ARRIVED
                self._ended = self._ended.joined(self.running.only(~arrived))
                self.running = self.running.only(arrived & select(arrived) if arrived.any() else arrived)
                self.running.status[:] = Status.RUNNING
            age = int(self.running.age.sum())
            if len(self.running.t):
                yield

    def _merge(self) -> None:
        """Add the paths that ended to the optima."""
        paths = self.optima.joined(self._ended)
        paths = paths.only(np.argsort(-paths.t, kind="stable"))
        self.optima = paths.only(distinct(self.passes, paths.W, _MAX_OVERLAP))
        self._ended = self._ended.only([])

    def best(self) -> Paths:
        """Return the path with the largest margin of all."""
        paths = self.optima.joined(self._ended).joined(self.running)
        paths.W = unit_rows(paths.W.astype(np.float64))
        return paths.only([int(self.passes.task.margin(paths.W).argmax())])

    def best_running(self) -> Array:
        """Return the running point with the largest margin, shape (1, n, m)."""
        return unit_rows(self.running.W[[self.running.margins.argmax()]].astype(np.float64))
