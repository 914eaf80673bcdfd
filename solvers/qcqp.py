"""The qcqp package of Park and Boyd: a suggested point is improved by ADMM, coordinate descent or IPOPT."""

import copy
import importlib.util
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.formulations import FormulationName
from qcqpbench.problem.qcqp import QCQP

from . import _qcqp_compat
from ._nlp import Best, OutOfTime

Array = NDArray[np.float64]

# The package qcqp ranks points by their violation, rounded down to a multiple of this, then by objective.
_VIOLATION_STEP = 1e-4


@dataclass(frozen=True)
class Qcqp(QCQPSolver):
    """Suggest-and-improve heuristics of the package qcqp.

    Parameters
    ----------
    formulation
        QCQP formulation of max-margin tasks, as in `QCQPSolver`.
    suggest
        Initial point. "random": the given start. "spectral" and "sdr": a point from the spectral or the semidefinite
        relaxation.
    improve
        Method that improves the initial point; "dccp" does not work with current versions of dccp.
    max_iter
        Iteration limit of IPOPT, or of each of the two phases of admm and coord_descent.
    tol
        Largest violation that admm and coord_descent allow, and step size at which admm stops. With the default of the
        package, 1e-2, admm stops far from the optimum of small problems; margins of perceptrons hardly depend on tol.
    rho
        Penalty parameter of admm; by default the package chooses it.
    seed
        Seed of the random numbers of the package, which break ties in coord_descent and draw the point of "sdr".
    """

    name = "qcqp"
    drives = "qcqp, suggest-and-improve heuristics (ADMM and others), on cvxpy"
    requires = ("qcqp", "cvxpy")
    extra = "qcqp"
    citation = "Park, Boyd, arXiv:1703.07870 (2017)"
    tolerance = 1e-2
    accuracy = 1e-2

    formulation: FormulationName = "min_norm"
    suggest: Literal["random", "spectral", "sdr"] = "random"
    improve: Literal["admm", "coord_descent", "dccp", "ipopt"] = "admm"
    max_iter: int = 1000
    tol: float = 1e-4
    rho: float | None = None
    seed: int = 0

    @property
    def install_command(self) -> str:
        # qcqp requires cvxpy < 1.0, which can no longer be built; --no-deps ignores the requirement.
        return f"{super().install_command} && pip install --no-deps qcqp"

    def availability(self) -> tuple[Availability, str]:
        if self.improve == "dccp":
            return (
                Availability.UNSUPPORTED,
                "improve=dccp: qcqp 0.8.3 needs a dccp for cvxpy 0.4, and dccp 1.x has another interface",
            )
        if self.improve == "ipopt" and importlib.util.find_spec("cyipopt") is None:
            return Availability.NOT_INSTALLED, "cyipopt missing: pip install 'qcqpbench[ipopt]'"
        return super().availability()

    def build(self, problem: QCQP) -> RunFunction:
        package = _qcqp_compat.load()
        stated = _qcqp_compat.problem_for_qcqp(problem)
        prepared = package.QCQP(stated)
        (variable,) = stated.variables()

        def run(start: Array, budget: Budget) -> Solution:
            monitor = _Monitor(problem, budget)
            handler = copy.copy(prepared)
            handler.qcqp_form = monitor.wrap(prepared.qcqp_form)
            variable.value = start
            with _qcqp_compat.running(self.seed, _qcqp_compat.PyIpopt(self.max_iter, monitor.iterate)):
                termination, message = self._improve(handler, monitor, budget)
            x = np.ravel(variable.value)
            if termination is Termination.FINISHED:
                if not np.isfinite(x).all():
                    termination, message = Termination.FAILED, "qcqp returned a point with a value that is not finite"
                elif (monitor.iterations[1] or monitor.iterations[0]) >= self.max_iter:
                    termination = Termination.ITERATION_LIMIT
            if termination in (Termination.TIME_LIMIT, Termination.FAILED):
                x = start if monitor.best.x is None else monitor.best.x
            bounds = {"spectral": handler.spectral_bound, "sdr": handler.sdr_bound}
            return Solution(
                x=x,
                termination=termination,
                objective=float(problem.objective(x)),
                iterations=sum(monitor.iterations),
                message=message,
                details={f"{name}_relaxation": float(value) for name, value in bounds.items() if value is not None},
            )

        return run

    def _improve(self, handler: Any, monitor: "_Monitor", budget: Budget) -> tuple[Termination, str]:
        """Run suggest and improve of `handler`; return the termination and a message."""
        termination = Termination.FINISHED
        try:
            if self.suggest != "random":
                handler.suggest(self.suggest, **_relaxation_options(budget))
            _, violation = handler.improve(self.improve.replace("_", "-"), **self._options)
            message = f"violation {violation:.3g}"
        except OutOfTime:
            return Termination.TIME_LIMIT, ""
        except Exception as error:
            # The package raises Exception itself and does not catch the exceptions of NumPy and cvxpy.
            termination, message = Termination.FAILED, f"{type(error).__name__}: {error}"
        return (Termination.TIME_LIMIT if monitor.out_of_time else termination), message

    @property
    def _options(self) -> dict[str, Any]:
        if self.improve == "admm":
            return {"num_iters": self.max_iter, "tol": self.tol, "rho": self.rho}
        return {"num_iters": self.max_iter, "viol_tol": self.tol} if self.improve == "coord_descent" else {}


def _relaxation_options(budget: Budget) -> dict[str, Any]:
    """Return options for cvxpy: SCS, which was its default for semidefinite programs in 0.4, with the time limit."""
    limited = np.isfinite(budget.time_limit)
    return {"solver": "SCS", **({"time_limit_secs": max(budget.remaining(), 1e-3)} if limited else {})}


class _Monitor:
    """Monitor of a run that keeps the best point, counts the iterations of both phases and stops at the time limit."""

    def __init__(self, problem: QCQP, budget: Budget) -> None:
        self.best = Best(problem, _VIOLATION_STEP)
        self.iterations = [0, 0]
        self.out_of_time = False
        self._phase = 0
        self._budget = budget

    def wrap(self, form: Any) -> Any:
        """Return a copy of `form`, the problem in the form of the package, whose methods notify this monitor.

        In each iteration, admm gets every constraint by `fi`; in its second phase it also calls `better`. For each
        coordinate, coord_descent calls `get_onevar_func` of every constraint, and in its second phase of the objective.
        """
        form = type(form)(_fresh(form.f0), [_fresh(function) for function in form.fs])
        first, violations, better, fi = form.fs[0], form.violations, form.better, form.fi
        of_objective, of_first = form.f0.get_onevar_func, first.get_onevar_func

        def monitored_violations(x: Array) -> Any:
            self._see(x)
            return violations(x)

        def monitored_better(*points: Array) -> Any:
            self._phase = 1
            return better(*points)

        def monitored_constraint(i: int) -> Any:
            self._begin(i)
            return fi(i)

        def monitored_objective_along(x: Array, k: int) -> Any:
            self._phase = 1
            return of_objective(x, k)

        def monitored_first_along(x: Array, k: int) -> Any:
            if k == 0 or self._budget.exhausted():
                self._see(x)
            self._begin(k)
            return of_first(x, k)

        form.violations, form.better, form.fi = monitored_violations, monitored_better, monitored_constraint
        form.f0.get_onevar_func, first.get_onevar_func = monitored_objective_along, monitored_first_along
        return form

    def iterate(self, x: Array | None, iteration: int) -> bool:
        """Record the iterate `x` of IPOPT; return False if IPOPT must stop at the time limit."""
        if x is not None:
            self._see(x)
        self.iterations[0] = iteration
        self.out_of_time = self._budget.exhausted()
        return not self.out_of_time

    def _begin(self, number: int) -> None:
        """Raise OutOfTime at the time limit; else count an iteration if `number` is 0, its first step."""
        if self._budget.exhausted():
            raise OutOfTime
        self.iterations[self._phase] += number == 0

    def _see(self, x: Array) -> None:
        """Record the point `x` and report it to the budget."""
        self.best.see(x)
        self._budget.report(x)


def _fresh(function: Any) -> Any:
    """Return a copy of `function`, a quadratic function of the package, without results cached by earlier runs."""
    function = copy.copy(function)
    function.eigh = None
    # The package squeezes the array, which makes it a number if there is one variable.
    function.qarray = np.atleast_1d(function.qarray)
    return function
