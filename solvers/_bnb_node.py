"""Bound of one node of branch and bound, by a primal-dual interior-point method on its relaxation.

`qcqpbench.catalog.certificate.leaf` defines the dual variables x = (y, λ, μ) and the primal matrices X_k. A step solves
the equations of the relaxation together with F_k X_k = τ1, λ_r p_r = τ and μ_c q_c = τ for a small τ, linearized as by
Helmberg, Rendl, Vanderbei and Wolkowicz (1996) and by Kojima, Shindoh and Hara (1997), where p and q are the slacks of
the stabilities and of the cuts. Every dual iterate is feasible, and so proves a bound. The primal point of a full step
satisfies all equations. If its matrices and slacks are positive, it is feasible, and its κ is a lower bound on the
value of the relaxation. The method stops as soon as either bound reaches the target.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from qcqpbench.catalog.certificate.leaf import Cut, Groups, cut_vectors

from ._bnb_relaxation import Relaxation

Array = NDArray[np.float64]

_MAX_STEPS = 80
# τ is this share of the mean complementarity: in the first step, and after steps whose shorter length is more than 0.8,
# more than 0.5, or less.
_FIRST_SHARE, _SHARES = 0.3, ((0.8, 0.2), (0.5, 0.3), (0.0, 0.5))
# After a step whose κ is above the target but whose primal point is infeasible, a step towards the centre makes the
# next one feasible.
_CENTRING_SHARE = 0.8
# Factor of a length that leaves the cone, distance kept from the boundary, and the length at which the method gives up.
_BACKTRACK, _BOUNDARY_SHARE, _MIN_LENGTH = 0.75, 0.95, 1e-8
# Start: smallest eigenvalue of F, relative to its norm, share of equal weights in λ, and the sum of the multipliers of
# new cuts, relative to that eigenvalue.
_FIRST_EIGENVALUE, _EQUAL_SHARE, _FIRST_CUT_WEIGHT = 0.05, 0.1, 0.8


class Verdict(Enum):
    """Result of the comparison of a relaxation with the target."""

    BELOW = auto()
    ABOVE = auto()
    UNDECIDED = auto()


class NodeResult(NamedTuple):
    """Dual point (y, λ, μ), in multiples of the unit of the relaxation, and primal matrices X_k of a node."""

    verdict: Verdict
    offsets: Array
    weights: Array
    cut_multipliers: Array
    matrices: list[Array]
    steps: int


class NodeCuts:
    """Vectors u and v of the cuts uᵀXv ≥ 0 of a node, by matrix. The cuts must be sorted by matrix."""

    def __init__(self, relaxation: Relaxation, groups: Groups, cuts: tuple[Cut, ...]) -> None:
        self.count, d = len(cuts), relaxation.order
        self.vectors: list[tuple[Array, Array]] = []
        self.forms: list[Array] = []
        for k in range(relaxation.matrix_count):
            u, v = cut_vectors(groups, cuts, k, d)
            halves = 0.5 * (u[:, :, None] * v[:, None, :])
            self.vectors.append((u, v))
            self.forms.append((halves + halves.swapaxes(1, 2)).reshape(-1, d * d))


class _Step(NamedTuple):
    """Changes of x and F_k, the primal point (X_k, slacks) of the full step, its κ, and whether it is feasible."""

    change: Array
    dual_changes: list[Array]
    matrices: list[Array]
    slacks: Array
    kappa: float
    is_feasible: bool


class NodeSolver:
    """Interior-point method for the relaxations of all nodes of a task.

    Parameters
    ----------
    relaxation
        The relaxation without cuts.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        self.relaxation = relaxation
        # Number of entries of y and λ.
        self.known = relaxation.offset_count + relaxation.stability_count

    def solve(
        self,
        cuts: NodeCuts,
        target: float,
        looseness: float,
        start: tuple[Array, Array, Array] | None,
        has_time: Callable[[], bool],
    ) -> NodeResult:
        """Compare the value of the relaxation with `target`, in multiples of the unit.

        Parameters
        ----------
        cuts
            The cuts.
        target
            The value to compare with.
        looseness
            If the value is above the target, the method stops when the dual value exceeds it by at most `looseness`
            times its distance from the target. The matrices of the result are the first that prove that it is above:
            far from the optimum of the relaxation, they lead to better branchings and smaller trees.
        start
            y, λ and μ of the parent; μ of a cut that the parent does not have is NaN.
        has_time
            Function that returns whether there is time for one more step.
        """
        state = _State(self, cuts, _start(self, cuts, start))
        share, steps, verdict, feasible = _FIRST_SHARE, 0, Verdict.UNDECIDED, None
        while steps < _MAX_STEPS and has_time():
            if state.proves(target):
                verdict = Verdict.BELOW
                break
            steps += 1
            step = state.step(share * state.complementarity())
            if step is None:
                break
            if step.is_feasible:
                if verdict is Verdict.UNDECIDED:
                    feasible = step.matrices
                if step.kappa > target:
                    verdict = Verdict.ABOVE
                    if state.dual_value() - step.kappa <= looseness * (step.kappa - target):
                        break
            length = state.advance(step)
            if length < _MIN_LENGTH:
                break
            share = next(share for least, share in _SHARES if length > least)
            if step.kappa > target and verdict is Verdict.UNDECIDED:
                share = max(share, _CENTRING_SHARE)
        matrices = state.matrices if feasible is None else feasible
        y, weights, mu = np.split(state.x, [self.relaxation.offset_count, self.known])
        return NodeResult(verdict, y, weights, mu, matrices, steps)

    def dual_matrices(self, x: Array, cuts: NodeCuts) -> list[Array]:
        """Return F_k(x), which is linear in x, for each matrix k."""
        d, begin, offsets = self.relaxation.order, self.known, self.relaxation.offset_count
        matrices = self.relaxation.dual_matrices(x[:offsets], x[offsets:begin])
        for k, forms in enumerate(cuts.forms):
            if len(forms):
                matrices[k] -= (x[begin : begin + len(forms)] @ forms).reshape(d, d)
                begin += len(forms)
        return matrices


def _start(solver: NodeSolver, cuts: NodeCuts, parent: tuple[Array, Array, Array] | None) -> Array:
    """Return a dual point x with F > 0, close to that of the parent."""
    relaxation = solver.relaxation
    ny, R = relaxation.offset_count, relaxation.stability_count
    x = np.zeros(ny + R + cuts.count)
    new = np.ones(cuts.count, dtype=bool)
    x[ny : ny + R] = 1.0 / R
    if parent is not None:
        y, weights, mu = parent
        new = np.isnan(mu)
        x[:ny] = y
        x[ny : ny + R] = _EQUAL_SHARE / R + (1.0 - _EQUAL_SHARE) * weights / weights.sum()
        x[ny + R :] = np.where(new, 0.0, mu)
    matrices = solver.dual_matrices(x, cuts)
    norm = max(float(np.abs(F).sum(axis=1).max()) for F in matrices) or 1.0
    smallest = min(float(np.linalg.eigvalsh(F)[0]) for F in matrices)
    x[:ny] += _FIRST_EIGENVALUE * norm - smallest
    # A product of unit vectors changes no eigenvalue by more than its multiplier.
    x[ny + R :][new] = _FIRST_CUT_WEIGHT * _FIRST_EIGENVALUE * norm / max(int(new.sum()), 1)
    return x


class _State:
    """Dual point x and primal point (X_k, slacks) of the interior-point method."""

    def __init__(self, solver: NodeSolver, cuts: NodeCuts, x: Array) -> None:
        self.solver, self.cuts, self.x = solver, cuts, x
        self.relaxation = solver.relaxation
        self.free = self.relaxation.offset_count
        self.F = solver.dual_matrices(x, cuts)
        self.inverses = [_inverse(lapack.dpotrf(F, lower=1, clean=1)[0]) for F in self.F]
        tau = self.relaxation.trace / sum(float(Z.trace()) for Z in self.inverses)
        self.matrices = [tau * Z for Z in self.inverses]
        self.slacks = tau / x[self.free :]

    def dual_value(self) -> float:
        """Return the upper bound Σy."""
        return float(self.x[: self.free].sum())

    def proves(self, target: float) -> bool:
        """Return whether the dual point, with F shifted by a multiple of 1, proves that the value is below `target`."""
        excess = (self.dual_value() - target) / self.relaxation.trace
        if excess <= 0:
            return True
        # If F − ε1 > 0, all diagonal entries of F⁻¹ are less than 1/ε.
        if excess * max(float(Z.diagonal().max()) for Z in self.inverses) >= 1:
            return False
        shift = excess * np.eye(self.relaxation.order)
        return _are_positive(F - shift for F in self.F)

    def complementarity(self) -> float:
        """Return the mean of the products that a step makes equal to τ."""
        total = sum(float(np.vdot(F, X)) for F, X in zip(self.F, self.matrices, strict=True))
        total += float(self.x[self.free :] @ self.slacks)
        return total / (len(self.F) * self.relaxation.order + len(self.slacks))

    def step(self, tau: float) -> _Step | None:
        """Return the step towards τ, None if its equations cannot be solved."""
        free, positive, slacks = self.free, self.x[self.free :], self.slacks
        H, right = self._equations()
        right *= tau
        right[:free] -= 1.0
        right[free:] += tau / positive
        # With these units for λ and μ, their barrier adds 1 to the diagonal.
        units = np.ones(len(right))
        np.sqrt(positive / slacks, out=units[free:])
        H *= units
        H *= units[:, None]
        H.ravel()[free * (len(right) + 1) :: len(right) + 1] += 1.0
        columns = np.zeros((len(right), 2), order="F")
        columns[:, 0] = right * units
        stabilities = slice(free, free + self.relaxation.stability_count)
        columns[stabilities, 1] = sums = units[stabilities]
        _, solved, info = lapack.dposv(H.T, columns, lower=1, overwrite_a=1, overwrite_b=1)
        if info != 0 or not np.isfinite(solved).all():
            return None
        # κ is the multiplier of Σλ = 1.
        kappa = -float(sums @ solved[stabilities, 0]) / float(sums @ solved[stabilities, 1])
        change = units * (solved[:, 0] + kappa * solved[:, 1])
        dual_changes = self.solver.dual_matrices(change, self.cuts)
        matrices = []
        for X, dF, Z in zip(self.matrices, dual_changes, self.inverses, strict=True):
            product = X @ dF @ Z
            matrices.append(tau * Z - 0.5 * (product + product.T))
        new_slacks = (tau - slacks * change[free:]) / positive
        is_feasible = bool(new_slacks.min() > 0) and _are_positive(matrices)
        return _Step(change, dual_changes, matrices, new_slacks, kappa, is_feasible)

    def _equations(self) -> tuple[Array, Array]:
        """Return ⟨E_i, X E_j Z⟩ and ⟨E_i, Z⟩, summed over the matrices, for the derivatives E_i of F by x."""
        size, known = len(self.x), self.solver.known
        H, traces = np.empty((size, size)), np.empty(size)
        H[:known, :known], traces[:known] = self.relaxation.equations(self.matrices, self.inverses)
        H[known:, known:] = 0.0
        begin = known
        for k, (X, Z) in enumerate(zip(self.matrices, self.inverses, strict=True)):
            u, v = self.cuts.vectors[k]
            if len(u):
                place = slice(begin, begin + len(u))
                begin += len(u)
                uX, vX, uZ, vZ = u @ X, v @ X, u @ Z, v @ Z
                mixed = self.relaxation.along_products(k, ((uX, vZ), (vX, uZ)))
                mixed *= -0.5
                H[:known, place], H[place, :known] = mixed, mixed.T
                H[place, place], traces[place] = _among_cuts(u, v, (uX, vX), (uZ, vZ))
        return H, traces

    def advance(self, step: _Step) -> float:
        """Move both points along `step`, as far as they stay feasible; return the smaller of the two lengths."""
        primal = self._advance_primal(step)
        ratio = float((-step.change[self.free :] / self.x[self.free :]).max())
        length = min(1.0, _BOUNDARY_SHARE / max(ratio, 1e-300))
        while (moved := self._moved(step, length)) is None:
            length *= _BACKTRACK
            if length < _MIN_LENGTH:
                return 0.0
        if length < 1:
            length *= _BOUNDARY_SHARE
            moved = self._moved(step, length)
            if moved is None:
                return 0.0
        self.x = self.x + length * step.change
        self.F, factors = moved
        self.inverses = [_inverse(factor) for factor in factors]
        return min(primal, length)

    def _moved(self, step: _Step, length: float) -> tuple[list[Array], list[Array]] | None:
        """Return F after a step of a length, with its Cholesky factors; None if it is not positive definite."""
        matrices = [F + length * dF for F, dF in zip(self.F, step.dual_changes, strict=True)]
        factors = [lapack.dpotrf(F, lower=1, clean=1) for F in matrices]
        if any(info != 0 for _, info in factors):
            return None
        return matrices, [factor for factor, _ in factors]

    def _advance_primal(self, step: _Step) -> float:
        """Move the primal point, as `advance` does; return the length."""
        if step.is_feasible:
            self.matrices, self.slacks = step.matrices, step.slacks
            return 1.0
        change = step.slacks - self.slacks
        length = min(1.0, 1.0 / max(float((-change / self.slacks).max()), 1e-300))
        changes = [new - X for new, X in zip(step.matrices, self.matrices, strict=True)]
        while not _are_positive(X + length * dX for X, dX in zip(self.matrices, changes, strict=True)):
            length *= _BACKTRACK
            if length < _MIN_LENGTH:
                return 0.0
        length *= _BOUNDARY_SHARE
        self.matrices = [X + length * dX for X, dX in zip(self.matrices, changes, strict=True)]
        self.slacks = self.slacks + length * change
        return length


def _among_cuts(u: Array, v: Array, by_X: tuple[Array, Array], by_Z: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the entries of `_equations` for the cuts −sym(uvᵀ) with each other, and alone.

    `by_X` and `by_Z` hold the products of u and v with the matrices X and Z.
    """
    (uX, vX), (uZ, vZ) = by_X, by_Z
    uXv, uZv = uX @ v.T, uZ @ v.T
    among = (uX @ u.T) * (vZ @ v.T)
    among += (vX @ v.T) * (uZ @ u.T)
    among += uXv * uZv.T
    among += uXv.T * uZv
    among *= 0.25
    return among, -uZv.diagonal()


def _inverse(factor: Array) -> Array:
    """Return the inverse of a matrix from its lower Cholesky factor."""
    inverse = lapack.dtrtri(factor, lower=1)[0]
    return inverse.T @ inverse


def _are_positive(matrices: Iterable[Array]) -> bool:
    """Return whether all matrices are positive definite."""
    return all(lapack.dpotrf(matrix, lower=1)[1] == 0 for matrix in matrices)
