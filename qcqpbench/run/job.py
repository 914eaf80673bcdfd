"""Jobs (the runs that a suite requests) and their outcomes."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from qcqpbench.catalog.registry import problem as named_problem
from qcqpbench.catalog.spec import parse, spell
from qcqpbench.problem.formats.by_suffix import FORMATS, read
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .attempt import Attempt
from .verify import FEASIBILITY_TOLERANCE


@dataclass(frozen=True)
class Job:
    """A requested run of a solver on a problem from one start, with its limits. Equal keys mean equal runs.

    Attributes
    ----------
    problem, problem_id
        A spec or the path of a file, and the sha256 of the content.
    solver, version
        A spec with all its parameters, and the version of its packages and source.
    formulation
        Name of the QCQP formulation in which the solver is given a task; None if it is given the problem itself.
    start, seed
        The number of the start, and the seed of all starts.
    time_limit
        Seconds from the solver's entry.
    memory_limit
        Bytes of memory of the solver's process and its descendants; None for no limit.
    threads
        BLAS and OpenMP threads.
    tolerance
        Relative violation up to which a point is feasible.
    """

    problem: str
    problem_id: str
    solver: str
    version: str
    formulation: str | None
    start: int
    seed: int = 0
    time_limit: float = math.inf
    memory_limit: int | None = None
    threads: int = 1
    tolerance: float = FEASIBILITY_TOLERANCE

    @property
    def key(self) -> str:
        """The sha256 of all fields except `problem`; the content of the problem enters by `problem_id`.

        Fields with default values are left out, so that adding a field does not change the keys of stored rows.
        """
        content = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "problem"}
        defaults = {field.name: field.default for field in fields(self)}
        changed = {name: value for name, value in content.items() if value != defaults[name]}
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Outcome:
    """A job with its attempt.

    Attributes
    ----------
    output
        The end of the solver's output.
    worker
        The name of the worker that ran the job, such as ``local-0``, or the address of a cluster worker.
    begun
        Start time of the run in seconds since 1970.
    machine
        Facts about the machine of the worker; None for the driver's machine.
    """

    job: Job
    attempt: Attempt
    output: str = ""
    worker: str = ""
    begun: float = 0.0
    machine: Mapping[str, Any] | None = None


def load_problem(problem: str) -> MaxMargin | QCQP:
    """Return the problem that `problem`, a spec or the path of a file, refers to."""
    return read(problem) if is_file(problem) else named_problem(problem)


def is_file(problem: str) -> bool:
    """Return whether `problem` ends with the suffix of a problem file format."""
    return problem.lower().endswith(tuple(FORMATS))


def labels(specs: Iterable[str]) -> dict[str, str]:
    """Return a short label per spec, with only the parameters that differ among specs of the same name."""
    parsed = {spec: (spec, {}) if is_file(spec) else parse(spec) for spec in specs}
    values: dict[tuple[str, str], set[str]] = {}
    for name, parameters in parsed.values():
        for key in parameters:
            values.setdefault((name, key), set()).add(parameters[key])
    counts = Counter(name for name, _ in parsed.values())
    missing = {
        (name, key)
        for name, key in values
        if sum(key in parameters for other, parameters in parsed.values() if other == name) < counts[name]
    }
    return {
        spec: spell(
            name,
            {key: value for key, value in parameters.items() if len(values[name, key]) > 1 or (name, key) in missing},
        )
        for spec, (name, parameters) in parsed.items()
    }
