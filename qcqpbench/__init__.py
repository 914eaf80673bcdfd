"""Benchmarks of solvers on non-convex quadratically constrained problems whose optimum theory predicts."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import rng as rng
    from . import theory as theory
    from .analysis.compare.comparison import Comparison as Comparison
    from .catalog.certificate.global_certificate import GlobalCertificate as GlobalCertificate
    from .catalog.certificate.global_certificate import read_certificate as read_certificate
    from .catalog.family import Family as Family
    from .catalog.family import TaskFamily as TaskFamily
    from .catalog.registry import problem as problem
    from .catalog.solver import Array as Array
    from .catalog.solver import Budget as Budget
    from .catalog.solver import QCQPSolver as QCQPSolver
    from .catalog.solver import RunFunction as RunFunction
    from .catalog.solver import Solution as Solution
    from .catalog.solver import TaskSolver as TaskSolver
    from .catalog.spec import parameter as parameter
    from .catalog.status import PointStatus as PointStatus
    from .catalog.status import Scope as Scope
    from .catalog.status import Termination as Termination
    from .errors import QcqpbenchError as QcqpbenchError
    from .problem.formats.by_suffix import read as read
    from .problem.formats.by_suffix import write as write
    from .problem.formulations import formulation as formulation
    from .problem.maxmargin import MaxMargin as MaxMargin
    from .problem.maxmargin import unit_rows as unit_rows
    from .problem.metadata import Metadata as Metadata
    from .problem.metadata import TheoryPrediction as TheoryPrediction
    from .problem.qcqp import QCQP as QCQP
    from .problem.recordings import features as features
    from .problem.recordings.task import recorded_task as recorded_task
    from .results.collect import run as run
    from .results.results import Results as Results
    from .results.row import Row as Row
    from .run.attempt import Attempt as Attempt
    from .run.attempt import certify as certify
    from .run.attempt import certify_globally as certify_globally
    from .run.attempt import solve as solve
    from .run.conformance import check_family as check_family
    from .run.conformance import check_solver as check_solver
    from .run.run_spec import RunOptions as RunOptions
    from .run.run_spec import random_start as random_start
    from .run.suite import Suite as Suite

__version__ = "0.1.0"

# Module of each public name. It is imported when the name is first used, because importing scipy.sparse is slow.
_MODULE_OF = {
    "Array": "catalog.solver",
    "Attempt": "run.attempt",
    "Budget": "catalog.solver",
    "Comparison": "analysis.compare.comparison",
    "Family": "catalog.family",
    "GlobalCertificate": "catalog.certificate.global_certificate",
    "MaxMargin": "problem.maxmargin",
    "Metadata": "problem.metadata",
    "PointStatus": "catalog.status",
    "QCQP": "problem.qcqp",
    "QCQPSolver": "catalog.solver",
    "QcqpbenchError": "errors",
    "Results": "results.results",
    "Row": "results.row",
    "RunFunction": "catalog.solver",
    "RunOptions": "run.run_spec",
    "Scope": "catalog.status",
    "Solution": "catalog.solver",
    "Suite": "run.suite",
    "TaskFamily": "catalog.family",
    "TaskSolver": "catalog.solver",
    "Termination": "catalog.status",
    "TheoryPrediction": "problem.metadata",
    "certify": "run.attempt",
    "certify_globally": "run.attempt",
    "check_family": "run.conformance",
    "check_solver": "run.conformance",
    "features": "problem.recordings.features",
    "formulation": "problem.formulations",
    "parameter": "catalog.spec",
    "problem": "catalog.registry",
    "random_start": "run.run_spec",
    "read": "problem.formats.by_suffix",
    "read_certificate": "catalog.certificate.global_certificate",
    "recorded_task": "problem.recordings.task",
    "rng": "rng",
    "run": "results.collect",
    "solve": "run.attempt",
    "theory": "theory",
    "unit_rows": "problem.maxmargin",
    "write": "problem.formats.by_suffix",
}
__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604

# Public names that are modules themselves; the others are attributes of their module.
_MODULES = ("features", "rng", "theory")


class _Package(ModuleType):
    """Module type that keeps a public function when a sub-package of the same name is imported.

    ``qcqpbench.problem`` and ``qcqpbench.run`` are functions, and ``qcqpbench/problem/`` and ``qcqpbench/run/`` are
    sub-packages. When Python imports a sub-package, it sets the attribute of that name on the parent, and
    ``qcqpbench.problem("…")`` would call a module. So this type ignores the assignment of a module to a public name;
    other names are set as usual. ``from qcqpbench.problem.qcqp import QCQP`` works as ever, but
    ``import qcqpbench.problem.qcqp as q`` does not, since it reads the attribute.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in _MODULE_OF and name not in _MODULES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


# Hidden from type checkers, for which it would make every misspelt name valid.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f".{_MODULE_OF[name]}", __name__)
        value = module if name in _MODULES else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
