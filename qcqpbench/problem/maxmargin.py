"""MaxMargin, the task: given covariance patterns and labels, find the unit vectors of the largest margin."""

from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

from ._arrays import digest, locked
from .metadata import Metadata

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MaxMargin:
    """Maximize κ(W) = min over r and i<j of ζ^r_ij w_iᵀ P^r w_j over W ∈ ℝ^{n×m} with rows w_i of unit length.

    patterns   P, shape (p, m, m), not assumed symmetric
    labels     ζ, shape (p, N) of ±1; the N = n(n−1)/2 columns are the pairs (0,1), (0,2), …, (n−2,n−1)
    trusted    the maker vouches that every pattern is finite: saves the pass over them that checks it
    scale      unit of the rescaled margin κ̄ = κ / scale; √(f c²) for the paper's ensemble
    held_out   trials to test W on, patterns and labels as above: part of the id, not of what is maximized

    Every method that takes W, shape (n, m), takes a batch as well, shape (b, n, m), and then returns b results. W is
    used as it is given: κ is the task's only when the rows have unit length, see `unit_rows`. One evaluation of a batch
    is one matrix product with the patterns, one pass over their p·m² numbers.
    """

    patterns: Array
    labels: NDArray[np.int8]
    scale: float = 1.0
    metadata: Metadata = field(default_factory=Metadata)
    trusted: InitVar[bool] = False
    held_out: "MaxMargin | None" = None

    def __post_init__(self, trusted: bool) -> None:
        object.__setattr__(self, "patterns", locked(self.patterns, np.float64, "patterns"))
        labels = locked(self.labels, np.float64, "labels")
        shape = self.patterns.shape
        require(len(shape) == 3 and shape[1] == shape[2], f"patterns have shape {shape}, needed: (p, m, m)")
        require(shape[0] >= 1, "there are no patterns; at least one is needed")
        require(shape[1] >= 2, f"patterns have m={shape[1]} channels, at least 2 are needed")
        require(
            labels.ndim == 2 and labels.shape[0] == shape[0],
            f"labels have shape {labels.shape}, needed: ({shape[0]}, n(n-1)/2) for {shape[0]} patterns",
        )
        n = round((1 + (1 + 8 * labels.shape[1]) ** 0.5) / 2)
        require(
            n >= 2 and n * (n - 1) // 2 == labels.shape[1],
            f"labels have {labels.shape[1]} columns, needed: n(n-1)/2 of them, so 1, 3, 6, 10, …",
        )
        require(bool(np.isin(labels, (-1, 1)).all()), "labels must be +1 or -1")
        require(trusted or _is_finite(self.patterns), "patterns hold a value that is not finite")
        require(np.isfinite(self.scale) and self.scale > 0, f"scale={self.scale} must be positive")
        object.__setattr__(self, "labels", locked(labels, np.int8, "labels"))
        if self.held_out is not None:
            shapes = [(task.m, task.labels.shape[1]) for task in (self, self.held_out)]
            require(
                shapes[0] == shapes[1],
                f"held-out trials have {shapes[1]} inputs and pairs of outputs, needed: {shapes[0]}",
            )
            held_out = MaxMargin(self.held_out.patterns, self.held_out.labels, self.scale, trusted=True)
            object.__setattr__(self, "held_out", held_out)

    @property
    def p(self) -> int:
        """Number of patterns."""
        return self.patterns.shape[0]

    @property
    def m(self) -> int:
        """Number of inputs."""
        return self.patterns.shape[1]

    @cached_property
    def n(self) -> int:
        """Number of outputs."""
        return round((1 + (1 + 8 * self.labels.shape[1]) ** 0.5) / 2)

    @property
    def load(self) -> float:
        """P̂ = p/(nm), patterns per synapse."""
        return self.p / (self.n * self.m)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(i, j) of the N pairs of outputs i < j, in the order of the labels' columns."""
        i, j = np.triu_indices(self.n, 1)
        return i, j

    @cached_property
    def id(self) -> str:
        """sha256 of patterns, labels and scale, and of the held-out trials if there are any."""
        rest = () if self.held_out is None else (self.held_out.id,)
        return digest("maxmargin", self.patterns, self.labels, np.array(float(self.scale)), *rest)

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of all patterns (of their symmetric parts): negative when one is no covariance."""
        from scipy.linalg import lapack  # noqa: PLC0415 (slow to import, rarely needed)

        smallest = np.inf
        identity = np.eye(self.m)
        for pattern in self.patterns:
            symmetric = (pattern + pattern.T) / 2
            # A Cholesky factor of P - λ1 exists only if P has nothing below λ: far cheaper than its eigenvalues.
            if np.isinf(smallest) or lapack.dpotrf(symmetric - smallest * identity, overwrite_a=True)[1] != 0:
                smallest = min(smallest, float(np.linalg.eigvalsh(symmetric)[0]))
        return smallest

    def covariances(self, W: ArrayLike) -> Array:
        """Q^r = W P^r Wᵀ, shape (p, n, n)."""
        W = self._weights(W)
        return W[..., None, :, :] @ self.patterns @ np.swapaxes(W, -1, -2)[..., None, :, :]

    def stabilities(self, W: ArrayLike) -> Array:
        """ζ^r_ij Q^r_ij, how far each pattern is on its right side, shape (p, N)."""
        W = self._weights(W)
        i, j = self.pairs
        products = W[..., i, :, None] * W[..., j, None, :]
        outputs = products.reshape(-1, self.m**2) @ self.patterns.reshape(self.p, -1).T
        outputs = np.swapaxes(outputs.reshape(*W.shape[:-2], len(i), self.p), -1, -2)
        return outputs * self.labels

    def margin(self, W: ArrayLike) -> Any:
        """κ(W), the smallest stability."""
        return self.stabilities(W).min(axis=(-2, -1))

    def kappa_bar(self, W: ArrayLike) -> Any:
        """The rescaled margin κ̄ = κ / scale, which theory predicts."""
        return self.margin(W) / self.scale

    def soft_margin(self, W: ArrayLike, eta: float) -> Any:
        """κ_η = −(1/η) ln Σ_r Σ_{i<j} exp(−η ζ^r_ij Q^r_ij) ≤ κ, equal as η → ∞."""
        value, _ = self.soft_minimum(self.stabilities(W), eta)
        return value

    def soft_margin_gradient(self, W: ArrayLike, eta: float) -> tuple[Any, Array]:
        """κ_η and its gradient by W, of W's shape."""
        W = self._weights(W)
        value, weights = self.soft_minimum(self.stabilities(W), eta)
        return value, self.stability_gradient(W, weights)

    @staticmethod
    def soft_minimum(stabilities: Array, eta: float) -> tuple[Any, Array]:
        """κ_η of stabilities (p, N) and their softmin weights, which sum to one; shifted so that nothing overflows."""
        require(eta > 0, f"eta={eta} must be positive")
        smallest = stabilities.min(axis=(-2, -1), keepdims=True)
        weights = np.exp(-eta * (stabilities - smallest))
        total = weights.sum(axis=(-2, -1), keepdims=True)
        return (smallest - np.log(total) / eta)[..., 0, 0], weights / total

    def stability_gradient(self, W: ArrayLike, weights: ArrayLike) -> Array:
        """The gradient by W of Σ_r Σ_{i<j} weights^r_ij ζ^r_ij Q^r_ij, weights of shape (p, N)."""
        W = self._weights(W)
        i, j = self.pairs
        mixture = self.mixture(weights)
        gradient = np.zeros(W.shape)
        for k, (first, second) in enumerate(zip(i, j, strict=True)):
            M = mixture[..., k, :, :]
            gradient[..., first, :] += (M @ W[..., second, :, None])[..., 0]
            gradient[..., second, :] += (W[..., first, None, :] @ M)[..., 0, :]
        return gradient

    def mixture(self, weights: ArrayLike) -> Array:
        """M_ij = Σ_r weights^r_ij ζ^r_ij P^r for each pair, shape (N, m, m), from weights of shape (p, N)."""
        weights = np.asarray(weights)
        shape = self.labels.shape
        require(weights.shape[-2:] == shape, f"weights have shape {weights.shape}, needed: {shape} or a batch of them")
        signed = np.swapaxes(weights * self.labels, -1, -2)
        mixed = signed.reshape(-1, self.p) @ self.patterns.reshape(self.p, -1)
        return mixed.reshape(*signed.shape[:-1], self.m, self.m)

    def test_accuracy(self, W: ArrayLike) -> float | None:
        """The share of held-out trials whose own labels ζ have a larger Σ_{i<j} ζ_ij Q_ij than all other labels there
        are: a class is what has the same labels. For n = 2 and two classes, ζQ > 0. None without held-out trials."""
        if self.held_out is None:
            return None
        own = self.held_out.stabilities(W)
        codes = np.unique(np.concatenate([self.labels, self.held_out.labels]), axis=0)
        scores = (own * self.held_out.labels) @ codes.T
        is_own = (self.held_out.labels[:, None] == codes).all(axis=2)
        rivals = np.where(is_own, -np.inf, scores).max(axis=1)
        return float((scores[is_own] > rivals).mean())

    def overlaps(self, W: ArrayLike) -> Array:
        """R_ij = w_i·w_j of the pairs i < j, shape (N,); theory says 0 for large m."""
        W = self._weights(W)
        i, j = self.pairs
        return (W @ np.swapaxes(W, -1, -2))[..., i, j]

    def active(self, W: ArrayLike, tolerance: float = 1e-6) -> NDArray[np.bool_]:
        """Which stabilities come within tolerance · scale of the margin, shape (p, N)."""
        stabilities = self.stabilities(W)
        smallest = stabilities.min(axis=(-2, -1), keepdims=True)
        return stabilities <= smallest + tolerance * self.scale

    def _weights(self, W: ArrayLike) -> Array:
        array = np.asarray(W, dtype=np.float64)
        require(
            array.ndim in (2, 3) and array.shape[-2:] == (self.n, self.m),
            f"W has shape {array.shape}, needed: ({self.n}, {self.m}) or a batch (b, {self.n}, {self.m})",
        )
        return array


def unit_rows(W: ArrayLike) -> Array:
    """W with every row scaled to length 1, safe against overflow; a row that is zero or not finite is an error."""
    W = np.asarray(W, dtype=np.float64)
    largest = np.max(np.abs(W), axis=-1, keepdims=True)
    if not (np.isfinite(largest).all() and (largest > 0).all()):
        raise QcqpbenchError("a row of W is zero or not finite and has no direction")
    W = W / largest
    return W / np.linalg.norm(W, axis=-1, keepdims=True)


def _is_finite(array: Array) -> bool:
    # A sum is finite unless an entry is not (or it overflows): one pass, no temporary of the array's size.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())
