"""Rank-one patterns xxᵀ: the covariance perceptron as a parity machine."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import rng
from qcqpbench.catalog.family import TaskFamily, room
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata


@dataclass(frozen=True)
class Parity(TaskFamily):
    """P^r = x^r x^rᵀ with x^r ∈ {−1, +1}^m, so w_iᵀPw_j = (w_i·x)(w_j·x): two units whose signs multiply to the label.

    load is p/(nm); give it or p.
    """

    name = "parity"

    m: int = 100
    n: int = 2
    load: float | None = None
    p: int | None = None
    seed: int = 0

    def generate(self) -> MaxMargin:
        p = self.pattern_count()
        x = rng.signs(rng.stream(self.seed, "patterns"), p * self.m).reshape(p, self.m)
        patterns = np.multiply(x[:, :, None], x[:, None, :], out=room(p, self.m, self.m))
        patterns.flags.writeable = False
        return MaxMargin(
            patterns=patterns, labels=self.labels(), metadata=Metadata(spec=self.spec, seed=self.seed), trusted=True
        )
