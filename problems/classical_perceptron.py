"""Classical perceptron with random patterns: a convex QP, or a QCQP that is not convex beyond capacity."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from qcqpbench import rng, theory
from qcqpbench.catalog.family import Family, pattern_count
from qcqpbench.errors import require
from qcqpbench.problem.formulations import FormulationName
from qcqpbench.problem.metadata import Metadata, TheoryPrediction
from qcqpbench.problem.qcqp import QCQP


@dataclass(frozen=True)
class ClassicalPerceptron(Family):
    """Classical perceptron: the largest margin κ = min_r ζ^r w·x^r of a unit vector w, for random patterns and labels.

    The entries of the patterns x^r, r = 1, …, p, and the labels ζ^r are ±1. For large m, the patterns are not linearly
    separable beyond p = 2m, and the largest margin is negative.

    Parameters
    ----------
    m
        Number of inputs.
    load, p
        Number of patterns per input p/m, or number of patterns p; load 1 by default.
    seed
        Seed of patterns and labels.
    formulation
        "min_norm", the default: minimize ‖w‖² subject to ζ^r w·x^r ≥ 1, a convex QP. The margin is 1/‖w‖. The problem
        is infeasible if the patterns are not linearly separable. "epigraph": maximize t subject to ζ^r w·x^r ≥ t and
        ‖w‖² = 1, which is feasible at every load; t is the margin. The problem is not convex if the margin is negative.
    """

    name = "classical_perceptron"

    m: int = 100
    load: float | None = None
    p: int | None = None
    seed: int = 0
    formulation: FormulationName | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.m >= 1, f"m must be at least 1, got {self.m}")
        require(self.seed >= 0, f"seed must be 0 or more, got {self.seed}")
        if self.load is None and self.p is None:
            object.__setattr__(self, "load", 1.0)
        if self.formulation == "min_norm":
            # None and the default denote the same problem, so they have the same spec.
            object.__setattr__(self, "formulation", None)
        self._pattern_count()

    def theory(self) -> TheoryPrediction:
        """Return the margins that theory predicts, and the objectives; replica symmetry is exact for p ≤ 2m."""
        kappa_bar_rs = float(theory.classical_kappa_bar(self._pattern_count(), self.m))
        kappa_bar = theory.full_rsb_from_table(kappa_bar_rs, power=1)
        return TheoryPrediction(kappa_bar, kappa_bar_rs, self._objective(kappa_bar), self._objective(kappa_bar_rs))

    def _objective(self, margin: float | None) -> float | None:
        """Return the objective at a margin; None if there is none."""
        if self.formulation == "epigraph" or margin is None:
            return margin
        return 1 / margin**2 if margin > 0 else None

    def _pattern_count(self) -> int:
        return pattern_count(self.load, self.p, self.m, self.m)

    def generate(self) -> QCQP:
        p, m = self._pattern_count(), self.m
        x = rng.signs(rng.stream(self.seed, "patterns"), p * m).reshape(p, m)
        labels = rng.signs(rng.stream(self.seed, "labels"), p)
        row, column = np.divmod(np.arange(p * m), m)
        stabilities = 1 + row, column, (x * labels[:, None]).ravel()
        metadata = Metadata(spec=self.spec, seed=self.seed, notes=self.theory().notes())
        return (_epigraph if self.formulation == "epigraph" else _min_norm)(p, m, stabilities, metadata)


def _min_norm(p: int, m: int, stabilities: tuple[Any, ...], metadata: Metadata) -> QCQP:
    """Return the convex QP; `stabilities` are the terms of ζ^r w·x^r in row r."""
    return QCQP.from_terms(
        m,
        quadratic=(np.zeros(m, dtype=int), np.arange(m), np.arange(m), np.ones(m)),
        linear=stabilities,
        lower=np.ones(p),
        upper=np.full(p, np.inf),
        metadata=metadata,
    )


def _epigraph(p: int, m: int, stabilities: tuple[Any, ...], metadata: Metadata) -> QCQP:
    """Return the problem with the margin as its last variable; `stabilities` are the terms of ζ^r w·x^r in row r."""
    # The rows of t: the objective, and all stabilities.
    margins = np.arange(p + 1), np.full(p + 1, m), np.where(np.arange(p + 1) == 0, 1.0, -1.0)
    return QCQP.from_terms(
        m + 1,
        quadratic=(np.full(m, p + 1), np.arange(m), np.arange(m), np.ones(m)),
        linear=tuple(np.concatenate(parts) for parts in zip(margins, stabilities, strict=True)),
        lower=np.append(np.zeros(p), 1.0),
        upper=np.append(np.full(p, np.inf), 1.0),
        sense="maximize",
        metadata=metadata,
    )
