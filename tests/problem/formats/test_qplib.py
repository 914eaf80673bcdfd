import csv
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from qcqpbench import QCQP, QcqpbenchError, read, write
from qcqpbench.problem.formats.qplib import read_point, write_point
from tests.support.outside import QPLIB, absence
from tests.support.sample_problems import TINY, assert_same, edges, larger, qcqps

LARGEST = 1.7976931348623157e308

# 2 variables, 2 constraints: min x1² + 2 x1x2 − x2 + 3, −1 ≤ ½ x2² + x1 ≤ ∞, x1 + 4 x2 = 2.
FILE = """! a comment
small   # a name
QCQ
minimize
2   # number of variables
2   # number of constraints

2   # number of quadratic terms in objective
1 1 2.0
2 1 4.0
0.0 # default of linear coefficients
1
2 -1.0
3.0
1   # number of quadratic terms in constraints
% another
1 2 2 1
3   # number of linear terms in constraints
1 1 1.0
2 1 +1.0
2 2 4.
1E+20
-1.0
1
2 2.0
1e20
1
2 2.0
0.0
1
2 -1.0e+20
.5
0
0.0
1
2 0.25
0.0
0
0.0
0
1
2 second
0
"""


def write_text(content: str, tmp_path: Path) -> Path:
    path = tmp_path / "a.qplib"
    path.write_text(content)
    return path


def refused(path: Path) -> str:
    with pytest.raises(QcqpbenchError) as caught:
        read(path)
    return str(caught.value)


@given(qcqps(edges.filter(lambda value: abs(value) <= LARGEST / 2), edges.filter(lambda value: abs(value) < LARGEST)))
def test_problem_is_read_back_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, first: QCQP) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.qplib"
    write(first, path)
    second = read(path)
    assert_same(first, second)
    assert isinstance(second, QCQP)
    assert (second.variable_names, second.constraint_names) == (
        first.variable_names,
        first.constraint_names or None,
    )
    assert (second.start is None) == (first.start is None)
    if first.start is not None:
        np.testing.assert_array_equal(second.start, first.start)


@pytest.mark.parametrize("suffix", [".qplib", ".qplib.gz"])
@pytest.mark.parametrize("case", TINY)
def test_tiny_problems_are_read_back(tmp_path: Path, case: str, suffix: str) -> None:
    write(TINY[case], tmp_path / f"a{suffix}")
    assert_same(TINY[case], read(tmp_path / f"a{suffix}"))


@pytest.mark.parametrize("form", ["epigraph", "min_norm"])
def test_encoded_task_is_read_back(tmp_path: Path, form: str) -> None:
    first = larger(form)
    write(first, tmp_path / "a.qplib")
    assert_same(first, read(tmp_path / "a.qplib"))


@pytest.mark.parametrize("content", [FILE, FILE.replace("\n", "\r\n"), FILE.replace("QCQ", "dcc"), FILE.rstrip()])
def test_every_listed_entry_counts_once(tmp_path: Path, content: str) -> None:
    case = read(write_text(content, tmp_path))
    assert isinstance(case, QCQP)
    x = np.array([2.0, 3.0])
    assert case.objective(x) == 4 + 2 * 6 - 3 + 3
    np.testing.assert_array_equal(case.values(x), [0.5 * 9 + 2, 2 + 12])
    np.testing.assert_array_equal([case.lower, case.upper], [[-1, 2], [np.inf, 2]])
    np.testing.assert_array_equal([case.x_lower, case.x_upper], [[0, -np.inf], [0.5, 0.5]])
    np.testing.assert_array_equal(case.start, [0, 0.25])
    assert case.variable_names == ("x1", "second")


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("QCQ", "QIQ", 3, "discrete"),
        ("QCQ", "Q", 3, "type of the problem must be three letters"),
        ("minimize", "least", 4, "minimize or maximize"),
        ("2   # number of variables", "1000001", 5, "must be from 0 to 1000000"),
        ("2   # number of variables", "-2", 5, "whole number"),
        ("2   # number of quadratic", "1   # number of quadratic", 10, "'2 1 4.0'"),
        ("2   # number of quadratic", "3   # number of quadratic", 11, "quadratic terms in the objective"),
        ("2 1 4.0", "2 1 4,0", 10, "index index value"),
        ("2 1 4.0", "2 1 4.0 5.0", 10, "index index value"),
        ("2 1 4.0", "3 1 4.0", 10, "must be from 1 to 2"),
        ("2 1 4.0", "0 1 4.0", 10, "must be from 1 to 2"),
        ("2 1 4.0", "99999999999999999999 1 4.0", 10, "must be from 1 to 2"),
        ("2 1 4.0", "1 2 4.0", 10, "must have row ≥ column"),
        ("2 1 4.0", "1 1 4.0", 10, "second time"),
        ("2 1 4.0", "2 1 nan", 10, "index index value"),
        ("2 1 4.0", "2 1 1e999", 10, "floating-point range"),
        ("3.0", "3_0", 14, "expected a number, got '3_0'"),
        ("1E+20", "-1", 22, "infinity"),
        ("\n.5\n", "\n-.5\n", 32, "must contain a number"),
        ("2 second", "3 second", 42, "must be from 1 to 2"),
        ("2 second", "2 x1", 42, "names of variables must differ, got 1 repeated"),
        ("2 second", "2 second\n2 third", 44, "index name"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, old: str, new: str, line: int, reason: str) -> None:
    assert FILE.count(old) == 1
    path = write_text(FILE.replace(old, new), tmp_path)
    assert re.fullmatch(rf"{re.escape(str(path))}:{line}: .*{re.escape(reason)}.*", refused(path))


def test_text_after_the_problem_is_refused(tmp_path: Path) -> None:
    assert "expected the end of the file, got '0'" in refused(write_text(f"{FILE}0\n", tmp_path))


def test_problems_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    bound = QCQP.from_terms(1, x_upper=[LARGEST])
    large = QCQP.from_terms(1, quadratic=([0], [0], [0], [LARGEST]))
    for case, reason in ((bound, "infinity"), (large, r"must be at most 8.*e\+307, got 1.*e\+308")):
        with pytest.raises(QcqpbenchError, match=reason):
            write(case, tmp_path / "a.qplib")
    assert not list(tmp_path.iterdir())
    write(QCQP.from_terms(2, variable_names=("two words", "x")), tmp_path / "a.qplib")
    assert read(tmp_path / "a.qplib").variable_names is None  # type: ignore[union-attr]


@pytest.mark.skipif(not QPLIB.exists(), reason=absence(QPLIB))
def test_published_points_have_their_objectives() -> None:
    """Check the published instances at their published points, which are feasible."""
    with (QPLIB / "index.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    for row in rows:
        case = read(QPLIB / f"{row['name']}.qplib")
        assert isinstance(case, QCQP)
        assert (case.n_variables, case.n_constraints) == (int(row["nvars"]), int(row["ncons"]))
        assert case.sense == row["sense"]
        assert np.count_nonzero(np.diff(case.quadratic.indptr)[1:]) == int(row["nquadcons"])
        x, objective = read_point(QPLIB / f"{row['name']}.sol", case)
        assert case.objective(x) == pytest.approx(objective, rel=1e-11, abs=1e-11)
        # The index rounds to ten digits.
        assert case.objective(x) == pytest.approx(float(row["best"]), rel=1e-9, abs=1e-8)
        assert case.violation(x) < 1e-8


def test_points_are_written_and_read(tmp_path: Path) -> None:
    case, path = TINY["free and fixed"], tmp_path / "a.sol"
    x = np.array([0.1, 0.0, -1e-300, 0.0, 1 / 3])
    write_point(x, case, path)
    assert path.read_text().splitlines()[1:] == ["x2 0.1", "x4 -1e-300", "x6 0.3333333333333333"]
    again, objective = read_point(path, case)
    np.testing.assert_array_equal(again, x)
    assert objective == case.objective(x)
    for content, line, reason in (
        ("x2 1", 1, "objvar"),
        ("objvar 1\nx1 1\n", 2, "must be from 2 to 6"),
        ("objvar 1\nx7 1\n", 2, "must be from 2 to 6"),
        ("objvar 1\nx2 1\nx2 1\n", 3, "x2 must be given once"),
        ("objvar 1\nx2 1e400\n", 2, "floating-point range"),
        ("", 1, "got the end of the file"),
    ):
        path.write_text(content)
        with pytest.raises(QcqpbenchError, match=rf"a\.sol:{line}: .*{reason}"):
            read_point(path, case)
    with pytest.raises(QcqpbenchError, match="5 finite numbers"):
        write_point(x[:3], case, path)
