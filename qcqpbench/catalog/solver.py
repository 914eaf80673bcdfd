"""What a solver must offer: one file in ``solvers/``, a frozen dataclass whose fields are its parameters."""

import importlib.metadata
import importlib.util
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import MAX_MESSAGE_CHARACTERS, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .identity import source_hash
from .spec import ParameterFacts, Parametrized, describe_parameters
from .status import Availability, Scope, Termination

Array = NDArray[np.float64]


# Of the points a run reports.
_MOST_POINTS = 1000


def real_array(values: Any, name: str) -> Array:
    """Return a float64 copy of an array; raise TypeError if it holds anything but real numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got an array of type {array.dtype}")
    return np.array(array, dtype=np.float64, order="C")


@dataclass(frozen=True, eq=False)
class Solution:
    """A solver's own account of a run.

    x             its best point: x of a QCQP, W of a task; None if it has none
    termination   why it stopped
    objective     the objective (of a task: the margin) it claims for x
    bound         a bound it claims to have proved: no point is better
    multipliers   of a task: λ ≥ 0 of the stabilities, shape (p, N), which sum to one
    message       its own words
    details       further facts by name, such as the version of a library inside
    """

    x: Array | None
    termination: Termination
    objective: float | None = None
    bound: float | None = None
    iterations: int | None = None
    multipliers: Array | None = None
    message: str = ""
    details: Mapping[str, str | float] = field(default_factory=dict)


class RunCallbacks:
    """Callbacks for the progress of a run. The default implementation ignores them."""

    def entered(self) -> None:
        """Note that the problem is built and the solver itself begins."""

    def reported(self, trace: list[tuple[float, Array]]) -> None:
        """Note that the last of these points is new."""

    def left(self) -> None:
        """Note that the solver has returned or raised."""


class Budget:
    """Time and thread limits of one run. The clock starts at construction, at the solver's entry.

    time_limit   seconds
    threads      BLAS and OpenMP threads
    trace        the reported points as (seconds, point); a long trace is thinned, evenly in log(seconds)
    shape        of the points that may be reported; any if None
    """

    def __init__(
        self,
        time_limit: float = math.inf,
        threads: int = 1,
        callbacks: RunCallbacks | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.time_limit = time_limit
        self.threads = threads
        self.shape = shape
        self.trace: list[tuple[float, Array]] = []
        self._callbacks = callbacks or RunCallbacks()
        self._entry = time.perf_counter()

    def seconds(self) -> float:
        """Seconds since the entry."""
        return time.perf_counter() - self._entry

    def remaining(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.time_limit - self.seconds())

    def exhausted(self) -> bool:
        return self.seconds() >= self.time_limit

    def report(self, x: Array) -> None:
        """Keep a point on the way, with its time, for the margin against time.

        A run that has to be killed is judged by the best of the last points. A point that is no array of real numbers
        of the right shape is ignored.
        """
        try:
            point = real_array(x, "a reported point")
        except (TypeError, ValueError):
            return
        if self.shape is not None and point.shape != self.shape:
            return
        if len(self.trace) >= _MOST_POINTS:
            self._thin()
        self.trace.append((self.seconds(), point))
        self._callbacks.reported(self.trace)

    def _thin(self) -> None:
        """Keep at most half of the points, evenly in log(seconds), with the first and the last."""
        seconds = np.maximum([seconds for seconds, _ in self.trace], 1e-6)
        wanted = np.searchsorted(seconds, np.geomspace(seconds[0], seconds[-1], _MOST_POINTS // 2 - 1))
        self.trace = [self.trace[k] for k in sorted({0, *wanted.tolist(), len(self.trace) - 1}) if k < len(self.trace)]


RunFunction = Callable[[Array, Budget], Solution]


@dataclass(frozen=True)
class Solver(Parametrized, ABC):
    """A solver: derive from `QCQPSolver` or `TaskSolver`.

    name         the file's name
    drives       the package and method behind it
    scope        what kind of answer it gives
    requires     modules it imports, beyond numpy and scipy; named alike where they are installed from
    extra        ``pip install qcqpbench[extra]`` brings them
    citation     whose method it is
    (parameters that are numbers must be positive, a ``seed`` may be 0)
    tolerance    how far its points may violate a constraint in its conformance test, relative to max(1, |bound|);
                 the points of runs are judged with the tolerance of the suite
    accuracy     how far its objective may be off a known optimum, relative to max(1, |optimum|)
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
        for name, value in self.parameters.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                right = "0 or more" if name == "seed" else "a positive number"
                require(
                    value > 0 or (name == "seed" and value == 0),
                    f"{self.name}: {name}={value} is not allowed; right is {right}",
                )

    @abstractmethod
    def build(self, problem: Any) -> RunFunction:
        """Prepare a problem; timed apart. Returns ``run(start, budget) -> Solution``, which may be called repeatedly.

        run starts from a point (x of a QCQP, W of a task), keeps to the budget, and returns its best point also when
        it stops early; it may ``budget.report(x)`` on the way. It prints nothing and leaves no files. Packages of other
        people are imported here or in run, never at the top of the file.
        """

    def availability(self) -> tuple[Availability, str]:
        """Whether it can run here, and if not, why and what would help; found without importing anything."""
        missing = [module for module in self.requires if importlib.util.find_spec(module) is None]
        if missing:
            return Availability.NOT_INSTALLED, f"{', '.join(missing)} missing: {self.install_command}"
        return Availability.AVAILABLE, ""

    @property
    def install_command(self) -> str:
        return f"pip install 'qcqpbench[{self.extra}]'" if self.extra else f"pip install {' '.join(self.requires)}"

    def version(self) -> str:
        """Return the versions of the packages it drives, found without importing them."""
        versions = [f"{module} {_version(module)}" for module in self.requires or ("qcqpbench", "scipy")]
        return ", ".join([*_plugin_version(type(self).__module__, tuple(sys.path)), *versions])

    def identity(self) -> str:
        """Return the version and a hash of the source that the solver runs: changed code is another solver."""
        return f"{self.version()}, source {source_hash(type(self).__module__)}"

    def facts(self) -> "SolverFacts":
        """Return what others need to know of the solver in order to run it and to judge its points."""
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
    """Plain facts about a configured solver: what a process knows of it that does not run its code.

    spec          the full spelling, with every parameter that is set
    version       the versions of its packages and a hash of its source
    takes_qcqps   whether it takes general QCQPs, or max-margin tasks only
    formulation   the QCQP that it is given a task as; None if it takes tasks themselves
    tolerance     its own feasibility tolerance, for its conformance test alone
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
    """Return the name and version of the distribution whose entry point leads to a module, if there is one.

    It is looked up once for each import path.
    """
    entries = importlib.metadata.entry_points(group="qcqpbench.solvers")
    owners = [entry.dist for entry in entries if entry.module == module and entry.dist is not None]
    return tuple(f"{owner.name} {owner.version}" for owner in owners[:1])


@dataclass(frozen=True)
class QCQPSolver(Solver):
    """A solver of any QCQP; a max-margin task reaches it in a formulation."""

    accepts = QCQP

    formulation: Literal["epigraph", "min_norm"] = "epigraph"

    @abstractmethod
    def build(self, problem: QCQP) -> RunFunction: ...


@dataclass(frozen=True)
class TaskSolver(Solver):
    """A solver of max-margin tasks only."""

    accepts = MaxMargin

    @abstractmethod
    def build(self, problem: MaxMargin) -> RunFunction: ...
