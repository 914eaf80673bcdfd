"""Optimal power flow: the cheapest generation that an AC power network can transmit, from MATPOWER cases."""

import contextlib
import importlib
import importlib.util
import io
import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.family import Family
from qcqpbench.errors import QcqpbenchError, describe_error, nearest, require
from qcqpbench.problem.metadata import BestKnown, Metadata
from qcqpbench.problem.qcqp import QCQP

from ._matpower import COLUMNS, Case, case_from_arrays, read_case
from ._network import Branch, Cost, End, Network, cos_sin, network

# Objectives in $/h of `runopf` of PYPOWER 5.1.21 with its default solver PIPS. Its other cases have no costs (case4gs,
# case9target), or costs with which its runopf fails (case9Q, case30Q, case30pwl).
_OBJECTIVES = {
    "case6ww": 3143.9746,
    "case9": 5296.6865,
    "case14": 8081.5264,
    "case24_ieee_rts": 63352.2072,
    "case30": 576.8923,
    "case39": 41864.1776,
    "case57": 41737.7855,
    "case118": 129660.6864,
    "case300": 719725.0793,
}
_OTHER_CASES = ("case9Q", "case30Q", "case30pwl")
_SOURCE = "runopf of PYPOWER 5.1.21"


@dataclass(frozen=True)
class OptimalPowerFlow(Family):
    """Optimal power flow: minimize the cost of generation in $/h in an AC network, in rectangular voltages V = e + jf.

    Constraints are the balance of active and reactive power at every bus, limits of voltages and of the powers of
    generators, limits of the apparent power at both ends of a branch, and limits of angle differences below 90°.
    Powers and voltages are in per unit. The angle of the reference bus is 0. The start is the flat voltage profile.

    Parameters
    ----------
    case
        Name of a case of PYPOWER, such as case14.
    path
        Path of a MATPOWER case file (version 2); a relative path is made absolute. Either case or path must be given.
    """

    name = "optimal_power_flow"
    stored = True

    case: str | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("case", "path") if getattr(self, name)]
        require(
            len(given) == 1,
            "optimal_power_flow: exactly one of case and path must be given, as in optimal_power_flow[case=case14], "
            f"got {' and '.join(given) or 'neither'}",
        )
        if self.path:
            # Rows store the spec, so the path must be valid in every working directory.
            object.__setattr__(self, "path", absolute(self.path))
        elif self.case not in (allowed := [*_OBJECTIVES, *_OTHER_CASES]):
            raise nearest(str(self.case), allowed, "case of optimal_power_flow")

    def generate(self) -> QCQP:
        case = read_case(Path(self.path)) if self.path else _pypower_case(str(self.case))
        objective = _OBJECTIVES.get(self.case or "")
        best_known = None if objective is None else BestKnown(objective, _SOURCE)
        return _Model(network(case)).problem(Metadata(spec=self.spec, best_known=best_known))


def _pypower_case(name: str) -> Case:
    """Return a case of PYPOWER.

    Raises
    ------
    QcqpbenchError
        If PYPOWER is not installed or its case cannot be loaded.
    """
    if importlib.util.find_spec("pypower") is None:
        raise QcqpbenchError(
            f"optimal_power_flow[case={name}]: the package PYPOWER must be installed (pip install 'qcqpbench[power]'), "
            "got none; path=FILE reads a MATPOWER case file without it"
        )
    try:
        # PYPOWER may warn and print when it is imported.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            arrays: dict[str, Any] = getattr(importlib.import_module(f"pypower.{name}"), name)()
    except Exception as error:
        raise QcqpbenchError(f"optimal_power_flow[case={name}]: PYPOWER raised {describe_error(error)}") from error
    return case_from_arrays(name, arrays["baseMVA"], {key: arrays[key] for key in COLUMNS})


@dataclass
class _Row:
    """Quadratic function: coefficients of products of two variables and of variables, and bounds."""

    lower: float
    upper: float
    quadratic: dict[tuple[int, int], float] = field(default_factory=dict)
    linear: dict[int, float] = field(default_factory=dict)

    def add(self, i: int, j: int, value: float) -> None:
        """Add value·x_i·x_j."""
        key = (max(i, j), min(i, j))
        self.quadratic[key] = self.quadratic.get(key, 0.0) + value

    def add_linear(self, i: int, value: float) -> None:
        """Add value·x_i."""
        self.linear[i] = self.linear.get(i, 0.0) + value


class _Model:
    """Optimal power flow of a network as a QCQP.

    The variables are e and f of all buses, P and Q of all generators, p and q of the flows at both ends of the limited
    branches, and the costs of generators with piecewise linear costs.
    """

    def __init__(self, net: Network) -> None:
        self.net = net
        self.x_lower: list[float] = []
        self.x_upper: list[float] = []
        self.start: list[float] = []
        self.names: list[str] = []
        self.rows: list[_Row] = []
        self.row_names: list[str] = []
        self.objective = _Row(0.0, 0.0)
        self.constant = 0.0
        self._add_voltages()
        self._add_balances()
        for number, branch in enumerate(net.branches):
            self._limit_flows(number, branch)
            self._limit_angle(number, branch)

    def problem(self, metadata: Metadata) -> QCQP:
        """Return the QCQP."""
        functions = [self.objective, *self.rows]
        quadratic = [(r, i, j, v) for r, row in enumerate(functions) for (i, j), v in row.quadratic.items()]
        linear = [(r, i, v) for r, row in enumerate(functions) for i, v in row.linear.items()]
        return QCQP.from_terms(
            len(self.start),
            quadratic=_columns(quadratic, 4),
            linear=_columns(linear, 3),
            lower=[row.lower for row in self.rows],
            upper=[row.upper for row in self.rows],
            constant=self.constant,
            x_lower=self.x_lower,
            x_upper=self.x_upper,
            start=np.array(self.start),
            variable_names=tuple(self.names),
            constraint_names=tuple(self.row_names),
            metadata=metadata,
        )

    def _variable(self, name: str, lower: float, upper: float, start: float | None = None) -> int:
        """Add a variable and return its index; the start is the value between the bounds that is nearest to `start`."""
        if start is None:
            start = (lower + upper) / 2 if math.isfinite(lower + upper) else 0.0
        self.x_lower.append(lower)
        self.x_upper.append(upper)
        self.start.append(min(max(start, lower), upper))
        self.names.append(name)
        return len(self.start) - 1

    def _row(self, name: str, lower: float, upper: float) -> _Row:
        self.rows.append(_Row(lower, upper))
        self.row_names.append(name)
        return self.rows[-1]

    def _add_voltages(self) -> None:
        self.e, self.f = [], []
        for k, bus in enumerate(self.net.buses):
            is_reference = k == self.net.reference
            # At the reference bus, f = 0 and e > 0: the angle is 0.
            self.e.append(self._variable(f"v_re{k}", bus.v_min if is_reference else -bus.v_max, bus.v_max, 1.0))
            largest = 0.0 if is_reference else bus.v_max
            self.f.append(self._variable(f"v_im{k}", -largest, largest, 0.0))
            if not is_reference:
                magnitude = self._row(f"voltage{k}", bus.v_min * bus.v_min, bus.v_max * bus.v_max)
                self._add_square(magnitude, k, 1.0)

    def _add_balances(self) -> None:
        """Add the balance of active and reactive power at every bus, the generators and their costs."""
        balances = []
        for k, bus in enumerate(self.net.buses):
            active, reactive = self._row(f"active{k}", bus.p, bus.p), self._row(f"reactive{k}", bus.q, bus.q)
            self._add_square(active, k, -bus.g)
            self._add_square(reactive, k, bus.b)
            balances.append((active, reactive))
        for number, unit in enumerate(self.net.generators):
            for letter, low, high, cost, balance in (
                ("P", unit.p_min, unit.p_max, unit.p_cost, balances[unit.bus][0]),
                ("Q", unit.q_min, unit.q_max, unit.q_cost, balances[unit.bus][1]),
            ):
                power = self._variable(f"{letter}{number}", low, high)
                balance.add_linear(power, 1.0)
                self._add_cost(f"cost_{letter}{number}", power, cost)
        for branch in self.net.branches:
            for end in branch.ends:
                self._add_flow(balances[end.near], end, -1.0)

    def _add_cost(self, name: str, power: int, cost: Cost) -> None:
        if cost.lines:
            start = max(slope * self.start[power] + constant for slope, constant in cost.lines)
            value = self._variable(name, -math.inf, math.inf, start)
            self.objective.add_linear(value, 1.0)
            for number, (slope, constant) in enumerate(cost.lines):
                line = self._row(f"{name}_{number}", constant, math.inf)
                line.add_linear(value, 1.0)
                line.add_linear(power, -slope)
        if cost.square:
            self.objective.add(power, power, cost.square)
        if cost.slope:
            self.objective.add_linear(power, cost.slope)
        self.constant += cost.constant

    def _add_square(self, row: _Row, bus: int, value: float) -> None:
        """Add value·|V|² of a bus."""
        if value:
            row.add(self.e[bus], self.e[bus], value)
            row.add(self.f[bus], self.f[bus], value)

    def _add_product(self, row: _Row, end: End, real: float, imaginary: float) -> None:
        """Add real·Re(V_near V̄_far) + imaginary·Im(V_near V̄_far)."""
        (e, f), (e_far, f_far) = ((self.e[bus], self.f[bus]) for bus in (end.near, end.far))
        if real:
            row.add(e, e_far, real)
            row.add(f, f_far, real)
        if imaginary:
            row.add(f, e_far, imaginary)
            row.add(e, f_far, -imaginary)

    def _add_flow(self, rows: tuple[_Row, _Row], end: End, sign: float) -> None:
        """Add `sign` times the active and reactive power that flows into a branch at one of its ends."""
        (g, b), (g_mutual, b_mutual) = end.own, end.mutual
        self._add_square(rows[0], end.near, sign * g)
        self._add_square(rows[1], end.near, -sign * b)
        self._add_product(rows[0], end, sign * g_mutual, sign * b_mutual)
        self._add_product(rows[1], end, -sign * b_mutual, sign * g_mutual)

    def _limit_flows(self, number: int, branch: Branch) -> None:
        """Limit the apparent power at both ends, p² + q² ≤ limit², unless the limits of the voltages imply it."""
        for side, end in zip("ft", branch.ends, strict=True):
            limit = branch.flow_limit
            if limit is None or limit >= self._largest_flow(end):
                continue
            p, q = (self._variable(f"{letter}{side}{number}", -limit, limit) for letter in "pq")
            rows = self._row(f"p_{side}{number}", 0.0, 0.0), self._row(f"q_{side}{number}", 0.0, 0.0)
            self._add_flow(rows, end, -1.0)
            apparent = self._row(f"flow_{side}{number}", -math.inf, limit * limit)
            for row, variable in zip(rows, (p, q), strict=True):
                flow = -sum(value * self.start[i] * self.start[j] for (i, j), value in row.quadratic.items())
                self.start[variable] = min(max(flow, -limit), limit)
                row.add_linear(variable, 1.0)
                apparent.add(variable, variable, 1.0)

    def _largest_flow(self, end: End) -> float:
        """Return an upper bound on the apparent power at an end of a branch, from the limits of the voltages."""
        near, far = self.net.buses[end.near].v_max, self.net.buses[end.far].v_max
        own, mutual = (math.sqrt(g * g + b * b) for g, b in (end.own, end.mutual))
        return near * (own * near + mutual * far)

    def _limit_angle(self, number: int, branch: Branch) -> None:
        """Limit the angle difference θ by sin(θ − θ_max) ≤ 0 and sin(θ − θ_min) ≥ 0, times both voltages."""
        for name, degrees, lower, upper in (
            ("angle_max", branch.angle_max, -math.inf, 0.0),
            ("angle_min", branch.angle_min, 0.0, math.inf),
        ):
            if degrees is not None:
                cosine, sine = cos_sin(degrees)
                self._add_product(self._row(f"{name}{number}", lower, upper), branch.ends[0], -sine, cosine)


def _columns(terms: list[tuple[Any, ...]], count: int) -> tuple[NDArray[Any], ...]:
    """Return the columns of a list of terms as arrays: indices, and the values last."""
    columns = list(zip(*terms, strict=True)) or [()] * count
    return *(np.array(column, dtype=np.intp) for column in columns[:-1]), np.array(columns[-1], dtype=np.float64)
