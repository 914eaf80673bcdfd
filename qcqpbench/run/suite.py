"""Suites: problems × solvers × starts, with limits. `qcqpbench.run.suite_file` reads suites from files."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.family import TaskFamily
from qcqpbench.catalog.registry import (
    check_type,
    family_class,
    family_names,
    family_plugin,
    solver_names,
    solver_plugin,
)
from qcqpbench.catalog.solver import Solver, SolverFacts
from qcqpbench.catalog.spec import ParameterFacts, ParameterValue, parse, spell
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.formats.by_suffix import FORMATS, is_file, is_path
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .isolation.description import (
    family_facts,
    is_stored,
    problem_apart,
    problem_members,
    problem_parameters,
    solver_facts,
)
from .isolation.protocol import UNKNOWN_VERSION
from .run_spec import OPTIONS, RunOptions, RunSpec

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Settings(RunOptions):
    """Number of starts of a solver on each problem, and the options of each run; see `RunOptions`."""

    starts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = isinstance(self.starts, Integral) and not isinstance(self.starts, bool) and self.starts >= 1
        require(valid, f"starts must be a whole number, at least 1, got {self.starts!r}")
        object.__setattr__(self, "starts", int(self.starts))

    def changed(self, key: str, value: Any) -> "Settings":
        """Return a copy with the value of one key of a suite file, in the unit of the file."""
        for name, facts in OPTIONS.items():
            if facts.setting == key:
                return replace(self, **{name: facts.from_user(value)})
        return replace(self, **{key: value})


DEFAULT_SETTINGS = Settings()
SETTINGS = ("starts", *(facts.setting for facts in OPTIONS.values()))


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
    instance
        The solver itself, if it is an object of the caller and not one that its spec names.
    """

    solver: SolverFacts
    settings: Settings = Settings()
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    named: bool = True
    instance: Solver | None = None

    @classmethod
    def of(cls, solver: str | Solver, settings: Settings) -> "Entry":
        """Return the entry of a solver, given by its spec or as an object."""
        check_type("solvers", solver, Solver, "hold specs or solvers")
        if isinstance(solver, str):
            return cls(solver_facts(solver), settings)
        return cls(solver.facts(), settings, instance=solver)

    def takes(self, problem: str) -> bool:
        """Return whether the solver is to run on `problem`, a spec or a file."""
        return fits(problem, self.where)


@dataclass(frozen=True)
class Share:
    """One of several shares that together hold each run of a suite once.

    The share of a run depends on its problem, solver, start and their number alone, so that it is the same in every
    call, and known before the problem is generated.

    Attributes
    ----------
    number, count
        Number of the share, from 1 to `count`, and number of all shares.
    """

    number: int = 1
    count: int = 1

    @classmethod
    def of(cls, text: str) -> "Share":
        """Return the share that a text such as 3/10, the third of ten, denotes."""
        number, slash, count = text.partition("/") if isinstance(text, str) else ("", "", "")
        is_share = bool(slash) and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)
        require(is_share, f"share must be a text such as 3/10, the third of ten shares, got {text!r:.100}")
        return cls(int(number), int(count))

    def holds(self, problem: str, solver: str, start: int) -> bool:
        """Return whether the run of the full spec of a solver on a problem is in this share."""
        digest = hashlib.sha256(f"{problem}\n{solver}\n{start}".encode()).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number - 1


class ProblemIdentity(NamedTuple):
    """Id of a problem, and whether it is a max-margin task; specs of runs need no more."""

    id: str
    is_task: bool

    @classmethod
    def of(cls, problem: MaxMargin | QCQP) -> "ProblemIdentity":
        """Return the identity of a problem in memory."""
        return cls(problem.id, isinstance(problem, MaxMargin))


@dataclass(frozen=True)
class Suite:
    """Problems and the solvers to run on them.

    Attributes
    ----------
    name, about
        Name and description.
    problems
        The problems, as specs with all their parameters or as files.
    entries
        The solvers.
    identities
        Identities of generated problems that are known already, by spec; such problems are not generated again.
    share
        The share of the runs that are made; by default all.
    """

    name: str
    about: str
    problems: tuple[str, ...]
    entries: tuple[Entry, ...]
    identities: Mapping[str, ProblemIdentity] = field(default_factory=dict)
    share: Share = Share()

    def __post_init__(self) -> None:
        for entry in self.entries:
            require(isinstance(entry, Entry), f"entries must hold Entry objects, got {entry!r:.100}; see Suite.of")

    @classmethod
    def of(
        cls, problems: Iterable[str | Path], solvers: Iterable[str | Solver], settings: Settings = DEFAULT_SETTINGS
    ) -> "Suite":
        """Return a suite that runs every solver on every problem.

        Parameters
        ----------
        problems
            Specs, files, and folders of files.
        solvers
            Specs or solvers.
        settings
            Starts and options of all runs.
        """
        require(isinstance(settings, Settings), f"settings must be a Settings, got {settings!r:.100}")
        texts = [_checked_text(problem) for problem in listed("problems", problems)]
        specs = dict.fromkeys(spec for text in texts for spec in expand_problem(text))
        require(bool(specs), f"problems must denote at least one problem, got none for {', '.join(texts)}")
        entries = tuple(Entry.of(solver, settings) for solver in listed("solvers", solvers))
        return cls("", "", tuple(specs), entries)

    def with_settings(self, **changes: Any) -> "Suite":
        """Return a copy in which the named settings of all solvers have other values."""
        entries = (replace(entry, settings=replace(entry.settings, **changes)) for entry in self.entries)
        return replace(self, entries=tuple(entries))

    @property
    def size(self) -> int:
        """Upper bound on the number of runs."""
        return sum(map(self._max_runs, self.problems))

    def runs(self, dropped: Callable[[int], None] = lambda _: None) -> Iterator[RunSpec]:
        """Yield the specs of the runs, grouped by problem.

        Stored problems are read before the first run is yielded, so that a damaged file raises an error early. So are
        problems that may be QCQPs, if a solver accepts only tasks, so that the number of runs is known early. Other
        problems are generated when their runs are yielded.

        Parameters
        ----------
        dropped
            Called once per problem with the number of its runs that are left out, because the solver does not accept
            the problem or the same run was yielded before.
        """
        self._warn_of_unknown_versions()
        keys: set[str] = set()
        texts_by_id: dict[str, str] = {}

        def new_runs(text: str) -> list[RunSpec]:
            runs = {run.key: run for run in self._runs(text)}
            new = [run for key, run in runs.items() if key not in keys]
            keys.update(runs)
            dropped(self._max_runs(text) - len(new))
            if is_stored(text):
                _warn_of_copies(text, runs.values(), texts_by_id)
            return new

        early = {text: new_runs(text) for text in self.problems if is_stored(text) or self._may_be_refused(text)}
        for text in self.problems:
            yield from early[text] if text in early else new_runs(text)
        # A share may be empty.
        accepted = bool(keys) or self.share.count > 1
        require(accepted, "a suite must have at least one run, got none: no solver accepts any of the problems")

    def _warn_of_unknown_versions(self) -> None:
        for solver in (entry.solver for entry in self.entries):
            if solver.version == UNKNOWN_VERSION:
                notice = f"{solver.name} has no known version, so its runs end with an error: {solver.reason}"
                warnings.warn(notice, stacklevel=3)

    def _runs(self, text: str) -> Iterator[RunSpec]:
        entries = [entry for entry in self._entries(text) if self._starts(entry, text)]
        if not entries:
            return
        problem = self.identities.get(text) or ProblemIdentity.of(problem_apart(text))
        for entry in entries:
            if problem.is_task or entry.solver.takes_qcqps:
                yield from _entry_runs(entry, text, problem, self._starts(entry, text))
            elif entry.named:
                notice = f"{entry.solver.name} accepts only max-margin tasks; it is left out on general QCQPs"
                warnings.warn(notice, stacklevel=4)

    def _may_be_refused(self, problem: str) -> bool:
        """Return whether a solver may turn out not to accept the problem once it is generated."""
        if all(entry.solver.takes_qcqps for entry in self._entries(problem)):
            return False
        name = parse(problem)[0]
        if not _is_shipped_family(name):
            return True
        kind = family_class(name)
        return not issubclass(kind, TaskFamily) and get_type_hints(kind.generate).get("return") is not MaxMargin

    def _max_runs(self, problem: str) -> int:
        return sum(len(self._starts(entry, problem)) for entry in self._entries(problem))

    def _starts(self, entry: Entry, problem: str) -> list[int]:
        """Return the starts of a solver on a problem that are in the share."""
        return [k for k in range(entry.settings.starts) if self.share.holds(problem, entry.solver.spec, k)]

    def _entries(self, problem: str) -> list[Entry]:
        """Return the entries that match a problem; of several entries for the same solver, only the last."""
        return list({entry.solver.spec: entry for entry in self.entries if entry.takes(problem)}.values())


def listed(name: str, values: Iterable[T]) -> list[T]:
    """Return the entries of the argument `name`; raise QcqpbenchError if it is not a list, or an empty one."""
    is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    require(is_list, f"{name} must be a list, got {values!r:.100}")
    entries = list(values)
    require(bool(entries), f"{name} must hold at least one entry, got none")
    return entries


def _checked_text(problem: object) -> str:
    require(isinstance(problem, str | Path), f"problems must hold specs or paths of files, got {problem!r:.100}")
    return str(problem)


def _entry_runs(entry: Entry, text: str, problem: ProblemIdentity, starts: Sequence[int]) -> Iterator[RunSpec]:
    solver = entry.solver
    for start in starts:
        yield RunSpec(
            problem=text,
            problem_id=problem.id,
            solver=solver.spec,
            version=solver.version,
            formulation=solver.formulation if problem.is_task else None,
            start=start,
            **{name: getattr(entry.settings, name) for name in OPTIONS},
        )


def _warn_of_copies(text: str, runs: Iterable[RunSpec], texts_by_id: dict[str, str]) -> None:
    """Warn if a stored problem has the same content as an earlier one, and add its ids to `texts_by_id`."""
    for id in {run.problem_id for run in runs}:
        if (first := texts_by_id.setdefault(id, text)) != text:
            consequence = f"the runs and the best known value of {first} are used"
            warnings.warn(f"{text} is the same problem as {first}; {consequence}", stacklevel=4)


def facts(problem: str) -> dict[str, ParameterValue]:
    """Return the name and the parameters of a problem as a dict; for a file, only its path as the name."""
    return {"name": problem} if is_file(problem) else {"name": parse(problem)[0], **problem_parameters(problem)}


def fits(problem: str, where: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether each parameter of `problem` named in `where` has one of the values given there."""
    values = facts(problem) if where else {}
    return all(name in values and values[name] in allowed for name, allowed in where.items())


def expand_problem(text: str) -> list[str]:
    """Return the specs or files that `text` (a spec, a file, a folder of files, or a library) expands to."""
    if is_path(text) or (text not in family_names() and Path(text).is_dir()):
        return problem_files(Path(text))
    return [member.spec for member in problem_members(text)]


def problem_files(path: Path) -> list[str]:
    """Return the absolute path of a problem file, or of all problem files in a folder, sorted."""
    if not path.is_dir():
        require(path.is_file(), f"{path}: no such file or folder")
        known = is_file(str(path))
        require(known, f"{path}: unknown file format {path.suffix!r}; allowed: {', '.join(FORMATS)}")
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


def problem_labels(specs: Iterable[str]) -> dict[str, str]:
    """Return a short spec of each problem in `specs` that denotes the same problem, by full spec; files are unchanged.

    Problems of one family have the same parameters written out.
    """
    return _labels(specs, lambda name: family_facts(name).parameters if _is_shipped_family(name) else ())


def solver_labels(specs: Iterable[str]) -> dict[str, str]:
    """Return a short spec of each solver in `specs` that denotes the same solver, by full spec."""
    return _labels(specs, lambda name: solver_facts(name).parameters if _is_shipped_solver(name) else ())


def _is_shipped_family(name: str) -> bool:
    return name in family_names() and family_plugin(name) is None


def _is_shipped_solver(name: str) -> bool:
    return name in solver_names() and solver_plugin(name) is None


def _labels(specs: Iterable[str], parameters_of: Callable[[str], Sequence[ParameterFacts]]) -> dict[str, str]:
    """Return the label of each spec: the spec without the parameters that have their defaults in all specs of its name.

    `parameters_of(name)` returns the parameters of a family or solver.
    """
    parsed = {spec: parse(spec) for spec in specs if not is_path(spec)}
    needed: dict[str, set[str]] = {}
    for name, parameters in parsed.values():
        defaults = {facts.name: facts.default for facts in parameters_of(name)}
        changed = {key for key, text in parameters.items() if key not in defaults or text != _text(defaults[key])}
        needed.setdefault(name, set()).update(changed)
    labels = {
        spec: spell(name, {key: text for key, text in parameters.items() if key in needed[name]})
        for spec, (name, parameters) in parsed.items()
    }
    return {spec: labels.get(spec, spec) for spec in specs}


def _text(value: Any) -> str:
    """Return a parameter's value as a spec has it."""
    return parse(spell("name", {"value": value}))[1]["value"]
