"""Branch and bound on the semidefinite relaxation of max-margin tasks, which proves the optimum of small tasks."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Leaf, leaf_bound
from qcqpbench.catalog.certificate.tree import TreeCertificate, TreeNode
from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Scope, Termination
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

from . import _bnb_kernel, _gip_kernel
from ._bnb_relaxation import Relaxation, StackedRelaxation, SymmetricRelaxation
from ._bnb_tree import Incumbent, Tree
from ._library import steps_version
from .gip import Gip

Array = NDArray[np.float64]

# Limit on the entries of the matrices LᵀE_iL of a step and of its equations: 480 MB, and up to twice as much in a step,
# which takes seconds.
_MAX_ENTRIES = 60_000_000
# Limit on the absolute entries of patterns, whose squares must not overflow.
_MAX_PATTERN = 1e150
# Number of starts of gip at first, and number of nodes after which gip runs with all of its starts.
_QUICK_STARTS, _FIRST_NODES = 1, 1000


@dataclass(frozen=True)
class BranchAndBound(TaskSolver):
    """Branch and bound with semidefinite relaxations; its bound is proved in floating-point arithmetic.

    The incumbent comes from gip, and from the relaxations of nodes. The children of a node know more signs of products
    of the weights with fixed vectors, which gives valid cuts of the relaxation. The number of iterations is that of
    nodes.

    Parameters
    ----------
    gap
        Optimality gap at which the search stops: (bound − margin), relative to the absolute margin or to a
        hundredth of the typical stability (the root mean square of the stabilities at random weights), whichever is
        larger. The latter matters for optima near zero.
    max_nodes
        Limit on the number of nodes; unlimited by default.
    certificate
        Whether to return the tree, which proves the bound and can be checked without the solver. The whole tree is then
        kept in memory.
    """

    name = "branch_and_bound"
    drives = "gip, then branch and bound with an interior-point method on BLAS and LAPACK"
    scope = Scope.GLOBAL
    citation = "qcqpbench, docs/reference/solvers.md"

    gap: float = 1e-4
    max_nodes: int | None = None
    certificate: bool = False

    def version(self) -> str:
        return f"{super().version()}, {steps_version(_bnb_kernel.library(), _gip_kernel.library())}"

    def build(self, problem: MaxMargin) -> RunFunction:
        entries = problem.labels.size * (problem.n * problem.m) ** 2 + problem.labels.size**2
        require(
            entries <= _MAX_ENTRIES,
            f"branch_and_bound: the relaxation must have at most {_MAX_ENTRIES:,} entries, got {entries:,}",
        )
        largest = float(np.abs(problem.patterns).max())
        require(
            largest <= _MAX_PATTERN,
            f"branch_and_bound: entries of patterns must be at most {_MAX_PATTERN:g} in size, got {largest:g}",
        )
        quick_search, local_search = Gip(starts=_QUICK_STARTS).build(problem), Gip().build(problem)

        def run(start: Array, budget: Budget) -> Solution:
            local = quick_search(start, budget)
            incumbent = Incumbent(problem, self.gap, budget)
            incumbent.update(unit_rows(start if local.x is None else local.x))
            root = _root_leaf(problem, local.multipliers)
            if root.bound <= incumbent.target or budget.exhausted():
                return self._solution(incumbent, root, None)
            tree = search(problem, incumbent, min(_FIRST_NODES, self.max_nodes or _FIRST_NODES), self.certificate)
            if not (tree.is_finished or tree.is_out_of_time or tree.node_count == self.max_nodes):
                local = local_search(start, budget)
                if local.x is not None:
                    incumbent.update(unit_rows(local.x))
                tree.run(self.max_nodes)
            return self._solution(incumbent, root, tree)

        return run

    def _solution(self, incumbent: Incumbent, root: Leaf, tree: Tree | None) -> Solution:
        """Return the solution after a search, whose proof is its tree or, if that proves less, the leaf `root`."""
        is_tree_used = tree is not None and tree.bound < root.bound
        bound = tree.bound if tree is not None and is_tree_used else root.bound
        proof = None
        if self.certificate:
            proof = tree.certificate() if tree is not None and is_tree_used else TreeCertificate.of(TreeNode(root))
        solution = _claims(incumbent, bound, tree)
        return solution if proof is None else replace(solution, tree=proof.to_vector())


def _root_leaf(task: MaxMargin, multipliers: Array | None) -> Leaf:
    """Return the leaf of all points, with the proof that the multipliers of a point give."""
    weights = np.full(task.labels.shape, 1.0 / task.labels.size) if multipliers is None else multipliers
    leaf = Leaf("stacked", ((),), (), weights, np.zeros(task.n), np.zeros(0))
    return replace(leaf, bound=leaf_bound(task, leaf))


def search(task: MaxMargin, incumbent: Incumbent, max_nodes: int | None = None, keep: bool = False) -> Tree:
    """Run branch and bound from an incumbent, and return the tree; see `Tree` for the parameters."""
    # The bound of the symmetric formulation is not below 0.
    is_symmetric = task.n == 2 and incumbent.target > 0 and all(np.array_equal(P, P.T) for P in task.patterns)
    relaxation: Relaxation = SymmetricRelaxation(task) if is_symmetric else StackedRelaxation(task)
    tree = Tree(relaxation, incumbent, keep)
    tree.run(max_nodes)
    return tree


def _claims(incumbent: Incumbent, bound: float, tree: Tree | None) -> Solution:
    """Return the solution without its proof."""
    # A bound is never below the margin of a point, but the margin is rounded too.
    bound = max(bound, incumbent.margin)
    if bound <= incumbent.target:
        termination = Termination.OPTIMAL
    elif tree is None or tree.is_out_of_time:
        termination = Termination.TIME_LIMIT
    else:
        termination = Termination.STALLED if tree.is_finished else Termination.ITERATION_LIMIT
    return Solution(
        x=incumbent.point,
        termination=termination,
        objective=incumbent.margin,
        bound=bound if np.isfinite(bound) else None,
        iterations=0 if tree is None else tree.node_count,
        details={} if tree is None else _details(tree),
    )


def _details(tree: Tree) -> dict[str, str | float]:
    return {"formulation": tree.relaxation.formulation, "interior_point_steps": float(tree.step_count)}
