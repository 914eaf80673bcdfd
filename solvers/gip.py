"""Graduated interior point: many paths from a smooth landscape, the best to the end, on unit spheres (docs/gip.md)."""

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

# The time of a Newton step relative to that of a step of the warm-up.
_NEWTON_TIME_RATIO = 10


@dataclass(frozen=True)
class Gip(TaskSolver):
    """Newton's method for the maximum of t + μ Σ ln(g − t) over W and t, g the stabilities, while μ falls to zero.

    Parameters
    ----------
    starts
        Paths in lockstep: the given start and random ones, the best of which are followed to the end. By default 8,
        and 24 more for each stability per weight, at most 42.
    mu0
        First μ, in units of (typical stability)/(number of stabilities); the larger, the smoother.
    shrink
        Factor of μ once a path has converged at it.
    tol
        KKT residual to stop at, in units of the typical stability.
    precision
        "mixed": passes over the patterns in float32 until μ is small, then in float64. "double": always in float64.
    max_iter
        Limit on the Newton steps of a path.
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
        require(self.shrink < 1, f"gip: shrink must be less than 1, got {self.shrink}")

    def build(self, problem: MaxMargin) -> RunFunction:
        passes = Passes(problem, self.precision == "mixed")

        def run(start: Array, budget: Budget) -> Solution:
            return self.climb(passes, batch_of_starts(start, self.starts or automatic_starts(problem)), budget)

        return run

    def climb(self, passes: Passes, W: Array, budget: Budget, best: float = -np.inf) -> Solution:
        """Return the best point reached from a batch of starts; report points of a margin above `best` on the way."""
        task = passes.task
        if passes.unit == 0:
            # Every pattern is zero, and so is every margin.
            weights = np.full(task.labels.shape, 1 / task.labels.size)
            return Solution(W[0], Termination.LOCALLY_OPTIMAL, 0.0, iterations=0, multipliers=weights)
        warm, pace = W, _Pace(budget)
        for warm, margins in pace.while_time(warm_up(passes, W)):
            best = _report_better(warm, margins, best, budget)
        batch = Batch(passes, warm[distinct(passes, warm)], self.mu0, self.shrink, self.tol)
        pace.longest *= _NEWTON_TIME_RATIO
        for _ in pace.while_time(batch.run(self.max_iter)):
            best = _report_better(batch.W, batch.margins, best, budget)
        k = int(task.margin(batch.W).argmax())
        converged = batch.residual[k] <= max(self.tol, 1e-8)
        termination = Termination.LOCALLY_OPTIMAL if converged else Termination.STALLED
        if batch.live.any():
            at_limit = batch.iterations >= self.max_iter
            termination = Termination.ITERATION_LIMIT if at_limit else Termination.TIME_LIMIT
        return Solution(
            x=batch.W[k],
            termination=termination,
            objective=float(task.margin(batch.W[k])),
            iterations=batch.iterations,
            multipliers=batch.multipliers(k),
            details={"kkt_residual": float(batch.residual[k]), "paths": len(W), "distinct_paths": len(batch.W)},
        )


def automatic_starts(task: MaxMargin) -> int:
    """Return the number of starts: more at a high load, where there are more optima and they differ less."""
    return min(42, round(8 + 24 * task.labels.size / (task.n * task.m)))


def batch_of_starts(start: Array, count: int, number: int = 0) -> Array:
    """Return random starts that depend on the given one and the batch's number alone; batch 0 begins with it."""
    seed = int.from_bytes(hashlib.sha256(np.ascontiguousarray(start, dtype="<f8").tobytes()).digest()[:8], "big")
    W = rng.normals(rng.stream(seed, "starts", number), np.empty((count, *start.shape)))
    if number == 0:
        W[0] = start
    return unit_rows(W)


class _Pace:
    """Time control of an iteration: it goes on while the longest step so far would end in time."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.longest = budget, 0.0

    def while_time(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield steps while there is time for one more."""
        while self.budget.remaining() > self.longest:
            begin = self.budget.seconds()
            try:
                step = next(steps)
            except StopIteration:
                return
            self.longest = max(self.longest, self.budget.seconds() - begin)
            yield step


def _report_better(W: Array, margins: Array, best: float, budget: Budget) -> float:
    """Report the point of the largest margin if it is above `best`; return the larger of both."""
    k = int(margins.argmax())
    if margins[k] > best:
        budget.report(W[k])
    return max(best, float(margins[k]))
