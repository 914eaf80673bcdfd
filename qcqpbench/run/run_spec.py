"""Run specs: which solver runs on which problem, from which start and with which options."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, TypedDict

from qcqpbench.errors import require

from .verify import FEASIBILITY_TOLERANCE

_BYTES_PER_GB = 1e9


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
    start_seed
        Seed of the random starts.
    time_limit
        Seconds from the solver's entry; infinite for no limit.
    memory_limit_bytes
        Memory of the solver's process and its descendants; None for no limit.
    threads
        BLAS and OpenMP threads.
    tolerance
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
