"""Search of gip on tasks with few weights: many paths from random points, then from crossings of the best optima."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

from ._gip_crossings import MAX_PARENTS, Crossings, seed_of
from ._gip_passes import Passes, Patterns, distinct
from ._gip_paths import Paths
from ._gip_schedule import CROSSING_WIDTH
from ._gip_stack import Stack

Array = NDArray[np.float64]

# Largest number of weights, n m, of the tasks that are solved here.
FEW_WEIGHTS = 199
# The default number of random starts grows with the outputs and the stabilities per weight up to these limits.
_MIN_STARTS, _MAX_OUTPUTS, _MAX_STABILITIES_PER_WEIGHT = 8, 5, 2.5
# First width of the paths from random points: at least the first number, and m over the second. Pace of all widths.
_MIN_RANDOM_WIDTH, _INPUTS_PER_WIDTH, _SHRINK = 1.0, 50, 0.4
# A path ends at this width at first, or when its optimum will not be crossed; only the best of all go on to the end.
_EXPLORED_WIDTH, _MAX_AGE, _MAX_POLISHED = 0.02, 50, 12
# Number of paths from crossings for each random start but the first.
_CROSSINGS_PER_START = 1.0
# Points that overlap by more than this are one optimum.
_MAX_OVERLAP = 0.99
# Share of the paths that go on when they have converged at a width.
_SHARE = 0.65
# Largest number of paths that run at a time, and of the entries of their slopes; smallest number that begin together.
_MAX_RUNNING, _MAX_ENTRIES, _MIN_ADDED = 96, 4_000_000, 8


def random_start_count(task: MaxMargin) -> int:
    """Return the default number of random starts of a task with few weights.

    The numbers were chosen so that a run takes up to five times as long as one start of IPOPT, and twice at m = 50.
    """
    stabilities_per_weight = task.labels.size / (task.n * task.m)
    slope = min(task.n, _MAX_OUTPUTS) * min(18 + 1.8 * task.m, 1000 / task.m)
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
    started
        Number of paths that have begun.
    iterations
        Number of steps that the paths took together.
    is_finished
        Whether the best optima have been followed to the end.
    """

    def __init__(
        self, passes: Passes, W: Array, crossed: Array, mu0: float | None, shrink: float | None, tol: float
    ) -> None:
        self.passes, self.shrink, self.tol = passes, _SHRINK if shrink is None else shrink, tol
        self._starts = np.concatenate([W, crossed])
        random_width = max(_MIN_RANDOM_WIDTH, passes.task.m / _INPUTS_PER_WIDTH) if mu0 is None else mu0
        random_widths = np.full(len(W), random_width)
        self._widths = np.concatenate([random_widths, np.full(len(crossed), CROSSING_WIDTH)])
        entries = passes.task.labels.size * passes.task.m * 2
        self._most_running = min(max(_MAX_ENTRIES // entries, _MIN_ADDED), _MAX_RUNNING)
        crossing_count = round(_CROSSINGS_PER_START * (len(W) - 1))
        self._path_count = len(self._starts) + crossing_count
        self._crossings = Crossings(passes, seed_of(W[0]), 0, crossing_count)
        self._stack = self._new_stack(passes.single is not None, _EXPLORED_WIDTH, _MAX_AGE, _SHARE)
        self._ended = self.optima = self._stack.paths
        self.started = self.iterations = 0
        self.is_finished = False
        # A run without time for a step returns the best start.
        self._start_paths()

    def _new_stack(self, single: bool, last_width: float, max_age: int, share: float = 1.0) -> Stack:
        patterns = Patterns(self.passes.task, self.passes.unit, self.passes.symmetric, single)
        return Stack(patterns, self.shrink, last_width, self.tol, max_age, share)

    @property
    def running(self) -> Paths:
        """Paths that have not ended."""
        return self._stack.paths

    def run(self, max_iter: int) -> Iterator[None]:
        """Follow all paths to a small width, then the best to the end, in at most `max_iter` steps each.

        Yield after each step that leaves running paths.
        """
        self._stack.max_age = min(max_iter, _MAX_AGE)
        while len(self._stack) or self.started < self._path_count:
            self._start_paths()
            yield from self._iterate()
            if len(self.optima.t) >= MAX_PARENTS:
                self._end_below(float(self.optima.margins[MAX_PARENTS - 1]))
        self._merge()
        least = self.optima.margins.max() - _EXPLORED_WIDTH * self.passes.unit
        self._stack = self._new_stack(False, 0.1 * self.tol, max_iter)
        best = self.optima.only(np.flatnonzero(self.optima.t >= least)[:_MAX_POLISHED])
        self._stack.add(self._stack.continued(best))
        while len(self._stack):
            yield from self._iterate()
            if len(self._ended.t):
                self._end_below(float(self._ended.margins.max()))
        self.is_finished = True

    def _end_below(self, margin: float) -> None:
        """End the running paths whose optima are expected to be below `margin`."""
        self._ended = self._ended.joined(self._stack.remove_below(margin))

    def _iterate(self) -> Iterator[None]:
        self._ended = self._ended.joined(self._stack.iterate())
        self.iterations += 1
        if len(self._stack):
            yield

    def _start_paths(self) -> None:
        """Start paths if there is room for several, first from the given starts, then from crossings.

        Crossings begin when half of the paths from the given starts have ended.
        """
        room = min(self._most_running - len(self._stack), self._path_count - self.started)
        if room < _MIN_ADDED and len(self._stack):
            return
        W, widths = self._starts[self.started :][:room], self._widths[self.started :][:room]
        if not len(W):
            if self.started - len(self._stack) < len(self._starts) / 2:
                return
            self._merge()
            if not len(self.optima.t):
                # All paths so far were dropped; a better one is still running.
                return
            W, widths = self._crossings.take(self.optima.W, room), np.full(room, CROSSING_WIDTH)
        self._stack.add(self._stack.new_paths(W, widths))
        self.started += len(W)

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
