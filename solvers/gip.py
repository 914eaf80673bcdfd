"""Graduated interior point: many paths from a smooth landscape, the best to the end, on unit spheres. docs/gip.md"""

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench import random
from qcqpbench.errors import require
from qcqpbench.maxmargin import MaxMargin, unit_rows
from qcqpbench.solution import Solution
from qcqpbench.solver import Budget, Run, TaskSolver
from qcqpbench.status import Termination

from ._gip_state import Batch, Passes, warm_up

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gip(TaskSolver):
    """Maximize t + μ Σ ln(g − t) over W and t by Newton's method, g the stabilities, while μ goes from large to zero.

    starts      paths in lockstep: the given start and random ones, the best of which are followed to the end; by
                default 10 and 9 more for each stability per weight
    mu0         the first μ, in units of (typical stability)/(number of stabilities); the larger, the smoother
    shrink      what μ is multiplied with once a path has converged at it
    tol         KKT residual to stop at, in units of the typical stability
    precision   mixed: passes over the patterns in float32 until μ is small, then in float64; double: always float64
    max_iter    Newton steps of a path
    """

    name = "gip"
    drives = "a graduated interior-point method in NumPy and LAPACK"
    citation = "qcqpbench, docs/gip.md"

    starts: int | None = None
    mu0: float = 0.5
    shrink: float = 0.6
    tol: float = 1e-9
    precision: Literal["mixed", "double"] = "mixed"
    max_iter: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.shrink < 1, f"gip: shrink={self.shrink} is not allowed; right is less than 1")

    def build(self, problem: MaxMargin) -> Run:
        passes = Passes(problem, self.precision == "mixed")

        def run(start: Array, budget: Budget) -> Solution:
            W = np.stack([unit_rows(start), *_others(start, (self.starts or _starts(problem)) - 1)])
            if passes.unit == 0:
                # Every pattern is zero, and so is every margin.
                weights = np.full(problem.labels.shape, 1 / problem.labels.size)
                return Solution(W[0], Termination.LOCALLY_OPTIMAL, 0.0, iterations=0, multipliers=weights)
            batch = Batch(passes, warm_up(passes, W), self.mu0, self.shrink, self.tol)
            best = -np.inf
            while batch.live.any() and batch.iterations < self.max_iter and not budget.exhausted():
                batch.iterate()
                k = int(batch.margins.argmax())
                if batch.margins[k] > best:
                    best = batch.margins[k]
                    budget.report(batch.W[k])
            k = int(problem.margin(batch.W).argmax())
            converged = batch.residual[k] <= max(self.tol, 1e-8)
            termination = Termination.LOCALLY_OPTIMAL if converged else Termination.STALLED
            if batch.live.any():
                termination = Termination.TIME_LIMIT if budget.exhausted() else Termination.ITERATION_LIMIT
            return Solution(
                x=batch.W[k],
                termination=termination,
                objective=float(problem.margin(batch.W[k])),
                iterations=batch.iterations,
                multipliers=batch.multipliers(k),
                details={"kkt_residual": float(batch.residual[k]), "path": k},
            )

        return run


def _starts(task: MaxMargin) -> int:
    """The higher the load, the more optima there are, and the more differ by little only."""
    return min(40, round(10 + 9 * task.labels.size / (task.n * task.m)))


def _others(start: Array, count: int) -> Array:
    """Random starts that depend on the given one alone."""
    seed = int.from_bytes(hashlib.sha256(np.ascontiguousarray(start, dtype="<f8").tobytes()).digest()[:8], "big")
    return unit_rows(random.normals(random.stream(seed, "starts"), np.empty((count, *start.shape))))
