"""Formulations: the same max-margin task as different QCQPs. Each encodes a task and a start, and decodes a point.

The variables of both are the rows of W one after the other, w_1, …, w_n ∈ ℝᵐ; the constraints are first the
stabilities, pair of outputs by pair of outputs and pattern by pattern, then the row lengths.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from qcqpbench.errors import nearest, require

from .maxmargin import MaxMargin, unit_rows
from .metadata import BestKnown, Bound, Metadata
from .qcqp import QCQP

Array = NDArray[np.float64]

_CHUNK_BYTES = 1 << 21


class Formulation(ABC):
    """A way to write a MaxMargin task as a QCQP."""

    name: ClassVar[str]

    @abstractmethod
    def encode(self, task: MaxMargin) -> QCQP:
        """The task as a QCQP."""

    @abstractmethod
    def encode_start(self, task: MaxMargin, W: ArrayLike) -> Array:
        """The point x that stands for W with its rows scaled to unit length; feasible wherever one that does so is."""

    @abstractmethod
    def objective(self, margin: float) -> float:
        """The objective at the best point that reaches a margin; NaN where there is none."""

    @abstractmethod
    def margin(self, objective: float) -> float:
        """The margin that an objective stands for, the inverse of `objective`; turns a bound into one on the margin."""

    def decode(self, task: MaxMargin, x: ArrayLike) -> Array:
        """W of unit rows, the point of the task that x stands for."""
        x = np.asarray(x, dtype=np.float64)
        size = task.n * task.m
        require(
            x.ndim == 1 and x.size >= size,
            f"x has shape {x.shape}, {self.name} needs at least {size} numbers",
        )
        return unit_rows(x[:size].reshape(task.n, task.m))

    def _metadata(self, task: MaxMargin) -> Metadata:
        known, bounds, reference = task.metadata.best_known, task.metadata.bounds, task.metadata.reference
        return replace(
            task.metadata,
            reference=None if reference is None else self.encode_start(task, reference),
            best_known=None if known is None else BestKnown(self.objective(known.value), known.source),
            bounds=tuple(Bound(self.objective(bound.value), bound.kind) for bound in bounds),
            notes={**task.metadata.notes, "formulation": self.name, "task_id": task.id},
        )


class MinNorm(Formulation):
    """The paper's: minimize ‖w̃_1‖² s.t. ζ^r_ij w̃_iᵀP^r w̃_j ≥ 1 and ‖w̃_i‖² = ‖w̃_1‖²; the margin is 1/‖w̃_1‖².
    Infeasible when no positive margin exists."""

    name = "min_norm"

    def encode(self, task: MaxMargin) -> QCQP:
        lengths = np.zeros((task.n, task.n))
        lengths[:, 0] = 1.0
        lengths[1:, 1:] = -np.eye(task.n - 1)
        products, quadratic = _quadratic(task, lengths[:1], lengths[1:])
        count = task.labels.size
        return QCQP(
            sense="minimize",
            products=products,
            quadratic=quadratic,
            linear=sparse.csr_array((count + task.n, task.n * task.m)),
            constant=0.0,
            lower=np.repeat([1.0, 0.0], [count, task.n - 1]),
            upper=np.repeat([np.inf, 0.0], [count, task.n - 1]),
            x_lower=np.full(task.n * task.m, -np.inf),
            x_upper=np.full(task.n * task.m, np.inf),
            metadata=self._metadata(task),
        )

    def encode_start(self, task: MaxMargin, W: ArrayLike) -> Array:
        W = _rows(task, W)
        margin = task.margin(W)
        return (W / np.sqrt(margin) if margin > 0 else W).ravel()

    def objective(self, margin: float) -> float:
        return 1 / margin if margin > 0 else np.nan

    def margin(self, objective: float) -> float:
        return 1 / objective if objective > 0 else np.inf


class Epigraph(Formulation):
    """Maximize t s.t. ζ^r_ij w_iᵀP^r w_j ≥ t and ‖w_i‖² = 1; t is the last variable. Always feasible, so negative
    margins are found too."""

    name = "epigraph"

    def encode(self, task: MaxMargin) -> QCQP:
        products, quadratic = _quadratic(task, np.zeros((1, task.n)), np.eye(task.n))
        count, size = task.labels.size, task.n * task.m + 1
        slack = np.repeat([1.0, -1.0], [1, count])
        return QCQP(
            sense="maximize",
            products=products,
            quadratic=quadratic,
            linear=sparse.csr_array(
                (slack, np.full(1 + count, size - 1), np.minimum(np.arange(count + task.n + 2), count + 1)),
                shape=(1 + count + task.n, size),
            ),
            constant=0.0,
            lower=np.repeat([0.0, 1.0], [count, task.n]),
            upper=np.repeat([np.inf, 1.0], [count, task.n]),
            x_lower=np.full(size, -np.inf),
            x_upper=np.full(size, np.inf),
            metadata=self._metadata(task),
        )

    def encode_start(self, task: MaxMargin, W: ArrayLike) -> Array:
        W = _rows(task, W)
        return np.append(W.ravel(), task.margin(W))

    def objective(self, margin: float) -> float:
        return margin

    def margin(self, objective: float) -> float:
        return objective


FORMULATIONS: dict[str, Formulation] = {each.name: each for each in (MinNorm(), Epigraph())}


def formulation(name: str) -> Formulation:
    """The formulation of that name."""
    if name not in FORMULATIONS:
        raise nearest(name, FORMULATIONS, "formulation")
    return FORMULATIONS[name]


def _rows(task: MaxMargin, W: ArrayLike) -> Array:
    shape = (task.n, task.m)
    require(np.shape(W) == shape, f"W has shape {np.shape(W)}, needed: {shape}")
    return unit_rows(W)


def _quadratic(task: MaxMargin, objective: Array, lengths: Array) -> tuple[NDArray[np.int32], sparse.csr_array]:
    """The products and the quadratic rows of a formulation: the objective, the stabilities, the lengths.

    objective, lengths   shape (rows, n): the coefficients of ‖w_1‖²..‖w_n‖² in a row

    Written straight into the final arrays, chunk by chunk: a detour over coordinates would need several times their
    memory.
    """
    p, m, n = task.p, task.m, task.n
    used = np.zeros((m, m), dtype=bool)
    counts = np.empty(p, dtype=np.int64)
    step = max(1, _CHUNK_BYTES // (8 * m * m))
    for begin in range(0, p, step):
        nonzero = task.patterns[begin : begin + step] != 0
        used |= nonzero.any(axis=0)
        counts[begin : begin + step] = np.count_nonzero(nonzero, axis=(1, 2))

    # The product table has a row for every w_j[l], with columns for every w_i[k], i < j, and for w_j[l] itself.
    exists = np.kron(np.tri(n, k=-1, dtype=bool), used.T) | np.eye(n * m, dtype=bool)
    products = np.argwhere(exists).astype(np.int32)
    number = np.full(exists.shape, -1, dtype=np.int32)
    number[exists] = np.arange(len(products), dtype=np.int32)

    of_stabilities = int(counts.sum())
    pairs = list(zip(*task.pairs, strict=True))
    edges = [_lengths(rows, number.diagonal(), m) for rows in (objective, lengths)]
    row_counts = np.concatenate([edges[0][0], np.tile(counts, len(pairs)), edges[1][0]])
    indptr = np.concatenate([[0], np.cumsum(row_counts)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    data = np.empty(indptr[-1])
    first = len(edges[0][1])
    ends = (slice(0, first), slice(first + len(pairs) * of_stabilities, None))
    for place, (_, columns, values) in zip(ends, edges, strict=True):
        indices[place], data[place] = columns, values

    for begin in range(0, p, step):
        block = np.ascontiguousarray(task.patterns[begin : begin + step].transpose(0, 2, 1)).reshape(-1, m * m)
        nonzero = block != 0
        values = block[nonzero]
        places = np.nonzero(nonzero)[1]
        here = first + int(counts[:begin].sum())
        for k, (i, j) in enumerate(pairs):
            target = slice(here + k * of_stabilities, here + k * of_stabilities + len(values))
            labels = np.repeat(task.labels[begin : begin + step, k], counts[begin : begin + step])
            np.multiply(values, labels, out=data[target])
            indices[target] = number[j * m : (j + 1) * m, i * m : (i + 1) * m].reshape(-1)[places]
    return products, sparse.csr_array((data, indices, indptr), shape=(len(row_counts), len(products)))


def _lengths(rows: Array, diagonal: NDArray[np.int32], m: int) -> tuple[NDArray[np.int64], NDArray[np.int32], Array]:
    """Entries of rows Σ_i rows[·, i] ‖w_i‖²: how many a row, their columns, their values."""
    nonzero = np.repeat(rows != 0, m, axis=1)
    columns = np.broadcast_to(diagonal, nonzero.shape)[nonzero]
    return np.count_nonzero(nonzero, axis=1), columns, np.repeat(rows, m, axis=1)[nonzero]
