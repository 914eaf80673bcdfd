"""Pyomo models, solved by IPOPT, SCIP or another solver that Pyomo can call."""

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best
from ._pyomo_model import load_pyomo, point, pyomo_model, set_point, uses_setup_library

Array = NDArray[np.float64]

# The keys are the names of the termination conditions in both solver interfaces of Pyomo.
_TERMINATION = {
    "optimal": Termination.LOCALLY_OPTIMAL,
    "locallyOptimal": Termination.LOCALLY_OPTIMAL,
    "globallyOptimal": Termination.OPTIMAL,
    "convergenceCriteriaSatisfied": Termination.LOCALLY_OPTIMAL,
    "feasible": Termination.STALLED,
    "minStepLength": Termination.STALLED,
    "maxTimeLimit": Termination.TIME_LIMIT,
    "userInterrupt": Termination.TIME_LIMIT,
    "maxIterations": Termination.ITERATION_LIMIT,
    "iterationLimit": Termination.ITERATION_LIMIT,
    "infeasible": Termination.LOCALLY_INFEASIBLE,
    "locallyInfeasible": Termination.LOCALLY_INFEASIBLE,
    "provenInfeasible": Termination.INFEASIBLE,
    "unbounded": Termination.UNBOUNDED,
}
_OPTION_NAMES = {
    "cyipopt": ("tol", "max_iter"),
    "ipopt_v2": ("tol", "max_iter"),
    "scip_direct": ("numerics/feastol", "limits/totalnodes"),
}


@dataclass(frozen=True)
class Pyomo(QCQPSolver):
    """Solver that states the problem as a Pyomo model and calls a solver through Pyomo.

    Parameters
    ----------
    backend
        "ipopt": the executable ipopt if it is installed, else cyipopt through PyNumero. "scip": SCIP through PySCIPOpt.
        Any other name is looked up in Pyomo's SolverFactory.
    tol, max_iter
        Tolerance and iteration limit of ipopt; feasibility tolerance and node limit of scip. Other backends use
        their defaults.
    """

    name = "pyomo"
    drives = "Pyomo models, solved by IPOPT (executable or PyNumero), SCIP or others"
    requires = ("pyomo",)
    extra = "pyomo"
    citation = "Hart, Watson, Woodruff, Math. Program. Comput. 3 (2011) 219, doi:10.1007/s12532-011-0026-8"

    backend: str = "ipopt"
    tol: float = 1e-8
    max_iter: int | None = None

    def availability(self) -> tuple[Availability, str]:
        status, reason = super().availability()
        if status is Availability.AVAILABLE:
            reason = _missing_parts(self._solver_name)
        return (Availability.NOT_INSTALLED, reason) if reason else (Availability.AVAILABLE, "")

    def build(self, problem: QCQP) -> RunFunction:
        with load_pyomo():
            model = pyomo_model(problem)

        def run(start: Array, budget: Budget) -> Solution:
            if problem.quadratic.nnz + problem.linear.nnz == 0:
                # Pyomo rejects a model in which no variable occurs; every point within the bounds is optimal.
                x = np.clip(start, problem.x_lower, problem.x_upper)
                return Solution(x, Termination.LOCALLY_OPTIMAL, problem.constant, iterations=0)
            set_point(model, np.clip(start, problem.x_lower, problem.x_upper))
            with load_pyomo() as pyo:
                from pyomo.contrib.solver.common.base import LegacySolverWrapper

                solver = pyo.SolverFactory(self._solver_name)
                call = _call_new if isinstance(solver, LegacySolverWrapper) else _call_old
                if self._solver_name == "cyipopt":
                    call = _call_pynumero
                return call(problem, model, solver, self._options, budget)

        return run

    @property
    def _solver_name(self) -> str:
        ipopt = "ipopt_v2" if shutil.which("ipopt") else "cyipopt"
        return {"ipopt": ipopt, "scip": "scip_direct"}.get(self.backend, self.backend)

    @property
    def _options(self) -> dict[str, float]:
        given = zip(_OPTION_NAMES.get(self._solver_name, ()), (self.tol, self.max_iter), strict=False)
        return {name: value for name, value in given if value is not None}


def _missing_parts(solver: str) -> str:
    """Return the missing parts of the Pyomo solver named `solver` and how to install them; "" if none is missing.

    For IPOPT and SCIP, no native code is imported.
    """
    if solver == "ipopt_v2":
        return ""
    if solver == "scip_direct":
        installed = importlib.util.find_spec("pyscipopt") is not None
        return "" if installed else "pyscipopt missing: pip install 'qcqpbench[scip]'"
    if solver == "cyipopt":
        # PyNumero imports packaging but does not declare it as a dependency.
        missing = [module for module in ("cyipopt", "packaging") if importlib.util.find_spec(module) is None]
        if missing:
            return f"no executable ipopt, and {', '.join(missing)} missing: pip install 'qcqpbench[pyomo]'"
        if uses_setup_library():
            return ""
        from pyomo.common.fileutils import find_library

        installed = find_library("pynumero_ASL") is not None
        return "" if installed else "no executable ipopt, and PyNumero's library missing: tools/pynumero.sh compiles it"
    with load_pyomo() as pyo:
        if solver not in pyo.SolverFactory:
            return f"backend must be ipopt, scip or a solver that Pyomo knows, got {solver!r}"
        installed = pyo.SolverFactory(solver).available(exception_flag=False)
        return "" if installed else f"{solver} missing: install it so that Pyomo can find it"


def _limit(budget: Budget) -> float | None:
    """Return the time left in seconds, at least 1 ms; None without a time limit."""
    return max(budget.remaining(), 1e-3) if np.isfinite(budget.time_limit) else None


def _call_pynumero(problem: QCQP, model: Any, solver: Any, options: dict[str, float], budget: Budget) -> Solution:
    """Solve `model` with cyipopt through PyNumero and report every iterate to `budget`."""
    import cyipopt

    best = Best(problem, 1e-6)
    iterations = 0
    x = point(model)
    order: list[int] = []

    # Pyomo passes the problem object of cyipopt only to a callback with thirteen parameters.
    def intermediate(
        nlp: Any, ipopt: Any, mode: int, iteration: int, _f: float, _p: float, _d: float,
        _mu: float, _s: float, _r: float, _ad: float, _ap: float, _t: int,
    ) -> bool:  # fmt: skip
        nonlocal iterations
        iterations = iteration
        iterate = ipopt.get_current_iterate() if mode == 0 else None
        if iterate is not None:
            # The iterate has the variable order of Pyomo and omits variables that do not occur in the model.
            order[:] = order or [variable.index() for variable in nlp.get_pyomo_variables()]
            x[order] = iterate["x"]
            budget.report(x)
            best.see(x)
        # The option max_wall_time of IPOPT is not used: IPOPT would end with a status that Pyomo does not know.
        return not budget.exhausted()

    results = solver.solve(
        model, options={"print_level": 0, "sb": "yes", **options}, intermediate_callback=intermediate
    )
    termination = _TERMINATION.get(str(results.solver.termination_condition), Termination.FAILED)
    final = point(model)
    best.see(final)
    chosen = best.choose(final, termination)
    return Solution(
        x=chosen,
        termination=termination,
        objective=float(problem.objective(chosen)),
        iterations=iterations,
        message=results.solver.message.decode(),
        details={"solver": "cyipopt", "ipopt": ".".join(map(str, cyipopt.IPOPT_VERSION))},
    )


def _call_new(problem: QCQP, model: Any, solver: Any, options: dict[str, float], budget: Budget) -> Solution:
    """Solve through the newer solver interface of Pyomo, which returns bounds and also points that are not optimal."""
    from pyomo.contrib.solver.common.factory import SolverFactory

    limit = _limit(budget)
    if solver.name == "ipopt" and limit is not None and solver.version() >= (3, 14):
        # Otherwise Pyomo limits the CPU time of IPOPT and kills IPOPT one second after the limit.
        options["max_wall_time"] = limit
    try:
        results = SolverFactory(solver.name).solve(
            model,
            solver_options=options,
            time_limit=limit,
            threads=budget.threads,
            load_solutions=False,
            raise_exception_on_nonoptimal_result=False,
        )
    except subprocess.TimeoutExpired:
        return Solution(
            point(model), Termination.TIME_LIMIT, message="killed at the time limit; the point is the start"
        )
    return _new_solution(problem, model, solver, results, budget)


def _new_solution(problem: QCQP, model: Any, solver: Any, results: Any, budget: Budget) -> Solution:
    """Return the solution that `results` of the newer solver interface holds."""
    condition = results.termination_condition.name
    termination = _TERMINATION.get(condition, Termination.FAILED)
    bound = results.objective_bound
    proved = bound is not None and np.isfinite(bound)
    if termination is Termination.LOCALLY_OPTIMAL and proved:
        termination = Termination.OPTIMAL
    elif termination is Termination.ITERATION_LIMIT and budget.exhausted():
        # The file that IPOPT writes for Pyomo does not distinguish between limits.
        termination = Termination.TIME_LIMIT
    x = None
    if results.solution_status.name != "noSolution" and termination is not Termination.UNBOUNDED:
        results.solution_loader.load_vars()
        x = point(model)
    extra = results.extra_info.value()
    return Solution(
        x=x,
        termination=termination,
        objective=None if x is None else float(problem.objective(x)),
        bound=bound if proved else None,
        iterations=extra.get("iteration_count", extra.get("NNodes")),
        message=extra.get("solver_message", condition),
        details={"solver": f"{solver.name} {'.'.join(map(str, results.solver_version or ()))}"},
    )


def _call_old(problem: QCQP, model: Any, solver: Any, _: dict[str, float], budget: Budget) -> Solution:
    """Solve through the older solver interface of Pyomo, with the default options of the solver."""
    limit = _limit(budget)
    results = solver.solve(model, **({} if limit is None else {"timelimit": limit}))
    condition = str(results.solver.termination_condition)
    x = point(model)
    termination = _TERMINATION.get(condition, Termination.FAILED)
    return Solution(x=x, termination=termination, objective=float(problem.objective(x)), message=condition)
