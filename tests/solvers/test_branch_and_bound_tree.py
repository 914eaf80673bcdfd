"""Tree of branch and bound: coverage and bounds of leaves, branchings, and limits of the search."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.leaf import Cut, Leaf, leaf_bound
from qcqpbench.catalog.certificate.shor import certify_margin
from qcqpbench.catalog.certificate.tree import TreeCertificate
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.solver import Budget
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.run.attempt import solve
from qcqpbench.solvers import _bnb_tree, branch_and_bound
from qcqpbench.solvers._bnb_branching import best_branching, children, leading_pairs
from qcqpbench.solvers._bnb_interior_point import InteriorPoint
from qcqpbench.solvers._bnb_node import Settings
from qcqpbench.solvers._bnb_relaxation import SymmetricRelaxation
from qcqpbench.solvers._bnb_tree import Incumbent, Tree
from qcqpbench.solvers.branch_and_bound import search
from tests.conftest import MakeTask
from tests.support.perceptrons import perceptron, random_points

Array = NDArray[np.float64]

TREES = ["m=6,load=1,seed=3", "m=4,load=1,seed=1,ensemble=gaussian", "m=2,n=3,p=2,seed=0,ensemble=gaussian"]


def incumbent_of(task: MaxMargin) -> Incumbent:
    """Return the incumbent that gip reaches."""
    incumbent = Incumbent(task, 1e-4, Budget())
    W = solve(task, "gip[starts=8]").point
    assert W is not None
    incumbent.update(W)
    return incumbent


def finished_tree(task: MaxMargin) -> tuple[Tree, list[Leaf]]:
    tree = search(task, incumbent_of(task), keep=True)
    assert tree.is_finished
    return tree, list(tree.certificate().leaves(task))


def parts(leaf: Leaf, W: Array) -> list[Array]:
    """Return the vectors a, shape (b, d), to which the groups of each matrix refer."""
    if leaf.formulation == "symmetric":
        return [(W[:, 0] + W[:, 1]) / 2, (W[:, 0] - W[:, 1]) / 2]
    return [W.reshape(len(W), -1)]


def contains(leaf: Leaf, W: Array) -> NDArray[np.bool_]:
    """Return whether the points of `W` belong to the leaf."""
    inside = np.ones(len(W), dtype=bool)
    for groups, a in zip(leaf.groups, parts(leaf, W), strict=True):
        for H in groups:
            signs = np.sign(a @ H.T)
            inside &= (signs >= 0).all(axis=1) | (signs <= 0).all(axis=1)
    return inside


@pytest.mark.parametrize("spec", TREES)
def test_leaves_cover_all_points_and_bound_their_margins(spec: str) -> None:
    task = perceptron(spec)
    tree, leaves = finished_tree(task)
    W = np.concatenate([random_points(task, 3000), random_points(task, 3000).round()[:, :, :]])
    W = unit_rows(W[np.abs(W).max(axis=2).min(axis=1) > 0])
    margins = task.margin(W)
    covered = np.zeros(len(W), dtype=bool)
    for leaf in leaves:
        inside = contains(leaf, W)
        covered |= inside
        assert (margins[inside] <= leaf.bound).all()
        assert leaf.bound == leaf_bound(task, leaf) <= tree.incumbent.target
    assert covered.all()
    assert len(leaves) > 3
    assert tree.bound == max(leaf.bound for leaf in leaves)


@pytest.mark.parametrize("spec", TREES)
def test_every_multiplier_proves_a_valid_bound(spec: str) -> None:
    task = perceptron(spec)
    _, leaves = finished_tree(task)
    rng = np.random.default_rng(0)
    W = random_points(task, 3000)
    for leaf in leaves[:5]:
        changed = replace(
            leaf,
            multipliers=rng.exponential(size=leaf.multipliers.shape),
            cut_multipliers=rng.exponential(size=len(leaf.cuts)),
            offsets=rng.standard_normal(len(leaf.offsets)),
        )
        inside = contains(leaf, W)
        assert task.margin(W[inside]).max(initial=-np.inf) <= leaf_bound(task, changed) < np.inf


def test_invalid_multipliers_prove_nothing() -> None:
    task = perceptron("m=4,load=1,seed=1")
    one = np.full(task.labels.shape, 1 / task.p)
    leaf = Leaf("symmetric", ((np.eye(4),), ()), (Cut(0, 0, 0, 1),), one, np.zeros(1), np.ones(1))
    assert np.isfinite(leaf_bound(task, leaf))
    for change in (
        {"multipliers": -one},
        {"multipliers": 0 * one},
        {"multipliers": one * np.nan},
        {"cut_multipliers": np.array([-1.0])},
        {"offsets": np.array([np.inf])},
    ):
        assert leaf_bound(task, replace(leaf, **change)) == np.inf
    # The symmetric formulation is not valid for other patterns, nor for other numbers of outputs.
    skewed = MaxMargin(task.patterns + np.triu(np.ones((4, 4)), 1), task.labels)
    assert leaf_bound(skewed, leaf) == np.inf
    with pytest.raises(QcqpbenchError, match="n must be 2"):
        leaf_bound(perceptron("m=4,n=3,p=2"), leaf)


def test_children_cover_their_parent_and_exclude_its_matrices(make_task: MakeTask) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        root = rng.standard_normal((2, 5, 5))
        matrices = root @ root.swapaxes(1, 2)
        groups: tuple[tuple[Array, ...], ...] = ((), ())
        points = rng.standard_normal((2, 500, 5))
        inside = np.ones(500, dtype=bool)
        for _ in range(4):
            branching = best_branching(groups, matrices, leading_pairs(matrices))
            offspring = children(groups, branching)
            leaves = [Leaf("symmetric", child, (), np.ones((1, 1)), np.zeros(1), np.zeros(0)) for child, _ in offspring]
            W = np.stack([points[0] + points[1], points[0] - points[1]], axis=1)
            masks = [contains(leaf, W) for leaf in leaves]
            assert (np.any(masks, axis=0) == inside).all()
            for child, cuts in offspring:
                products = [
                    child[cut.matrix][cut.group][cut.first]
                    @ matrices[cut.matrix]
                    @ child[cut.matrix][cut.group][cut.second]
                    for cut in cuts
                ]
                assert min(products) < 0
            groups, inside = offspring[0][0], masks[0]


def test_splits_take_the_best_pair_of_one_group() -> None:
    """Compare with the score of every pair of vectors of each group, one by one."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        root = rng.standard_normal((1, 5, 5))
        matrices = root @ root.swapaxes(1, 2)
        groups = (tuple(rng.standard_normal((count, 5)) for count in (2, 4, 3)),)
        best = (0.0, 0, np.zeros(5))
        for group, H in enumerate(groups[0]):
            for pair in combinations(H, 2):
                one, two = (h / np.sqrt(h @ matrices[0] @ h) for h in pair)
                c = one @ matrices[0] @ two
                score = np.sqrt((1 - c) / 2) * (2 - 2 * c) / ((two - one) @ (two - one))
                best = max(best, (score, group, two - one), key=lambda candidate: candidate[0])
        score, group, h = best
        # A matrix without a second eigenvalue gives wedges the score 0.
        branching = best_branching(groups, matrices, (np.zeros((1, 2)), np.zeros((1, 5, 2))))
        assert branching.score == pytest.approx(score)
        assert branching.branch.group == group
        assert abs(branching.branch.vectors[0] @ h) == pytest.approx(np.linalg.norm(h))


def test_bounds_at_the_node_limit_are_valid_and_fall() -> None:
    task = perceptron("m=8,load=1,seed=3")
    shor = certify_margin(task).bound
    optimum, bounds = 0.12361637, []
    for limit in (1, 20, 60):
        attempt = solve(task, f"branch_and_bound[max_nodes={limit}]")
        assert attempt.termination is Termination.ITERATION_LIMIT
        assert attempt.iterations is not None and attempt.iterations <= limit
        assert attempt.bound is not None and attempt.bound >= optimum
        bounds.append(attempt.bound)
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > bounds[-1]
    assert bounds[0] == pytest.approx(shor, rel=1e-2)


def test_every_further_node_keeps_or_lowers_the_bound() -> None:
    """Stop also between the children of a node, of which some have not been bounded."""
    task = perceptron("m=6,load=1,seed=3")
    incumbent = incumbent_of(task)
    W = incumbent.point
    assert W is not None
    bounds = []
    for limit in range(1, 13):
        incumbent = Incumbent(task, 1e-4, Budget())
        incumbent.update(W)
        bounds.append(search(task, incumbent, max_nodes=limit).bound)
    assert bounds == sorted(bounds, reverse=True) and bounds[0] > bounds[-1] >= incumbent.margin


class CountingBudget(Budget):
    """Budget whose clock advances by one second at each reading, so that the load of the machine does not matter."""

    def __init__(self, time_limit: float) -> None:
        self.readings = 0
        super().__init__(time_limit)

    def seconds(self) -> float:
        self.readings += 1
        return float(self.readings)


@pytest.mark.parametrize("spec", ["m=30,load=1", "m=10,n=3,load=1"])
def test_time_limit_is_kept_with_a_valid_bound(spec: str) -> None:
    task = perceptron(spec)
    W = incumbent_of(task).point
    assert W is not None
    incumbent = Incumbent(task, 1e-4, CountingBudget(300))
    incumbent.update(W)
    tree = search(task, incumbent)
    assert tree.is_out_of_time and not tree.is_finished
    assert incumbent.budget.seconds() <= 310
    assert incumbent.margin <= tree.bound <= 1.02 * certify_margin(task).bound


def test_a_search_leaves_time_for_its_certificate() -> None:
    """On the clock of readings, each proof takes one second, and the certificate repeats those of the leaves."""
    task = perceptron("m=10,n=3,load=1")
    W = incumbent_of(task).point
    assert W is not None
    incumbent = Incumbent(task, 1e-4, CountingBudget(500))
    incumbent.update(W)
    tree = search(task, incumbent, keep=True)
    assert tree.is_out_of_time
    assert incumbent.budget.remaining() >= len(list(tree.certificate().leaves(task))) > 20


def test_few_open_nodes_are_kept_and_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    task = perceptron("m=6,load=1,seed=3")
    tree, _ = finished_tree(task)
    monkeypatch.setattr(_bnb_tree, "_MAX_OPEN_NODES", 2)
    narrow, leaves = finished_tree(task)
    assert narrow.incumbent.margin == pytest.approx(tree.incumbent.margin, rel=1e-9)
    assert narrow.bound <= narrow.incumbent.target
    assert max(leaf_bound(task, leaf) for leaf in leaves) == narrow.bound


def test_failed_nodes_take_the_bound_of_their_parent() -> None:
    """Let the interior-point method give up after one step at every node but the root."""
    task = perceptron("m=6,load=1,seed=3")
    root = search(task, incumbent_of(task), max_nodes=1).bound
    tree = Tree(SymmetricRelaxation(task), incumbent_of(task))
    tree.run(1)
    tree.solver = InteriorPoint(tree.relaxation, Settings(max_steps=1))
    tree.run(15)
    assert tree.node_count == 15
    assert tree.incumbent.margin <= tree.bound <= root


def test_tasks_that_are_too_large_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch_and_bound, "_MAX_ENTRIES", 1000)
    with pytest.raises(QcqpbenchError, match=r"branch_and_bound: the relaxation must have at most 1,000 entries, got"):
        solver("branch_and_bound").build(perceptron("m=8,load=1"))


def test_patterns_whose_squares_overflow_are_refused_in_one_line() -> None:
    task = perceptron("m=4,load=1")
    huge = MaxMargin(task.patterns * 1e160, task.labels)
    with pytest.raises(QcqpbenchError, match=r"branch_and_bound: entries of patterns must be at most 1e\+150"):
        solver("branch_and_bound").build(huge)


@pytest.mark.parametrize("spec", ["m=6,load=1,seed=3", "m=6,load=1,seed=3,ensemble=gaussian"])
def test_threads_prove_the_optimum_that_one_thread_proves(spec: str) -> None:
    task = perceptron(spec)
    one, three = (solve(task, "branch_and_bound[certificate=true]", threads=threads) for threads in (1, 3))
    assert one.termination is three.termination is Termination.OPTIMAL
    assert three.margin is not None and one.margin == pytest.approx(three.margin, rel=1e-4)
    assert three.tree is not None
    leaves = TreeCertificate.from_vector(three.tree).leaves(task)
    assert max(leaf_bound(task, leaf) for leaf in leaves) <= three.margin * (1 + 1e-4)
