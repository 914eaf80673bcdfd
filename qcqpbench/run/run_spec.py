"""Run specs: which solver runs on which problem, from which start and with which options."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench import rng
from qcqpbench.catalog.registry import check_problem
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin, unit_rows
from qcqpbench.problem.qcqp import QCQP

from .verify import FEASIBILITY_TOLERANCE

Array = NDArray[np.float64]

_BYTES_PER_GB = 1e9
# Variables with bounds further apart are treated as unbounded, because such bounds hardly restrict the solutions.
_MAX_BOX_WIDTH = 1e6


@dataclass(frozen=True)
class OptionFacts:
    """Description of a run option for suite files, the command line and error messages.

    Attributes
    ----------
    setting
        The key in suite files.
    flag, metavar
        The option of the command line and the name of its value.
    kind
        The type of values in suite files and on the command line.
    least, requirement
        The smallest allowed value, and the requirement in words.
    help
        The help text of the command line.
    scale
        Factor from the unit of the user to the unit of the option: bytes per GB for memory.
    may_be_infinite
        Whether infinity, which means no limit, is allowed.
    """

    setting: str
    flag: str
    metavar: str
    kind: type[int] | type[float]
    least: float
    requirement: str
    help: str
    scale: float = 1.0
    may_be_infinite: bool = False

    def check(self, name: str, value: Any) -> Any:
        """Return `value`, in the unit of the option, as a number; raise QcqpbenchError if it is not allowed."""
        is_number = _is_number(value, self.kind) and (self.may_be_infinite or math.isfinite(value))
        require(is_number and value >= self.least, f"{name} must be {self.requirement}, got {value!r}")
        return int(value) if self.kind is int or self.scale != 1.0 else float(value)

    def from_user(self, value: Any, name: str | None = None) -> Any:
        """Convert a value of a suite file or the command line to the unit of the option.

        Raise QcqpbenchError if the value is not allowed; `name` is the name in its message, by default the setting.
        """
        name = name or self.setting
        if self.scale == 1.0:
            return self.check(name, value)
        positive = _is_number(value, float) and math.isfinite(value) and value > 0
        require(positive, f"{name} must be a finite positive number of {self.metavar}, got {value!r}")
        return max(1, round(value * self.scale))


def _is_number(value: Any, kind: type) -> bool:
    """Return whether `value` is a Python or NumPy number, and a whole one if `kind` is int."""
    if not isinstance(value, Real) or isinstance(value, bool) or math.isnan(value):
        return False
    return kind is float or float(value).is_integer()


def _option(default: Any, **facts: Any) -> Any:
    return field(default=default, metadata={"facts": OptionFacts(**facts)})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run: the seed of its starts, its limits, and the feasibility tolerance.

    A new option is a new field here and in `RunOptionArguments`; the command line, suite files, `qcqpbench.run`, run
    specs and rows follow from it.

    Parameters
    ----------
    start_seed : number
        Seed of the random starts.
    time_limit : seconds
        Time limit from the solver's entry; infinite for no limit.
    memory_limit_bytes : bytes
        Limit on the memory of the solver's process and its descendants; None for no limit.
    threads : count
        BLAS and OpenMP threads.
    tolerance : dimensionless
        Relative violation up to which a point is feasible.

    Raises
    ------
    QcqpbenchError
        If a value is not allowed.
    """

    start_seed: int = _option(
        0,
        setting="seed",
        flag="--seed",
        metavar="N",
        kind=int,
        least=0,
        requirement="a whole number, at least 0",
        help="seed of the random starts",
    )
    time_limit: float = _option(
        math.inf,
        setting="time_limit",
        flag="--timeout",
        metavar="S",
        kind=float,
        least=math.ulp(0),
        requirement="a positive number of seconds",
        help="time limit of a run in seconds",
        may_be_infinite=True,
    )
    memory_limit_bytes: int | None = _option(
        None,
        setting="memory_limit",
        flag="--memory",
        metavar="GB",
        kind=float,
        least=1,
        requirement="a finite positive number of bytes",
        help="memory limit of a run in GB",
        scale=_BYTES_PER_GB,
    )
    threads: int = _option(
        1,
        setting="threads",
        flag="--threads",
        metavar="N",
        kind=int,
        least=1,
        requirement="a whole number, at least 1",
        help="BLAS and OpenMP threads of a run",
    )
    tolerance: float = _option(
        FEASIBILITY_TOLERANCE,
        setting="tolerance",
        flag="--tolerance",
        metavar="T",
        kind=float,
        least=0.0,
        requirement="a finite relative violation, at least 0",
        help="relative feasibility tolerance",
    )

    def __post_init__(self) -> None:
        for name, facts in OPTIONS.items():
            value = getattr(self, name)
            if value is not None or name != "memory_limit_bytes":
                object.__setattr__(self, name, facts.check(name, value))


class RunOptionArguments(TypedDict, total=False):
    """Keyword arguments of functions that accept the fields of `RunOptions`; None stands for the default."""

    start_seed: int | None
    time_limit: float | None
    memory_limit_bytes: int | None
    threads: int | None
    tolerance: float | None


OPTIONS: Mapping[str, OptionFacts] = {option.name: option.metadata["facts"] for option in fields(RunOptions)}
# Names under which fields enter keys, where they differ: keys of stored rows must not change.
_NAMES_IN_KEYS = {"start_seed": "seed", "memory_limit_bytes": "memory_limit"}


@dataclass(frozen=True, kw_only=True)
class RunSpec(RunOptions):
    """A run of a solver on a problem from one start. Equal keys mean equal runs.

    Attributes
    ----------
    problem, problem_id
        A spec or the path of a file, and the sha256 of the content.
    solver, version
        A spec with all its parameters, and the version of its packages and source.
    formulation
        Name of the QCQP formulation in which the solver is given a task; None if it is given the problem itself.
    start
        The number of the start: 0, 1, …
    """

    problem: str
    problem_id: str
    solver: str
    version: str
    formulation: str | None
    start: int

    @property
    def key(self) -> str:
        """The sha256 of all fields except `problem`; the content of the problem enters by `problem_id`.

        Fields with default values are left out, so that adding a field does not change the keys of stored rows.
        """
        changed = {
            _NAMES_IN_KEYS.get(field.name, field.name): value
            for field in fields(self)
            if field.name != "problem" and (value := getattr(self, field.name)) != field.default
        }
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()


def random_start(problem: MaxMargin | QCQP, number: int = 0, seed: int = 0) -> Array:
    """Return a random start of a problem.

    A start of a task has unit rows in random directions. Start 0 of a QCQP is `problem.start`, if there is one. Other
    starts are drawn between the bounds of the variables: uniformly if `number` is even, at a random corner if it is
    odd, since many local solutions have most variables at a bound. A variable without two bounds, or with bounds more
    than 10⁶ apart, is drawn from a normal distribution around its feasible value nearest to 0, folded at a bound.

    Parameters
    ----------
    problem
        A max-margin task or a QCQP.
    number
        The number of the start: 0, 1, …
    seed
        The seed of all starts.

    Returns
    -------
    ndarray
        W of shape (n, m) for a task, x for a QCQP.
    """
    check_problem(problem)
    valid = isinstance(number, Integral) and number >= 0
    require(valid, f"number must be a whole number, at least 0, got {number!r:.100}")
    bits = rng.stream(seed, "starts", number)
    if isinstance(problem, MaxMargin):
        return unit_rows(rng.normals(bits, np.empty((problem.n, problem.m))))
    if number == 0 and problem.start is not None:
        return problem.start
    lower, upper = problem.x_lower, problem.x_upper
    near, step = np.clip(0.0, lower, upper), rng.normals(bits, np.empty(problem.n_variables))
    point = near + np.where(near == lower, abs(step), np.where(near == upper, -abs(step), step))
    boxed = upper <= lower + _MAX_BOX_WIDTH
    share = rng.uniforms(bits, int(boxed.sum()))
    share = np.round(share) if number % 2 else share
    point[boxed] = lower[boxed] + share * (upper[boxed] - lower[boxed])
    return np.clip(point, lower, upper)


def check_start(problem: MaxMargin | QCQP, start: ArrayLike) -> Array:
    """Return `start` as a float64 array; raise QcqpbenchError for another shape, infinite values or a zero row of W."""
    shape = (problem.n, problem.m) if isinstance(problem, MaxMargin) else (problem.n_variables,)
    try:
        require(not np.iscomplexobj(start), f"start must hold real numbers, got an array of {np.asarray(start).dtype}")
        point = np.array(start, dtype=np.float64)
    except QcqpbenchError:
        raise
    except (TypeError, ValueError):
        raise QcqpbenchError(f"start must be an array of shape {shape}, got {start!r:.100}") from None
    require(point.shape == shape, f"start must have the shape {shape}, got {point.shape}")
    require(
        bool(np.isfinite(point).all()), f"start must hold finite numbers, got {point[~np.isfinite(point)][:3].tolist()}"
    )
    zero_rows = [] if isinstance(problem, QCQP) else np.flatnonzero(~point.any(axis=1)).tolist()
    require(not zero_rows, f"start must have no row of zeros, got zeros in the rows {zero_rows[:3]}")
    return point
