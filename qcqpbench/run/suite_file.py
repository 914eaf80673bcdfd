"""Suite files: TOML with settings at the top, then blocks of problems and solvers.

    about = "purpose of the suite"
    starts = 10             # random starts of each solver on each problem (default: 1)
    seed = 0                # seed of the random starts (default: 0)
    time_limit = 60         # seconds per run (default: no limit)
    memory_limit = 4        # GB per run (default: no limit)
    threads = 1             # BLAS and OpenMP threads per run (default: 1)
    tolerance = 1e-6        # relative violation up to which a point is feasible (default: 1e-6)

    [[problem]]
    name = "covariance_perceptron"    # a spec or a list of specs
    m = 100                           # parameters of the family; a list adds one problem per value
    load = [0.5, 1, 2]
    seed = [0, 1, 2, 3, 4]

    [[problem]]
    file = "instances"                # a file or a folder, relative to the suite file

    [[problem]]
    name = "library"                  # every instance of a folder with an index of best known values
    path = "instances"                # relative to the working directory

    [[solver]]
    name = ["gip", "ipopt"]           # "*" stands for all solvers

    [[solver]]
    name = "qcqp[improve=admm]"
    starts = 5                        # settings and parameters of this solver only
    where.load = [0.5, 1]             # run only on problems with one of these loads

The settings are `starts` and the options of `qcqpbench.run.run_spec.RunOptions`, by their names in suite files. In a
solver's block, a key with the name of a setting is that setting; a parameter of the same name must be given in the
brackets of the spec. If several blocks match a solver and a problem, the last one is used. A solver that accepts only
max-margin tasks is left out on general QCQPs, with a warning if the suite requests it by name.
"""

import contextlib
import itertools
import re
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from qcqpbench.catalog.registry import family_names, solver_names
from qcqpbench.catalog.spec import parse, spell
from qcqpbench.errors import QcqpbenchError, nearest, require, system_reason

from .isolation.description import check_problem, describe_problems, family_facts, problem_members, solver_facts
from .suite import SETTINGS, Entry, Settings, Suite, facts, fits, problem_files


def suites() -> list[str]:
    """Return the names of the suites that come with qcqpbench."""
    return sorted(Path(path.name).stem for path in _shipped().iterdir() if path.name.endswith(".toml"))


def load_suite(name: str | Path, every: Sequence[str] | None = None) -> Suite:
    """Load a suite that comes with qcqpbench, or one from a file.

    Parameters
    ----------
    name
        One of the names that `suites` returns, or the path of a .toml file.
    every
        The names of the solvers that ``"*"`` stands for; None for all solvers.

    Raises
    ------
    QcqpbenchError
        If the suite does not exist, or its file is invalid; the message then begins with the file and the line.
    """
    if str(name).endswith(".toml"):
        path = Path(name)
    else:
        if name not in suites():
            raise nearest(str(name), [*suites(), "a file (.toml)"], "suite")
        path = Path(str(_shipped())) / f"{name}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise QcqpbenchError(f"{path}: must be UTF-8 text, got other bytes: {error}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    return _SuiteFile(path, text, every).suite()


def _shipped() -> Any:
    return files("qcqpbench.problems") / "suites"


@dataclass(frozen=True)
class _Block:
    """A [[problem]] or [[solver]] table of a suite file; `number` counts the tables of its kind from 0."""

    kind: Literal["problem", "solver"]
    number: int
    content: dict[str, Any]

    @property
    def reserved(self) -> tuple[str, ...]:
        """The keys of the block that are not parameters."""
        return ("name", "file") if self.kind == "problem" else ("name", "where", *SETTINGS)

    @property
    def known_names(self) -> list[str]:
        return family_names() if self.kind == "problem" else solver_names()

    def grid(self) -> dict[str, list[Any]]:
        """Return the list of values of each parameter by name."""
        parameters = {key: value for key, value in self.content.items() if key not in self.reserved}
        return {key: value if isinstance(value, list) else [value] for key, value in parameters.items()}


class _SuiteFile:
    """Parser of a suite file. Error messages begin with the file and the line."""

    def __init__(self, path: Path, text: str, every: Sequence[str] | None = None) -> None:
        self.path, self.every = path, every
        self.lines = text.splitlines()
        try:
            self.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r"\(at line (\d+)", str(error))
            line = int(at[1]) if at else len(self.lines)
            raise QcqpbenchError(f"{path}:{line}: must be TOML: {error}") from error

    def suite(self) -> Suite:
        settings = self._settings()
        problem_blocks, solver_blocks = self._blocks("problem"), self._blocks("solver")
        problems = [spec for block in problem_blocks for spec in self._problems(block)]
        entries = [entry for block in solver_blocks for entry in self._entries(block, settings, problems)]
        about = self.content.get("about", "")
        return Suite(self.path.stem, about, tuple(dict.fromkeys(problems)), tuple(entries))

    def _settings(self) -> Settings:
        settings = Settings()
        allowed = ("about", "problem", "solver", *SETTINGS)
        for key, value in self.content.items():
            with self._at(key):
                if key not in allowed:
                    raise nearest(key, allowed, "key")
                require(key != "about" or isinstance(value, str), f"about must be text, got {value!r:.100}")
                if key in SETTINGS:
                    settings = settings.changed(key, value)
        return settings

    def _blocks(self, kind: Literal["problem", "solver"]) -> list[_Block]:
        tables = self.content.get(kind, [])
        with self._at(kind):
            are_tables = isinstance(tables, list) and all(isinstance(table, dict) for table in tables)
            require(are_tables, f"{kind} must be given by blocks that begin with [[{kind}]], got {tables!r:.100}")
            require(bool(tables), f"a suite must have at least one block that begins with [[{kind}]], got none")
        return [_Block(kind, number, table) for number, table in enumerate(tables)]

    def _problems(self, block: _Block) -> list[str]:
        if "file" in block.content:
            with self._at("file", block):
                file = block.content["file"]
                require(isinstance(file, str), f"file must be the path of a file or a folder, got {file!r:.100}")
                require(
                    len(block.content) == 1,
                    f"file must be the only key of its block, got the keys {', '.join(block.content)}",
                )
                return problem_files(self.path.parent / file)
        specs = list(self._specs(block))
        with self._at("name", block):
            return [member.spec for spec in specs for member in problem_members(spec)]

    def _entries(self, block: _Block, settings: Settings, problems: Sequence[str]) -> Iterator[Entry]:
        for key, value in block.content.items():
            if key in SETTINGS:
                with self._at(key, block):
                    settings = settings.changed(key, value)
        with self._at("where", block):
            where = _where(block.content.get("where", {}), problems)
        for spec in self._specs(block):
            yield Entry(solver_facts(spec), settings, where, named=block.content["name"] != "*")

    def _specs(self, block: _Block) -> Iterator[str]:
        """Yield the specs of a block: the product of its names and the values of its parameters."""
        with self._at("name", block):
            parsed = self._names(block)
        grid = block.grid()
        for key, values in grid.items():
            with self._at(key, block):
                _check_values(key, values, block.content[key])
                for name, given in parsed:
                    _check_key(key, name, given, block)
        specs = [
            spell(name, given | dict(zip(grid, point, strict=True)))
            for (name, given), point in itertools.product(parsed, itertools.product(*grid.values()))
        ]
        if block.kind == "problem":
            with self._at("name", block):
                describe_problems(specs)
        for spec in specs:
            try:
                check_problem(spec) if block.kind == "problem" else solver_facts(spec)
            except QcqpbenchError as error:
                mentioned = [word for word in re.findall(r"\w+", str(error)) if word in grid]
                raise self._error(error, mentioned[0] if mentioned else "name", block) from error
            yield spec

    def _names(self, block: _Block) -> list[tuple[str, dict[str, str]]]:
        """Return the name and the parameters of each spec under the key `name` of a block."""
        names, known_names = block.content.get("name"), block.known_names
        if block.kind == "solver" and names == "*":
            names = _usable(known_names) if self.every is None else list(self.every)
        names = [names] if isinstance(names, str) else names
        are_texts = isinstance(names, list) and bool(names) and all(isinstance(name, str) for name in names)
        requirement = f"name of a [[{block.kind}]] must be a spec or a list of specs, got {names!r:.100}"
        require(are_texts, f"{requirement}; allowed: {', '.join(known_names)}")
        parsed = [parse(name) for name in names or ()]
        for name, _ in parsed:
            if name not in known_names:
                raise nearest(name, known_names, block.kind)
        return parsed

    @contextlib.contextmanager
    def _at(self, key: str, block: _Block | None = None) -> Iterator[None]:
        """Prefix messages of QcqpbenchError with the file and the line of `key`."""
        try:
            yield
        except QcqpbenchError as error:
            raise self._error(error, key, block) from error

    def _error(self, error: QcqpbenchError, key: str, block: _Block | None) -> QcqpbenchError:
        return QcqpbenchError(f"{self.path}:{self._line(key, block)}: {error}")

    def _line(self, key: str, block: _Block | None) -> int:
        """Return the line number of `key` in `block` (None for the whole file), or else the first line of the block."""
        begin = 0 if block is None else self._first_line(block)
        end = next(
            (k for k in range(begin + 1, len(self.lines)) if block and re.match(r"\s*\[\[", self.lines[k])),
            len(self.lines),
        )
        pattern = re.compile(rf"""(^|[\s.,{{"']){re.escape(key)}["']?\s*[=.]|^\s*\[+\s*{re.escape(key)}\s*\]""")
        return next((k for k in range(begin, end) if pattern.search(self.lines[k].split("#")[0])), begin) + 1

    def _first_line(self, block: _Block) -> int:
        headers = [k for k, line in enumerate(self.lines) if re.match(rf"\s*\[\[?\s*{block.kind}\s*\]", line)]
        return headers[block.number] if block.number < len(headers) else 0


def _usable(names: Iterable[str]) -> list[str]:
    """Return the names of the solvers whose facts are available; warn about the others."""
    usable = []
    for name in names:
        try:
            solver_facts(name)
        except QcqpbenchError as error:
            warnings.warn(f"the solver {name} is left out: {error}", stacklevel=2)
            continue
        usable.append(name)
    return usable


def _check_values(key: str, values: Sequence[Any], given: Any) -> None:
    """Raise QcqpbenchError if `values` is empty or holds a value other than text or a number."""
    require(bool(values), f"{key} must have at least one value, got []")
    simple = all(isinstance(value, str | int | float) for value in values)
    require(simple, f"{key} must be text, a number, or a list of these, got {given!r:.100}")


def _check_key(key: str, name: str, given: Mapping[str, str], block: _Block) -> None:
    """Raise QcqpbenchError if `key` is not a parameter of the family or solver `name`, or is also in `given`."""
    described = family_facts(name) if block.kind == "problem" else solver_facts(name)
    allowed = [parameter.name for parameter in described.parameters]
    if key not in allowed:
        raise nearest(key, (*block.reserved, *allowed), f"key of {name}")
    require(key not in given, f"{key} must be given once, got {key}={given.get(key)} in the spec too")


def _where(where: Any, problems: Sequence[str]) -> dict[str, list[Any]]:
    """Return the allowed values of each parameter in `where`; raise QcqpbenchError if no problem matches."""
    require(isinstance(where, dict), f"where must name parameters, such as where.m = [25, 50], got {where!r:.100}")
    known = {name for problem in problems for name in facts(problem)}
    for name in where:
        if name not in known:
            raise nearest(name, known, "parameter of the problems")
    allowed = {name: value if isinstance(value, list) else [value] for name, value in where.items()}
    if not any(fits(problem, allowed) for problem in problems):
        values = {name: dict.fromkeys(facts(problem).get(name) for problem in problems) for name in allowed}
        described = "; ".join(f"{name}: {', '.join(map(str, given))}" for name, given in values.items())
        raise QcqpbenchError(f"where must match one of the problems, which have {described}, got {allowed!r:.100}")
    return allowed
