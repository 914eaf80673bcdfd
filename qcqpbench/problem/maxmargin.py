"""Max-margin tasks: find unit vectors that classify labelled covariance patterns with the largest margin."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

from ._arrays import Hashed, digest, float_array, locked, real_number
from .metadata import Metadata

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class MaxMargin(Hashed):
    """A max-margin task: maximize κ(W) = min over r and i<j of ζ^r_ij w_iᵀ P^r w_j over W ∈ ℝ^{n×m} with unit rows w_i.

    Every method that takes W, shape (n, m), also takes a batch, shape (b, n, m), and then returns b results. W is used
    as given: κ(W) is a margin of the task only if the rows have unit length, see `unit_rows`. The evaluation of a batch
    is one matrix product with the patterns, one pass over their p·m² numbers.

    Parameters
    ----------
    patterns
        P, shape (p, m, m), not necessarily symmetric.
    labels
        ζ, shape (p, N) of ±1; the N = n(n−1)/2 columns are the pairs (0,1), (0,2), …, (n−2,n−1).
    scale
        Unit of the rescaled margin κ̄ = κ / scale, 1 by default; √(f c²) for the family ``covariance_perceptron``.
    metadata
        Origin and reference values.
    trusted
        Whether to skip the check that every pattern is finite, which is a pass over all of them.
    held_out
        Trials to test W on, with patterns and labels as above. They are part of the id, but not of the maximization.

    Raises
    ------
    QcqpbenchError
        If shapes disagree, a pattern is not finite, a label is not ±1, or the scale is not positive.

    Notes
    -----
    Tasks with the same id compare equal; metadata are not part of the id.

    Examples
    --------
    >>> import numpy as np
    >>> task = MaxMargin(patterns=[[[1.0, 0.5], [0.5, 1.0]]], labels=[[1]])
    >>> task.p, task.m, task.n
    (1, 2, 2)
    >>> float(task.margin(np.eye(2)))
    0.5
    """

    patterns: Array
    labels: NDArray[np.int8]
    scale: float
    metadata: Metadata
    held_out: "MaxMargin | None"

    def __init__(
        self,
        patterns: ArrayLike,
        labels: ArrayLike,
        scale: float = 1.0,
        metadata: Metadata | None = None,
        trusted: bool = False,
        held_out: "MaxMargin | None" = None,
    ) -> None:
        patterns = locked(patterns, np.float64, "patterns")
        signs = locked(labels, np.float64, "labels")
        _check_shapes(patterns.shape, signs.shape)
        wrong = signs[~np.isin(signs, (-1, 1))]
        require(wrong.size == 0, f"labels must be +1 or -1, got {next(iter(wrong), None)}")
        require(trusted or _is_finite(patterns), "patterns must be finite, got inf or NaN")
        scale = real_number(scale, "scale")
        require(0 < scale < np.inf, f"scale must be positive and finite, got {scale:g}")
        metadata = Metadata() if metadata is None else metadata
        require(isinstance(metadata, Metadata), f"metadata must be a Metadata, got {type(metadata).__name__}")
        if held_out is not None:
            held_out = _held_out_trials(held_out, (patterns.shape[1], signs.shape[1]), scale)
        labels = locked(signs, np.int8, "labels")
        vars(self).update(patterns=patterns, labels=labels, scale=scale, metadata=metadata, held_out=held_out)

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
        """Load P̂ = p/(nm), patterns per synapse."""
        return self.p / (self.n * self.m)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Indices (i, j) of the N pairs of outputs i < j, in the order of the columns of the labels."""
        i, j = np.triu_indices(self.n, 1)
        return i, j

    @cached_property
    def id(self) -> str:
        """Hash (sha256) of patterns, labels and scale, and of the held-out trials if there are any."""
        held_out = () if self.held_out is None else (self.held_out.id,)
        return digest("maxmargin", self.patterns, self.labels, np.array(float(self.scale)), *held_out)

    @cached_property
    def pattern_norms(self) -> Array:
        """Norm of each pattern: the largest sum of the absolute entries of a row."""
        norms: Array = np.abs(self.patterns).sum(axis=2).max(axis=1)
        return norms

    @cached_property
    def smallest_eigenvalue(self) -> float:
        """Smallest eigenvalue of the symmetric parts of all patterns, negative if a pattern is not a covariance."""
        from scipy.linalg import lapack  # noqa: PLC0415 (slow to import, rarely needed)

        smallest = np.inf
        identity = np.eye(self.m)
        for pattern in self.patterns:
            symmetric = (pattern + pattern.T) / 2
            # A Cholesky factor of P − λ1 exists only if no eigenvalue is below λ; it costs far less than eigenvalues.
            if np.isinf(smallest) or lapack.dpotrf(symmetric - smallest * identity, overwrite_a=True)[1] != 0:
                smallest = min(smallest, float(np.linalg.eigvalsh(symmetric)[0]))
        return smallest

    def covariances(self, W: ArrayLike) -> Array:
        """Return the output covariances Q^r = W P^r Wᵀ, shape (p, n, n)."""
        W = self._weights(W)
        return W[..., None, :, :] @ self.patterns @ np.swapaxes(W, -1, -2)[..., None, :, :]

    def stabilities(self, W: ArrayLike) -> Array:
        """Return the stabilities ζ^r_ij Q^r_ij, shape (p, N); a positive one is a correct classification."""
        W = self._weights(W)
        i, j = self.pairs
        products = W[..., i, :, None] * W[..., j, None, :]
        outputs = products.reshape(-1, self.m**2) @ self.patterns.reshape(self.p, -1).T
        outputs = np.swapaxes(outputs.reshape(*W.shape[:-2], len(i), self.p), -1, -2)
        return outputs * self.labels

    def margin(self, W: ArrayLike) -> Any:
        """Return the margin κ(W), the smallest stability."""
        return self.stabilities(W).min(axis=(-2, -1))

    def kappa_bar(self, W: ArrayLike) -> Any:
        """Return the rescaled margin κ̄ = κ / scale, the quantity that theory predicts."""
        return self.margin(W) / self.scale

    def soft_margin(self, W: ArrayLike, eta: float) -> Any:
        """Return the soft margin κ_η = −(1/η) ln Σ_r Σ_{i<j} exp(−η ζ^r_ij Q^r_ij) ≤ κ, which tends to κ as η → ∞."""
        value, _ = self.soft_minimum(self.stabilities(W), eta)
        return value

    def soft_margin_gradient(self, W: ArrayLike, eta: float) -> tuple[Any, Array]:
        """Return the soft margin κ_η and its gradient with respect to W, of the shape of W."""
        W = self._weights(W)
        value, weights = self.soft_minimum(self.stabilities(W), eta)
        return value, self.stability_gradient(W, weights)

    @staticmethod
    def soft_minimum(stabilities: Array, eta: float) -> tuple[Any, Array]:
        """Return the soft minimum κ_η and its gradient, the softmin weights, for `stabilities` of shape (p, N).

        The weights have shape (p, N) and sum to one; `eta` is η > 0 as in `soft_margin`. Nothing overflows.
        """
        require(real_number(eta, "eta") > 0, f"eta must be positive, got {eta}")
        smallest = stabilities.min(axis=(-2, -1), keepdims=True)
        weights = np.exp(-eta * (stabilities - smallest))
        total = weights.sum(axis=(-2, -1), keepdims=True)
        return (smallest - np.log(total) / eta)[..., 0, 0], weights / total

    def stability_gradient(self, W: ArrayLike, weights: ArrayLike) -> Array:
        """Return the gradient with respect to W of Σ_r Σ_{i<j} weights^r_ij ζ^r_ij Q^r_ij, weights of shape (p, N)."""
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
        """Return M_ij = Σ_r weights^r_ij ζ^r_ij P^r for each pair, shape (N, m, m), from weights of shape (p, N)."""
        weights = np.asarray(weights)
        shape = self.labels.shape
        require(weights.shape[-2:] == shape, f"weights must have shape (…, {self.p}, {shape[1]}), got {weights.shape}")
        signed = np.swapaxes(weights * self.labels, -1, -2)
        mixed = signed.reshape(-1, self.p) @ self.patterns.reshape(self.p, -1)
        return mixed.reshape(*signed.shape[:-1], self.m, self.m)

    def test_accuracy(self, W: ArrayLike) -> float | None:
        """Return the share of held-out trials that W classifies correctly; None without held-out trials.

        Trials with the same labels form a class. A trial is assigned to the class whose labels ζ have the largest
        Σ_{i<j} ζ_ij Q_ij; for n = 2 and two classes, a trial is classified correctly if ζQ > 0.
        """
        if self.held_out is None:
            return None
        stabilities = self.held_out.stabilities(W)
        codes = np.unique(np.concatenate([self.labels, self.held_out.labels]), axis=0)
        scores = (stabilities * self.held_out.labels) @ codes.T
        is_true_class = (self.held_out.labels[:, None] == codes).all(axis=2)
        rivals = np.where(is_true_class, -np.inf, scores).max(axis=1)
        return float((scores[is_true_class] > rivals).mean())

    def overlaps(self, W: ArrayLike) -> Array:
        """Return the overlaps R_ij = w_i·w_j of the pairs i < j, shape (N,); theory predicts 0 for large m."""
        W = self._weights(W)
        i, j = self.pairs
        return (W @ np.swapaxes(W, -1, -2))[..., i, j]

    def active(self, W: ArrayLike, tolerance: float = 1e-6) -> NDArray[np.bool_]:
        """Return a mask of the stabilities within tolerance · scale of the margin, shape (p, N)."""
        require(real_number(tolerance, "tolerance") >= 0, f"tolerance must be 0 or more, got {tolerance}")
        stabilities = self.stabilities(W)
        smallest = stabilities.min(axis=(-2, -1), keepdims=True)
        return stabilities <= smallest + tolerance * self.scale

    def replace(self, **changes: Any) -> Self:
        """Return a copy of the task with the given attributes replaced, such as metadata or labels."""
        return replace(self, **{"trusted": "patterns" not in changes} | changes)

    def _summary(self) -> dict[str, str]:
        facts = {"p": f"{self.p}", "m": f"{self.m}", "n": f"{self.n}", "load": f"{self.load:g}"}
        facts |= {} if self.held_out is None else {"held-out trials": f"{self.held_out.p}"}
        facts |= {} if self.metadata.spec is None else {"spec": self.metadata.spec}
        return facts | {"id": self._short_id()}

    def __repr__(self) -> str:
        origin = self.metadata.spec or f"id {self._short_id()}"
        return f"<MaxMargin: p={self.p}, m={self.m}, n={self.n}, load {self.load:g}, {' '.join(origin.split())}>"

    def _weights(self, W: ArrayLike) -> Array:
        array = float_array(W, "W")
        require(
            array.ndim in (2, 3) and array.shape[-2:] == (self.n, self.m),
            f"W must have shape ({self.n}, {self.m}) or (b, {self.n}, {self.m}), got {array.shape}",
        )
        return array


def unit_rows(W: ArrayLike) -> Array:
    """Scale every row to length 1, without overflow.

    Parameters
    ----------
    W
        Array of shape (…, n, m), whose rows lie along the last axis.

    Returns
    -------
    array
        New array of the shape of W, with rows of unit length.

    Raises
    ------
    QcqpbenchError
        If a row is zero, not finite or empty.
    """
    W = float_array(W, "W")
    require(W.shape[-1:] > (0,), f"W must have rows of at least one number, got shape {W.shape}")
    largest = np.max(np.abs(W), axis=-1, keepdims=True)
    if not (np.isfinite(largest).all() and (largest > 0).all()):
        wrong = largest[~(np.isfinite(largest) & (largest > 0))]
        raise QcqpbenchError(f"every row of W must be finite and not zero, got a row with maximum magnitude {wrong[0]}")
    W = W / largest
    return W / np.linalg.norm(W, axis=-1, keepdims=True)


def check_task(task: object) -> None:
    """Raise QcqpbenchError unless `task` is a max-margin task."""
    require(isinstance(task, MaxMargin), f"task must be a MaxMargin, got {task!r:.100}")


def _check_shapes(patterns: tuple[int, ...], labels: tuple[int, ...]) -> None:
    require(len(patterns) == 3 and patterns[1] == patterns[2], f"patterns must have shape (p, m, m), got {patterns}")
    p, m, _ = patterns
    require(p >= 1, "patterns must hold at least one pattern, got none")
    require(m >= 2, f"patterns must have at least 2 channels, got {m}")
    hint = "; use labels[:, None] for two outputs" if labels == (p,) else ""
    require(len(labels) == 2 and labels[0] == p, f"labels must have shape ({p}, n(n-1)/2), got {labels}{hint}")
    n = round((1 + (1 + 8 * labels[1]) ** 0.5) / 2)
    require(
        n >= 2 and n * (n - 1) // 2 == labels[1],
        f"labels must have n(n-1)/2 columns for an n of 2 or more (1, 3, 6, 10, …), got {labels[1]}",
    )


def _held_out_trials(task: MaxMargin, sizes: tuple[int, int], scale: float) -> MaxMargin:
    """Return the trials of `task` as a task with the given scale.

    Raise QcqpbenchError unless its numbers (inputs, pairs of outputs) are `sizes`.
    """
    is_task = isinstance(task, MaxMargin)
    require(is_task, f"held_out must be a MaxMargin with the held-out trials, got {type(task).__name__}")
    held_out_sizes = task.m, task.labels.shape[1]
    require(
        sizes == held_out_sizes,
        f"held_out must have (inputs, pairs of outputs) = {sizes}, as the task, got {held_out_sizes}",
    )
    return MaxMargin(task.patterns, task.labels, scale, trusted=True)


def _is_finite(array: Array) -> bool:
    # A finite sum proves that all entries are finite, without a temporary array. A sum may also overflow, so an
    # infinite one requires the check of every entry.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())
