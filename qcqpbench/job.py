"""A job: one run that a suite asks for; and its outcome, the row that it leaves."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass

from .attempt import Attempt
from .formats import FORMATS, read
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .registry import family
from .registry import problem as named_problem


@dataclass(frozen=True)
class Job:
    """One run of one solver from one start, with its limits. Two jobs with the same key ask for the same.

    problem        a spec, or the path of a file
    problem_id     the sha256 of its content
    solver         a spec with all its parameters
    version        of the packages behind the solver
    formulation    the QCQP that a task is given as, or None
    start          its number, and `seed` that of all starts
    time_limit     seconds from the solver's entry
    memory_limit   bytes, of the worker's whole process
    threads        BLAS and OpenMP threads
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

    @property
    def key(self) -> str:
        """What tells this job from others; the problem counts by its content, not by its name."""
        content = {name: value for name, value in asdict(self).items() if name != "problem"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a job.

    output    what the solver printed, the end of it
    worker    where it ran, such as ``local-0`` or a cluster worker's address
    begun     seconds since 1970
    """

    job: Job
    attempt: Attempt
    output: str = ""
    worker: str = ""
    begun: float = 0.0


def load_problem(problem: str) -> MaxMargin | QCQP:
    """The problem of a spec or a file, as in `Job.problem`: what has a known file suffix is a file."""
    return read(problem) if is_file(problem) else named_problem(problem)


def is_file(problem: str) -> bool:
    return problem.lower().endswith(tuple(FORMATS))


def is_stored(problem: str) -> bool:
    """Whether it is read from files that people write, rather than generated."""
    return is_file(problem) or family(problem).stored
