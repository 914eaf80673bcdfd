"""Random covariance patterns with random labels, the ensemble whose capacity replica theory predicts."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng, theory
from qcqpbench.catalog.family import TaskFamily, room
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata

_CHUNK = 4


@dataclass(frozen=True)
class CovariancePerceptron(TaskFamily):
    """p patterns P^r of m inputs, labels ±1 with probability ½ for each pair of n outputs.

    ensemble=paper      P = 1 + χ, χ symmetric with zero diagonal, χ_kl = ±c with probability f/2 each, else 0.
                        With the paper's f = 0.2, c = 0.5, m = 100 these have negative eigenvalues.
    ensemble=psd        the same with a c so small that every pattern is positive semidefinite, checked
    ensemble=gaussian   P_kl ~ N(0, f c²), independent, not symmetric

    load is P̂ = p/(nm); give it or p. The patterns of a smaller p are the first of a larger one with the same seed.
    """

    name = "covariance_perceptron"

    m: int = 100
    n: int = 2
    f: float = 0.2
    c: float | None = None
    load: float | None = None
    p: int | None = None
    ensemble: Literal["paper", "psd", "gaussian"] = "paper"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.f <= 1, f"f={self.f} is not allowed; right is 0 < f <= 1")
        if self.c is None:
            # A spectral radius of at most 2c√(fm) → c < 1/(2√(fm)); the 1 leaves room for fluctuations at small m.
            psd = 1 / (2 * (1 + np.sqrt(self.f * self.m)))
            object.__setattr__(self, "c", float(psd) if self.ensemble == "psd" else 0.5)
        require(0 < (self.c or 0) < np.inf, f"c={self.c} is not allowed; right is a positive number")

    def generate(self) -> MaxMargin:
        assert self.c is not None
        p = self.pattern_count()
        if self.ensemble == "gaussian":
            bits = rng.stream(self.seed, "patterns")
            patterns = rng.normals(bits, room(p, self.m, self.m), np.sqrt(self.f) * self.c)
        else:
            patterns = self._identity_plus_sparse(p, self.c)
        patterns.flags.writeable = False
        kappa_bar = float(theory.covariance_kappa_bar(p, self.m, self.n))
        task = MaxMargin(
            patterns=patterns,
            labels=self.labels(),
            scale=float(np.sqrt(self.f) * self.c),
            metadata=Metadata(spec=self.spec, seed=self.seed, notes={"kappa_bar_theory": kappa_bar}),
            trusted=True,
        )
        if self.ensemble == "psd":
            lowest = task.smallest_eigenvalue
            right = 0.99 * self.c / (1 - min(lowest, 0))
            require(
                lowest >= 0,
                f"c={self.c} gives a pattern with the eigenvalue {lowest:.3g}; right is c <= {right:.3g}",
            )
        return task

    def _identity_plus_sparse(self, p: int, c: float) -> NDArray[np.float64]:
        """Drawn in the order of the strict lower triangle, row by row, pattern by pattern; chunks stay in the cache."""
        m, size = self.m, self.m * (self.m - 1) // 2
        patterns = room(p, m, m)
        row, column = np.tril_indices(m, -1)
        source = np.full((m, m), size)
        source[row, column] = source[column, row] = np.arange(size)
        triangle = np.ones((_CHUNK, size + 1))
        bits = rng.stream(self.seed, "patterns")
        for begin in range(0, p, _CHUNK):
            count = min(_CHUNK, p - begin)
            triangle[:count, :size] = rng.sparse_signs(bits, count, size, self.f)
            triangle[:count, :size] *= c
            # mode="clip" skips NumPy's buffering of the output; no index is out of range.
            np.take(triangle[:count], source, axis=1, out=patterns[begin : begin + count], mode="clip")
        return patterns
