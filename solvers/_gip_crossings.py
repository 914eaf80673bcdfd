"""Starts of gip other than random points: crossings, which combine or change good points of a task."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.problem.maxmargin import unit_rows

from ._gip_passes import Passes, distinct

Array = NDArray[np.float64]

# Number of points, the best first, that are crossed.
MAX_PARENTS = 10
# Length of the vector that is added to each row of a perturbed point.
_MOVE_LENGTH = 1.0


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
    with a new random row. Sums and mixtures of rows need two points; with a single one the third kind replaces them.

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
    perturbed
        Whether every fourth start is one point with a random vector added to each row.
    """

    def __init__(self, passes: Passes, seed: int, number: int, count: int, perturbed: bool = False) -> None:
        n, m = passes.task.n, passes.task.m
        self.passes, self.taken, self.kinds = passes, 0, 4 if perturbed else 3
        self.choices = rng.uniforms(rng.stream(seed, "starts", number, 1), count * (n + 3)).reshape(count, n + 3)
        self.rows = unit_rows(rng.normals(rng.stream(seed, "starts", number, 2), np.empty((count, m))))
        moves = np.empty((count if perturbed else 0, n, m))
        self.moves = _MOVE_LENGTH * unit_rows(rng.normals(rng.stream(seed, "starts", number, 3), moves))

    def take(self, points: Array, count: int) -> Array:
        """Return the next `count` starts, shape (count, n, m), from the first of `points`, shape (b, n, m)."""
        points = points[:MAX_PARENTS]
        b, n, _ = points.shape
        numbers = np.arange(self.taken, self.taken + count)
        self.taken += count
        choice, kind = self.choices[numbers], numbers % self.kinds
        one, row = (choice[:, 0] * b).astype(int), (choice[:, 2] * n).astype(int)
        first = points[one]
        children = first.copy()
        if b > 1:
            second = self._aligned(points[(one + 1 + (choice[:, 1] * (b - 1)).astype(int)) % b], first)
            # With a weight below 1, opposite rows do not cancel.
            sums = unit_rows(first + (0.5 + 0.5 * choice[:, 2, None, None]) * second)
            from_first = choice[:, 3:] < 0.5
            same = from_first.all(axis=1) | ~from_first.any(axis=1)
            from_first[same, row[same]] ^= True
            children[kind == 0] = sums[kind == 0]
            children[kind == 1] = np.where(from_first[..., None], first, second)[kind == 1]
        (renewed,) = np.nonzero((kind == 2) | ((kind < 2) & (b == 1)))
        children[renewed, row[renewed]] = self.rows[numbers[renewed]]
        moved = kind == 3
        children[moved] = unit_rows(first[moved] + self.moves[numbers[moved]])
        return children

    def _aligned(self, points: Array, references: Array) -> Array:
        """Return the images of `points`, under the symmetries of the task, that are closest to `references`."""
        images = [points]
        if self.passes.symmetric and points.shape[1] == 2:
            images.append(points[:, ::-1])
        overlaps = np.array([np.sum(image * references, axis=(1, 2)) for image in images])
        best, each = np.abs(overlaps).argmax(axis=0), np.arange(len(points))
        signs = np.where(overlaps[best, each] < 0, -1.0, 1.0)
        closest: Array = signs[:, None, None] * np.stack(images)[best, each]
        return closest
