"""Proves by branch and bound that no margin is more than 0.01 % above what gip finds: python docs/recorded_optimum.py

For two outputs and symmetric patterns, w_1ᵀPw_2 = ¼(aᵀPa − bᵀPb) with a, b = w_1 ± w_2, and |a|² + |b|² = 4. Shor's
relaxation puts matrices X, Y ⪰ 0 for aaᵀ, bbᵀ. Where X is not of rank one, the plane of its two first eigenvectors is
cut into three wedges, in one of which a (or −a) has its projection: between the normals u and v of a wedge,
(u·a)(v·a) ≥ 0, so that uᵀXv ≥ 0; none of the three allows X. Likewise for Y. The bound of a node is computed from its
multipliers alone, as largest eigenvalues: 4 max(λ_max(¼Σλζ P + Σμ uvᵀ), λ_max(−¼Σλζ P + Σμ' uvᵀ)), λ summing to one.
"""

import heapq
import sys
import time

import clarabel
import numpy as np
from scipy import sparse

import qcqpbench

GAP = 1e-4

task = qcqpbench.problem(sys.argv[1] if len(sys.argv) > 1 else "recorded")
assert task.n == 2 and (task.patterns == task.patterns.swapaxes(1, 2)).all()
m, p = task.m, task.p
# Symmetric matrices as vectors: the upper triangle by columns, as Clarabel has it.
column, row = np.tril_indices(m)
weight = np.where(row == column, 1.0, np.sqrt(2.0))
size = len(row)


def vector(S):
    return S[..., row, column] * weight


def matrix(v):
    S = np.zeros((m, m))
    S[row, column] = S[column, row] = v / weight
    return S


forms = vector(0.25 * task.labels[:, 0, None, None] * task.patterns)
trace = vector(np.eye(m))


def relax(wedges):
    """The proved bound with wedges for X and for Y, and X and Y."""
    counts = [len(each) for each in wedges]
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
    found = clarabel.DefaultSolver(sparse.csc_matrix((len(cost),) * 2), cost, A, b, cones, settings).solve()
    x, duals = np.array(found.x), np.maximum(found.z[1 : 1 + p + sum(counts)], 0.0)
    lam, mu, mu_prime = np.split(duals / duals[:p].sum(), [p, p + counts[0]])
    M = lam @ forms
    sums = [M + mu @ np.reshape(wedges[0], (-1, size)), -M + mu_prime @ np.reshape(wedges[1], (-1, size))]
    if not np.isfinite(sums).all():
        raise ArithmeticError(f"no multipliers: {found.status}")
    # With an allowance for rounding.
    bound = 4.0 * max(float(np.linalg.eigvalsh(matrix(each))[-1]) + 1e-12 * np.linalg.norm(each) for each in sums)
    return bound, (matrix(x[:size]), matrix(x[size : 2 * size]))


def children(wedges, matrices):
    """The wedges of the three children, of the matrix that is further from rank one."""
    spectra = [np.linalg.eigh(each) for each in matrices]
    which = int(np.argmax([values[-2] for values, _ in spectra]))
    values, vectors = spectra[which]
    first, second = vectors[:, -1], vectors[:, -2]
    ratio = (values[-1] - values[-2]) / (values[-1] + values[-2])
    # By its angle 2φ a rank-one matrix of the plane is on a circle; the matrix is the centre of gravity of the corners.
    angle = 0.5 * np.arccos(min(1.5 * ratio - 0.5, 1.0))
    for low, high in ((-angle, 0.0), (0.0, angle), (angle, np.pi - angle)):
        u = np.cos(low) * second - np.sin(low) * first
        v = np.sin(high) * first - np.cos(high) * second
        wedge = vector(np.outer(u, v) + np.outer(v, u))
        yield tuple([*each, wedge] if index == which else each for index, each in enumerate(wedges))


begin = time.perf_counter()
margin = qcqpbench.solve(task, "gip").margin
target = margin * (1 + GAP)
bound, matrices = relax(([], []))
print(f"{task.metadata.spec}: margin {margin:.8f}, Shor's relaxation {bound:.8f}", flush=True)
if not margin > 0:
    sys.exit("the margin is not positive: nothing is within 0.01 % of it")
made = 1
nodes = [(-bound, made, ([], []), matrices)]
while -nodes[0][0] > target:
    above, _, wedges, matrices = heapq.heappop(nodes)
    for each in children(wedges, matrices):
        bound, found = relax(each)
        made += 1
        heapq.heappush(nodes, (max(-bound, above), made, each, found))
    if made % 300 == 1:
        print(f"{made} nodes, bound {-nodes[0][0]:.8f}", flush=True)
print(f"no margin is above {target:.8f}: {made} nodes, {time.perf_counter() - begin:.0f} s")
