from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from qcqpbench import QCQP, QcqpbenchError
from qcqpbench.problem.metadata import Metadata

Array = NDArray[np.float64]

N, C = 5, 4


def matrices(seed: int) -> tuple[Array, Array]:
    """Return Q (1+C, N, N), not symmetric, and q (1+C, N), both with zeros; row 2 is linear, row 3 only quadratic."""
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((1 + C, N, N)) * (rng.random((1 + C, N, N)) < 0.5)
    q = rng.standard_normal((1 + C, N)) * (rng.random((1 + C, N)) < 0.7)
    Q[2], q[3] = 0, 0
    return Q, q


def make(seed: int = 0, **rest: Any) -> QCQP:
    Q, q = matrices(seed)
    lower, upper = [-np.inf, -1.0, 0.0, -np.inf], [2.0, 1.0, 0.0, np.inf]
    rows = [(Q[r + 1], q[r + 1], lower[r], upper[r]) for r in range(C)]
    return QCQP(Q[0], q[0], 1.25, quadratic_constraints=rows, **rest)


def evaluate(seed: int, x: Array) -> list[float]:
    """Return f_0(x)..f_c(x), summed term by term."""
    Q, q = matrices(seed)
    return [
        sum(Q[r, i, j] * x[i] * x[j] for i, j in product(range(N), repeat=2)) + sum(q[r, i] * x[i] for i in range(N))
        for r in range(1 + C)
    ]


def points(count: int) -> Array:
    return np.random.default_rng(99).standard_normal((count, N))


@pytest.mark.parametrize("seed", range(4))
def test_values_agree_with_a_loop(seed: int) -> None:
    problem = make(seed)
    for x in points(3):
        expected = evaluate(seed, x)
        assert problem.objective(x) == pytest.approx(expected[0] + 1.25, rel=1e-13)
        np.testing.assert_allclose(problem.values(x), expected[1:], rtol=1e-12, atol=1e-14)


def test_batch_gives_the_values_of_its_points() -> None:
    problem, batch = make(), points(7)
    assert problem.objective(batch).shape == (7,)
    assert problem.values(batch).shape == (7, C)
    np.testing.assert_allclose(problem.objective(batch), [problem.objective(x) for x in batch], rtol=1e-14)
    np.testing.assert_allclose(problem.values(batch), [problem.values(x) for x in batch], rtol=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_first_derivatives_agree_with_differences(seed: int) -> None:
    """Compare with central differences, which are exact for quadratic functions at any width."""
    problem = make(seed)
    steps = 0.5 * np.eye(N)
    for x in points(3):
        gradient = [(problem.objective(x + h) - problem.objective(x - h)) for h in steps]
        jacobian = np.transpose([problem.values(x + h) - problem.values(x - h) for h in steps])
        np.testing.assert_allclose(problem.gradient(x), gradient, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(problem.jacobian(x).toarray(), jacobian, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("factor", [1.0, 0.0, -2.5])
def test_hessian_agrees_with_differences(seed: int, factor: float) -> None:
    problem = make(seed)
    multipliers = np.random.default_rng(seed).standard_normal(C)

    def lagrangian_gradient(x: Array) -> Array:
        return factor * problem.gradient(x) + multipliers @ problem.jacobian(x)

    x, steps = points(1)[0], 0.5 * np.eye(N)
    expected = [lagrangian_gradient(x + h) - lagrangian_gradient(x - h) for h in steps]
    np.testing.assert_allclose(problem.hessian(multipliers, factor).toarray(), expected, rtol=1e-11, atol=1e-12)


def test_structures_and_values_give_the_matrices() -> None:
    problem, x, multipliers = make(), points(1)[0], np.arange(1.0, 1 + C)
    rows, columns = problem.jacobian_structure
    dense = np.zeros((C, N))
    dense[rows, columns] = problem.jacobian_values(x)
    np.testing.assert_array_equal(dense, problem.jacobian(x).toarray())
    places = list(zip(rows.tolist(), columns.tolist(), strict=True))
    assert places == sorted(set(places))

    rows, columns = problem.hessian_structure
    assert (rows >= columns).all()
    lower = np.zeros((N, N))
    lower[rows, columns] = problem.hessian_values(multipliers)
    np.testing.assert_array_equal(np.tril(problem.hessian(multipliers).toarray()), lower)


def test_jacobian_keeps_entries_that_vanish_at_the_point() -> None:
    problem = make()
    assert len(problem.jacobian_values(np.zeros(N))) == len(problem.jacobian_values(points(1)[0]))


def test_violation_is_the_largest_of_all_violations() -> None:
    problem = make(x_lower=[-0.5] * N, x_upper=[np.inf] * (N - 1) + [0.75])
    for x in points(20):
        values = evaluate(0, x)[1:]
        violations = [values[0] - 2, values[1] - 1, -1 - values[1], abs(values[2]), x[N - 1] - 0.75, *(-0.5 - x), 0.0]
        assert problem.violation(x) == pytest.approx(max(violations), rel=1e-12)


def test_feasible_point_has_no_violation() -> None:
    disc = QCQP(q=[1.0, 0.0], quadratic_constraints=[(np.eye(2), None, -np.inf, 1.0)])
    assert disc.violation([0.6, 0.8]) == 0
    assert disc.violation([3.0, 4.0]) == 24
    assert disc.violation([np.nan, 0.0]) == np.inf


@pytest.mark.parametrize(
    ("x", "absolute", "relative"),
    [([0, 0], 0, 0), ([-3, 0], 2, 2), ([5, 0], 1, 1 / 4), ([0, -30], 20, 2), ([0, 1e9], 0, 0), ([5, -11], 1, 1 / 4)],
)
def test_violation_of_a_box(x: list[float], absolute: float, relative: float) -> None:
    """Use −1 ≤ x_0 ≤ 4, −10 ≤ x_1; the relative violation is divided by max(1, |bound|)."""
    box = QCQP.from_terms(2, x_lower=[-1, -10], x_upper=[4, np.inf])
    assert box.violation(x) == pytest.approx(absolute)
    assert box.violation(x, relative=True) == pytest.approx(relative)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("x", [[np.inf, 0.0], [np.inf, -np.inf], [1e200, 0.0]])
def test_point_with_infinite_values_has_infinite_violation(x: list[float]) -> None:
    disc = QCQP(q=[1.0, 0.0], quadratic_constraints=[(np.eye(2), None, -np.inf, 1.0)])
    assert disc.violation(x) == np.inf


def test_products_are_canonical() -> None:
    i, j = make().products.T
    assert (i >= j).all()
    places = list(zip(i.tolist(), j.tolist(), strict=True))
    assert places == sorted(set(places))


terms = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 3), st.integers(-5, 5)), min_size=1, max_size=12
)


@given(terms, st.randoms(use_true_random=False))
def test_id_does_not_depend_on_how_it_was_made(listed: list[tuple[int, int, int, int]], chance: Any) -> None:
    """Shuffle terms, swap factors, split terms in two, add terms that cancel, and use dense matrices."""

    def problem(listed: list[tuple[int, int, int, int]]) -> QCQP:
        r, i, j, values = np.array(listed).T
        linear = (r, j, values)
        return QCQP.from_terms(4, quadratic=(r, i, j, values), linear=linear, lower=[0, 1], upper=[0, np.inf])

    first = problem(listed)
    other = [(r, i, j, value - 3) for r, i, j, value in listed] + [(r, i, j, 3) for r, i, j, _ in listed]
    other += [(1, 2, 3, 4), (1, 2, 3, -4)]
    chance.shuffle(other)
    second = problem(other)
    assert second.id == first.id
    np.testing.assert_array_equal(second.products, first.products)

    r, i, j, values = np.array(listed).T
    swapped = QCQP.from_terms(4, quadratic=(r, j, i, values), linear=(r, j, values), lower=[0, 1], upper=[0, np.inf])
    assert swapped.id == first.id

    Q, q = np.zeros((3, 4, 4)), np.zeros((3, 4))
    np.add.at(Q, (r, i, j), values)
    np.add.at(q, (r, j), values)
    rows = [(Q[1], q[1], 0.0, 0.0), (Q[2], q[2], 1.0, np.inf)]
    assert QCQP(Q[0], q[0], quadratic_constraints=rows).id == first.id


def test_id_depends_on_the_mathematical_problem_alone() -> None:
    plain = make()
    names: dict[str, Any] = {"variable_names": tuple("abcde"), "constraint_names": tuple("pqrs")}
    assert make(start=np.ones(N), metadata=Metadata(spec="x", seed=3), **names).id == plain.id
    others = [
        make(1),
        make(sense="maximize"),
        make(x_lower=[0.0] * N),
        make(x_upper=[0.0] * N),
        plain.replace(constant=1.5),
        plain.replace(lower=plain.lower - 1),
        plain.replace(upper=plain.upper + 1),
        QCQP.from_terms(N),
        QCQP.from_terms(N, lower=[0], upper=[0]),
        QCQP.from_terms(N, linear=([0], [1], [1.0])),
        QCQP.from_terms(N, linear=([0], [2], [1.0])),
        QCQP.from_terms(N, quadratic=([0], [2], [1], [1.0])),
        QCQP.from_terms(N, quadratic=([0], [2], [2], [1.0])),
    ]
    assert len({plain.id, *(other.id for other in others)}) == 1 + len(others)


def test_problem_cannot_be_changed() -> None:
    bound = np.zeros(N)
    problem = make(x_lower=bound, start=bound)
    bound[0] = 7
    assert problem.x_lower[0] == 0
    assert problem.start is not None
    assert problem.start[0] == 0
    with pytest.raises(FrozenInstanceError):
        problem.constant = 2.0  # type: ignore[misc]
    for array in (problem.lower, problem.products, problem.start, problem.quadratic.data, problem.linear.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_problem_may_be_empty() -> None:
    empty = QCQP.from_terms(0, constant=2.0)
    assert (empty.objective([]), empty.violation([]), empty.values([]).shape) == (2.0, 0.0, (0,))
    bare = QCQP.from_terms(2)
    np.testing.assert_array_equal(bare.gradient([1.0, 2.0]), [0, 0])
    assert bare.jacobian([1.0, 2.0]).shape == (0, 2)
    assert bare.hessian([]).toarray().tolist() == [[0, 0], [0, 0]]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"linear": ([0], [3], [1.0])}, r"the variable of a linear term must be from 0 to 2, got 3"),
        ({"linear": ([1], [0], [1.0])}, r"the row of a linear term must be from 0 to 0, got 1"),
        ({"linear": ([0], [0.5], [1.0])}, "index of a linear term must be a whole number, got 0.5"),
        ({"linear": ([NAN], [0], [1.0])}, "index of a linear term must be a whole number, got nan"),
        ({"linear": ([0], [0], ["a"])}, "number"),
        ({"linear": ([0], [0], [NAN])}, "coefficients of linear must be finite"),
        ({"linear": ([0, 0], [0, 0], [1e308, 1e308])}, "coefficients of linear must be finite"),
        ({"quadratic": ([0], [-1], [0], [1.0])}, r"the variable of a quadratic term must be from 0 to 2, got -1"),
        ({"quadratic": ([-1], [0], [0], [1.0])}, r"the row of a quadratic term must be from 0 to 0, got -1"),
        ({"quadratic": ([0, 0], [1], [0], [1.0])}, "terms must have one shape, got"),
        ({"quadratic": ([0, 0], [1, 1], [0], [1.0, 2.0])}, "terms must have one shape, got"),
        ({"quadratic": ([0], [1], [0], [INF])}, "coefficients of quadratic must be finite"),
        ({"lower": [0, 1], "upper": [1]}, r"upper must have shape \(2,\)"),
        ({"lower": 0, "upper": 1}, r"lower must have one dimension, got shape \(\)"),
        ({"lower": [3], "upper": [2]}, "the range of constraint 0 must contain a number"),
        ({"lower": [NAN], "upper": [2]}, "the range of constraint 0 must contain a number"),
        ({"lower": [INF], "upper": [INF]}, "the range of constraint 0 must contain a number"),
        ({"lower": [-INF], "upper": [-INF]}, "the range of constraint 0 must contain a number"),
        (
            {"x_lower": [0, 0, 2], "x_upper": [1, 1, 1]},
            r"the range of variable 2 must contain a number, got \[2.0, 1.0\]",
        ),
        ({"x_lower": [0, 0]}, "shape"),
        ({"start": [0.0, 0.0]}, r"start must have shape \(3,\)"),
        ({"variable_names": ("a", "b")}, "variable_names must hold 3"),
        ({"variable_names": ("a", "b", "a")}, "variable_names must be unique, got 2 different names of 3"),
        ({"sense": "max"}, "sense must be 'minimize' or 'maximize', got 'max'"),
        ({"constant": INF}, "constant must be finite, got inf"),
    ],
)
def test_wrong_terms_are_refused(rest: dict[str, Any], message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message):
        QCQP.from_terms(3, **rest)


def test_wrong_points_are_refused() -> None:
    problem = make()
    for method in (problem.values, problem.objective, problem.violation, problem.gradient, problem.jacobian):
        with pytest.raises(QcqpbenchError, match=rf"x must have shape \(…, {N}\), got \(3,\)"):
            method(np.zeros(3))
    with pytest.raises(QcqpbenchError, match="multipliers"):
        problem.hessian(np.zeros(C + 1))


def test_violations_of_small_bounds_are_not_magnified() -> None:
    """Use x_0 ≤ 0.1 and 0 ≤ x_1²: they count as bounds of 1 in the relative violation."""
    small = QCQP(q=[1.0, 0.0], quadratic_constraints=[(np.diag([0.0, 1.0]), None, -np.inf, 0.0)], x_upper=[0.1, np.inf])
    assert small.violation([0.6, 0.0], relative=True) == small.violation([0.6, 0.0]) == 0.5
    assert small.violation([0.0, 2.0], relative=True) == small.violation([0.0, 2.0]) == 4.0
