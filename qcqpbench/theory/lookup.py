"""Solutions with broken replica symmetry (RSB): full RSB from a table, everything else computed.

`python -m qcqpbench.theory.tabulate_full_rsb` writes the table. It holds ln α and its slope, and cubic Hermite
polynomials interpolate their difference from replica symmetry, which is smooth and small.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import QcqpbenchError, require

from . import broken_symmetry
from .closed_forms import one_step
from .parisi import Array, Evaluation
from .replica_symmetric import margin_integral

RSB = int | Literal["full"]

# Number of steps up to which the minimization with free break points was tested.
MAX_STEPS = 6
TABLE_PATH = Path(__file__).with_name("full_rsb_table.csv")


@dataclass(frozen=True)
class Entry:
    """Full RSB at one margin.

    `power` is the exponent s of the kernel, `log_alpha` the logarithm of the number of constraints per direction at
    capacity, `slope` its derivative by the margin and `error` its error bar. `share` is the share of active
    stabilities, extrapolated in the number of steps, between `share_lower` and `share_upper`, which are not.
    """

    power: int
    kappa_bar: float
    log_alpha: float
    slope: float
    error: float
    share: float
    share_lower: float
    share_upper: float


@dataclass(frozen=True, eq=False)
class Table:
    """Interpolation of the entries of one kernel, in the order of their margins."""

    entries: tuple[Entry, ...]

    @cached_property
    def _columns(self) -> dict[str, Array]:
        """Return the values of each field."""
        names = [field.name for field in fields(Entry)]
        return {name: np.array([getattr(entry, name) for entry in self.entries], dtype=np.float64) for name in names}

    @property
    def kappa(self) -> Array:
        """Return the margins."""
        return self._columns["kappa_bar"]

    @property
    def log_alpha_range(self) -> tuple[float, float]:
        """Return the smallest and the largest tabulated ln α."""
        return self.entries[-1].log_alpha, self.entries[0].log_alpha

    @cached_property
    def _corrections(self) -> tuple[Array, Array]:
        """Return ln α minus its replica-symmetric value, and the derivative of this difference."""
        value, slope = _replica_symmetric(self.kappa, self.entries[0].power)
        return self._columns["log_alpha"] - value, self._columns["slope"] - slope

    def log_alpha(self, kappa: Array) -> tuple[Array, Array]:
        """Return ln α and its derivative at margins within the table."""
        value, slope = _replica_symmetric(kappa, self.entries[0].power)
        correction, correction_slope = _hermite(self.kappa, *self._corrections, kappa)
        return value + correction, slope + correction_slope

    def margin(self, log_alpha: Array) -> Array:
        """Return the margins at values of ln α within the table, by Newton's method on the interpolation."""
        kappa = np.interp(-log_alpha, -self._columns["log_alpha"], self.kappa)
        for _ in range(30):
            value, slope = self.log_alpha(kappa)
            change = (log_alpha - value) / slope
            kappa = np.clip(kappa + change, self.kappa[0], self.kappa[-1])
            if np.all(np.abs(change) < 1e-13 * np.maximum(1.0, np.abs(kappa))):
                break
        return kappa

    def interpolated(self, name: str, kappa: Array) -> Array:
        """Return a field other than ln α, interpolated with slopes from neighbouring entries."""
        values = self._columns[name]
        return _hermite(self.kappa, values, np.gradient(values, self.kappa), kappa)[0]

    def share(self, kappa: Array) -> Array:
        """Return the share of active stabilities, which is 1 for κ̄ ≤ 0."""
        lower, share, upper = (self.interpolated(name, kappa) for name in ("share_lower", "share", "share_upper"))
        return np.where(kappa <= 0, 1.0, np.clip(share, lower, np.minimum(upper, 1.0)))

    def error(self, kappa: Array) -> Array:
        """Return the error bar of ln α, the larger one of the two neighbouring entries."""
        errors = self._columns["error"]
        right = np.clip(np.searchsorted(self.kappa, kappa), 1, len(errors) - 1)
        return np.maximum(errors[right - 1], errors[right])


def check_rsb(rsb: object) -> None:
    """Check that `rsb` names a theory."""
    steps = isinstance(rsb, int | np.integer) and not isinstance(rsb, bool) and 0 <= rsb <= MAX_STEPS
    if not (steps or (isinstance(rsb, str) and rsb == "full")):
        raise QcqpbenchError(f"rsb must be 'full' or a number of steps from 0 to {MAX_STEPS}, got {rsb!r:.40}")


def margins(alpha: Array, power: int, rsb: RSB) -> Any:
    """Return κ̄ at values of α, with at least one step of RSB."""
    return from_table(
        alpha, power, rsb, lambda entries, kappa: kappa, lambda load: solution_at_load(load, power, rsb).kappa
    )


def constraints(kappa: Array, power: int, rsb: RSB) -> Any:
    """Return α at margins κ̄, with at least one step of RSB."""
    entries = table(power)
    low, high = entries.kappa[0], entries.kappa[-1]
    tabulated = (kappa >= low) & (kappa <= high) & (rsb == "full")
    values = np.exp(entries.log_alpha(np.clip(kappa, low, high))[0])
    return _filled(values, kappa, ~tabulated, lambda margin: solution(margin, power, rsb).alpha)


def from_table(
    alpha: Array,
    power: int,
    rsb: RSB,
    interpolated: Callable[[Table, Array], Array],
    computed: Callable[[float], float],
) -> Any:
    """Return a quantity at values of α, interpolated at margins within the table and computed elsewhere."""
    entries = table(power)
    low, high = entries.log_alpha_range
    logs = np.log(alpha)
    tabulated = (logs >= low) & (logs <= high) & (rsb == "full")
    values = interpolated(entries, entries.margin(np.clip(logs, low, high)))
    return _filled(values, alpha, ~tabulated, computed)


@lru_cache(maxsize=4096)
def full_rsb_from_table(kappa_bar_rs: float, power: int) -> float | None:
    """Return κ̄ of full RSB at the load at which replica symmetry predicts `kappa_bar_rs`.

    The load is α = s/I(κ̄) with the kernel's exponent s = `power`. Outside the table the result is None, because
    computing full RSB takes seconds.
    """
    if power == 1 and kappa_bar_rs >= 0:
        # Replica symmetry is exact.
        return kappa_bar_rs
    with np.errstate(divide="ignore"):
        log_alpha = np.log(power / np.asarray(margin_integral(kappa_bar_rs)))
    entries = table(power)
    low, high = entries.log_alpha_range
    return float(entries.margin(log_alpha)) if low <= log_alpha <= high else None


@lru_cache(maxsize=256)
def solution_at_load(alpha: float, power: int, rsb: RSB) -> Evaluation:
    """Return the computed solution with `alpha` constraints per direction."""
    low, high = (one_step(kappa, power)[0] for kappa in reversed(broken_symmetry.MARGIN_RANGE))
    formula = "p/m" if power == 1 else "p(n-1)/(2m)"
    require(low <= alpha <= high, f"{formula} must be from {low:.3g} to {high:.3g} for rsb={rsb!r}, got {alpha:.4g}")
    if rsb == "full":
        return broken_symmetry.full_at_load(alpha, power)
    return broken_symmetry.few_steps_at_load(alpha, power, int(rsb))


@lru_cache(maxsize=256)
def solution(kappa: float, power: int, rsb: RSB) -> Evaluation:
    """Return the computed solution at the margin `kappa`."""
    low, high = broken_symmetry.MARGIN_RANGE
    require(low <= kappa <= high, f"kappa_bar must be from {low:g} to {high:g} for rsb={rsb!r}, got {kappa:.4g}")
    if rsb == "full":
        return broken_symmetry.full(kappa, power)
    return broken_symmetry.few_steps(kappa, power, int(rsb))


def _filled(values: Array, arguments: Array, missing: NDArray[np.bool_], computed: Callable[[float], float]) -> Any:
    """Return `values` with the `missing` ones computed from `arguments`."""
    result = np.array(values, dtype=np.float64)
    for index in np.argwhere(missing):
        result[tuple(index)] = computed(float(arguments[tuple(index)]))
    return result[()]


@cache
def table(power: int) -> Table:
    """Return the shipped table of the kernel q^power."""
    return Table(tuple(entry for entry in read(TABLE_PATH) if entry.power == power))


def read(path: Path) -> list[Entry]:
    """Return the entries of a table file."""
    names = [field.name for field in fields(Entry)][1:]
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [Entry(int(row["power"]), *(float(row[name]) for name in names)) for row in rows]


def write(entries: list[Entry], path: Path) -> None:
    """Write a table file, with margins in increasing order for each kernel."""
    names = [field.name for field in fields(Entry)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for entry in sorted(entries, key=lambda entry: (entry.power, entry.kappa_bar)):
            writer.writerow([f"{getattr(entry, name):.10g}" for name in names])


def _replica_symmetric(kappa: Array, power: int) -> tuple[Array, Array]:
    """Return the replica-symmetric ln α = ln(s/I(κ̄)) and its derivative −I'/I, with I' = 2(κ̄Φ + φ)."""
    from scipy.special import ndtr  # noqa: PLC0415 (slow to import)

    integral = margin_integral(kappa)
    density = np.exp(-(kappa**2) / 2) / np.sqrt(2 * np.pi)
    return np.log(power / integral), -2 * (kappa * ndtr(kappa) + density) / integral


def _hermite(nodes: Array, values: Array, slopes: Array, points: Array) -> tuple[Array, Array]:
    """Return the piecewise cubic with `values` and `slopes` at `nodes`, and its derivative, at `points`."""
    right = np.clip(np.searchsorted(nodes, points), 1, len(nodes) - 1)
    left = right - 1
    width = nodes[right] - nodes[left]
    t = (points - nodes[left]) / width
    secant = (values[right] - values[left]) / width
    excess = slopes[left] - secant, slopes[right] - secant
    value = values[left] + width * t * (secant + (1 - t) * ((1 - t) * excess[0] - t * excess[1]))
    slope = secant + (1 - t) * (1 - 3 * t) * excess[0] + t * (3 * t - 2) * excess[1]
    return value, slope
