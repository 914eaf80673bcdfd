"""Every registered solver, whatever adds it, goes through the conformance suite here."""

import pytest

from qcqpbench.catalog.registry import solver, solvers
from qcqpbench.catalog.status import Availability
from qcqpbench.run import conformance
from qcqpbench.run.conformance import check_solver

# All of these tests take seconds: some run packages, all of them run every problem of the suite.
pytestmark = [pytest.mark.slow, pytest.mark.solver]

# Further settings worth the suite, beside every solver's defaults.
VARIANTS = [
    "cvxpy_alternating[solver=SCS]",
    "ipopt[formulation=min_norm]",
    "ipopt[mu_strategy=adaptive]",
    "ipopt[warm_start=true]",
    "slsqp[formulation=min_norm]",
    "soft_margin[method=lbfgs,eta_max=10000]",
    "soft_margin[eta_max=100,rate=0.05]",
]
# Of solvers that take seconds for a run: fewer starts, which must reach every optimum too, and fewer iterations of the
# same kind where they would go on to their limit, as on an infeasible problem.
SETTINGS = {"multistart": "multistart[rounds=2]", "trust_constr": "trust_constr[max_iter=300]"}
STARTS = {"gip": 3, "multistart": 3, "qcqp": 3, "soft_margin": 3}


@pytest.mark.parametrize("spec", [*solvers(), *VARIANTS])
def test_conforms(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SETTINGS.get(spec, spec)
    monkeypatch.setattr(conformance, "STARTS", STARTS.get(solver(spec).name, conformance.STARTS))
    status, reason = solver(spec).availability()
    if status is not Availability.AVAILABLE:
        pytest.skip(f"{spec}: {status}: {reason}")
    failed = [f"{check.case}: {check.message}" for check in check_solver(spec) if not check.passed]
    assert failed == []


@pytest.mark.parametrize("name", solvers())
def test_describes_itself(name: str) -> None:
    kind = solvers()[name]
    assert kind.drives and kind.citation
    assert kind.name == name
    assert solver(kind().spec) == kind()
    status, reason = kind().availability()
    assert (status is Availability.AVAILABLE) == (reason == "")
