"""State of a graduated interior-point run: a batch of paths in lockstep, which share the passes over the patterns."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import unit_rows

from ._gip_passes import Passes, distinct
from ._gip_schedule import Schedule
from ._gip_steps import Line, Steps

Array = NDArray[np.float64]


# Width below which μ falls faster, the factor by which it then falls, and the width below which float64 is used.
_TAIL_WIDTH, _TAIL_SHRINK, _DOUBLE_WIDTH = 2e-2, 0.2, 1e-4
# A path has converged at its μ when its squared Newton decrement is below this multiple of μ.
_MAX_DECREMENT = 10.0
_BOUNDARY_SHARE, _MAX_STEP_LENGTH, _MIN_STEP_FACTOR, _ARMIJO_SHARE = 0.95, 0.5, 1e-8, 1e-4
# Shifts are in units of the typical stability.
_MAX_SHIFT_TRIALS, _FIRST_SHIFT, _MIN_SHIFT = 60, 2.0, 3e-2


class Batch:
    """Batch of b paths to maxima of the barrier function t + μ Σ ln(g − t), on which μ falls to zero.

    Parameters
    ----------
    passes
        Products of the patterns of the task.
    W
        Initial points, shape (b, n, m), with unit rows.
    schedule
        Smoothing of the paths.
    tol
        As in `Gip`.

    Attributes
    ----------
    W, t, g, weights, mu
        Points W, shape (b, n, m), and t, shape (b,), stabilities g and multipliers λ, shape (b, R), and barrier
        parameter μ, shape (b,), of the paths.
    live
        Mask of the running paths. A path whose μ has become small waits at a gate until all paths have reached the
        gate or ended; only the best of the waiting paths continue.
    residual
        Largest violation of the KKT conditions of each path, in units of the typical stability.
    """

    def __init__(self, passes: Passes, W: Array, schedule: Schedule, tol: float) -> None:
        b = len(W)
        self.passes, self.tol, self.unit = passes, tol, passes.unit
        self.shrink, self.gates = schedule.shrink, schedule.gates
        self.W = W
        self.double = np.full(b, passes.single is None)
        wP, Pw, self.g = passes.products(W, passes.single is None)
        self.products = [(wP[:, k], Pw[:, k]) for k in range(b)]
        self.stability_count = self.g.shape[1]
        self.mu = schedule.width * schedule.smoothing * self.unit / self.stability_count
        self.t = self.g.min(axis=1) - 0.2 * self.mu * self.stability_count
        self.weights = self.mu[:, None] / (self.g - self.t[:, None])
        self.shift = np.full(b, _FIRST_SHIFT * self.unit)
        self.keep_shift = np.ones(b, dtype=bool)
        self.live = np.ones(b, dtype=bool)
        self.waiting = np.zeros(b, dtype=bool)
        self.gate = 0
        self.residual = np.full(b, np.inf)
        self.iterations = 0

    @property
    def margins(self) -> Array:
        """Margin of each path, its smallest stability."""
        return self.g.min(axis=1)

    def multipliers(self, k: int) -> Array:
        """Return the multipliers λ ≥ 0 of path `k`, scaled to sum to one, shape (p, N)."""
        weights = self.weights[k] / self.weights[k].sum()
        return weights.reshape(self.passes.task.labels.shape)

    def run(self, max_iter: int) -> Iterator[None]:
        """Iterate until every path has ended or `max_iter` iterations are done; yield after each iteration."""
        while self.live.any() and self.iterations < max_iter:
            self.iterate()
            yield

    def iterate(self) -> None:
        """Take one Newton step on each live path."""
        self.iterations += 1
        for double in (False, True):
            paths = np.flatnonzero(self.live & (self.double == double))
            if paths.size:
                steps = self._steps(paths, double)
                if steps.paths.size:
                    self._take(steps, double)
        if self.waiting.any() and not self.live.any():
            self._pass_gate()

    def _pass_gate(self) -> None:
        """Resume the best of the waiting paths, at most one of each group of close paths, and end the others."""
        gate = self.gates[self.gate]
        best = np.flatnonzero(self.waiting)[np.argsort(-self.t[self.waiting])]
        best = best[distinct(self.passes, self.W[best])]
        self.live[best[: max(gate.least, int(gate.share * len(self.t)))]] = True
        self.waiting[:] = False
        self.gate += 1

    def _steps(self, paths: NDArray[np.intp], double: bool) -> Steps:
        """Return the Newton steps of `paths`, all of one precision, without the paths that take no step now."""
        weights = self.weights[paths]
        slack = self.g[paths] - self.t[paths, None]
        root = np.sqrt(weights / slack)
        force = 1.0 / (slack * root)
        mixtures = self.passes.mixture(weights, double)
        moves = np.zeros((len(paths), self.W[0].size + 1))
        change, slope, going = np.zeros(slack.shape), np.zeros(len(paths)), np.zeros(len(paths), dtype=bool)
        for place, k in enumerate(paths.tolist()):
            slopes = self._scaled_slopes(k, root[place])
            if double:
                self._note_residual(k, slopes, slack[place], root[place])
            newton = self._newton_direction(k, slopes, mixtures[place], force[place])
            if newton is not None:
                moves[place], slope[place] = newton
                change[place] = slopes @ moves[place].astype(slopes.dtype) / root[place]
                going[place] = True
        return self._limited_steps(paths, weights, slack, moves, change, slope).only(going)

    def _newton_direction(
        self, k: int, slopes: NDArray[Any], mixture: NDArray[Any], force: Array
    ) -> tuple[Array, float] | None:
        """Return the Newton direction of path `k` in (W, t) and the slope of the barrier function along it.

        If the path has converged at its μ, μ is lowered first. The result is None if the path ends, waits at a gate or
        changes to float64.
        """
        factor = self._factor(k, self._newton_matrix(k, slopes, mixture))
        if factor is None:
            self._give_up(k)
            return None
        gradient, direction = self._solve(k, slopes, factor, force)
        if self._converged(k, float(gradient @ direction)):
            if not self._lower(k):
                return None
            gradient, direction = self._solve(k, slopes, factor, force)
        return direction, float(gradient @ direction)

    def _limited_steps(
        self, paths: NDArray[np.intp], weights: Array, slack: Array, moves: Array, change: Array, slope: Array
    ) -> Steps:
        """Return steps along the directions `moves` in (W, t), short enough to keep slack and multipliers positive.

        `slack` is g − t and `change` is its derivative along `moves`; `slope` is that of the barrier function.
        """
        mu = self.mu[paths, None]
        dual = mu / slack - weights - weights / slack * change
        W = moves[:, :-1].reshape(len(paths), *self.W[0].shape)
        nearest = np.maximum((-change / slack).max(axis=1), 1e-300)
        farthest = np.maximum(np.sqrt(np.sum(W**2, axis=2)).max(axis=1), 1e-300)
        return Steps(
            paths=paths,
            W=W,
            t=moves[:, -1],
            change=change + moves[:, -1:],
            multipliers=dual,
            length=np.minimum(1.0, np.minimum(_BOUNDARY_SHARE / nearest, _MAX_STEP_LENGTH / farthest)),
            dual_length=np.minimum(1.0, _BOUNDARY_SHARE / np.maximum((-dual / weights).max(axis=1), 1e-300)),
            value=self.t[paths] + mu[:, 0] * np.log(slack).sum(axis=1),
            slope=slope,
        )

    def _note_residual(self, k: int, slopes: NDArray[Any], slack: Array, root: Array) -> None:
        """Store the largest violation of the KKT conditions of path `k`."""
        weights = self.weights[k]
        gradient = self._tangent(k, (weights / root) @ slopes)[:-1]
        balance = abs(1.0 - float(weights.sum())) * self.unit
        self.residual[k] = max(float(np.abs(gradient).max()), balance, float((weights * slack).max())) / self.unit

    def _tangent(self, k: int, v: Array) -> Array:
        """Project `v`, a vector in (W, t), onto the tangent space at the W of path `k`, in place; return `v`."""
        W = self.W[k]
        rows = v[:-1].reshape(W.shape)
        rows -= np.sum(rows * W, axis=1, keepdims=True) * W
        return v

    def _solve(self, k: int, slopes: NDArray[Any], factor: NDArray[Any], force: Array) -> tuple[Array, Array]:
        """Return the gradient in (W, t) of the barrier function of path `k` at its μ, and the Newton direction."""
        from scipy.linalg import lapack

        dtype = slopes.dtype
        gradient = self._tangent(k, ((self.mu[k] * force).astype(dtype) @ slopes).astype(np.float64))
        gradient[-1] += 1.0
        potrs = lapack.dpotrs if dtype == np.float64 else lapack.spotrs
        return gradient, self._tangent(k, potrs(factor, gradient.astype(dtype), lower=1)[0].astype(np.float64))

    def _converged(self, k: int, decrement: float) -> bool:
        """Return True if the squared Newton decrement of path `k` shows that it is close to the optimum at its μ.

        If the Newton matrix had to be shifted, the path may be close to a saddle point instead. The limit is then
        stricter for the last μ before a gate, and after the last gate.
        """
        after_gates = self.gate == len(self.gates)
        strict = (
            after_gates or self.mu[k] * self.shrink * self.stability_count < self.gates[self.gate].width * self.unit
        )
        limit = _MAX_DECREMENT / 10 if strict and self.shift[k] > 0 else _MAX_DECREMENT
        return bool(decrement < limit * self.mu[k])

    def _lower(self, k: int) -> bool:
        """Lower the μ of path `k`; return False if the path ends, waits at a gate or changes to float64."""
        width = self.mu[k] * self.stability_count / self.unit
        if self.double[k] and (self.residual[k] <= self.tol or width <= 0.1 * self.tol):
            self.live[k] = False
            return False
        lower = width * (self.shrink if width > _TAIL_WIDTH else _TAIL_SHRINK)
        self.mu[k] = max(lower, 0.02 * self.tol) * self.unit / self.stability_count
        if self.gate < len(self.gates) and lower < self.gates[self.gate].width:
            self.live[k], self.waiting[k] = False, True
            return False
        if not self.double[k] and lower < _DOUBLE_WIDTH:
            self._to_double(k)
            return False
        return True

    def _scaled_slopes(self, k: int, root: Array) -> NDArray[Any]:
        """Return the Jacobian ∂(g − t)/∂(W, t) of path `k` with row r multiplied by root[r], shape (R, n m + 1)."""
        (wP, Pw), task = self.products[k], self.passes.task
        p, n, m = wP.shape
        dtype = wP.dtype
        signed = (root.reshape(task.labels.shape) * task.labels).astype(dtype)
        slopes = (np.zeros if n > 2 else np.empty)((p, len(self.passes.pairs), n * m + 1), dtype=dtype)
        for pair, (i, j) in enumerate(self.passes.pairs):
            scale = signed[:, pair, None]
            np.multiply(Pw[:, j], scale, out=slopes[:, pair, i * m : (i + 1) * m])
            np.multiply(wP[:, i], scale, out=slopes[:, pair, j * m : (j + 1) * m])
        slopes = slopes.reshape(-1, n * m + 1)
        slopes[:, -1] = -root
        return slopes

    def _newton_matrix(self, k: int, slopes: NDArray[Any], mixture: NDArray[Any]) -> NDArray[Any]:
        """Return the lower triangle of SᵀS for `slopes` S, plus the Hessian of the Lagrangian, on the tangent space.

        On the normal space, which the rows of W span, the matrix is a multiple of the identity.
        """
        from scipy.linalg import blas

        dtype = slopes.dtype
        rank_k, times, rank_2k = (
            (blas.dsyrk, blas.dsymm, blas.dsyr2k) if dtype == np.float64 else (blas.ssyrk, blas.ssymm, blas.ssyr2k)
        )
        n, m = self.W[k].shape
        # Arrays are in the column-major order of BLAS and LAPACK, so that none is copied.
        H = rank_k(1.0, slopes.T, lower=1)
        diagonal = H.T.reshape(-1)[:: n * m + 2]
        shares = (self.weights[k] * self.g[k]).reshape(self.passes.task.labels.shape).sum(axis=0)
        normals = np.zeros((n * m + 1, n), dtype=dtype, order="F")
        for i in range(n):
            normals[i * m : (i + 1) * m, i] = self.W[k][i]
        for M, share, (i, j) in zip(mixture, shares, self.passes.pairs, strict=True):
            H[j * m : (j + 1) * m, i * m : (i + 1) * m] -= M.T
            for row in (i, j):
                diagonal[row * m : (row + 1) * m] += share
        fill = np.abs(diagonal[:-1]).mean()
        along = times(1.0, H, normals, lower=1)
        along -= normals @ (0.5 * (normals.T @ along + fill * np.eye(n, dtype=dtype)))
        return rank_2k(-1.0, normals, along, beta=1.0, c=H, lower=1, overwrite_c=1)

    def _factor(self, k: int, H: NDArray[Any]) -> NDArray[Any] | None:
        """Return a Cholesky factor of `H` plus a multiple of the identity on W; None if none is positive definite.

        The multiple is the shift. The search starts at the last shift if that took several trials, else below it.
        """
        from scipy.linalg import lapack

        size = len(H)
        least = _MIN_SHIFT * self.unit
        shift = float(self.shift[k])
        if not self.keep_shift[k]:
            shift = shift / 3 if shift > 3 * least else 0.0
        potrf = lapack.dpotrf if H.dtype == np.float64 else lapack.spotrf
        for trial in range(_MAX_SHIFT_TRIALS):
            shifted = H.copy(order="F")
            shifted.T.reshape(-1)[: (size - 1) * (size + 1) : size + 1] += shift
            factor, info = potrf(shifted, lower=1, overwrite_a=1, clean=0)
            if info == 0:
                self.shift[k], self.keep_shift[k] = shift, trial > 0
                return factor
            shift = max(least, 3 * shift)
        return None

    def _take(self, steps: Steps, double: bool) -> None:
        """Take `steps`, halved until the barrier function increases enough; give up paths with too short steps."""
        paths = steps.paths
        line = Line(self.passes, steps, self.W[paths], self.g[paths], double)
        noise = (1e-13 if double else 1e-7) * self.unit
        length, searching = steps.length.copy(), np.ones(len(paths), dtype=bool)
        while searching.any():
            g, t = line.stabilities(length), self.t[paths] + length * steps.t
            accepted = searching & self._gains(steps, length, g, t, noise)
            self._move(line, length, accepted, g, t)
            searching &= ~accepted
            length[searching] /= 2
            too_short = searching & (length < _MIN_STEP_FACTOR)
            searching &= ~too_short
            for k in paths[too_short].tolist():
                self._give_up(k)

    def _gains(self, steps: Steps, length: Array, g: Array, t: Array, noise: float) -> NDArray[np.bool_]:
        """Return a mask of the paths with g > t whose barrier function meets the Armijo condition up to `noise`."""
        slack = g - t[:, None]
        inside = slack.min(axis=1) > 0
        value = t + self.mu[steps.paths] * np.log(np.where(inside[:, None], slack, 1.0)).sum(axis=1)
        return inside & (value >= steps.value + _ARMIJO_SHARE * length * steps.slope - noise)

    def _move(self, line: Line, length: Array, accepted: NDArray[np.bool_], g: Array, t: Array) -> None:
        """Move the `accepted` paths by steps of the given lengths, to the stabilities `g` and the values `t` of t."""
        steps = line.steps
        moved = steps.paths[accepted]
        rates = self.mu[moved, None] / (g - t[:, None])[accepted]
        weights = self.weights[moved] + steps.dual_length[accepted, None] * steps.multipliers[accepted]
        self.weights[moved] = np.clip(weights, 1e-8 * rates, 1e8 * rates)
        self.W[moved] = unit_rows(self.W[moved] + length[accepted, None, None] * steps.W[accepted])
        self.t[moved], self.g[moved] = t[accepted], g[accepted]
        stretch = steps.stretch(length)
        for place in np.flatnonzero(accepted).tolist():
            k = steps.paths[place]
            self.products[k] = line.products(place, length[place], stretch[place], self.products[k])

    def _give_up(self, k: int) -> None:
        """Change path `k`, for which no step was found, to float64; end the path if it is in float64 already."""
        if self.double[k]:
            self.live[k] = False
        else:
            self._to_double(k)
            self.weights[k] = self.mu[k] / (self.g[k] - self.t[k])

    def _to_double(self, k: int) -> None:
        """Change path `k` to float64 and recompute its products and stabilities."""
        self.double[k] = True
        wP, Pw, g = self.passes.products(self.W[k][None], True)
        self.products[k], self.g[k] = (wP[:, 0], Pw[:, 0]), g[0]
        self.t[k] = min(self.t[k], float(g[0].min() - self.mu[k]))
