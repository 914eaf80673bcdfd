"""Semidefinite relaxation of a max-margin task at a node of branch and bound, and the proof of its bound.

Two formulations are used. Both maximize κ subject to Σ_k ⟨A^r_k, X_k⟩ ≥ κ for each stability r, for matrices X_k ⪰ 0.

"symmetric": for n = 2, symmetric patterns and positive margins. With a, b = (w_1 ± w_2)/2, w_1ᵀPw_2 = aᵀPa − bᵀPb and
|a|² + |b|² = 1. X_0 and X_1 of order m stand for aaᵀ and bbᵀ, and tr X_0 + tr X_1 = 1. The condition a·b = 0 is left
out: without it, |w_1| |w_2| ≤ 1, and scaling both to unit length increases a positive margin. If the optimum is
negative, the bound stays valid, but is not below 0.

"stacked": for every task. X_0 of order nm stands for wwᵀ with w = (w_1, …, w_n), and each of its n diagonal blocks has
trace 1.

A node knows groups of vectors. All vectors h of a group have the same, unknown sign of hᵀa, where a is the vector of
their matrix: hᵀXh' ≥ 0 for two of them is a valid cut. The dual problem of the relaxation with cuts c is to minimize
Σ_i y_i subject to F_k = Diag_k(y) − Σλ_r A^r_k − Σμ_c sym(h h'ᵀ) ⪰ 0, λ, μ ≥ 0 and Σλ = 1, where Diag_k(y) = y 1 in the
symmetric and Diag(y_1, …, y_1, y_2, …) in the stacked formulation. As the traces of all X_k sum to T = 1 or n,

    κ(W) ≤ Σ_i y_i − T min_k λ_min(F_k)

for every W of the node, all λ, μ ≥ 0 with Σλ = 1, and every y. That is the bound of a `Leaf`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate import dual_matrix
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]
Formulation = Literal["symmetric", "stacked"]
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
    """Part of the feasible set, as a node of the search tree describes it, with the proof of an upper bound on it.

    The part consists of the W for which, in every group, hᵀa has the same sign for all vectors h, where zero counts as
    both signs. The leaves of a finished search cover all W.

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


def cut_vectors(groups: Groups, cuts: tuple[Cut, ...], matrix: int, order: int) -> tuple[Array, Array]:
    """Return h and h' of the cuts of one matrix, each of shape (cuts, order)."""
    of_matrix, vectors = [cut for cut in cuts if cut.matrix == matrix], groups[matrix]
    first = np.array([vectors[cut.group][cut.first] for cut in of_matrix])
    second = np.array([vectors[cut.group][cut.second] for cut in of_matrix])
    return first.reshape(-1, order), second.reshape(-1, order)


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
    matrices = _dual_matrices(task, leaf, weights)
    norm = float(np.abs(y).max())
    norm += float((weights.sum(axis=1) * np.abs(task.patterns).sum(axis=2).max(axis=1)).sum()) * (task.n - 1)
    for k, F in enumerate(matrices):
        u, v = cut_vectors(leaf.groups, leaf.cuts, k, len(F))
        of_matrix = mu[[cut.matrix == k for cut in leaf.cuts]]
        norm += float(of_matrix @ (np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)))
        products = (u.T * of_matrix) @ v
        matrices[k] = F - 0.5 * (products + products.T)
    # The formula for a and b holds for symmetric matrices only.
    if max(float(np.abs(F - F.T).max()) for F in matrices) > _ROUNDING * len(weights) * norm:
        return np.inf
    smallest = min(float(np.linalg.eigvalsh(F)[0]) for F in matrices)
    trace = 1 if leaf.formulation == "symmetric" else task.n
    size = len(matrices[0]) + len(weights) + len(mu)
    bound = float(y.sum()) - trace * (smallest - _ROUNDING * size * norm)
    return bound + (abs(float(weights.sum()) - 1.0) + _ROUNDING) * abs(bound)


def _dual_matrices(task: MaxMargin, leaf: Leaf, weights: Array) -> list[Array]:
    """Return Diag_k(y) − Σλ_r A^r_k for each matrix k, with λ = `weights`."""
    if leaf.formulation == "symmetric":
        M = task.mixture(weights)[0]
        offset = leaf.offsets[0] * np.eye(task.m)
        return [offset - M, offset + M]
    return [np.diag(np.repeat(leaf.offsets, task.m)) - 0.5 * dual_matrix(task, weights)]


class Relaxation:
    """Coefficients of the relaxation of a task, in multiples of `unit`.

    Parameters
    ----------
    task
        The task.
    formulation
        As in the module.

    Attributes
    ----------
    unit
        The largest absolute entry of the patterns, or 1 if all are zero.
    forms
        For each matrix k, the derivatives Diag_k(e_i) and −A^r_k of F_k with respect to y and λ, shape (len(y) + R, d,
        d) for R stabilities.
    stability_count, offset_count
        R, and the length of y.
    order
        The order d of the matrices.
    trace
        The sum T of the traces of all matrices.
    """

    def __init__(self, task: MaxMargin, formulation: Formulation) -> None:
        self.task, self.formulation = task, formulation
        self.unit = float(np.abs(task.patterns).max()) or 1.0
        self.stability_count = task.labels.size
        self.offset_count = 1 if formulation == "symmetric" else task.n
        if formulation == "symmetric":
            signed = task.labels[:, 0, None, None] * (task.patterns / self.unit)
            identity = np.eye(task.m)[None]
            self.forms = [np.concatenate([identity, -signed]), np.concatenate([identity, signed])]
            self.trace = 1
        else:
            self.forms = [np.concatenate([_block_identities(task), -_stacked_forms(task, self.unit)])]
            self.trace = task.n
        self.order = self.forms[0].shape[1]

    def point(self, matrices: list[Array]) -> Array | None:
        """Return the W, shape (n, m), of the leading eigenvectors of the matrices X_k; None if a row is zero."""
        leading = []
        for X in matrices:
            values, vectors = np.linalg.eigh(X)
            leading.append(np.sqrt(max(float(values[-1]), 0.0)) * vectors[:, -1])
        if self.formulation == "symmetric":
            W = np.array([leading[0] + leading[1], leading[0] - leading[1]])
        else:
            W = leading[0].reshape(self.task.n, self.task.m)
        largest = np.abs(W).max(axis=1)
        return unit_rows(W) if np.isfinite(largest).all() and largest.min() > 0 else None


def entry_count(task: MaxMargin, formulation: Formulation) -> int:
    """Return the number of entries of `Relaxation.forms`."""
    matrices, order, offsets = (2, task.m, 1) if formulation == "symmetric" else (1, task.n * task.m, task.n)
    return (task.labels.size + offsets) * matrices * order**2


def _stacked_forms(task: MaxMargin, unit: float) -> Array:
    """Return the A^r of the stacked formulation, shape (R, nm, nm): wᵀA^r w is the stability r, divided by `unit`."""
    forms = np.zeros((*task.labels.shape, task.n, task.m, task.n, task.m))
    halves = 0.5 * task.labels[:, :, None, None] * (task.patterns / unit)[:, None]
    for k, (i, j) in enumerate(zip(*task.pairs, strict=True)):
        forms[:, k, i, :, j] = halves[:, k]
        forms[:, k, j, :, i] = halves[:, k].swapaxes(1, 2)
    return forms.reshape(task.labels.size, task.n * task.m, -1)


def _block_identities(task: MaxMargin) -> Array:
    """Return Diag(e_i) for each row i of W, shape (n, nm, nm)."""
    blocks = np.repeat(np.eye(task.n), task.m, axis=1)
    return blocks[:, :, None] * np.eye(task.n * task.m)
