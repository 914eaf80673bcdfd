"""Gradient ascent on the soft margin, as in the paper, or L-BFGS on a product of unit spheres."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows

from ._nlp import OutOfTime

Array = NDArray[np.float64]

# Number of ascent steps between two convergence tests.
_STEPS_PER_TEST = 100


@dataclass(frozen=True)
class SoftMargin(TaskSolver):
    """Local maximization of the soft margin κ_η(W) = −(1/η) ln Σ exp(−η g), where g are the stabilities.

    The defaults are those of the paper.

    Parameters
    ----------
    method
        "ascent": gradient steps W + rate · ∇κ_η(W), each followed by scaling the rows to unit length.
        "lbfgs": L-BFGS with line search on κ_η of the rows scaled to unit length.
    eta
        Initial η. The larger η, the closer the soft margin is to the margin.
    rate
        Step size of "ascent".
    eta_growth, eta_max
        After each maximization, η is multiplied by eta_growth, up to eta_max, and the maximization is repeated from
        the last point. By default, η is constant.
    max_iter
        Limit on the number of evaluations of the soft margin.
    tol
        "ascent" stops when κ_η increases by less than tol · scale of the task in 100 steps; "lbfgs" uses the tolerance
        tol/1000.
    """

    name = "soft_margin"
    drives = "gradient ascent in NumPy, L-BFGS-B of scipy.optimize"
    citation = "Dahmen, Gilson, Helias, J. Phys. A 53 (2020) 354002, doi:10.1088/1751-8121/ab82dd"
    # At η = 4, the maximum of the soft margin differs from that of the margin.
    accuracy = 0.25

    method: Literal["ascent", "lbfgs"] = "ascent"
    eta: float = 4.0
    rate: float = 0.01
    eta_growth: float = 2.0
    eta_max: float | None = None
    max_iter: int = 100_000
    tol: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.eta_growth > 1, f"soft_margin: eta_growth must be more than 1, got {self.eta_growth}")

    def build(self, problem: MaxMargin) -> RunFunction:
        def run(start: Array, budget: Budget) -> Solution:
            objective = _Objective(problem, unit_rows(start), budget)
            W, eta = objective.best, self.eta
            climb = self._ascend if self.method == "ascent" else self._quasi_newton
            termination = Termination.FINISHED
            try:
                while True:
                    W = climb(objective, W, eta)
                    if self.eta_max is None or eta >= self.eta_max:
                        break
                    eta = min(eta * self.eta_growth, self.eta_max)
            except OutOfTime:
                termination = Termination.TIME_LIMIT
            if objective.evaluations >= self.max_iter:
                termination = Termination.ITERATION_LIMIT
            return Solution(objective.best, termination, objective.margin, iterations=objective.evaluations)

        return run

    def _ascend(self, objective: "_Objective", W: Array, eta: float) -> Array:
        last = -np.inf
        for step in range(self.max_iter - objective.evaluations):
            value, gradient = objective.evaluate(W, eta)
            if step % _STEPS_PER_TEST == 0:
                if value - last < self.tol * objective.task.scale:
                    break
                last = value
            W = unit_rows(W + self.rate * gradient)
        return W

    def _quasi_newton(self, objective: "_Objective", W: Array, eta: float) -> Array:
        from scipy.optimize import minimize

        shape = W.shape

        def negative(v: Array) -> tuple[float, Array]:
            V = v.reshape(shape)
            length = np.linalg.norm(V, axis=1, keepdims=True)
            unit = V / length
            value, gradient = objective.evaluate(unit, eta)
            tangent = (gradient - np.sum(gradient * unit, axis=1, keepdims=True) * unit) / length
            return -value, -tangent.ravel()

        options = {"maxiter": max(1, self.max_iter - objective.evaluations), "maxfun": 10 * self.max_iter}
        result = minimize(negative, W.ravel(), jac=True, method="L-BFGS-B", options=options, tol=1e-3 * self.tol)
        return unit_rows(result.x.reshape(shape))


class _Objective:
    """Soft margin of a task as a function that keeps the point with the largest margin."""

    def __init__(self, task: MaxMargin, start: Array, budget: Budget) -> None:
        self.task = task
        self.budget = budget
        self.best = start
        self.margin = float(task.margin(start))
        self.evaluations = 0

    def evaluate(self, W: Array, eta: float) -> tuple[float, Array]:
        """Return the soft margin at `W` for η = `eta`, and its gradient; raise OutOfTime at the time limit."""
        if self.budget.exhausted():
            raise OutOfTime
        self.evaluations += 1
        stabilities = self.task.stabilities(W)
        margin = float(stabilities.min())
        if margin > self.margin:
            self.margin, self.best = margin, W
            self.budget.report(W)
        value, weights = self.task.soft_minimum(stabilities, eta)
        return float(value), self.task.stability_gradient(W, weights)
