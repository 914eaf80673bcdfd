"""QCQPs that the tests of all formats write and read."""

import numpy as np
from hypothesis import strategies as st

from qcqpbench import QCQP, formulation, problem
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import BestKnown, Bound, Metadata

finite = st.floats(allow_nan=False, allow_infinity=False)
# Numbers that are hard to write exactly.
edges = st.one_of(finite, st.sampled_from([-0.0, 5e-324, -5e-324, 2.0**-1040, 1.7976931348623157e308, 0.1]))
# Numbers with which other programs compute reliably.
tame = st.one_of(st.integers(-9, 9).map(float), st.floats(-1e4, 1e4).map(lambda value: round(value, 6)))
# Words that every format accepts as names.
words = st.from_regex(r"[a-df-z][a-z0-9_]{2,6}", fullmatch=True).map(lambda word: f"{word}_")


@st.composite
def ranges(draw: st.DrawFn, count: int, bounds: st.SearchStrategy[float] = edges) -> tuple[list[float], list[float]]:
    """Draw lower and upper bounds, some of them infinite."""
    pairs = [sorted((draw(bounds), draw(bounds))) for _ in range(count)]
    pairs = [[draw(st.sampled_from([low, -np.inf])), draw(st.sampled_from([high, np.inf]))] for low, high in pairs]
    return [low for low, _ in pairs], [high for _, high in pairs]


@st.composite
def metadata(draw: st.DrawFn, *shape: int) -> Metadata:
    """Draw metadata with a reference of this shape."""
    number = st.floats(allow_nan=False)
    reference = np.array(draw(st.lists(edges, min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))))
    return Metadata(
        spec=draw(st.none() | st.text()),
        seed=draw(st.none() | st.integers(0)),
        reference=draw(st.sampled_from([None, reference.reshape(shape)])),
        best_known=draw(st.none() | st.builds(BestKnown, number, st.text())),
        bounds=tuple(draw(st.lists(st.builds(Bound, number, st.text()), max_size=2))),
        notes=draw(st.dictionaries(st.text(), st.text() | number, max_size=2)),
    )


@st.composite
def qcqps(
    draw: st.DrawFn,
    entries: st.SearchStrategy[float] = edges,
    bounds: st.SearchStrategy[float] = edges,
    names: st.SearchStrategy[str] = words,
    least: int = 1,
) -> QCQP:
    """Draw problems of `least` to 4 variables."""
    n, c = draw(st.integers(least, 4)), draw(st.integers(0, 3))
    products = st.tuples(st.integers(0, c), *[st.integers(0, n - 1)] * 2).map(lambda t: (t[0], max(t[1:]), min(t[1:])))
    quadratic = draw(st.dictionaries(products, entries, max_size=8)) if n else {}
    places = st.tuples(st.integers(0, c), st.integers(0, n - 1))
    linear = draw(st.dictionaries(places, entries, max_size=8)) if n else {}
    (lower, upper), (x_lower, x_upper) = draw(ranges(c, bounds)), draw(ranges(n, bounds))
    named = [draw(st.none() | st.lists(names, min_size=k, max_size=k, unique=True).map(tuple)) for k in (n, c)]
    return QCQP.from_terms(
        n,
        sense=draw(st.sampled_from(["minimize", "maximize"])),
        quadratic=[[key[k] for key in quadratic] for k in range(3)] + [list(quadratic.values())],
        linear=[[key[k] for key in linear] for k in range(2)] + [list(linear.values())],
        constant=draw(entries),
        lower=lower,
        upper=upper,
        x_lower=x_lower,
        x_upper=x_upper,
        start=draw(st.none() | st.lists(entries, min_size=n, max_size=n)),
        variable_names=named[0],
        constraint_names=named[1],
        metadata=draw(metadata(n)),
    )


_SQUARE = ([1], [0], [0], [1.0])
TINY = {
    "nothing": QCQP.from_terms(1),
    "constant": QCQP.from_terms(1, constant=-2.5, sense="maximize"),
    "no constraints": QCQP.from_terms(2, quadratic=([0, 0], [0, 1], [0, 0], [0.1, -3.0]), linear=([0], [1], [7.25])),
    "no objective": QCQP.from_terms(1, quadratic=_SQUARE, lower=[-np.inf], upper=[2.0]),
    "equality": QCQP.from_terms(1, quadratic=_SQUARE, linear=([0, 1], [0, 0], [1.0, 0.5]), lower=[2.0], upper=[2.0]),
    "range": QCQP.from_terms(2, quadratic=([1], [1], [0], [1.0]), linear=([0], [1], [1.0]), lower=[-1.0], upper=[2.0]),
    "free constraint": QCQP.from_terms(1, quadratic=_SQUARE, lower=[-np.inf], upper=[np.inf]),
    "empty constraint": QCQP.from_terms(1, linear=([0], [0], [1.0]), lower=[-1.0], upper=[np.inf]),
    "linear": QCQP.from_terms(2, linear=([0, 1, 1], [1, 0, 1], [1.0, 1.0, -1.0]), lower=[0.0], upper=[np.inf]),
    "free and fixed": QCQP.from_terms(
        5,
        quadratic=([0, 0], [4, 2], [1, 2], [1.0, -1.0]),
        x_lower=[-np.inf, 3.0, 0.0, -np.inf, -1.5],
        x_upper=[np.inf, 3.0, np.inf, 0.0, 1e-3],
    ),
    "unused and named": QCQP.from_terms(
        3,
        sense="maximize",
        quadratic=([2, 2], [2, 2], [0, 2], [1.0, 2.0]),
        linear=([1], [2], [-1.0]),
        lower=[-1.0, -np.inf],
        upper=[1.0, 4.0],
        start=[0.0, 0.0, 0.5],
        variable_names=("first", "second", "third"),
        constraint_names=("straight", "curved"),
    ),
}


def larger(form: str, spec: str = "covariance_perceptron[m=50,load=0.5]") -> QCQP:
    """Return an encoded task."""
    task = problem(spec)
    assert isinstance(task, MaxMargin)
    return formulation(form).encode(task)


def points(first: QCQP, count: int = 3) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return random points of a problem."""
    return np.random.default_rng(7).standard_normal((count, first.n_variables))


def assert_same(first: QCQP, second: object) -> None:
    """Assert that two problems have the same id and the same values."""
    assert isinstance(second, QCQP)
    assert second.id == first.id
    with np.errstate(all="ignore"):
        for x in points(first):
            np.testing.assert_array_equal(second.objective(x), first.objective(x))
            np.testing.assert_array_equal(second.values(x), first.values(x))
