"""Leaves of tree certificates: proofs of upper bounds on the margins of a part of all points, a case.

A leaf proves a bound for the W of its case, by weak duality with a semidefinite relaxation. A relaxation maximizes κ
subject to Σ_k ⟨A^r_k, X_k⟩ ≥ κ for each stability r, for matrices X_k ⪰ 0. There are two formulations.

"symmetric": for n = 2 and symmetric patterns. With a, b = (w_1 ± w_2)/2, w_1ᵀPw_2 = aᵀPa − bᵀPb and |a|² + |b|² = 1.
X_0 and X_1 of order m stand for aaᵀ and bbᵀ, and tr X_0 + tr X_1 = 1. The condition a·b = 0 is left out: without it,
|w_1| |w_2| ≤ 1, and scaling both to unit length increases a positive margin. If the optimum is negative, the bound
stays valid, but is not below 0.

"stacked": for every task. X_0 of order nm stands for wwᵀ with w = (w_1, …, w_n), and each of its n diagonal blocks has
trace 1.

A case is described by groups of vectors. All vectors h of a group have the same, unknown sign of hᵀa, where a is the
vector of their matrix (a, b or w), and zero counts as both signs: hᵀXh' ≥ 0 for two of them is a valid cut. The dual
problem of the relaxation with cuts c is to minimize Σ_i y_i subject to F_k = Diag_k(y) − Σλ_r A^r_k − Σμ_c sym(h h'ᵀ) ⪰
0, λ, μ ≥ 0 and Σλ = 1, where Diag_k(y) = y 1 in the symmetric and Diag(y_1, …, y_1, y_2, …) in the stacked formulation.
As the traces of all X_k sum to T = 1 or n,

    κ(W) ≤ Σ_i y_i − T min_k λ_min(F_k)

for every W of the case, all λ, μ ≥ 0 with Σλ = 1, and every y. That is the bound of a `Leaf`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin

from .shor import dual_matrix

Array = NDArray[np.float64]
Formulation = Literal["symmetric", "stacked"]
FORMULATIONS: tuple[Formulation, ...] = ("symmetric", "stacked")
# Vectors by matrix and group; those of one group have the shape (vectors, order of the matrix).
Groups = tuple[tuple[Array, ...], ...]

# Eigenvalues, and the sums that make up a matrix, are accurate to a few times size · 2⁻⁵³ · norm.
_ROUNDING = 1e-14


class Cut(NamedTuple):
    """Valid constraint hᵀXh' ≥ 0: the indices of a matrix X, of one of its groups, and of h and h' in that group."""

    matrix: int
    group: int
    first: int
    second: int


@dataclass(frozen=True, eq=False)
class Leaf:
    """Case of a tree with the proof of an upper bound on the margins of its points, see the module.

    Parameters
    ----------
    formulation
        "symmetric": the groups of matrix 0 refer to a = (w_1 + w_2)/2, those of matrix 1 to a = (w_1 − w_2)/2.
        "stacked": the groups of matrix 0 refer to a = (w_1, …, w_n).
    groups
        The vectors of each group of each matrix.
    cuts
        The products that the proof uses.
    multipliers, offsets, cut_multipliers
        λ ≥ 0 of the stabilities, shape (p, N), which sum to one; y, shape (1,) or (n,); μ ≥ 0 of the cuts.
    bound
        The bound that they prove, see `leaf_bound`.
    """

    formulation: Formulation
    groups: Groups
    cuts: tuple[Cut, ...]
    multipliers: Array
    offsets: Array
    cut_multipliers: Array
    bound: float = np.inf


def cut_vectors(groups: Groups, cuts: tuple[Cut, ...]) -> tuple[Array, Array]:
    """Return h and h' of all cuts, each of shape (cuts, d), or (0,) if there are none."""
    first = np.array([groups[k][group][i] for k, group, i, _ in cuts])
    second = np.array([groups[k][group][j] for k, group, _, j in cuts])
    return first, second


def cuts_of_matrices(cuts: tuple[Cut, ...]) -> list[tuple[int, list[int]]]:
    """Return each matrix that has cuts, and their places."""
    of_cuts = [cut.matrix for cut in cuts]
    return [(k, [c for c, matrix in enumerate(of_cuts) if matrix == k]) for k in sorted(set(of_cuts))]


def leaf_bound(task: MaxMargin, leaf: Leaf) -> float:
    """Return the upper bound on the margins of the points of a leaf that its multipliers prove, or inf if none.

    The bound is computed from the task and the leaf only, by one eigenvalue problem for each matrix, and includes an
    allowance for rounding. `leaf.bound` is not used.
    """
    require(leaf.formulation == "stacked" or task.n == 2, f"n must be 2 in the symmetric formulation, got {task.n}")
    weights, mu, y = leaf.multipliers, leaf.cut_multipliers, leaf.offsets
    total = float(weights.sum())
    finite = np.isfinite(total) and np.isfinite(mu).all() and np.isfinite(y).all()
    if not finite or not total > 0 or weights.min() < 0 or mu.min(initial=0.0) < 0:
        return np.inf
    weights = weights / total
    F = _dual_matrices(task, leaf, weights)
    norm = float(np.abs(y).max()) + float(weights.sum(axis=1) @ task.pattern_norms) * (task.n - 1)
    # The formula for a and b holds for symmetric matrices only; in the other formulation they always are.
    if leaf.formulation == "symmetric" and not np.abs(F[0] - F[0].T).max() <= _ROUNDING * len(weights) * norm:
        return np.inf
    u, v = cut_vectors(leaf.groups, leaf.cuts)
    for k, cuts in cuts_of_matrices(leaf.cuts):
        products = (u[cuts].T * (0.5 * mu[cuts])) @ v[cuts]
        F[k] -= products + products.T
    if len(mu):
        norm += float(mu @ np.sqrt(np.einsum("ci,ci->c", u, u) * np.einsum("ci,ci->c", v, v)))
    if not np.isfinite(F).all():
        return np.inf
    smallest = float(np.linalg.eigvalsh(F)[:, 0].min())
    trace = 1 if leaf.formulation == "symmetric" else task.n
    size = F.shape[1] + len(weights) + len(mu)
    bound = float(y.sum()) - trace * (smallest - _ROUNDING * size * norm)
    return bound + (abs(float(weights.sum()) - 1.0) + _ROUNDING) * abs(bound)


def _dual_matrices(task: MaxMargin, leaf: Leaf, weights: Array) -> Array:
    """Return Diag_k(y) − Σλ_r A^r_k for each matrix k, with λ = `weights`."""
    if leaf.formulation == "symmetric":
        M = task.mixture(weights)[0]
        offset = leaf.offsets[0] * np.eye(task.m)
        return np.stack([offset - M, offset + M])
    return (np.diag(np.repeat(leaf.offsets, task.m)) - 0.5 * dual_matrix(task, weights))[None]
