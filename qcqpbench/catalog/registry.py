"""Lookup of problem families and solvers by name: shipped modules, and plug-ins from entry points of other packages.

An entry point has the name of its solver or family, so that a plug-in is imported only when its name is used. Importing
a plug-in runs its code. Therefore the driver, the verifier and `verify` never import plug-ins, and get facts about them
from `qcqpbench.run.isolation.description`.
"""

import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from qcqpbench.errors import QcqpbenchError, describe_error, nearest, require
from qcqpbench.problem.formats.by_suffix import is_path, read
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .best_known import with_best_known
from .family import Family, generated
from .solver import Solver
from .spec import ParameterFacts, ParameterValue, Parametrized, configure, describe_parameters, parameters_of, parse

_FAMILIES, _SOLVERS = "qcqpbench.problems", "qcqpbench.solvers"


@dataclass(frozen=True)
class FamilyFacts:
    """Facts about a problem family, for processes that do not run its code.

    Attributes
    ----------
    name
        Name of the family.
    about
        Docstring of the module of the family.
    stored
        Whether the family reads its problems from files.
    parameters
        Parameters of the family.
    """

    name: str
    about: str
    stored: bool
    parameters: tuple[ParameterFacts, ...] = ()


@dataclass(frozen=True)
class ProblemFacts:
    """Spec of a problem with all parameters that are not None written out, and the values of these parameters."""

    spec: str
    parameters: Mapping[str, ParameterValue]


def describe_family(name: str) -> FamilyFacts:
    """Return the facts about the problem family `name`."""
    kind = family_class(name)
    about = (sys.modules[kind.__module__].__doc__ or "").strip()
    return FamilyFacts(kind.name, about, kind.stored, describe_parameters(kind))


def describe_members(spec: str) -> tuple[ProblemFacts, ...]:
    """Return the facts about each problem that `spec` denotes in a suite."""
    return tuple(ProblemFacts(member.spec, member.parameters) for member in family(spec).members())


def family(spec: str) -> Family:
    """Return the problem family that `spec` denotes, with its parameters set."""
    name, parameters = parse(spec)
    return configure(family_class(name), parameters)


def solver(spec: str) -> Solver:
    """Return the solver that `spec` denotes, such as ``ipopt[formulation=min_norm]``, with its parameters set."""
    name, parameters = parse(spec)
    return configure(solver_class(name), parameters)


def check_type(name: str, value: object, kind: type[Parametrized], requirement: str) -> None:
    """Raise QcqpbenchError unless the argument `name` is a spec or a `kind`; suggest an object in place of a class."""
    hint = f"; did you mean {value.__name__}()?" if inspect.isclass(value) and issubclass(value, kind) else ""
    require(isinstance(value, str | kind), f"{name} must {requirement}, got {value!r:.100}{hint}")


def family_class(name: str) -> type[Family]:
    """Return the class of the problem family `name`."""
    kind: type[Family] = _class(_FAMILIES, Family, name, "problem")
    return kind


def solver_class(name: str) -> type[Solver]:
    """Return the class of the solver `name`."""
    kind: type[Solver] = _class(_SOLVERS, Solver, name, "solver")
    return kind


def problem(spec: str | Path) -> MaxMargin | QCQP:
    """Generate the problem that a spec denotes, or read it from a file.

    The family of a plug-in is imported into this process.

    Parameters
    ----------
    spec
        A name and parameters, such as ``covariance_perceptron[m=100,load=1,seed=3]``, or the path of a file.

    Returns
    -------
    MaxMargin or QCQP
        The problem; the metadata of a generated one contains the best known value if the shipped list has one.

    Raises
    ------
    QcqpbenchError
        If the name or a parameter is wrong, the family cannot generate the problem, or the file cannot be read.
    """
    if not isinstance(spec, str | Path):
        raise QcqpbenchError(f"spec must be text such as 'parity[m=4]' or the path of a file, got {spec!r:.100}")
    if isinstance(spec, Path) or is_path(spec):
        return read(spec)
    return with_best_known(generated(family(spec)))


def check_problem(problem: object) -> None:
    """Raise QcqpbenchError unless `problem` is a problem in memory."""
    got = f"got {problem!r:.100}; qcqpbench.problem(spec) returns one"
    require(isinstance(problem, MaxMargin | QCQP), f"problem must be a MaxMargin or a QCQP, {got}")


def families() -> dict[str, type[Family]]:
    """Return all problem families by name; omit plug-ins that cannot be loaded, with a warning."""
    return _all(_FAMILIES, Family)


def solvers() -> dict[str, type[Solver]]:
    """Import all plug-ins, and return all solvers by name, including those whose packages are missing."""
    return _all(_SOLVERS, Solver)


def shipped_solvers() -> dict[str, type[Solver]]:
    """Return the solvers that are shipped with qcqpbench, by name."""
    return {name: _shipped(_SOLVERS, Solver, name) for name in _shipped_names(_SOLVERS)}


def family_names() -> list[str]:
    """Return the names of all problem families, without importing any."""
    return sorted({*_shipped_names(_FAMILIES), *_entry_points(_FAMILIES)})


def solver_names() -> list[str]:
    """Return the names of all solvers, without importing any."""
    return sorted({*_shipped_names(_SOLVERS), *_entry_points(_SOLVERS)})


def family_plugin(name: str) -> EntryPoint | None:
    """Return the entry point of the problem family `name`; None if it is shipped with qcqpbench or unknown."""
    return None if name in _shipped_names(_FAMILIES) else _entry_points(_FAMILIES).get(name)


def solver_plugin(name: str) -> EntryPoint | None:
    """Return the entry point of the solver `name`; None if it is shipped with qcqpbench or unknown."""
    return None if name in _shipped_names(_SOLVERS) else _entry_points(_SOLVERS).get(name)


def _class(group: str, base: Any, name: str, kind: str) -> Any:
    """Return the class called `name` in the group of shipped modules and plug-ins `group`, a subclass of `base`.

    Raise an error that suggests the nearest name of this `kind` if the name is unknown.
    """
    if name in _shipped_names(group):
        return _shipped(group, base, name)
    entries = _entry_points(group)
    if name not in entries:
        raise nearest(name, [*_shipped_names(group), *entries], kind)
    return _plugin(entries[name], base)


def _all(group: str, base: Any) -> dict[str, Any]:
    """Return the classes of a group by name; omit plug-ins that cannot be loaded, with a warning."""
    classes = {name: _shipped(group, base, name) for name in _shipped_names(group)}
    for name, entry in _entry_points(group).items():
        if name in classes:
            warnings.warn(
                f"the entry point {entry.value} of {group} must have a new name, got the shipped {name!r}", stacklevel=3
            )
            continue
        try:
            classes[name] = _plugin(entry, base)
        except QcqpbenchError as error:
            # The other plug-ins remain usable.
            warnings.warn(str(error), stacklevel=3)
    return dict(sorted(classes.items()))


@cache
def _shipped_names(group: str) -> tuple[str, ...]:
    """Return the names of the public modules of the package `group`."""
    package = importlib.import_module(group)
    return tuple(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))


@cache
def _shipped(group: str, base: Any, name: str) -> Any:
    """Return the only concrete subclass of `base` in module `name` of package `group`; its `name` must be `name`."""
    module = importlib.import_module(f"{group}.{name}")
    classes = [kind for kind in vars(module).values() if _is_concrete(kind, base) and kind.__module__.endswith(name)]
    if [kind.name for kind in classes] != [name]:
        raise QcqpbenchError(
            f"{group}.{name} must define one {base.__name__}, named {name!r}, got {[kind.name for kind in classes]}"
        )
    return classes[0]


def _entry_points(group: str) -> dict[str, EntryPoint]:
    return _entry_points_on(group, tuple(sys.path))


@cache
def _entry_points_on(group: str, _path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, cached for each import path `_path`."""
    return {entry.name: entry for entry in entry_points(group=group)}


@cache
def _plugin(entry: EntryPoint, base: Any) -> Any:
    """Import the class of an entry point; raise an error unless it is a concrete `base` with the name of the entry."""
    where = f"the entry point {entry.name} = {entry.value} of {entry.group}"
    try:
        kind = entry.load()
    except (Exception, SystemExit) as error:
        raise QcqpbenchError(f"{where} cannot be loaded: {describe_error(error)}") from error
    if not _is_concrete(kind, base):
        raise QcqpbenchError(f"{where} must lead to a {base.__name__} without abstract methods, got {kind!r}")
    named = getattr(kind, "name", None)
    if named != entry.name:
        raise QcqpbenchError(f"{where} must lead to a class with name = {entry.name!r}, got name = {named!r}")
    # Report a class without @dataclass when the plug-in is loaded, not when it is first configured.
    parameters_of(kind)
    return kind


def _is_concrete(candidate: Any, base: type) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, base) and not inspect.isabstract(candidate)
