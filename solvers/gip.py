"""Graduated interior point: many paths from a smooth landscape, the best to the end, on unit spheres. docs/gip.md"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

from ._gip_passes import Passes, distinct, warm_up
from ._gip_state import Batch

Array = NDArray[np.float64]
Step = TypeVar("Step")

# A Newton step takes about this many times as long as one of the warm-up.
_NEWTON = 10


@dataclass(frozen=True)
class Gip(TaskSolver):
    """Maximize t + μ Σ ln(g − t) over W and t by Newton's method, g the stabilities, while μ goes from large to zero.

    starts      paths in lockstep: the given start and random ones, the best of which are followed to the end; by
                default 8 and 24 more for each stability per weight, at most 42
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
    shrink: float = 0.4
    tol: float = 1e-9
    precision: Literal["mixed", "double"] = "mixed"
    max_iter: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.shrink < 1, f"gip: shrink={self.shrink} is not allowed; right is less than 1")

    def build(self, problem: MaxMargin) -> RunFunction:
        passes = Passes(problem, self.precision == "mixed")

        def run(start: Array, budget: Budget) -> Solution:
            return self.climb(passes, batch_of_starts(start, self.starts or automatic_starts(problem)), budget)

        return run

    def climb(self, passes: Passes, W: Array, budget: Budget, best: float = -np.inf) -> Solution:
        """The best of a batch of starts; on the way, points are reported that are better than the best before."""
        task = passes.task
        if passes.unit == 0:
            # Every pattern is zero, and so is every margin.
            weights = np.full(task.labels.shape, 1 / task.labels.size)
            return Solution(W[0], Termination.LOCALLY_OPTIMAL, 0.0, iterations=0, multipliers=weights)
        warm, pace = W, _Pace(budget)
        for warm, margins in pace.while_time(warm_up(passes, W)):
            best = _report_better(warm, margins, best, budget)
        batch = Batch(passes, warm[distinct(passes, warm)], self.mu0, self.shrink, self.tol)
        pace.longest *= _NEWTON
        for _ in pace.while_time(batch.run(self.max_iter)):
            best = _report_better(batch.W, batch.margins, best, budget)
        k = int(task.margin(batch.W).argmax())
        converged = batch.residual[k] <= max(self.tol, 1e-8)
        termination = Termination.LOCALLY_OPTIMAL if converged else Termination.STALLED
        if batch.live.any():
            over = batch.iterations >= self.max_iter
            termination = Termination.ITERATION_LIMIT if over else Termination.TIME_LIMIT
        return Solution(
            x=batch.W[k],
            termination=termination,
            objective=float(task.margin(batch.W[k])),
            iterations=batch.iterations,
            multipliers=batch.multipliers(k),
            details={"kkt_residual": float(batch.residual[k]), "paths": len(W), "distinct_paths": len(batch.W)},
        )


def automatic_starts(task: MaxMargin) -> int:
    """The higher the load, the more optima there are, and the more differ by little only."""
    return min(42, round(8 + 24 * task.labels.size / (task.n * task.m)))


def batch_of_starts(start: Array, count: int, number: int = 0) -> Array:
    """Random starts that depend on the given one and the batch's number alone; the first batch begins with it."""
    seed = int.from_bytes(hashlib.sha256(np.ascontiguousarray(start, dtype="<f8").tobytes()).digest()[:8], "big")
    W = rng.normals(rng.stream(seed, "starts", number), np.empty((count, *start.shape)))
    if number == 0:
        W[0] = start
    return unit_rows(W)


class _Pace:
    """Steps while there is time for one more, going by the longest so far."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.longest = budget, 0.0

    def while_time(self, steps: Iterator[Step]) -> Iterator[Step]:
        while self.budget.remaining() > self.longest:
            begin = self.budget.seconds()
            try:
                step = next(steps)
            except StopIteration:
                return
            self.longest = max(self.longest, self.budget.seconds() - begin)
            yield step


def _report_better(W: Array, margins: Array, best: float, budget: Budget) -> float:
    k = int(margins.argmax())
    if margins[k] > best:
        budget.report(W[k])
    return max(best, float(margins[k]))
