"""Import of Pyomo, and conversion of QCQPs to Pyomo models."""

import contextlib
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]

# Shared library of PyNumero, at the path where `make setup` installs it.
_PYNUMERO_LIBRARY = Path(sys.prefix, "share", "qcqpbench", "pyomo", "lib", "libpynumero_ASL.so")


@contextlib.contextmanager
def load_pyomo() -> Iterator[Any]:
    """Set the path of the library of PyNumero, and yield pyomo.environ; the context suppresses the logging of Pyomo."""
    from pyomo.common import envvar

    if uses_setup_library():
        envvar.PYOMO_CONFIG_DIR = str(_PYNUMERO_LIBRARY.parent.parent)
    import pyomo.environ
    from pyomo.common.log import LoggingIntercept

    with LoggingIntercept(module="pyomo"):
        yield pyomo.environ


def uses_setup_library() -> bool:
    """Return True if PyNumero uses the library that `make setup` installs."""
    return "PYOMO_CONFIG_DIR" not in os.environ and _PYNUMERO_LIBRARY.exists()


def pyomo_model(problem: QCQP) -> Any:
    """Return a ConcreteModel of `problem` with the variables x, the objective and the indexed constraints.

    The size of the model and the time to build it are linear in the number of nonzero coefficients.
    """
    import pyomo.environ as pyo
    from pyomo.common.gc_manager import PauseGC

    lower, upper, x_lower, x_upper = (
        [bound if np.isfinite(bound) else None for bound in bounds.tolist()]
        for bounds in (problem.lower, problem.upper, problem.x_lower, problem.x_upper)
    )

    def constraint(_: Any, r: int) -> Any:
        if counts[r] == 0:
            return pyo.Constraint.Skip if problem.lower[r] <= 0 <= problem.upper[r] else pyo.Constraint.Infeasible
        if lower[r] is None and upper[r] is None:
            return pyo.Constraint.Skip
        body = _expression(problem, r + 1, x)
        return body == lower[r] if problem.lower[r] == problem.upper[r] else (lower[r], body, upper[r])

    counts = np.diff(problem.quadratic.indptr + problem.linear.indptr)[1:]
    model = pyo.ConcreteModel()
    # Without the pause, the garbage collector scans the growing model repeatedly, which takes most of the time.
    with PauseGC():
        model.x = pyo.Var(range(problem.n_variables), bounds=lambda _, i: (x_lower[i], x_upper[i]))
        x = list(model.x.values())
        model.objective = pyo.Objective(
            expr=_expression(problem, 0, x) + problem.constant,
            sense=pyo.minimize if problem.sense == "minimize" else pyo.maximize,
        )
        model.constraints = pyo.Constraint(range(problem.n_constraints), rule=constraint)
    return model


def set_point(model: Any, x: Array) -> None:
    """Set the variables of `model` to the values `x`, shape (n,)."""
    for variable, value in zip(model.x.values(), x.tolist(), strict=True):
        variable.set_value(value, skip_validation=True)


def point(model: Any) -> Array:
    """Return the values of the variables of `model`, shape (n,)."""
    return np.array([variable.value for variable in model.x.values()], dtype=np.float64)


def _expression(problem: QCQP, row: int, x: list[Any]) -> Any:
    """Return row `row` as Σ_i x_i·(Σ_j c_ij x_j) + Σ_i d_i x_i, which has fewer nodes than a sum over products."""
    from pyomo.core.expr import LinearExpression
    from pyomo.environ import quicksum

    def linear(coefficients: Any, variables: Any) -> Any:
        return LinearExpression(linear_coefs=coefficients.tolist(), linear_vars=[x[i] for i in variables.tolist()])

    span = slice(*problem.quadratic.indptr[row : row + 2])
    coefficients = problem.quadratic.data[span]
    i, j = problem.products[problem.quadratic.indices[span]].T
    # The products are sorted by i.
    ends = [0, *(np.flatnonzero(np.diff(i)) + 1), len(i)] if len(i) else []
    terms = [x[i[begin]] * linear(coefficients[begin:end], j[begin:end]) for begin, end in pairwise(ends)]
    span = slice(*problem.linear.indptr[row : row + 2])
    return quicksum([*terms, linear(problem.linear.data[span], problem.linear.indices[span])])
