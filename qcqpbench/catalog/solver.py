"""Base classes of solver adapters, and the types of their inputs and results."""

import importlib.metadata
import importlib.util
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import MAX_MESSAGE_CHARACTERS, require
from qcqpbench.problem.formulations import FormulationName
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .identity import source_hash
from .spec import ParameterFacts, Parametrized, describe_parameters, minimum_of, parameters_of
from .status import Availability, Scope, Termination

Array = NDArray[np.float64]

_MAX_TRACE_POINTS = 1000


def real_array(values: Any, name: str) -> Array:
    """Return `values` as a new float64 array; raise TypeError unless they are real numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got an array of type {array.dtype}")
    return np.array(array, dtype=np.float64, order="C")


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of a run as claimed by the solver. The suite re-evaluates every claim.

    Parameters
    ----------
    x
        The best point: x of a QCQP, shape (n_variables,), or W of a task, shape (n, m); None if none was found.
    termination
        The reason why the solver stopped.
    objective
        The claimed objective of x; for a task, the margin.
    bound
        Bound on the objective of all feasible points, which the solver claims to have proved.
    iterations
        Number of iterations.
    multipliers
        For a task: multipliers λ ≥ 0 of the stabilities, which sum to one, shape (p, N) with N = n(n−1)/2.
    message
        The message of the solver.
    details
        Further facts by name, such as the version of a library.
    offsets
        For a task: offsets y of the certificate that proves `bound` together with the multipliers, shape (n,).
    tree
        For a task: the tree certificate that proves `bound`, as `TreeCertificate.to_vector` encodes it.
    """

    x: Array | None
    termination: Termination
    objective: float | None = None
    bound: float | None = None
    iterations: int | None = None
    multipliers: Array | None = None
    message: str = ""
    details: Mapping[str, str | float] = field(default_factory=dict)
    offsets: Array | None = None
    tree: Array | None = None


class RunCallbacks:
    """Callbacks for the progress of a run. The default implementation ignores them."""

    def entered(self) -> None:
        """Handle the start of the solver, after the problem is built."""

    def reported(self, trace: list[tuple[float, Array]]) -> None:
        """Handle a newly reported point: the last pair (seconds since the solver's entry, point) of `trace`."""

    def left(self) -> None:
        """Handle the end of the solver, whether it returned or raised."""


class Budget:
    """Time and thread limits of one run. The clock starts at construction, when the solver starts.

    Parameters
    ----------
    time_limit
        Time limit in seconds; inf (no limit) by default.
    threads
        Number of BLAS and OpenMP threads; 1 by default.
    callbacks
        Callbacks for the progress of the run.
    shape
        Shape of the points that may be reported; None accepts any.

    Attributes
    ----------
    trace
        The reported points as (seconds, point); a long trace is thinned, evenly in log(seconds).
    """

    def __init__(
        self,
        time_limit: float = math.inf,
        threads: int = 1,
        callbacks: RunCallbacks | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        is_number = isinstance(time_limit, Real) and not math.isnan(time_limit)
        require(is_number, f"time_limit must be a number of seconds, got {time_limit!r:.100}")
        self.time_limit = time_limit
        self.threads = threads
        self.shape = shape
        self.trace: list[tuple[float, Array]] = []
        self._callbacks = callbacks or RunCallbacks()
        self._entry = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since construction."""
        return time.perf_counter() - self._entry

    def remaining(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self.time_limit - self.seconds())

    def exhausted(self) -> bool:
        """Return whether the time limit is reached."""
        return self.seconds() >= self.time_limit

    def report(self, x: Array) -> None:
        """Record the intermediate point `x` with the current time, for plots of the margin against time.

        If the run is killed at a limit, the best of its last points becomes its result. An `x` that is not an array of
        real numbers of the required shape is ignored.
        """
        try:
            point = real_array(x, "a reported point")
        except (TypeError, ValueError):
            return
        if self.shape is not None and point.shape != self.shape:
            return
        if len(self.trace) >= _MAX_TRACE_POINTS:
            self._thin()
        self.trace.append((self.seconds(), point))
        self._callbacks.reported(self.trace)

    def _thin(self) -> None:
        """Remove about half of the points of the trace, evenly in log(seconds); keep the first and the last."""
        seconds = np.maximum([seconds for seconds, _ in self.trace], 1e-6)
        even = np.searchsorted(seconds, np.geomspace(seconds[0], seconds[-1], _MAX_TRACE_POINTS // 2 - 1))
        self.trace = [self.trace[k] for k in sorted({0, *even.tolist(), len(self.trace) - 1}) if k < len(self.trace)]


RunFunction = Callable[[Array, Budget], Solution]


@dataclass(frozen=True)
class Solver(Parametrized, ABC):
    """Base class of solver adapters.

    Derive from `QCQPSolver` or `TaskSolver`, and declare the parameters as dataclass fields. Numeric parameters must be
    positive, a ``seed`` may be 0; `parameter` declares another minimum.

    Attributes
    ----------
    name
        Name of the solver, the same as that of its file.
    drives
        The package and method that the adapter calls.
    accepts
        The class of problems that the solver accepts.
    scope
        The kind of answer that the solver gives.
    requires
        Modules that the adapter imports besides numpy and scipy; each has the name of its package.
    extra
        The extra of ``pip install qcqpbench[extra]`` that installs the required packages.
    citation
        The publication of the method.
    tolerance
        Largest constraint violation in the conformance test, relative to max(1, |bound|). The points of runs are
        verified with the tolerance of the suite instead.
    accuracy
        Largest error of the objective at a known optimum in the conformance test, relative to max(1, |optimum|).
    """

    name: ClassVar[str]
    drives: ClassVar[str]
    accepts: ClassVar[type]
    scope: ClassVar[Scope] = Scope.LOCAL
    requires: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    citation: ClassVar[str]
    tolerance: ClassVar[float] = 1e-6
    accuracy: ClassVar[float] = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        for declared, _ in parameters_of(type(self)):
            name, value = declared.name, getattr(self, declared.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and minimum_of(declared) is None:
                requirement = "0 or more" if name == "seed" else "a positive number"
                require(
                    value > 0 or (name == "seed" and value == 0),
                    f"{self.name}: {name} must be {requirement}, got {value}",
                )

    @abstractmethod
    def build(self, problem: Any) -> RunFunction:
        """Prepare `problem` and return a function that runs the solver on it; the two are timed separately.

        Packages other than numpy and scipy are imported here or in the returned function, never at the top of the file.

        Parameters
        ----------
        problem
            A problem of the class `accepts`.

        Returns
        -------
        RunFunction
            ``run(start, budget) -> Solution``, which may be called repeatedly. It starts from a point (x of a QCQP, W
            of a task), keeps the limits of the budget, and returns the best point also when it stops early. It may call
            ``budget.report(x)`` with intermediate points. It prints nothing and leaves no files.
        """

    def availability(self) -> tuple[Availability, str]:
        """Return the availability of the solver on this machine, and the reason and a remedy if it cannot run.

        No required package is imported.
        """
        missing = [module for module in self.requires if importlib.util.find_spec(module) is None]
        if missing:
            return Availability.NOT_INSTALLED, f"{', '.join(missing)} missing: {self.install_command}"
        return Availability.AVAILABLE, ""

    @property
    def install_command(self) -> str:
        """Command that installs the required packages."""
        return f"pip install 'qcqpbench[{self.extra}]'" if self.extra else f"pip install {' '.join(self.requires)}"

    def version(self) -> str:
        """Return the versions of the packages that the solver calls, without importing them."""
        versions = [f"{module} {_version(module)}" for module in self.requires or ("qcqpbench", "scipy")]
        return ", ".join([*_plugin_version(type(self).__module__, tuple(sys.path)), *versions])

    def identity(self) -> str:
        """Return the versions of the packages and a hash of the source, so that changed code is another solver."""
        return f"{self.version()}, source {source_hash(type(self).__module__)}"

    def facts(self) -> "SolverFacts":
        """Return the facts that other processes need to run the solver and to verify its points."""
        for declared in ("name", "drives", "citation"):
            value = getattr(self, declared, None)
            require(isinstance(value, str), f"{type(self).__name__}: {declared} must be text, got {value!r:.100}")
        status, reason = self.availability()
        return SolverFacts(
            name=self.name,
            spec=self.spec,
            version=self.identity(),
            drives=self.drives,
            citation=self.citation,
            scope=self.scope,
            takes_qcqps=issubclass(QCQP, self.accepts),
            formulation=self.formulation if isinstance(self, QCQPSolver) else None,
            availability=status,
            reason=reason[:MAX_MESSAGE_CHARACTERS],
            tolerance=self.tolerance,
            accuracy=self.accuracy,
            parameters=describe_parameters(type(self)),
        )


@dataclass(frozen=True)
class SolverFacts:
    """Facts about a configured solver, for processes that do not run its code.

    Parameters
    ----------
    name, drives, citation, scope, tolerance, accuracy
        As in `Solver`.
    spec
        The spec with all parameters that are not None written out.
    version
        The versions of the packages and a hash of the source, as `Solver.identity` returns them.
    takes_qcqps
        Whether the solver accepts general QCQPs, or max-margin tasks only.
    formulation
        The formulation in which the solver gets tasks; None if it gets the tasks themselves.
    availability, reason
        Availability of the solver on this machine, and the reason if it cannot run.
    parameters
        Parameters of the solver.
    """

    name: str
    spec: str
    version: str
    drives: str
    citation: str
    scope: Scope
    takes_qcqps: bool
    formulation: str | None
    availability: Availability
    reason: str
    tolerance: float
    accuracy: float
    parameters: tuple[ParameterFacts, ...] = ()


@cache
def _version(module: str) -> str:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return "?"


@cache
def _plugin_version(module: str, _path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the name and version of the distribution whose entry point refers to `module`; empty if there is none.

    The result is cached for each import path `_path`.
    """
    entries = importlib.metadata.entry_points(group="qcqpbench.solvers")
    owners = [entry.dist for entry in entries if entry.module == module and entry.dist is not None]
    return tuple(f"{owner.name} {owner.version}" for owner in owners[:1])


@dataclass(frozen=True)
class QCQPSolver(Solver):
    """Base class of adapters for solvers of general QCQPs.

    Parameters
    ----------
    formulation
        The formulation in which a max-margin task is given to the solver.
    """

    accepts = QCQP

    formulation: FormulationName = "epigraph"

    @abstractmethod
    def build(self, problem: QCQP) -> RunFunction: ...


@dataclass(frozen=True)
class TaskSolver(Solver):
    """Base class of adapters for solvers of max-margin tasks only.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Start(TaskSolver):
    ...     name = "start"
    ...     drives = "returns the start"
    ...     citation = "none"
    ...
    ...     def build(self, problem):
    ...         return lambda start, budget: Solution(start, Termination.FINISHED)
    >>> Start().spec
    'start'
    """

    accepts = MaxMargin

    @abstractmethod
    def build(self, problem: MaxMargin) -> RunFunction: ...
