"""A suite: problems × solvers × starts, with limits. `load_suite` reads one from a file, `Suite.of` makes one.

A suite file is TOML: settings at the top, then blocks.

    about = "what it is for"
    starts = 10             # random starts of each solver on each problem (1)
    seed = 0                # of the starts (0)
    time_limit = 60         # seconds a run (no limit)
    memory_limit = 4        # GB a run (no limit)
    threads = 1             # BLAS and OpenMP threads a run (1)
    tolerance = 1e-6        # relative violation up to which a point is feasible (1e-6)

    [[problem]]
    name = "covariance_perceptron"    # a spec or a list of them
    m = 100                           # its parameters; a list is a grid
    load = [0.5, 1, 2]
    seed = [0, 1, 2, 3, 4]

    [[problem]]
    file = "instances"                # a file or a folder, seen from the suite file

    [[problem]]
    name = "library"                  # every instance of a folder with an index of best known values
    path = "instances"                # seen from where the command runs

    [[solver]]
    name = ["gip", "ipopt"]           # "*" is every solver there is

    [[solver]]
    name = "qcqp[improve=admm]"
    starts = 5                        # settings and parameters of its own
    where.load = [0.5, 1]             # only on these problems

In a solver's block the names of the settings are the settings; a parameter of the same name goes into the spec's
brackets. Where several blocks give a solver for a problem, the last one counts. A solver of max-margin tasks is left
out on general QCQPs, with a warning if it was asked for by name.
"""

import contextlib
import itertools
import math
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.registry import family, family_class, family_names, solver_names
from qcqpbench.catalog.solver import SolverFacts
from qcqpbench.catalog.spec import describe_parameters, parse, spell
from qcqpbench.errors import QcqpbenchError, nearest, require
from qcqpbench.problem.formats.by_suffix import FORMATS
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .isolation.worker import problem_apart, solver_facts
from .job import Job, is_file, is_stored
from .verify import FEASIBILITY_TOLERANCE

_RIGHT: dict[str, tuple[type, float, str]] = {
    "starts": (int, 1, "a whole number, at least 1"),
    "seed": (int, 0, "a whole number from 0 up"),
    "time_limit": (float, math.ulp(0), "a positive number of seconds"),
    "memory_limit": (float, math.ulp(0), "a positive number of GB"),
    "threads": (int, 1, "a whole number, at least 1"),
    "tolerance": (float, 0.0, "a relative violation, 0 or more"),
}


@dataclass(frozen=True)
class Settings:
    """How often and within which limits a solver runs on a problem; memory_limit is in GB, as people give it."""

    starts: int = 1
    seed: int = 0
    time_limit: float = math.inf
    memory_limit: float | None = None
    threads: int = 1
    tolerance: float = FEASIBILITY_TOLERANCE

    def __post_init__(self) -> None:
        for each in fields(self):
            value, (kind, least, right) = getattr(self, each.name), _RIGHT[each.name]
            if value is None and each.default is None:
                continue
            fits = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
            require(fits and value >= least, f"{each.name} = {value!r} is not allowed; right is {right}")
            object.__setattr__(self, each.name, kind(value))


@dataclass(frozen=True)
class Entry:
    """A solver of a suite.

    where   the values that a problem's parameters must have, by name
    named   it was asked for by name, so that leaving it out is worth a word
    """

    solver: SolverFacts
    settings: Settings = Settings()
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    named: bool = True

    def takes(self, problem: str) -> bool:
        """Whether it is to run on a problem, given as a spec or a file."""
        return _fits(problem, self.where)


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
        """Every solver on every problem; problems are specs, files and folders of files, memory_limit is in GB."""
        settings = Settings(starts, seed, time_limit, memory_limit, threads, tolerance)
        found = [each for problem in problems for each in expand_problem(problem)]
        entries = tuple(Entry(solver_facts(spec), settings) for spec in solvers)
        require(bool(found and entries), "a suite needs a problem and a solver at least")
        return cls("", "", tuple(dict.fromkeys(found)), entries)

    @property
    def size(self) -> int:
        """How many jobs there are at the most."""
        return sum(map(self._asked, self.problems))

    def jobs(self, dropped: Callable[[int], None] = lambda _: None) -> Iterator[Job]:
        """The runs, all of a problem one after the other. Files are read before the first, so that a bad one stops
        nothing half-way; other problems are made when their turn comes. `dropped` is then told how many of a problem's
        runs there are not, since a solver does not take it or they were there before."""
        seen: set[str] = set()
        names: dict[str, str] = {}

        def new(text: str) -> list[Job]:
            jobs = {job.key: job for job in self._jobs(text)}
            found = [job for key, job in jobs.items() if key not in seen]
            seen.update(jobs)
            dropped(self._asked(text) - len(found))
            for id in {job.problem_id for job in jobs.values()} if is_stored(text) else ():
                if (first := names.setdefault(id, text)) != text:
                    which = "the runs and the best known value of the latter count"
                    warnings.warn(f"{text} is the same problem as {first}; {which}", stacklevel=3)
            return found

        files = {text: new(text) for text in self.problems if is_stored(text)}
        for text in self.problems:
            yield from files[text] if text in files else new(text)
        require(bool(seen), "there is nothing to run: none of the solvers takes any of the problems")

    def _jobs(self, text: str) -> list[Job]:
        entries, jobs = self._entries(text), []
        problem = problem_apart(text) if entries else None
        for entry in entries:
            facts = entry.solver
            if isinstance(problem, QCQP) and not facts.takes_qcqps:
                if entry.named:
                    notice = f"{entry.solver.name} takes max-margin tasks; it is left out on general QCQPs"
                    warnings.warn(notice, stacklevel=3)
                continue
            assert problem is not None
            settings = entry.settings
            job = Job(
                problem=text,
                problem_id=problem.id,
                solver=facts.spec,
                version=facts.version,
                formulation=facts.formulation if isinstance(problem, MaxMargin) else None,
                start=0,
                seed=settings.seed,
                time_limit=settings.time_limit,
                memory_limit=None if settings.memory_limit is None else round(settings.memory_limit * 1e9),
                threads=settings.threads,
                tolerance=settings.tolerance,
            )
            jobs += [replace(job, start=start) for start in range(settings.starts)]
        return jobs

    def _asked(self, problem: str) -> int:
        return sum(entry.settings.starts for entry in self._entries(problem))

    def _entries(self, problem: str) -> list[Entry]:
        chosen = {entry.solver.spec: entry for entry in self.entries if entry.takes(problem)}
        return list(chosen.values())


def facts(problem: str) -> dict[str, Any]:
    """The name and the parameters of a problem given as a spec; of a file its name alone."""
    return {"name": problem} if is_file(problem) else {"name": parse(problem)[0], **family(problem).parameters}


def _fits(problem: str, where: Mapping[str, Sequence[Any]]) -> bool:
    known = facts(problem) if where else {}
    return all(name in known and known[name] in allowed for name, allowed in where.items())


def expand_problem(text: str) -> list[str]:
    """A spec with all its parameters, or a file; a folder stands for the files in it, a library for its instances."""
    if is_file(text) or (text not in family_names() and Path(text).is_dir()):
        return _files(Path(text))
    return [each.spec for each in family(text).members()]


def _files(path: Path) -> list[str]:
    if not path.is_dir():
        require(path.is_file(), f"{path}: no such file or folder")
        return [absolute(str(path))]
    found = sorted(absolute(str(each)) for each in path.rglob("*") if is_file(str(each)) and each.is_file())
    require(bool(found), f"{path}: holds no problem; allowed are files of {', '.join(FORMATS)}")
    return found


def suites() -> list[str]:
    """The names of the suites that come with qcqpbench."""
    return sorted(Path(each.name).stem for each in _shipped().iterdir() if each.name.endswith(".toml"))


def load_suite(name: str | Path, every: Sequence[str] | None = None) -> Suite:
    """Return a suite by its name, or from a file (.toml); `every` are the solvers that "*" stands for, if not all."""
    if str(name).endswith(".toml"):
        path = Path(name)
    else:
        if name not in suites():
            raise nearest(str(name), [*suites(), "a file (.toml)"], "suite")
        path = Path(str(_shipped())) / f"{name}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise QcqpbenchError(f"{path}: is not UTF-8: {error}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _File(path, text, every).suite()


def _shipped() -> Any:
    return files("qcqpbench.problems") / "suites"


def _usable(names: Iterable[str]) -> list[str]:
    """Return the names of solvers that can be described; the others are left out with a warning."""
    usable = []
    for name in names:
        try:
            solver_facts(name)
        except QcqpbenchError as error:
            warnings.warn(f"{name} is left out: {error}", stacklevel=2)
            continue
        usable.append(name)
    return usable


def _parameters(kind: str, name: str) -> list[str]:
    """Return the names of the parameters of a family or solver."""
    described = describe_parameters(family_class(name)) if kind == "problem" else solver_facts(name).parameters
    return [parameter.name for parameter in described]


class _File:
    """A suite file being read. Every mistake in it is one line that begins with the file and the line."""

    def __init__(self, path: Path, text: str, every: Sequence[str] | None = None) -> None:
        self.path, self.every = path, every
        self.lines = text.splitlines()
        try:
            self.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r"\(at line (\d+)", str(error))
            line = int(at[1]) if at else len(self.lines)
            raise QcqpbenchError(f"{path}:{line}: is not TOML: {error}") from error

    def suite(self) -> Suite:
        settings: dict[str, Any] = {}
        allowed = ("about", "problem", "solver", *_RIGHT)
        for key, value in self.content.items():
            with self._at(key):
                if key not in allowed:
                    raise nearest(key, allowed, "key")
                require(key != "about" or isinstance(value, str), "about must be text")
                if key in _RIGHT:
                    settings[key] = value
                    Settings(**settings)
        blocks = {kind: self._blocks(kind) for kind in ("problem", "solver")}
        problems = [spec for k, block in enumerate(blocks["problem"]) for spec in self._problems(k, block)]
        entries = [
            entry
            for k, block in enumerate(blocks["solver"])
            for entry in self._entries(k, block, Settings(**settings), problems)
        ]
        about = self.content.get("about", "")
        return Suite(self.path.stem, about, tuple(dict.fromkeys(problems)), tuple(entries))

    def _blocks(self, kind: str) -> list[dict[str, Any]]:
        found = self.content.get(kind, [])
        with self._at(kind):
            tables = isinstance(found, list) and all(isinstance(block, dict) for block in found)
            require(tables, f"{kind} is not allowed here; right are blocks that begin with [[{kind}]]")
            require(bool(found), f"there is no {kind}; right is at least one block that begins with [[{kind}]]")
        return list(found)

    def _problems(self, number: int, block: dict[str, Any]) -> list[str]:
        if "file" in block:
            with self._at("file", "problem", number):
                alone = isinstance(block["file"], str) and len(block) == 1
                require(alone, "file must be text, a file or a folder, and stand alone: a file has no parameters")
                return _files(self.path.parent / block["file"])
        specs = list(self._specs("problem", number, block, family_names(), ("name", "file")))
        with self._at("name", "problem", number):
            return [each.spec for spec in specs for each in family(spec).members()]

    def _entries(
        self, number: int, block: dict[str, Any], settings: Settings, problems: Sequence[str]
    ) -> Iterator[Entry]:
        for key, value in block.items():
            if key in _RIGHT:
                with self._at(key, "solver", number):
                    settings = replace(settings, **{key: value})
        where = block.get("where", {})
        with self._at("where", "solver", number):
            require(isinstance(where, dict), "where must name parameters, such as where.m = [25, 50]")
            known = {name for problem in problems for name in facts(problem)}
            for name in where:
                if name not in known:
                    raise nearest(name, known, "parameter of the problems")
            where = {name: value if isinstance(value, list) else [value] for name, value in where.items()}
            fits = any(_fits(problem, where) for problem in problems)
            there = {name: list(dict.fromkeys(facts(problem).get(name) for problem in problems)) for name in where}
            values = "; ".join(f"{name}: {', '.join(map(str, there[name]))}" for name in there)
            require(fits, f"where fits none of the problems above, which have {values}")
        for spec in self._specs("solver", number, block, solver_names(), ("name", "where", *_RIGHT)):
            yield Entry(solver_facts(spec), settings, where, named=block["name"] != "*")

    def _specs(
        self, kind: str, number: int, block: dict[str, Any], known: Sequence[str], reserved: Sequence[str]
    ) -> Iterator[str]:
        """The specs a block stands for: each of its names with each point of the grid of its parameters."""
        with self._at("name", kind, number):
            names = block.get("name")
            if kind == "solver" and names == "*":
                names = _usable(known) if self.every is None else list(self.every)
            names = [names] if isinstance(names, str) else names
            fits = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
            require(fits, f"a [[{kind}]] needs a name: a spec, or a list of them; known: {', '.join(known)}")
            parsed = [parse(name) for name in names or ()]
            for name, _ in parsed:
                if name not in known:
                    raise nearest(name, known, kind)
        grid = {
            key: value if isinstance(value, list) else [value] for key, value in block.items() if key not in reserved
        }
        for key, values in grid.items():
            with self._at(key, kind, number):
                require(bool(values), f"{key} = [] is an empty grid; right is at least one value")
                simple = all(isinstance(value, str | int | float) for value in values)
                require(simple, f"{key} = {block[key]!r} is not allowed; right is a value or a list of them")
                for name, given in parsed:
                    allowed = _parameters(kind, name)
                    if key not in allowed:
                        raise nearest(key, (*reserved, *allowed), f"key of {name}")
                    require(key not in given, f"{key} stands in the spec already")
        make: Any = family if kind == "problem" else solver_facts
        for (name, given), point in itertools.product(parsed, itertools.product(*grid.values())):
            spec = spell(name, given | dict(zip(grid, point, strict=True)))
            try:
                make(spec)
            except QcqpbenchError as error:
                named = [word for word in re.findall(r"\w+", str(error)) if word in grid]
                raise self._error(error, named[0] if named else "name", kind, number) from error
            yield spec

    @contextlib.contextmanager
    def _at(self, key: str, block: str = "", number: int = 0) -> Iterator[None]:
        try:
            yield
        except QcqpbenchError as error:
            raise self._error(error, key, block, number) from error

    def _error(self, error: QcqpbenchError, key: str, block: str, number: int) -> QcqpbenchError:
        return QcqpbenchError(f"{self.path}:{self._line(key, block, number)}: {error}")

    def _line(self, key: str, block: str, number: int) -> int:
        """Where a key stands in the block of that number, or else where the block begins."""
        headers = (
            [k for k, line in enumerate(self.lines) if re.match(rf"\s*\[\[?\s*{block}\s*\]", line)] if block else []
        )
        begin = headers[number] if number < len(headers) else 0
        key_here = re.compile(rf"""(^|[\s.,{{"']){re.escape(key)}["']?\s*[=.]|^\s*\[+\s*{re.escape(key)}\s*\]""")
        for k in range(begin, len(self.lines)):
            if block and k > begin and re.match(r"\s*\[\[", self.lines[k]):
                break
            if key_here.search(self.lines[k].split("#")[0]):
                return k + 1
        return begin + 1
