"""Xpress through xpress: spatial branch and bound, which proves a bound and, given enough time, the optimum."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Availability, Scope, Termination
from qcqpbench.problem.qcqp import QCQP

from ._boxes import implied_box
from ._licences import first_line, licence_availability, refusal
from ._one_sided import Terms, one_sided_constraints, row_terms

Array = NDArray[np.float64]

# The keys are names of Xpress's solution statuses; a solution without a proof depends on why Xpress stopped.
_TERMINATION = {
    "OPTIMAL": Termination.OPTIMAL,
    "INFEASIBLE": Termination.INFEASIBLE,
    "UNBOUNDED": Termination.UNBOUNDED,
}
# The part of an error message that names the size limit of a licence.
_TOO_LARGE = "too many rows and columns"


@dataclass(frozen=True)
class Xpress(QCQPSolver):
    """Xpress Global, a solver by spatial branch and bound. Its bound is proved up to its feasibility tolerance.

    The number of iterations is that of branch-and-bound nodes. Xpress uses the licence that XPAUTH_PATH names,
    otherwise the one in the package, which limits the size of a problem.

    Parameters
    ----------
    gap
        Relative optimality gap at which Xpress stops.
    feasibility_tol
        Feasibility tolerance of Xpress.
    max_nodes
        Limit on the number of branch-and-bound nodes; unlimited by default.
    """

    name = "xpress"
    drives = "FICO Xpress Global, spatial branch and bound, through xpress"
    scope = Scope.GLOBAL
    requires = ("xpress",)
    extra = "xpress"
    citation = "FICO Xpress Optimization, https://www.fico.com/en/products/fico-xpress-optimization"
    accuracy = 1e-5

    gap: float = 1e-6
    feasibility_tol: float = 1e-7
    max_nodes: int | None = None

    def availability(self) -> tuple[Availability, str]:
        status, reason = super().availability()
        if status is Availability.AVAILABLE:
            return licence_availability("XPAUTH_PATH", "a licence file of Xpress")
        return status, reason

    def build(self, problem: QCQP) -> RunFunction:
        import xpress

        try:
            with warnings.catch_warnings():
                # Xpress warns when it uses the licence of the package.
                warnings.simplefilter("ignore")
                xpress.init()
                model, variables = _model(problem)
        except (xpress.ModelError, xpress.InterfaceError, xpress.SolverError) as error:
            return refusal(f"xpress: no valid licence: {first_line(error)}")
        for name, value in self._controls.items():
            setattr(model.controls, name, value)

        def run(start: Array, budget: Budget) -> Solution:
            def report(running: Any, *_: Any) -> None:
                budget.report(np.array(running.getCallbackSolution(variables)))

            model.removeIntsolCallback(None, None)
            model.addIntsolCallback(report, None, 0)
            model.addMipSol(np.clip(start, problem.x_lower, problem.x_upper).tolist())
            model.controls.threads = budget.threads
            if np.isfinite(budget.time_limit):
                model.controls.timelimit = max(budget.remaining(), 1e-3)
            try:
                solve_status, solution_status = model.optimize()
            except xpress.SolverError as error:
                if _TOO_LARGE not in str(error):
                    raise
                size = f"{problem.n_variables} variables and {problem.n_constraints} constraints"
                limit = "that of the package allows 200 rows and columns together"
                reason = f"xpress: the licence in use does not allow {size}; {limit}"
                return Solution(None, Termination.SKIPPED, message=reason)
            return _solution(problem, model, variables, solve_status.name, solution_status.name)

        return run

    @property
    def _controls(self) -> dict[str, float]:
        controls: dict[str, float] = {
            "miprelstop": self.gap,
            "mipabsstop": 0.0,
            # By default, Xpress discards nodes that improve the objective by less than 1e-5.
            "mipaddcutoff": 0.0,
            "miprelcutoff": 0.0,
            "feastol": self.feasibility_tol,
            "nlpvalidationtol_a": self.feasibility_tol,
            "nlpvalidationtol_r": self.feasibility_tol,
            # Without it, Xpress bounds free variables, and its bound holds only within those bounds.
            "globalboundingbox": 0,
        }
        return controls if self.max_nodes is None else controls | {"maxnode": self.max_nodes}


def _model(problem: QCQP) -> tuple[Any, list[Any]]:
    """Return an Xpress problem and its variables, with bounds tightened by the balls of `problem`."""
    import xpress

    model = xpress.problem()
    model.setOutputEnabled(False)
    lower, upper = (np.clip(bounds, -xpress.infinity, xpress.infinity).tolist() for bounds in implied_box(problem))
    variables = [model.addVariable(lb=low, ub=high) for low, high in zip(lower, upper, strict=True)]
    sense = xpress.ObjSense.MINIMIZE if problem.sense == "minimize" else xpress.ObjSense.MAXIMIZE
    model.setObjective(_expression(row_terms(problem, 0), variables) + problem.constant, sense=sense)
    types = {"<=": xpress.leq, ">=": xpress.geq, "==": xpress.eq}
    for terms, relation, bound in one_sided_constraints(problem):
        model.addConstraint(xpress.constraint(body=_expression(terms, variables), type=types[relation], rhs=bound))
    return model, variables


def _expression(terms: Terms, variables: list[Any]) -> Any:
    import xpress

    quadratic = zip(terms.products.tolist(), terms.i.tolist(), terms.j.tolist(), strict=True)
    linear = zip(terms.coefficients.tolist(), terms.variables.tolist(), strict=True)
    return xpress.Sum(
        [coefficient * variables[i] * variables[j] for coefficient, i, j in quadratic]
        + [coefficient * variables[k] for coefficient, k in linear]
    )


def _solution(problem: QCQP, model: Any, variables: list[Any], solve_status: str, solution_status: str) -> Solution:
    """Return the solution of a model that was optimized, with the names of its two final statuses."""
    import xpress

    has_optimum = solution_status not in ("INFEASIBLE", "UNBOUNDED")
    has_point = solution_status in ("OPTIMAL", "FEASIBLE")
    x = np.array(model.getSolution(variables)) if has_point else None
    stopped = model.attributes.stopstatus
    termination = _TERMINATION.get(solution_status, Termination.FAILED)
    if termination is Termination.FAILED and solve_status == "STOPPED":
        node_limit = stopped == xpress.StopType.NODELIMIT
        termination = Termination.ITERATION_LIMIT if node_limit else Termination.TIME_LIMIT
    bound = float(model.attributes.bestbound)
    return Solution(
        x=x,
        termination=termination,
        objective=None if x is None else float(problem.objective(x)),
        bound=bound if has_optimum and abs(bound) < xpress.infinity else None,
        iterations=int(model.attributes.nodes),
        message=f"{solve_status.lower()}, {solution_status.lower()}",
        details={"xpress": xpress.getVersion()},
    )
