"""Graduated interior-point method for max-margin tasks on a product of unit spheres, with many starts (docs/gip.md)."""

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
from ._gip_schedule import schedule
from ._gip_state import Batch

Array = NDArray[np.float64]
Step = TypeVar("Step")

# Estimate of the time of a Newton step relative to that of a cycle of the warm-up.
_NEWTON_TIME_RATIO = 10


@dataclass(frozen=True)
class Gip(TaskSolver):
    """Graduated interior-point method: Newton's method on a barrier function that is smoothed less and less.

    The method maximizes t + μ Σ ln(g − t) over W with unit rows and t, where g are the stabilities, and lowers μ
    towards zero. It follows several paths in parallel and continues only the best of them to the end.

    Parameters
    ----------
    starts
        Number of paths: one from the given start, the others from random points. The default is 8 plus 24 times the
        number of stabilities per weight, at most 42.
    mu0
        Initial μ, in units of (typical stability)/(number of stabilities). A larger μ makes the function smoother. The
        default is 0.5, and m / 100, at most 4, for tasks with at least 200 inputs m.
    shrink
        Factor, less than 1, by which μ is multiplied when a path has converged at its μ. The default is 0.4, and 0.55
        for tasks with at least 200 inputs.
    tol
        KKT residual at which a path stops, in units of the typical stability.
    precision
        "mixed": products with the patterns in float32 until μ is small, then in float64. "double": always in float64.
    max_iter
        Limit on the number of Newton steps of a path.
    """

    name = "gip"
    drives = "a graduated interior-point method in NumPy and LAPACK"
    citation = "qcqpbench, docs/gip.md"

    starts: int | None = None
    mu0: float | None = None
    shrink: float | None = None
    tol: float = 1e-9
    precision: Literal["mixed", "double"] = "mixed"
    max_iter: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.shrink is None or self.shrink < 1, f"gip: shrink must be less than 1, got {self.shrink}")

    def build(self, problem: MaxMargin) -> RunFunction:
        passes = Passes(problem, self.precision == "mixed")

        def run(start: Array, budget: Budget) -> Solution:
            return self.climb(passes, batch_of_starts(start, self.starts or automatic_starts(problem)), budget)

        return run

    def climb(self, passes: Passes, W: Array, budget: Budget, best: float = -np.inf) -> Solution:
        """Return the best point reached from the starts `W`, shape (b, n, m).

        Report each new best point with a margin above `best` to `budget`.
        """
        task = passes.task
        if passes.unit == 0:
            # All patterns are zero, so the margin of every point is zero.
            weights = np.full(task.labels.shape, 1 / task.labels.size)
            return Solution(W[0], Termination.LOCALLY_OPTIMAL, 0.0, iterations=0, multipliers=weights)
        warm, pace = W, _Pace(budget)
        plan = schedule(task.n, task.m, len(W), self.mu0, self.shrink)
        for warm, margins in pace.while_time(warm_up(passes, W, plan.smoothing)):
            best = _report_better(warm, margins, best, budget)
        paths = distinct(passes, warm) if plan.gates else list(range(len(W)))
        batch = Batch(passes, warm[paths], plan.only(paths), self.tol)
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
    """Return the default number of starts; it grows with the load, because there are more local optima at high load."""
    return min(42, round(8 + 24 * task.labels.size / (task.n * task.m)))


def batch_of_starts(start: Array, count: int, number: int = 0) -> Array:
    """Return `count` random starts with unit rows, shape (count, n, m), determined by `start` and the batch `number`.

    The first start of batch 0 is `start`, shape (n, m), itself.
    """
    seed = int.from_bytes(hashlib.sha256(np.ascontiguousarray(start, dtype="<f8").tobytes()).digest()[:8], "big")
    W = rng.normals(rng.stream(seed, "starts", number), np.empty((count, *start.shape)))
    if number == 0:
        W[0] = start
    return unit_rows(W)


class _Pace:
    """Time control of an iteration. Steps continue while a step as long as the longest so far would end in time."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.longest = budget, 0.0

    def while_time(self, steps: Iterator[Step]) -> Iterator[Step]:
        """Yield the items of `steps` while there is time for one more."""
        while self.budget.remaining() > self.longest:
            begin = self.budget.seconds()
            try:
                step = next(steps)
            except StopIteration:
                return
            self.longest = max(self.longest, self.budget.seconds() - begin)
            yield step


def _report_better(W: Array, margins: Array, best: float, budget: Budget) -> float:
    """Report the point of `W` with the largest margin if that is above `best`; return the larger of the two margins."""
    k = int(margins.argmax())
    if margins[k] > best:
        budget.report(W[k])
    return max(best, float(margins[k]))
