"""Check for LP and MPS files that they are read back exactly, and that SCIP and Gurobi read the same problem."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from qcqpbench import QCQP, QcqpbenchError, problem, read, write
from tests.support.other_readers import PROGRAMS, assert_agree, read_by, written_by
from tests.support.outside import QPLIB, absence
from tests.support.sample_problems import TINY, assert_same, edges, larger, qcqps, tame

SUFFIXES = [".lp", ".mps"]
# In these files 1e20 is infinite, and coefficients are halved or doubled.
sides = edges.filter(lambda value: abs(value) < 1e20)
entries = edges.filter(lambda value: value == 0 or 1e-300 < abs(value) < 1e300)
words = [
    "\n",
    "\n ",
    " ",
    "-",
    "1e999",
    "inf",
    "[",
    "]",
    "^2",
    "*",
    "<=",
    ":",
    "free",
    "x1",
    "End",
    "Bounds",
    "RHS",
    "UP",
    "QMATRIX",
]
junk = st.binary(max_size=4) | st.lists(st.sampled_from(words), max_size=3).map(lambda some: " ".join(some).encode())
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=5)


@pytest.fixture(params=SUFFIXES)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"problem{request.param}"


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(first=qcqps(entries, sides, names))
def test_problem_is_read_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, first: QCQP
) -> None:
    path = tmp_path_factory.getbasetemp() / f"round_trip{suffix}"
    write(first, path)
    assert_same(first, read(path))


@pytest.mark.parametrize("first", TINY.values(), ids=TINY)
def test_tiny_problems_are_read_back(file: Path, first: QCQP) -> None:
    write(first, file)
    second = read(file)
    assert_same(first, second)
    assert isinstance(second, QCQP)
    assert (second.variable_names, second.constraint_names) == (first.variable_names, first.constraint_names)


@pytest.mark.solver
@pytest.mark.parametrize("first", TINY.values(), ids=TINY)
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_programs_read_tiny_problems(file: Path, name: str, first: QCQP) -> None:
    write(first, file)
    assert_agree(first, read_by(name, file))


@pytest.mark.solver
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", PROGRAMS)
@given(first=qcqps(tame, tame))
@settings(max_examples=50)
def test_other_programs_read_the_same_problem(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, name: str, first: QCQP
) -> None:
    path = tmp_path_factory.getbasetemp() / f"written_here{suffix}"
    write(first, path)
    assert_agree(first, read_by(name, path))


# SCIP writes neither the row nor the variable.
_ONLY_IN_A_FREE_ROW = QCQP.from_terms(2, linear=([0, 1], [0, 1], [1.0, 1.0]), lower=[-np.inf], upper=[np.inf])


@pytest.mark.solver
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", PROGRAMS)
@given(first=qcqps(tame, tame))
@example(first=_ONLY_IN_A_FREE_ROW)
@settings(max_examples=50)
def test_files_of_other_programs_are_read_and_replaced(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, name: str, first: QCQP
) -> None:
    path = tmp_path_factory.getbasetemp() / f"written_elsewhere{suffix}"
    first = _writable(name, suffix, first)
    # A file without variables is refused.
    assume(first.linear.nnz + first.quadratic.nnz > 0)
    written_by(name, first, path)
    second = read(path)
    assert isinstance(second, QCQP)
    assert_agree(first, second)
    write(second, path)
    assert_same(second, read(path))


def _writable(name: str, suffix: str, first: QCQP) -> QCQP:
    """Return the problem without the parts that a program does not write.

    SCIP writes neither quadratic objectives nor rows without sides, and one side of quadratic ranges in MPS files.
    Gurobi writes ranges as variables.
    """
    lower, products = first.lower.copy(), np.diff(first.quadratic.indptr)
    ranges = np.isfinite(first.lower) & np.isfinite(first.upper) & (first.lower < first.upper)
    if name == "gurobi":
        lower[ranges] = -np.inf
        return first.replace(lower=lower)
    if suffix == ".mps":
        lower[ranges & (products[1:] > 0)] = -np.inf
    written = np.array([False, *(np.isfinite(lower) | np.isfinite(first.upper))])
    entries = sparse.find(first.quadratic)
    rows, columns, values = (part[written[entries[0]]] for part in entries)
    i, j = first.products[columns].T
    written[0] = True
    linear = sparse.find(first.linear)
    return QCQP.from_terms(
        first.n_variables,
        quadratic=(rows, i, j, values),
        linear=[part[written[linear[0]]] for part in linear],
        lower=lower,
        upper=first.upper,
        x_lower=first.x_lower,
        x_upper=first.x_upper,
        constant=first.constant,
        sense=first.sense,
        variable_names=first.variable_names,
        constraint_names=first.constraint_names,
    )


@pytest.mark.parametrize("form", ["epigraph", "min_norm"])
def test_larger_problems_are_read_back(file: Path, form: str) -> None:
    first = larger(form)
    write(first, file)
    assert_same(first, read(file))


@pytest.mark.solver
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_programs_read_a_larger_problem(file: Path, name: str) -> None:
    first = larger("epigraph")
    write(first, file)
    assert_agree(first, read_by(name, file))


@pytest.mark.solver
@pytest.mark.parametrize("number", [1157, 1493])
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_programs_read_a_problem_of_qplib(file: Path, name: str, number: int) -> None:
    path = QPLIB / f"QPLIB_{number}.qplib"
    if not path.is_file():
        pytest.skip(absence(QPLIB))
    first = read(path)
    assert isinstance(first, QCQP)
    write(first, file)
    assert_agree(first, read_by(name, file))


@pytest.mark.parametrize("name", ["unused and named", "free and fixed", "equality"])
def test_truncated_file_is_refused(file: Path, name: str) -> None:
    write(TINY[name], file)
    whole = file.read_bytes()
    for length in range(len(whole) - 1):
        file.write_bytes(whole[:length])
        refused(file)


@pytest.mark.parametrize("first", TINY.values(), ids=TINY)
@given(data=st.data())
@settings(max_examples=20)
def test_damaged_file_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, first: QCQP, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"damaged{data.draw(st.sampled_from(SUFFIXES))}"
    # A damaged file of an earlier example would not be replaced.
    path.unlink(missing_ok=True)
    write(first, path)
    whole = path.read_bytes()
    place, length = data.draw(st.integers(0, len(whole))), data.draw(st.integers(0, 9))
    path.write_bytes(whole[:place] + data.draw(junk) + whole[place + length :])
    try:
        assert isinstance(read(path), QCQP)
    except QcqpbenchError:
        refused(path)


def refused(path: Path) -> str:
    """Return the error of reading a file, which must be one line that names the file and a line."""
    with pytest.raises(QcqpbenchError) as caught:
        read(path)
    message = str(caught.value)
    assert re.match(re.escape(f"{path}:") + "[1-9][0-9]*: [^\n]+$", message)
    assert len(message) < len(str(path)) + 200
    return message


def test_problems_that_cannot_be_written_are_refused(file: Path) -> None:
    for first, message in [
        (problem("covariance_perceptron[m=4,p=3]"), "max-margin task"),
        (QCQP.from_terms(0), "must have at least one variable, got none"),
        (QCQP.from_terms(1, x_upper=[1e20]), "must be infinite or below 1e+20, got 1e+20"),
        (QCQP.from_terms(1, quadratic=([0], [0], [0], [1e308])), "twice a coefficient of the objective must be finite"),
    ]:
        with pytest.raises(QcqpbenchError, match=re.escape(message)):
            write(first, file)
        assert not file.exists()
