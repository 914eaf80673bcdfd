"""Formulations of max-margin tasks as QCQPs, which encode a task and a start, and decode a point.

The variables begin with the rows w_1, …, w_n ∈ ℝᵐ of W. The constraints are the stabilities, ordered by pair of outputs
and then by pattern, followed by the row lengths.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from qcqpbench.errors import nearest, require

from ._arrays import float_array
from .maxmargin import MaxMargin, check_task, unit_rows
from .metadata import BestKnown, Bound, Metadata
from .qcqp import QCQP

Array = NDArray[np.float64]

# The allowed values of the parameter `formulation` of solvers.
FormulationName = Literal["epigraph", "min_norm"]
_CHUNK_BYTES = 1 << 21


class Formulation(ABC):
    """Base class of formulations of a `MaxMargin` task as a QCQP.

    Attributes
    ----------
    name
        One of `FormulationName`.
    positive_only
        Whether the formulation represents only tasks with a positive margin.
    """

    name: ClassVar[FormulationName]
    positive_only: ClassVar[bool] = False

    @abstractmethod
    def encode(self, task: MaxMargin) -> QCQP:
        """Return the task as a QCQP."""

    @abstractmethod
    def encode_start(self, task: MaxMargin, W: ArrayLike) -> Array:
        """Return the point x of the QCQP, shape (n_variables,), that represents `W`, shape (n, m), scaled to unit rows.

        x is feasible, except in min_norm for a W whose margin is not positive.
        """

    @abstractmethod
    def objective(self, margin: float) -> float:
        """Return the best objective over the feasible x whose W has the margin `margin`; NaN if there are none."""

    @abstractmethod
    def margin(self, objective: float) -> float:
        """Return the margin whose best objective is `objective`; a bound on the objective gives one on the margin."""

    def decode(self, task: MaxMargin, x: ArrayLike) -> Array:
        """Return the W of shape (n, m), scaled to unit rows, that the first n·m entries of `x` hold."""
        check_task(task)
        x = float_array(x, "x")
        size = task.n * task.m
        require(
            x.ndim == 1 and x.size >= size,
            f"x must be a vector of at least {size} numbers for {self.name}, got shape {x.shape}",
        )
        return unit_rows(x[:size].reshape(task.n, task.m))

    def _metadata(self, task: MaxMargin) -> Metadata:
        """Return the metadata of `task`, with its reference point and values converted to this formulation."""
        best_known, bounds, reference = task.metadata.best_known, task.metadata.bounds, task.metadata.reference
        return replace(
            task.metadata,
            reference=None if reference is None else self.encode_start(task, reference),
            best_known=None if best_known is None else BestKnown(self.objective(best_known.value), best_known.source),
            bounds=tuple(Bound(self.objective(bound.value), bound.kind) for bound in bounds),
            notes={**task.metadata.notes, "formulation": self.name, "task_id": task.id},
        )


class MinNorm(Formulation):
    """The formulation of the paper: minimize ‖w̃_1‖² s.t. ζ^r_ij w̃_iᵀP^r w̃_j ≥ 1 and ‖w̃_i‖² = ‖w̃_1‖².

    The margin is 1/‖w̃_1‖². The problem is infeasible if no positive margin exists.
    """

    name = "min_norm"
    positive_only = True

    def encode(self, task: MaxMargin) -> QCQP:
        check_task(task)
        lengths = np.zeros((task.n, task.n))
        lengths[:, 0] = 1.0
        lengths[1:, 1:] = -np.eye(task.n - 1)
        products, quadratic = _quadratic(task, lengths[:1], lengths[1:])
        count = task.labels.size
        return QCQP._canonical(
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
        W = _unit_weights(task, W)
        margin = task.margin(W)
        return (W / np.sqrt(margin) if margin > 0 else W).ravel()

    def objective(self, margin: float) -> float:
        return 1 / margin if margin > 0 else np.nan

    def margin(self, objective: float) -> float:
        return 1 / objective if objective > 0 else np.inf


class Epigraph(Formulation):
    """The epigraph formulation: maximize t s.t. ζ^r_ij w_iᵀP^r w_j ≥ t and ‖w_i‖² = 1; t is the last variable.

    The problem is always feasible, even if all margins are negative.
    """

    name = "epigraph"

    def encode(self, task: MaxMargin) -> QCQP:
        check_task(task)
        products, quadratic = _quadratic(task, np.zeros((1, task.n)), np.eye(task.n))
        count, size = task.labels.size, task.n * task.m + 1
        slack = np.repeat([1.0, -1.0], [1, count])
        return QCQP._canonical(
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
        W = _unit_weights(task, W)
        return np.append(W.ravel(), task.margin(W))

    def objective(self, margin: float) -> float:
        return margin

    def margin(self, objective: float) -> float:
        return objective


FORMULATIONS: dict[str, Formulation] = {item.name: item for item in (MinNorm(), Epigraph())}


def formulation(name: str) -> Formulation:
    """Return the formulation of max-margin tasks as QCQPs called `name`.

    Parameters
    ----------
    name
        "min_norm" or "epigraph".

    Returns
    -------
    Formulation
        Its `encode` converts a task to a QCQP, `encode_start` converts W to x, and `decode` converts x to W.

    Raises
    ------
    QcqpbenchError
        If there is no formulation of that name.

    Examples
    --------
    >>> formulation("epigraph").objective(0.5), formulation("min_norm").objective(0.5)
    (0.5, 2.0)
    """
    require(isinstance(name, str), f"name must be one of {', '.join(FORMULATIONS)}, got {name!r:.100}")
    if name not in FORMULATIONS:
        raise nearest(name, FORMULATIONS, "formulation")
    return FORMULATIONS[name]


def _unit_weights(task: MaxMargin, W: ArrayLike) -> Array:
    """Return `W` scaled to unit rows; raise QcqpbenchError unless it has shape (n, m)."""
    check_task(task)
    shape = (task.n, task.m)
    require(np.shape(W) == shape, f"W must have shape {shape}, got {np.shape(W)}")
    return unit_rows(W)


def _quadratic(task: MaxMargin, objective: Array, lengths: Array) -> tuple[NDArray[np.int32], sparse.csr_array]:
    """Return `products` and `quadratic` of a `QCQP` with the rows objective, stabilities and row lengths.

    The rows are written into the final arrays in chunks, because coordinate format needs several times the memory.

    Parameters
    ----------
    objective, lengths
        Coefficients of ‖w_1‖²..‖w_n‖² in each row, shape (rows, n).
    """
    used, counts = _count_entries(task)
    products, number = _number_products(used, task.n)
    first, last = (_length_entries(rows, number.diagonal(), task.m) for rows in (objective, lengths))
    row_counts = np.concatenate([first[0], np.tile(counts, task.labels.shape[1]), last[0]])
    indptr = np.concatenate([[0], np.cumsum(row_counts)])
    indices = np.empty(indptr[-1], dtype=np.int32)
    data = np.empty(indptr[-1])
    begin, end = len(first[1]), len(data) - len(last[1])
    indices[:begin], data[:begin] = first[1:]
    indices[end:], data[end:] = last[1:]
    _fill_stabilities(task, counts, number, indices[begin:end], data[begin:end])
    return products, sparse.csr_array((data, indices, indptr), shape=(len(row_counts), len(products)))


def _chunks(task: MaxMargin) -> Iterator[slice]:
    """Return an iterator over slices of the patterns, each of at most `_CHUNK_BYTES` or of one pattern."""
    step = max(1, _CHUNK_BYTES // (8 * task.m**2))
    return (slice(begin, begin + step) for begin in range(0, task.p, step))


def _count_entries(task: MaxMargin) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return a mask (m, m) of the entries that are nonzero in any pattern, and the nonzero counts, shape (p,)."""
    used = np.zeros((task.m, task.m), dtype=bool)
    counts = np.empty(task.p, dtype=np.int64)
    for chunk in _chunks(task):
        nonzero = task.patterns[chunk] != 0
        used |= nonzero.any(axis=0)
        counts[chunk] = np.count_nonzero(nonzero, axis=(1, 2))
    return used, counts


def _number_products(used: NDArray[np.bool_], n: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the products of variables that occur, shape (K, 2), and a table of their numbers, shape (n·m, n·m).

    Entry (j·m + l, i·m + k) of the table is the number of the product w_j[l] w_i[k], i < j or the same variable, and −1
    for a product that does not occur. `used` is the mask of `_count_entries`.
    """
    exists = np.kron(np.tri(n, k=-1, dtype=bool), used.T) | np.eye(n * len(used), dtype=bool)
    products = np.argwhere(exists).astype(np.int32)
    number = np.full(exists.shape, -1, dtype=np.int32)
    number[exists] = np.arange(len(products), dtype=np.int32)
    return products, number


def _fill_stabilities(
    task: MaxMargin,
    counts: NDArray[np.int64],
    number: NDArray[np.int32],
    indices: NDArray[np.int32],
    data: Array,
) -> None:
    """Write the CSR rows of the stabilities into `indices` and `data`, ordered by pair of outputs, then by pattern.

    `counts` are the nonzero counts of the patterns, and `number` is the table of `_number_products`.
    """
    m, pair_size = task.m, int(counts.sum())
    for chunk in _chunks(task):
        block = np.ascontiguousarray(task.patterns[chunk].transpose(0, 2, 1)).reshape(-1, m * m)
        nonzero = block != 0
        values = block[nonzero]
        places = np.nonzero(nonzero)[1]
        begin = int(counts[: chunk.start].sum())
        for k, (i, j) in enumerate(zip(*task.pairs, strict=True)):
            target = slice(begin + k * pair_size, begin + k * pair_size + len(values))
            labels = np.repeat(task.labels[chunk, k], counts[chunk])
            np.multiply(values, labels, out=data[target])
            indices[target] = number[j * m : (j + 1) * m, i * m : (i + 1) * m].reshape(-1)[places]


def _length_entries(
    rows: Array, diagonal: NDArray[np.int32], m: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], Array]:
    """Return the CSR parts (entries per row, columns, values) of the functions Σ_i rows[r, i] ‖w_i‖².

    `diagonal` holds the numbers of the n·m squares of variables.
    """
    nonzero = np.repeat(rows != 0, m, axis=1)
    columns = np.broadcast_to(diagonal, nonzero.shape)[nonzero]
    return np.count_nonzero(nonzero, axis=1), columns, np.repeat(rows, m, axis=1)[nonzero]
