"""Prove by branch and bound that no margin is more than 0.01 % above that of gip.

Usage: python docs/recorded_optimum.py [SPEC]

For two outputs and symmetric patterns, w_1ᵀPw_2 = ¼(aᵀPa − bᵀPb) with a, b = w_1 ± w_2, and |a|² + |b|² = 4. Shor's
relaxation replaces aaᵀ, bbᵀ by matrices X, Y ⪰ 0. Where X is not of rank one, the plane of its two first eigenvectors
is cut into three wedges, one of which contains the projection of a (or −a). If u and v are the normals of that wedge,
(u·a)(v·a) ≥ 0, so uᵀXv ≥ 0 is a valid constraint. X violates the constraint of each of the three wedges, so each child
node excludes X. The same holds for Y. The bound of a node is computed from its multipliers only, with Σλ = 1:
4 max(λ_max(¼Σλζ P + Σμ uvᵀ), λ_max(−¼Σλζ P + Σμ' uvᵀ)).
"""

import heapq
import sys
import time

import clarabel
import numpy as np
from scipy import sparse

import qcqpbench

RELATIVE_GAP = 1e-4

task = qcqpbench.problem(sys.argv[1] if len(sys.argv) > 1 else "recorded")
assert task.n == 2 and (task.patterns == task.patterns.swapaxes(1, 2)).all()
m, p = task.m, task.p
# Symmetric matrices as vectors: the upper triangle by columns, as Clarabel expects it.
column, row = np.tril_indices(m)
weight = np.where(row == column, 1.0, np.sqrt(2.0))
size = len(row)


def vector(S):
    """Return symmetric matrices as vectors with the same inner product."""
    return S[..., row, column] * weight


def matrix(v):
    """Return the symmetric matrix of a vector."""
    S = np.zeros((m, m))
    S[row, column] = S[column, row] = v / weight
    return S


forms = vector(0.25 * task.labels[:, 0, None, None] * task.patterns)
trace = vector(np.eye(m))


def relax(wedges):
    """Solve the relaxation with the constraints `wedges` = (those of X, those of Y); return its bound and (X, Y)."""
    counts = [len(of_matrix) for of_matrix in wedges]
    lines = [
        np.concatenate([trace, trace, [0.0]])[None],
        np.hstack([-forms, forms, np.ones((p, 1))]),
        np.hstack([-np.reshape(wedges[0], (-1, size)), np.zeros((counts[0], size + 1))]),
        np.hstack([np.zeros((counts[1], size)), -np.reshape(wedges[1], (-1, size)), np.zeros((counts[1], 1))]),
        np.eye(2 * size, 2 * size + 1) * -1.0,
    ]
    A = sparse.csc_matrix(np.vstack(lines))
    b = np.zeros(A.shape[0])
    b[0] = 4.0
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(p + sum(counts))]
    cones += [clarabel.PSDTriangleConeT(m), clarabel.PSDTriangleConeT(m)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cost = np.append(np.zeros(2 * size), -1.0)
    solution = clarabel.DefaultSolver(sparse.csc_matrix((len(cost),) * 2), cost, A, b, cones, settings).solve()
    x, duals = np.array(solution.x), np.maximum(solution.z[1 : 1 + p + sum(counts)], 0.0)
    lam, mu, mu_prime = np.split(duals / duals[:p].sum(), [p, p + counts[0]])
    M = lam @ forms
    sums = [M + mu @ np.reshape(wedges[0], (-1, size)), -M + mu_prime @ np.reshape(wedges[1], (-1, size))]
    if not np.isfinite(sums).all():
        raise ArithmeticError(f"no multipliers: {solution.status}")
    # With an allowance for rounding.
    bound = 4.0 * max(float(np.linalg.eigvalsh(matrix(v))[-1]) + 1e-12 * np.linalg.norm(v) for v in sums)
    return bound, (matrix(x[:size]), matrix(x[size : 2 * size]))


def children(wedges, matrices):
    """Yield the wedges of the three child nodes; branch on the matrix that is farther from rank one."""
    spectra = [np.linalg.eigh(S) for S in matrices]
    which = int(np.argmax([values[-2] for values, _ in spectra]))
    values, vectors = spectra[which]
    first, second = vectors[:, -1], vectors[:, -2]
    ratio = (values[-1] - values[-2]) / (values[-1] + values[-2])
    # Rank-one matrices of the plane are on a circle, at the angle 2φ; the matrix is the centroid of three of them.
    angle = 0.5 * np.arccos(min(1.5 * ratio - 0.5, 1.0))
    for low, high in ((-angle, 0.0), (0.0, angle), (angle, np.pi - angle)):
        u = np.cos(low) * second - np.sin(low) * first
        v = np.sin(high) * first - np.cos(high) * second
        wedge = vector(np.outer(u, v) + np.outer(v, u))
        yield tuple([*old, wedge] if index == which else old for index, old in enumerate(wedges))


begin = time.perf_counter()
margin = qcqpbench.solve(task, "gip").margin
target = margin * (1 + RELATIVE_GAP)
bound, matrices = relax(([], []))
print(f"{task.metadata.spec}: margin {margin:.8f}, Shor's relaxation {bound:.8f}", flush=True)
if not margin > 0:
    sys.exit(f"the margin must be positive, got {margin:.8f}")
node_count = 1
nodes = [(-bound, node_count, ([], []), matrices)]
while -nodes[0][0] > target:
    above, _, wedges, matrices = heapq.heappop(nodes)
    for child in children(wedges, matrices):
        bound, child_matrices = relax(child)
        node_count += 1
        heapq.heappush(nodes, (max(-bound, above), node_count, child, child_matrices))
    if node_count % 300 == 1:
        print(f"{node_count} nodes, bound {-nodes[0][0]:.8f}", flush=True)
print(f"no margin is above {target:.8f}: {node_count} nodes, {time.perf_counter() - begin:.0f} s")
