"""Certified upper bounds on the margin of one task, by weak duality.

With κ, ζ and P as in `MaxMargin`, multipliers λ ≥ 0 of the stabilities that sum to one, and any y ∈ ℝⁿ,

    κ(W) ≤ Σ λ^r_ij ζ^r_ij w_iᵀP^r w_j = ½ wᵀ S(λ) w ≤ ½ Σ_i y_i + ½ n λ_max(S(λ) − Diag(y))

with w = (w_1, …, w_n) stacked, S the symmetric matrix of the blocks M_ij = Σ_r λ^r_ij ζ^r_ij P^r, and Diag(y) with
y_i on the m places of row i. For n = 2 and the best y this is σ_max(M). The best λ and y give the value of Shor's
semidefinite relaxation, but every λ and y give a bound: the search may stop at any time, and the bound is computed at
its end from λ and y by an eigensolver, with an allowance for its rounding.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.metadata import relative_gap

Array = NDArray[np.float64]

# Largest relative optimality gap at which a point counts as proved optimal.
_PROVED_GAP = 1e-6
# Eigenvalues, and the sums that make up S, are accurate to a few times size · 2⁻⁵³ · norm.
_ROUNDING = 1e-14
# Parameters of the central path: the factor of ν after a centred step, the largest share of the way to the boundary
# λ = 0, the decrease required of a step, the relative accuracy of the merit function, and the limits of the search.
_CENTRING, _TO_BOUNDARY, _ARMIJO, _MERIT_ACCURACY = 0.2, 0.9, 0.1, 1e-12
_MIN_STEP_LENGTH, _MAX_STEPS = 1e-6, 100


@dataclass(frozen=True, eq=False)
class Certificate:
    """Upper bound on the margin of a task with its proof, and the optimality gap of a point.

    Parameters
    ----------
    bound
        The upper bound.
    multipliers, offsets
        λ, shape (p, N) with N = n(n−1)/2 pairs of outputs, and y, shape (n,), which prove the bound; see the module.
    iterations, seconds
        Steps and time of the search.
    margin
        The margin of the point, if one was given.
    gap
        Relative optimality gap of the point, (bound − margin) / max(|bound|, |margin|).
    proved_optimal
        Whether the gap is at most 1e-6.
    """

    bound: float
    multipliers: Array
    offsets: Array
    iterations: int
    seconds: float
    margin: float | None = None
    gap: float | None = None
    proved_optimal: bool = False


def certify_margin(
    task: MaxMargin,
    point: ArrayLike | None = None,
    multipliers: ArrayLike | None = None,
    time_limit: float = np.inf,
    tol: float = 3e-3,
) -> Certificate:
    """Compute a proved upper bound on the margins of all points of a task.

    An interior-point method on the dual of Shor's semidefinite relaxation finds multipliers λ ≥ 0, one for each of the
    p patterns and N = n(n−1)/2 pairs of outputs, and offsets y ∈ ℝⁿ, which prove the bound as the module describes.

    Parameters
    ----------
    task
        The max-margin task, with p patterns of m inputs and n outputs.
    point : optional
        Point W, shape (n, m), whose optimality gap to compute; its rows are scaled to unit length. None (default) for
        no gap.
    multipliers : optional
        Initial λ, shape (p, N), for instance those that a solver returned. The result is at most the bound that they
        prove with y = 0. They are ignored if one is negative or not finite, or all are 0. None (default) for equal λ.
    time_limit : optional
        Time limit in seconds, checked between iterations; inf (no limit) by default.
    tol : optional
        The search stops when the bound exceeds the value of the relaxation by at most tol · |bound|; 3e-3 by default.

    Returns
    -------
    Certificate
        The smallest bound found, with the λ and y that prove it and, if a point is given, its margin and gap.

    Raises
    ------
    QcqpbenchError
        If the point or the multipliers have another shape, or a row of the point is zero or not finite.
    """
    begin = time.perf_counter()
    best = _Bound(task)
    uniform = np.full(task.labels.shape, 1.0 / task.labels.size)
    best.update(uniform)
    if multipliers is not None and (start := _normalized(task, multipliers)) is not None:
        best.update(start)
    margin = None if point is None else float(task.margin(unit_rows(point)))
    iterations = 0
    if np.isfinite(best.value) and best.scale > 0:
        last = None
        for last in _central_path(task, best):
            iterations += 1
            closed = margin is not None and last.bound - margin <= 0.1 * _PROVED_GAP * abs(last.bound)
            if closed or last.excess <= tol * abs(last.bound) or time.perf_counter() - begin >= time_limit:
                break
        if last is not None:
            best.update(last.weights, last.offsets)
    gap = None if margin is None else relative_gap(margin, best.value)
    return Certificate(
        bound=best.value,
        multipliers=best.weights,
        offsets=best.offsets,
        iterations=iterations,
        seconds=time.perf_counter() - begin,
        margin=margin,
        gap=gap,
        proved_optimal=gap is not None and gap <= _PROVED_GAP,
    )


def proved_bound(task: MaxMargin, multipliers: ArrayLike, offsets: ArrayLike | None = None) -> float:
    """Return the upper bound on the margin that `multipliers` and `offsets` prove.

    The result is inf if they prove none: if a multiplier is negative, all are 0, or a value is not finite.

    Parameters
    ----------
    task
        The task.
    multipliers
        λ, shape (p, N) with N = n(n−1)/2, see the module; it is scaled to sum to one.
    offsets
        y, shape (n,); 0 by default, which is optimal for n = 2.
    """
    weights, best = _normalized(task, multipliers), _Bound(task)
    y = np.zeros(task.n) if offsets is None else np.asarray(offsets, dtype=np.float64)
    require(y.shape == (task.n,), f"offsets must have shape ({task.n},), got {y.shape}")
    if weights is not None and np.isfinite(y).all():
        best.update(weights, y)
    return best.value


def _normalized(task: MaxMargin, multipliers: ArrayLike) -> Array | None:
    """Return `multipliers` scaled to sum to one; None if any is negative or not finite, or all are zero."""
    weights = np.asarray(multipliers, dtype=np.float64)
    require(weights.shape == task.labels.shape, f"multipliers must have shape {task.labels.shape}, got {weights.shape}")
    is_usable = np.isfinite(weights).all() and weights.sum() > 0 and weights.min() >= 0
    return weights / weights.sum() if is_usable else None


def dual_matrix(task: MaxMargin, weights: Array) -> Array:
    """Return the matrix S(λ) of the module docstring, shape (n·m, n·m), for λ = `weights`, shape (p, N)."""
    S = np.zeros((task.n, task.m, task.n, task.m))
    for M, i, j in zip(task.mixture(weights), *task.pairs, strict=True):
        S[i, :, j], S[j, :, i] = M, M.T
    return S.reshape(task.n * task.m, -1)


class _Bound:
    """Smallest bound computed so far, with the weights λ and offsets y that prove it."""

    def __init__(self, task: MaxMargin) -> None:
        self.task = task
        self.value = np.inf
        self.scale = 0.0
        self.weights = np.zeros(task.labels.shape)
        self.offsets = np.zeros(task.n)

    def update(self, weights: Array, offsets: Array | None = None) -> None:
        """Compute the bound that λ = `weights` and y = `offsets` prove, and keep it if it is the smallest so far."""
        task = self.task
        S = dual_matrix(task, weights)
        norm = float(np.abs(S).sum(axis=1).max())
        self.scale = max(self.scale, norm)
        offsets = np.zeros(task.n) if offsets is None else offsets
        top = float(np.linalg.eigvalsh(S - np.diag(np.repeat(offsets, task.m)))[-1])
        allowance = _ROUNDING * len(S) * (norm + float(np.abs(offsets).max()))
        # Rounding of the sum Σλ = 1 scales the bound.
        excess = 1.0 + abs(float(weights.sum()) - 1.0) + _ROUNDING
        value = 0.5 * float(offsets.sum()) + 0.5 * task.n * (top + allowance)
        value *= excess if value > 0 else 1.0 / excess
        if value < self.value:
            self.value, self.weights, self.offsets = value, weights, offsets + top


@dataclass(frozen=True)
class _PathPoint:
    """Point (λ, y) of the path, its bound, and the most by which the bound can exceed the value of the relaxation."""

    weights: Array
    offsets: Array
    bound: float
    excess: float


def _central_path(task: MaxMargin, start: _Bound) -> Iterator[_PathPoint]:
    """Follow the central path by Newton's method, and yield the point after each step.

    The path consists of the minimizers of ½ Σy − ν [ln det(Diag(y) − S(λ)) + Σ ln λ] over Σλ = 1, as ν decreases.
    """
    shape, unit, R = task.labels.shape, start.scale, task.labels.size
    order = task.n * task.m + R
    barrier = _PairBarrier(task, unit) if task.n == 2 else _Barrier(task, unit)
    weights = 0.9 * start.weights.ravel() + 0.1 / R
    y = barrier.offsets(weights)
    if not np.isfinite(barrier.enter(weights, y)):
        return
    # Start with the ν for which y is central given λ: far from the path, steps are short and hundreds are needed.
    nu = barrier.price * len(y) / -float(barrier.gradient()[R:].sum())

    def merit(weights: Array, y: Array) -> float:
        return barrier.price / nu * float(y.sum()) + barrier.enter(weights, y) - float(np.log(weights).sum())

    for _ in range(_MAX_STEPS):
        value = merit(weights, y)
        if not np.isfinite(value):
            return
        # On the path, a step changes the merit by no more than its rounding.
        rounding = _MERIT_ACCURACY * (1.0 + abs(value))
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                step, decrement = _newton(barrier.hessian(), barrier.gradient(), weights, barrier.price / nu)
            length = min(1.0, _TO_BOUNDARY / max(float((-step[:R] / weights).max()), 1e-300))
            decrease = _ARMIJO * decrement
            while not merit(weights + length * step[:R], y + length * step[R:]) <= value - decrease * length + rounding:
                length /= 2
                if length < _MIN_STEP_LENGTH:
                    raise np.linalg.LinAlgError
        except np.linalg.LinAlgError:
            if barrier.double:
                # The precision of float64 is exhausted; the points so far remain valid.
                return
            barrier.double = True
            continue
        weights = weights + length * step[:R]
        weights /= weights.sum()
        y = y + length * step[R:]
        bound = unit * barrier.price * float(y.sum())
        yield _PathPoint(weights.reshape(shape), np.resize(unit * y, task.n), bound, unit * nu * order)
        if decrement < 1.0 and length > 0.5:
            nu *= _CENTRING


def _newton(H: Array, gradient: Array, weights: Array, price: float) -> tuple[Array, float]:
    """Return the Newton step in (λ, y) that keeps Σλ = 1, and the squared Newton decrement.

    `H` and `gradient` are the derivatives of −ln det F with F = Diag(y) − S(λ); both are modified in place.
    """
    R = len(weights)
    H[np.arange(R), np.arange(R)] += 1.0 / weights**2
    gradient[:R] -= 1.0 / weights
    gradient[R:] += price
    ones = np.concatenate([np.ones(R), np.zeros(len(gradient) - R)])
    if not (np.isfinite(H).all() and np.isfinite(gradient).all()):
        raise np.linalg.LinAlgError
    L = np.linalg.cholesky(H)
    solved = np.linalg.solve(L.T, np.linalg.solve(L, np.stack([gradient, ones], axis=1)))
    step = -solved[:, 0] + solved[:, 1] * (ones @ solved[:, 0]) / (ones @ solved[:, 1])
    return step, float(-gradient @ step)


class _Barrier:
    """Barrier −ln det F with F = Diag(y) − S(λ), and its derivatives in (λ, y); S and y are in multiples of `unit`.

    Attributes
    ----------
    price
        The coefficient of Σy in the bound.
    double
        Whether the Hessian is computed in float64; it starts in float32, until a step fails.
    """

    price = 0.5

    def __init__(self, task: MaxMargin, unit: float) -> None:
        self.task, self.unit, self.double = task, unit, False
        self._patterns = task.patterns[:0].astype(np.float32)

    def patterns(self) -> NDArray[Any]:
        """Return the patterns, divided by `unit`, in the precision of the Hessian."""
        dtype = np.float64 if self.double else np.float32
        if len(self._patterns) == 0 or self._patterns.dtype != dtype:
            self._patterns = (self.task.patterns / self.unit).astype(dtype)
        return self._patterns

    def along(self, directions: Array) -> Array:
        """Return ⟨P^r, D⟩ / `unit` in float64 for `directions` D of shape (…, m, m); the result has shape (p, …)."""
        p, shape = self.task.p, directions.shape[:-2]
        products = self.task.patterns.reshape(p, -1) @ directions.reshape(-1, self.task.m**2).T
        return (products / self.unit).reshape(p, *shape)

    def offsets(self, weights: Array) -> Array:
        """Return an initial y for which F is positive definite at λ = `weights`."""
        S = dual_matrix(self.task, weights.reshape(self.task.labels.shape)) / self.unit
        return np.full(self.task.n, 1.05 * max(float(np.linalg.eigvalsh(S)[-1]), 1e-6))

    def enter(self, weights: Array, y: Array) -> float:
        """Factorize F at (λ, y) for the derivatives, and return −ln det F; inf if F is not positive definite."""
        S = dual_matrix(self.task, weights.reshape(self.task.labels.shape)) / self.unit
        try:
            self.L = np.linalg.cholesky(np.diag(np.repeat(y, self.task.m)) - S)
        except np.linalg.LinAlgError:
            return np.inf
        return -2.0 * float(np.log(np.diagonal(self.L)).sum())

    def _inverse(self) -> Array:
        """Return the blocks G_ij of G = F⁻¹, shape (n, n, m, m)."""
        inverse = np.linalg.inv(self.L)
        return (inverse.T @ inverse).reshape(self.task.n, self.task.m, self.task.n, self.task.m).swapaxes(1, 2)

    def gradient(self) -> Array:
        """Return the gradient of the barrier in (λ, y), shape (p·N + n,), at the point of the last `enter`."""
        G, labels = self._inverse(), self.task.labels
        return np.append((2.0 * labels * self.along(G[self.task.pairs])).ravel(), -np.einsum("iikk->i", G))

    def hessian(self) -> Array:
        """Return the Hessian of the barrier in (λ, y) at the point of the last `enter`.

        With G = F⁻¹, the entry for λ^r_ij and λ^s_uv is 2 ζ^r_ij ζ^s_uv ⟨P^s, T⟩, T = G_ui P^r G_jv + G_uj P^rᵀ G_iv.
        The matrices T of all r take p m² numbers for one (i, j) and (u, v).
        """
        n, p, labels = self.task.n, self.task.p, self.task.labels.astype(np.float64)
        exact, patterns = self._inverse(), self.patterns()
        G, flat = exact.astype(patterns.dtype), patterns.reshape(p, -1)
        pairs = list(zip(*self.task.pairs, strict=True))
        N, R = len(pairs), labels.size
        H = np.empty((R + n, R + n))
        for a, (i, j) in enumerate(pairs):
            for b, (u, v) in enumerate(pairs[: a + 1]):
                T = np.matmul(G[u, i], patterns) @ G[j, v]
                T += (np.matmul(G[v, i], patterns) @ G[j, u]).swapaxes(1, 2)
                block = 2.0 * np.outer(labels[:, a], labels[:, b]) * (T.reshape(p, -1) @ flat.T)
                H[a:R:N, b:R:N] = block
                H[b:R:N, a:R:N] = block.T
        for k in range(n):
            mixed = self.along(np.stack([exact[i, k] @ exact[k, j] for i, j in pairs]))
            H[:R, R + k] = H[R + k, :R] = (-2.0 * labels * mixed).ravel()
        H[R:, R:] = (exact**2).sum(axis=(2, 3))
        return H


class _PairBarrier(_Barrier):
    """Barrier for n = 2, where y_1 = y_2 = y: −ln det F = −Σ ln(y² − σ²) over the singular values σ of M.

    The eigenvalues of F are y ± σ. Computing in the singular bases of M takes half as many matrix products.
    """

    price = 1.0

    def offsets(self, weights: Array) -> Array:
        return np.array([1.05 * max(float(np.linalg.svd(self._mixture(weights), compute_uv=False)[0]), 1e-6)])

    def _mixture(self, weights: Array) -> Array:
        return self.task.mixture(weights.reshape(self.task.labels.shape))[0] / self.unit

    def enter(self, weights: Array, y: Array) -> float:
        left, sigma, right = np.linalg.svd(self._mixture(weights))
        if not y[0] > sigma[0]:
            return np.inf
        self.left, self.right, self.low, self.high = left, right.T, y[0] - sigma, y[0] + sigma
        return -float(np.log(self.low).sum() + np.log(self.high).sum())

    def gradient(self) -> Array:
        slopes = self.along((self.left * (1 / self.low - 1 / self.high)) @ self.right.T)
        return np.append(self.task.labels[:, 0] * slopes, -float((1 / self.low + 1 / self.high).sum()))

    def hessian(self) -> Array:
        """Return the Hessian of the barrier in (λ, y) at the point of the last `enter`.

        With M = U diag(σ) Vᵀ, let A and K be the symmetric and antisymmetric parts of D = UᵀPV. The entry of two
        patterns is Σ αAA' + βKK' (elementwise products, with `alpha` and `beta` below) times both labels.
        """
        patterns, p, labels = self.patterns(), self.task.p, self.task.labels[:, 0].astype(np.float64)
        low, high, dtype = self.low, self.high, patterns.dtype
        alpha = 1 / np.outer(low, low) + 1 / np.outer(high, high)
        beta = 1 / np.outer(low, high) + 1 / np.outer(high, low)
        D = np.matmul(self.left.T.astype(dtype), patterns) @ self.right.astype(dtype)
        # Σ αAA' + βKK' = Σ D (γD' + δD'ᵀ)
        partner = D * (0.5 * (alpha + beta)).astype(dtype)
        partner += D.swapaxes(1, 2) * (0.5 * (alpha - beta)).astype(dtype)
        gram = np.outer(labels, labels) * (D.reshape(p, -1) @ partner.reshape(p, -1).T)
        mixed = labels * self.along((self.left * (1 / low**2 - 1 / high**2)) @ self.right.T)
        H = np.empty((p + 1, p + 1))
        H[:p, :p] = 0.5 * (gram + gram.T)
        H[p, :p] = H[:p, p] = -mixed
        H[p, p] = float((1 / low**2 + 1 / high**2).sum())
        return H
