"""Run every registered solver, also of plug-ins, through the conformance suite."""

import pytest

from qcqpbench.catalog.registry import solver, solvers
from qcqpbench.catalog.status import Availability
from qcqpbench.run import conformance
from qcqpbench.run.conformance import check_solver

# Each test takes seconds: it runs every problem of the suite.
pytestmark = [pytest.mark.slow, pytest.mark.solver]

# Settings to check besides every solver's defaults.
VARIANTS = [
    "casadi[plugin=bonmin]",
    "casadi[plugin=fatrop]",
    "casadi[plugin=sleqp]",
    "copt[nonconvex=true]",
    "cvxpy_alternating[solver=SCS]",
    "ipopt[formulation=min_norm]",
    "ipopt[mu_strategy=adaptive]",
    "ipopt[warm_start=true]",
    "slsqp[formulation=min_norm]",
    "soft_margin[method=lbfgs,eta_max=10000]",
    "soft_margin[eta_max=100,rate=0.05]",
    "uno[preset=filtersqp]",
    "uno[preset=funnelsqp]",
]
# Solvers that take seconds for a run get fewer starts, which must reach every optimum too, and fewer iterations where
# they would go on to their limit, as on an infeasible problem.
SETTINGS = {"multistart": "multistart[rounds=2]", "trust_constr": "trust_constr[max_iter=300]"}
STARTS = {"copt": 3, "gip": 3, "multistart": 3, "qcqp": 3, "soft_margin": 3}


@pytest.mark.parametrize("spec", [*solvers(), *VARIANTS])
def test_solver_conforms(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SETTINGS.get(spec, spec)
    monkeypatch.setattr(conformance, "MAX_STARTS", STARTS.get(solver(spec).name, conformance.MAX_STARTS))
    status, reason = solver(spec).availability()
    if status is not Availability.AVAILABLE:
        pytest.skip(f"{spec}: {status}: {reason}")
    failed = [f"{check.case}: {check.message}" for check in check_solver(spec) if not check.passed]
    assert failed == []


@pytest.mark.parametrize("name", solvers())
def test_solver_describes_itself(name: str) -> None:
    kind = solvers()[name]
    assert kind.drives and kind.citation
    assert kind.name == name
    assert solver(kind().spec) == kind()
    status, reason = kind().availability()
    assert (status is Availability.AVAILABLE) == (reason == "")
