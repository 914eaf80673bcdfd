"""Branching of a node: the choice of vectors whose signs the children know, and the cuts of the children.

Let X be the primal matrix of a node that stands for aaᵀ. Two kinds of branchings exclude X from all children, unless
its rank is one.

Split: for two vectors h_i, h_j of a group, q_i = √(h_iᵀXh_i) and c = h_iᵀXh_j / (q_i q_j), let h = h_j/q_j − h_i/q_i.
X violates the cut of h and h_i in the first child, and that of −h and h_j in the second.

Wedges: three lines cut the plane of the two leading eigenvectors of X into three wedges. The vectors of the branch are
the normals of the lines.

`qcqpbench.catalog.certificate.tree` explains why the children cover the node. The sign of a itself is never fixed, so
the tree does not distinguish W from −W, nor, in the symmetric formulation, from W with its rows exchanged: (w_2, w_1)
has the same a and the opposite b. The exchange of a and b is no symmetry, as it changes the sign of every stability.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from qcqpbench.catalog.certificate.leaf import Cut, Groups
from qcqpbench.catalog.certificate.tree import Branch

Array = NDArray[np.float64]
# The two largest eigenvalues of matrices, in ascending order, and their eigenvectors, shapes (K, 2) and (K, d, 2).
Spectrum = tuple[Array, Array]

# Weight of the score of wedges relative to that of splits; 0.05 to 0.2 lead to trees of about the same size.
_WEDGE_WEIGHT = 0.1
# Cuts of a new vector with others of its group: those that X violates most.
_MAX_NEW_CUTS = 4


class Branching(NamedTuple):
    """Branching of a node.

    Parameters
    ----------
    score
        Estimate of the effect on the bound. It is 0 if X has rank one.
    branch
        The matrix, the group to split (None for wedges) and the vectors.
    partners
        For a split, the vectors of the group that get a cut with h, and those that get a cut with −h.
    """

    score: float
    branch: Branch
    partners: tuple[tuple[int, ...], ...] = ()


def best_branching(groups: Groups, matrices: Array, spectrum: Spectrum) -> Branching:
    """Return the branching with the highest score, given the primal matrices of a node, shape (K, d, d).

    `spectrum` is that of the matrices.
    """
    candidates = [_wedges(k, *pairs) for k, pairs in enumerate(zip(*spectrum, strict=True))]
    candidates += [_split(k, groups[k], X) for k, X in enumerate(matrices) if groups[k]]
    return max(candidates, key=lambda branching: branching.score)


def leading_pairs(matrices: Array) -> Spectrum:
    """Return the spectrum of symmetric matrices, shape (K, d, d) with d > 1."""
    d = matrices.shape[1]
    results = [lapack.dsyevr(X, range="I", il=d - 1, iu=d) for X in matrices]
    return np.array([result[0][:2] for result in results]), np.array([result[1][:, :2] for result in results])


def _split(matrix: int, groups: tuple[Array, ...], X: Array) -> Branching:
    """Return the best split of one of the groups of a matrix. The score is √((1 − c)/2) hᵀXh / |h|²."""
    # All groups at once; pairs of vectors from different groups have no score.
    H, owners = np.concatenate(groups), np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    S = H @ X @ H.T
    q = np.sqrt(np.maximum(S.diagonal(), 1e-300))
    scaled = H / q[:, None]
    gram = scaled @ scaled.T
    lengths = gram.diagonal()
    squares = np.maximum(lengths[:, None] + lengths - 2 * gram, 1e-12 * lengths)
    distance = np.maximum(1.0 - S / (q[:, None] * q), 0.0)
    distance[owners[:, None] != owners] = 0.0
    np.fill_diagonal(distance, 0.0)
    scores = np.sqrt(0.5 * distance) * 2.0 * distance / squares
    i, j = divmod(int(scores.argmax()), len(H))
    h = scaled[j] - scaled[i]
    h /= max(float(np.linalg.norm(h)), 1e-300)
    group = int(owners[i])
    order = np.argsort(scaled[owners == group] @ (X @ h)).tolist()
    partners = tuple(order[:_MAX_NEW_CUTS]), tuple(order[::-1][:_MAX_NEW_CUTS])
    return Branching(float(scores[i, j]), Branch(matrix, group, h[None]), partners)


def _wedges(matrix: int, values: Array, vectors: Array) -> Branching:
    """Return the branching by wedges of a matrix with these eigenvalues; its score is the second one.

    The rank-one matrices of the plane of two eigenvectors are on a circle, at twice their angles. The lines are at the
    angles of three of them whose centroid is the restriction of X to the plane, so that X violates all three cuts.
    """
    first, second = vectors[:, -1], vectors[:, -2]
    ratio = (values[-1] - values[-2]) / max(float(values[-1] + values[-2]), 1e-300)
    angle = 0.5 * np.arccos(np.clip(1.5 * ratio - 0.5, -1.0, 1.0))
    normals = np.array([np.cos(phi) * second - np.sin(phi) * first for phi in (-angle, 0.0, angle)])
    return Branching(_WEDGE_WEIGHT * float(values[-2]), Branch(matrix, None, normals))


def children(groups: Groups, branching: Branching) -> list[tuple[Groups, list[Cut]]]:
    """Return the groups and the new cuts of each child of a node with the given groups."""
    k, group, _ = branch = branching.branch
    if group is None:
        cuts = [[Cut(k, len(groups[k]), 0, 1)] for _ in range(3)]
    else:
        new = len(groups[k][group])
        cuts = [[Cut(k, group, partner, new) for partner in partners] for partners in branching.partners]
    return list(zip(branch.children(groups), cuts, strict=True))
