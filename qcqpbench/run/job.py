"""Jobs, the runs that a suite asks for, and their outcomes."""

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
    """One run of one solver from one start, with its limits. Two jobs with the same key ask for the same.

    Attributes
    ----------
    problem, problem_id
        A spec or the path of a file, and the sha256 of the content.
    solver, version
        A spec with all its parameters, and the version of its packages and source.
    formulation
        The QCQP that a task is given as, or None.
    start, seed
        The number of the start, and the seed of all starts.
    time_limit
        Seconds from the solver's entry.
    memory_limit
        Bytes of the worker's whole process.
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
        """The hash that tells this job from others; the problem counts by its content, not by its name.

        Values at their defaults are left out, so that a new field does not change the keys of old rows.
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
        The worker that ran it, such as ``local-0``, or the address of a worker of a cluster.
    begun
        Seconds since 1970.
    machine
        Facts about the machine of the worker, if it is not the driver's.
    """

    job: Job
    attempt: Attempt
    output: str = ""
    worker: str = ""
    begun: float = 0.0
    machine: Mapping[str, Any] | None = None


def load_problem(problem: str) -> MaxMargin | QCQP:
    """Return the problem of a spec or a file, as in `Job.problem`; a known file suffix makes it a file."""
    return read(problem) if is_file(problem) else named_problem(problem)


def is_file(problem: str) -> bool:
    """Return whether a problem is given as a file."""
    return problem.lower().endswith(tuple(FORMATS))


def labels(specs: Iterable[str]) -> dict[str, str]:
    """Return short names of specs: only the parameters in which a spec differs from others of the same name."""
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
