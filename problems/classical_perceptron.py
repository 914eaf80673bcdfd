"""The classical perceptron on mean features, a convex QP: the baseline of the covariance perceptron."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import rng, theory
from qcqpbench.catalog.family import Family, pattern_count
from qcqpbench.errors import require
from qcqpbench.problem.metadata import Metadata
from qcqpbench.problem.qcqp import QCQP


@dataclass(frozen=True)
class ClassicalPerceptron(Family):
    """Minimize ‖w‖² s.t. ζ^r w·x^r ≥ 1 for p patterns x^r ∈ {−1, +1}^m with random labels ζ^r; the margin is 1/‖w‖.

    Infeasible when the patterns are not separable, for large m beyond p = 2m. load is p/m; give it or p.
    """

    name = "classical_perceptron"

    m: int = 100
    load: float | None = None
    p: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.m >= 1, f"m={self.m} is not allowed; right is at least 1 input")
        require(self.seed >= 0, f"seed={self.seed} is not allowed; right is a whole number from 0 up")
        if self.load is None and self.p is None:
            object.__setattr__(self, "load", 1.0)
        pattern_count(self.load, self.p, self.m, self.m)

    def generate(self) -> QCQP:
        p, m = pattern_count(self.load, self.p, self.m, self.m), self.m
        x = rng.signs(rng.stream(self.seed, "patterns"), p * m).reshape(p, m)
        labels = rng.signs(rng.stream(self.seed, "labels"), p)
        row, column = np.divmod(np.arange(p * m), m)
        kappa_bar = float(theory.classical_kappa_bar(p, m))
        return QCQP.from_terms(
            m,
            quadratic=(np.zeros(m, dtype=int), np.arange(m), np.arange(m), np.ones(m)),
            linear=(1 + row, column, (x * labels[:, None]).ravel()),
            lower=np.ones(p),
            upper=np.full(p, np.inf),
            metadata=Metadata(spec=self.spec, seed=self.seed, notes={"kappa_bar_theory": kappa_bar}),
        )
