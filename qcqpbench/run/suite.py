"""Suites: problems × solvers × starts, with limits. `qcqpbench.run.suite_file` reads suites from files."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.registry import family_names
from qcqpbench.catalog.solver import SolverFacts
from qcqpbench.catalog.spec import parse
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.formats.by_suffix import FORMATS
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .isolation.description import is_stored, problem_apart, problem_members, problem_parameters, solver_facts
from .isolation.protocol import UNKNOWN_VERSION
from .job import Job, is_file
from .verify import FEASIBILITY_TOLERANCE

_BYTES_PER_GB = 1e9
# Type, smallest value and requirement in words, by setting.
_REQUIREMENTS: dict[str, tuple[type, float, str]] = {
    "starts": (int, 1, "a whole number, at least 1"),
    "seed": (int, 0, "a whole number, at least 0"),
    "time_limit": (float, math.ulp(0), "a positive number of seconds"),
    "memory_limit": (float, math.ulp(0), "a finite positive number of GB"),
    "threads": (int, 1, "a whole number, at least 1"),
    "tolerance": (float, 0.0, "a finite relative violation, at least 0"),
}


@dataclass(frozen=True)
class Settings:
    """Starts of a solver on each problem, and limits of each run; `memory_limit` is in GB, `time_limit` in seconds."""

    starts: int = 1
    seed: int = 0
    time_limit: float = math.inf
    memory_limit: float | None = None
    threads: int = 1
    tolerance: float = FEASIBILITY_TOLERANCE

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, (kind, least, requirement) = getattr(self, setting.name), _REQUIREMENTS[setting.name]
            if value is None and setting.default is None:
                continue
            fits = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
            # An infinite time limit means no limit. No memory limit is None, and an infinite tolerance would accept
            # every point, so these two must be finite.
            fits = fits and (setting.name == "time_limit" or math.isfinite(value))
            require(fits and value >= least, f"{setting.name} must be {requirement}, got {value!r:.100}")
            object.__setattr__(self, setting.name, kind(value))


SETTINGS = tuple(setting.name for setting in fields(Settings))


@dataclass(frozen=True)
class Entry:
    """A solver of a suite, with its settings.

    Attributes
    ----------
    solver
        Facts about the solver.
    settings
        Starts and limits of its runs.
    where
        Allowed values of problem parameters, by name. The solver runs only on problems that match.
    named
        Whether the suite requests the solver by name; if so, leaving it out on a problem causes a warning.
    """

    solver: SolverFacts
    settings: Settings = Settings()
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    named: bool = True

    def takes(self, problem: str) -> bool:
        """Return whether the solver is to run on `problem`, a spec or a file."""
        return fits(problem, self.where)


@dataclass(frozen=True)
class Suite:
    """Problems, as specs with all their parameters or as files, and the solvers to run on them."""

    name: str
    about: str
    problems: tuple[str, ...]
    entries: tuple[Entry, ...]

    @classmethod
    def of(
        cls,
        problems: Iterable[str],
        solvers: Iterable[str],
        starts: int = 1,
        seed: int = 0,
        time_limit: float = math.inf,
        memory_limit: float | None = None,
        threads: int = 1,
        tolerance: float = FEASIBILITY_TOLERANCE,
    ) -> "Suite":
        """Return a suite that runs every solver on every problem.

        Parameters
        ----------
        problems
            Specs, files, and folders of files.
        solvers
            Specs.
        starts, seed, time_limit, memory_limit, threads, tolerance
            As in `Settings`.
        """
        settings = Settings(starts, seed, time_limit, memory_limit, threads, tolerance)
        specs = dict.fromkeys(spec for problem in problems for spec in expand_problem(problem))
        entries = tuple(Entry(solver_facts(spec), settings) for spec in solvers)
        require(
            bool(specs and entries),
            f"a suite must have at least one problem and one solver, got {len(specs)} and {len(entries)}",
        )
        return cls("", "", tuple(specs), entries)

    @property
    def size(self) -> int:
        """Upper bound on the number of jobs."""
        return sum(map(self._max_jobs, self.problems))

    def jobs(self, dropped: Callable[[int], None] = lambda _: None) -> Iterator[Job]:
        """Yield the jobs, grouped by problem.

        Stored problems are read before the first job is yielded, so that a damaged file raises an error early. Other
        problems are generated when their jobs are yielded.

        Parameters
        ----------
        dropped
            Called once per problem with the number of its jobs that are left out, because the solver does not accept
            the problem or the same job was yielded before.
        """
        self._warn_of_unknown_versions()
        keys: set[str] = set()
        texts_by_id: dict[str, str] = {}

        def new_jobs(text: str) -> list[Job]:
            jobs = {job.key: job for job in self._jobs(text)}
            new = [job for key, job in jobs.items() if key not in keys]
            keys.update(jobs)
            dropped(self._max_jobs(text) - len(new))
            if is_stored(text):
                _warn_of_copies(text, jobs.values(), texts_by_id)
            return new

        stored = {text: new_jobs(text) for text in self.problems if is_stored(text)}
        for text in self.problems:
            yield from stored[text] if text in stored else new_jobs(text)
        require(bool(keys), "a suite must have at least one run, got none: no solver accepts any of the problems")

    def _warn_of_unknown_versions(self) -> None:
        for solver in (entry.solver for entry in self.entries):
            if solver.version == UNKNOWN_VERSION:
                notice = f"{solver.name} has no known version, so its runs end with an error: {solver.reason}"
                warnings.warn(notice, stacklevel=3)

    def _jobs(self, text: str) -> Iterator[Job]:
        entries = self._entries(text)
        if not entries:
            return
        problem = problem_apart(text)
        for entry in entries:
            if isinstance(problem, MaxMargin) or entry.solver.takes_qcqps:
                yield from _entry_jobs(entry, text, problem)
            elif entry.named:
                notice = f"{entry.solver.name} accepts only max-margin tasks; it is left out on general QCQPs"
                warnings.warn(notice, stacklevel=4)

    def _max_jobs(self, problem: str) -> int:
        return sum(entry.settings.starts for entry in self._entries(problem))

    def _entries(self, problem: str) -> list[Entry]:
        """Return the entries that match a problem; of several entries for the same solver, only the last."""
        return list({entry.solver.spec: entry for entry in self.entries if entry.takes(problem)}.values())


def _entry_jobs(entry: Entry, text: str, problem: MaxMargin | QCQP) -> Iterator[Job]:
    solver, settings = entry.solver, entry.settings
    job = Job(
        problem=text,
        problem_id=problem.id,
        solver=solver.spec,
        version=solver.version,
        formulation=solver.formulation if isinstance(problem, MaxMargin) else None,
        start=0,
        seed=settings.seed,
        time_limit=settings.time_limit,
        memory_limit=None if settings.memory_limit is None else round(settings.memory_limit * _BYTES_PER_GB),
        threads=settings.threads,
        tolerance=settings.tolerance,
    )
    for start in range(settings.starts):
        yield replace(job, start=start)


def _warn_of_copies(text: str, jobs: Iterable[Job], texts_by_id: dict[str, str]) -> None:
    """Warn if a stored problem has the same content as an earlier one, and add its ids to `texts_by_id`."""
    for id in {job.problem_id for job in jobs}:
        if (first := texts_by_id.setdefault(id, text)) != text:
            consequence = f"the runs and the best known value of {first} are used"
            warnings.warn(f"{text} is the same problem as {first}; {consequence}", stacklevel=4)


def facts(problem: str) -> dict[str, Any]:
    """Return the name and the parameters of a problem as a dict; for a file, only its path as the name."""
    return {"name": problem} if is_file(problem) else {"name": parse(problem)[0], **problem_parameters(problem)}


def fits(problem: str, where: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether each parameter of `problem` named in `where` has one of the values given there."""
    values = facts(problem) if where else {}
    return all(name in values and values[name] in allowed for name, allowed in where.items())


def expand_problem(text: str) -> list[str]:
    """Return the specs or files that `text` (a spec, a file, a folder of files, or a library) expands to."""
    if is_file(text) or (text not in family_names() and Path(text).is_dir()):
        return problem_files(Path(text))
    return [member.spec for member in problem_members(text)]


def problem_files(path: Path) -> list[str]:
    """Return the absolute path of a problem file, or of all problem files in a folder, sorted."""
    if not path.is_dir():
        require(path.is_file(), f"{path}: no such file or folder")
        return [absolute(str(path))]
    absolute(str(path))
    files = []
    for file in path.rglob("*"):
        if is_file(str(file)) and file.is_file():
            try:
                files.append(absolute(str(file)))
            except QcqpbenchError as error:
                warnings.warn(f"{error}; the file is left out", stacklevel=2)
    require(bool(files), f"{path}: must hold at least one problem file, got none; allowed: {', '.join(FORMATS)}")
    return sorted(files)
