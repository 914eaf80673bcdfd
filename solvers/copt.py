"""COPT through coptpy: an interior-point method for local optima, or spatial branch and bound for the global one."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.qcqp import QCQP

from ._boxes import implied_box
from ._licences import first_line, licence_availability, refusal
from ._one_sided import Indices, Terms, one_sided_constraints, row_terms
from ._silence import silenced

Array = NDArray[np.float64]

# The keys are names of COPT's status codes.
_TERMINATION = {
    "OPTIMAL": Termination.OPTIMAL,
    "LOCAL_OPTIMAL": Termination.LOCALLY_OPTIMAL,
    "INFEASIBLE": Termination.INFEASIBLE,
    "LOCAL_INFEASIBLE": Termination.LOCALLY_INFEASIBLE,
    "UNBOUNDED": Termination.UNBOUNDED,
    "IMPRECISE": Termination.STALLED,
    "TIMEOUT": Termination.TIME_LIMIT,
    "NODELIMIT": Termination.ITERATION_LIMIT,
    "ITERLIMIT": Termination.ITERATION_LIMIT,
}
_STATUS_NAMES = (*_TERMINATION, "INF_OR_UNB", "NUMERICAL", "UNFINISHED", "INTERRUPTED", "UNSTARTED")
# The error of COPT that concerns the licence.
_LICENCE_ERROR = 4
# Values of COPT's parameter NonConvex.
_LOCAL, _GLOBAL = 1, 2


@dataclass(frozen=True)
class Copt(QCQPSolver):
    """COPT. By default its interior-point method for local optima; a problem that is convex is solved globally.

    COPT uses the licence that COPT_LICENSE_DIR names or that it finds in its usual places; without one, it limits the
    size of a problem.

    Parameters
    ----------
    nonconvex
        If True, COPT solves the problem globally by branch and bound; the number of iterations is that of nodes. Its
        bound is proved up to its feasibility tolerance.
    tol, max_iter
        Tolerance and iteration limit of the interior-point method.
    gap, feasibility_tol
        Relative optimality gap and feasibility tolerance of branch and bound.
    """

    name = "copt"
    drives = "COPT, interior point or spatial branch and bound, through coptpy"
    requires = ("coptpy",)
    extra = "copt"
    citation = "Ge et al., Cardinal Optimizer (COPT) user guide, arXiv:2208.14314"

    nonconvex: bool = False
    tol: float = 1e-8
    max_iter: int = 3000
    gap: float = 1e-6
    feasibility_tol: float = 1e-7

    def availability(self) -> tuple[Availability, str]:
        status, reason = super().availability()
        if status is Availability.AVAILABLE:
            return licence_availability("COPT_LICENSE_DIR", "a folder with a licence of COPT")
        return status, reason

    def build(self, problem: QCQP) -> RunFunction:
        import coptpy

        try:
            environment = _environment()
        except coptpy.CoptError as error:
            return refusal(f"copt: no valid licence: {first_line(error.message)}")
        model, variables = _model(problem, environment, tighten=self.nonconvex)
        for name, value in self._parameters.items():
            model.setParam(name, value)
        version = ".".join(str(getattr(coptpy.COPT, f"VERSION_{part}")) for part in ("MAJOR", "MINOR", "TECHNICAL"))

        def run(start: Array, budget: Budget) -> Solution:
            model.reset()
            start = np.clip(start, problem.x_lower, problem.x_upper)
            set_start = model.setMipStart if self.nonconvex else model.setNlPrimalStart
            set_start(variables, start.tolist())
            if self.nonconvex:
                model.loadMipStart()
            try:
                status = _solve(model, variables, budget, self.nonconvex)
            except coptpy.CoptError as error:
                if error.retcode != _LICENCE_ERROR:
                    raise
                size = f"{problem.n_variables} variables and {problem.n_constraints} constraints"
                reason = f"the licence in use does not allow {size}; without a licence, COPT allows 2,000 of each"
                return Solution(None, Termination.SKIPPED, message=f"copt: {reason}")
            point = np.array([variable.x for variable in variables]) if model.hassol else None
            return Solution(
                x=point,
                termination=_TERMINATION.get(status, Termination.FAILED),
                objective=None if point is None else float(problem.objective(point)),
                bound=_bound(model, status) if self.nonconvex else None,
                iterations=int(model.nodecnt if self.nonconvex else model.barrieriter),
                message=status.lower(),
                details={"copt": version},
            )

        return run

    @property
    def _parameters(self) -> dict[str, float]:
        common = {"Logging": 0, "NonConvex": _GLOBAL if self.nonconvex else _LOCAL}
        if self.nonconvex:
            return common | {"RelGap": self.gap, "AbsGap": 0.0, "FeasTol": self.feasibility_tol}
        return common | {"NLPTol": self.tol, "NLPIterLimit": self.max_iter}


@cache
def _environment() -> Any:
    """Return the environment of COPT. It is kept, because COPT crashes if an environment is freed before its models."""
    import coptpy

    with silenced():
        return coptpy.Envr()


def _model(problem: QCQP, environment: Any, tighten: bool) -> tuple[Any, list[Any]]:
    """Return a COPT model of `problem` and its variables; `tighten` adds the bounds implied by balls."""
    import coptpy

    infinity = coptpy.COPT.INFINITY
    model = environment.createModel("qcqp")
    box = implied_box(problem) if tighten else (problem.x_lower, problem.x_upper)
    lower, upper = (np.clip(bounds, -infinity, infinity).tolist() for bounds in box)
    variables = [model.addVar(lb=low, ub=high) for low, high in zip(lower, upper, strict=True)]
    sense = coptpy.COPT.MINIMIZE if problem.sense == "minimize" else coptpy.COPT.MAXIMIZE
    model.setObjective(_expression(row_terms(problem, 0), variables, problem.constant), sense)
    senses = {"<=": coptpy.COPT.LESS_EQUAL, ">=": coptpy.COPT.GREATER_EQUAL, "==": coptpy.COPT.EQUAL}
    for terms, relation, bound in one_sided_constraints(problem):
        add = model.addQConstr if terms.is_quadratic else model.addConstr
        add(_expression(terms, variables), senses[relation], bound)
    return model, variables


def _expression(terms: Terms, variables: list[Any], constant: float = 0.0) -> Any:
    import coptpy

    def chosen(indices: Indices) -> list[Any]:
        return [variables[k] for k in indices.tolist()]

    linear = coptpy.LinExpr(constant)
    linear.addTerms(chosen(terms.variables), terms.coefficients.tolist())
    if not terms.is_quadratic:
        return linear
    quadratic = coptpy.QuadExpr(linear)
    quadratic.addTerms(terms.products.tolist(), chosen(terms.i), chosen(terms.j))
    return quadratic


def _solve(model: Any, variables: list[Any], budget: Budget, reports: bool) -> str:
    """Solve `model` within `budget` and return the name of the final status; report better solutions if `reports`."""
    import coptpy

    class Reporter(coptpy.CallbackBase):
        def callback(self) -> None:
            budget.report(np.array([self.getSolution(variable) for variable in variables]))

    model.setParam("Threads", budget.threads)
    if reports:
        model.setCallback(Reporter(), coptpy.COPT.CBCONTEXT_MIPSOL)
    status = _status_within(model, budget)
    if status != "INF_OR_UNB":
        return status
    # A feasible point shows that the problem is unbounded; COPT is asked for one without the objective.
    feasibility = model.clone()
    feasibility.setObjective(0.0)
    status = _status_within(feasibility, budget)
    return "UNBOUNDED" if status in ("OPTIMAL", "LOCAL_OPTIMAL") else status


def _status_within(model: Any, budget: Budget) -> str:
    """Solve `model` within the time left and return the name of the final status."""
    import coptpy

    if np.isfinite(budget.time_limit):
        model.setParam("TimeLimit", max(budget.remaining(), 1e-3))
    with _kept_interrupt_handler():
        model.solve()
    names = {getattr(coptpy.COPT, name): name for name in _STATUS_NAMES}
    return names.get(model.status, f"STATUS {model.status}")


@contextlib.contextmanager
def _kept_interrupt_handler() -> Iterator[None]:
    """Restore the handler of SIGINT, which COPT replaces, when the context ends."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _bound(model: Any, status: str) -> float | None:
    """Return the proved bound on the objective of `model`; None if there is none."""
    import coptpy

    bound = float(model.objbound)
    is_proved = status not in ("INFEASIBLE", "UNBOUNDED") and abs(bound) < coptpy.COPT.INFINITY
    return bound if is_proved else None
