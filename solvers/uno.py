"""Uno through unopy: sequential quadratic programming and interior point methods, with exact derivatives."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, minimization_sign

Array = NDArray[np.float64]

# The keys are the names of the optimization status, and, where it is a success, of the solution status of Uno.
_TERMINATION = {
    "FEASIBLE_KKT_POINT": Termination.LOCALLY_OPTIMAL,
    "FEASIBLE_FJ_POINT": Termination.STALLED,
    "FEASIBLE_SMALL_STEP": Termination.STALLED,
    "INFEASIBLE_STATIONARY_POINT": Termination.LOCALLY_INFEASIBLE,
    "INFEASIBLE_SMALL_STEP": Termination.FAILED,
    "UNBOUNDED_OBJECTIVE": Termination.UNBOUNDED,
    "DIVERGING_ITERATE": Termination.UNBOUNDED,
    "ITERATION_LIMIT": Termination.ITERATION_LIMIT,
    "TIME_LIMIT": Termination.TIME_LIMIT,
    "USER_TERMINATION": Termination.TIME_LIMIT,
    "USER_INTERRUPTION": Termination.TIME_LIMIT,
}


@dataclass(frozen=True)
class Uno(QCQPSolver):
    """Uno, which combines the parts of SQP and interior-point methods; a preset imitates a known solver.

    Parameters
    ----------
    preset
        "ipopt": interior point with filter line search; "filtersqp": sequential quadratic programming with a trust
        region and a filter; "funnelsqp": with a line search and a funnel.
    tol
        Primal and dual tolerance of Uno.
    max_iter
        Iteration limit.
    """

    name = "uno"
    drives = "Uno, SQP and interior point with filter or funnel, through unopy"
    requires = ("unopy",)
    extra = "uno"
    citation = "Vanaret, Leyffer, Math. Program. Comput. (2026), arXiv:2406.13454"

    preset: Literal["ipopt", "filtersqp", "funnelsqp"] = "ipopt"
    tol: float = 1e-8
    max_iter: int = 3000

    def build(self, problem: QCQP) -> RunFunction:
        import unopy

        model = _model(problem)
        version = unopy.current_uno_version()

        def run(start: Array, budget: Budget) -> Solution:
            best = Best(problem, 1e-6)

            def stop(x: Array, *_: Any) -> bool:
                # The iterates of a feasibility restoration have more variables.
                if x.size == problem.n_variables:
                    budget.report(x)
                    best.see(x)
                return budget.exhausted()

            solver = self._solver(budget)
            solver.set_termination_callback(stop)
            model.set_initial_primal_iterate(np.clip(start, problem.x_lower, problem.x_upper))
            result = solver.optimize(model)
            status, point_status = result.optimization_status.name, result.solution_status.name
            message = point_status if status == "SUCCESS" else status
            final = np.array(result.primal_solution)[: problem.n_variables]
            best.see(final)
            termination = _TERMINATION.get(message, Termination.FAILED)
            return best.solution(termination, message.lower(), final, result.number_iterations, {"uno": version})

        return run

    def _solver(self, budget: Budget) -> Any:
        import unopy

        solver = unopy.UnoSolver()
        solver.set_preset(self.preset)
        options: dict[str, Any] = {
            "logger": "SILENT",
            "primal_tolerance": self.tol,
            "dual_tolerance": self.tol,
            "max_iterations": self.max_iter,
        }
        if np.isfinite(budget.time_limit):
            options["time_limit"] = float(max(budget.remaining(), 1e-3))
        for name, value in options.items():
            solver.set_option(name, value)
        return solver


def _model(problem: QCQP) -> Any:
    """Return a model of `problem` as a minimization, whose functions call those of `problem`."""
    import unopy

    sign = minimization_sign(problem)

    def objective(x: Array) -> float:
        return sign * float(problem.objective(x))

    def gradient(x: Array, out: Array) -> None:
        out[:] = sign * problem.gradient(x)

    def constraints(x: Array, out: Array) -> None:
        out[:] = problem.values(x)

    def jacobian(x: Array, out: Array) -> None:
        out[:] = problem.jacobian_values(x)

    def hessian(_: Array, objective_factor: float, multipliers: Array, out: Array) -> None:
        # The Lagrangian of Uno is objective_factor·f_0 − Σ_r multipliers_r f_r.
        out[:] = problem.hessian_values(-multipliers, sign * objective_factor)

    model = unopy.Model(
        unopy.PROBLEM_NONLINEAR, problem.n_variables, problem.x_lower, problem.x_upper, unopy.ZERO_BASED_INDEXING
    )
    model.set_objective(unopy.MINIMIZE, objective, gradient)
    if problem.n_constraints:
        rows, columns = problem.jacobian_structure
        model.set_constraints(
            problem.n_constraints, constraints, problem.lower, problem.upper, len(rows), rows, columns, jacobian
        )
    rows, columns = problem.hessian_structure
    model.set_lagrangian_sign_convention(unopy.MULTIPLIER_NEGATIVE)
    model.set_lagrangian_hessian(len(rows), unopy.LOWER_TRIANGLE, rows, columns, hessian)
    return model
