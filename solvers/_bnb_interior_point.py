"""Primal-dual interior-point method for the relaxation of a node, in NumPy; _bnb_kernel/ has the same steps in C.

`qcqpbench.catalog.certificate.leaf` defines the dual variables x = (y, λ, μ) and the primal matrices X_k. A step solves
the equations of the relaxation together with X_k = τF_k⁻¹, λ_r p_r = τ and μ_c q_c = τ for a small τ, where p and q are
the slacks of the stabilities and of the cuts. For a change ΔF, the first becomes X_k = τF_k⁻¹ − V_k ΔF_k V_k with a
symmetric matrix V_k. The method of Nesterov and Todd (1998) takes the geometric mean of X_k and F_k⁻¹; here V_k is the
arithmetic mean of X_k/√σ and √σF_k⁻¹ for the mean complementarity σ. Both are alike if X_k ≈ σF_k⁻¹, and a step needs
only the factor L of V = LLᵀ. Every dual iterate is feasible, and so proves a bound. The primal point of a full step
satisfies all equations. If its matrices and slacks are positive, it is feasible, and its κ is a lower bound on the
value of the relaxation.

The method stops as soon as a dual point proves that the value is below a target, or a primal point that it is above.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from ._bnb_node import Clock, Node, NodeResult, Settings, Verdict, first_point
from ._bnb_relaxation import Relaxation

Array = NDArray[np.float64]


class Step(NamedTuple):
    """Changes of x and F, the primal point (X, slacks) of the full step, its κ, and whether it is feasible."""

    change: Array
    dual_changes: Array
    matrices: Array
    slacks: Array
    kappa: float
    is_feasible: bool


@dataclass
class State:
    """Dual and primal point of a node.

    `inverses` are those of F, and `share` that of τ in the next step. `is_above` tells whether a primal point proves
    that the value is above the target, and `kept` are the matrices of this point, or of the last feasible one.
    """

    x: Array
    F: Array
    inverses: Array
    matrices: Array
    slacks: Array
    share: float
    is_above: bool = False
    kept: Array | None = None


class InteriorPoint:
    """Interior-point method for the relaxations of the nodes of a task.

    Parameters
    ----------
    relaxation
        The relaxation without cuts.
    settings
        Settings of the method.
    """

    def __init__(self, relaxation: Relaxation, settings: Settings) -> None:
        self.relaxation, self.settings = relaxation, settings
        self.free = relaxation.offset_count
        # Number of entries of y and λ.
        self.known = relaxation.offset_count + relaxation.stability_count

    def solve(self, node: Node, target: float, looseness: float, clock: Clock) -> NodeResult:
        """Compare the value of the relaxation of a node with `target`, see `NodeSolver`."""
        state, steps = self._start(node), 0
        while steps < self.settings.max_steps and clock.has_time():
            if self._proves(state, target):
                return self._result(state, steps, Verdict.BELOW)
            step, steps = self._step(node, state), steps + 1
            if step is None:
                break
            if step.is_feasible and not state.is_above:
                state.kept, state.is_above = step.matrices, step.kappa > target
            distance, excess = float(state.x[: self.free].sum()) - step.kappa, step.kappa - target
            # An infinite looseness times zero is no number.
            if step.is_feasible and excess > 0 and distance <= looseness * excess:
                break
            state.share = self._advance(node, state, step)
            if state.share == 0:
                break
            if step.kappa > target and not state.is_above:
                state.share = max(state.share, self.settings.centring_share)
        return self._result(state, steps, Verdict.ABOVE if state.is_above else Verdict.UNDECIDED)

    def _result(self, state: State, steps: int, verdict: Verdict) -> NodeResult:
        matrices = state.matrices if state.kept is None else state.kept
        y, weights, mu = np.split(state.x, [self.free, self.known])
        return NodeResult(verdict, y, weights, mu, matrices, steps)

    def _start(self, node: Node) -> State:
        """Return a dual point with F > 0, close to that of the parent, and a primal point close to the centre."""
        settings, (x, is_new) = self.settings, first_point(self.relaxation, node, self.settings)
        F = self._dual_matrices(node, x)
        norm = float(np.abs(F).sum(axis=2).max()) or 1.0
        x[self.known :][is_new] = settings.first_cut_weight * norm / max(is_new.sum(), 1)
        F, shift, identity = self._dual_matrices(node, x), settings.first_shift * norm, np.eye(self.relaxation.order)
        while not _factors(F + 0.5 * shift * identity)[1] and shift < 4.0 * norm:
            shift *= settings.shift_growth
        x[: self.free] += shift
        F += shift * identity
        inverses = _inverses(_factors(F)[0])
        tau = self.relaxation.trace / float(np.einsum("kaa->", inverses))
        return State(x, F, inverses, tau * inverses, tau / x[self.free :], settings.first_share)

    def _dual_matrices(self, node: Node, x: Array) -> Array:
        """Return F(x), which is linear in x."""
        F = self.relaxation.dual_matrices(x[: self.free], x[self.free : self.known])
        for k, cuts in node.cuts_of_matrices:
            products = (node.first[cuts] * (0.5 * x[self.known :][cuts, None])).T @ node.second[cuts]
            F[k] -= products + products.T
        return F

    def _proves(self, state: State, target: float) -> bool:
        """Return whether the dual point, with F shifted by a multiple of 1, proves that the value is below `target`."""
        excess = (float(state.x[: self.free].sum()) - target) / self.relaxation.trace
        if excess <= 0:
            return True
        # If F − ε1 > 0, all diagonal entries of F⁻¹ are less than 1/ε.
        if not excess * float(np.einsum("kaa->ka", state.inverses).max()) < 1:
            return False
        return _factors(state.F - excess * np.eye(self.relaxation.order))[1]

    def _step(self, node: Node, state: State) -> Step | None:
        """Return the step towards τ; None if its equations cannot be solved."""
        positive, slacks = state.x[self.free :], state.slacks
        product = float(np.vdot(state.F, state.matrices)) + float(positive @ slacks)
        mean = product / (self.relaxation.order * len(state.F) + len(positive))
        scaling = 0.5 * (state.matrices / np.sqrt(mean) + np.sqrt(mean) * state.inverses)
        factors, is_positive = _factors(scaling)
        tau = state.share * mean
        L = np.triu(factors).swapaxes(1, 2)
        solution = self._solve_equations(node, state, L, tau) if is_positive else None
        if solution is None:
            return None
        change, kappa = solution
        dual_changes = self._dual_matrices(node, change)
        half = 0.5 * (scaling @ dual_changes @ scaling)
        matrices = tau * state.inverses - half - half.swapaxes(1, 2)
        new_slacks = (tau - slacks * change[self.free :]) / positive
        is_feasible = bool(new_slacks.min() > 0) and _factors(matrices)[1]
        return Step(change, dual_changes, matrices, new_slacks, kappa, is_feasible)

    def _solve_equations(self, node: Node, state: State, L: Array, tau: float) -> tuple[Array, float] | None:
        """Return the change of x and κ of the step towards τ; None if the equations cannot be solved."""
        free, positive = self.free, state.x[self.free :]
        congruences = self._congruences(node, L)
        H, right = congruences @ congruences.T, tau * self._traces(node, state.inverses)
        right[:free] -= 1.0
        right[free:] += tau / positive
        # With these units for λ and μ, their barrier adds 1 to the diagonal.
        units = np.ones_like(right)
        units[free:] = np.sqrt(positive / state.slacks)
        H *= np.outer(units, units)
        H.reshape(-1)[free * (len(H) + 1) :: len(H) + 1] += 1.0
        sums = np.zeros_like(right)
        sums[free : self.known] = units[free : self.known]
        _, columns, code = lapack.dposv(H, np.array([right * units, sums]).T, lower=1, overwrite_a=1)
        if code or not np.isfinite(columns).all():
            return None
        # κ is the multiplier of Σλ = 1.
        along = columns.T @ sums
        kappa = float(-along[0] / along[1])
        return units * (columns[:, 0] + kappa * columns[:, 1]), kappa

    def _congruences(self, node: Node, L: Array) -> Array:
        """Return LᵀE_iL for the derivatives E_i of F by x, a row for each i."""
        result = np.zeros((self.known + len(node.cuts), *L.shape))
        result[: self.known] = self.relaxation.congruences(L)
        for k, cuts in node.cuts_of_matrices:
            halves = -0.5 * (node.first[cuts] @ L[k])[:, :, None] * (node.second[cuts] @ L[k])[:, None]
            result[self.known :][cuts, k] = halves + halves.swapaxes(1, 2)
        return result.reshape(len(result), -1)

    def _traces(self, node: Node, Z: Array) -> Array:
        """Return ⟨E_i, Z⟩ for the derivatives E_i of F by x, summed over the matrices."""
        of_cuts = np.zeros(len(node.cuts))
        for k, cuts in node.cuts_of_matrices:
            of_cuts[cuts] = -((node.first[cuts] @ Z[k]) * node.second[cuts]).sum(axis=1)
        return np.concatenate([self.relaxation.traces(Z), of_cuts])

    def _advance(self, node: Node, state: State, step: Step) -> float:
        """Move both points along `step`, as far as they stay feasible; return the next share of τ, 0 at an end."""
        settings, primal_length = self.settings, self._advance_primal(state, step)
        length = min(primal_length, self._advance_dual(state, step))
        if length < settings.min_length:
            return 0.0
        return settings.long_share if length > 0.8 else settings.middle_share if length > 0.5 else settings.short_share

    def _advance_dual(self, state: State, step: Step) -> float:
        """Move the dual point; return the length, which is 0 if it does not move."""
        settings = self.settings
        ratio = float((-step.change[self.free :] / state.x[self.free :]).max(initial=1e-300))
        length, is_final = min(1.0, settings.boundary_share / ratio), False
        while length >= settings.min_length:
            F = state.F + length * step.dual_changes
            factors, is_positive = _factors(F)
            if is_positive and (is_final or length == 1.0):
                state.F, state.inverses = F, _inverses(factors)
                state.x += length * step.change
                return length
            if is_final:
                break
            is_final = is_positive
            length *= settings.boundary_share if is_positive else settings.backtrack
        return 0.0

    def _advance_primal(self, state: State, step: Step) -> float:
        """Move the primal point; return the length, which is 1 for the point of a full step."""
        if step.is_feasible:
            state.matrices, state.slacks = step.matrices, step.slacks
            return 1.0
        settings, dX, change = self.settings, step.matrices - state.matrices, step.slacks - state.slacks
        length = min(1.0, 1.0 / float((-change / state.slacks).max(initial=1e-300)))
        while length >= settings.min_length and not _factors(state.matrices + length * dX)[1]:
            length *= settings.backtrack
        length = settings.boundary_share * length if length >= settings.min_length else 0.0
        state.matrices, state.slacks = state.matrices + length * dX, state.slacks + length * change
        return length


def _factors(matrices: Array) -> tuple[Array, bool]:
    """Return Cholesky factors, in upper triangles, and whether all matrices are positive definite."""
    factors = np.array(matrices, order="C")
    codes = [lapack.dpotrf(A.T, lower=1, clean=0, overwrite_a=1)[1] for A in factors]
    return factors, not any(codes)


def _inverses(factors: Array) -> Array:
    """Return the inverses of matrices from their factors, which are overwritten."""
    for factor in factors:
        lapack.dpotri(factor.T, lower=1, overwrite_c=1)
    upper = np.triu(factors)
    return upper + np.triu(factors, 1).swapaxes(1, 2)
