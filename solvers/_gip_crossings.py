"""Starts of gip other than random points: crossings, which combine good points of a task, and pairs of axes."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.problem.maxmargin import unit_rows

from ._gip_passes import Passes, distinct

Array = NDArray[np.float64]

# Number of points, the best first, that are crossed.
MAX_PARENTS = 10


def seed_of(point: Array) -> int:
    """Return a seed that depends on the bits of `point` only."""
    return int.from_bytes(hashlib.sha256(np.ascontiguousarray(point, dtype="<f8").tobytes()).digest()[:8], "big")


def best_first(passes: Passes, points: Array) -> Array:
    """Return the points that are not close to one with a larger margin, the largest margin first."""
    sorted_points = points[np.argsort(-passes.task.margin(points), kind="stable")]
    return sorted_points[distinct(passes, sorted_points)]


class Crossings:
    """Sequence of starts that combine pairs of points, the same for the same `seed` and points.

    There are three kinds in turn: the sum of two points, some rows of one and the others of the other, and one point
    with a new random row. A single point gives starts of the last kind only.

    Parameters
    ----------
    passes
        The patterns of the task; they determine the symmetries up to which points are aligned.
    seed
        Seed of the choices.
    number
        Number of the sequence among those with the same seed.
    count
        Largest number of starts of the sequence.
    """

    def __init__(self, passes: Passes, seed: int, number: int, count: int) -> None:
        n, m = passes.task.n, passes.task.m
        self.passes, self.taken = passes, 0
        self.choices = rng.uniforms(rng.stream(seed, "starts", number, 1), count * (n + 3)).reshape(count, n + 3)
        self.rows = unit_rows(rng.normals(rng.stream(seed, "starts", number, 2), np.empty((count, m))))

    def take(self, points: Array, count: int) -> Array:
        """Return the next `count` starts, shape (count, n, m), from the first of `points`, shape (b, n, m)."""
        points = points[:MAX_PARENTS]
        begin, self.taken = self.taken, self.taken + count
        return np.stack([self._cross(points, k) for k in range(begin, begin + count)])

    def _cross(self, points: Array, k: int) -> Array:
        choice, b, n = self.choices[k], len(points), points.shape[1]
        one = int(choice[0] * b)
        first = points[one]
        if b == 1 or k % 3 == 2:
            child = first.copy()
            child[int(choice[2] * n)] = self.rows[k]
            return child
        second = self._aligned(points[(one + 1 + int(choice[1] * (b - 1))) % b], first)
        if k % 3 == 0:
            # With a weight below 1, opposite rows do not cancel.
            return unit_rows(first + (0.5 + 0.5 * choice[2]) * second)
        from_first = choice[3:] < 0.5
        if from_first.all() or not from_first.any():
            from_first[int(choice[2] * n)] ^= True
        return np.where(from_first[:, None], first, second)

    def _aligned(self, point: Array, reference: Array) -> Array:
        """Return the image of `point`, under the symmetries of the task, that is closest to `reference`."""
        images = [point, point[::-1]] if self.passes.symmetric and len(point) == 2 else [point]
        overlaps = [float(np.sum(image * reference)) for image in images]
        k = int(np.argmax(np.abs(overlaps)))
        return images[k] if overlaps[k] >= 0 else -images[k]
