"""Rows of results files with the further facts that metrics and reports need."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from qcqpbench.catalog.spec import parse, spell
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.formats.by_suffix import is_file
from qcqpbench.results.row import Row
from qcqpbench.run.suite import problem_labels, solver_labels

# Names of the two theories in plots and tables: of the columns kappa_bar_theory and kappa_bar_rs.
FULL_RSB, REPLICA_SYMMETRY = "theory (full RSB)", "replica symmetry (paper)"
# Hash of the source of a solver in its version, of which labels show the first part.
_SOURCE_HASH = re.compile(r"\b(source [0-9a-f]{6})[0-9a-f]+")
# Parameters in which the problems of one variant differ.
_VARIED = ("load", "p", "seed", "m")

R = TypeVar("R", bound=Row)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class AnalysisRow(Row):
    """Row with the labels under which it is shown, and facts that metrics use.

    Attributes
    ----------
    label, problem_label
        Names of the solver and of the problem in tables and plots.
    trace
        Pairs (seconds since the solver's entry, κ̄) of the points that a run on a task reported.
    known_bound
        Proved bound: the upper bound on the margin of a task in the list of best known margins, or the tightest bound
        in the metadata of a general QCQP.
    """

    label: str
    problem_label: str
    trace: tuple[tuple[float, float], ...] = ()
    known_bound: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReportRow(AnalysisRow):
    """Row of a report.

    Attributes
    ----------
    variables, constraints
        Size of a general QCQP; None if the problem cannot be loaded.
    objective_theory
        Objective that theory predicts for a general QCQP; None if there is no theory or the problem cannot be loaded.
    machine_number
        Index of the machine of the run in the machines of the report.
    """

    variables: int | None = None
    constraints: int | None = None
    objective_theory: float | None = None
    machine_number: int = 0


def extend_row(kind: type[R], row: Row, facts: Mapping[str, Any]) -> R:
    """Return a row of type `kind` with the values of `row`, extended and overridden by the values of `facts`."""
    extended = object.__new__(kind)
    # The constructor of a frozen dataclass takes five times as long.
    extended.__dict__.update(row.__dict__)
    extended.__dict__.update(facts)
    return extended


@dataclass(frozen=True)
class Place:
    """Position of a problem among similar ones.

    Attributes
    ----------
    variant
        The spec without m, p, load and seed.
    m, load, p
        Inputs, load and patterns according to the spec; all None if it gives no m, or neither load nor p.
    exact_load
        The load of p patterns, which differs from `load` if p is rounded.
    """

    variant: str
    m: int | None = None
    load: float | None = None
    p: int | None = None
    exact_load: float | None = None


@cache
def place(problem: str) -> Place:
    """Return the position that the spec of a problem gives; for a file, `variant` is its path."""
    try:
        name, parameters = (problem, {}) if is_file(problem) else parse(problem)
    except QcqpbenchError:
        name, parameters = problem, {}
    rest = {key: value for key, value in parameters.items() if key not in _VARIED}
    try:
        m = int(parameters["m"])
        inputs = m * int(parameters.get("n", 1))
        load = float(parameters["load"]) if "load" in parameters else float(parameters["p"]) / inputs
    except (KeyError, ValueError):
        return Place(problem if is_file(problem) else spell(name, parameters))
    p = round(load * inputs)
    return Place(spell(name, rest), m, load, p, p / inputs)


def labels_of_solvers(rows: Iterable[Row]) -> dict[str, str]:
    """Return the short labels of `suite.solver_labels` for the solvers of `rows`; texts that are not specs stay."""
    specs = {row.solver for row in rows}
    return {spec: spec for spec in specs} | solver_labels({spec for spec in specs if is_spec(spec)})


def labels_of_problems(problems: Iterable[str]) -> dict[str, str]:
    """Return the short labels of `suite.problem_labels` for specs and files; texts that are neither stay."""
    texts = {*problems}
    return {text: text for text in texts} | problem_labels({text for text in texts if is_file(text) or is_spec(text)})


def labels_of_versions(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a label of each (solver, version) whose solver has several versions: the parts in which they differ."""
    versions: dict[str, dict[str, list[str]]] = {}
    for solver, version in pairs:
        versions.setdefault(solver, {})[version] = version.split(", ")
    labels: dict[tuple[str, str], str] = {}
    for solver, parts_by_version in versions.items():
        if len(parts_by_version) > 1:
            shared = set.intersection(*map(set, parts_by_version.values()))
            texts = {
                version: ", ".join(part for part in parts if part not in shared) or version
                for version, parts in parts_by_version.items()
            }
            short = {version: _SOURCE_HASH.sub(r"\1", text) for version, text in texts.items()}
            is_unique = len({*short.values()}) == len(short)
            labels |= {(solver, version): text for version, text in (short if is_unique else texts).items()}
    return labels


def is_spec(text: str) -> bool:
    """Return whether `text` is spelled like a spec."""
    try:
        return bool(parse(text)[0])
    except QcqpbenchError:
        return False


def family_of(problem: str) -> str:
    """Return the name of the family of a problem, "files" for a file."""
    return "files" if is_file(problem) or not is_spec(problem) else parse(problem)[0]
