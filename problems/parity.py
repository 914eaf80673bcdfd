"""Rank-one patterns xxᵀ: the covariance perceptron as a parity machine."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import random
from qcqpbench.errors import require
from qcqpbench.family import Family, pattern_count, room
from qcqpbench.maxmargin import MaxMargin
from qcqpbench.metadata import Metadata


@dataclass(frozen=True)
class Parity(Family):
    """P^r = x^r x^rᵀ with x^r ∈ {−1, +1}^m, so w_iᵀPw_j = (w_i·x)(w_j·x): two units whose signs multiply to the label.

    load is p/(nm); give it or p.
    """

    name = "parity"

    m: int = 100
    n: int = 2
    load: float | None = None
    p: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.m >= 2, f"m={self.m} is not allowed; a covariance needs at least 2 inputs")
        require(self.n >= 2, f"n={self.n} is not allowed; a covariance needs at least 2 outputs")
        require(self.seed >= 0, f"seed={self.seed} is not allowed; right is a whole number from 0 up")
        if self.load is None and self.p is None:
            object.__setattr__(self, "load", 1.0)
        self._pattern_count()

    def _pattern_count(self) -> int:
        labels = self.n * (self.n - 1) // 2
        return pattern_count(self.load, self.p, self.n * self.m, self.m**2 + labels)

    def generate(self) -> MaxMargin:
        p = self._pattern_count()
        pairs = self.n * (self.n - 1) // 2
        x = random.signs(random.stream(self.seed, "patterns"), p * self.m).reshape(p, self.m)
        patterns = np.multiply(x[:, :, None], x[:, None, :], out=room(p, self.m, self.m))
        patterns.flags.writeable = False
        labels = random.signs(random.stream(self.seed, "labels"), p * pairs).reshape(p, pairs)
        return MaxMargin(
            patterns=patterns, labels=labels, metadata=Metadata(spec=self.spec, seed=self.seed), trusted=True
        )
