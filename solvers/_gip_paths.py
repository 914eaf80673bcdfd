"""State of many paths of gip at once, the rules of their steps, and the derivatives of their stabilities.

The first axis of every array is the path. Sizes: b paths, n rows of W, m inputs, p patterns, N pairs of rows, R = p N
stabilities.
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import unit_rows

from ._gip_passes import Patterns

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]

# Units of the typical stability.
_FIRST_SHIFT = 2.0


class Rules(NamedTuple):
    """Numbers that determine the steps of paths. Widths, lengths and shifts are in units of the typical stability.

    Parameters
    ----------
    shrink
        Factor by which a path that has converged at its μ multiplies it.
    settle_width, hurry
        Above this width μ is multiplied by the second number in every step, whether the path has converged or not.
    last_width
        A path ends when it has converged at this width, which is μ times the number of stabilities.
    tol
        KKT residual at which a path ends too, if its width is not larger.
    max_decrement, central_decrement
        A path has converged at its μ when its squared Newton decrement is below the first multiple of μ, and is central
        when the decrement is below the second.
    tail_width, tail_shrink, tail_power
        Below this width μ falls faster: by this factor, and on a central path to this power of the width.
    boundary_share
        Largest share of the way to the boundary of a step.
    max_step_length, min_step_length, armijo_share
        Largest distance that a row moves, smallest step length, and share of the expected gain that a step must have.
    roundings
        Allowance for rounding in the barrier function, in units of the precision and of the typical stability.
    min_shift, max_shift_trials
        Smallest shift of the Newton matrix but zero, and largest number of shifts that are tried in a step.
    max_age
        Largest number of steps of a path; it then ends without having converged.
    """

    shrink: float
    last_width: float
    tol: float
    settle_width: float = np.inf
    hurry: float = 0.5
    max_decrement: float = 10.0
    central_decrement: float = 0.1
    tail_width: float = 2e-2
    tail_shrink: float = 0.2
    tail_power: float = 1.5
    boundary_share: float = 0.95
    max_step_length: float = 0.5
    min_step_length: float = 1e-8
    armijo_share: float = 1e-4
    roundings: float = 500
    min_shift: float = 3e-2
    max_shift_trials: int = 60
    max_age: int = 500


class Status(IntEnum):
    """Status of a path."""

    RUNNING = 0
    ARRIVED = 1
    """It has converged at its μ, which was then lowered, and has taken a step."""
    ENDED = 2
    """It has converged at the last μ."""
    STUCK = 3
    """It has no step that raises the barrier function."""
    TOO_OLD = 4


@dataclass
class Paths:
    """State of several paths; the first axis of each array is the path.

    Parameters
    ----------
    W, t, g, weights, mu, residual
        As in `Batch`.
    arrived_t
        The t at which the path has converged last; NaN if it has not.
    shift, keep_shift
        Last shift of the Newton matrix, and whether the search for the next one begins there.
    age
        Number of steps.
    status
        One of `Status`.
    """

    W: Array
    t: Array
    g: Array
    weights: Array
    mu: Array
    shift: Array
    residual: Array
    arrived_t: Array
    keep_shift: Mask
    age: NDArray[np.int64]
    status: NDArray[np.int32]

    def only(self, which: Mask | Index | list[int]) -> "Paths":
        """Return the paths that the mask or the indices `which` select."""
        return Paths(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def joined(self, other: "Paths") -> "Paths":
        """Return the paths of both."""
        values = ((field.name, getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return Paths(**{name: np.concatenate(pair) for name, *pair in values})

    def put(self, which: Index, paths: "Paths") -> None:
        """Replace the paths with the indices `which`."""
        for field in fields(self):
            getattr(self, field.name)[which] = getattr(paths, field.name)

    @property
    def margins(self) -> Array:
        """Margin of each path, its smallest stability."""
        return self.g.min(axis=1)

    @property
    def expected_margins(self) -> Array:
        """Mean of the stabilities of each path, weighted with the multipliers.

        It is at least the margin of the optimum if W is stationary and the problem is convex nearby.
        """
        return np.sum(self.weights * self.g, axis=1) / self.weights.sum(axis=1)


class Steps(Protocol):
    """Newton steps of paths: `Stack` has them in NumPy, `Kernel` in compiled code."""

    def follow(self, paths: Paths, steps: int) -> None:
        """Take steps on the paths that are running, each until its status changes, and at most `steps` for a group."""


def new_paths(patterns: Patterns, W: Array, width: float) -> Paths:
    """Return paths from the points `W`, shape (b, n, m), with unit rows, that begin at a width."""
    b, dtype = len(W), patterns.dtype
    W = W.astype(dtype)
    g = patterns.stabilities(patterns.products(W)[0], W)
    mu = np.full(b, width * patterns.unit / g.shape[1], dtype)
    t: Array = g.min(axis=1) - dtype(0.2 * width * patterns.unit)
    return Paths(
        W=W,
        t=t,
        g=g,
        weights=mu[:, None] / (g - t[:, None]),
        mu=mu,
        shift=np.full(b, _FIRST_SHIFT * patterns.unit, dtype),
        residual=np.full(b, np.inf, dtype),
        arrived_t=np.full(b, np.nan, dtype),
        keep_shift=np.ones(b, dtype=bool),
        age=np.zeros(b, dtype=np.int64),
        status=np.full(b, Status.RUNNING, dtype=np.int32),
    )


def continued(patterns: Patterns, paths: Paths) -> Paths:
    """Return paths with the precision of `patterns`, which run again."""
    dtype: Any = patterns.dtype
    W = unit_rows(paths.W.astype(dtype))
    g, mu = patterns.stabilities(patterns.products(W)[0], W), paths.mu.astype(dtype)
    # Rounding must not make a slack negative.
    t = np.minimum(paths.t.astype(dtype), g.min(axis=1) - 1e-3 * mu)
    others = {name: getattr(paths, name).astype(dtype) for name in ("weights", "shift", "residual", "arrived_t")}
    status = np.full(len(W), Status.RUNNING, dtype=np.int32)
    return replace(paths, W=W, t=t, g=g, mu=mu, status=status, **others)


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
        wP, Pw = patterns.products(paths.W)
        b, n, p, m = wP.shape
        scale = self._by_row(root * patterns.labels.ravel())[..., None]
        self.blocks = np.empty((b, n, n - 1, p, m), patterns.dtype)
        for i in range(n):
            for c, j in enumerate(patterns.partners[i]):
                np.multiply((Pw if i < j else wP)[:, j], scale[:, i, c], out=self.blocks[:, i, c])
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
