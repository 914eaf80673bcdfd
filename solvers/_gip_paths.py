"""State of many paths of gip at once, and the derivatives of their stabilities, for tasks with few weights.

The first axis of every array is the path. Sizes: b paths, n rows of W, m inputs, p patterns, N pairs of rows, R = p N
stabilities.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ._gip_passes import Patterns

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]


@dataclass
class Paths:
    """State of several paths; the first axis of each array is the path.

    Parameters
    ----------
    W, t, g, weights, mu, residual
        As in `Batch`.
    shift, keep_shift
        Last shift of the Newton matrix, and whether the search for the next one begins there.
    wP, Pw
        Products w_iᵀP^r and P^r w_i, shape (b, n, p, m).
    age
        Number of steps.
    """

    W: Array
    t: Array
    g: Array
    weights: Array
    mu: Array
    shift: Array
    keep_shift: Mask
    wP: Array  # noqa: N815 (as in Batch)
    Pw: Array
    residual: Array
    age: Index

    def only(self, which: Mask | Index | list[int]) -> "Paths":
        """Return the paths that the mask or the indices `which` select."""
        return Paths(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def joined(self, other: "Paths") -> "Paths":
        """Return the paths of both."""
        values = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return Paths(**{name: np.concatenate(pair) for name, *pair in values})

    @property
    def margins(self) -> Array:
        """Margin of each path, its smallest stability."""
        return self.g.min(axis=1)


class Slopes:
    """Gradients of the stabilities on the tangent spaces of the rows of W, times `root`, shape (b, R).

    Attributes
    ----------
    blocks
        The gradients, shape (b, n, n − 1, p, m), by the row of W for which the derivatives are taken, and by the other
        row of the stability.
    """

    def __init__(self, patterns: Patterns, paths: Paths, root: Array) -> None:
        self.patterns, self.paths, self.root = patterns, paths, root
        b, n, p, m = paths.wP.shape
        scale = self._by_row(root * patterns.labels.ravel())[..., None]
        self.blocks = np.empty((b, n, n - 1, p, m), patterns.dtype)
        for i in range(n):
            for c, j in enumerate(patterns.partners[i]):
                np.multiply((paths.Pw if i < j else paths.wP)[:, j], scale[:, i, c], out=self.blocks[:, i, c])
        # The inner product of the gradient of a stability with each of its two rows is the stability.
        self.blocks -= self._by_row(root * paths.g)[..., None] * paths.W[:, :, None, None]

    @property
    def _rows(self) -> Array:
        """The gradients for each row of W, shape (b, n, (n − 1) p, m)."""
        b, n, _, _, m = self.blocks.shape
        return self.blocks.reshape(b, n, -1, m)

    def _by_row(self, values: Array) -> Array:
        """Return numbers of stabilities, shape (b, …, R), for each row and each partner, shape (b, …, n, n − 1, p)."""
        by_pattern = values.reshape(*values.shape[:-1], *self.patterns.labels.shape)
        by_row: Array = by_pattern[..., self.patterns.pair_of_partner].transpose(*range(values.ndim - 1), -2, -1, -3)
        return by_row

    def sums(self, factors: list[Array]) -> Array:
        """Return the sums of f_r times the slope r, shape (b, factors, n m), for each factor f, shape (b, R)."""
        b, n = self.blocks.shape[:2]
        by_row = self._by_row(np.stack(factors, axis=1)).reshape(b, len(factors), n, -1).swapaxes(1, 2)
        return np.matmul(by_row, self._rows).swapaxes(1, 2).reshape(b, len(factors), -1)

    def along(self, moves: Array) -> Array:
        """Return the inner products of the slopes with the directions `moves` in W, shape (b, R)."""
        b, n, partners, p, m = self.blocks.shape
        products = np.matmul(self._rows, moves.reshape(b, n, m, 1)).reshape(b, n, partners, p)
        first, second = (products[:, *places.T] for places in self.patterns.places)
        return (first + second).swapaxes(1, 2).reshape(b, -1)

    def newton_matrices(self, root_sum: Array) -> Array:
        """Return SᵀS plus the Hessian of the Lagrangian on the tangent space, shape (b, n m + 1, n m + 1).

        The rows of S are the slopes with −`root` for t, and `root_sum` is the sum of the slopes times `root`. On the
        normal space, which the rows of W span, the matrix is a multiple of the identity. Numbers below the diagonal are
        not set.
        """
        paths, (b, n, m) = self.paths, self.paths.W.shape
        W, rows = paths.W, self._rows
        shares = (paths.weights * paths.g).reshape(b, *self.patterns.labels.shape).sum(axis=1)
        H = np.empty((b, n * m + 1, n * m + 1), W.dtype)
        squares = np.matmul(rows.swapaxes(2, 3), rows)
        curvature = shares[:, self.patterns.pair_of_partner].sum(axis=2)
        fill = np.einsum("bnaa->b", squares) / (n * m) + curvature.mean(axis=1)
        squares += ((fill[:, None] - curvature)[:, :, None] * W)[..., None] * W[:, :, None]
        for i in range(n):
            H[:, i * m : (i + 1) * m, i * m : (i + 1) * m] = squares[:, i]
        diagonal = H.reshape(b, -1)[:, : -1 : n * m + 2]
        diagonal += np.repeat(curvature, m, axis=1)
        # The projections of the mixtures M onto the tangent spaces of w_i and w_j, with w_iᵀMw_j = Σλg.
        first, second = (W[:, which] for which in self.patterns.task.pairs)
        mixture = self.patterns.mixture(paths.weights)
        left, right = np.matmul(first[:, :, None], mixture), np.matmul(mixture, second[..., None])
        normal = np.concatenate([first[..., None], right - shares[:, :, None, None] * first[..., None]], axis=3)
        mixture -= np.matmul(normal, np.concatenate([left, second[:, :, None]], axis=2))
        places = zip(*(side.tolist() for side in self.patterns.places), strict=True)
        for k, ((i, c), (j, d)) in enumerate(places):
            block = np.matmul(self.blocks[:, i, c].swapaxes(1, 2), self.blocks[:, j, d])
            np.subtract(block, mixture[:, k], out=H[:, i * m : (i + 1) * m, j * m : (j + 1) * m])
        H[:, :-1, -1] = -root_sum
        H[:, -1, -1] = (self.root * self.root).sum(axis=1)
        return H
