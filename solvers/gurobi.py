"""Gurobi through gurobipy: spatial branch and bound, which proves a bound and, given enough time, the optimum."""

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

# The keys are names of Gurobi's status codes.
_TERMINATION = {
    "OPTIMAL": Termination.OPTIMAL,
    "INFEASIBLE": Termination.INFEASIBLE,
    "UNBOUNDED": Termination.UNBOUNDED,
    "TIME_LIMIT": Termination.TIME_LIMIT,
    "NODE_LIMIT": Termination.ITERATION_LIMIT,
    "SUBOPTIMAL": Termination.STALLED,
}
# Errors of Gurobi that concern the licence.
_NO_LICENCE, _MODEL_TOO_LARGE = 10009, 10010
_LIMIT_OF_PACKAGE = "that of the package allows 200 variables with quadratic terms, 2,000 variables and rows without"


@dataclass(frozen=True)
class Gurobi(QCQPSolver):
    """Gurobi, a global solver by spatial branch and bound. Its bound is proved up to its feasibility tolerance.

    The number of iterations is that of branch-and-bound nodes. Gurobi uses the licence that GRB_LICENSE_FILE names or
    that it finds in its usual places, otherwise the one in the package, which limits the size of a problem.

    Parameters
    ----------
    gap
        Relative optimality gap at which Gurobi stops.
    feasibility_tol
        Feasibility tolerance of Gurobi.
    max_nodes
        Limit on the number of branch-and-bound nodes; unlimited by default.
    """

    name = "gurobi"
    drives = "Gurobi, spatial branch and bound, through gurobipy"
    scope = Scope.GLOBAL
    requires = ("gurobipy",)
    extra = "gurobi"
    citation = "Gurobi Optimizer Reference Manual, https://www.gurobi.com"
    accuracy = 1e-5

    gap: float = 1e-6
    feasibility_tol: float = 1e-7
    max_nodes: int | None = None

    def availability(self) -> tuple[Availability, str]:
        status, reason = super().availability()
        if status is Availability.AVAILABLE:
            return licence_availability("GRB_LICENSE_FILE", "a licence file of Gurobi")
        return status, reason

    def build(self, problem: QCQP) -> RunFunction:
        import gurobipy

        try:
            environment = gurobipy.Env(params={"OutputFlag": 0})
        except gurobipy.GurobiError as error:
            return refusal(f"gurobi: no valid licence: {first_line(error)}")
        model, x = _model(problem, environment)
        model.Params.MIPGap = self.gap
        model.Params.FeasibilityTol = self.feasibility_tol
        if self.max_nodes is not None:
            model.Params.NodeLimit = self.max_nodes
        if not _is_allowed(model, environment):
            size = f"{model.NumVars} variables and {model.NumConstrs + model.NumQConstrs} rows"
            return refusal(f"gurobi: the licence in use does not allow {size}; {_LIMIT_OF_PACKAGE}")
        version = ".".join(map(str, gurobipy.gurobi.version()))

        def run(start: Array, budget: Budget) -> Solution:
            model.reset(1)
            model.Params.Threads = budget.threads
            x.Start = np.clip(start, problem.x_lower, problem.x_upper)
            status = _optimize(model, x, budget)
            has_optimum = status not in ("INFEASIBLE", "UNBOUNDED")
            point = np.array(x.X) if has_optimum and model.SolCount > 0 else None
            return Solution(
                x=point,
                termination=_TERMINATION.get(status, Termination.FAILED),
                objective=None if point is None else float(problem.objective(point)),
                bound=_bound(model) if has_optimum else None,
                iterations=int(model.NodeCount),
                message=status.lower(),
                details={"gurobi": version},
            )

        return run


def _model(problem: QCQP, environment: Any) -> tuple[Any, Any]:
    """Return a Gurobi model of `problem` and its variables, with bounds tightened by the balls of `problem`."""
    import gurobipy

    model = gurobipy.Model(env=environment)
    lower, upper = implied_box(problem)
    x = model.addMVar(problem.n_variables, lb=lower, ub=upper)
    variables = np.array(x.tolist(), dtype=object)
    sense = gurobipy.GRB.MINIMIZE if problem.sense == "minimize" else gurobipy.GRB.MAXIMIZE
    model.setObjective(_expression(row_terms(problem, 0), variables) + problem.constant, sense)
    relations = {"<=": gurobipy.GRB.LESS_EQUAL, ">=": gurobipy.GRB.GREATER_EQUAL, "==": gurobipy.GRB.EQUAL}
    for terms, relation, bound in one_sided_constraints(problem):
        add = model.addQConstr if terms.is_quadratic else model.addLConstr
        add(_expression(terms, variables), relations[relation], bound)
    model.update()
    return model, x


def _expression(terms: Terms, variables: NDArray[np.object_]) -> Any:
    import gurobipy

    linear = gurobipy.LinExpr(terms.coefficients.tolist(), variables[terms.variables].tolist())
    if not terms.is_quadratic:
        return linear
    quadratic = gurobipy.QuadExpr(linear)
    quadratic.addTerms(terms.products.tolist(), variables[terms.i].tolist(), variables[terms.j].tolist())
    return quadratic


def _is_allowed(model: Any, environment: Any) -> bool:
    """Return whether the licence allows the size of `model`, tried on a trivial model of the same size."""
    import gurobipy

    trial = gurobipy.Model(env=environment)
    x = trial.addVars(model.NumVars)
    for _ in range(model.NumConstrs):
        trial.addLConstr(gurobipy.LinExpr(), gurobipy.GRB.LESS_EQUAL, 1)
    for _ in range(model.NumQConstrs):
        trial.addQConstr(x[0] * x[0], gurobipy.GRB.LESS_EQUAL, 1)
    if model.NumQNZs:
        trial.setObjective(x[0] * x[0])
    try:
        trial.optimize()
    except gurobipy.GurobiError as error:
        if error.errno in (_NO_LICENCE, _MODEL_TOO_LARGE):
            return False
        raise
    return True


def _bound(model: Any) -> float | None:
    """Return the proved bound on the objective of `model`; None if there is none."""
    import gurobipy

    try:
        bound = float(model.ObjBound)
    except AttributeError:
        return None
    return bound if abs(bound) < gurobipy.GRB.INFINITY else None


def _optimize(model: Any, x: Any, budget: Budget) -> str:
    """Optimize `model`, report every better solution to `budget`, and return the name of the final status."""
    import gurobipy

    def report(running: Any, where: int) -> None:
        if where == gurobipy.GRB.Callback.MIPSOL:
            budget.report(np.asarray(running.cbGetSolution(x)))

    names = {getattr(gurobipy.GRB.Status, name): name for name in dir(gurobipy.GRB.Status) if name.isupper()}
    if np.isfinite(budget.time_limit):
        model.Params.TimeLimit = budget.remaining()
    model.optimize(report)
    status = names.get(model.Status, f"STATUS {model.Status}")
    if status != "INF_OR_UNBD":
        return status
    # A feasible point shows that the problem is unbounded; Gurobi is asked for one without the objective.
    feasibility = model.copy()
    feasibility.setObjective(0)
    if np.isfinite(budget.time_limit):
        feasibility.Params.TimeLimit = budget.remaining()
    feasibility.optimize()
    status = names.get(feasibility.Status, f"STATUS {feasibility.Status}")
    return "UNBOUNDED" if status == "OPTIMAL" else status
