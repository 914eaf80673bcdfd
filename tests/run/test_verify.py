from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import Metadata, TheoryPrediction
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.proposal import Proposal
from qcqpbench.run.verify import evaluate, verify

DISK = QCQP(
    q=[1.0, 1.0], constant=3.0, quadratic_constraints=[(np.eye(2), None, -np.inf, 100.0)], x_lower=[-8.0, -np.inf]
)
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
    # 100 + 25 is exactly a quarter too much.
    assert verify(DISK, [10.0, 5.0], tolerance=0.25).point_status is PointStatus.FEASIBLE
    assert verify(DISK, [10.0, 5.0], tolerance=np.nextafter(0.25, 0)).point_status is PointStatus.INFEASIBLE


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
    assert verify(TASK, [[3.0, 4.0], [-10.0, 0.0]]).overlap == pytest.approx(0.6)


@pytest.mark.parametrize("W", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.ones((3, 2)), np.ones(4)])
def test_a_task_has_no_margin_at_an_invalid_point(W: Any) -> None:
    finding = verify(TASK, W)
    assert (finding.point_status, finding.margin) == (PointStatus.INVALID, None)


# --- proposals ---

MINIMIZED = QCQP(q=[1.0], x_lower=[0.0], x_upper=[10.0])
MAXIMIZED = QCQP(q=[1.0], x_lower=[0.0], x_upper=[10.0], sense="maximize")


@pytest.mark.parametrize(
    ("problem", "reported", "best"),
    [
        (MINIMIZED, [3.0, 2.0, 4.0], 2.0),
        (MAXIMIZED, [3.0, 2.0, 4.0], 4.0),
        # A feasible point is better than an infeasible one with a better objective, and a small violation than a large.
        (MINIMIZED, [3.0, -1.0], 3.0),
        (MAXIMIZED, [3.0, 11.0], 3.0),
        (MINIMIZED, [-2.0, -1.0, -3.0], -1.0),
        # A violation within the tolerance counts as none.
        (MINIMIZED, [1e-8, -1e-8], -1e-8),
        # Only the last 32 points are evaluated.
        (MINIMIZED, [1.0, *[3.0] * 32, 2.0], 2.0),
        (MINIMIZED, [np.nan, 3.0], 3.0),
    ],
)
def test_the_best_reported_point_of_a_killed_run_counts(problem: QCQP, reported: list[float], best: float) -> None:
    trace = tuple((float(k), np.array([x])) for k, x in enumerate(reported))
    proposal = Proposal(Termination.TIME_LIMIT, x=np.array([5.0]), trace=trace, use_reported=True)
    evaluation = evaluate(problem, None, proposal, 1e-6)
    assert evaluation.point is not None and evaluation.point.tolist() == [best]
    assert evaluation.finding.objective == best


def test_the_reported_point_with_the_largest_margin_counts() -> None:
    W = [np.array([[1.0, 0.0], [x, 1.0]]) for x in (0.5, 2.0, 1.0)]
    proposal = Proposal(Termination.CRASHED, trace=tuple((0.0, point) for point in W), use_reported=True)
    assert evaluate(TASK, None, proposal, 1e-6).point == pytest.approx(W[1])


def test_bound_and_gap_of_a_task_are_those_of_the_margin() -> None:
    """Claim a bound of 1.25 on the margin: as such, and as 1/1.25 on the objective ‖w‖² of min_norm."""
    W = np.array([[3.0, 4.0], [10.0, 0.0]])
    plain = evaluate(TASK, None, Proposal(Termination.FINISHED, x=W, bound=1.25), 1e-6)
    # Rows of length √(1/0.6) have the stability 1.
    x = (W / np.linalg.norm(W, axis=1, keepdims=True) / np.sqrt(0.6)).ravel()
    encoded = evaluate(TASK, "min_norm", Proposal(Termination.FINISHED, x=x, bound=0.8), 1e-6)
    for evaluation in (plain, encoded):
        assert evaluation.finding.margin == pytest.approx(0.6)
        assert (evaluation.bound, evaluation.gap) == pytest.approx((1.25, 0.65 / 1.25))
    assert encoded.finding.objective == pytest.approx(1 / 0.6)
    of_qcqp = evaluate(MINIMIZED, None, Proposal(Termination.FINISHED, x=np.array([4.0]), bound=3.0), 1e-6)
    assert (of_qcqp.bound, of_qcqp.gap) == (3.0, 0.25)


@pytest.mark.parametrize("prediction", [TheoryPrediction(0.25, 0.5), TheoryPrediction(None, 0.5), TheoryPrediction()])
@pytest.mark.parametrize("form", [None, "min_norm"])
def test_both_predictions_are_those_of_the_problem(prediction: TheoryPrediction, form: str | None) -> None:
    task = replace(TASK, metadata=Metadata(notes=prediction.notes()))
    evaluation = evaluate(task, form, Proposal(Termination.ERROR), 1e-6)
    assert (evaluation.kappa_bar_theory, evaluation.kappa_bar_rs) == (prediction.kappa_bar, prediction.kappa_bar_rs)


@pytest.mark.parametrize(("shape", "kept"), [((2, 1), True), ((2,), False), ((1, 2), False), ((2, 2), False)])
def test_multipliers_of_another_shape_are_left_out(shape: tuple[int, ...], kept: bool) -> None:
    proposal = Proposal(Termination.FINISHED, x=np.eye(2), multipliers=np.ones(shape))
    assert (evaluate(TASK, None, proposal, 1e-6).multipliers is not None) is kept
    assert evaluate(MINIMIZED, None, proposal, 1e-6).multipliers is None
