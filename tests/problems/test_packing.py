"""Packings against closed forms, radii of circles, polynomials, and IPOPT."""

import itertools
import math

import numpy as np
import pytest

from qcqpbench import QCQP, QcqpbenchError, problem, random_start, solve

ROOT_2, ROOT_3, ROOT_6, ROOT_13 = map(math.sqrt, (2, 3, 6, 13))
# Published distances of points in the unit square, for k > 9 from the sides 2 + 2/d of squares around unit circles.
SQUARE = {
    2: ROOT_2,
    3: ROOT_6 - ROOT_2,
    4: 1,
    5: ROOT_2 / 2,
    6: ROOT_13 / 6,
    7: 4 - 2 * ROOT_3,
    8: (ROOT_6 - ROOT_2) / 2,
    9: 1 / 2,
    12: 2 / (15 * math.sqrt(2 / 17)),
    14: 2 / (4 + ROOT_3),
    15: 2 / (2 + ROOT_2 + ROOT_6),
    16: 1 / 3,
    18: 2 / (24 / ROOT_13),
    20: 2 / ((130 + 16 * ROOT_2) / 17 - 2),
    23: (ROOT_6 - ROOT_2) / 4,
    25: 1 / 4,
}
# Distances of points in the circle of radius 1, from the published radii 1 + 2/d of circles around unit circles.
CIRCLE = {
    2: 2,
    3: ROOT_3,
    4: ROOT_2,
    5: 2 * math.sin(math.pi / 5),
    6: 1,
    7: 1,
    8: 2 * math.sin(math.pi / 7),
    9: 2 * math.sin(math.pi / 8),
    11: 2 * math.sin(math.pi / 9),
    13: 2 / (1 + math.sqrt(5)),
    15: 2 / math.sqrt(6 + 2 / math.sqrt(5) + 4 * math.sqrt(1 + 2 / math.sqrt(5))),
    18: 2 / (ROOT_2 + ROOT_6),
    19: 2 / (ROOT_2 + ROOT_6),
}
# Minimal polynomials of the distance of ten points, highest power first: OEIS A281065 and A281115.
TEN_IN_SQUARE = [
    *(1180129, -11436428, 98015844, -462103584, 1145811528, -1398966480, 227573920, 1526909568, -1038261808),
    *(-2960321792, 7803109440, -9722063488, 7918461504, -4564076288, 1899131648, -563649536, 114038784, -14172160),
    819200,
]
TEN_IN_CIRCLE = [1, -32, 463, -3998, 22899, -91428, 260179, -529874, 763206, -754052, 481476, -176440, 27556]


def packing(k: int, shape: str) -> QCQP:
    instance = problem(f"packing[k={k},shape={shape}]")
    assert isinstance(instance, QCQP)
    return instance


def best_distance(k: int, shape: str) -> float:
    best_known = packing(k, shape).metadata.best_known
    assert best_known is not None
    return math.sqrt(best_known.value)


@pytest.mark.parametrize(
    ("k", "shape", "distance"),
    [*((k, "square", d) for k, d in SQUARE.items()), *((k, "circle", d) for k, d in CIRCLE.items())],
)
def test_best_known_distances_have_their_closed_forms(k: int, shape: str, distance: float) -> None:
    assert best_distance(k, shape) == pytest.approx(distance, abs=2e-12)


def test_ten_points_are_roots_of_published_polynomials() -> None:
    """Check that the polynomial changes its sign within the last digit of the distance."""
    for shape, polynomial, power in (("square", TEN_IN_SQUARE, 1), ("circle", TEN_IN_CIRCLE, 2)):
        distance = best_distance(10, shape)
        ends = [np.polyval(polynomial, (distance + step) ** power) for step in (-1e-9, 1e-9)]
        assert ends[0] * ends[1] < 0


@pytest.mark.parametrize(
    ("shape", "radii"),
    [
        ("square", {10: 0.148204322565, 13: 0.133993513499, 17: 0.117196742783, 19: 0.112265437571}),
        (
            "circle",
            {10: 0.262258924190, 12: 0.248163470572, 14: 0.231030727971, 21: 0.190392146849, 30: 0.161349109065},
        ),
    ],
)
def test_best_known_distances_agree_with_radii_of_circles(shape: str, radii: dict[int, float]) -> None:
    """Compare with radii in a square of side 1, and in a circle of radius 1, which were entered from memory."""
    for k, radius in radii.items():
        expected = 2 * radius / (1 - (2 if shape == "square" else 1) * radius)
        assert best_distance(k, shape) == pytest.approx(expected, abs=2e-11)


@pytest.mark.parametrize(("k", "distance"), [(28, 0.23053549364267), (29, 0.22688290074421), (30, 0.22450296453109)])
def test_the_largest_squares_have_their_proved_distances(k: int, distance: float) -> None:
    """Compare with the optima that Markót and Csendes proved (2005); their digits were entered from memory."""
    assert best_distance(k, "square") == pytest.approx(distance, abs=1e-12)


def test_thirty_circles_of_diameter_one_need_a_published_area() -> None:
    """Compare with OEIS A084616: the smallest square around 30 circles of diameter 1 has the area 29.74921576."""
    assert (1 + 1 / best_distance(30, "square")) ** 2 == pytest.approx(29.74921576, abs=1e-8)


@pytest.mark.parametrize("shape", ["square", "circle"])
def test_more_points_are_closer(shape: str) -> None:
    distances = [best_distance(k, shape) for k in range(2, 31)]
    assert all(a >= b for a, b in itertools.pairwise(distances))
    assert packing(31, shape).metadata.best_known is None


@pytest.mark.parametrize(("k", "shape"), [(2, "square"), (5, "square"), (6, "circle")])
def test_the_constraints_are_squared_distances(k: int, shape: str) -> None:
    instance = packing(k, shape)
    x = np.random.default_rng(0).uniform(-1, 1, 2 * k + 1)
    points, t = x[:-1].reshape(k, 2), x[-1]
    expected = [np.sum((points[i] - points[j]) ** 2) - t for i in range(k) for j in range(i + 1, k)]
    lengths = [point @ point for point in points] if shape == "circle" else []
    np.testing.assert_allclose(instance.values(x), [*expected, *lengths], atol=1e-12)
    assert instance.objective(x) == t and instance.sense == "maximize"
    assert (instance.lower[: len(expected)] == 0).all() and (instance.upper[len(expected) :] == 1).all()


def test_a_regular_pentagon_is_feasible() -> None:
    """Check the optimal points of five in a circle, and that no larger distance is feasible there."""
    angles = 2 * np.pi * np.arange(5) / 5
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1).ravel()
    instance = packing(5, "circle")
    square = (2 * math.sin(math.pi / 5)) ** 2
    assert instance.violation([*points, square]) < 1e-12
    assert instance.violation([*points, square + 1e-3]) == pytest.approx(1e-3)


@pytest.mark.solver
@pytest.mark.parametrize("shape", ["square", "circle"])
@pytest.mark.parametrize("k", [2, 3, 4, 6, 7, 9, 10, 12])
def test_ipopt_reaches_the_best_known_distance(k: int, shape: str) -> None:
    """Check the best of some starts; no start may exceed a published distance."""
    instance = packing(k, shape)
    best = 0.0
    for number in range(0, 40, 2):
        attempt = solve(instance, "ipopt", start=random_start(instance, number), time_limit=10)
        if attempt.success and attempt.objective is not None:
            best = max(best, attempt.objective)
        if best > best_distance(k, shape) ** 2 - 1e-6:
            break
    assert best == pytest.approx(best_distance(k, shape) ** 2, abs=1e-6)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("packing[k=1]", "k must be 2 or more, got 1"),
        ("packing[k=-3]", "k must be 2 or more, got -3"),
        ("packing[k=100000]", "k must be at most 1000, got 100000"),
        ("packing[k=two]", "k must be a whole number, got two"),
        ("packing[shape=triangle]", r"shape must be square\|circle, got triangle"),
        ("packing[n=3]", "unknown parameter of packing 'n'"),
    ],
)
def test_wrong_specs_are_refused_in_one_line(spec: str, message: str) -> None:
    with pytest.raises(QcqpbenchError, match=message) as caught:
        problem(spec)
    assert "\n" not in str(caught.value)
