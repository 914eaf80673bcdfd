from typing import Any

import numpy as np
import pytest

from qcqpbench.catalog.status import PointStatus
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.verify import verify

DISK = QCQP.from_matrices((None, [1.0, 1.0], 3.0), [(np.eye(2), None, -np.inf, 100.0)], x_lower=[-8.0, -np.inf])
TASK = MaxMargin(
    np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]), np.ones((2, 1), dtype=np.int8), scale=0.5
)


def test_a_feasible_point_has_its_objective() -> None:
    finding = verify(DISK, [6.0, 8.0])
    assert finding.point_status is PointStatus.FEASIBLE
    assert (finding.objective, finding.violation, finding.margin) == (17.0, 0.0, None)


def test_violations_are_absolute_and_relative() -> None:
    outside = verify(DISK, [6.0, 9.0])
    assert (outside.point_status, outside.violation) == (PointStatus.INFEASIBLE, 17.0)
    assert outside.relative_violation == pytest.approx(0.17)
    below_its_bound = verify(DISK, [-9.0, 0.0])
    assert (below_its_bound.violation, below_its_bound.relative_violation) == (1.0, 1 / 8)


def test_the_tolerance_decides_about_feasibility() -> None:
    assert verify(DISK, [10.0 + 1e-7, 0.0], tolerance=1e-6).point_status is PointStatus.FEASIBLE
    assert verify(DISK, [10.0 + 1e-7, 0.0], tolerance=1e-9).point_status is PointStatus.INFEASIBLE


@pytest.mark.parametrize("x", [[np.nan, 0.0], [np.inf, 0.0], [1.0], [[1.0, 2.0]], ["a", "b"], "nothing", object()])
def test_a_value_that_is_no_point_is_invalid(x: Any) -> None:
    finding = verify(DISK, x)
    assert finding.point_status is PointStatus.INVALID
    assert finding.objective is None


def test_a_missing_point_has_no_status() -> None:
    assert verify(DISK, None).point_status is PointStatus.NONE


def test_rows_of_a_task_are_scaled_to_unit_length() -> None:
    finding = verify(TASK, [[3.0, 4.0], [10.0, 0.0]])
    assert finding.margin == pytest.approx(0.6)
    assert finding.kappa_bar == pytest.approx(1.2)
    assert finding.overlap == pytest.approx(0.6)


@pytest.mark.parametrize("W", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.ones((3, 2)), np.ones(4)])
def test_a_task_has_no_margin_at_an_invalid_point(W: Any) -> None:
    finding = verify(TASK, W)
    assert (finding.point_status, finding.margin) == (PointStatus.INVALID, None)
