"""The state of a graduated interior-point run: paths in lockstep, one pass over the patterns for all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.maxmargin import unit_rows

from ._gip_passes import Passes, distinct

Array = NDArray[np.float64]

# Times the number of stabilities, in units of the typical stability: where μ falls faster, and where float32 ends.
_TAIL, _TAIL_SHRINK, _DOUBLE = 2e-2, 0.2, 1e-4
# Where paths wait for the others, and how many of them then go on: which part, and at least how many.
_GATES = ((0.1, 1 / 4, 8), (0.05, 1 / 8, 6), (0.02, 1 / 16, 1))
# A path has converged at its μ when its squared Newton decrement is below this many μ.
_DECREMENT = 10.0
_TO_BOUNDARY, _LONGEST_STEP, _SMALLEST_STEP, _ARMIJO = 0.95, 0.5, 1e-8, 1e-4
_SHIFTS, _FIRST_SHIFT, _LEAST_SHIFT = 60, 2.0, 3e-2


@dataclass
class _Steps:
    """Of some paths: directions in (W, t, λ), how far to go, and the barrier's values and slopes."""

    paths: NDArray[np.intp]
    W: Array
    t: Array
    change: Array
    multipliers: Array
    length: Array
    dual_length: Array
    value: Array
    slope: Array

    def stretch(self, length: Array) -> Array:
        """By what the rows of W grow in a step of these lengths, shape (paths, n); a direction is tangent."""
        return np.sqrt(1.0 + length[:, None] ** 2 * np.sum(self.W**2, axis=2))

    def only(self, which: NDArray[np.bool_]) -> "_Steps":
        return _Steps(**{name: value[which] for name, value in vars(self).items()})


class Batch:
    """Paths k = 0..b−1: their points W and t, multipliers λ, and μ.

    live       which are still running; a path whose μ has become small waits until all have come that far, and only the
               best of them go on
    residual   the largest violation of the KKT conditions, in units of the typical stability
    """

    def __init__(self, passes: Passes, W: Array, mu0: float, shrink: float, tol: float) -> None:
        b = len(W)
        self.passes, self.shrink, self.tol, self.unit = passes, shrink, tol, passes.unit
        self.W = W
        self.double = np.full(b, passes.single is None)
        right, left, self.g = passes.products(W, passes.single is None)
        self.products = [(right[:, k], left[:, k]) for k in range(b)]
        self.count = self.g.shape[1]
        self.mu = mu0 * passes.smoothing(b) * self.unit / self.count
        self.t = self.g.min(axis=1) - 0.2 * self.mu * self.count
        self.weights = self.mu[:, None] / (self.g - self.t[:, None])
        self.shift = np.full(b, _FIRST_SHIFT * self.unit)
        self.keep_shift = np.ones(b, dtype=bool)
        self.live = np.ones(b, dtype=bool)
        self.waiting = np.zeros(b, dtype=bool)
        self.gate = len(_GATES) if passes.very_few else 0
        self.residual = np.full(b, np.inf)
        self.iterations = 0

    @property
    def margins(self) -> Array:
        return self.g.min(axis=1)

    def multipliers(self, k: int) -> Array:
        """λ ≥ 0 of the stabilities, which sum to one, of the labels' shape."""
        weights = self.weights[k] / self.weights[k].sum()
        return weights.reshape(self.passes.task.labels.shape)

    def run(self, max_iter: int) -> Iterator[None]:
        """Iterate until every path has ended."""
        while self.live.any() and self.iterations < max_iter:
            self.iterate()
            yield

    def iterate(self) -> None:
        """One Newton step of every live path."""
        self.iterations += 1
        for double in (False, True):
            paths = np.flatnonzero(self.live & (self.double == double))
            if paths.size:
                steps = self._steps(paths, double)
                if steps.paths.size:
                    self._take(steps, double)
        if self.waiting.any() and not self.live.any():
            _, part, least = _GATES[self.gate]
            best = np.flatnonzero(self.waiting)[np.argsort(-self.t[self.waiting])]
            best = best[distinct(self.passes, self.W[best])]
            self.live[best[: max(least, int(part * len(self.t)))]] = True
            self.waiting[:] = False
            self.gate += 1

    def _steps(self, paths: NDArray[np.intp], double: bool) -> _Steps:
        """The Newton steps of paths of one precision, with μ lowered where a path has converged at it; without those
        that have ended or wait."""
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
            factor = self._factor(k, self._newton_matrix(k, slopes, mixtures[place]))
            if factor is None:
                self._give_up(k)
                continue
            right, v = self._solve(k, slopes, factor, force[place])
            if self._converged(k, float(right @ v)):
                if not self._lower(k):
                    continue
                right, v = self._solve(k, slopes, factor, force[place])
            moves[place], slope[place], going[place] = v, right @ v, True
            change[place] = slopes @ v.astype(slopes.dtype) / root[place]
        mu = self.mu[paths, None]
        dual = mu / slack - weights - weights / slack * change
        W = moves[:, :-1].reshape(len(paths), *self.W[0].shape)
        nearest = np.maximum((-change / slack).max(axis=1), 1e-300)
        farthest = np.maximum(np.sqrt(np.sum(W**2, axis=2)).max(axis=1), 1e-300)
        return _Steps(
            paths=paths,
            W=W,
            t=moves[:, -1],
            change=change + moves[:, -1:],
            multipliers=dual,
            length=np.minimum(1.0, np.minimum(_TO_BOUNDARY / nearest, _LONGEST_STEP / farthest)),
            dual_length=np.minimum(1.0, _TO_BOUNDARY / np.maximum((-dual / weights).max(axis=1), 1e-300)),
            value=self.t[paths] + mu[:, 0] * np.log(slack).sum(axis=1),
            slope=slope,
        ).only(going)

    def _note_residual(self, k: int, slopes: NDArray[Any], slack: Array, root: Array) -> None:
        weights = self.weights[k]
        gradient = self._tangent(k, (weights / root) @ slopes)[:-1]
        balance = abs(1.0 - float(weights.sum())) * self.unit
        self.residual[k] = max(float(np.abs(gradient).max()), balance, float((weights * slack).max())) / self.unit

    def _tangent(self, k: int, v: Array) -> Array:
        """A vector in (W, t), freed of its part along the rows of W."""
        W = self.W[k]
        rows = v[:-1].reshape(W.shape)
        rows -= np.sum(rows * W, axis=1, keepdims=True) * W
        return v

    def _solve(self, k: int, slopes: NDArray[Any], factor: NDArray[Any], force: Array) -> tuple[Array, Array]:
        """The barrier's gradient in (W, t) at the path's μ, and the Newton direction."""
        from scipy.linalg import lapack

        dtype = slopes.dtype
        right = self._tangent(k, ((self.mu[k] * force).astype(dtype) @ slopes).astype(np.float64))
        right[-1] += 1.0
        potrs = lapack.dpotrs if dtype == np.float64 else lapack.spotrs
        return right, self._tangent(k, potrs(factor, right.astype(dtype), lower=1)[0].astype(np.float64))

    def _converged(self, k: int, decrement: float) -> bool:
        """Whether a path is near the optimum at its μ. Where H had to be shifted, it may be near a saddle instead: then
        more is asked before paths are compared, and from the last comparison on."""
        strict = self.gate == len(_GATES) or self.mu[k] * self.shrink * self.count < _GATES[self.gate][0] * self.unit
        return bool(decrement < (_DECREMENT / 10 if strict and self.shift[k] > 0 else _DECREMENT) * self.mu[k])

    def _lower(self, k: int) -> bool:
        """Lower a path's μ; False if it ends, waits or begins anew in float64 instead."""
        width = self.mu[k] * self.count / self.unit
        if self.double[k] and (self.residual[k] <= self.tol or width <= 0.1 * self.tol):
            self.live[k] = False
            return False
        lower = width * (self.shrink if width > _TAIL else _TAIL_SHRINK)
        self.mu[k] = max(lower, 0.02 * self.tol) * self.unit / self.count
        if self.gate < len(_GATES) and lower < _GATES[self.gate][0]:
            self.live[k], self.waiting[k] = False, True
            return False
        if not self.double[k] and lower < _DOUBLE:
            self._to_double(k)
            return False
        return True

    def _scaled_slopes(self, k: int, root: Array) -> NDArray[Any]:
        """∂(g − t)/∂(W, t), each row times its root, shape (R, n m + 1)."""
        (right, left), task = self.products[k], self.passes.task
        p, n, m = right.shape
        dtype = right.dtype
        signed = (root.reshape(task.labels.shape) * task.labels).astype(dtype)
        slopes = (np.zeros if n > 2 else np.empty)((p, len(self.passes.pairs), n * m + 1), dtype=dtype)
        for pair, (i, j) in enumerate(self.passes.pairs):
            scale = signed[:, pair, None]
            np.multiply(left[:, j], scale, out=slopes[:, pair, i * m : (i + 1) * m])
            np.multiply(right[:, i], scale, out=slopes[:, pair, j * m : (j + 1) * m])
        slopes = slopes.reshape(-1, n * m + 1)
        slopes[:, -1] = -root
        return slopes

    def _newton_matrix(self, k: int, slopes: NDArray[Any], mixture: NDArray[Any]) -> NDArray[Any]:
        """JᵀDJ and the Lagrangian's Hessian on the tangent space, which is filled up; the lower triangle."""
        from scipy.linalg import blas

        dtype = slopes.dtype
        rank_k, times, rank_2k = (
            (blas.dsyrk, blas.dsymm, blas.dsyr2k) if dtype == np.float64 else (blas.ssyrk, blas.ssymm, blas.ssyr2k)
        )
        n, m = self.W[k].shape
        # In columns, as BLAS and LAPACK have it, so that nothing is copied.
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
        """A Cholesky factor of H, shifted on W's part until there is one. The search begins at the last shift if that
        was hard to find, and below it if not."""
        from scipy.linalg import lapack

        size = len(H)
        least = _LEAST_SHIFT * self.unit
        shift = float(self.shift[k])
        if not self.keep_shift[k]:
            shift = shift / 3 if shift > 3 * least else 0.0
        potrf = lapack.dpotrf if H.dtype == np.float64 else lapack.spotrf
        for trial in range(_SHIFTS):
            shifted = H.copy(order="F")
            shifted.T.reshape(-1)[: (size - 1) * (size + 1) : size + 1] += shift
            factor, info = potrf(shifted, lower=1, overwrite_a=1, clean=0)
            if info == 0:
                self.shift[k], self.keep_shift[k] = shift, trial > 0
                return factor
            shift = max(least, 3 * shift)
        return None

    def _take(self, steps: _Steps, double: bool) -> None:
        """Take steps, each halved until the barrier gains. One pass is enough for all lengths: along a step, products
        are linear and stabilities quadratic, but for the stretch of W."""
        paths, longest = steps.paths, steps.length
        far = steps.stretch(longest)
        trial = unit_rows(self.W[paths] + longest[:, None, None] * steps.W)
        right, left, g_far = self.passes.products(trial, double)
        g, noise = self.g[paths], (1e-13 if double else 1e-7) * self.unit
        bend = (g_far * self._by_pair(far) - g - longest[:, None] * steps.change) / longest[:, None] ** 2
        length, left_over = longest.copy(), np.ones(len(paths), dtype=bool)
        while left_over.any():
            at = length[:, None]
            g_new = (g + at * steps.change + at**2 * bend) / self._by_pair(steps.stretch(length))
            g_new = np.where(at == longest[:, None], g_far, g_new)
            t = self.t[paths] + length * steps.t
            slack = g_new - t[:, None]
            inside = slack.min(axis=1) > 0
            value = t + self.mu[paths] * np.log(np.where(inside[:, None], slack, 1.0)).sum(axis=1)
            good = left_over & inside & (value >= steps.value + _ARMIJO * length * steps.slope - noise)
            taken = paths[good]
            rates = self.mu[taken, None] / slack[good]
            weights = self.weights[taken] + steps.dual_length[good, None] * steps.multipliers[good]
            self.weights[taken] = np.clip(weights, 1e-8 * rates, 1e8 * rates)
            self.W[taken] = unit_rows(self.W[taken] + at[good, :, None] * steps.W[good])
            self.t[taken], self.g[taken] = t[good], g_new[good]
            near = steps.stretch(length)
            for place in np.flatnonzero(good).tolist():
                part = length[place] / longest[place]
                old, new = self.products[paths[place]], (right[:, place], left[:, place])
                if part < 1.0:
                    keep = ((1.0 - part) / near[place]).astype(right.dtype)[:, None]
                    bring = (part * far[place] / near[place]).astype(right.dtype)[:, None]
                    first = keep * old[0] + bring * new[0]
                    new = (first, first if self.passes.symmetric else keep * old[1] + bring * new[1])
                self.products[paths[place]] = new
            left_over &= ~good
            length[left_over] /= 2
            ended = left_over & (length < _SMALLEST_STEP)
            left_over &= ~ended
            for k in paths[ended].tolist():
                self._give_up(k)

    def _by_pair(self, rows: Array) -> Array:
        """Of numbers for the rows of W (paths, n), their products in the order of the stabilities (paths, R)."""
        i, j = self.passes.task.pairs
        return np.tile(rows[:, i] * rows[:, j], self.passes.task.p)

    def _give_up(self, k: int) -> None:
        """No step helps: more digits may, else the path ends here."""
        if self.double[k]:
            self.live[k] = False
        else:
            self._to_double(k)
            self.weights[k] = self.mu[k] / (self.g[k] - self.t[k])

    def _to_double(self, k: int) -> None:
        self.double[k] = True
        right, left, g = self.passes.products(self.W[k][None], True)
        self.products[k], self.g[k] = (right[:, 0], left[:, 0]), g[0]
        self.t[k] = min(self.t[k], float(g[0].min() - self.mu[k]))
