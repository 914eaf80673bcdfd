"""Best-bound search of branch and bound, with the incumbent that it improves."""

import heapq
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Cut, Groups, Leaf, leaf_bound
from qcqpbench.catalog.certificate.tree import TreeCertificate, TreeNode
from qcqpbench.catalog.solver import Budget
from qcqpbench.problem.maxmargin import MaxMargin

from ._bnb_branching import Branching, Spectrum, best_branching, children, leading_pairs
from ._bnb_kernel import node_solver
from ._bnb_node import Clock, Node, NodeResult
from ._bnb_relaxation import Relaxation
from ._gip_kernel import newton_steps
from ._gip_passes import Passes, Patterns
from ._gip_paths import Rules, Status, new_paths

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
_NODES_PER_SEARCH, _MAX_SEARCHES = 4.0, 8
_SEARCH_WIDTH, _SEARCH_SHRINK, _SEARCH_STEPS, _SEARCH_TOL, _STEPS_PER_CALL = 0.1, 0.3, 60, 1e-10, 8
# With more open nodes, the search closes those with small bounds first.
_MAX_OPEN_NODES = 50_000
# Several threads bound so many nodes each, before the results are entered into the tree.
_NODES_PER_THREAD = 4
# The certificate proves the leaves once more, with rounded multipliers. It takes this share of the time of all proofs.
_CERTIFICATE_SHARE = 1.5
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
        passes = Passes(task, mixed=False)
        self.patterns = Patterns(task, passes.unit, passes.symmetric)
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
        """Replace the incumbent by the best of `W`, with unit rows, if that is better; return whether it is."""
        points = W.reshape(-1, self.task.n, self.task.m)
        margins = self.task.margin(points)
        best = int(margins.argmax())
        if not margins[best] > self.margin:
            return False
        self.point, self.margin = points[best], float(margins[best])
        self.budget.report(self.point)
        return True

    def search_from(self, W: Array) -> None:
        """Update the incumbent by the local optima that gip reaches from the points `W`, without its warm-up."""
        if not 0 < self.patterns.unit < np.inf:
            # The squares of the patterns underflow or overflow.
            return
        rules = Rules(_SEARCH_SHRINK, 0.1 * _SEARCH_TOL, _SEARCH_TOL, max_age=_SEARCH_STEPS)
        search, paths = newton_steps(self.patterns, rules), new_paths(self.patterns, W, _SEARCH_WIDTH)
        while len(paths.t) and not self.budget.exhausted():
            search.follow(paths, _STEPS_PER_CALL)
            goes = paths.status <= Status.ARRIVED
            if not goes.all():
                self.update(paths.only(~goes).W)
            # A gain that is smaller than the gap does not matter.
            paths = paths.only(goes & (paths.expected_margins >= self.target))
            paths.status[:] = Status.RUNNING


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

    def start(self, unit: float) -> tuple[Array, Array, Array]:
        """Return y, λ and μ of the parent, in multiples of `unit`."""
        return self.solved.offsets / unit, self.solved.multipliers.ravel(), self.multipliers / unit


@dataclass(frozen=True, eq=False)
class _Bounded:
    """Child with the result of its relaxation, and the leaf with the bound that its last dual point proves.

    `proof_seconds` is the time that the computation of that bound took.
    """

    child: _Pending
    result: NodeResult
    leaf: Leaf
    proof_seconds: float

    @cached_property
    def spectrum(self) -> Spectrum:
        """Leading eigenvalues and eigenvectors of the matrices of the result."""
        return leading_pairs(self.result.matrices)


class Tree:
    """Search tree of branch and bound.

    Parameters
    ----------
    relaxation
        The relaxation of the task.
    incumbent
        A point of the task; the search improves it.
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
        keep: bool = False,
    ) -> None:
        self.relaxation, self.incumbent = relaxation, incumbent
        self._root = TreeNode() if keep else None
        self.task, self.budget = relaxation.task, incumbent.budget
        self.solver = node_solver(relaxation)
        self.node_count = self.step_count = 0
        self._open: list[_OpenNode] = []
        self._pending = [self._everything()]
        self._closed_bound = -np.inf
        self.is_out_of_time = False
        self._next_search = 0.0
        self._clocks = [Clock(self.budget) for _ in range(self.budget.threads)]

    @property
    def bound(self) -> float:
        """Upper bound on the margins of all points, at any time of the search."""
        bounds = [self._closed_bound, *(-node.negative_bound for node in self._open[:1])]
        return max(*bounds, *(child.proof.bound for child in self._pending), -np.inf)

    def run(self, max_nodes: int | None = None) -> None:
        """Search, or continue, until the incumbent is proved optimal, or the limit on nodes or time is reached."""
        if self.budget.threads == 1:
            self._run(None, max_nodes)
            return
        from threadpoolctl import threadpool_limits

        # The matrices are too small for several threads of BLAS.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self.budget.threads) as executor:
            self._run(executor, max_nodes)

    def _run(self, executor: Executor | None, max_nodes: int | None) -> None:
        size = 1 if executor is None else _NODES_PER_THREAD * self.budget.threads
        while not (self.is_finished or self.is_at_limit(max_nodes)):
            while self._open and len(self._pending) < size:
                self._branch()
            if self._pending:
                self._bound_children(executor, size if max_nodes is None else min(size, max_nodes - self.node_count))

    def _everything(self) -> _Pending:
        """Return the root."""
        labels, empty = self.task.labels, tuple(() for _ in range(self.relaxation.matrix_count))
        multipliers, offsets = np.full(labels.shape, 1.0 / labels.size), np.zeros(self.relaxation.offset_count)
        leaf = Leaf(self.relaxation.formulation, empty, (), multipliers, offsets, np.zeros(0))
        leaf = replace(leaf, bound=leaf_bound(self.task, leaf))
        return _Pending(leaf, leaf, empty, (), np.zeros(0), self._root)

    @property
    def is_finished(self) -> bool:
        """True if all nodes are closed."""
        return not (self._pending or self._open)

    def is_at_limit(self, max_nodes: int | None) -> bool:
        """Return whether the search must stop."""
        self.is_out_of_time = self.is_out_of_time or self._clocks[0].remaining() <= 0
        return self.is_out_of_time or (max_nodes is not None and self.node_count >= max_nodes)

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

    def _bound_children(self, executor: Executor | None, most: int) -> None:
        """Compute the bounds of at most `most` pending children, then close them or add them to the open nodes."""
        batch, self._pending = self._pending[:most], self._pending[most:]
        bounded = self._solve(executor, batch)
        self.step_count += sum(each.result.steps for each in bounded)
        if self._root is not None:
            for clock in self._clocks:
                clock.reserve_seconds += _CERTIFICATE_SHARE * sum(each.proof_seconds for each in bounded)
        self._improve_incumbent([each.spectrum for each in bounded if each.leaf.bound > self.incumbent.target])
        for each in bounded:
            child, leaf = each.child, each.leaf
            # The proof of the parent holds for the child too: the groups of a child extend those of its parent.
            proof = leaf if leaf.bound < child.proof.bound else replace(child.proof, groups=child.groups)
            if proof.bound > self.incumbent.target and self.is_out_of_time:
                self._pending.append(replace(child, proof=proof))
            else:
                self._place(each, proof)

    def _place(self, bounded: _Bounded, proof: Leaf) -> None:
        """Close a child with the proof, or add it to the open nodes."""
        self.node_count += 1
        child, solved = bounded.child, bounded.leaf
        if proof.bound <= self.incumbent.target:
            self._close(proof, child.node)
            return
        branching = best_branching(proof.groups, bounded.result.matrices, bounded.spectrum)
        if branching.score > _MIN_SCORE * self.relaxation.trace:
            heapq.heappush(self._open, _OpenNode(-proof.bound, self.node_count, proof, solved, branching, child.node))
        else:
            # The matrices have rank one, but rounding keeps the bound above the target. The search ends with this
            # bound, unless that of another node is larger.
            self._close(proof, child.node)

    def _solve(self, executor: Executor | None, batch: list[_Pending]) -> list[_Bounded]:
        """Return the children of a batch with their bounds, of which each thread computes a part."""
        unit, incumbent = self.relaxation.unit, self.incumbent
        target = incumbent.target - _TARGET_SHARE * incumbent.gap * incumbent.reference
        is_root = self.node_count == 0
        looseness = _ROOT_LOOSENESS if is_root else np.inf
        size = -(-len(batch) // len(self._clocks))
        parts = [batch[first : first + size] for first in range(0, len(batch), size)]

        def solve(part: list[_Pending], clock: Clock) -> list[_Bounded]:
            bounded = []
            for child in part:
                clock.end_step()
                node = Node(child.groups, child.cuts, None if is_root else child.start(unit))
                result = self.solver.solve(node, target / unit, looseness, clock)
                begin = self.budget.seconds()
                leaf = self._leaf(child, result)
                bounded.append(_Bounded(child, result, leaf, self.budget.seconds() - begin))
            return bounded

        results = (map if executor is None else executor.map)(solve, parts, self._clocks)
        flat = [result for part in results for result in part]
        self.is_out_of_time = any(clock.is_out_of_time for clock in self._clocks)
        return flat

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

    def _improve_incumbent(self, spectra: list[Spectrum]) -> None:
        """Update the incumbent by the points of nodes, and sometimes after local searches."""
        points = [self.relaxation.point(*spectrum) for spectrum in spectra]
        W = np.array([point for point in points if point is not None])
        if not len(W):
            return
        if self.incumbent.update(W) or self.node_count >= self._next_search:
            self._next_search = _NODES_PER_SEARCH * self.node_count
            best = np.argsort(-self.task.margin(W), kind="stable")[:_MAX_SEARCHES]
            self.incumbent.search_from(W[best])

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
