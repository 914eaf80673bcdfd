"""Primal-dual interior-point method for the relaxations of several nodes at once.

`qcqpbench.catalog.certificate.leaf` defines the dual variables x = (y, λ, μ) and the primal matrices X_k. A step solves
the equations of the relaxation together with F_k X_k = τ1, λ_r p_r = τ and μ_c q_c = τ for a small τ, linearized as by
Helmberg, Rendl, Vanderbei and Wolkowicz (1996) and by Kojima, Shindoh and Hara (1997), where p and q are the slacks of
the stabilities and of the cuts. Every dual iterate is feasible, and so proves a bound. The primal point of a full step
satisfies all equations. If its matrices and slacks are positive, it is feasible, and its κ is a lower bound on the
value of the relaxation.

One step of a small node takes less time than Python needs for its calls, hence the batches: the first axis of all
arrays counts the nodes. Nodes with fewer cuts than others have empty ones, whose vectors are zero.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from qcqpbench.catalog.certificate.leaf import Cut, Groups

from ._bnb_relaxation import Relaxation

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# τ is this share of the mean complementarity: in the first step, and after steps whose shorter length is more than 0.8,
# more than 0.5, or less.
_FIRST_SHARE, _SHARES = 0.3, ((0.8, 0.2), (0.5, 0.3), (0.0, 0.5))
# Factor of a length that leaves the cone, distance kept from the boundary, and the least length of a step.
_BACKTRACK, _BOUNDARY_SHARE, MIN_LENGTH = 0.75, 0.95, 1e-8
# Start: smallest eigenvalue of F, relative to its norm, share of equal weights in λ, and the sum of the multipliers of
# new cuts, relative to that eigenvalue.
_FIRST_EIGENVALUE, _EQUAL_SHARE, _FIRST_CUT_WEIGHT = 0.05, 0.1, 0.8


class Node(NamedTuple):
    """Groups and cuts of a node, and y, λ and μ of its parent, if any; μ is NaN for cuts that the parent lacks."""

    groups: Groups
    cuts: tuple[Cut, ...]
    start: tuple[Array, Array, Array] | None


class Step(NamedTuple):
    """Changes of x and F, the primal point (X, slacks) of the full step, its κ, and whether it is feasible."""

    change: Array
    dual_changes: Array
    matrices: Array
    slacks: Array
    kappa: Array
    is_feasible: Mask
    is_solved: Mask

    def where(self, mask: Mask) -> "Step":
        """Return the steps of some of the nodes."""
        return self if mask.all() else Step(*[cast(Any, each)[mask] for each in self])


class State(NamedTuple):
    """Points of the nodes that are not decided.

    `numbers` are the numbers of the nodes, `first` and `second` the vectors u and v of the cuts uᵀXv ≥ 0, shape
    (b, K, cuts, d), which are zero but for the matrix of the cut. `is_real` is false for the multipliers of empty cuts.
    `inverses` are those of F, and `shares` those of τ in the next step. `is_above` tells whether the value of a node is
    known to be above the target, and `kept` has the matrices to return where `has_kept` is true.
    """

    numbers: NDArray[np.intp]
    first: Array
    second: Array
    is_real: Mask
    x: Array
    F: Array
    inverses: Array
    matrices: Array
    slacks: Array
    shares: Array
    is_above: Mask
    has_kept: Mask
    kept: Array

    def where(self, mask: Mask) -> "State":
        """Return the points of some of the nodes."""
        return self if mask.all() else State(*[cast(Any, each)[mask] for each in self])


class InteriorPoint:
    """Interior-point method for the relaxations of nodes of a task.

    Parameters
    ----------
    relaxation
        The relaxation without cuts.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self.relaxation = relaxation
        self.free = relaxation.offset_count
        # Number of entries of y and λ.
        self.known = relaxation.offset_count + relaxation.stability_count
        self.identity = np.eye(relaxation.order)
        self.upper = np.triu(np.ones((relaxation.order, relaxation.order), dtype=bool))

    def start(self, nodes: Sequence[Node]) -> State:
        """Return dual points x with F > 0, close to those of the parents, and primal points close to the centre."""
        batch = len(nodes)
        first, second = self._cut_vectors(nodes)
        x, is_real, is_new = self._parent_points(nodes)
        F = self._dual_matrices(x, first, second)
        norms = np.abs(F).sum(axis=3).max(axis=(1, 2))
        norms[norms == 0] = 1.0
        x[:, : self.free] += (_FIRST_EIGENVALUE * norms - np.linalg.eigvalsh(F)[:, :, 0].min(axis=1))[:, None]
        # A product of unit vectors changes no eigenvalue by more than its multiplier.
        weights = _FIRST_CUT_WEIGHT * _FIRST_EIGENVALUE * norms / np.maximum(is_new.sum(axis=1), 1)
        x[:, self.known :] += weights[:, None] * is_new
        x[:, self.free :][~is_real] = 1.0
        F = self._dual_matrices(x, first, second)
        inverses = self._inverses(_factors(F)[0])
        tau = self.relaxation.trace / np.einsum("bkaa->b", inverses)
        matrices, slacks = _column(tau) * inverses, tau[:, None] / x[:, self.free :]
        shares, is_above, has_kept = np.full(batch, _FIRST_SHARE), *np.zeros((2, batch), dtype=bool)
        points = (x, F, inverses, matrices, slacks)
        return State(np.arange(batch), first, second, is_real, *points, shares, is_above, has_kept, np.empty_like(F))

    def _cut_vectors(self, nodes: Sequence[Node]) -> Array:
        """Return the vectors u and v of the cuts, shape (2, b, K, cuts, d)."""
        K, d = self.relaxation.matrix_count, self.relaxation.order
        vectors = np.zeros((2, len(nodes), K, max(len(node.cuts) for node in nodes), d))
        for b, (groups, cuts, _) in enumerate(nodes):
            for c, (k, group, i, j) in enumerate(cuts):
                vectors[:, b, k, c] = groups[k][group][[i, j]]
        return vectors

    def _parent_points(self, nodes: Sequence[Node]) -> tuple[Array, Mask, Mask]:
        """Return x of the parents, zero for new cuts, which entries of λ and μ are real, and which cuts are new."""
        R, batch, most = self.relaxation.stability_count, len(nodes), max(len(node.cuts) for node in nodes)
        x = np.zeros((batch, self.known + most))
        x[:, self.free : self.known] = 1.0 / R
        is_real = np.ones((batch, R + most), dtype=bool)
        for b, (_, cuts, start) in enumerate(nodes):
            is_real[b, R + len(cuts) :] = False
            if start is None:
                x[b, self.known : self.known + len(cuts)] = np.nan
            else:
                y, weights, mu = start
                x[b, : self.free] = y
                x[b, self.free : self.known] = _EQUAL_SHARE / R + (1.0 - _EQUAL_SHARE) * weights / weights.sum()
                x[b, self.known : self.known + len(cuts)] = mu
        is_new = np.isnan(x[:, self.known :])
        x[:, self.known :][is_new] = 0.0
        return x, is_real, is_new

    def _dual_matrices(self, x: Array, first: Array, second: Array) -> Array:
        """Return F(x), which is linear in x, shape (b, K, d, d)."""
        F = self.relaxation.dual_matrices(x[:, : self.free], x[:, self.free : self.known])
        if first.shape[2]:
            products = (first * (0.5 * x[:, None, self.known :, None])).swapaxes(2, 3) @ second
            F -= products
            F -= products.swapaxes(2, 3)
        return F

    def _inverses(self, factors: Array) -> Array:
        """Return the inverses of matrices from their factors, which are overwritten."""
        for factor in factors.reshape(-1, *factors.shape[2:]):
            lapack.dpotri(factor.T, lower=1, overwrite_c=1)
        return np.where(self.upper, factors, factors.swapaxes(2, 3))

    def proves(self, state: State, target: float) -> Mask:
        """Return whether a dual point, with F shifted by a multiple of 1, proves that the value is below `target`."""
        excess = (state.x[:, : self.free].sum(axis=1) - target) / self.relaxation.trace
        is_below: Mask = excess <= 0
        # If F − ε1 > 0, all diagonal entries of F⁻¹ are less than 1/ε.
        largest = np.einsum("bkaa->bka", state.inverses).max(axis=(1, 2))
        (candidates,) = np.nonzero(~is_below & (excess * largest < 1))
        if len(candidates):
            shifted = state.F[candidates] - _column(excess[candidates]) * self.identity
            is_below[candidates] = _factors(shifted)[1]
        return is_below

    def step(self, state: State) -> Step:
        """Return the step towards τ."""
        positive, slacks = state.x[:, self.free :], state.slacks
        products = np.einsum("bkac,bkac->b", state.F, state.matrices)
        products += np.einsum("br,br,br->b", positive, slacks, state.is_real)
        counts = state.F.shape[1] * self.relaxation.order + state.is_real.sum(axis=1)
        tau = (state.shares * products / counts)[:, None]
        change, kappa, is_solved = self._solve_equations(state, tau)
        dual_changes = self._dual_matrices(change, state.first, state.second)
        half = 0.5 * (state.matrices @ dual_changes @ state.inverses)
        matrices = tau[:, :, None, None] * state.inverses
        matrices -= half
        matrices -= half.swapaxes(2, 3)
        new_slacks = (tau - slacks * change[:, self.free :]) / positive
        new_slacks[~state.is_real] = 1.0
        is_feasible = is_solved & (new_slacks.min(axis=1) > 0)
        is_feasible[is_feasible] = _factors(matrices[is_feasible])[1]
        return Step(change, dual_changes, matrices, new_slacks, kappa, is_feasible, is_solved)

    def _solve_equations(self, state: State, tau: Array) -> tuple[Array, Array, Mask]:
        """Return the change of x and κ of the step towards τ, and whether the equations could be solved."""
        free, positive = self.free, state.x[:, self.free :]
        H, right = self._equations(state)
        size = right.shape[1]
        right *= tau
        right[:, :free] -= 1.0
        right[:, free:] += tau / positive
        # With these units for λ and μ, their barrier adds 1 to the diagonal.
        units = np.ones_like(right)
        np.sqrt(positive / state.slacks, out=units[:, free:])
        H *= units[:, None]
        H *= units[:, :, None]
        H.reshape(len(H), -1)[:, free * (size + 1) :: size + 1] += 1.0
        columns = np.zeros((len(H), 2, size))
        np.multiply(right, units, out=columns[:, 0])
        columns[:, 1, free : self.known] = sums = units[:, free : self.known]
        pairs = zip(H, columns, strict=True)
        codes = [lapack.dposv(A.T, b.T, lower=1, overwrite_a=1, overwrite_b=1)[2] for A, b in pairs]
        is_solved = (np.array(codes) == 0) & np.isfinite(columns).all(axis=(1, 2))
        columns[~is_solved] = 1.0
        # κ is the multiplier of Σλ = 1.
        along = np.einsum("bir,br->bi", columns[:, :, free : self.known], sums)
        kappa = -along[:, 0] / along[:, 1]
        change = units * (columns[:, 0] + kappa[:, None] * columns[:, 1])
        change[:, free:][~state.is_real] = 0.0
        return change, kappa, is_solved

    def _equations(self, state: State) -> tuple[Array, Array]:
        """Return ⟨E_i, X E_j Z⟩ and ⟨E_i, Z⟩, summed over the matrices, for the derivatives E_i of F by x."""
        u, v, X, Z = state.first, state.second, state.matrices, state.inverses
        known, cuts = self.known, u.shape[2]
        if not cuts:
            return self.relaxation.equations(X, Z)
        H, traces = np.empty((len(u), known + cuts, known + cuts)), np.empty((len(u), known + cuts))
        H[:, :known, :known], traces[:, :known] = self.relaxation.equations(X, Z)
        uX, vX, uZ, vZ = u @ X, v @ X, u @ Z, v @ Z
        mixed = self.relaxation.along_products(((uX, vZ), (vX, uZ)))
        mixed *= -0.5
        H[:, known:, :known], H[:, :known, known:] = mixed, mixed.swapaxes(1, 2)
        # The cuts −sym(uvᵀ) with each other, and alone.
        uXv, uZv = _pairs(uX, v), _pairs(uZ, v)
        among = _pairs(uX, u) * _pairs(vZ, v)
        among += _pairs(vX, v) * _pairs(uZ, u)
        among += uXv * uZv.swapaxes(1, 2)
        among += uXv.swapaxes(1, 2) * uZv
        np.multiply(0.25, among, out=H[:, known:, known:])
        traces[:, known:] = -np.einsum("bcc->bc", uZv)
        return H, traces

    def advance(self, state: State, step: Step) -> tuple[State, Array]:
        """Move both points along `step`, as far as they stay feasible; return the smaller of the two lengths."""
        lengths = self._advance_primal(state, step)
        state, dual_lengths = self._advance_dual(state, step)
        lengths = np.minimum(lengths, dual_lengths)
        for least, share in reversed(_SHARES):
            state.shares[lengths > least] = share
        return state, lengths

    def _advance_dual(self, state: State, step: Step) -> tuple[State, Array]:
        """Move the dual points; return the lengths, which are 0 for points that do not move."""
        ratios = (-step.change[:, self.free :] / state.x[:, self.free :]).max(axis=1, initial=1e-300)
        lengths = np.minimum(1.0, _BOUNDARY_SHARE / ratios)
        F, factors = np.empty_like(state.F), np.empty_like(state.F)
        (remaining,) = np.nonzero(lengths >= MIN_LENGTH)
        for is_final in (False, True):
            while len(remaining):
                F[remaining] = state.F[remaining] + _column(lengths[remaining]) * step.dual_changes[remaining]
                factors[remaining], is_positive = _factors(F[remaining])
                remaining = remaining[~is_positive]
                lengths[remaining] *= 0.0 if is_final else _BACKTRACK
                remaining = remaining[lengths[remaining] >= MIN_LENGTH]
            if not is_final:
                (remaining,) = np.nonzero((lengths < 1.0) & (lengths >= MIN_LENGTH))
                lengths[remaining] *= _BOUNDARY_SHARE
        moved = lengths >= MIN_LENGTH
        lengths[~moved] = 0.0
        if moved.all():
            state = state._replace(F=F, inverses=self._inverses(factors))
        else:
            state.F[moved], state.inverses[moved] = F[moved], self._inverses(factors[moved])
        np.add(state.x, lengths[:, None] * step.change, out=state.x)
        return state, lengths

    def _advance_primal(self, state: State, step: Step) -> Array:
        """Move the primal points; return the lengths, which are 1 for points of full steps."""
        full = step.is_feasible
        lengths = np.ones(len(full))
        state.matrices[full], state.slacks[full] = step.matrices[full], step.slacks[full]
        (places,) = np.nonzero(~full)
        if not len(places):
            return lengths
        X, slacks = state.matrices[places], state.slacks[places]
        dX, change = step.matrices[places] - X, step.slacks[places] - slacks
        length = np.minimum(1.0, 1.0 / (-change / slacks).max(axis=1, initial=1e-300))
        remaining = np.arange(len(places))
        while len(remaining):
            is_positive = _factors(X[remaining] + _column(length[remaining]) * dX[remaining])[1]
            remaining = remaining[~is_positive]
            length[remaining] *= _BACKTRACK
            remaining = remaining[length[remaining] >= MIN_LENGTH]
        length[length < MIN_LENGTH] = 0.0
        length *= _BOUNDARY_SHARE
        state.matrices[places] = X + _column(length) * dX
        state.slacks[places] = slacks + length[:, None] * change
        lengths[places] = length
        return lengths


def _pairs(left: Array, right: Array) -> Array:
    """Return the inner products of all pairs of rows, summed over the matrices, shape (b, cuts, cuts)."""
    products: Array = left @ right.swapaxes(2, 3)
    return products[:, 0] if products.shape[1] == 1 else products.sum(axis=1)


def _column(numbers: Array) -> Array:
    """Return one number for each node in a shape that multiplies its matrices."""
    return numbers[:, None, None, None]


def _factors(matrices: Array) -> tuple[Array, Mask]:
    """Return Cholesky factors, in upper triangles, and whether all matrices of a node are positive definite."""
    factors = np.array(matrices, order="C")
    flat = factors.reshape(-1, *factors.shape[2:])
    codes = [lapack.dpotrf(A.T, lower=1, clean=0, overwrite_a=1)[1] for A in flat]
    is_positive: Mask = (np.array(codes) == 0).reshape(factors.shape[:2]).all(axis=1)
    return factors, is_positive
