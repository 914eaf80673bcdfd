"""Tree certificates: what they prove, and that changed ones are refused."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qcqpbench.catalog.certificate.global_certificate import GlobalCertificate, read_certificate
from qcqpbench.catalog.certificate.leaf import Leaf
from qcqpbench.catalog.certificate.tree import Branch, TreeCertificate, TreeNode
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.run.attempt import certify_globally, solve
from tests.support.perceptrons import perceptron, random_points

Array = NDArray[np.float64]
Change = Callable[[TreeCertificate], TreeCertificate]

SYMMETRIC, STACKED = "m=6,load=1,seed=3", "m=4,load=1,seed=1,ensemble=gaussian"
THREE_OUTPUTS = "m=2,n=3,p=2,seed=0,ensemble=gaussian"
TASKS = {spec: perceptron(spec) for spec in (SYMMETRIC, STACKED, THREE_OUTPUTS)}


@pytest.fixture(scope="module")
def certificates() -> dict[str, GlobalCertificate]:
    return {spec: certify_globally(task) for spec, task in TASKS.items()}


@pytest.mark.parametrize("spec", TASKS)
def test_certificate_proves_the_optimum(spec: str, certificates: dict[str, GlobalCertificate]) -> None:
    task, certificate = TASKS[spec], certificates[spec]
    certificate.check(task)
    assert certificate.gap <= 1.001e-4
    assert certificate.problem_id == task.id
    assert certificate.margin == pytest.approx(float(task.margin(unit_rows(certificate.point))), rel=1e-12)
    assert task.margin(random_points(task, 5000)).max() <= certificate.bound
    assert certificate.solver.startswith("branch_and_bound[")


def test_bound_of_a_leaf_follows_from_its_numbers(certificates: dict[str, GlobalCertificate]) -> None:
    """Compute the bounds of a symmetric tree by sums over patterns and a general eigenvalue."""
    task, tree = TASKS[SYMMETRIC], certificates[SYMMETRIC].tree
    for leaf in itertools.islice(tree.leaves(task), 10):
        weights = leaf.multipliers[:, 0] / leaf.multipliers.sum()
        M = sum(w * label * P for w, label, P in zip(weights, task.labels[:, 0], task.patterns, strict=True))
        largest = []
        for k, sign in enumerate((1.0, -1.0)):
            total = sign * M
            for (matrix, group, first, second), mu in zip(leaf.cuts, leaf.cut_multipliers, strict=True):
                if matrix == k:
                    product = np.outer(leaf.groups[k][group][first], leaf.groups[k][group][second])
                    total = total + mu * (product + product.T) / 2
            largest.append(np.linalg.eigvals(total).real.max())
        assert leaf.bound == pytest.approx(max(largest), rel=1e-10)
        assert (leaf.multipliers >= 0).all() and (leaf.cut_multipliers >= 0).all()


def _changed(name: str, place: Any, value: Callable[[Any], Any]) -> Change:
    def change(tree: TreeCertificate) -> TreeCertificate:
        array = getattr(tree, name).copy()
        array[place] = value(array[place])
        return replace(tree, **{name: array})

    return change


def _without_last_leaf(tree: TreeCertificate) -> TreeCertificate:
    cuts = len(tree.cuts) - int(tree.nodes[-1, 1])
    return replace(
        tree,
        nodes=tree.nodes[:-1],
        multipliers=tree.multipliers[:-1],
        offsets=tree.offsets[:-1],
        bounds=tree.bounds[:-1],
        cuts=tree.cuts[:cuts],
        cut_multipliers=tree.cut_multipliers[:cuts],
    )


def _with_node(*node: int) -> Change:
    return lambda tree: replace(tree, nodes=np.concatenate([tree.nodes, [node]]))


_ROOT, _LAST = 0, -1
TAMPERED: dict[str, tuple[Change, str]] = {
    "one leaf removed": (_without_last_leaf, "every branch of the tree must end in leaves, got 1 without nodes"),
    "one multiplier changed": (_changed("multipliers", (3, 0, 0), lambda old: old + 1e-6), "bound of leaf 3 must be"),
    "a multiplier negative": (_changed("multipliers", (3, 0, 0), lambda _: -1e-3), "bound of leaf 3 must be inf"),
    "a cut's multiplier changed": (_changed("cut_multipliers", _LAST, lambda old: 2 * old), "bound of leaf .* must be"),
    "an offset not finite": (_changed("offsets", (2, 0), lambda _: np.nan), "bound of leaf 2 must be inf"),
    "a wedge widened": (
        _changed("vectors", _ROOT, lambda h: unit_rows((h + 0.01)[None])[0]),
        "bound of leaf .* must be",
    ),
    "a vector not finite": (_changed("vectors", (0, 0), lambda _: np.inf), "vectors must be finite"),
    "a leaf's bound lowered": (_changed("bounds", 4, lambda old: 0.9 * old), "bound of leaf 4 must be"),
    "an unknown kind of node": (_changed("nodes", (_ROOT, 0), lambda _: 3), "kind of a node must be 0, 1 or 2"),
    "a branch made a leaf": (_changed("nodes", _ROOT, lambda _: [0, 0, 0]), "vectors must have the shape"),
    "wedges of no matrix": (_changed("nodes", (_ROOT, 1), lambda _: 2), "must refer to a matrix and a group"),
    "a split of no group": (_changed("nodes", _ROOT, lambda _: [1, 0, 0]), "vectors must have the shape"),
    "fewer cuts than stated": (_changed("nodes", (_LAST, 1), lambda old: old + 1), "as many cuts as it states"),
    "cuts of no leaf": (_changed("nodes", (_LAST, 1), lambda old: old - 1), "bound of leaf .* must be"),
    "a negative number of cuts": (_changed("nodes", (_LAST, 1), lambda _: -1), "as many cuts as it states"),
    "a cut of no group": (_changed("cuts", (0, 1), lambda _: 99), "a cut must join vectors of a group"),
    "a cut with a later vector": (_changed("cuts", (0, 3), lambda _: 99), "a cut must join vectors of a group"),
    "a negative index": (_changed("cuts", (0, 2), lambda _: -1), "a cut must join vectors of a group"),
    "a node after the tree": (_with_node(2, 0, 0), "vectors must have the shape"),
    "a leaf after the tree": (_with_node(0, 0, 0), "multipliers must have the shape"),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_changed_certificates_are_refused(
    kind: str, certificates: dict[str, GlobalCertificate], tmp_path: Path
) -> None:
    """Refuse them in memory and after they were written to a file."""
    change, expected = TAMPERED[kind]
    task, certificate = TASKS[SYMMETRIC], certificates[SYMMETRIC]
    changed = replace(certificate, tree=change(certificate.tree))
    with pytest.raises(QcqpbenchError, match=expected):
        changed.check(task)
    changed.write(tmp_path / "changed.npz")
    with pytest.raises(QcqpbenchError, match=expected):
        read_certificate(tmp_path / "changed.npz").check(task)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"margin": 0.2}, r"margin must be 0\.\d+ according to the certificate, got 0.2"),
        ({"bound": 0.01}, r"bound must be 0\.\d+ according to the certificate, got 0.01"),
        ({"point": np.zeros((2, 6))}, "point must be finite without rows of zeros"),
        ({"point": np.eye(2, 5)}, r"point must have the shape \(2, 6\), got \(2, 5\)"),
        ({"problem_id": "0" * 64}, "problem_id must be .*, got 000"),
    ],
)
def test_wrong_claims_are_refused(
    change: dict[str, Any], expected: str, certificates: dict[str, GlobalCertificate]
) -> None:
    with pytest.raises(QcqpbenchError, match=expected):
        replace(certificates[SYMMETRIC], **change).check(TASKS[SYMMETRIC])


def test_certificate_of_another_task_is_refused(certificates: dict[str, GlobalCertificate]) -> None:
    other = perceptron("m=6,load=1,seed=4")
    with pytest.raises(QcqpbenchError, match="problem_id must be"):
        certificates[SYMMETRIC].check(other)
    with pytest.raises(QcqpbenchError, match="bound of leaf 0 must be"):
        replace(certificates[SYMMETRIC], problem_id=other.id).check(other)
    with pytest.raises(QcqpbenchError, match="n must be 2 in a symmetric tree, got 3"):
        certificates[SYMMETRIC].tree.verified_bound(TASKS[THREE_OUTPUTS])
    with pytest.raises(QcqpbenchError, match="must have the shape"):
        certificates[STACKED].tree.verified_bound(TASKS[THREE_OUTPUTS])


@pytest.mark.parametrize("spec", TASKS)
def test_files_and_vectors_hold_the_whole_certificate(
    spec: str, certificates: dict[str, GlobalCertificate], tmp_path: Path
) -> None:
    certificate = certificates[spec]
    certificate.write(tmp_path / "proof.npz")
    read = read_certificate(tmp_path / "proof.npz")
    for name in ("problem", "problem_id", "solver", "version", "command", "margin", "bound", "gap"):
        assert getattr(read, name) == getattr(certificate, name)
    np.testing.assert_array_equal(read.point, certificate.point)
    for tree in (read.tree, TreeCertificate.from_vector(certificate.tree.to_vector())):
        assert tree.formulation == certificate.tree.formulation
        np.testing.assert_array_equal(tree.to_vector(), certificate.tree.to_vector())
    assert read.tree.verified_bound(TASKS[spec]) == certificate.bound


@given(st.data())
def test_malformed_vectors_are_refused(data: st.DataObject) -> None:
    """Change, shorten or extend the vector of a tree; it is read or refused, but never fails otherwise."""
    leaf = Leaf("stacked", ((),), (), np.ones((2, 1)), np.zeros(2), np.zeros(0), 1.0)
    vector = TreeCertificate.of(TreeNode(leaf)).to_vector()
    place = data.draw(st.integers(0, len(vector) - 1))
    vector[place] = data.draw(st.floats())
    vector = np.resize(vector, data.draw(st.integers(0, len(vector) + 2)))
    task = MaxMargin(np.ones((2, 3, 3)), [[1], [1]])
    try:
        assert TreeCertificate.from_vector(vector).verified_bound(task) >= 0
    except QcqpbenchError as error:
        assert "\n" not in str(error)


def test_files_of_other_kinds_are_refused(certificates: dict[str, GlobalCertificate], tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.eye(2))
    certificates[STACKED].write(tmp_path / "cut.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:200])
    for name, expected in {"other": "must be a global certificate", "cut": "damaged", "none": "cannot be read"}.items():
        with pytest.raises(QcqpbenchError, match=rf"{name}\.npz: .*{expected}") as caught:
            read_certificate(tmp_path / f"{name}.npz")
        assert "\n" not in str(caught.value)
    with pytest.raises(QcqpbenchError, match="must be a new file or a global certificate to be replaced"):
        certificates[STACKED].write(tmp_path / "other.npz")


def test_any_vectors_of_a_branch_cover_its_parent() -> None:
    """Take three groups with random and degenerate vectors; every point is in a child if it is in the parent."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((2000, 3)).round(1)
    for trial in range(50):
        vectors = rng.standard_normal((4, 3)).round(trial % 3)
        groups = Branch(0, None, vectors[:3]).children(((),))
        assert len(groups) == 3
        inside = [_contains(child[0], points) for child in groups]
        assert np.any(inside, axis=0).all()
        for child, parent in zip(groups, inside, strict=True):
            halves = [_contains(half[0], points) for half in Branch(0, 0, vectors[3:]).children(child)]
            assert (np.any(halves, axis=0) == parent).all()


def _contains(groups: tuple[Array, ...], points: Array) -> NDArray[np.bool_]:
    signs = [np.sign(points @ H.T) for H in groups]
    return np.all([(sign >= 0).all(axis=1) | (sign <= 0).all(axis=1) for sign in signs], axis=0)


@pytest.mark.parametrize("spec", ["m=8,load=1,seed=3", "m=6,load=1,seed=3,ensemble=gaussian"])
def test_search_that_is_stopped_early_proves_its_bound(spec: str) -> None:
    task = perceptron(spec)
    attempt = solve(task, "branch_and_bound[max_nodes=20,certificate=true]")
    assert attempt.tree is not None and attempt.bound is not None
    tree = TreeCertificate.from_vector(attempt.tree)
    assert tree.verified_bound(task) == pytest.approx(attempt.bound, rel=1e-12)
    assert task.margin(random_points(task, 3000)).max() < attempt.bound


def test_solvers_without_a_tree_are_refused() -> None:
    with pytest.raises(QcqpbenchError, match=r"branch_and_bound\[.*\] must return a tree certificate, got none"):
        certify_globally(TASKS[STACKED], "branch_and_bound")
