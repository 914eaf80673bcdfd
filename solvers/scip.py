"""SCIP through PySCIPOpt: spatial branch and bound, which proves a bound and, given enough time, the optimum."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Scope, Termination
from qcqpbench.problem.qcqp import QCQP

from ._boxes import implied_box

Array = NDArray[np.float64]

_TERMINATION = {
    "optimal": Termination.OPTIMAL,
    "gaplimit": Termination.OPTIMAL,
    "infeasible": Termination.INFEASIBLE,
    "unbounded": Termination.UNBOUNDED,
    "inforunbd": Termination.UNBOUNDED,
    "timelimit": Termination.TIME_LIMIT,
    "nodelimit": Termination.ITERATION_LIMIT,
    "totalnodelimit": Termination.ITERATION_LIMIT,
    "memlimit": Termination.FAILED,
}


@dataclass(frozen=True)
class Scip(QCQPSolver):
    """SCIP, a global solver by spatial branch and bound. Its bound is proved up to its feasibility tolerance.

    The number of iterations is that of branch-and-bound nodes.

    Parameters
    ----------
    gap
        Relative optimality gap at which SCIP stops.
    feasibility_tol
        Feasibility tolerance of SCIP.
    max_nodes
        Limit on the number of branch-and-bound nodes; unlimited by default.
    """

    name = "scip"
    drives = "SCIP, spatial branch and bound, through PySCIPOpt"
    scope = Scope.GLOBAL
    requires = ("pyscipopt",)
    extra = "scip"
    citation = "Bestuzheva et al., ACM Trans. Math. Softw. 49 (2023) 22, doi:10.1145/3585516"
    accuracy = 1e-5

    gap: float = 1e-6
    feasibility_tol: float = 1e-7
    max_nodes: int | None = None

    def build(self, problem: QCQP) -> RunFunction:
        import pyscipopt

        version = f"{pyscipopt.scip.MAJOR}.{pyscipopt.scip.MINOR}.{pyscipopt.scip.PATCH}"

        model, variables = scip_model(problem)
        model.setParam("limits/gap", self.gap)
        model.setParam("numerics/feastol", self.feasibility_tol)
        model.setParam("limits/totalnodes", -1 if self.max_nodes is None else self.max_nodes)
        reporter = _add_reporter(model, variables[: problem.n_variables])

        def run(start: Array, budget: Budget) -> Solution:
            model.freeTransform()
            reporter.budget = budget
            model.setParam("parallel/maxnthreads", budget.threads)
            if np.isfinite(budget.time_limit):
                model.setParam("limits/time", max(budget.remaining(), 1e-3))
            _suggest(model, variables, [*start, float(problem.objective(start))])
            model.optimize()
            status = model.getStatus()
            has_point = model.getNSols() > 0 and status not in ("infeasible", "unbounded")
            x = _best(model, variables[: problem.n_variables]) if has_point else None
            bound = model.getDualbound()
            return Solution(
                x=x,
                termination=_TERMINATION.get(status, Termination.FAILED),
                objective=None if x is None else float(problem.objective(x)),
                bound=bound if abs(bound) < model.infinity() and status not in ("infeasible", "unbounded") else None,
                iterations=model.getNTotalNodes(),
                message=status,
                details={"scip": version},
            )

        return run


def scip_model(problem: QCQP) -> tuple[Any, list[Any]]:
    """Return a SCIP model of `problem` and its variables; a quadratic objective adds a last variable for its value."""
    import pyscipopt

    model = pyscipopt.Model()
    model.hideOutput()
    lower, upper = ([None if np.isinf(bound) else float(bound) for bound in bounds] for bounds in implied_box(problem))
    variables = [model.addVar(lb=low, ub=high) for low, high in zip(lower, upper, strict=True)]
    objective = _expression(problem, 0, variables) + problem.constant
    if problem.quadratic.indptr[1] > 0:
        # SCIP accepts only linear objectives.
        value = model.addVar(lb=None)
        model.addCons(objective <= value if problem.sense == "minimize" else objective >= value)
        objective = value
        variables = [*variables, value]
    model.setObjective(objective, problem.sense)
    for r in range(problem.n_constraints):
        _add_constraint(model, _expression(problem, r + 1, variables), problem.lower[r], problem.upper[r])
    return model, variables


def _add_constraint(model: Any, expression: Any, low: float, high: float) -> None:
    if low == high:
        model.addCons(expression == low)
    elif np.isinf(high):
        if np.isfinite(low):
            model.addCons(expression >= low)
    else:
        model.addCons(expression <= high if np.isinf(low) else (expression <= high) >= low)


def _expression(problem: QCQP, r: int, variables: list[Any]) -> Any:
    """Return the quadratic and linear terms of row `r` (0: objective, r ≥ 1: constraint) as an expression."""
    from pyscipopt import quicksum

    quadratic, linear = problem.quadratic, problem.linear
    products = range(quadratic.indptr[r], quadratic.indptr[r + 1])
    terms = range(linear.indptr[r], linear.indptr[r + 1])
    pairs = problem.products
    return quicksum(
        [
            quadratic.data[k] * variables[pairs[quadratic.indices[k], 0]] * variables[pairs[quadratic.indices[k], 1]]
            for k in products
        ]
        + [linear.data[k] * variables[linear.indices[k]] for k in terms]
    )


def _suggest(model: Any, variables: list[Any], values: list[float]) -> None:
    """Pass the start `values` to SCIP as a complete solution, which SCIP keeps only if it is feasible.

    A partial solution is not used, because SCIP could spend all of its time on completing it.
    """
    solution = model.createSol()
    for variable, value in zip(variables, values, strict=False):
        model.setSolVal(solution, variable, float(value))
    model.addSol(solution)


def _best(model: Any, variables: list[Any]) -> Array:
    best = model.getBestSol()
    return np.array([model.getSolVal(best, variable) for variable in variables])


def _add_reporter(model: Any, variables: list[Any]) -> Any:
    """Add and return an event handler that reports each new best solution to its `budget`, in case SCIP is killed."""
    from pyscipopt.scip import PY_SCIP_EVENTTYPE, Eventhdlr

    class Reporter(Eventhdlr):
        budget: Budget

        def eventinit(self) -> None:
            self.model.catchEvent(PY_SCIP_EVENTTYPE.BESTSOLFOUND, self)

        def eventexit(self) -> None:
            self.model.dropEvent(PY_SCIP_EVENTTYPE.BESTSOLFOUND, self)

        def eventexec(self, _: Any) -> None:
            self.budget.report(_best(self.model, variables))

    reporter = Reporter()
    model.includeEventhdlr(reporter, "reporter", "reports better solutions")
    return reporter
