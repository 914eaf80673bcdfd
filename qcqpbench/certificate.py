"""Certified upper bounds on the margin of one task, by weak duality.

For multipliers λ ≥ 0 of the stabilities that sum to one, and any y ∈ ℝⁿ,

    κ(W) ≤ Σ λ^r_ij ζ^r_ij w_iᵀP^r w_j = ½ wᵀ S(λ) w ≤ ½ Σ_i y_i + ½ n · max(0, λ_max(S(λ) − Diag(y)))

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
_CENTRING, _TO_BOUNDARY, _STEPS = 0.2, 0.9, 100


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
    tol: float = 1e-3,
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
    if multipliers is not None:
        given = np.asarray(multipliers, dtype=np.float64)
        require(given.shape == uniform.shape, f"multipliers have shape {given.shape}, needed: {uniform.shape}")
        if np.isfinite(given).all() and given.sum() > 0 and given.min() >= 0:
            best.see(given / given.sum())
    margin = None if point is None else float(task.margin(unit_rows(point)))
    iterations = 0
    if np.isfinite(best.value) and best.scale > 0:
        for weights, offsets, duality_gap in _central_path(task, best):
            iterations += 1
            best.see(weights, offsets)
            closed = margin is not None and best.value - margin <= 0.1 * PROVED * abs(best.value)
            if closed or duality_gap <= tol * abs(best.value) or time.perf_counter() - begin >= time_limit:
                break
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
        if offsets is None:
            offsets = np.zeros(task.n)
        top = float(np.linalg.eigvalsh(S - np.diag(np.repeat(offsets, task.m)))[-1])
        allowance = _ROUNDING * len(S) * (norm + float(np.abs(offsets).max()))
        # A weight that misses 1 by rounding scales the whole of λ.
        excess = 1.0 + abs(float(weights.sum()) - 1.0) + _ROUNDING
        above = top + allowance if not offsets.any() else max(0.0, top + allowance)
        value = 0.5 * float(offsets.sum()) + 0.5 * task.n * above
        value *= excess if value > 0 else 1.0 / excess
        if value < self.value:
            self.value, self.weights = value, weights
            self.offsets = offsets if offsets.any() else np.full(task.n, top)


def _central_path(task: MaxMargin, start: _Bound) -> Iterator[tuple[Array, Array, float]]:
    """Newton's method on ½ Σy − ν [ln det(Diag(y) − S(λ)) + Σ ln λ] over Σλ = 1, while ν falls; yields λ, y and the
    duality gap of each step."""
    shape, size, unit = task.labels.shape, task.n * task.m, start.scale
    R = task.labels.size
    signed = [task.patterns * (labels / unit)[:, None, None] for labels in task.labels.T]
    # Directions need no more than float32 until it fails; the bound is computed in float64 anyway.
    patterns = [part.astype(np.float32) for part in signed]
    weights = 0.9 * start.weights.ravel() + 0.1 / R
    top = float(np.linalg.eigvalsh(dual_matrix(task, weights.reshape(shape)))[-1]) / unit
    y = np.full(task.n, 1.05 * max(top, 1e-6))
    nu = 0.05 * float(y.sum()) / (size + R)
    for _ in range(_STEPS):
        F = np.diag(np.repeat(y, task.m)) - dual_matrix(task, weights.reshape(shape)) / unit
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                step, decrement, fall = _newton(task, patterns, F, weights, nu)
        except np.linalg.LinAlgError:
            if patterns is signed:
                # Out of digits: what has been found stands.
                return
            patterns = signed
            continue
        length = min(1.0, _TO_BOUNDARY / max(fall, float((-step[:R] / weights).max()), 1e-300))
        weights = weights + length * step[:R]
        weights /= weights.sum()
        y = y + length * step[R:]
        if not (np.isfinite(weights).all() and np.isfinite(y).all() and weights.min() >= 0):
            return
        yield weights.reshape(shape), unit * y, unit * nu * (size + R)
        if decrement < 1.0 and length > 0.5:
            nu *= _CENTRING


def _newton(
    task: MaxMargin, patterns: list[NDArray[Any]], F: Array, weights: Array, nu: float
) -> tuple[Array, float, float]:
    """The step in (λ, y), its squared decrement, and how fast F falls along it relative to itself.

    With F = LLᵀ, a direction D of F becomes B = L⁻¹ D L⁻ᵀ, and the Hessian is the Gram matrix of the B's: R + n of
    them, each of (n m)² numbers.
    """
    n, m, R = task.n, task.m, len(weights)
    size, pairs = n * m, len(patterns)
    dtype = patterns[0].dtype
    row = [slice(i * m, (i + 1) * m) for i in range(n)]
    C = np.linalg.inv(np.linalg.cholesky(F)).astype(dtype)
    B = np.empty((R + n, size, size), dtype=dtype)
    for k, (i, j) in enumerate(zip(*task.pairs, strict=True)):
        half = (C[:, row[i]] @ patterns[k]) @ C[:, row[j]].T
        np.add(half, half.swapaxes(1, 2), out=B[k:R:pairs])
    for i in range(n):
        B[R + i] = -C[:, row[i]] @ C[:, row[i]].T
    flat = B.reshape(R + n, -1)
    H = (flat @ flat.T).astype(np.float64)
    H[np.arange(R), np.arange(R)] += 1.0 / weights**2
    gradient = np.einsum("akk->a", B).astype(np.float64)
    gradient[:R] -= 1.0 / weights
    gradient[R:] += 0.5 / nu
    ones = np.concatenate([np.ones(R), np.zeros(n)])
    solved = np.linalg.solve(H, np.stack([gradient, ones], axis=1))
    give = float(ones @ solved[:, 1])
    if not (give > 0 and np.isfinite(H).all()):
        raise np.linalg.LinAlgError
    step = -solved[:, 0] + solved[:, 1] * (ones @ solved[:, 0]) / give
    fall = float(np.linalg.eigvalsh((step.astype(dtype) @ flat).reshape(size, size))[-1])
    return step, float(-gradient @ step), fall
