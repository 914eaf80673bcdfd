"""Every registered solver, whatever adds it, goes through the conformance suite here."""

import pytest

from qcqpbench.conformance import check_solver
from qcqpbench.registry import solver, solvers
from qcqpbench.status import Availability

# Further settings worth the suite, beside every solver's defaults.
VARIANTS = [
    "cvxpy_alternating[solver=SCS]",
    "ipopt[formulation=min_norm]",
    "ipopt[mu_strategy=adaptive]",
    "ipopt[warm_start=true]",
    "slsqp[formulation=min_norm]",
    "soft_margin[method=lbfgs,eta_max=10000]",
    "soft_margin[eta_max=100]",
]


@pytest.mark.parametrize("spec", [*solvers(), *VARIANTS])
def test_conforms(spec: str) -> None:
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
