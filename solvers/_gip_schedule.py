"""Schedule of gip: the first smoothing of the paths, its pace, and the gates at which paths are merged and selected.

The width of a path is μ times the number of stabilities, in units of the typical stability.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Gate(NamedTuple):
    """Width at which paths wait for each other, and are merged if they are close.

    A fraction `share` of all paths, at least `least`, continue.
    """

    width: float
    share: float
    least: int


class Schedule(NamedTuple):
    """Smoothing of the paths, and how it falls.

    Parameters
    ----------
    smoothing
        Factor of each path on its temperatures T in the warm-up and on its first width, shape (paths,).
    width
        First width of a path with the factor 1.
    shrink
        Factor by which a path that has converged at its μ multiplies it.
    gates
        Gates in the order in which paths reach them; without gates every path is followed to the end.
    """

    smoothing: Array
    width: float
    shrink: float
    gates: tuple[Gate, ...]

    def extended(self, count: int) -> "Schedule":
        """Return the schedule with `count` further paths, which begin at crossings."""
        smoothing = np.full(count, min(1.0, CROSSING_WIDTH / self.width))
        return self._replace(smoothing=np.concatenate([self.smoothing, smoothing]))

    def only(self, paths: list[int]) -> "Schedule":
        """Return the schedule of some of the paths."""
        return self._replace(smoothing=self.smoothing[paths])


# Width at which paths from crossings begin.
CROSSING_WIDTH = 0.1
_SELECTION = (Gate(0.1, 1 / 4, 8), Gate(0.05, 1 / 8, 6), Gate(0.02, 1 / 16, 1))
_WIDTH, _SHRINK = 0.5, 0.4
# With many inputs, paths end in larger margins if they are smoothed more at first and lose their smoothing slowly. Many
# of them meet on the way, so they are merged at early gates.
_MANY_INPUTS, _INPUTS_PER_SMOOTHING, _MAX_SMOOTHING, _SLOW_SHRINK = 200, 50, 8.0, 0.55
_MERGING = (Gate(2.0, 1.0, 1), Gate(1.0, 1.0, 1), Gate(0.5, 1.0, 1), Gate(0.25, 1.0, 1))


def schedule(n: int, m: int, paths: int, width: float | None = None, shrink: float | None = None) -> Schedule:
    """Return the schedule of a number of paths on a task.

    Parameters
    ----------
    n, m
        Numbers of outputs and inputs of the task.
    paths
        Number of paths.
    width, shrink
        First width and its pace as given by the user; None for those that suit the size of the task.
    """
    many = m >= _MANY_INPUTS
    factor = min(_MAX_SMOOTHING, m / _INPUTS_PER_SMOOTHING) if many and width is None else 1.0
    smoothing = np.full(paths, factor)
    first_width = _WIDTH if width is None else width
    merging = [gate for gate in _MERGING if many and gate.width < factor * first_width]
    return Schedule(
        smoothing,
        first_width,
        (_SLOW_SHRINK if many else _SHRINK) if shrink is None else shrink,
        (*merging, *_SELECTION),
    )
