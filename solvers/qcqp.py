"""The qcqp package of Park and Boyd: a suggested point, improved by ADMM, coordinate descent or IPOPT."""

import copy
import importlib.util
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, QCQPSolver, RunFunction, Solution
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.problem.qcqp import QCQP

from . import _qcqp_compat
from ._nlp import Best, OutOfTime

Array = NDArray[np.float64]

# The step in which the package compares violations before objectives.
_STEP = 1e-4


@dataclass(frozen=True)
class Qcqp(QCQPSolver):
    """suggest=random begins at the start it is given; spectral and sdr ask a relaxation for a point instead.

    max_iter   of each of the two phases of admm and coord_descent, or of ipopt
    tol        what admm and coord_descent allow as violation, and admm as the last step. The package's own 1e-2 ends
               admm far from the optimum of small problems; margins of perceptrons hardly depend on it.
    rho        the penalty of admm; by default the package chooses
    seed       of what the package draws: ties of coord_descent, the point of sdr
    """

    name = "qcqp"
    drives = "qcqp, suggest-and-improve heuristics (ADMM and others), on cvxpy"
    requires = ("qcqp", "cvxpy")
    extra = "qcqp"
    citation = "Park, Boyd, arXiv:1703.07870 (2017)"
    tolerance = 1e-2
    accuracy = 1e-2

    formulation: Literal["epigraph", "min_norm"] = "min_norm"
    suggest: Literal["random", "spectral", "sdr"] = "random"
    improve: Literal["admm", "coord_descent", "dccp", "ipopt"] = "admm"
    max_iter: int = 1000
    tol: float = 1e-4
    rho: float | None = None
    seed: int = 0

    @property
    def install_command(self) -> str:
        # It asks for cvxpy < 1.0, which no longer builds.
        return f"{super().install_command} && pip install --no-deps qcqp"

    def availability(self) -> tuple[Availability, str]:
        if self.improve == "dccp":
            return Availability.UNSUPPORTED, "qcqp 0.8.3 calls dccp as it was for cvxpy 0.4; dccp 1.x differs"
        if self.improve == "ipopt" and importlib.util.find_spec("cyipopt") is None:
            return Availability.NOT_INSTALLED, "cyipopt missing: pip install 'qcqpbench[ipopt]'"
        return super().availability()

    def build(self, problem: QCQP) -> RunFunction:
        package = _qcqp_compat.load()
        stated = _qcqp_compat.stated(problem)
        prepared = package.QCQP(stated)
        (variable,) = stated.variables()

        def run(start: Array, budget: Budget) -> Solution:
            watch = _Watch(problem, budget)
            handler = copy.copy(prepared)
            handler.qcqp_form = watch.over(prepared.qcqp_form)
            variable.value = start
            message = ""
            termination = Termination.FINISHED
            with _qcqp_compat.running(self.seed, _qcqp_compat.PyIpopt(self.max_iter, watch.iterate)):
                try:
                    if self.suggest != "random":
                        handler.suggest(self.suggest, **_relaxation_options(budget))
                    _, violation = handler.improve(self.improve.replace("_", "-"), **self._options)
                    message = f"violation {violation:.3g}"
                except OutOfTime:
                    watch.out_of_time = True
                except Exception as error:
                    # It raises nothing more special than Exception, and what NumPy and cvxpy raise beneath it.
                    termination, message = Termination.FAILED, f"{type(error).__name__}: {error}"
            x = np.ravel(variable.value)
            if watch.out_of_time:
                termination = Termination.TIME_LIMIT
            elif termination is Termination.FINISHED and not np.isfinite(x).all():
                termination, message = Termination.FAILED, "it returned a point that is not finite"
            elif termination is Termination.FINISHED and (watch.phases[1] or watch.phases[0]) >= self.max_iter:
                termination = Termination.ITERATION_LIMIT
            if termination in (Termination.TIME_LIMIT, Termination.FAILED):
                x = start if watch.best.x is None else watch.best.x
            bounds = {"spectral": handler.spectral_bound, "sdr": handler.sdr_bound}
            return Solution(
                x=x,
                termination=termination,
                objective=float(problem.objective(x)),
                iterations=sum(watch.phases),
                message=message,
                details={f"{name}_relaxation": float(value) for name, value in bounds.items() if value is not None},
            )

        return run

    @property
    def _options(self) -> dict[str, Any]:
        if self.improve == "admm":
            return {"num_iters": self.max_iter, "tol": self.tol, "rho": self.rho}
        return {"num_iters": self.max_iter, "viol_tol": self.tol} if self.improve == "coord_descent" else {}


def _relaxation_options(budget: Budget) -> dict[str, Any]:
    """For cvxpy: SCS is what it took for semidefinite programs in the package's days, and keeps to time limits."""
    limited = np.isfinite(budget.time_limit)
    return {"solver": "SCS", **({"time_limit_secs": max(budget.remaining(), 1e-3)} if limited else {})}


class _Watch:
    """Sees every point the package evaluates, counts iterations of its two phases, and stops it in time."""

    def __init__(self, problem: QCQP, budget: Budget) -> None:
        self.best = Best(problem, _STEP)
        self.phases = [0, 0]
        self.out_of_time = False
        self._phase = 0
        self._budget = budget

    def over(self, form: Any) -> Any:
        """The package's form of the problem, with what it kept from earlier runs forgotten, and watched through the
        methods that it calls in every iteration."""

        def fresh(function: Any) -> Any:
            function = copy.copy(function)
            function.eigh = None
            # The package squeezes it, also to a number if there is one variable.
            function.qarray = np.atleast_1d(function.qarray)
            return function

        form = type(form)(fresh(form.f0), [fresh(function) for function in form.fs])
        first, violations, better, fi = form.fs[0], form.violations, form.better, form.fi
        of_objective, of_first = form.f0.get_onevar_func, first.get_onevar_func

        def see_violations(x: Array) -> Any:
            self._see(x)
            return violations(x)

        def see_better(*points: Array) -> Any:
            self._phase = 1
            return better(*points)

        def see_constraint(i: int) -> Any:
            self._begin(i)
            return fi(i)

        def see_objective_along(x: Array, k: int) -> Any:
            self._phase = 1
            return of_objective(x, k)

        def see_first_along(x: Array, k: int) -> Any:
            if k == 0 or self._budget.exhausted():
                self._see(x)
            self._begin(k)
            return of_first(x, k)

        # admm asks for every constraint in an iteration and compares points in its second phase; coord_descent asks
        # for every constraint along every coordinate, in its second phase for the objective too.
        form.violations, form.better, form.fi = see_violations, see_better, see_constraint
        form.f0.get_onevar_func, first.get_onevar_func = see_objective_along, see_first_along
        return form

    def iterate(self, x: Array | None, iteration: int) -> bool:
        """Told by IPOPT; says whether to go on."""
        if x is not None:
            self._see(x)
        self.phases[0] = iteration
        self.out_of_time = self._budget.exhausted()
        return not self.out_of_time

    def _begin(self, number: int) -> None:
        """A step of an iteration begins, its first if the number is 0."""
        if self._budget.exhausted():
            raise OutOfTime
        self.phases[self._phase] += number == 0

    def _see(self, x: Array) -> None:
        self.best.see(x)
        self._budget.report(x)
