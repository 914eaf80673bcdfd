"""Tests of the Pyomo adapter beyond conformance: the model it builds and the solvers it finds."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcqpbench import QCQP
from qcqpbench.catalog.registry import problem, solver
from qcqpbench.catalog.status import Availability, PointStatus, Termination
from qcqpbench.problem.formulations import formulation
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.run.attempt import solve
from qcqpbench.solvers._pyomo_model import load_pyomo, point, pyomo_model, set_point

pyo = pytest.importorskip("pyomo.environ")
visitor = pytest.importorskip("pyomo.core.expr.visitor")

pytestmark = [
    pytest.mark.solver,
    pytest.mark.skipif(
        solver("pyomo").availability()[0] is not Availability.AVAILABLE, reason=solver("pyomo").availability()[1]
    ),
]
DISK = ((1.0, 0.0), (0.0, 1.0))
EQUALITY = QCQP(q=(1.0, 1.0), quadratic_constraints=[(DISK, None, 2.0, 2.0)], start=np.array([-0.9, -0.2]))

# Reads the file that Pyomo writes for an executable, solves it and writes the result, as IPOPT's executable does.
EXECUTABLE = """#!{python}
import sys
if "--version" in sys.argv:
    sys.exit(print("Ipopt 3.14.0 (a test, ASL)"))
from qcqpbench.solvers._pyomo_model import load_pyomo
with load_pyomo():
    from pyomo.contrib.pynumero.algorithms.solvers.cyipopt_solver import CyIpoptSolver
    from pyomo.contrib.pynumero.interfaces.ampl_nlp import AslNLP
    from pyomo.contrib.pynumero.interfaces.cyipopt_interface import CyIpoptNLP
options = dict(option.split("=") for option in sys.argv[3:])
limits = dict(max_iter=int(options.get("max_iter", 3000)), tol=float(options["tol"]))
x, info = CyIpoptSolver(CyIpoptNLP(AslNLP(sys.argv[1])), options=limits).solve()
duals = info["mult_g"]
with open(sys.argv[1].removesuffix("nl") + "sol", "w") as file:
    counts = [3, 1, 1, 0, len(duals), len(duals), len(x), len(x)]
    print("done", "", "Options", *counts, *duals, *x, f"objno 0 {{-400 * info['status']}}", sep="\\n", file=file)
print("Number of Iterations....: 7")
"""


def encoded(spec: str, form: str) -> QCQP:
    task = problem(spec)
    assert isinstance(task, MaxMargin)
    return formulation(form).encode(task)


def model_of(case: QCQP) -> Any:
    with load_pyomo():
        return pyomo_model(case)


def general(sense: Any) -> QCQP:
    """Return a problem with bounds and constraints of every kind."""
    rng = np.random.default_rng(0)
    n, inf = 4, np.inf
    ranges = [(-inf, 2.0), (-1.0, inf), (-1.0, 1.5), (0.5, 0.5)]
    rows: list[Any] = [(rng.standard_normal((n, n)), rng.standard_normal(n), *bounds) for bounds in ranges]
    rows += [(np.diag([0, 0, 1.0, 0]), None, -2.0, 0.5), (None, rng.standard_normal(n), -2.0, 0.5)]
    box: dict[str, Any] = {"x_lower": [-inf, -0.5, 0.25, -inf], "x_upper": [inf, 0.5, 0.25, 1.0]}
    return QCQP(
        rng.standard_normal((n, n)), rng.standard_normal(n), 0.75, quadratic_constraints=rows, sense=sense, **box
    )


@pytest.mark.parametrize(
    "case",
    [
        general("minimize"),
        general("maximize"),
        encoded("covariance_perceptron[m=6,p=5,n=3]", "epigraph"),
        encoded("covariance_perceptron[m=6,p=5,ensemble=gaussian]", "min_norm"),
    ],
)
def test_the_model_has_the_values_and_bounds_of_the_problem(case: QCQP) -> None:
    model = model_of(case)
    assert (model.objective.sense == pyo.minimize) == (case.sense == "minimize")
    for bounds, components in (
        ((case.lower, case.upper), model.constraints),
        ((case.x_lower, case.x_upper), model.x),
    ):
        model_bounds = [(component.lower, component.upper) for component in components.values()]
        np.testing.assert_array_equal(np.array(model_bounds, dtype=float), np.where(np.isinf(bounds), np.nan, bounds).T)
    for x in np.random.default_rng(1).standard_normal((5, case.n_variables)):
        set_point(model, x)
        np.testing.assert_array_equal(point(model), x)
        assert pyo.value(model.objective) == pytest.approx(case.objective(x))
        bodies = [pyo.value(constraint.body) for constraint in model.constraints.values()]
        np.testing.assert_allclose(bodies, case.values(x), atol=1e-12)


def test_constraints_without_effect_are_left_out() -> None:
    inf = np.inf
    rows = [(DISK, None, -inf, inf), (None, (0.0, 0.0), -1.0, 1.0), (DISK, None, -inf, 4.0)]
    case = QCQP(DISK, (-2.0, 0.0), quadratic_constraints=rows)
    assert list(model_of(case).constraints) == [2]
    assert solve(case, "pyomo").objective == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize("form", ["epigraph", "min_norm"])
def test_the_model_grows_linearly_with_the_nonzeros(form: str) -> None:
    for m in (10, 20, 40):
        case = encoded(f"covariance_perceptron[m={m},load=1]", form)
        model = model_of(case)
        parts = [model.objective.expr, *(constraint.body for constraint in model.constraints.values())]
        rows = 1 + case.n_constraints
        # A term is a node, its coefficient and its variable; a leading variable, of at most 2m in a row, adds three.
        most = 3 * (case.quadratic.nnz + case.linear.nnz) + rows * (3 * case.n_variables + 3)
        assert sum(map(visitor.sizeof_expression, parts)) <= most
        assert len(model.x) + len(model.constraints) == case.n_variables + case.n_constraints


def test_pyomo_takes_the_same_steps_as_cyipopt_alone() -> None:
    task = problem("covariance_perceptron[m=10,p=20]")
    through, alone = (solve(task, name) for name in ("pyomo[backend=cyipopt]", "ipopt"))
    assert through.details is not None and through.details["solver"] == "cyipopt"
    assert through.termination is Termination.LOCALLY_OPTIMAL
    assert through.iterations == alone.iterations
    assert through.margin == pytest.approx(alone.margin, abs=1e-9)
    assert len(through.trace) == len(alone.trace)


@pytest.fixture
def executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program named ipopt on the path."""
    path = tmp_path / "ipopt"
    path.write_text(EXECUTABLE.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.usefixtures("executable")
def test_an_executable_ipopt_is_preferred() -> None:
    if solver("pyomo[backend=cyipopt]").availability()[0] is not Availability.AVAILABLE:
        pytest.skip("PyNumero, with which the executable is imitated, is missing")
    assert solver("pyomo").availability() == (Availability.AVAILABLE, "")
    attempt = solve(EQUALITY, "pyomo", time_limit=60)
    assert attempt.details == {"solver": "ipopt 3.14.0"}
    assert (attempt.termination, attempt.iterations) == (Termination.LOCALLY_OPTIMAL, 7)
    assert attempt.objective == pytest.approx(-2, abs=1e-6)
    attempt = solve(EQUALITY, "pyomo[max_iter=1]")
    assert attempt.termination is Termination.ITERATION_LIMIT
    assert attempt.point is not None


def test_missing_parts_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert solver("pyomo").availability() == solver("pyomo[backend=cyipopt]").availability()
    monkeypatch.setenv("PYOMO_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr("pyomo.common.envvar.PYOMO_CONFIG_DIR", str(tmp_path))
    status, reason = solver("pyomo").availability()
    assert status is Availability.NOT_INSTALLED
    assert "tools/pynumero.sh" in reason
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "pyomo" else None)
    assert "cyipopt, packaging missing: pip install 'qcqpbench[pyomo]'" in solver("pyomo").availability()[1]
    assert "pip install 'qcqpbench[scip]'" in solver("pyomo[backend=scip]").availability()[1]
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "pyomo missing" in solver("pyomo[backend=scip]").availability()[1]


@pytest.mark.parametrize(
    ("backend", "words"), [("nosuch", "that Pyomo knows, got 'nosuch'"), ("baron", "baron missing")]
)
def test_a_backend_that_is_missing_is_skipped(backend: str, words: str) -> None:
    attempt = solve(EQUALITY, f"pyomo[backend={backend}]")
    assert attempt.termination is Termination.SKIPPED
    assert words in attempt.message


@pytest.mark.parametrize("backend", ["highs", "appsi_highs"])
def test_other_backends_solve(backend: str) -> None:
    """Call the newer and the older of Pyomo's interfaces."""
    pytest.importorskip("highspy")
    case = QCQP(
        q=(1.0, 2.0),
        constant=3.0,
        quadratic_constraints=[(None, (1.0, 1.0), -1.0, 1.0), (None, (1.0, -1.0), -1.0, 1.0)],
    )
    attempt = solve(case, f"pyomo[backend={backend}]", time_limit=10)
    assert attempt.termination.claims_a_solution
    assert attempt.objective == pytest.approx(1)


def test_scip_proves_optimality_and_infeasibility() -> None:
    pytest.importorskip("pyscipopt")
    case = QCQP(DISK, (-1.0, 0.0), 0.25, quadratic_constraints=[(DISK, None, 1.0, 4.0)])
    attempt = solve(case, "pyomo[backend=scip]", time_limit=20)
    assert attempt.termination is Termination.OPTIMAL
    assert attempt.bound == pytest.approx(0.25, abs=1e-6)
    assert attempt.objective == pytest.approx(0.25, abs=1e-6)
    apart = QCQP(q=(1.0, 1.0), quadratic_constraints=[(DISK, None, -np.inf, 1.0)], x_lower=[2.0, -np.inf])
    attempt = solve(apart, "pyomo[backend=scip]", time_limit=20)
    assert (attempt.termination, attempt.point_status) == (Termination.INFEASIBLE, PointStatus.NONE)


def test_a_limit_returns_the_best_point() -> None:
    task = problem("covariance_perceptron[m=20,p=40]")
    attempt = solve(task, "pyomo[backend=cyipopt,max_iter=5]")
    assert (attempt.termination, attempt.iterations) == (Termination.ITERATION_LIMIT, 5)
    assert attempt.point is not None
    attempt = solve(task, "pyomo[backend=cyipopt,formulation=min_norm]", time_limit=0.05)
    assert attempt.termination is Termination.TIME_LIMIT
    assert attempt.point is not None


def test_no_temporary_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for backend in ("ipopt", "scip"):
        if solver(f"pyomo[backend={backend}]").availability()[0] is Availability.AVAILABLE:
            assert solve(EQUALITY, f"pyomo[backend={backend}]", time_limit=20).objective == pytest.approx(-2, abs=1e-6)
    assert list(tmp_path.iterdir()) == []
