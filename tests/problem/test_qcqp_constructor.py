import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from qcqpbench import QCQP, QcqpbenchError
from qcqpbench.problem.metadata import Metadata

Array = NDArray[np.float64]

INF, NAN = np.inf, np.nan


def duplicated(matrix: Array) -> Any:
    """Return a matrix in coordinate format, each entry of which is the sum of two, with explicit zeros."""
    rows, columns = np.indices(matrix.shape).reshape(2, -1)
    parts = np.concatenate([matrix.ravel() - 1, np.ones(matrix.size)])
    return sparse.coo_array((parts, (np.tile(rows, 2), np.tile(columns, 2))), shape=matrix.shape)


FORMS: dict[str, Callable[[Array], Any]] = {
    "array": lambda matrix: matrix,
    "list": lambda matrix: matrix.tolist(),
    "fortran": np.asfortranarray,
    "whole numbers": lambda matrix: matrix.astype(np.int16),
    "single precision": lambda matrix: matrix.astype(np.float32),
    "csr_array": sparse.csr_array,
    "csc_array": sparse.csc_array,
    "coo with duplicates": duplicated,
    "lil_array": sparse.lil_array,
    "dok_array": sparse.dok_array,
    "dia_array": sparse.dia_array,
    "bsr_array": sparse.bsr_array,
    "csr_matrix": sparse.csr_matrix,
    "coo_matrix": sparse.coo_matrix,
    "sparse whole numbers": lambda matrix: sparse.csr_array(matrix.astype(np.int64)),
}
VECTOR_FORMS: dict[str, Callable[[Array], Any]] = {
    "array": lambda vector: vector,
    "list": lambda vector: vector.tolist(),
    "sparse vector": sparse.coo_array,
    "sparse row": lambda vector: sparse.csr_array(vector[None]),
    "sparse matrix row": lambda vector: sparse.csr_matrix(vector[None]),
}


@st.composite
def functions(draw: st.DrawFn, n: int) -> tuple[Array, Array, Any, Any]:
    """Return Q and q of small whole numbers, and both in some form; None stands for zero."""
    whole = st.integers(-4, 4)
    Q = np.array(draw(st.lists(whole, min_size=n * n, max_size=n * n)), dtype=float).reshape(n, n)
    q = np.array(draw(st.lists(whole, min_size=n, max_size=n)), dtype=float)
    has_Q, has_q = draw(st.tuples(st.booleans(), st.booleans()))
    given_Q = FORMS[draw(st.sampled_from(sorted(FORMS)))](Q) if has_Q else None
    given_q = VECTOR_FORMS[draw(st.sampled_from(sorted(VECTOR_FORMS)))](q) if has_q else None
    return Q if has_Q else np.zeros((n, n)), q if has_q else np.zeros(n), given_Q, given_q


@given(st.data(), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
def test_problem_agrees_with_a_direct_evaluation(data: st.DataObject, n: int, count: int, rows: int) -> None:
    """Draw whole numbers, so that every value is exact."""
    parts = [data.draw(functions(n)) for _ in range(1 + count)]
    A = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=rows * n, max_size=rows * n)), dtype=float)
    A = A.reshape(rows, n)
    form = FORMS[data.draw(st.sampled_from(sorted(FORMS)))] if rows else sparse.csr_array
    problem = QCQP(
        parts[0][2],
        parts[0][3],
        0.5,
        quadratic_constraints=[(Q, q, None, r) for r, (_, _, Q, q) in enumerate(parts[1:])],
        linear_constraints=(form(A), -1, np.arange(rows)),
        n_variables=n,
    )
    x = np.array(data.draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n)), dtype=float)
    assert problem.objective(x) == x @ parts[0][0] @ x + parts[0][1] @ x + 0.5
    np.testing.assert_array_equal(problem.gradient(x), (parts[0][0] + parts[0][0].T) @ x + parts[0][1])
    expected = [x @ Q @ x + q @ x for Q, q, _, _ in parts[1:]]
    np.testing.assert_array_equal(problem.values(x), [*expected, *(A @ x)])
    jacobian = [(Q + Q.T) @ x + q for Q, q, _, _ in parts[1:]]
    np.testing.assert_array_equal(problem.jacobian(x).toarray(), np.reshape([*jacobian, *A], (count + rows, n)))
    np.testing.assert_array_equal(problem.lower, [-INF] * count + [-1] * rows)
    np.testing.assert_array_equal(problem.upper, [*range(count), *range(rows)])


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_matrix_give_the_same_problem(form: str) -> None:
    rng = np.random.default_rng(0)
    Q, A = rng.integers(-3, 4, (4, 4)).astype(float), rng.integers(-3, 4, (5, 4)).astype(float)

    def problem(convert: Callable[[Array], Any]) -> QCQP:
        rows = [(convert(Q.T @ Q), [1, 0, 2, 0], None, 3)]
        return QCQP(convert(Q), quadratic_constraints=rows, linear_constraints=(convert(A), 0, None))

    r, i, j = np.indices((2, 4, 4)).reshape(3, -1)
    k, l = np.indices((5, 4)).reshape(2, -1)  # noqa: E741
    expected = QCQP.from_terms(
        4,
        quadratic=(r, i, j, np.stack([Q, Q.T @ Q]).ravel()),
        linear=([1, 1, *(k + 2)], [0, 2, *l], [1, 2, *A.ravel()]),
        lower=[-INF, 0, 0, 0, 0, 0],
        upper=[3, INF, INF, INF, INF, INF],
    )
    assert problem(FORMS[form]).id == expected.id
    np.testing.assert_array_equal(problem(FORMS[form]).products, expected.products)


def test_there_is_no_factor_of_one_half() -> None:
    problem = QCQP([[3, 1], [0, 0]], quadratic_constraints=[([[0, 0], [0, 5]], None, 0, 1)])
    assert problem.objective([2, 7]) == 3 * 2**2 + 2 * 7
    assert problem.values([2, 7]).tolist() == [5 * 7**2]


def test_numbers_and_none_stand_for_vectors_of_bounds() -> None:
    A = [[1, 0, 0], [0, 1, 0]]
    short = QCQP(q=[1, 2, 3], linear_constraints=(A, None, 4), x_lower=-1, x_upper=np.float32(2), start=[0, 1, 2])
    long = QCQP(q=[1, 2, 3], linear_constraints=(A, [-INF] * 2, [4, 4]), x_lower=[-1] * 3, x_upper=[2] * 3)
    assert short.id == long.id
    assert short.start is not None and short.start.tolist() == [0, 1, 2]
    free = QCQP(n_variables=2)
    assert (free.x_lower.tolist(), free.x_upper.tolist()) == ([-INF, -INF], [INF, INF])


@pytest.mark.parametrize(
    "arguments",
    [
        {"Q": np.eye(3)},
        {"q": [1, 2, 3]},
        {"q": sparse.csr_array([[1, 0, 3]])},
        {"quadratic_constraints": [(None, None, 0, 1), (np.eye(3), None, 0, 1)]},
        {"linear_constraints": (np.ones((2, 3)), 0, 1)},
        {"x_lower": [0, 0, 0], "x_upper": 1},
        {"start": [0, 0, 0]},
        {"variable_names": ["a", "b", "c"]},
        {"n_variables": np.int64(3)},
    ],
)
def test_any_argument_states_the_number_of_variables(arguments: dict[str, Any]) -> None:
    assert QCQP(**arguments).n_variables == 3


def test_names_metadata_and_sense_are_kept() -> None:
    metadata = Metadata(seed=3)
    rows = [(np.eye(2), None, 0, 1)]
    problem = QCQP(
        q=[1, 2],
        quadratic_constraints=rows,
        linear_constraints=([[1, 1]], 0, 1),
        sense="maximize",
        variable_names=["x", "y"],
        constraint_names=["ball", "sum"],
        metadata=metadata,
    )
    assert (problem.variable_names, problem.constraint_names) == (("x", "y"), ("ball", "sum"))
    assert problem.metadata is metadata
    assert problem.sense == "maximize"


@pytest.mark.parametrize("form", ["array", "csr_array", "coo_matrix"])
def test_arguments_are_neither_changed_nor_shared(form: str) -> None:
    Q, A = FORMS[form](np.eye(2)), FORMS[form](np.ones((1, 2)))
    bound, start = np.zeros(2), np.zeros(2)
    problem = QCQP(Q, q=bound, linear_constraints=(A, bound[:1], 5), x_lower=bound, start=start)
    id = problem.id
    for argument in (Q, A):
        data = argument if isinstance(argument, np.ndarray) else argument.data
        assert data.flags.writeable
        data[...] = 7
    bound[:], start[:] = 7, 7
    assert problem.start is not None and problem.start.tolist() == [0, 0]
    assert problem.replace(metadata=Metadata()).id == id


@pytest.mark.parametrize("name", ["Q", "q", "A"])
def test_zeros_and_unsorted_entries_of_an_argument_stay(name: str) -> None:
    count = {"Q": 3, "q": 1, "A": 2}[name]
    matrix = sparse.csr_array(([0.0, 1.0, 2.0], [2, 1, 0], [0, 3] + [3] * (count - 1)), shape=(count, 3))
    QCQP(**({"linear_constraints": (matrix, 0, 1)} if name == "A" else {name: matrix}))
    assert (matrix.data.tolist(), matrix.indices.tolist()) == ([0, 1, 2], [2, 1, 0])
    assert matrix.data.flags.writeable and matrix.indices.flags.writeable


DATA_BYTES = 300 * 300 * 8


@pytest.mark.parametrize(
    "arguments",
    [
        lambda A: {"linear_constraints": (A, 0, 1)},
        lambda A: {"linear_constraints": (sparse.csr_array(A), 0, 1)},
        lambda A: {"linear_constraints": (sparse.coo_matrix(A), 0, 1)},
        lambda A: {"quadratic_constraints": [(None, row, 0, 1) for row in A]},
        lambda A: {"Q": A, "quadratic_constraints": [(None, row, 0, 1) for row in A]},
    ],
    ids=["dense", "sparse", "legacy", "rows", "rows and Q"],
)
def test_memory_is_at_most_ten_times_the_data(arguments: Callable[[Array], dict[str, Any]]) -> None:
    made = arguments(np.random.default_rng(0).standard_normal((300, 300)))
    QCQP(**made)
    tracemalloc.start()
    try:
        QCQP(**made)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 10 * DATA_BYTES


def test_memory_of_a_sparse_matrix_does_not_grow_with_its_shape() -> None:
    """Use 1,000 entries in 20,000 rows and 20,000 variables, whose dense matrix has 3.2 GB."""
    rng = np.random.default_rng(0)
    A = sparse.random_array((20_000, 20_000), density=2.5e-6, rng=rng, format="csr")
    tracemalloc.start()
    try:
        QCQP(A, linear_constraints=(A, 0, 1))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 5_000_000


GOOD: tuple[Any, ...] = (np.eye(5), None, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "n_variables must be given if no matrix, vector or name is given, got None"),
        ({"n_variables": -1}, "n_variables must be a whole number, 0 or more, got -1"),
        ({"n_variables": 2.0}, "n_variables must be a whole number, 0 or more, got 2.0"),
        ({"n_variables": True}, "n_variables must be a whole number, 0 or more, got True"),
        ({"Q": np.ones((3, 2))}, "Q must have shape (2, 2), got (3, 2)"),
        ({"Q": np.ones(2)}, "Q must have shape (2, 2), got (2,)"),
        ({"Q": np.eye(2), "n_variables": 3}, "Q must have shape (3, 3), got (2, 2)"),
        ({"Q": sparse.csr_array((4, 3))}, "Q must have shape (3, 3), got (4, 3)"),
        ({"Q": np.eye(2), "q": np.ones(3)}, "q must have shape (2,), got (3,)"),
        ({"Q": np.eye(2), "q": np.ones((1, 2))}, "q must have shape (2,), got (1, 2)"),
        ({"Q": np.eye(2), "q": sparse.csr_array((2, 1))}, "q must have shape (2,), got (2, 1)"),
        (
            {"quadratic_constraints": [GOOD, GOOD, GOOD, (np.ones((4, 5)), None, 0, 1)]},
            "quadratic_constraints[3].Q must have shape (5, 5), got (4, 5)",
        ),
        (
            {"quadratic_constraints": [GOOD, (None, np.ones(4), 0, 1)]},
            "quadratic_constraints[1].q must have shape (5,), got (4,)",
        ),
        (
            {"quadratic_constraints": [GOOD, (None, np.ones(5), [0, 1], 1)]},
            "quadratic_constraints[1].lower must be a real number, got [0, 1]",
        ),
        (
            {"quadratic_constraints": [GOOD, (None, np.ones(5), 0, "1")]},
            "quadratic_constraints[1].upper must be a real number, got '1'",
        ),
        (
            {"quadratic_constraints": [GOOD, (np.eye(5), None, 0)]},
            "quadratic_constraints[1] must be a tuple (Q, q, lower, upper), got 3 entries",
        ),
        (
            {"quadratic_constraints": (np.eye(5), None, 0, 1)},
            "quadratic_constraints[0] must be a tuple (Q, q, lower, upper), got ndarray",
        ),
        (
            {"quadratic_constraints": np.eye(5)},
            "quadratic_constraints must be a list of tuples (Q, q, lower, upper), got ndarray",
        ),
        (
            {"quadratic_constraints": [GOOD, (np.eye(5), None, 3, 2)]},
            "the range of quadratic_constraints[1] must contain a number, got [3.0, 2.0]",
        ),
        (
            {"quadratic_constraints": [(np.eye(5), None, INF, None)]},
            "the range of quadratic_constraints[0] must contain a number, got [inf, inf]",
        ),
        (
            {"quadratic_constraints": [(np.eye(5), None, NAN, 1)]},
            "the range of quadratic_constraints[0] must contain a number, got [nan, 1.0]",
        ),
        (
            {"quadratic_constraints": [(NAN * np.eye(5), None, 0, 1)]},
            "quadratic_constraints[0].Q must be finite, got nan",
        ),
        (
            {"q": [1, 2], "linear_constraints": ([1, 1], 0, 1)},
            "linear_constraints.A must have shape (rows, 2), got (2,)",
        ),
        (
            {"q": [1, 2], "linear_constraints": (np.ones((2, 3)), 0, 1)},
            "linear_constraints.A must have shape (rows, 2), got (2, 3)",
        ),
        (
            {"linear_constraints": (np.ones((2, 3)), [0, 0, 0], 1)},
            "linear_constraints.lower must be a number or a dense vector of shape (2,), got shape (3,)",
        ),
        (
            {"linear_constraints": (np.ones((2, 3)), 0, [1])},
            "linear_constraints.upper must be a number or a dense vector of shape (2,), got shape (1,)",
        ),
        (
            {"linear_constraints": (np.ones((2, 3)), 0, [1, -1])},
            "the range of linear_constraints row 1 must contain a number, got [0.0, -1.0]",
        ),
        (
            {"linear_constraints": (np.ones((2, 3)), 0)},
            "linear_constraints must be a tuple (A, lower, upper), got 2 entries",
        ),
        ({"linear_constraints": np.ones((3, 3))}, "linear_constraints must be a tuple (A, lower, upper), got ndarray"),
        (
            {"q": [1], "linear_constraints": (None, 0, 1)},
            "linear_constraints.A must be a matrix if there are bounds, got None",
        ),
        ({"linear_constraints": ([[1, INF]], 0, 1)}, "linear_constraints.A must be finite, got inf"),
        (
            {"linear_constraints": (sparse.csr_array([[1, 2j]]), 0, 1)},
            "linear_constraints.A must be an array of real numbers, got complex numbers",
        ),
        (
            {"q": [1, 2], "x_lower": [0, 0, 0]},
            "x_lower must be a number or a dense vector of shape (2,), got shape (3,)",
        ),
        (
            {"q": [1, 2], "x_upper": sparse.csr_array([[1, 2]])},
            "x_upper must be a number or a dense vector of shape (2,), got shape (1, 2)",
        ),
        (
            {"q": [1, 2], "x_lower": [0, 3], "x_upper": 2},
            "the range of variable 1 (x_lower, x_upper) must contain a number, got [3.0, 2.0]",
        ),
        (
            {"q": [1, 2], "x_lower": NAN},
            "the range of variable 0 (x_lower, x_upper) must contain a number, got [nan, inf]",
        ),
        ({"q": [1, 2], "start": [1, 2, 3]}, "start must have shape (2,), got (3,)"),
        ({"q": [1, 2], "start": [1, NAN]}, "start must be finite, got nan"),
        ({"Q": [[1, 2j], [0, 1]]}, "Q must be an array of real numbers, got complex numbers"),
        ({"Q": np.eye(2, dtype=object)}, "Q must be an array of numbers, got entries of type object"),
        ({"q": ["1", "2"]}, "q must be an array of numbers, got entries of type <U1"),
        ({"q": [1, None]}, "q must be an array of numbers, got entries of type object"),
        (
            {"q": np.array(["2020-01-01"], dtype="M8[D]")},
            "q must be an array of numbers, got entries of type datetime64[D]",
        ),
        ({"Q": [[1, 2], [3]]}, "Q must be an array of numbers, got [[1, 2], [3]]: setting an array element"),
        ({"Q": [[0, 1e308], [1e308, 0]]}, "Q must be finite, got inf"),
        ({"q": [1, INF]}, "q must be finite, got inf"),
        ({"q": [1], "constant": NAN}, "constant must be finite, got nan"),
        ({"q": [1], "constant": "2"}, "constant must be a real number, got '2'"),
        ({"q": [1], "constant": [1, 2]}, "constant must be a real number, got [1, 2]"),
        ({"q": [1], "sense": "max"}, "sense must be 'minimize' or 'maximize', got 'max'"),
        ({"q": [1, 2], "variable_names": ["x"]}, "variable_names must hold 2 names, got 1"),
        ({"q": [1, 2], "variable_names": "xy"}, "variable_names must be a list of text, got str"),
        ({"q": [1, 2], "variable_names": ["x", 1]}, "variable_names must be a list of text, got 1 in it"),
        ({"q": [1, 2], "variable_names": 3}, "variable_names must be a list of text, got int"),
        ({"q": [1, 2], "constraint_names": ["x"]}, "constraint_names must hold 0 names, got 1"),
        ({"q": [1, 2], "metadata": {"seed": 1}}, "metadata must be a Metadata, got dict"),
    ],
)
def test_wrong_arguments_are_named_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(QcqpbenchError) as caught:
        QCQP(**arguments)
    text = str(caught.value)
    assert text == message or (text.startswith(message) and message.endswith("element"))
    assert "\n" not in text


def test_replacing_an_attribute_keeps_the_others() -> None:
    problem = QCQP(np.eye(2), [1, 2], x_lower=0, variable_names=["x", "y"])
    other = problem.replace(sense="maximize", start=[1, 1])
    assert other == QCQP(np.eye(2), [1, 2], x_lower=0, sense="maximize")
    assert (other.variable_names, other.start is None) == (("x", "y"), False)
    assert type(other) is QCQP
    with pytest.raises(QcqpbenchError, match=r"unknown attribute of a QCQP 'x_low'; did you mean 'x_lower'\?"):
        problem.replace(x_low=1)
    with pytest.raises(
        QcqpbenchError, match=r"^x_lower must have shape \(2,\) for 2 variables and 0 constraints, got \(3,\)"
    ):
        problem.replace(x_lower=[0, 0, 0])
