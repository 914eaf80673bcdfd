"""Newton steps of many paths of gip at once, for tasks with few weights; `_gip_kernel.py` has them in compiled code.

The first axis of every array is the path. Only the factorizations loop over the paths, so that little of the time of a
step is Python's. Sizes: b paths, n rows of W, m inputs, p patterns, N pairs of rows, R = p N stabilities.
"""

from typing import NamedTuple

import numpy as np

from qcqpbench.problem.maxmargin import unit_rows

from ._gip_passes import Patterns
from ._gip_paths import Array, Index, Mask, Paths, Rules, Slopes, Status

# Largest number of paths that step together, and of the entries of their slopes; smallest number that step together.
_MAX_TOGETHER, _MAX_ENTRIES, _MIN_TOGETHER = 96, 4_000_000, 8


class _Directions(NamedTuple):
    """Newton directions in (W, t) of several paths, and derivatives of g − t and of the barrier function along them."""

    move: Array
    change: Array
    slope: Array


class Stack:
    """Steps of paths to maxima of the barrier function t + μ Σ ln(g − t), for falling μ.

    Parameters
    ----------
    patterns
        The patterns of the task.
    rules
        The numbers that determine the steps.
    """

    def __init__(self, patterns: Patterns, rules: Rules) -> None:
        self.patterns, self.rules = patterns, rules
        self.unit, self.stability_count = patterns.unit, patterns.labels.size
        self.tiny = float(patterns.limits.tiny)
        # A step is taken although rounding lowers the barrier function by this much.
        self.allowance = rules.roundings * float(patterns.limits.eps) * self.unit
        entries = 2 * patterns.labels.size * patterns.task.m
        self._together = min(max(_MAX_ENTRIES // entries, _MIN_TOGETHER), _MAX_TOGETHER)

    def follow(self, paths: Paths, steps: int) -> None:
        """Take steps on the paths that are running, each until its status changes, and at most `steps` for a group."""
        for _ in range(steps):
            running = np.flatnonzero(paths.status == Status.RUNNING)[: self._together]
            if not running.size:
                return
            self.paths = paths.only(running)
            self._step()
            paths.put(running, self.paths)

    def _step(self) -> None:
        """Take one Newton step on each of the paths, and set their status."""
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
        hurries = solved & (self._widths() > 1.0001 * self.rules.settle_width)
        converged = solved & ~hurries & (decrement < self._decrement_limit() * paths.mu)
        paths.arrived_t = np.where(converged, paths.t, paths.arrived_t)
        ends = converged & self._is_last()
        going = solved & ~ends & (paths.age < self.rules.max_age)
        paths.status[~going] = Status.TOO_OLD
        paths.status[ends], paths.status[~solved] = Status.ENDED, Status.STUCK
        arrived = converged & going
        self._lower(arrived, decrement < self.rules.central_decrement * paths.mu)
        self._hurry(hurries & going)
        moves = paths.mu[:, None] * answers[:, 0] + answers[:, 1]
        change = slopes.along(moves[:, :-1]) / root - moves[:, -1:]
        directions = _Directions(moves, change, self._decrement(forms))
        if going.any():
            everything, which = self.paths, np.flatnonzero(going)
            self.paths = everything.only(which)
            stuck = self._take(_Directions(*(values[which] for values in directions)))
            self.paths.status[arrived[which]] = Status.ARRIVED
            self.paths.status[stuck] = Status.STUCK
            everything.put(which, self.paths)
            self.paths = everything

    def _decrement(self, forms: Array) -> Array:
        """Return the squared Newton decrement of each path at its μ."""
        mu = self.paths.mu
        return mu * (mu * forms[:, 0, 0] + 2 * forms[:, 0, 1]) + forms[:, 1, 1]

    def _decrement_limit(self) -> Array:
        """Return the multiple of μ below which a squared Newton decrement shows that a path has converged at its μ.

        If the Newton matrix had to be shifted, the path may be close to a saddle point instead, so that the limit is
        stricter at small widths.
        """
        strict = (self.paths.shift > 0) & (self._widths() < self.rules.tail_width)
        return np.where(strict, self.rules.max_decrement / 10, self.rules.max_decrement)

    def _widths(self) -> Array:
        return self.paths.mu * self.stability_count / self.unit

    def _is_last(self) -> Mask:
        """Return a mask of the paths that end when they have converged at their μ."""
        width = self._widths()
        precise = (self.paths.residual <= self.rules.tol) & (width <= self.rules.tol)
        return precise | (width <= 1.0001 * self.rules.last_width)

    def _lower(self, which: Mask, central: Mask) -> None:
        """Lower the μ of the paths that the mask `which` selects, faster if a path is `central`."""
        width = self._widths()
        tail = np.where(
            central,
            np.minimum(self.rules.tail_shrink * width, width**self.rules.tail_power),
            self.rules.tail_shrink * width,
        )
        lower = np.maximum(
            np.where(width > self.rules.tail_width, self.rules.shrink * width, tail), self.rules.last_width
        )
        self.paths.mu = np.where(which, lower * self.unit / self.stability_count, self.paths.mu)

    def _hurry(self, which: Mask) -> None:
        """Lower the μ of the paths that the mask `which` selects, which are above the width at which they settle."""
        lower = np.maximum(self.rules.hurry * self._widths(), self.rules.settle_width)
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

        The multiple is the shift. The search starts at the last shift if that took several trials, else below it, but
        not at zero unless the last shift was the smallest.
        """
        from scipy.linalg import lapack

        solve = lapack.sposv if H.dtype == np.float32 else lapack.dposv
        paths, size, least = self.paths, H.shape[1], self.rules.min_shift * self.unit
        lower = np.where(paths.shift > least, np.maximum(paths.shift / 3, least), 0.0)
        shift = np.where(paths.keep_shift, paths.shift, lower)
        answers, todo = np.zeros_like(forces), list(range(len(H)))
        paths.keep_shift = np.zeros(len(H), dtype=bool)
        for _ in range(self.rules.max_shift_trials):
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
        dP, _ = patterns.products(D)
        length, g = self._search_lines(directions, slack, D, patterns.stabilities(dP, D))
        accepted = length > 0
        self._update_weights(slack, directions.change, g - (paths.t + length * dt)[:, None])
        paths.W, paths.t, paths.g = unit_rows(paths.W + length[:, None, None] * D), paths.t + length * dt, g
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
        length = np.minimum(1.0, np.minimum(self.rules.boundary_share / nearest, self.rules.max_step_length / farthest))
        target = paths.t + paths.mu * np.log(slack).sum(axis=1) - self.allowance
        g, searching = paths.g.copy(), np.arange(len(length))
        while searching.size:
            at = length[searching]
            trial = self._stabilities_along(searching, at[:, None], tilt, bend, squares)
            gain = self.rules.armijo_share * at * directions.slope[searching]
            accepted = self._barrier(searching, trial, at * dt[searching]) >= target[searching] + gain
            g[searching[accepted]] = trial[accepted]
            searching = searching[~accepted]
            length[searching] /= 2
            length[searching[length[searching] < self.rules.min_step_length]] = 0.0
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
        length = np.minimum(
            1.0, self.rules.boundary_share / np.maximum((-direction / paths.weights).max(axis=1), self.tiny)
        )
        rates = mu / slack_after
        paths.weights = np.clip(paths.weights + length[:, None] * direction, 1e-8 * rates, 1e8 * rates)
