"""Replacements for interfaces of cvxpy 0.4 and other packages that qcqp 0.8.3 uses and that no longer exist.

Only the modules of qcqp stay patched. Changes to cvxpy, to the root logger and to NumPy's random state are undone.
"""

import contextlib
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]


def load() -> Any:
    """Import the package qcqp, patch it to work with current versions of other packages, and return it."""
    if "qcqp.qcqp" not in sys.modules:
        cvxpy: Any = importlib.import_module("cvxpy")
        # qcqp calls logging.basicConfig, which would open qcqp.log; it does nothing if the root logger has a handler.
        root, handler = logging.getLogger(), logging.NullHandler()
        root.addHandler(handler)
        cvxpy.utilities.QuadCoeffExtractor = _Extractor
        try:
            solver, utilities = (importlib.import_module(f"qcqp.{name}") for name in ("qcqp", "utilities"))
        finally:
            del cvxpy.utilities.QuadCoeffExtractor
            root.removeHandler(handler)
        # The functions of the module logging, such as logging.info, would configure the root logger; a logger does not.
        logger = logging.getLogger("qcqp")
        logger.addHandler(logging.NullHandler())
        vars(solver)["logging"] = vars(utilities)["logging"] = logger
        vars(solver)["cvx"] = SimpleNamespace(
            **vars(cvxpy),
            Semidef=lambda n: cvxpy.Variable((n, n), PSD=True),
            sum_entries=cvxpy.sum,
            mul_elemwise=cvxpy.multiply,
        )
        vars(utilities)["sp"] = SimpleNamespace(**vars(sparse) | {"bmat": _bmat})
    return sys.modules["qcqp"]


@contextlib.contextmanager
def running(seed: int, pyipopt: Any) -> Iterator[None]:
    """Prepare a run of qcqp: seed NumPy's global random state, and provide `pyipopt` as the module of that name.

    Warnings are suppressed in the context. At its end, the random state is restored and the module removed.
    """
    random_state = np.random.get_state()
    np.random.seed(seed)
    sys.modules["pyipopt"] = pyipopt
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        del sys.modules["pyipopt"]
        np.random.set_state(random_state)


def problem_for_qcqp(problem: QCQP) -> Any:
    """Return `problem` as an object with those attributes of a problem of cvxpy 0.4 that qcqp uses."""
    n = problem.n_variables
    linear = sparse.csr_matrix(sparse.vstack([problem.linear[[0]], problem.linear[1:], sparse.eye_array(n)]))
    lower = np.concatenate([[-np.inf], problem.lower, problem.x_lower])
    upper = np.concatenate([[np.inf], problem.upper, problem.x_upper])
    equal = lower == upper

    def functions(rows: NDArray[np.intp], sign: float, bound: Array) -> "_Functions":
        matrices = [sign * _matrix(problem, row) for row in rows]
        return _Functions(matrices, sign * linear[rows], -sign * bound[rows])

    groups = [
        ("<=", functions(np.flatnonzero(np.isfinite(lower) & ~equal), -1.0, lower)),
        ("<=", functions(np.flatnonzero(np.isfinite(upper) & ~equal), 1.0, upper)),
        ("==", functions(np.flatnonzero(equal), 1.0, upper)),
        ("<=", _constraint_on_unnamed(problem)),
    ]
    variable = SimpleNamespace(id=0, size=(n, 1), value=None)
    objective = functions(np.array([0]), 1.0, np.array([-problem.constant]))
    return SimpleNamespace(
        variables=lambda: [variable],
        objective=SimpleNamespace(args=[objective], NAME=problem.sense),
        constraints=[SimpleNamespace(_expr=group, OP_NAME=relation) for relation, group in groups if group.r.size],
        is_dcp=lambda: False,
    )


class PyIpopt:
    """Replacement for the module pyipopt that calls cyipopt, with the functions that qcqp uses.

    Parameters
    ----------
    max_iter
        Iteration limit of IPOPT.
    on_iterate
        Function called as on_iterate(x, iteration), with x None in the restoration phase; returns False to stop IPOPT.
    """

    NLP_LOWER_BOUND_INF = -1e19
    NLP_UPPER_BOUND_INF = 1e19

    def __init__(self, max_iter: int, on_iterate: Callable[[Array | None, int], bool]) -> None:
        self._max_iter = max_iter
        self._on_iterate = on_iterate

    def create(
        self,
        n: int,
        x_lower: Array,
        x_upper: Array,
        m: int,
        lower: Array,
        upper: Array,
        _jacobian_nonzeros: int,
        _hessian_nonzeros: int,
        *functions: Any,
    ) -> Any:
        """Return an object whose ``solve(x)`` runs IPOPT from x.

        `functions` are the objective, its gradient, the constraints and their Jacobian.
        """
        import cyipopt

        objective, gradient, constraints, jacobian = functions

        def intermediate(mode: int, iteration: int, *_: float) -> bool:
            iterate = nlp.get_current_iterate() if mode == 0 else None
            return self._on_iterate(None if iterate is None else iterate["x"], iteration)

        callbacks = SimpleNamespace(
            objective=objective,
            gradient=gradient,
            constraints=constraints,
            jacobian=lambda x: jacobian(x, False).ravel(),
            jacobianstructure=lambda: jacobian(None, True),
            intermediate=intermediate,
        )
        nlp = cyipopt.Problem(n=n, m=m, problem_obj=callbacks, lb=x_lower, ub=x_upper, cl=lower, cu=upper)
        options = {"hessian_approximation": "limited-memory", "max_iter": self._max_iter, "print_level": 0, "sb": "yes"}
        for name, value in options.items():
            nlp.add_option(name, value)

        def solve(x: Array) -> tuple[Any, ...]:
            x, info = nlp.solve(x)
            return x, info["mult_x_L"], info["mult_x_U"], info["mult_g"], info["obj_val"], info["status"]

        return SimpleNamespace(solve=solve)


class _Functions:
    """Quadratic functions xᵀP_k x + q_k·x + r_k, which replace an expression of cvxpy."""

    def __init__(self, P: list[sparse.csr_matrix], q: sparse.csr_matrix, r: Array) -> None:
        self.P, self.q, self.r = P, q, r
        self.size = (len(P), 1)

    def is_quadratic(self) -> bool:
        return True


class _Extractor:
    """Replacement for QuadCoeffExtractor of cvxpy 0.4."""

    def __init__(self, *_: Any) -> None: ...

    def get_coeffs(self, functions: _Functions) -> tuple[Any, ...]:
        return functions.P, functions.q, functions.r


def _matrix(problem: QCQP, row: int) -> sparse.csr_matrix:
    """Return the lower triangular (n, n) matrix of the quadratic terms of function `row`.

    Rows after the constraints are bounds on variables, whose matrix is zero.
    """
    n = problem.n_variables
    if row > problem.n_constraints:
        return sparse.csr_matrix((n, n))
    span = slice(*problem.quadratic.indptr[row : row + 2])
    i, j = problem.products[problem.quadratic.indices[span]].T
    return sparse.csr_matrix((problem.quadratic.data[span], (i, j)), shape=(n, n))


def _constraint_on_unnamed(problem: QCQP) -> _Functions:
    """Return a constraint without effect on the variables that no other constraint contains; none if there are none.

    qcqp fails if a variable is in no constraint.
    """
    n = problem.n_variables
    bounded = np.isfinite(problem.lower) | np.isfinite(problem.upper)
    named = np.isfinite(problem.x_lower) | np.isfinite(problem.x_upper)
    named[problem.linear[1:][bounded].indices] = True
    named[problem.products[problem.quadratic[1:][bounded].indices].ravel()] = True
    count = int(not named.all())
    q = sparse.csr_matrix(np.where(named, 0.0, 1e-300)[None, :])
    return _Functions([sparse.csr_matrix((n, n))] * count, q, np.full(count, -1e-150))


def _bmat(blocks: list[list[Any]]) -> Any:
    """Return sparse.bmat(blocks); unlike there, a block may be a number."""
    return sparse.bmat(
        [[sparse.csr_matrix([[block]]) if np.ndim(block) == 0 else block for block in row] for row in blocks]
    )
