import os

import numpy as np
import pytest

from qcqpbench import QCQP
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Availability, Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.solvers._silence import silenced

pytestmark = [
    pytest.mark.solver,
    pytest.mark.skipif(
        solver("casadi").availability()[0] is not Availability.AVAILABLE, reason=solver("casadi").availability()[1]
    ),
]


def test_a_plugin_without_its_solver_is_not_installed() -> None:
    status, reason = solver("casadi[plugin=knitro]").availability()
    if status is Availability.AVAILABLE:
        pytest.skip("KNITRO is installed")
    assert status is Availability.NOT_INSTALLED
    assert reason == "the plug-in knitro of CasADi does not find its solver: install knitro"


def test_an_unknown_plugin_is_an_error_that_lists_the_plugins() -> None:
    with pytest.raises(QcqpbenchError, match=r"plugin.*ipopt.*sleqp.*knitro.*got.*cplex"):
        solver("casadi[plugin=cplex]")


@pytest.mark.parametrize("plugin", ["ipopt", "fatrop", "alpaqa", "sleqp"])
def test_improving_points_are_reported_and_nothing_is_printed(plugin: str) -> None:
    problem = QCQP(None, [1.0, 1.0], 2.0, quadratic_constraints=[(np.eye(2), None, None, 2.0)], sense="maximize")
    with Worker() as worker:
        outcome = worker.attempt(problem, f"casadi[plugin={plugin}]", np.array([0.3, -0.2]))
    attempt = outcome.attempt
    assert attempt.termination is Termination.LOCALLY_OPTIMAL
    assert attempt.objective == pytest.approx(4.0, abs=1e-6)
    assert attempt.trace
    assert outcome.reply.output == ""


def test_output_is_discarded_only_within_the_context(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(1, b"before ")
    with silenced():
        os.write(1, b"within ")
        os.write(2, b"within ")
    os.write(1, b"after")
    assert capfd.readouterr() == ("before after", "")
