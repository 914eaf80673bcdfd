"""Parity machine: the covariance perceptron with random rank-one patterns xxᵀ."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import rng
from qcqpbench.catalog.family import TaskFamily, allocate
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata


@dataclass(frozen=True)
class Parity(TaskFamily):
    """Parity machine: patterns P^r = x^r x^rᵀ with random x^r ∈ {−1, +1}^m, and a random label ±1 for each pair.

    Because w_iᵀPw_j = (w_i·x)(w_j·x), the label of a pair of outputs is the product of the signs of w_i·x and w_j·x.

    Parameters
    ----------
    m, n
        Numbers of inputs and outputs.
    load, p
        Number of patterns per weight p/(nm), or number of patterns p; load 1 by default.
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
