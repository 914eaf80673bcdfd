"""The state of a graduated interior-point run: paths in lockstep, one pass over the patterns for all of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]

# μ of the last path relative to the first one's.
_SPAN = 0.03
# Times the number of stabilities, in units of the typical stability: where μ falls faster, and where float32 ends.
_TAIL, _TAIL_SHRINK, _DOUBLE = 1e-2, 0.2, 1e-4
# Where paths wait for the others, and how many of them then go on.
_CHOICE, _CHOSEN = 5e-2, 2
# A path has converged at its μ when its squared Newton decrement is below this many μ.
_DECREMENT = 10.0
_TO_BOUNDARY, _LONGEST_STEP, _SMALLEST_STEP, _ARMIJO = 0.95, 0.5, 1e-8, 1e-4
_SHIFTS, _LEAST_SHIFT = 60, 1e-2


class Passes:
    """What is computed by going through the patterns, for a batch of W at once; in float32 if told so."""

    def __init__(self, task: MaxMargin, mixed: bool) -> None:
        self.task = task
        squares = np.einsum("rkl,rkl->r", task.patterns, task.patterns)
        # The root mean square of a stability at random W.
        self.unit = float(np.sqrt(squares.mean())) / task.m
        fits = 1e-12 < self.unit < 1e12
        self.single = task.patterns.astype(np.float32) if mixed and fits else None
        self.symmetric = all(np.array_equal(pattern, pattern.T) for pattern in task.patterns)

    def _patterns(self, double: bool) -> NDArray[Any]:
        return self.task.patterns if double or self.single is None else self.single

    def jacobian(self, W: Array, double: bool) -> tuple[NDArray[Any], Array]:
        """∂g/∂W and g for a batch of W, shapes (b, R, n m) and (b, R), R = p N; one pass, two if not symmetric."""
        task, patterns = self.task, self._patterns(double)
        b, n, m, p = len(W), task.n, task.m, task.p
        w = W.astype(patterns.dtype).reshape(b * n, m)
        # Stacks of small products run at the speed of memory where one product with few columns does not.
        right = np.matmul(w, patterns).reshape(p, b, n, m)
        left = right if self.symmetric else np.matmul(patterns, w.T).reshape(p, m, b, n).transpose(0, 2, 3, 1)
        pairs = list(zip(*task.pairs, strict=True))
        jacobian = (np.zeros if n > 2 else np.empty)((b, p, len(pairs), n, m), dtype=patterns.dtype)
        for k, (i, j) in enumerate(pairs):
            signs = task.labels[:, k].astype(patterns.dtype)[:, None, None]
            np.multiply(left[:, :, j], signs, out=jacobian[:, :, k, i].swapaxes(0, 1))
            np.multiply(right[:, :, i], signs, out=jacobian[:, :, k, j].swapaxes(0, 1))
        g = np.empty((b, p, len(pairs)))
        for k, (i, _) in enumerate(pairs):
            g[:, :, k] = np.matmul(jacobian[:, :, k, i], w.reshape(b, n, m)[:, i, :, None])[..., 0]
        return jacobian.reshape(b, -1, n * m), g.reshape(b, -1)

    def mixture(self, weights: Array, double: bool) -> NDArray[Any]:
        """Σ_r λ^r_k ζ^r_k P^r for each pair k and each row of weights (b, R), shape (b, N, m, m); one pass."""
        task, patterns = self.task, self._patterns(double)
        signed = (weights.reshape(-1, *task.labels.shape) * task.labels).swapaxes(1, 2).reshape(-1, task.p)
        mixed = signed.astype(patterns.dtype) @ patterns.reshape(task.p, -1)
        return mixed.reshape(len(weights), -1, task.m, task.m)


@dataclass
class _Step:
    """A direction in (W, t, λ), how far to go, and the barrier's value and slope."""

    W: Array
    t: float
    multipliers: Array
    length: float
    dual_length: float
    value: float
    slope: float


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
        self.jacobian, self.g = (list(part) for part in passes.jacobian(W, passes.single is None))
        self.count = len(self.g[0])
        smooth = mu0 * self.unit * np.logspace(0, np.log10(_SPAN), b)
        self.mu = smooth / self.count
        self.t = [float(g.min() - 0.2 * width) for g, width in zip(self.g, smooth, strict=True)]
        self.weights = [mu / (g - t) for mu, g, t in zip(self.mu, self.g, self.t, strict=True)]
        self.shift = np.zeros(b)
        self.live = np.ones(b, dtype=bool)
        self.waiting = np.zeros(b, dtype=bool)
        self.chosen = np.full(b, b <= _CHOSEN)
        self.residual = np.full(b, np.inf)
        self.iterations = 0

    @property
    def margins(self) -> Array:
        return np.array([g.min() for g in self.g])

    def multipliers(self, k: int) -> Array:
        """λ ≥ 0 of the stabilities, which sum to one, of the labels' shape."""
        weights = self.weights[k] / self.weights[k].sum()
        return weights.reshape(self.passes.task.labels.shape)

    def iterate(self) -> None:
        """One Newton step of every live path."""
        self.iterations += 1
        steps: dict[int, _Step] = {}
        for double in (False, True):
            paths = np.flatnonzero(self.live & (self.double == double))
            if paths.size:
                mixtures = self.passes.mixture(np.stack([self.weights[k] for k in paths]), double)
                for k, mixture in zip(paths.tolist(), mixtures, strict=True):
                    step = self._step(k, mixture)
                    if step is not None:
                        steps[k] = step
        while steps:
            self._try(steps)
        if self.waiting.any() and not self.live.any():
            best = [k for k in np.argsort(self.t)[::-1] if self.waiting[k]][:_CHOSEN]
            self.chosen[best] = self.live[best] = True
            self.waiting[:] = False

    def _step(self, k: int, mixture: NDArray[Any]) -> _Step | None:
        """The Newton step of a path, after μ has been lowered if the path has converged at it; None if it has ended."""
        g, t, weights = self.g[k], self.t[k], self.weights[k]
        slack = g - t
        slopes = self._tangent_slopes(k)
        dtype = slopes.dtype
        scaled = slopes * np.sqrt(weights / slack).astype(dtype)[:, None]
        H = scaled.T @ scaled
        gradient = self._add_curvature(H, self.W[k].astype(dtype), mixture)
        balance = 1.0 - float(weights.sum())
        parts = (float(np.abs(gradient).max()), abs(balance) * self.unit, float((weights * slack).max()))
        self.residual[k] = max(parts) / self.unit
        factor = self._factor(k, H)
        if factor is None:
            self._give_up(k)
            return None

        def newton(mu: float) -> tuple[Array, Array]:
            from scipy.linalg import lapack

            right = (mu / slack).astype(dtype) @ slopes
            right[-1] += 1.0
            potrs = lapack.dpotrs if dtype == np.float64 else lapack.spotrs
            return right.astype(np.float64), potrs(factor, right, lower=1)[0].astype(np.float64)

        mu = float(self.mu[k])
        right, v = newton(mu)
        if right @ v < _DECREMENT * mu * (1.0 if self.shift[k] == 0 else 0.01):
            width = mu * self.count / self.unit
            if self.double[k] and (self.residual[k] <= self.tol or width <= 0.1 * self.tol):
                self.live[k] = False
                return None
            mu *= self.shrink if width > _TAIL else _TAIL_SHRINK
            self.mu[k] = mu = max(mu, 0.02 * self.tol * self.unit / self.count)
            if not self.chosen[k] and mu * self.count < _CHOICE * self.unit:
                self.live[k], self.waiting[k] = False, True
                return None
            if not self.double[k] and mu * self.count < _DOUBLE * self.unit:
                self._to_double(k)
                return None
            right, v = newton(mu)
        change = (slopes @ v.astype(dtype)).astype(np.float64)
        dual = mu / slack - weights - weights / slack * change
        W = v[:-1].reshape(self.W[k].shape)
        return _Step(
            W=W,
            t=float(v[-1]),
            multipliers=dual,
            length=min(
                1.0,
                _TO_BOUNDARY / max(float((-change / slack).max()), 1e-300),
                _LONGEST_STEP / max(float(np.linalg.norm(W, axis=1).max()), 1e-300),
            ),
            dual_length=min(1.0, _TO_BOUNDARY / max(float((-dual / weights).max()), 1e-300)),
            value=t + mu * float(np.log(slack).sum()),
            slope=float(right @ v),
        )

    def _tangent_slopes(self, k: int) -> NDArray[Any]:
        """∂(g − t)/∂(W, t) with W on its spheres, shape (R, n m + 1)."""
        jacobian, W = self.jacobian[k], self.W[k]
        n, m = W.shape
        slopes = np.empty((len(jacobian), n * m + 1), dtype=jacobian.dtype)
        slopes[:, -1] = -1
        for i in range(n):
            block = slice(i * m, (i + 1) * m)
            w = W[i].astype(jacobian.dtype)
            np.multiply((jacobian[:, block] @ w)[:, None], -w, out=slopes[:, block])
        slopes[:, :-1] += jacobian
        return slopes

    def _add_curvature(self, H: NDArray[Any], W: NDArray[Any], mixture: NDArray[Any]) -> NDArray[Any]:
        """Add the Lagrangian's Hessian on the tangent space to H's upper triangle and fill up its normal space; returns
        ∂(λ·g)/∂W on the tangent space."""
        n, m = W.shape
        blocks = [slice(i * m, (i + 1) * m) for i in range(n)]
        gradient = np.zeros((n, m), dtype=H.dtype)
        for M, i, j in zip(mixture, *self.passes.task.pairs, strict=True):
            left, right = M @ W[j], W[i] @ M
            gradient[i] += left
            gradient[j] += right
            tangent = M - np.outer(W[i], right - (W[i] @ left) * W[j])
            tangent -= np.outer(left, W[j])
            H[blocks[i], blocks[j]] -= tangent
        normal = np.sum(gradient * W, axis=1)
        diagonal = H.reshape(-1)[: n * m * (n * m + 2) : n * m + 2]
        diagonal += np.repeat(normal, m)
        fill = float(np.abs(diagonal).mean())
        for i, block in enumerate(blocks):
            H[block, block] += (fill - normal[i]) * np.outer(W[i], W[i])
        return gradient - normal[:, None] * W

    def _factor(self, k: int, H: NDArray[Any]) -> NDArray[Any] | None:
        """A Cholesky factor of H, shifted on W's part until there is one; the search begins near the last shift."""
        from scipy.linalg import lapack

        size = len(H)
        least = _LEAST_SHIFT * self.unit
        shift = float(self.shift[k]) / 3 if self.shift[k] > 3 * least else 0.0
        potrf = lapack.dpotrf if H.dtype == np.float64 else lapack.spotrf
        for _ in range(_SHIFTS):
            shifted = H.copy()
            shifted.reshape(-1)[: (size - 1) * (size + 1) : size + 1] += shift
            # Of the transpose, which LAPACK takes without a copy: the lower triangle is H's upper one.
            factor, info = potrf(shifted.T, lower=1, overwrite_a=1, clean=0)
            if info == 0:
                self.shift[k] = shift
                return factor
            shift = max(least, 3 * shift)
        return None

    def _try(self, steps: dict[int, _Step]) -> None:
        """Evaluate all steps at their lengths; take those that are good, halve the others."""
        for double in (False, True):
            paths = [k for k in steps if self.double[k] == double]
            if not paths:
                continue
            trial = unit_rows(np.stack([self.W[k] + steps[k].length * steps[k].W for k in paths]))
            jacobians, stabilities = self.passes.jacobian(trial, double)
            for k, W, jacobian, g in zip(paths, trial, jacobians, stabilities, strict=True):
                step, mu = steps[k], float(self.mu[k])
                t = self.t[k] + step.length * step.t
                slack = g - t
                if slack.min() > 0:
                    value = t + mu * float(np.log(slack).sum())
                    noise = (1e-13 if double else 1e-7) * self.unit
                    if value >= step.value + _ARMIJO * step.length * step.slope - noise:
                        self.W[k], self.t[k], self.jacobian[k], self.g[k] = W, t, jacobian, g
                        weights = self.weights[k] + step.dual_length * step.multipliers
                        self.weights[k] = np.clip(weights, 1e-8 * mu / slack, 1e8 * mu / slack)
                        del steps[k]
                        continue
                step.length /= 2
                if step.length < _SMALLEST_STEP:
                    del steps[k]
                    self._give_up(k)

    def _give_up(self, k: int) -> None:
        """No step helps: more digits may, else the path ends here."""
        if self.double[k]:
            self.live[k] = False
        else:
            self._to_double(k)
            self.weights[k] = self.mu[k] / (self.g[k] - self.t[k])

    def _to_double(self, k: int) -> None:
        self.double[k] = True
        jacobian, g = self.passes.jacobian(self.W[k][None], True)
        self.jacobian[k], self.g[k] = jacobian[0], g[0]
        self.t[k] = min(self.t[k], float(g[0].min() - self.mu[k]))
