from pathlib import Path

import numpy as np
import pytest

from qcqpbench import MaxMargin, problem, solve, write
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problems.library import _read_csv


def test_errors_are_value_errors() -> None:
    with pytest.raises(ValueError, match="unknown solver 'gap'") as caught:
        solve(problem("covariance_perceptron[m=4,p=3]"), "gap")
    assert isinstance(caught.value, QcqpbenchError)


def test_errors_inside_handlers_of_value_errors_keep_their_message(tmp_path: Path) -> None:
    """Compare the whole message: a handler of ValueError that catches it too would replace or repeat it."""
    task = problem("covariance_perceptron[m=4,p=3]")
    with pytest.raises(QcqpbenchError, match=r"^patterns must be an array of real numbers, got complex numbers$"):
        MaxMargin(np.full((1, 2, 2), 1j), np.array([[1]]))
    with pytest.raises(QcqpbenchError, match=r"^start must hold real numbers, got an array of complex128$"):
        solve(task, "gip", start=np.full((2, 4), 1j))
    with pytest.raises(QcqpbenchError, match=r"^a \.qplib file must hold a QCQP, got a max-margin task"):
        write(task, tmp_path / "a.qplib")
    table = tmp_path / "index.csv"
    table.write_text('name,"a\nb', encoding="utf-8")
    with pytest.raises(QcqpbenchError, match=r"index\.csv:2: line must be valid CSV") as caught:
        _read_csv(table)
    assert "cannot be read" not in str(caught.value)
