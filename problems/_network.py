"""Electrical network of a MATPOWER case in the per-unit system, with the equipment that is in service."""

import itertools
import math
from dataclasses import dataclass

from qcqpbench.errors import QcqpbenchError, require

from ._matpower import Case, Table, check_whole

_REFERENCE, _ISOLATED = 3, 4
_PIECEWISE_LINEAR, _POLYNOMIAL = 1, 2
# MATPOWER treats flow limits of 0 and from here on, in MVA, as absent.
_NO_FLOW_LIMIT = 1e10


@dataclass(frozen=True)
class Bus:
    """Bus: demand p + jq, shunt admittance g + jb, and limits of the voltage magnitude."""

    p: float
    q: float
    g: float
    b: float
    v_min: float
    v_max: float


@dataclass(frozen=True)
class Cost:
    """Cost of a power x in $/h: square·x² + slope·x + constant, or the maximum of the `lines` slope·x + constant."""

    square: float = 0.0
    slope: float = 0.0
    constant: float = 0.0
    lines: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Generator:
    """Generator at the bus with the index `bus`: limits of its powers and their costs."""

    bus: int
    p_min: float
    p_max: float
    q_min: float
    q_max: float
    p_cost: Cost
    q_cost: Cost


@dataclass(frozen=True)
class End:
    """End of a branch at the bus `near`: the current into the branch is own·V_near + mutual·V_far, as (G, B)."""

    near: int
    far: int
    own: tuple[float, float]
    mutual: tuple[float, float]


@dataclass(frozen=True)
class Branch:
    """Branch: its ends, the limit of the apparent power at both, and limits of the angle difference in degrees.

    Limits that are absent are None.
    """

    ends: tuple[End, End]
    flow_limit: float | None
    angle_min: float | None
    angle_max: float | None


@dataclass(frozen=True)
class Network:
    """Buses, generators and branches in service; `reference` is the index of the reference bus."""

    buses: tuple[Bus, ...]
    generators: tuple[Generator, ...]
    branches: tuple[Branch, ...]
    reference: int


def network(case: Case) -> Network:
    """Return the network of a case.

    Isolated buses (type 4) are left out, and so are generators and branches that are out of service or at an isolated
    bus.

    Raises
    ------
    QcqpbenchError
        If a value is invalid or not supported.
    """
    numbers = _bus_numbers(case.bus)
    index: dict[int, int] = {}
    buses: list[Bus] = []
    references: list[int] = []
    for number, (place, row) in zip(numbers, case.bus, strict=True):
        kind = check_whole(place, "the bus type", row[1])
        require(kind <= _ISOLATED, f"{place}: the bus type must be 1, 2, 3 or 4, got {kind}")
        if kind == _ISOLATED:
            continue
        index[number] = len(buses)
        references += [len(buses)] if kind == _REFERENCE else []
        p, q, g, b = (
            _finite(place, name, row[2 + k]) / case.base_mva for k, name in enumerate(("Pd", "Qd", "Gs", "Bs"))
        )
        v_max, v_min = row[11], row[12]
        valid = 0 <= v_min <= v_max < math.inf and v_max > 0
        require(
            valid, f"{place}: Vmin and Vmax must satisfy 0 <= Vmin <= Vmax < Inf and Vmax > 0, got {v_min:g}, {v_max:g}"
        )
        buses.append(Bus(p, q, g, b, v_min, v_max))
    require(len(references) == 1, f"{case.name}: the case must have one reference bus (type 3), got {len(references)}")
    return Network(
        buses=tuple(buses),
        generators=_generators(case, set(numbers), index),
        branches=_branches(case, set(numbers), index),
        reference=references[0],
    )


def _bus_numbers(table: Table) -> list[int]:
    """Return the numbers of all buses; raise QcqpbenchError unless they are whole and distinct."""
    numbers: dict[int, None] = {}
    for place, row in table:
        number = check_whole(place, "the number of a bus", row[0])
        require(number not in numbers, f"{place}: the number of a bus must be unique, got {number} again")
        numbers[number] = None
    return list(numbers)


def _generators(case: Case, numbers: set[int], index: dict[int, int]) -> tuple[Generator, ...]:
    count, base = len(case.gen.rows), case.base_mva
    rows = len(case.gencost.rows)
    fits = rows in (count, 2 * count)
    require(fits, f"{case.name}: mpc.gencost must have {count} or {2 * count} rows for {count} generators, got {rows}")
    costs = [_cost(place, row, base) for place, row in case.gencost]
    q_costs = costs[count:] or [Cost()] * count
    generators = []
    for (place, row), p_cost, q_cost in zip(case.gen, costs, q_costs, strict=False):
        bus = _known(place, row[0], numbers)
        if row[7] <= 0 or bus not in index:
            continue
        p_max, p_min, q_max, q_min = row[8], row[9], row[3], row[4]
        for name, low, high in (("P", p_min, p_max), ("Q", q_min, q_max)):
            valid = low <= high and low < math.inf and high > -math.inf
            require(valid, f"{place}: {name}min must be at most {name}max, got {low:g} and {high:g}")
        curve = any(row[10:16])
        require(
            not curve, f"{place}: the capability curve (columns 11 to 16) must be 0, as it is not supported, got others"
        )
        is_load = p_min < 0 and p_max == 0 and (q_min != 0 or q_max != 0)
        require(not is_load, f"{place}: Pmax must be positive, as dispatchable loads are not supported, got 0")
        limits = {"p_min": p_min, "p_max": p_max, "q_min": q_min, "q_max": q_max}
        in_per_unit = {name: value / base for name, value in limits.items()}
        generators.append(Generator(index[bus], p_cost=p_cost, q_cost=q_cost, **in_per_unit))
    return tuple(generators)


def _cost(place: str, row: list[float], base: float) -> Cost:
    model, count = row[0], check_whole(place, "the number of cost coefficients", row[3])
    is_linear = model == _PIECEWISE_LINEAR
    require(is_linear or model == _POLYNOMIAL, f"{place}: the cost model must be 1 or 2, got {model:g}")
    size = 2 * count if is_linear else count
    require(len(row) >= 4 + size, f"{place}: a cost of {count} terms must have {4 + size} numbers, got {len(row)}")
    values = [_finite(place, "a cost coefficient", value) for value in row[4 : 4 + size]]
    if is_linear:
        return _piecewise_linear(place, values[::2], values[1::2], base)
    require(not any(values[:-3]), f"{place}: a polynomial cost must be of degree 2 or less, got degree {count - 1}")
    square, slope, constant = [0.0, 0.0, *values][-3:]
    return Cost(square * base * base, slope * base, constant)


def _piecewise_linear(place: str, powers: list[float], costs: list[float], base: float) -> Cost:
    """Return the convex cost through the points (power in MW, cost)."""
    require(len(powers) >= 2, f"{place}: a piecewise linear cost must have 2 or more points, got {len(powers)}")
    lines = []
    for k in range(len(powers) - 1):
        width = powers[k + 1] - powers[k]
        require(width > 0, f"{place}: the powers of a piecewise linear cost must increase, got {powers[k + 1]:g}")
        slope = (costs[k + 1] - costs[k]) / width
        lines.append((slope * base, costs[k] - slope * powers[k]))
    slopes = [slope for slope, _ in lines]
    # Costs rounded to a few digits may bend the wrong way by the rounding error.
    convex = all(b >= a - 1e-9 * max(1.0, abs(a)) for a, b in itertools.pairwise(slopes))
    require(convex, f"{place}: a piecewise linear cost must be convex, got decreasing slopes")
    return Cost(lines=tuple(lines))


def _branches(case: Case, numbers: set[int], index: dict[int, int]) -> tuple[Branch, ...]:
    branches = []
    for place, row in case.branch:
        near, far = (_known(place, value, numbers) for value in row[:2])
        require(near != far, f"{place}: a branch must join two buses, got {near} twice")
        if row[10] <= 0 or near not in index or far not in index:
            continue
        limit = row[5]
        require(limit >= 0, f"{place}: rateA must be 0 or more, got {limit:g}")
        angles = row[11:13] if len(row) >= 13 else [0.0, 0.0]
        branches.append(
            Branch(
                ends=_ends(place, row, index[near], index[far]),
                flow_limit=limit / case.base_mva if 0 < limit < _NO_FLOW_LIMIT else None,
                angle_min=_angle(angles[0]),
                angle_max=_angle(angles[1]),
            )
        )
    return tuple(branches)


def _angle(degrees: float) -> float | None:
    """Return the limit of an angle difference, None if it is 0, which stands for none, or 90° or more."""
    return degrees if degrees and abs(degrees) < 90 else None


def _ends(place: str, row: list[float], near: int, far: int) -> tuple[End, End]:
    """Return both ends of a branch: a π model behind an ideal transformer at the first bus."""
    r, x, charging, ratio, shift = (_finite(place, name, row[k]) for name, k in _BRANCH_COLUMNS)
    size = r * r + x * x
    require(size > 0, f"{place}: the impedance r + jx must not be 0, got 0")
    require(ratio >= 0, f"{place}: the tap ratio must be 0 or more, got {ratio:g}")
    tap = ratio or 1.0
    # Real arithmetic, and cosine and sine by their own series, so that the bits are the same on every machine.
    g, b = r / size, -x / size
    own = g, b + charging / 2
    cosine, sine = cos_sin(shift)
    # −y/t at the second end and −y/t̄ at the first, where t = tap·(cosine + j sine).
    mutual_far = (-(g * cosine + b * sine) / tap, -(b * cosine - g * sine) / tap)
    mutual_near = (-(g * cosine - b * sine) / tap, -(b * cosine + g * sine) / tap)
    square = tap * tap
    return End(near, far, (own[0] / square, own[1] / square), mutual_near), End(far, near, own, mutual_far)


_BRANCH_COLUMNS = (("r", 2), ("x", 3), ("b", 4), ("ratio", 8), ("angle", 9))


def cos_sin(degrees: float) -> tuple[float, float]:
    """Return cosine and sine of an angle in degrees, with the same bits on every machine.

    Mathematical libraries round them differently; the series use + − × ÷ only.
    """
    turns = math.fmod(degrees, 360.0)
    quarter = round(turns / 90.0)
    x = (turns - 90.0 * quarter) * (math.pi / 180.0)
    square, cosine, sine = x * x, 0.0, 0.0
    for k in range(20, -1, -2):
        cosine = 1.0 - cosine * square / ((k + 1) * (k + 2))
        sine = 1.0 - sine * square / ((k + 2) * (k + 3))
    sine *= x
    return [(cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine)][quarter % 4]


def _known(place: str, value: float, numbers: set[int]) -> int:
    number = check_whole(place, "the number of a bus", value)
    require(number in numbers, f"{place}: the bus must be one of mpc.bus, got {number}")
    return number


def _finite(place: str, name: str, value: float) -> float:
    if not math.isfinite(value):
        raise QcqpbenchError(f"{place}: {name} must be finite, got {value:g}")
    return value
