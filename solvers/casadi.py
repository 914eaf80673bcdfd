"""CasADi and the nonlinear programming solvers that it calls as plug-ins: IPOPT, Bonmin, fatrop, alpaqa, SLEQP."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.qcqp import QCQP

from ._nlp import Best, OutOfTime, minimization_sign
from ._silence import silenced

Array = NDArray[np.float64]

# The keys are the return statuses of the plug-ins; otherwise the unified status of CasADi is looked up.
_TERMINATION = {
    "Solve_Succeeded": Termination.LOCALLY_OPTIMAL,
    "Solved_To_Acceptable_Level": Termination.STALLED,
    "Search_Direction_Becomes_Too_Small": Termination.STALLED,
    "Infeasible_Problem_Detected": Termination.LOCALLY_INFEASIBLE,
    "Diverging_Iterates": Termination.UNBOUNDED,
    "Maximum_Iterations_Exceeded": Termination.ITERATION_LIMIT,
    "optimal": Termination.LOCALLY_OPTIMAL,
    "deadpoint": Termination.STALLED,
    "infeasible": Termination.LOCALLY_INFEASIBLE,
    "unbounded": Termination.UNBOUNDED,
    "iteration limit": Termination.ITERATION_LIMIT,
    "unknown": Termination.FAILED,
    "SOLVER_RET_SUCCESS": Termination.LOCALLY_OPTIMAL,
    "SOLVER_RET_LIMITED": Termination.ITERATION_LIMIT,
    "SOLVER_RET_INFEASIBLE": Termination.LOCALLY_INFEASIBLE,
}
# Size of a variable above which the points diverge, as in IPOPT.
_DIVERGENCE = 1e20
# Plug-ins in the wheel of CasADi whose solver is not in the wheel.
_STUBS = ("conopt", "knitro", "madnlp", "snopt", "worhp")


@dataclass(frozen=True)
class Casadi(QCQPSolver):
    """CasADi, which differentiates the problem and calls the solver of a plug-in.

    Parameters
    ----------
    plugin
        The plug-in: "ipopt" and "fatrop" are interior-point methods, "bonmin" is IPOPT without integer variables,
        "alpaqa" is an augmented Lagrangian method, which can exceed a time limit by half a second, "sleqp" an
        active-set method. The package contains them. The solvers of "conopt", "knitro", "madnlp", "snopt" and "worhp"
        have to be installed separately, and some need a licence.
    tol, max_iter
        Tolerance and iteration limit of the plug-in. SLEQP has its own tolerance.
    """

    name = "casadi"
    drives = "CasADi with IPOPT, Bonmin, fatrop, alpaqa, SLEQP or another of its plug-ins"
    requires = ("casadi",)
    extra = "casadi"
    citation = "Andersson et al., Math. Program. Comput. 11 (2019) 1, doi:10.1007/s12532-018-0139-4"

    plugin: Literal["ipopt", "bonmin", "fatrop", "alpaqa", "sleqp", "conopt", "knitro", "madnlp", "snopt", "worhp"] = (
        "ipopt"
    )
    tol: float = 1e-8
    max_iter: int = 3000

    def availability(self) -> tuple[Availability, str]:
        status, reason = super().availability()
        if status is Availability.AVAILABLE and not _has_plugin(self.plugin):
            reason = f"the plug-in {self.plugin} of CasADi does not find its solver: install {self.plugin}"
            return Availability.NOT_INSTALLED, reason
        return status, reason

    def build(self, problem: QCQP) -> RunFunction:
        import casadi

        watch = _watched_objective(problem)
        x = casadi.MX.sym("x", problem.n_variables)
        nlp = {"x": x, "f": watch(x), "g": _rows(problem, x, 1, 1 + problem.n_constraints)}
        solver = casadi.nlpsol("solver", self.plugin, nlp, self._options)
        bounds = {"lbx": problem.x_lower, "ubx": problem.x_upper, "lbg": problem.lower, "ubg": problem.upper}

        def run(start: Array, budget: Budget) -> Solution:
            watch.begin(budget)
            x0 = np.clip(start, problem.x_lower, problem.x_upper)
            details = {"casadi": casadi.CasadiMeta.version(), "plugin": self.plugin}
            try:
                with silenced():
                    result = solver(x0=x0, **bounds)
            except RuntimeError as error:
                message = str(error).strip().splitlines()[-1]
                return watch.best.solution(watch.stop or Termination.FAILED, message, details=details)
            stats = solver.stats()
            unified = stats["unified_return_status"]
            message = str(stats.get("return_status", unified))
            termination = watch.stop or _TERMINATION.get(message) or _TERMINATION.get(unified, Termination.FAILED)
            final = np.array(result["x"]).ravel()
            watch.best.see(final)
            return watch.best.solution(termination, message, final, stats.get("iter_count"), details)

        return np.errstate(all="ignore")(run)

    @property
    def _options(self) -> dict[str, Any]:
        limits = {"tol": self.tol, "max_iter": self.max_iter}
        ipopt = limits | {"print_level": 0, "sb": "yes"}
        alm = {"tolerance": self.tol, "dual_tolerance": self.tol, "max_iter": self.max_iter, "print_interval": 0}
        options: dict[str, dict[str, Any]] = {
            "ipopt": {"ipopt": ipopt},
            "bonmin": {"bonmin": ipopt | {"bb_log_level": 0}},
            "fatrop": {"fatrop": {"tolerance": self.tol, "max_iter": self.max_iter, "print_level": 0}},
            "alpaqa": {"alpaqa": {"alm": alm}},
            "sleqp": {"max_iter": self.max_iter, "print_level": 0},
        }
        return {"print_time": False, "show_eval_warnings": False, **options.get(self.plugin, {})}


def _has_plugin(plugin: str) -> bool:
    """Return whether CasADi can load the plug-in; only for a stub of the wheel is CasADi imported."""
    specification = importlib.util.find_spec("casadi")
    assert specification is not None and specification.origin is not None
    if not Path(specification.origin).with_name(f"libcasadi_nlpsol_{plugin}.so").exists() or plugin in _STUBS:
        import casadi

        return bool(casadi.has_nlpsol(plugin))
    return True


def _rows(problem: QCQP, x: Any, begin: int, end: int) -> Any:
    """Return the rows `begin` to `end` − 1 of `problem` as an expression in `x`; row 0 is the objective."""
    import casadi

    i, j = problem.products.T.tolist()
    rows = _matrix(problem.quadratic[begin:end]) @ (x[i] * x[j]) + _matrix(problem.linear[begin:end]) @ x
    # The plug-ins require dense vectors, also if a row is empty.
    return casadi.densify(rows)


def _matrix(matrix: sparse.csr_array) -> Any:
    """Return a sparse matrix of CasADi."""
    import casadi

    by_column = matrix.tocsc()
    rows, columns = by_column.shape
    sparsity = casadi.Sparsity(rows, columns, by_column.indptr.tolist(), by_column.indices.tolist())
    return casadi.DM(sparsity, by_column.data)


def _watched_objective(problem: QCQP) -> Any:
    """Return the objective, as a minimization, as a function of CasADi that watches its points.

    It keeps the best point and reports every point that improves on it. It raises once the time limit is reached or the
    points diverge: most plug-ins have neither a callback for their iterates nor a time limit.
    """
    import casadi

    sign, n = minimization_sign(problem), problem.n_variables

    class WatchedObjective(casadi.Callback):
        def __init__(self) -> None:
            casadi.Callback.__init__(self)
            self.begin(Budget())
            self.construct("watched_objective", {})

        def begin(self, budget: Budget) -> None:
            self.budget, self.best = budget, Best(problem, 1e-6)
            self.stop: Termination | None = None

        def get_n_in(self) -> int:
            return 1

        def get_n_out(self) -> int:
            return 1

        def get_sparsity_in(self, _: int) -> Any:
            return casadi.Sparsity.dense(n, 1)

        def eval(self, arguments: Any) -> list[float]:
            x = np.array(arguments[0]).ravel()
            if self.budget.exhausted():
                self.stop = Termination.TIME_LIMIT
            elif np.abs(x).max(initial=0.0) > _DIVERGENCE:
                self.stop = Termination.UNBOUNDED
            if self.stop is not None:
                raise OutOfTime
            if self.best.see(x):
                self.budget.report(x)
            return [sign * float(problem.objective(x))]

        def has_jacobian(self) -> bool:
            return True

        def get_jacobian(self, name: str, names_in: Any, names_out: Any, options: Any) -> Any:
            x, value = casadi.MX.sym("x", n), casadi.MX.sym("value")
            jacobian = casadi.jacobian(sign * _rows(problem, x, 0, 1), x)
            return casadi.Function(name, [x, value], [jacobian], names_in, names_out, options)

    return WatchedObjective()
