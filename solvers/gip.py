"""Graduated interior-point method for max-margin tasks on products of unit spheres (docs/background/gip.md)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

from . import _gip_kernel
from ._gip_axes import best_pair_of_axes, zero_point_on_axes
from ._gip_crossings import best_first, seed_of
from ._gip_kernel import instructions
from ._gip_passes import Passes, distinct, warm_up
from ._gip_schedule import Schedule, schedule
from ._gip_search import FEW_WEIGHTS, Search, random_start_count
from ._gip_state import Batch
from ._library import steps_version

Array = NDArray[np.float64]
Step = TypeVar("Step")

# Estimate of the time of a Newton step relative to that of a cycle of the warm-up.
_NEWTON_TIME_RATIO = 10
# First width and pace of the path from a pair of axes, which must not leave the point.
_AXES_WIDTH, _AXES_SHRINK = 1e-3, 0.3


@dataclass(frozen=True)
class Gip(TaskSolver):
    """Graduated interior-point method: Newton's method on a barrier function that is smoothed less and less.

    The method maximizes t + μ Σ ln(g − t) over W with unit rows and t, where g are the stabilities, and lowers μ
    towards zero. It follows several paths in parallel and continues only the best of them to the end.

    Parameters
    ----------
    starts
        Number of paths from the given start and from random points. The default is 8 plus 24 times the number of
        stabilities per weight, at most 42. Tasks with up to 150 weights have more (docs/background/gip.md), and
        other paths from crossings of their optima.
    mu0
        Initial μ, in units of (typical stability)/(number of stabilities). A larger μ makes the function smoother. The
        default is 0.5; on tasks with up to 150 weights it is m / 50, at least 1; and for tasks with at least 200
        inputs m it is m / 100, at most 4.
    shrink
        Factor, less than 1, by which μ is multiplied when a path has converged at its μ. The default is 0.4, and 0.55
        for tasks with at least 200 inputs.
    tol
        KKT residual at which a path stops, in units of the typical stability.
    precision
        "mixed": products with the patterns in float32 until μ is small, then in float64. "double": always in float64.
        On tasks with up to 150 weights: all arithmetic in float32 until only the best paths go on.
    max_iter
        Limit on the number of Newton steps of a path.
    """

    name = "gip"
    drives = "a graduated interior-point method in C, NumPy and LAPACK"
    citation = "qcqpbench, docs/background/gip.md"

    starts: int | None = None
    mu0: float | None = None
    shrink: float | None = None
    tol: float = 1e-9
    precision: Literal["mixed", "double"] = "mixed"
    max_iter: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.shrink is None or self.shrink < 1, f"gip: shrink must be less than 1, got {self.shrink}")

    def version(self) -> str:
        return f"{super().version()}, {steps_version(_gip_kernel.library())}"

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
        pace = _Pace(budget, best)
        follow = self._search if task.n * task.m <= FEW_WEIGHTS else self._follow_batch
        climb = follow(passes, W, W[:0] if crossed is None else crossed, pace)
        return self._try_axes(passes, climb, pace)

    def _search(self, passes: Passes, W: Array, crossed: Array, pace: "_Pace") -> "Climb":
        """Follow the paths of a task with few weights."""
        search = Search(passes, W, crossed, self.mu0, self.shrink, self.tol)
        for _ in pace.while_time(search.run(self.max_iter)):
            pace.report_better(W := search.best_running(), passes.task.margin(W))
        end = search.best()
        is_finished = search.is_finished and end.age[0] < self.max_iter
        state = end.W[0], end.weights[0], float(end.residual[0])
        counts = search.step_count, search.started, len(search.optima.W)
        solution = self._solution(passes, state, is_finished, pace, counts)
        return Climb(replace(solution, details={**solution.details, "instructions": instructions()}), search.optima.W)

    def _follow_batch(self, passes: Passes, W: Array, crossed: Array, pace: "_Pace") -> "Climb":
        """Follow paths in lockstep, those from `crossed` without the warm-up."""
        task, warm = passes.task, W
        plan = schedule(task.n, task.m, len(W), self.mu0, self.shrink)
        if len(W):
            for warm, margins in pace.while_time(warm_up(passes, W, plan.smoothing)):
                pace.report_better(warm, margins)
            pace.longest *= _NEWTON_TIME_RATIO
        warm, plan = np.concatenate([warm, crossed]), plan.extended(len(crossed))
        paths = distinct(passes, warm)
        batch = Batch(passes, warm[paths], plan.only(paths), self.tol)
        for _ in pace.while_time(batch.run(self.max_iter)):
            pace.report_better(batch.W, batch.margins)
        k = int(task.margin(batch.W).argmax())
        state = batch.W[k], batch.weights[k], float(batch.residual[k])
        counts = batch.iterations, len(warm), len(batch.W)
        return Climb(self._solution(passes, state, not batch.live.any(), pace, counts), best_first(passes, batch.W))

    def _try_axes(self, passes: Passes, climb: "Climb", pace: "_Pace") -> "Climb":
        """Return the optimum at a point on few axes if `climb` ends below zero and below that, else `climb`."""
        W = None
        if margin_of(climb.solution) < 0:
            W = (best_pair_of_axes if passes.task.n == 2 else zero_point_on_axes)(passes.task)
        if W is None or passes.task.margin(W) <= margin_of(climb.solution):
            return climb
        batch = Batch(passes, W[None].copy(), Schedule(np.ones(1), _AXES_WIDTH, _AXES_SHRINK, ()), self.tol)
        pace.report_better(W[None], passes.task.margin(W[None]))
        for _ in pace.while_time(batch.run(self.max_iter)):
            pace.report_better(batch.W, batch.margins)
        better = max(W, batch.W[0], key=lambda point: float(passes.task.margin(point)))
        state = better, batch.weights[0], float(batch.residual[0])
        paths, distinct_paths = (int(climb.solution.details[name]) for name in ("paths", "distinct_paths"))
        counts = (climb.solution.iterations or 0) + batch.iterations, paths + 1, distinct_paths + 1
        solution = self._solution(passes, state, not batch.live.any(), pace, counts)
        return Climb(solution, np.concatenate([better[None], climb.optima]))

    def _solution(
        self,
        passes: Passes,
        state: tuple[Array, Array, float],
        is_finished: bool,
        pace: "_Pace",
        counts: tuple[int, int, int],
    ) -> Solution:
        """Return the solution at a `state`: W, multipliers and KKT residual.

        `is_finished` means that no path reached a limit; `counts` are those of iterations, paths and distinct paths.
        """
        W, weights, residual = state
        iterations, paths, distinct_paths = counts
        converged = residual <= max(self.tol, 1e-8)
        termination = Termination.LOCALLY_OPTIMAL if converged else Termination.STALLED
        if not is_finished:
            termination = Termination.TIME_LIMIT if pace.is_out_of_time else Termination.ITERATION_LIMIT
        return Solution(
            x=W,
            termination=termination,
            objective=float(passes.task.margin(W)),
            iterations=iterations,
            multipliers=(weights / weights.sum()).reshape(passes.task.labels.shape),
            details={"kkt_residual": residual, "paths": paths, "distinct_paths": distinct_paths},
        )


class Climb(NamedTuple):
    """Solution of a run of gip, and its optima, the best first, shape (b, n, m)."""

    solution: Solution
    optima: Array


def margin_of(solution: Solution) -> float:
    """Return the margin of a solution; −inf if it has none."""
    return -np.inf if solution.objective is None else solution.objective


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
    """Time control of a run, and the reports of its best points.

    Steps continue while a step as long as the longest so far would end in time.
    """

    def __init__(self, budget: Budget, best: float) -> None:
        self.budget, self.best, self.longest, self.is_out_of_time = budget, best, 0.0, False

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

    def report_better(self, W: Array, margins: Array) -> None:
        """Report the point of `W` with the largest margin if that is above all before."""
        k = int(margins.argmax())
        if margins[k] > self.best:
            self.budget.report(W[k])
            self.best = float(margins[k])
