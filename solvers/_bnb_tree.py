"""Best-bound search of branch and bound, with the incumbent that it improves."""

import heapq
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Cut, Groups, Leaf, leaf_bound
from qcqpbench.catalog.certificate.tree import TreeCertificate, TreeNode
from qcqpbench.catalog.solver import Budget
from qcqpbench.problem.maxmargin import MaxMargin

from ._bnb_branching import Branching, best_branching, children
from ._bnb_node import NodeCuts, NodeResult, NodeSolver
from ._bnb_relaxation import Relaxation
from ._gip_passes import Passes
from ._gip_schedule import Schedule
from ._gip_state import Batch

Array = NDArray[np.float64]

# A margin below this share of the typical stability counts as that large in the gap.
_MIN_MARGIN_SHARE = 0.01
# Cuts of the parent with a smaller multiplier, relative to the reference value of the gap, are dropped.
_MIN_CUT_MULTIPLIER = 1e-2
# Nodes aim at a value below the target by this share of the tolerance, so that rounding in the proof does not matter.
_TARGET_SHARE = 1e-3
# Accuracy of the bound of the root, see `NodeSolver.solve`: if the search is stopped early, it is the result. Other
# nodes stop as soon as they must be branched.
_ROOT_LOOSENESS = 1e-2
# The point of a node is the start of a local search at the first node, and then more and more rarely: the number of
# nodes grows by this factor from one search to the next.
_NODES_PER_SEARCH = 2.0
_SEARCH_WIDTH, _SEARCH_SHRINK, _SEARCH_STEPS, _SEARCH_TOL = 0.1, 0.3, 60, 1e-10
# With more open nodes, the search closes those with small bounds first.
_MAX_OPEN_NODES = 50_000
# Score of a branching, relative to the trace of the matrices, at which they have rank one up to rounding.
_MIN_SCORE = 1e-13


class Incumbent:
    """Best point of the search so far, and the tolerance that defines its optimality.

    Parameters
    ----------
    task
        The task.
    gap
        As in `BranchAndBound`.
    budget
        Receives each better point.
    """

    def __init__(self, task: MaxMargin, gap: float, budget: Budget) -> None:
        self.task, self.gap, self.budget = task, gap, budget
        self.passes = Passes(task, mixed=False)
        self.typical_stability = _typical_stability(task)
        self.point: Array | None = None
        self.margin = -np.inf

    @property
    def reference(self) -> float:
        """The absolute margin, at least a hundredth of the typical stability."""
        return max(abs(self.margin), _MIN_MARGIN_SHARE * self.typical_stability)

    @property
    def target(self) -> float:
        """The upper bound that proves the incumbent optimal."""
        return self.margin + self.gap * self.reference

    def update(self, W: Array) -> bool:
        """Replace the incumbent by `W`, with unit rows, if that has a larger margin; return whether it has."""
        margin = float(self.task.margin(W))
        if not margin > self.margin:
            return False
        self.point, self.margin = W, margin
        self.budget.report(W)
        return True

    def search_from(self, W: Array) -> None:
        """Update the incumbent by `W` and by the local optimum that gip reaches from it, without its warm-up."""
        self.update(W)
        if not 0 < self.passes.unit < np.inf:
            # The squares of the patterns underflow or overflow.
            return
        schedule = Schedule(np.ones(1), _SEARCH_WIDTH, _SEARCH_SHRINK, ())
        batch = Batch(self.passes, W[None], schedule, _SEARCH_TOL)
        for _ in batch.run(_SEARCH_STEPS):
            if self.budget.exhausted():
                break
        self.update(batch.W[0])


def _typical_stability(task: MaxMargin) -> float:
    """Return the root mean square of the stabilities at random W, without overflow."""
    largest = float(np.abs(task.patterns).max())
    return largest * float(np.linalg.norm(task.patterns / (largest or 1.0))) / (task.m * np.sqrt(task.p))


@dataclass(order=True)
class _OpenNode:
    """Node to branch; nodes with larger bounds come first, then older ones.

    The proof of `leaf` can be that of an ancestor, if that is better than the last dual point `solved` of the node. The
    children start from the cuts and the multipliers of `solved`. `node` is the node of the certificate, if one is kept.
    """

    negative_bound: float
    number: int
    leaf: Leaf = field(compare=False)
    solved: Leaf = field(compare=False)
    branching: Branching = field(compare=False)
    node: TreeNode | None = field(compare=False)


@dataclass(frozen=True, eq=False)
class _Pending:
    """Child to bound: its groups and cuts, the multipliers of those that its parent has too (NaN for others).

    `proof` is that of the parent, and `solved` the last dual point of the parent; `node` as in `_OpenNode`.
    """

    proof: Leaf
    solved: Leaf
    groups: Groups
    cuts: tuple[Cut, ...]
    multipliers: Array
    node: TreeNode | None


class Tree:
    """Search tree of branch and bound.

    Parameters
    ----------
    relaxation
        The relaxation of the task.
    incumbent
        A point of the task; the search improves it.
    max_nodes
        Limit on the number of nodes; None for no limit.
    keep
        Whether to keep the whole tree in memory, for `certificate`. Otherwise closed nodes are forgotten.

    Attributes
    ----------
    node_count, step_count
        Numbers of nodes, and of steps of the interior-point method.
    is_out_of_time
        Whether the search stopped at the time limit.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        incumbent: Incumbent,
        max_nodes: int | None = None,
        keep: bool = False,
    ) -> None:
        self.relaxation, self.incumbent, self.max_nodes = relaxation, incumbent, max_nodes
        self._root = TreeNode() if keep else None
        self.task, self.budget = relaxation.task, incumbent.budget
        self.solver = NodeSolver(relaxation)
        self.node_count = self.step_count = 0
        self._open: list[_OpenNode] = []
        self._pending: list[_Pending] = []
        self._closed_bound = -np.inf
        self.is_out_of_time = False
        self._next_search = 0.0
        self._longest_step_seconds = 0.0
        self._step_begin: float | None = None

    @property
    def bound(self) -> float:
        """Upper bound on the margins of all points, at any time of the search."""
        bounds = [self._closed_bound, *(-node.negative_bound for node in self._open[:1])]
        return max(*bounds, *(child.proof.bound for child in self._pending), -np.inf)

    def run(self) -> None:
        """Search until the incumbent is proved optimal, or a limit is reached."""
        empty: Groups = tuple(() for _ in range(self.relaxation.matrix_count))
        everything = Leaf(self.relaxation.formulation, empty, (), *self._equal_multipliers(), np.zeros(0))
        everything = replace(everything, bound=leaf_bound(self.task, everything))
        self._pending = [_Pending(everything, everything, empty, (), np.zeros(0), self._root)]
        while (self._pending or self._open) and not self._at_limit():
            if self._pending:
                self._bound_child(self._pending[-1])
            else:
                self._branch()

    def _equal_multipliers(self) -> tuple[Array, Array]:
        labels = self.task.labels
        return np.full(labels.shape, 1.0 / labels.size), np.zeros(self.relaxation.offset_count)

    @property
    def is_finished(self) -> bool:
        """True if all nodes are closed."""
        return not (self._pending or self._open)

    def _at_limit(self) -> bool:
        self.is_out_of_time = self.is_out_of_time or self.budget.exhausted()
        return self.is_out_of_time or (self.max_nodes is not None and self.node_count >= self.max_nodes)

    def _branch(self) -> None:
        """Remove an open node and create its children, or close it if the incumbent has become better."""
        # The last item of a heap can be removed like the first; it is one of the newest nodes, with a small bound.
        node = self._open.pop() if len(self._open) > _MAX_OPEN_NODES else heapq.heappop(self._open)
        if node.leaf.bound <= self.incumbent.target:
            self._close(node.leaf, node.node)
            return
        nodes = None if node.node is None else node.node.divide(node.branching.branch)
        solved, least = node.solved, _MIN_CUT_MULTIPLIER * self.incumbent.reference
        old = [pair for pair in zip(solved.cuts, solved.cut_multipliers.tolist(), strict=True) if pair[1] > least]
        for number, (groups, new) in enumerate(children(solved.groups, node.branching)):
            pairs = sorted([*old, *((cut, np.nan) for cut in new)], key=lambda pair: pair[0])
            cuts, multipliers = tuple(cut for cut, _ in pairs), np.array([mu for _, mu in pairs])
            place = None if nodes is None else nodes[number]
            self._pending.append(_Pending(node.leaf, solved, groups, cuts, multipliers, place))

    def _bound_child(self, child: _Pending) -> None:
        """Compute the bound of the last pending child, then close it or add it to the open nodes."""
        result = self._solve(child)
        self.step_count += result.steps
        solved = self._leaf(child, result)
        # The proof of the parent holds for the child too: the groups of a child extend those of its parent.
        leaf = solved if solved.bound < child.proof.bound else replace(child.proof, groups=child.groups)
        if leaf.bound > self.incumbent.target and self.is_out_of_time:
            self._pending[-1] = replace(child, proof=leaf)
            return
        self.node_count += 1
        self._pending.pop()
        if leaf.bound > self.incumbent.target:
            self._improve_incumbent(result)
        if leaf.bound <= self.incumbent.target:
            self._close(leaf, child.node)
            return
        branching = best_branching(leaf.groups, result.matrices)
        if branching.score > _MIN_SCORE * self.relaxation.trace:
            heapq.heappush(self._open, _OpenNode(-leaf.bound, self.node_count, leaf, solved, branching, child.node))
        else:
            # The matrices have rank one, but rounding keeps the bound above the target. The search ends with this
            # bound, unless that of another node is larger.
            self._close(leaf, child.node)

    def _solve(self, child: _Pending) -> NodeResult:
        unit, parent, incumbent = self.relaxation.unit, child.solved, self.incumbent
        cuts = NodeCuts(self.relaxation, child.groups, child.cuts)
        target = incumbent.target - _TARGET_SHARE * incumbent.gap * incumbent.reference
        start, looseness = None, _ROOT_LOOSENESS
        if self.node_count > 0:
            looseness = np.inf
            start = parent.offsets / unit, parent.multipliers.ravel(), child.multipliers / unit
        self._step_begin = None
        return self.solver.solve(cuts, target / unit, looseness, start, self._has_time)

    def _has_time(self) -> bool:
        """Return whether a step as long as the longest so far would end in time; called before each step."""
        now = self.budget.seconds()
        if self._step_begin is not None:
            self._longest_step_seconds = max(self._longest_step_seconds, now - self._step_begin)
        self._step_begin = now
        self.is_out_of_time = self.budget.remaining() <= self._longest_step_seconds
        return not self.is_out_of_time

    def _leaf(self, child: _Pending, result: NodeResult) -> Leaf:
        """Return the leaf of a child, with the bound that its last dual point proves."""
        unit = self.relaxation.unit
        leaf = Leaf(
            self.relaxation.formulation,
            child.groups,
            child.cuts,
            result.weights.reshape(self.task.labels.shape),
            result.offsets * unit,
            result.cut_multipliers * unit,
        )
        return replace(leaf, bound=leaf_bound(self.task, leaf))

    def _improve_incumbent(self, result: NodeResult) -> None:
        """Update the incumbent by the point of a node, at some nodes after a local search."""
        W = self.relaxation.point(result.matrices)
        if W is None:
            return
        if self.incumbent.update(W) or self.node_count >= self._next_search:
            self._next_search = _NODES_PER_SEARCH * self.node_count
            self.incumbent.search_from(W)

    def _close(self, leaf: Leaf, node: TreeNode | None) -> None:
        self._closed_bound = max(self._closed_bound, leaf.bound)
        if node is not None:
            node.leaf = leaf

    def certificate(self) -> TreeCertificate:
        """Return the tree as a certificate of `bound`; nodes that are open or pending become leaves."""
        assert self._root is not None
        for open_node in self._open:
            assert open_node.node is not None
            open_node.node.leaf = open_node.leaf
        for child in self._pending:
            assert child.node is not None
            child.node.leaf = replace(child.proof, groups=child.groups)
        return TreeCertificate.of(self._root)
