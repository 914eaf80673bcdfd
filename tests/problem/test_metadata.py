"""Compare the relative gap with the formulas that the stored gaps were computed with, bit for bit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench.problem.metadata import Metadata, TheoryPrediction, relative_gap

numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)


@given(numbers, numbers)
def test_optimality_gap_is_relative_to_the_larger_of_the_two(value: float, bound: float) -> None:
    gap = relative_gap(value, bound)
    assert gap == (bound - value) / max(abs(bound), abs(value), 1e-300)
    assert abs(gap) == abs(bound - value) / max(abs(bound), abs(value), 1e-300)


@given(numbers, numbers, st.sampled_from([0.01, 1.0]))
def test_gap_with_a_floor_is_relative_to_the_reference(score: float, best: float, floor: float) -> None:
    assert relative_gap(score, best, floor) == (best - score) / max(abs(best), floor)


@pytest.mark.parametrize(
    ("value", "reference", "floor", "gap"),
    [
        (0.5, 1.0, None, 0.5),
        (1.0, 0.5, None, -0.5),
        (-2.0, -1.0, None, 0.5),
        (0.0, 0.0, None, 0.0),
        (0.5, 2.0, 1.0, 0.75),
        (0.25, 0.5, 1.0, 0.25),
        (4.0, 2.0, 1.0, -1.0),
    ],
)
def test_gap_of_simple_numbers(value: float, reference: float, floor: float | None, gap: float) -> None:
    assert relative_gap(value, reference, floor) == gap


@pytest.mark.parametrize(
    "prediction",
    [
        TheoryPrediction(0.4, 0.5),
        TheoryPrediction(None, 0.5),
        TheoryPrediction(0.0, 0.0),
        TheoryPrediction(objective=-0.75, objective_rs=-0.8),
        TheoryPrediction(0.4, 0.5, 0.4, 0.5),
    ],
    ids=str,
)
def test_predictions_are_read_back_from_notes(prediction: TheoryPrediction) -> None:
    assert Metadata(notes={"a": "b", **prediction.notes()}).theory == prediction
    assert Metadata().theory == TheoryPrediction(None, None)
