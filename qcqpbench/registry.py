"""Names → classes. Scans the folders ``problems/`` and ``solvers/``, then the entry points of other packages."""

import importlib
import inspect
import pkgutil
import warnings
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from .best_known import with_best_known
from .errors import QcqpbenchError
from .family import Family
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .solver import Solver
from .spec import configure, nearest, parse


@cache
def families() -> dict[str, type[Family]]:
    """Every problem family by name."""
    return _scan("qcqpbench.problems", Family)


def family(spec: str) -> Family:
    """The problem family of a spec, with its parameters set."""
    name, parameters = parse(spec)
    if name not in families():
        raise nearest(name, families(), "problem")
    return configure(families()[name], parameters)


@cache
def solvers() -> dict[str, type[Solver]]:
    """Every solver by name, also those whose packages are missing."""
    return _scan("qcqpbench.solvers", Solver)


def solver(spec: str) -> Solver:
    """The solver of a spec, such as ``ipopt[formulation=min_norm]``, with its parameters set."""
    name, parameters = parse(spec)
    if name not in solvers():
        raise nearest(name, solvers(), "solver")
    return configure(solvers()[name], parameters)


def problem(spec: str) -> MaxMargin | QCQP:
    """Make the problem of a spec, such as ``covariance_perceptron[m=100,load=1,seed=3]``; its metadata says what is the
    best known of it, if it is in the list."""
    return with_best_known(family(spec).generate())


def _scan(group: str, base: Any) -> dict[str, type[Any]]:
    """The concrete classes of a kind: one per file of the package, and those that entry points of the group name."""
    package = importlib.import_module(group)
    found: dict[str, type[Any]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            content = vars(importlib.import_module(f"{group}.{module.name}")).values()
            classes = [each for each in content if _is_concrete(each, base) and each.__module__.endswith(module.name)]
            if [each.name for each in classes] != [module.name]:
                raise QcqpbenchError(f"{group}.{module.name} must define one {base.__name__} named {module.name!r}")
            found[module.name] = classes[0]
    for entry in entry_points(group=group):
        try:
            kind = entry.load()
        except Exception as error:
            # Somebody else's package: the rest must go on working without it.
            warnings.warn(f"the entry point {entry.value} of {group} cannot be loaded: {error}", stacklevel=2)
            continue
        if not _is_concrete(kind, base) or kind.name in found:
            warnings.warn(f"the entry point {entry.value} of {group} names no new {base.__name__}", stacklevel=2)
            continue
        found[kind.name] = kind
    return dict(sorted(found.items()))


def _is_concrete(candidate: Any, base: type) -> bool:
    return inspect.isclass(candidate) and issubclass(candidate, base) and not inspect.isabstract(candidate)
