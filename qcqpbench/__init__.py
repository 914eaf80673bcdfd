"""qcqpbench: benchmarks of solvers on non-convex quadratically constrained problems whose answer theory predicts."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import features as features
    from . import theory as theory
    from .attempt import certify as certify
    from .attempt import random_start as random_start
    from .attempt import solve as solve
    from .conformance import check_family as check_family
    from .conformance import check_solver as check_solver
    from .errors import QcqpbenchError as QcqpbenchError
    from .formats import read as read
    from .formats import write as write
    from .formulations import formulation as formulation
    from .maxmargin import MaxMargin as MaxMargin
    from .maxmargin import unit_rows as unit_rows
    from .qcqp import QCQP as QCQP
    from .recordings import recorded_task as recorded_task
    from .registry import problem as problem
    from .solution import Solution as Solution
    from .solver import Budget as Budget
    from .solver import QCQPSolver as QCQPSolver
    from .solver import Run as Run
    from .solver import TaskSolver as TaskSolver
    from .status import Scope as Scope
    from .status import Termination as Termination

__version__ = "0.1.0"

# Loaded when first used: scipy.sparse alone takes longer to import than numpy.
_HOME = {
    "Budget": "solver",
    "MaxMargin": "maxmargin",
    "QCQP": "qcqp",
    "QCQPSolver": "solver",
    "QcqpbenchError": "errors",
    "Run": "solver",
    "Scope": "status",
    "Solution": "solution",
    "TaskSolver": "solver",
    "Termination": "status",
    "certify": "attempt",
    "check_family": "conformance",
    "check_solver": "conformance",
    "features": None,
    "formulation": "formulations",
    "problem": "registry",
    "random_start": "attempt",
    "read": "formats",
    "recorded_task": "recordings",
    "solve": "attempt",
    "theory": None,
    "unit_rows": "maxmargin",
    "write": "formats",
}
__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME[name]
    value = importlib.import_module(f".{home or name}", __name__)
    if home is not None:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
