"""Classical perceptron with random patterns, a convex QP: the baseline for the covariance perceptron."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import rng, theory
from qcqpbench.catalog.family import Family, pattern_count
from qcqpbench.errors import require
from qcqpbench.problem.metadata import Metadata, TheoryPrediction
from qcqpbench.problem.qcqp import QCQP


@dataclass(frozen=True)
class ClassicalPerceptron(Family):
    """Classical perceptron: minimize ‖w‖² subject to ζ^r w·x^r ≥ 1 for random patterns x^r and random labels ζ^r.

    The entries of the patterns x^r, r = 1, …, p, and the labels ζ^r are ±1. The margin is 1/‖w‖. The problem is
    infeasible if the patterns are not linearly separable; for large m, this happens beyond p = 2m.

    Parameters
    ----------
    m
        Number of inputs.
    load, p
        Number of patterns per input p/m, or number of patterns p; load 1 by default.
    seed
        Seed of patterns and labels.
    """

    name = "classical_perceptron"

    m: int = 100
    load: float | None = None
    p: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.m >= 1, f"m must be at least 1, got {self.m}")
        require(self.seed >= 0, f"seed must be 0 or more, got {self.seed}")
        if self.load is None and self.p is None:
            object.__setattr__(self, "load", 1.0)
        self._pattern_count()

    def theory(self) -> TheoryPrediction:
        """Return the margins that theory predicts; replica symmetry is exact for p ≤ 2m."""
        kappa_bar_rs = float(theory.classical_kappa_bar(self._pattern_count(), self.m))
        return TheoryPrediction(theory.full_rsb_from_table(kappa_bar_rs, power=1), kappa_bar_rs)

    def _pattern_count(self) -> int:
        return pattern_count(self.load, self.p, self.m, self.m)

    def generate(self) -> QCQP:
        p, m = self._pattern_count(), self.m
        x = rng.signs(rng.stream(self.seed, "patterns"), p * m).reshape(p, m)
        labels = rng.signs(rng.stream(self.seed, "labels"), p)
        row, column = np.divmod(np.arange(p * m), m)
        return QCQP.from_terms(
            m,
            quadratic=(np.zeros(m, dtype=int), np.arange(m), np.arange(m), np.ones(m)),
            linear=(1 + row, column, (x * labels[:, None]).ravel()),
            lower=np.ones(p),
            upper=np.full(p, np.inf),
            metadata=Metadata(spec=self.spec, seed=self.seed, notes=self.theory().notes()),
        )
