"""Names → classes: the files of ``problems/`` and ``solvers/``, and the entry points of other packages.

An entry point's name is the name of the solver or family it leads to, so a plug-in is imported only when its name is
used. Importing a plug-in runs somebody else's code: processes that judge points load families by name and no solver.
"""

import importlib
import inspect
import pkgutil
import sys
import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from qcqpbench.errors import QcqpbenchError, describe_error, nearest
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .best_known import with_best_known
from .family import Family
from .solver import Solver
from .spec import configure, parse

_FAMILIES, _SOLVERS = "qcqpbench.problems", "qcqpbench.solvers"


def family(spec: str) -> Family:
    """Return the problem family of a spec, with its parameters set."""
    name, parameters = parse(spec)
    return configure(family_class(name), parameters)


def solver(spec: str) -> Solver:
    """Return the solver of a spec, such as ``ipopt[formulation=min_norm]``, with its parameters set."""
    name, parameters = parse(spec)
    return configure(solver_class(name), parameters)


def family_class(name: str) -> type[Family]:
    """Return the class of a problem family."""
    kind: type[Family] = _class(_FAMILIES, Family, name, "problem")
    return kind


def solver_class(name: str) -> type[Solver]:
    """Return the class of a solver."""
    kind: type[Solver] = _class(_SOLVERS, Solver, name, "solver")
    return kind


def problem(spec: str) -> MaxMargin | QCQP:
    """Make the problem of a spec, such as ``covariance_perceptron[m=100,load=1,seed=3]``.

    Its metadata has the best known value, if the problem is in the list.
    """
    return with_best_known(family(spec).generate())


def families() -> dict[str, type[Family]]:
    """Return every problem family by name; plug-ins that cannot be loaded are left out with a warning."""
    return _all(_FAMILIES, Family)


def solvers() -> dict[str, type[Solver]]:
    """Return every solver by name, also those whose packages are missing; imports all plug-ins."""
    return _all(_SOLVERS, Solver)


def shipped_solvers() -> dict[str, type[Solver]]:
    """Return the solvers that come with qcqpbench, by name."""
    return {name: _shipped(_SOLVERS, Solver, name) for name in _shipped_names(_SOLVERS)}


def family_names() -> list[str]:
    """Return the names of all problem families, without importing any."""
    return sorted({*_shipped_names(_FAMILIES), *_entry_points(_FAMILIES)})


def solver_names() -> list[str]:
    """Return the names of all solvers, without importing any."""
    return sorted({*_shipped_names(_SOLVERS), *_entry_points(_SOLVERS)})


def family_plugin(name: str) -> EntryPoint | None:
    """Return the entry point of a problem family; None for those that come with qcqpbench."""
    return None if name in _shipped_names(_FAMILIES) else _entry_points(_FAMILIES).get(name)


def solver_plugin(name: str) -> EntryPoint | None:
    """Return the entry point of a solver; None for those that come with qcqpbench."""
    return None if name in _shipped_names(_SOLVERS) else _entry_points(_SOLVERS).get(name)


def _class(group: str, base: Any, name: str, kind: str) -> Any:
    if name in _shipped_names(group):
        return _shipped(group, base, name)
    entries = _entry_points(group)
    if name not in entries:
        raise nearest(name, [*_shipped_names(group), *entries], kind)
    return _plugin(entries[name], base)


def _all(group: str, base: Any) -> dict[str, Any]:
    classes = {name: _shipped(group, base, name) for name in _shipped_names(group)}
    for name, entry in _entry_points(group).items():
        if name in classes:
            warnings.warn(f"the entry point {entry.value} of {group} names no new {base.__name__}", stacklevel=3)
            continue
        try:
            classes[name] = _plugin(entry, base)
        except QcqpbenchError as error:
            # Somebody else's package: the rest must go on working without it.
            warnings.warn(str(error), stacklevel=3)
    return dict(sorted(classes.items()))


@cache
def _shipped_names(group: str) -> tuple[str, ...]:
    package = importlib.import_module(group)
    return tuple(module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_"))


@cache
def _shipped(group: str, base: Any, name: str) -> Any:
    """Return the one concrete class that a file of the package defines; it has the file's name."""
    module = importlib.import_module(f"{group}.{name}")
    classes = [each for each in vars(module).values() if _is_concrete(each, base) and each.__module__.endswith(name)]
    if [each.name for each in classes] != [name]:
        raise QcqpbenchError(f"{group}.{name} must define one {base.__name__} named {name!r}")
    return classes[0]


def _entry_points(group: str) -> dict[str, EntryPoint]:
    return _entry_points_on(group, tuple(sys.path))


@cache
def _entry_points_on(group: str, _path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, read once for each import path."""
    return {entry.name: entry for entry in entry_points(group=group)}


@cache
def _plugin(entry: EntryPoint, base: Any) -> Any:
    where = f"the entry point {entry.name} = {entry.value} of {entry.group}"
    try:
        kind = entry.load()
    except (Exception, SystemExit) as error:
        raise QcqpbenchError(f"{where} cannot be loaded: {describe_error(error)}") from error
    if not _is_concrete(kind, base):
        raise QcqpbenchError(f"{where} must lead to a {base.__name__} without abstract methods, got {kind!r}")
    named = getattr(kind, "name", None)
    if named != entry.name:
        raise QcqpbenchError(f"{where} must have the name of its class, got name = {named!r}")
    return kind


def _is_concrete(candidate: Any, base: type) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, base) and not inspect.isabstract(candidate)
