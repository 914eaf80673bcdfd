"""Certified upper bounds on the margin of one task, by weak duality.

For multipliers λ ≥ 0 of the stabilities that sum to one, and any y ∈ ℝⁿ,

    κ(W) ≤ Σ λ^r_ij ζ^r_ij w_iᵀP^r w_j = ½ wᵀ S(λ) w ≤ ½ Σ_i y_i + ½ n λ_max(S(λ) − Diag(y))

with w = (w_1, …, w_n) stacked, S the symmetric matrix of the blocks M_ij = Σ_r λ^r_ij ζ^r_ij P^r, and Diag(y) with
y_i on the m places of row i. For n = 2 and the best y this is σ_max(M). The best λ and y give the value of Shor's
semidefinite relaxation, but every λ and y give a bound: the search may stop at any time, and what counts is computed
at its end from λ and y by an eigensolver, with an allowance for its rounding.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import require
from .maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]

# A gap below this, relative to the margin, proves the point optimal.
PROVED = 1e-6
# Eigenvalues are accurate to a few times size · 2⁻⁵³ · norm; so are the sums that make up S.
_ROUNDING = 1e-14
_CENTRING, _TO_BOUNDARY, _SHORTEST, _STEPS = 0.2, 0.9, 1e-6, 100


@dataclass(frozen=True, eq=False)
class Certificate:
    """A bound that no W can beat, and how close a point comes to it.

    gap              (bound − margin) / max(|bound|, |margin|)
    proved_optimal   whether the gap is at most PROVED
    multipliers      λ, shape (p, N), which prove the bound; together with offsets y
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
    """The best bound found, by an interior-point method on the dual of Shor's relaxation, until it is within tol
    (relative) of the relaxation's value, or the time is over.

    point         W to compare with the bound
    multipliers   λ to begin with, for instance those of a solver: its own bound is never lost
    """
    begin = time.perf_counter()
    best = _Bound(task)
    uniform = np.full(task.labels.shape, 1.0 / task.labels.size)
    best.see(uniform)
    if multipliers is not None and (given := _normalized(task, multipliers)) is not None:
        best.see(given)
    margin = None if point is None else float(task.margin(unit_rows(point)))
    iterations = 0
    if np.isfinite(best.value) and best.scale > 0:
        found = None
        for found in _central_path(task, best):
            iterations += 1
            closed = margin is not None and found.bound - margin <= 0.1 * PROVED * abs(found.bound)
            if closed or found.excess <= tol * abs(found.bound) or time.perf_counter() - begin >= time_limit:
                break
        if found is not None:
            best.see(found.weights, found.offsets)
    gap = None if margin is None else (best.value - margin) / max(abs(best.value), abs(margin), 1e-300)
    return Certificate(
        bound=best.value,
        multipliers=best.weights,
        offsets=best.offsets,
        iterations=iterations,
        seconds=time.perf_counter() - begin,
        margin=margin,
        gap=gap,
        proved_optimal=gap is not None and gap <= PROVED,
    )


def proved_bound(task: MaxMargin, multipliers: ArrayLike, offsets: ArrayLike | None = None) -> float:
    """The bound that λ, scaled to sum to one, and y prove (y = 0 if not given, for n = 2 as good as any); infinite if
    they prove none."""
    given, best = _normalized(task, multipliers), _Bound(task)
    y = np.zeros(task.n) if offsets is None else np.asarray(offsets, dtype=np.float64)
    require(y.shape == (task.n,), f"offsets have shape {y.shape}, needed: ({task.n},)")
    if given is not None and np.isfinite(y).all():
        best.see(given, y)
    return best.value


def _normalized(task: MaxMargin, multipliers: ArrayLike) -> Array | None:
    """λ with the sum one, or None if some are negative or not finite, or all are zero."""
    given = np.asarray(multipliers, dtype=np.float64)
    require(given.shape == task.labels.shape, f"multipliers have shape {given.shape}, needed: {task.labels.shape}")
    return given / given.sum() if np.isfinite(given).all() and given.sum() > 0 and given.min() >= 0 else None


def dual_matrix(task: MaxMargin, weights: Array) -> Array:
    """S(λ), shape (n m, n m)."""
    S = np.zeros((task.n, task.m, task.n, task.m))
    for M, i, j in zip(task.mixture(weights), *task.pairs, strict=True):
        S[i, :, j], S[j, :, i] = M, M.T
    return S.reshape(task.n * task.m, -1)


class _Bound:
    """The smallest bound seen, with what proves it."""

    def __init__(self, task: MaxMargin) -> None:
        self.task = task
        self.value = np.inf
        self.scale = 0.0
        self.weights = np.zeros(task.labels.shape)
        self.offsets = np.zeros(task.n)

    def see(self, weights: Array, offsets: Array | None = None) -> None:
        task = self.task
        S = dual_matrix(task, weights)
        norm = float(np.abs(S).sum(axis=1).max())
        self.scale = max(self.scale, norm)
        offsets = np.zeros(task.n) if offsets is None else offsets
        top = float(np.linalg.eigvalsh(S - np.diag(np.repeat(offsets, task.m)))[-1])
        allowance = _ROUNDING * len(S) * (norm + float(np.abs(offsets).max()))
        # A weight that misses 1 by rounding scales the whole of λ.
        excess = 1.0 + abs(float(weights.sum()) - 1.0) + _ROUNDING
        value = 0.5 * float(offsets.sum()) + 0.5 * task.n * (top + allowance)
        value *= excess if value > 0 else 1.0 / excess
        if value < self.value:
            self.value, self.weights, self.offsets = value, weights, offsets + top


@dataclass(frozen=True)
class _Found:
    """A point of the central path: λ, y, their bound, and by how much it exceeds the relaxation's value at the most."""

    weights: Array
    offsets: Array
    bound: float
    excess: float


def _central_path(task: MaxMargin, start: _Bound) -> Iterator[_Found]:
    """Newton's method on ½ Σy − ν [ln det(Diag(y) − S(λ)) + Σ ln λ] over Σλ = 1, while ν falls; the point after each
    step."""
    shape, unit, R = task.labels.shape, start.scale, task.labels.size
    order = task.n * task.m + R
    barrier = _PairBarrier(task, unit) if task.n == 2 else _Barrier(task, unit)
    weights = 0.9 * start.weights.ravel() + 0.1 / R
    y = barrier.offsets(weights)
    nu = 0.05 * barrier.price * float(y.sum()) / order
    inside = barrier.enter(weights, y)
    for _ in range(_STEPS if inside else 0):
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                step, decrement = _newton(*barrier.derivatives(), weights, barrier.price / nu)
        except np.linalg.LinAlgError:
            if barrier.double:
                # Out of digits: what has been found stands.
                return
            barrier.double = True
            continue
        length = min(1.0, _TO_BOUNDARY / max(float((-step[:R] / weights).max()), 1e-300))
        while not barrier.enter(weights + length * step[:R], y + length * step[R:]):
            length /= 2
            if length < _SHORTEST:
                return
        if decrement > 1.0:
            # Not all the way to where the barrier may just hold.
            length *= _TO_BOUNDARY
        weights = weights + length * step[:R]
        weights /= weights.sum()
        y = y + length * step[R:]
        if not (weights.min() > 0 and barrier.enter(weights, y)):
            return
        bound = unit * barrier.price * float(y.sum())
        yield _Found(weights.reshape(shape), np.resize(unit * y, task.n), bound, unit * nu * order)
        if decrement < 1.0 and length > 0.5:
            nu *= _CENTRING


def _newton(H: Array, gradient: Array, weights: Array, price: float) -> tuple[Array, float]:
    """The step in (λ, y) within Σλ = 1, and its squared decrement, from the derivatives of −ln det F."""
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
    """−ln det F for F = Diag(y) − S(λ), and its derivatives in (λ, y); in units of a typical entry.

    price    what y counts in the bound
    double   whether derivatives are computed in float64; they need no more than float32 until that fails
    """

    price = 0.5

    def __init__(self, task: MaxMargin, unit: float) -> None:
        self.task, self.unit, self.double = task, unit, False
        self.pairs = list(zip(*task.pairs, strict=True))
        self._signed: dict[bool, list[NDArray[Any]]] = {}

    def patterns(self) -> list[NDArray[Any]]:
        """ζ^r P^r for each pair."""
        if self.double not in self._signed:
            dtype = np.float64 if self.double else np.float32
            labels = self.task.labels / self.unit
            parts = [(self.task.patterns * column[:, None, None]).astype(dtype) for column in labels.T]
            self._signed = {self.double: parts}
        return self._signed[self.double]

    def offsets(self, weights: Array) -> Array:
        """A y to begin with, for which F is positive definite."""
        S = dual_matrix(self.task, weights.reshape(self.task.labels.shape)) / self.unit
        return np.full(self.task.n, 1.05 * max(float(np.linalg.eigvalsh(S)[-1]), 1e-6))

    def enter(self, weights: Array, y: Array) -> bool:
        """Go to (λ, y), if F is positive definite there."""
        S = dual_matrix(self.task, weights.reshape(self.task.labels.shape)) / self.unit
        try:
            self.C = np.linalg.inv(np.linalg.cholesky(np.diag(np.repeat(y, self.task.m)) - S))
        except np.linalg.LinAlgError:
            return False
        return True

    def derivatives(self) -> tuple[Array, Array]:
        """With F = LLᵀ, a direction D of F becomes B = L⁻¹ D L⁻ᵀ; the Hessian is the Gram matrix of the B's: R + n of
        them, each of (n m)² numbers."""
        n, m, R, patterns = self.task.n, self.task.m, self.task.labels.size, self.patterns()
        C = self.C.astype(patterns[0].dtype)
        row = [slice(i * m, (i + 1) * m) for i in range(n)]
        B = np.empty((R + n, n * m, n * m), dtype=C.dtype)
        for k, (i, j) in enumerate(self.pairs):
            half = (C[:, row[i]] @ patterns[k]) @ C[:, row[j]].T
            np.add(half, half.swapaxes(1, 2), out=B[k : R : len(self.pairs)])
        for i in range(n):
            B[R + i] = -C[:, row[i]] @ C[:, row[i]].T
        flat = B.reshape(R + n, -1)
        return (flat @ flat.T).astype(np.float64), np.einsum("akk->a", B).astype(np.float64)


class _PairBarrier(_Barrier):
    """For n = 2, where y_1 = y_2 = y: −ln det F = −Σ ln(y² − σ²) over the singular values σ of M, and F's eigenvalues
    are y ∓ σ. All is done in M's singular bases: an eighth of the work."""

    price = 1.0

    def offsets(self, weights: Array) -> Array:
        return np.array([1.05 * max(float(np.linalg.svd(self._mixture(weights), compute_uv=False)[0]), 1e-6)])

    def _mixture(self, weights: Array) -> Array:
        return self.task.mixture(weights.reshape(self.task.labels.shape))[0] / self.unit

    def enter(self, weights: Array, y: Array) -> bool:
        self.left, self.sigma, right = np.linalg.svd(self._mixture(weights))
        self.right, self.y = right.T, float(y[0])
        return bool(self.y > self.sigma[0])

    def derivatives(self) -> tuple[Array, Array]:
        """In the bases, D = ζUᵀPV has the symmetric part A and the antisymmetric part K; a pair of D's contributes
        Σ αAA' + βKK' to the Hessian."""
        (patterns,) = self.patterns()
        p, dtype = len(patterns), patterns.dtype
        low, high = self.y - self.sigma, self.y + self.sigma
        alpha = 1 / np.outer(low, low) + 1 / np.outer(high, high)
        beta = 1 / np.outer(low, high) + 1 / np.outer(high, low)
        D = np.matmul(self.left.T.astype(dtype), patterns) @ self.right.astype(dtype)
        # Σ αAA' + βKK' = Σ D (γD' + δD'ᵀ)
        partner = D * (0.5 * (alpha + beta)).astype(dtype)
        partner += D.swapaxes(1, 2) * (0.5 * (alpha - beta)).astype(dtype)
        diagonal = np.einsum("akk->ak", D).astype(np.float64)
        H = np.empty((p + 1, p + 1))
        gram = (D.reshape(p, -1) @ partner.reshape(p, -1).T).astype(np.float64)
        H[:p, :p] = 0.5 * (gram + gram.T)
        H[p, :p] = H[:p, p] = -diagonal @ (1 / low**2 - 1 / high**2)
        H[p, p] = float((1 / low**2 + 1 / high**2).sum())
        gradient = np.append(diagonal @ (1 / low - 1 / high), -float((1 / low + 1 / high).sum()))
        return H, gradient
