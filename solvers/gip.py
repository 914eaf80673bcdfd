"""Graduated interior-point method for max-margin tasks on a product of unit spheres, with many starts (docs/gip.md)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

from ._gip_crossings import seed_of
from ._gip_passes import Passes, distinct, warm_up
from ._gip_schedule import schedule
from ._gip_search import FEW_WEIGHTS, Search, random_start_count
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
            return self.climb(passes, batch_of_starts(start, self.starts or automatic_starts(problem)), budget).solution

        return run

    def climb(
        self, passes: Passes, W: Array, budget: Budget, best: float = -np.inf, crossed: Array | None = None
    ) -> "Climb":
        """Return the optima reached from the random starts `W` and the crossings `crossed`, shape (b, n, m) each.

        Report each new best point with a margin above `best` to `budget`.
        """
        task = passes.task
        if passes.unit == 0:
            # All patterns are zero, so the margin of every point is zero.
            weights = np.full(task.labels.shape, 1 / task.labels.size)
            return Climb(Solution(W[0], Termination.LOCALLY_OPTIMAL, 0.0, iterations=0, multipliers=weights), W[:1])
        follow = self._search if task.n * task.m <= FEW_WEIGHTS else self._follow_batch
        return follow(passes, W, W[:0] if crossed is None else crossed, _Pace(budget), best)

    def _search(self, passes: Passes, W: Array, crossed: Array, pace: "_Pace", best: float) -> "Climb":
        """Follow the paths of a task with few weights."""
        search = Search(passes, W, crossed, self.mu0, self.shrink, self.tol)
        for _ in pace.while_time(search.run(self.max_iter)):
            best = _report_better(search.running.W, search.running.margins, best, pace.budget)
        end = search.best()
        solution = Solution(
            x=end.W[0],
            termination=self._termination(end.residual[0], search.is_finished and end.age[0] < self.max_iter, pace),
            objective=float(passes.task.margin(end.W[0])),
            iterations=search.iterations,
            multipliers=(end.weights[0] / end.weights[0].sum()).reshape(passes.task.labels.shape),
            details={
                "kkt_residual": float(end.residual[0]),
                "paths": search.started,
                "distinct_paths": len(search.optima.W),
            },
        )
        return Climb(solution, search.optima.W)

    def _follow_batch(self, passes: Passes, W: Array, crossed: Array, pace: "_Pace", best: float) -> "Climb":
        """Follow the paths of a task with many weights, those from `crossed` without the warm-up."""
        task, warm = passes.task, W
        plan = schedule(task.n, task.m, len(W), self.mu0, self.shrink)
        for warm, margins in pace.while_time(warm_up(passes, W, plan.smoothing)):
            best = _report_better(warm, margins, best, pace.budget)
        warm, plan = np.concatenate([warm, crossed]), plan.extended(len(crossed))
        paths = distinct(passes, warm)
        batch = Batch(passes, warm[paths], plan.only(paths), self.tol)
        pace.longest *= _NEWTON_TIME_RATIO
        for _ in pace.while_time(batch.run(self.max_iter)):
            best = _report_better(batch.W, batch.margins, best, pace.budget)
        margins = task.margin(batch.W)
        k = int(margins.argmax())
        solution = Solution(
            x=batch.W[k],
            termination=self._termination(batch.residual[k], not batch.live.any(), pace),
            objective=float(task.margin(batch.W[k])),
            iterations=batch.iterations,
            multipliers=batch.multipliers(k),
            details={"kkt_residual": float(batch.residual[k]), "paths": len(warm), "distinct_paths": len(batch.W)},
        )
        best_first = batch.W[np.argsort(-margins, kind="stable")]
        return Climb(solution, best_first[distinct(passes, best_first)])

    def _termination(self, residual: float, is_finished: bool, pace: "_Pace") -> Termination:
        """Return the reason why a run ended; `is_finished` means that no path reached a limit."""
        if is_finished:
            return Termination.LOCALLY_OPTIMAL if residual <= max(self.tol, 1e-8) else Termination.STALLED
        return Termination.TIME_LIMIT if pace.is_out_of_time else Termination.ITERATION_LIMIT


class Climb(NamedTuple):
    """Solution of one round of gip, and its optima, the best first, shape (b, n, m)."""

    solution: Solution
    optima: Array


def automatic_starts(task: MaxMargin) -> int:
    """Return the default number of starts; it grows with the load, because there are more local optima at high load."""
    if task.n * task.m <= FEW_WEIGHTS:
        return random_start_count(task)
    return min(42, round(8 + 24 * task.labels.size / (task.n * task.m)))


def batch_of_starts(start: Array, count: int, number: int = 0) -> Array:
    """Return `count` random starts with unit rows, shape (count, n, m), determined by `start` and the batch `number`.

    The first start of batch 0 is `start`, shape (n, m), itself.
    """
    W = rng.normals(rng.stream(seed_of(start), "starts", number), np.empty((count, *start.shape)))
    if number == 0:
        W[0] = start
    return unit_rows(W)


class _Pace:
    """Time control of an iteration. Steps continue while a step as long as the longest so far would end in time."""

    def __init__(self, budget: Budget) -> None:
        self.budget, self.longest, self.is_out_of_time = budget, 0.0, False

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
        self.is_out_of_time = True


def _report_better(W: Array, margins: Array, best: float, budget: Budget) -> float:
    """Report the point of `W` with the largest margin if that is above `best`; return the larger of the two margins."""
    k = int(margins.argmax())
    if margins[k] > best:
        budget.report(W[k])
    return max(best, float(margins[k]))
