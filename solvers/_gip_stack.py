"""Newton steps of many paths of gip at once, for tasks with few weights.

The first axis of every array is the path. Only the factorizations loop over the paths, so that little of the time of a
step is Python's. Sizes: b paths, n rows of W, m inputs, p patterns, N pairs of rows, R = p N stabilities.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._gip_passes import Patterns
from ._gip_paths import Paths, Slopes

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Index = NDArray[np.intp]

# A path has converged at its μ when its squared Newton decrement is below this multiple of μ, and is central when the
# decrement is below the second multiple.
_MAX_DECREMENT, _CENTRAL_DECREMENT = 10.0, 0.1
# Width below which μ falls faster: by this factor, and on a central path to this power of the width.
_TAIL_WIDTH, _TAIL_SHRINK, _TAIL_POWER = 2e-2, 0.2, 1.5
_BOUNDARY_SHARE, _MAX_STEP_LENGTH, _MIN_STEP_LENGTH, _ARMIJO_SHARE = 0.95, 0.5, 1e-8, 1e-4
# Allowance for rounding in the barrier function, in units of the precision and of the typical stability.
_ROUNDINGS = 500
# Number of paths that must have converged at a μ before some of them are dropped there.
_MIN_ARRIVED = 12
# Shifts are in units of the typical stability.
_MAX_SHIFT_TRIALS, _FIRST_SHIFT, _MIN_SHIFT = 60, 2.0, 3e-2


class _Directions(NamedTuple):
    """Newton directions in (W, t) of several paths, and derivatives of g − t and of the barrier function along them."""

    move: Array
    change: Array
    slope: Array


class Stack:
    """Paths to maxima of the barrier function t + μ Σ ln(g − t), each of which takes a step at a time.

    Parameters
    ----------
    patterns
        The patterns of the task.
    shrink
        Factor by which a path that has converged at its μ multiplies it.
    last_width
        A path ends when it has converged at this width, which is μ times the number of stabilities, in units of the
        typical stability.
    tol
        KKT residual at which a path ends too, in units of the typical stability, if its width is not larger.
    max_age
        Largest number of steps of a path; it then ends without having converged.
    share
        Share of the paths that go on when they have converged at a μ, those with the largest t. The others are dropped.
    """

    def __init__(
        self, patterns: Patterns, shrink: float, last_width: float, tol: float, max_age: int, share: float = 1.0
    ) -> None:
        self.share = share
        # The t of the paths that have converged at each μ.
        self._arrived: dict[float, Array] = {}
        self.patterns, self.shrink, self.last_width, self.tol, self.max_age = patterns, shrink, last_width, tol, max_age
        self.unit, self.stability_count = patterns.unit, patterns.labels.size
        self.tiny = float(patterns.limits.tiny)
        # A step is taken although rounding lowers the barrier function by this much.
        self.allowance = _ROUNDINGS * float(patterns.limits.eps) * self.unit
        task = patterns.task
        self.paths = self.new_paths(np.empty((0, task.n, task.m)), np.empty(0))

    def __len__(self) -> int:
        return len(self.paths.W)

    def add(self, paths: Paths) -> None:
        """Add paths, which continue where they are."""
        self.paths = self.paths.joined(paths)

    def new_paths(self, W: Array, width: Array) -> Paths:
        """Return paths from the points `W`, shape (b, n, m), with unit rows, that begin at the given widths."""
        b, dtype = len(W), self.patterns.dtype
        W, width = W.astype(dtype, copy=False), width.astype(dtype, copy=False)
        wP, Pw = self.patterns.products(W)
        g = self.patterns.stabilities(wP, W)
        mu = width * self.unit / self.stability_count
        t = g.min(axis=1) - 0.2 * width * self.unit
        return Paths(
            W=W,
            t=t,
            g=g,
            weights=mu[:, None] / (g - t[:, None]),
            mu=mu,
            shift=np.full(b, _FIRST_SHIFT * self.unit, dtype),
            keep_shift=np.ones(b, dtype=bool),
            wP=wP,
            Pw=Pw,
            residual=np.full(b, np.inf, dtype),
            age=np.zeros(b, dtype=np.intp),
        )

    def continued(self, paths: Paths) -> Paths:
        """Return paths of another stack with the precision of this one."""
        dtype = self.patterns.dtype
        W = _unit_rows(paths.W.astype(dtype))
        wP, Pw = self.patterns.products(W)
        g, mu = self.patterns.stabilities(wP, W), paths.mu.astype(dtype)
        # Rounding must not make a slack negative.
        t = np.minimum(paths.t.astype(dtype), g.min(axis=1) - 1e-3 * mu)
        weights, shift, residual = (values.astype(dtype) for values in (paths.weights, paths.shift, paths.residual))
        return replace(paths, W=W, t=t, g=g, weights=weights, mu=mu, shift=shift, residual=residual, wP=wP, Pw=Pw)

    def remove_below(self, margin: float) -> Paths:
        """Remove the paths whose optima are expected to be below `margin`, and return them.

        The expected margin is the mean of the stabilities, weighted with the multipliers. It is at least that of the
        optimum if W is stationary and the problem is convex nearby.
        """
        paths = self.paths
        hopeless = np.sum(paths.weights * paths.g, axis=1) < margin * paths.weights.sum(axis=1)
        removed = paths.only(hopeless)
        if len(removed.t):
            self.paths = paths.only(~hopeless)
        return removed

    def iterate(self) -> Paths:
        """Take one Newton step on each path; return the paths that have ended, without those that are dropped."""
        paths = self.paths
        slack = paths.g - paths.t[:, None]
        root = np.sqrt(paths.weights / slack)
        slopes = Slopes(self.patterns, paths, root)
        gradients = slopes.sums([paths.weights / root, 1.0 / (slack * root), root])
        self._note_residuals(gradients[:, 0], slack)
        forces = np.zeros((len(root), 2, gradients.shape[2] + 1), root.dtype)
        forces[:, 0, :-1], forces[:, 0, -1], forces[:, 1, -1] = gradients[:, 1], -(1.0 / slack).sum(axis=1), 1.0
        answers, solved = self._shifted_solutions(slopes.newton_matrices(gradients[:, 2]), forces)
        for part in (0, 1):
            answers[:, part] = self._tangent(answers[:, part])
        # The gradient of the barrier function is μ forces[:, 0] + forces[:, 1], and the direction is linear in it.
        forms = np.matmul(forces, answers.swapaxes(1, 2))
        decrement = self._decrement(forms)
        converged = decrement < self._decrement_limit() * paths.mu
        going = solved & ~(converged & self._is_last()) & (paths.age < self.max_age)
        ends, going = ~going, going & ~self._dropped(converged & going)
        self._lower(converged & going, decrement < _CENTRAL_DECREMENT * paths.mu)
        moves = paths.mu[:, None] * answers[:, 0] + answers[:, 1]
        change = slopes.along(moves[:, :-1]) / root - moves[:, -1:]
        directions = _Directions(moves, change, self._decrement(forms))
        ended = paths.only(ends)
        if not going.all():
            self.paths, directions = paths.only(going), _Directions(*(values[going] for values in directions))
        if going.any():
            stuck = self._take(directions)
            if stuck.any():
                ended, self.paths = ended.joined(self.paths.only(stuck)), self.paths.only(~stuck)
        return ended

    def _dropped(self, arrived: Mask) -> Mask:
        """Return a mask of the paths that are dropped, among those that have just `arrived` at the end of their μ."""
        dropped = np.zeros_like(arrived)
        if self.share == 1 or not arrived.any():
            return dropped
        mu, t = self.paths.mu, self.paths.t
        for level in np.unique(mu[arrived]).tolist():
            here = arrived & (mu == level)
            all_t = self._arrived[level] = np.concatenate([self._arrived.get(level, t[:0]), t[here]])
            if len(all_t) >= _MIN_ARRIVED:
                dropped |= here & (t < np.quantile(all_t, 1 - self.share))
        return dropped

    def _decrement(self, forms: Array) -> Array:
        """Return the squared Newton decrement of each path at its μ."""
        mu = self.paths.mu
        return mu * (mu * forms[:, 0, 0] + 2 * forms[:, 0, 1]) + forms[:, 1, 1]

    def _decrement_limit(self) -> Array:
        """Return the multiple of μ below which a squared Newton decrement shows that a path has converged at its μ.

        If the Newton matrix had to be shifted, the path may be close to a saddle point instead, so that the limit is
        stricter at small widths.
        """
        strict = (self.paths.shift > 0) & (self._widths() < _TAIL_WIDTH)
        return np.where(strict, _MAX_DECREMENT / 10, _MAX_DECREMENT)

    def _widths(self) -> Array:
        return self.paths.mu * self.stability_count / self.unit

    def _is_last(self) -> Mask:
        """Return a mask of the paths that end when they have converged at their μ."""
        width = self._widths()
        precise = (self.paths.residual <= self.tol) & (width <= self.tol)
        return precise | (width <= 1.0001 * self.last_width)

    def _lower(self, which: Mask, central: Mask) -> None:
        """Lower the μ of the paths that the mask `which` selects, faster if a path is `central`."""
        width = self._widths()
        tail = np.where(central, np.minimum(_TAIL_SHRINK * width, width**_TAIL_POWER), _TAIL_SHRINK * width)
        lower = np.maximum(np.where(width > _TAIL_WIDTH, self.shrink * width, tail), self.last_width)
        self.paths.mu = np.where(which, lower * self.unit / self.stability_count, self.paths.mu)

    def _note_residuals(self, gradient: Array, slack: Array) -> None:
        """Store the largest violation of the KKT conditions of each path; `gradient` is that of Σλg."""
        paths = self.paths
        stationarity = np.abs(gradient).max(axis=1, initial=0.0)
        balance = np.abs(1.0 - paths.weights.sum(axis=1)) * self.unit
        complementarity = (paths.weights * slack).max(axis=1)
        paths.residual = np.maximum(np.maximum(stationarity, balance), complementarity) / self.unit

    def _tangent(self, v: Array) -> Array:
        """Project vectors `v` in (W, t), shape (b, n m + 1), onto the tangent spaces, in place; return `v`."""
        W = self.paths.W
        rows = v[:, :-1].reshape(W.shape)
        v[:, :-1] = (rows - np.sum(rows * W, axis=2, keepdims=True) * W).reshape(len(v), -1)
        return v

    def _shifted_solutions(self, H: Array, forces: Array) -> tuple[Array, Mask]:
        """Return the solutions with H plus a multiple of the identity on W, for which a Cholesky factor exists.

        The multiple is the shift. The search starts at the last shift if that took several trials, else below it.
        """
        from scipy.linalg import lapack

        solve = lapack.sposv if H.dtype == np.float32 else lapack.dposv
        paths, size, least = self.paths, H.shape[1], _MIN_SHIFT * self.unit
        lower = np.where(paths.shift > 3 * least, paths.shift / 3, 0.0)
        shift = np.where(paths.keep_shift, paths.shift, lower)
        answers, todo = np.zeros_like(forces), list(range(len(H)))
        paths.keep_shift = np.zeros(len(H), dtype=bool)
        for _ in range(_MAX_SHIFT_TRIALS):
            shifted = H[todo]
            shifted.reshape(len(todo), -1)[:, : -1 : size + 1] += shift[todo, None]
            failed = []
            for place, k in enumerate(todo):
                # The matrix is symmetric, so its transpose, in the column-major order of LAPACK, is not copied.
                _, answer, info = solve(shifted[place].T, forces[k].T, lower=1, overwrite_a=1)
                if info == 0:
                    answers[k] = answer.T
                else:
                    failed.append(k)
            todo = failed
            if not todo:
                break
            paths.keep_shift[todo] = True
            shift[todo] = np.maximum(least, 3 * shift[todo])
        paths.shift = shift
        solved = np.ones(len(H), dtype=bool)
        solved[todo] = False
        return answers, solved

    def _take(self, directions: _Directions) -> Mask:
        """Take steps along the directions; return a mask of the paths for which none was found."""
        paths, patterns, slack = self.paths, self.patterns, self.paths.g - self.paths.t[:, None]
        D, dt = directions.move[:, :-1].reshape(paths.W.shape), directions.move[:, -1]
        dP, Pd = patterns.products(D)
        length, g = self._search_lines(directions, slack, D, patterns.stabilities(dP, D))
        accepted = length > 0
        self._update_weights(slack, directions.change, g - (paths.t + length * dt)[:, None])
        stretch = np.sqrt(1.0 + length[:, None] ** 2 * np.sum(D * D, axis=2))[:, :, None, None]
        at = length[:, None, None, None]
        symmetric = patterns.symmetric
        paths.wP = (paths.wP + at * dP) / stretch
        paths.Pw = paths.wP if symmetric else (paths.Pw + at * Pd) / stretch
        paths.W, paths.t, paths.g = _unit_rows(paths.W + at[:, 0] * D), paths.t + length * dt, g
        paths.age += 1
        return ~accepted

    def _search_lines(self, directions: _Directions, slack: Array, D: Array, bend: Array) -> tuple[Array, Array]:
        """Return step lengths, halved until the barrier function increases enough, and the stabilities after the steps.

        A length is zero if no step was found. `D` are the directions in W, `bend` the stabilities at `D`: before
        the rows are scaled to unit length, the stabilities are quadratic in the length.
        """
        paths, dt = self.paths, directions.move[:, -1]
        squares, tilt = np.sum(D * D, axis=2), directions.change + dt[:, None]
        nearest = np.maximum((-directions.change / slack).max(axis=1), self.tiny)
        farthest = np.maximum(np.sqrt(squares.max(axis=1)), self.tiny)
        length = np.minimum(1.0, np.minimum(_BOUNDARY_SHARE / nearest, _MAX_STEP_LENGTH / farthest))
        target = paths.t + paths.mu * np.log(slack).sum(axis=1) - self.allowance
        g, searching = paths.g.copy(), np.arange(len(length))
        while searching.size:
            at = length[searching]
            trial = self._stabilities_along(searching, at[:, None], tilt, bend, squares)
            gain = _ARMIJO_SHARE * at * directions.slope[searching]
            accepted = self._barrier(searching, trial, at * dt[searching]) >= target[searching] + gain
            g[searching[accepted]] = trial[accepted]
            searching = searching[~accepted]
            length[searching] /= 2
            length[searching[length[searching] < _MIN_STEP_LENGTH]] = 0.0
            searching = searching[length[searching] > 0]
        return length, g

    def _stabilities_along(self, which: Index, at: Array, tilt: Array, bend: Array, squares: Array) -> Array:
        """Return the stabilities of the paths `which` after steps of lengths `at`; `squares` are those of the steps."""
        first, second = self.patterns.task.pairs
        stretch = np.sqrt(1.0 + at**2 * squares[which])
        g = self.paths.g[which] + at * (tilt[which] + at * bend[which])
        return g / np.tile(stretch[:, first] * stretch[:, second], self.patterns.task.p)

    def _barrier(self, which: Index, g: Array, rise: Array) -> Array:
        """Return the barrier function of the paths `which` at stabilities `g`, t having risen; −inf outside."""
        t = self.paths.t[which] + rise
        slack = g - t[:, None]
        inside = slack.min(axis=1) > 0
        logarithms = np.log(np.where(inside[:, None], slack, 1.0)).sum(axis=1)
        return np.where(inside, t + self.paths.mu[which] * logarithms, -np.inf)

    def _update_weights(self, slack: Array, change: Array, slack_after: Array) -> None:
        """Move the multipliers along their Newton directions, with step lengths that keep them positive."""
        paths, mu = self.paths, self.paths.mu[:, None]
        direction = mu / slack - paths.weights * (1.0 + change / slack)
        length = np.minimum(1.0, _BOUNDARY_SHARE / np.maximum((-direction / paths.weights).max(axis=1), self.tiny))
        rates = mu / slack_after
        paths.weights = np.clip(paths.weights + length[:, None] * direction, 1e-8 * rates, 1e8 * rates)


def _unit_rows(W: Array) -> Array:
    """Scale the rows of `W`, whose lengths are close to 1, to length 1."""
    scaled: Array = W / np.sqrt(np.sum(W * W, axis=2, keepdims=True))
    return scaled
