"""Rank-one patterns xxᵀ: the covariance perceptron as a parity machine."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import rng
from qcqpbench.catalog.family import TaskFamily, allocate
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata


@dataclass(frozen=True)
class Parity(TaskFamily):
    """Patterns P^r = x^r x^rᵀ with random x^r ∈ {−1, +1}^m.

    w_iᵀPw_j = (w_i·x)(w_j·x): the signs of two units multiply to the label.

    Parameters
    ----------
    m, n
        Numbers of inputs and outputs.
    load, p
        Patterns per weight p/(nm), or their number p; load 1 by default.
    seed
        Seed of patterns and labels.
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
        patterns = np.multiply(x[:, :, None], x[:, None, :], out=allocate(p, self.m, self.m))
        patterns.flags.writeable = False
        return MaxMargin(
            patterns=patterns, labels=self.labels(), metadata=Metadata(spec=self.spec, seed=self.seed), trusted=True
        )
