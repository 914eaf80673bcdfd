"""Covariance perceptron with random patterns and labels, whose capacity replica theory predicts."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng, theory
from qcqpbench.catalog.family import TaskFamily, allocate
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata, TheoryPrediction

# Few enough patterns to stay in the cache of the processor.
_PATTERNS_PER_CHUNK = 4


@dataclass(frozen=True)
class CovariancePerceptron(TaskFamily):
    """Covariance perceptron: random m × m patterns P^r, with a random label ±1 for each pair of n outputs.

    The patterns of a problem are the first patterns of a problem with a larger p and the same seed.

    Parameters
    ----------
    m, n
        Numbers of inputs and outputs.
    f, c
        Density f of the nonzero entries of χ, more than 0 and at most 1, and their absolute value c; see `ensemble`. By
        default, c is 0.5, or for "psd" 1/(2 + 2√(fm)).
    load, p
        Number of patterns per weight P̂ = p/(nm), or number of patterns p; load 1 by default.
    ensemble
        Distribution of a pattern P.
        "paper": P = 1 + χ, where 1 is the identity and χ is symmetric with zero diagonal and χ_kl = ±c with probability
        f/2 each, else 0. With the values of the paper, f = 0.2, c = 0.5 and m = 100, P has negative eigenvalues.
        "psd": as "paper", but c must be so small that every pattern is positive semidefinite; this is checked.
        "gaussian": independent entries P_kl ~ N(0, f c²); P is not symmetric.
    seed
        Seed of patterns and labels.
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
        require(0 < self.f <= 1, f"f must be more than 0 and at most 1, got {self.f}")
        if self.c is None:
            # For large m, the spectral radius of χ is at most 2c√(fm); the added 1 allows for fluctuations at small m.
            psd = 1 / (2 * (1 + np.sqrt(self.f * self.m)))
            object.__setattr__(self, "c", float(psd) if self.ensemble == "psd" else 0.5)
        require(0 < (self.c or 0) < np.inf, f"c must be positive and finite, got {self.c}")

    def theory(self) -> TheoryPrediction:
        """Return the margins that theory predicts, which are the same for all ensembles."""
        kappa_bar_rs = float(theory.covariance_kappa_bar(self.pattern_count(), self.m, self.n))
        return TheoryPrediction(theory.full_rsb_from_table(kappa_bar_rs, power=2), kappa_bar_rs)

    def generate(self) -> MaxMargin:
        assert self.c is not None
        p = self.pattern_count()
        if self.ensemble == "gaussian":
            bits = rng.stream(self.seed, "patterns")
            patterns = rng.normals(bits, allocate(p, self.m, self.m), np.sqrt(self.f) * self.c)
        else:
            patterns = self._identity_plus_sparse(p, self.c)
        patterns.flags.writeable = False
        task = MaxMargin(
            patterns=patterns,
            labels=self.labels(),
            scale=float(np.sqrt(self.f) * self.c),
            metadata=Metadata(spec=self.spec, seed=self.seed, notes=self.theory().notes()),
            trusted=True,
        )
        if self.ensemble == "psd":
            smallest = task.smallest_eigenvalue
            largest_c = 0.99 * self.c / (1 - min(smallest, 0))
            require(
                smallest >= 0,
                f"c must be at most {largest_c:.3g} for these patterns to be positive semidefinite, got {self.c}: "
                f"a pattern has the eigenvalue {smallest:.3g}",
            )
        return task

    def _identity_plus_sparse(self, p: int, c: float) -> NDArray[np.float64]:
        """Return `p` patterns 1 + χ with entries ±c in χ, shape (p, m, m).

        The entries of the strict lower triangles are drawn by pattern, then by row.
        """
        m, size = self.m, self.m * (self.m - 1) // 2
        patterns = allocate(p, m, m)
        row, column = np.tril_indices(m, -1)
        source = np.full((m, m), size)
        source[row, column] = source[column, row] = np.arange(size)
        triangle = np.ones((_PATTERNS_PER_CHUNK, size + 1))
        bits = rng.stream(self.seed, "patterns")
        for begin in range(0, p, _PATTERNS_PER_CHUNK):
            count = min(_PATTERNS_PER_CHUNK, p - begin)
            triangle[:count, :size] = rng.sparse_signs(bits, count, size, self.f)
            triangle[:count, :size] *= c
            # mode="clip" avoids a buffer that NumPy allocates for the output; no index is out of range.
            np.take(triangle[:count], source, axis=1, out=patterns[begin : begin + count], mode="clip")
        return patterns
