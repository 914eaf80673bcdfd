"""Tree certificates: upper bounds on the margins of one task that are proved case by case.

The root of the tree has no groups, so its case is all W. Two kinds of branchings divide a case. A split appends h to a
group in one child, and −h in the other: relative to the sign of the group, hᵀa is ≥ 0 or ≤ 0. Wedges are given by three
vectors, and open a group in each of three children: {h_1, −h_2}, {h_2, −h_3} and {h_1, h_3}. One of the products
−(h_1ᵀa)(h_2ᵀa), −(h_2ᵀa)(h_3ᵀa), (h_1ᵀa)(h_3ᵀa) is ≥ 0 for any a, as the product of all three is a square. Both kinds
of children cover their parent for any vectors, also rounded ones. So the leaves of a complete tree cover all W, and the
largest of their bounds is a bound on all margins. `qcqpbench.catalog.certificate.leaf` explains groups and bounds.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin

from .leaf import FORMULATIONS, Cut, Formulation, Groups, Leaf, leaf_bound

Array = NDArray[np.float64]

# Largest difference between a stated and a recomputed bound, relative to the larger of the bound and the largest entry
# of the patterns. BLAS and LAPACK round differently on different machines.
_BOUND_TOLERANCE = 1e-10
_LEAF, _SPLIT, _WEDGES = range(3)
# Number of vectors of each kind of node.
_VECTOR_COUNTS = {_LEAF: 0, _SPLIT: 1, _WEDGES: 3}
_ARRAYS = ("nodes", "vectors", "multipliers", "offsets", "bounds", "cuts", "cut_multipliers")
_HEADER_SIZE = 9
_MAX_INDEX = 2**31


class Branch(NamedTuple):
    """Division of a case: a split of a group of a matrix by one vector, or wedges (group None) by three vectors."""

    matrix: int
    group: int | None
    vectors: Array

    def children(self, groups: Groups) -> list[Groups]:
        """Return the groups of each child of a node with the given `groups`."""
        of_matrix = groups[self.matrix]
        if self.group is None:
            place, (one, two, three) = len(of_matrix), self.vectors
            changed = [np.array(pair) for pair in ((one, -two), (two, -three), (one, three))]
        else:
            place = self.group
            changed = [np.concatenate([of_matrix[place], sign * self.vectors]) for sign in (1.0, -1.0)]
        return [
            (
                *groups[: self.matrix],
                (*of_matrix[:place], vectors, *of_matrix[place + 1 :]),
                *groups[self.matrix + 1 :],
            )
            for vectors in changed
        ]


@dataclass(eq=False)
class TreeNode:
    """Node of a tree under construction: a leaf, or a branch with its children in the order of `Branch.children`."""

    leaf: Leaf | None = None
    branch: Branch | None = None
    children: list["TreeNode"] = field(default_factory=list)

    def divide(self, branch: Branch) -> list["TreeNode"]:
        """Turn the node into a branch, and return its new children."""
        self.leaf, self.branch = None, branch
        self.children = [TreeNode() for _ in range(3 if branch.group is None else 2)]
        return self.children


@dataclass(frozen=True, eq=False)
class TreeCertificate:
    """Complete tree with the proofs of its leaves, as arrays. Nodes are in preorder.

    Parameters
    ----------
    formulation
        The formulation of all leaves.
    nodes
        Kind and two numbers of each node, shape (nodes, 3): (0, number of cuts, 0) for a leaf, (1, matrix, group) for a
        split, (2, matrix, 0) for wedges.
    vectors
        Vectors of the branches, one of a split and three of wedges, shape (vectors, order of the matrices).
    multipliers, offsets, bounds
        λ, y and the stated bound of each leaf, shapes (leaves, p, N), (leaves, length of y) and (leaves,).
    cuts, cut_multipliers
        Cuts of all leaves, as in `Cut`, and their μ, shapes (cuts, 4) and (cuts,).
    """

    formulation: Formulation
    nodes: NDArray[np.int64]
    vectors: Array
    multipliers: Array
    offsets: Array
    bounds: Array
    cuts: NDArray[np.int64]
    cut_multipliers: Array

    @classmethod
    def of(cls, root: TreeNode) -> "TreeCertificate":
        """Return the certificate of a tree, each node of which is a leaf or has children."""
        nodes, vectors, leaves, waiting = [], [], [], [root]
        while waiting:
            node = waiting.pop()
            if node.branch is not None:
                kind, group = (_WEDGES, 0) if node.branch.group is None else (_SPLIT, node.branch.group)
                nodes.append((kind, node.branch.matrix, group))
                vectors.append(node.branch.vectors)
                waiting += node.children[::-1]
            else:
                assert node.leaf is not None
                nodes.append((_LEAF, len(node.leaf.cuts), 0))
                leaves.append(node.leaf)
        order = leaves[0].multipliers.shape
        return cls(
            formulation=leaves[0].formulation,
            nodes=np.array(nodes),
            vectors=np.concatenate(vectors) if vectors else np.zeros((0, 0)),
            multipliers=np.array([leaf.multipliers for leaf in leaves]).reshape(-1, *order),
            offsets=np.array([leaf.offsets for leaf in leaves]),
            bounds=np.array([leaf.bound for leaf in leaves]),
            cuts=np.array([cut for leaf in leaves for cut in leaf.cuts], dtype=np.int64).reshape(-1, 4),
            cut_multipliers=np.concatenate([leaf.cut_multipliers for leaf in leaves]),
        )

    @property
    def bound(self) -> float:
        """The largest of the stated bounds of the leaves, which `verified_bound` checks."""
        return float(self.bounds.max())

    def leaves(self, task: MaxMargin) -> Iterator[Leaf]:
        """Yield the leaves with their stated bounds; raise QcqpbenchError if the tree is incomplete or malformed.

        The cases of the leaves cover all points only once the iteration has ended.
        """
        self._check_shapes(task)
        matrices = 2 if self.formulation == "symmetric" else 1
        waiting: list[Groups] = [tuple(() for _ in range(matrices))]
        vector = cut = leaf = 0
        for kind, number, group in self.nodes.tolist():
            require(bool(waiting), "the tree must end with its last leaf, got more nodes")
            groups = waiting.pop()
            if kind == _LEAF:
                cuts = tuple(Cut(*values) for values in self.cuts[cut : cut + number].tolist())
                _check_cuts(groups, cuts, number)
                mu = self.cut_multipliers[cut : cut + number]
                proof = self.multipliers[leaf], self.offsets[leaf], mu, float(self.bounds[leaf])
                yield Leaf(self.formulation, groups, cuts, *proof)
                cut, leaf = cut + number, leaf + 1
            else:
                is_known = number in range(matrices) and (kind == _WEDGES or group in range(len(groups[number])))
                require(is_known, f"a branch must refer to a matrix and a group of its node, got {number} and {group}")
                count = _VECTOR_COUNTS[kind]
                branch = Branch(number, None if kind == _WEDGES else group, self.vectors[vector : vector + count])
                waiting += branch.children(groups)[::-1]
                vector += count
        require(not waiting, f"every branch of the tree must end in leaves, got {len(waiting)} without nodes")
        require(cut == len(self.cuts), f"the leaves must have {len(self.cuts)} cuts in total, got {cut}")

    def _check_shapes(self, task: MaxMargin) -> None:
        """Raise QcqpbenchError if the arrays do not fit the task or each other."""
        require(self.formulation == "stacked" or task.n == 2, f"n must be 2 in a symmetric tree, got {task.n}")
        order, offset_count = (task.m, 1) if self.formulation == "symmetric" else (task.n * task.m, task.n)
        nodes = self.nodes
        require(nodes.ndim == 2 and nodes.shape[1] == 3, f"nodes must have three columns, got the shape {nodes.shape}")
        kinds = nodes[:, 0]
        require(bool(np.isin(kinds, list(_VECTOR_COUNTS)).all()), "the kind of a node must be 0, 1 or 2")
        leaves = int((kinds == _LEAF).sum())
        vectors = sum(count * int((kinds == kind).sum()) for kind, count in _VECTOR_COUNTS.items())
        shapes = {
            "vectors": (vectors, order if vectors else 0),
            "multipliers": (leaves, *task.labels.shape),
            "offsets": (leaves, offset_count),
            "bounds": (leaves,),
            "cuts": (len(self.cut_multipliers), 4),
        }
        for name, shape in shapes.items():
            got = getattr(self, name).shape
            require(got == shape, f"{name} must have the shape {shape} for this task and these nodes, got {got}")
        require(bool(np.isfinite(self.vectors).all()), "vectors must be finite, got inf or NaN")

    def verified_bound(self, task: MaxMargin) -> float:
        """Return the upper bound on the margins of all points that the tree proves.

        Nothing of the search is used but the tree itself: the bound of each leaf is recomputed, by one eigenvalue
        problem for each of its matrices, and the leaves are checked to cover all points.

        Raises
        ------
        QcqpbenchError
            If the tree is incomplete or malformed, or the stated bound of a leaf is not the recomputed one.
        """
        largest, scale = -np.inf, float(np.abs(task.patterns).max())
        for number, leaf in enumerate(self.leaves(task)):
            bound = leaf_bound(task, leaf)
            tolerance = _BOUND_TOLERANCE * max(abs(bound), scale)
            agrees = abs(bound - leaf.bound) <= tolerance if np.isfinite(bound) else bound == leaf.bound
            require(agrees, f"the bound of leaf {number} must be {bound!r} as its proof has it, got {leaf.bound!r}")
            largest = max(largest, bound)
        return largest

    def rounded(self, task: MaxMargin) -> "TreeCertificate":
        """Return the tree with its vectors and multipliers rounded to float32, and the bounds that these prove."""
        names = ("vectors", "multipliers", "cut_multipliers")
        arrays = {name: getattr(self, name).astype(np.float32).astype(np.float64) for name in names}
        tree = replace(self, **arrays)
        return replace(tree, bounds=np.array([leaf_bound(task, leaf) for leaf in tree.leaves(task)]))

    def to_vector(self) -> Array:
        """Return all numbers of the tree in one vector, for messages and results files."""
        header = [FORMULATIONS.index(self.formulation), len(self.nodes), *self.vectors.shape, *self.multipliers.shape]
        header += [self.offsets.shape[1], len(self.cuts)]
        return np.concatenate([header, *(getattr(self, name).ravel() for name in _ARRAYS)]).astype(np.float64)

    @classmethod
    def from_vector(cls, vector: Array) -> "TreeCertificate":
        """Return the tree that `to_vector` encoded; raise QcqpbenchError if `vector` is malformed."""
        header = vector[:_HEADER_SIZE] if vector.ndim == 1 else vector[:0]
        is_header = len(header) == _HEADER_SIZE and _are_indices(header) and header.min() >= 0
        require(is_header, f"a tree must begin with {_HEADER_SIZE} whole numbers, got {header[:3].tolist()} …")
        form, nodes, vectors, order, leaves, p, pairs, offsets, cuts = (int(value) for value in header)
        require(form < len(FORMULATIONS), f"the formulation of a tree must be 0 or 1, got {form}")
        shapes: dict[str, tuple[int, ...]] = {
            "nodes": (nodes, 3),
            "vectors": (vectors, order),
            "multipliers": (leaves, p, pairs),
            "offsets": (leaves, offsets),
            "bounds": (leaves,),
            "cuts": (cuts, 4),
            "cut_multipliers": (cuts,),
        }
        sizes = [math.prod(shape) for shape in shapes.values()]
        size = _HEADER_SIZE + sum(sizes)
        require(len(vector) == size, f"a tree of these sizes must have {size} numbers, got {len(vector)}")
        parts = np.split(vector[_HEADER_SIZE:], np.cumsum(sizes)[:-1])
        arrays = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return cls.from_arrays(FORMULATIONS[form], arrays)

    @classmethod
    def from_arrays(cls, formulation: str, arrays: Mapping[str, NDArray[Any]]) -> "TreeCertificate":
        """Return the tree of arrays of any numeric type; raise QcqpbenchError if indices are not whole numbers."""
        form = next((form for form in FORMULATIONS if form == formulation), None)
        if form is None:
            raise QcqpbenchError(f"the formulation must be {' or '.join(FORMULATIONS)}, got {formulation!r:.40}")
        values: dict[str, NDArray[Any]] = {name: arrays[name].astype(np.float64) for name in _ARRAYS}
        for name in ("nodes", "cuts"):
            require(_are_indices(values[name]), f"{name} must hold whole numbers below {_MAX_INDEX}")
            values[name] = values[name].astype(np.int64)
        return cls(formulation=form, **values)


def _are_indices(values: Array) -> bool:
    return bool(((np.abs(values) < _MAX_INDEX) & (values == np.floor(values))).all())


def _check_cuts(groups: Groups, cuts: tuple[Cut, ...], count: int) -> None:
    """Raise QcqpbenchError unless there are `count` cuts, each between two vectors of one group."""
    if len(cuts) != count or count < 0:
        raise QcqpbenchError(f"a leaf must have as many cuts as it states, got {len(cuts)} of {count}")
    for cut in cuts:
        is_known = cut.matrix in range(len(groups)) and cut.group in range(len(groups[cut.matrix]))
        vectors = range(len(groups[cut.matrix][cut.group])) if is_known else range(0)
        require(cut.first in vectors and cut.second in vectors, f"a cut must join vectors of a group, got {tuple(cut)}")
