"""Points in a square or a circle, as far apart as possible: the packing of equal circles."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.family import Family
from qcqpbench.catalog.spec import parameter
from qcqpbench.errors import require
from qcqpbench.problem.metadata import BestKnown, Metadata
from qcqpbench.problem.qcqp import QCQP

_MAX_POINTS = 1000
# Best known smallest distances to 12 digits. IPOPT with many starts, refined by linear programs, found each and no
# larger one; docs/reference/problems.md says which were compared with published values. Tables of packings, such as E.
# Specht's (packomania.com), list radii r of circles: the distance is 2r/(1 − 2r) for circles in the unit square, and
# 2r/(1 − r) for circles in a circle of radius 1.
_DISTANCES = {
    "square": {
        2: 1.414213562373,
        3: 1.035276180410,
        4: 1.0,
        5: 0.707106781187,
        6: 0.600925212577,
        7: 0.535898384862,
        8: 0.517638090205,
        9: 0.5,
        10: 0.421279543984,
        11: 0.398207310237,
        12: 0.388730126323,
        13: 0.366096007696,
        14: 0.348915260374,
        15: 0.341081377402,
        16: 0.333333333333,
        17: 0.306153985300,
        18: 0.300462606289,
        19: 0.289541991995,
        20: 0.286611652352,
        21: 0.271812255359,
        22: 0.267958401551,
        23: 0.258819045103,
        24: 0.254333095030,
        25: 0.25,
        26: 0.238734757241,
        27: 0.235849528301,
        28: 0.230535493643,
        29: 0.226882900744,
        30: 0.224502964531,
    },
    "circle": {
        2: 2.0,
        3: 1.732050807569,
        4: 1.414213562373,
        5: 1.175570504585,
        6: 1.0,
        7: 1.0,
        8: 0.867767478235,
        9: 0.765366864730,
        10: 0.710978235561,
        11: 0.684040286651,
        12: 0.660152734958,
        13: 0.618033988750,
        14: 0.600884161109,
        15: 0.567962867737,
        16: 0.553185219144,
        17: 0.527421466355,
        18: 0.517638090205,
        19: 0.517638090205,
        20: 0.485163607493,
        21: 0.470331768913,
        22: 0.450478964646,
        23: 0.440024232589,
        24: 0.429953937001,
        25: 0.420802424153,
        26: 0.414235060524,
        27: 0.407631028344,
        28: 0.398808511923,
        29: 0.389211227921,
        30: 0.384782537785,
    },
}
_SOURCE = "IPOPT with many starts, and published values (docs/reference/problems.md)"


@dataclass(frozen=True)
class Packing(Family):
    """Packing: maximize t subject to |x_i − x_j|² ≥ t for k points in the unit square or in the circle of radius 1.

    The objective t is the square of the smallest distance d = √t, which tables of packings list.

    Parameters
    ----------
    k
        Number of points, at least 2.
    shape
        "square": 0 ≤ x_i ≤ 1 in both coordinates. "circle": |x_i| ≤ 1, a circle of radius 1.
    """

    name = "packing"

    k: int = parameter(10, minimum=2)
    shape: Literal["square", "circle"] = "square"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.k <= _MAX_POINTS, f"packing: k must be at most {_MAX_POINTS}, got {self.k}")

    def generate(self) -> QCQP:
        # The variables are the coordinates of the first point, of the second, …, and t.
        k, t, is_circle = self.k, 2 * self.k, self.shape == "circle"
        pairs = k * (k - 1) // 2
        terms = [*_squared_distances(k), *(_squared_lengths(k, 1 + pairs) if is_circle else ())]
        lengths = k if is_circle else 0
        # The largest squared distance of two points of the shape.
        largest = 4.0 if is_circle else 2.0
        return QCQP.from_terms(
            t + 1,
            quadratic=tuple(map(np.concatenate, zip(*terms, strict=True))),
            linear=(np.arange(1 + pairs), np.full(1 + pairs, t), np.append(1.0, np.full(pairs, -1.0))),
            lower=np.repeat([0.0, -np.inf], [pairs, lengths]),
            upper=np.repeat([np.inf, 1.0], [pairs, lengths]),
            x_lower=np.append(np.full(t, -1.0 if is_circle else 0.0), 0.0),
            x_upper=np.append(np.ones(t), largest),
            sense="maximize",
            metadata=Metadata(spec=self.spec, best_known=_best_known(k, self.shape)),
        )


_Terms = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]


def _squared_distances(k: int) -> Iterator[_Terms]:
    """Yield the terms (rows, i, j, values) of |x_i − x_j|² in a row for each pair, from row 1 on."""
    first, second = np.triu_indices(k, 1)
    rows = 1 + np.arange(len(first))
    for axis in (0, 1):
        a, b = 2 * first + axis, 2 * second + axis
        for i, j, factor in ((a, a, 1.0), (b, b, 1.0), (a, b, -2.0)):
            yield rows, i, j, np.full(len(rows), factor)


def _squared_lengths(k: int, first_row: int) -> Iterator[_Terms]:
    """Yield the terms (rows, i, j, values) of |x_i|² in a row for each point."""
    coordinates = np.arange(2 * k)
    yield first_row + coordinates // 2, coordinates, coordinates, np.ones(2 * k)


def _best_known(k: int, shape: str) -> BestKnown | None:
    """Return the largest known squared distance; None if it is not listed."""
    distance = _DISTANCES[shape].get(k)
    return None if distance is None else BestKnown(distance * distance, _SOURCE)
