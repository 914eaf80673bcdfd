"""Alternating convex optimization with cvxpy: for fixed other rows, the best row solves a support vector machine."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CvxpyAlternating(TaskSolver):
    """Block-coordinate ascent on the margin: each row w_i is optimized in turn while the other rows are fixed.

    For fixed other rows, the stabilities of row w are A w, where the rows of A are ζ^r (P^r w_j)ᵀ or ζ^r w_jᵀP^r. A
    step maximizes t subject to A w ≥ t and ‖w‖ ≤ 1, which is exact if a positive margin exists. If none exists, w = 0
    is optimal, so the step instead maximizes t subject to A w ≥ t on the plane w_i·w = 1. This step does not lower the
    margin either: t ≤ 0, and t increases when w is scaled back to unit length.

    Parameters
    ----------
    solver
        Conic solver that cvxpy calls.
    max_iter
        Limit on the number of rounds over all rows.
    tol
        The run stops when a round increases the margin by less than tol · scale of the task.
    """

    name = "cvxpy_alternating"
    drives = "cvxpy with a conic solver"
    requires = ("cvxpy",)
    extra = "cvxpy"
    citation = "Diamond, Boyd, JMLR 17 (2016) 83; block-coordinate ascent"
    # The method stops where no single row can improve, which need not be a local optimum.
    accuracy = 0.05

    solver: Literal["CLARABEL", "SCS"] = "CLARABEL"
    max_iter: int = 500
    tol: float = 1e-5

    def build(self, problem: MaxMargin) -> RunFunction:
        step = _RowStep(problem, self.solver)

        def run(start: Array, budget: Budget) -> Solution:
            W = unit_rows(start)
            margin = float(problem.margin(W))
            termination = Termination.ITERATION_LIMIT
            rounds = 0
            while rounds < self.max_iter and termination is Termination.ITERATION_LIMIT:
                rounds += 1
                before = margin
                for i in range(problem.n):
                    if budget.exhausted():
                        termination = Termination.TIME_LIMIT
                        break
                    candidate = step(W, i, budget.remaining())
                    candidate_margin = float(problem.margin(candidate))
                    if candidate_margin > margin:
                        W, margin = candidate, candidate_margin
                        budget.report(W)
                else:
                    if margin - before < self.tol * problem.scale:
                        termination = Termination.FINISHED
            return Solution(W, termination, margin, iterations=rounds, details={"solver": self.solver})

        return run


class _RowStep:
    """The two convex programs for the best row with the other rows fixed, parametrized and compiled once."""

    def __init__(self, task: MaxMargin, solver: str) -> None:
        import cvxpy

        cp: Any = cvxpy
        self.task = task
        self.solver = solver
        rows = task.p * (task.n - 1)
        self.A = cp.Parameter((rows, task.m))
        self.previous = cp.Parameter(task.m)
        self.w, t = cp.Variable(task.m), cp.Variable()
        above = self.A @ self.w >= t
        length = cp.norm(self.w)
        self.programs = [
            cp.Problem(cp.Maximize(t), [above, length <= 1]),
            cp.Problem(cp.Maximize(t), [above, self.previous @ self.w == 1, length <= 10]),
        ]

    def __call__(self, W: Array, i: int, seconds: float) -> Array:
        """Return `W` with row `i` optimized within `seconds`, or `W` itself if neither program improves the margin."""
        self.A.value = self._rows(W, i)
        self.previous.value = W[i]
        best = W
        for program in self.programs:
            with warnings.catch_warnings():
                # cvxpy warns "Solution may be inaccurate"; the margin is recomputed from the point in any case.
                warnings.simplefilter("ignore")
                try:
                    program.solve(solver=self.solver, **_time_limit(self.solver, seconds))
                except Exception as error:
                    if type(error).__name__ != "SolverError":
                        raise
            if self.w.value is None or not np.linalg.norm(self.w.value) > 1e-6:
                continue
            candidate = W.copy()
            candidate[i] = self.w.value
            candidate = unit_rows(candidate)
            if self.task.margin(candidate) > self.task.margin(best):
                best = candidate
            if self.task.margin(best) > 0:
                break
        return best

    def _rows(self, W: Array, i: int) -> Array:
        """Return the matrix A, shape (p (n−1), m), such that A w_i are the stabilities of the pairs with row `i`."""
        first, second = self.task.pairs
        blocks = []
        for k, (a, b) in enumerate(zip(first, second, strict=True)):
            if a == i:
                rows = self.task.patterns @ W[b]
            elif b == i:
                rows = W[a] @ self.task.patterns
            else:
                continue
            blocks.append(rows * self.task.labels[:, k, None])
        return np.concatenate(blocks)


def _time_limit(solver: str, seconds: float) -> dict[str, Any]:
    if not np.isfinite(seconds):
        return {}
    return {"time_limit": max(seconds, 1e-2)} if solver == "CLARABEL" else {"time_limit_secs": max(seconds, 1e-2)}
