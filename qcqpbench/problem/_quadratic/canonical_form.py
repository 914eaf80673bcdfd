"""The canonical form of a QCQP: a unique representation, with checks and a hash."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qcqpbench.errors import require

from .._arrays import Hashed, digest, locked, real_number
from ..metadata import Metadata
from .arguments import check_range

Sense = Literal["minimize", "maximize"]
Vector = NDArray[np.float64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False, repr=False)
class CanonicalForm(Hashed):
    """The functions, bounds and names of a QCQP.

        f_r(x) = Σ_k quadratic[r, k] · x_i x_j + Σ_i linear[r, i] · x_i (+ constant for r = 0),   (i, j) = products[k]

    Row 0 is the objective, row r the r-th constraint lower[r−1] ≤ f_r(x) ≤ upper[r−1]. An entry of ``quadratic`` is the
    coefficient of x_i x_j in the polynomial, without a factor ½.
    """

    sense: Sense
    products: Indices
    quadratic: sparse.csr_array
    linear: sparse.csr_array
    constant: float
    lower: Vector
    upper: Vector
    x_lower: Vector
    x_upper: Vector
    start: Vector | None = None
    variable_names: tuple[str, ...] | None = None
    constraint_names: tuple[str, ...] | None = None
    metadata: Metadata = field(default_factory=Metadata)

    def __post_init__(self) -> None:
        require(self.sense in get_args(Sense), f"sense must be 'minimize' or 'maximize', got {self.sense!r}")
        for name in ("lower", "upper", "x_lower", "x_upper"):
            self._lock(name, np.float64)
            shape = getattr(self, name).shape
            require(len(shape) == 1, f"{name} must have one dimension, got shape {shape}")
        self._lock("products", np.int32)
        if self.start is not None:
            self._lock("start", np.float64)
        require(isinstance(self.metadata, Metadata), f"metadata must be a Metadata, got {type(self.metadata).__name__}")
        for name, matrix in (("quadratic", self.quadratic), ("linear", self.linear)):
            is_sparse = isinstance(matrix, sparse.csr_array)
            require(is_sparse, f"{name} must be a scipy.sparse.csr_array, got {type(matrix).__name__}")
        self._check_shapes()
        self._check_names()
        self._check_coefficients()
        check_range(self.lower, self.upper, lambda k: f"constraint {k}")
        check_range(self.x_lower, self.x_upper, lambda k: f"variable {k}")

    def _check_shapes(self) -> None:
        c, n = self.linear.shape[0] - 1, self.linear.shape[1]
        shapes = {
            "products": (self.quadratic.shape[1], 2),
            "quadratic": (1 + c, len(self.products)),
            "lower": (c,),
            "upper": (c,),
            "x_lower": (n,),
            "x_upper": (n,),
        } | ({} if self.start is None else {"start": (n,)})
        for name, shape in shapes.items():
            got = getattr(self, name).shape
            require(got == shape, f"{name} must have shape {shape} for {n} variables and {c} constraints, got {got}")

    def _check_names(self) -> None:
        for name, count in (("variable_names", len(self.x_lower)), ("constraint_names", len(self.lower))):
            names = text_names(getattr(self, name), name)
            object.__setattr__(self, name, names)
            if names is not None:
                different = len(set(names))
                require(len(names) == count, f"{name} must hold {count} names, got {len(names)}")
                require(different == count, f"{name} must be unique, got {different} different names of {count}")

    def _check_coefficients(self) -> None:
        for name, matrix in (("quadratic", self.quadratic), ("linear", self.linear)):
            require(
                matrix.has_canonical_format,
                f"{name} must be in canonical form, got duplicate or unsorted entries; use QCQP.from_terms",
            )
            require(bool(np.isfinite(matrix.data).all()), f"coefficients of {name} must be finite, got inf or NaN")
            _lock_matrix(matrix)
        object.__setattr__(self, "constant", real_number(self.constant, "constant"))
        require(bool(np.isfinite(self.constant)), f"constant must be finite, got {self.constant}")
        n = len(self.x_lower)
        i, j = self.products.T.astype(np.int64)
        increasing = bool((np.diff(i * n + j) > 0).all())
        canonical = increasing and bool((j >= 0).all() and (j <= i).all() and (i < n).all())
        requirement = f"pairs (i, j) with {n} > i >= j >= 0 in increasing order"
        beginning = self.products[:3].tolist()
        require(canonical, f"products must be {requirement}, got {beginning} at the beginning; use QCQP.from_terms")

    @property
    def n_variables(self) -> int:
        """Number of variables n."""
        return len(self.x_lower)

    @property
    def n_constraints(self) -> int:
        """Number of constraints c."""
        return len(self.lower)

    @cached_property
    def id(self) -> str:
        """Hash (sha256) of the mathematical problem, without names, start and metadata."""
        quadratic, linear = self.quadratic, self.linear
        return digest(
            "qcqp",
            self.sense,
            np.array(self.constant),
            quadratic.indptr.astype(np.int64),
            self.products[quadratic.indices],
            quadratic.data,
            linear.indptr.astype(np.int64),
            linear.indices.astype(np.int32),
            linear.data,
            self.lower,
            self.upper,
            self.x_lower,
            self.x_upper,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        _lock_matrix(self.quadratic)
        _lock_matrix(self.linear)

    def _lock(self, name: str, dtype: Any) -> None:
        object.__setattr__(self, name, locked(getattr(self, name), dtype, name))


def text_names(names: Iterable[str] | None, name: str) -> tuple[str, ...] | None:
    """Return the argument `name`, a list of text or None, as a tuple or None; raise QcqpbenchError for other values."""
    if names is None:
        return None
    is_list = isinstance(names, Iterable) and not isinstance(names, str)
    require(is_list, f"{name} must be a list of text, got {type(names).__name__}")
    listed = tuple(names)
    wrong = [entry for entry in listed if not isinstance(entry, str)]
    require(not wrong, f"{name} must be a list of text, got {next(iter(wrong), None)!r:.40} in it")
    return listed


def _lock_matrix(matrix: sparse.csr_array) -> None:
    """Make the arrays of a matrix read-only."""
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
