"""The suite of the finite-size study, and helpers for its rows."""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from qcqpbench.analysis.figures.base import MeasuredRow, grid
from qcqpbench.analysis.rows import extend_row
from qcqpbench.errors import require
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.suite import Entry, Settings, Suite, facts

M = TypeVar("M", bound=MeasuredRow)
T = TypeVar("T")

ENSEMBLES = ("paper", "psd", "gaussian")
OUTPUT_ENSEMBLES = ("paper", "gaussian")
# p (n−1)/(4m), in theory 1/I(κ̄) for every n. With n = 2 these are the loads 0.5, 1, 2 and 3.
FRACTIONS = (0.25, 0.5, 1, 1.5)
_TIME_LIMIT_SECONDS = 4 * 3600


class Size(NamedTuple):
    """Numbers of runs at one number of inputs.

    Parameters
    ----------
    m
        Number of inputs.
    sets
        Number of pattern sets.
    runs
        Number of gip runs per pattern set, each with many paths.
    paths
        Number of gip runs with a single path per pattern set, for overlaps between independent optima.
    certified
        Number of pattern sets with a certificate.
    certified_to
        Largest load with certificates.
    """

    m: int
    sets: int
    runs: int
    paths: int = 0
    certified: int = 0
    certified_to: float = 4.0


_LOADS = (0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)
_SIZES = (
    Size(25, 20, 2, 8, 3),
    Size(50, 12, 3, 8, 3),
    Size(100, 8, 3, 8, 3),
    Size(200, 3, 1, 4, 1, 1),
    Size(400, 1, 1),
)
_PATH_LOADS, _PATH_SETS = (0.25, 0.5, 1, 2, 3), 3
_OUTPUTS = (Size(24, 12, 2), Size(48, 8, 2), Size(96, 5, 2), Size(192, 2, 1))

_QUICK_LOADS = (0.25, 1, 2, 3)
_QUICK_SIZES = (Size(12, 4, 1, 4, 2), Size(25, 3, 1, 4, 1), Size(50, 2, 1, 4, 1, 1))
_QUICK_OUTPUTS = (Size(16, 3, 1), Size(24, 2, 1), Size(40, 1, 1))


def finite_size_suite(quick: bool) -> Suite:
    """Return the suite with all ensembles, loads, sizes and numbers of outputs, small problems first."""
    problems, entries = [], list[Entry]()
    loads = _QUICK_LOADS if quick else _LOADS
    for size in _QUICK_SIZES if quick else _SIZES:
        problems += grid("covariance_perceptron", m=size.m, load=loads, ensemble=ENSEMBLES, seed=range(size.sets))
        entries += _entries(size)
    for size in _QUICK_OUTPUTS if quick else _OUTPUTS:
        for n in (3, 5):
            p = [round(4 * size.m * fraction / (n - 1)) for fraction in FRACTIONS]
            problems += grid(
                "covariance_perceptron", m=size.m, n=n, p=p, ensemble=OUTPUT_ENSEMBLES, seed=range(size.sets)
            )
        entries += _entries(size)
    return Suite("finite-size", "", tuple(sorted(problems, key=_inputs)), tuple(entries))


def _inputs(spec: str) -> float:
    return float(facts(spec)["m"] or 0)


def _entries(size: Size) -> Iterator[Entry]:
    at = {"m": [size.m]}
    yield Entry(solver_facts("gip"), Settings(starts=size.runs, time_limit=_TIME_LIMIT_SECONDS), at)
    if size.paths:
        chosen = at | {"load": _PATH_LOADS, "seed": range(_PATH_SETS)}
        yield Entry(solver_facts("gip[starts=1]"), Settings(starts=size.paths, time_limit=_TIME_LIMIT_SECONDS), chosen)
    if size.certified:
        loads = [load for load in _LOADS if load <= size.certified_to]
        chosen = at | {"load": loads, "seed": range(size.certified)}
        yield Entry(solver_facts("certificate"), Settings(time_limit=_TIME_LIMIT_SECONDS), chosen)


def with_nominal_load(row: M) -> M:
    """Return a copy of the row whose load is that of its spec instead of p/(nm) with rounded p."""
    return extend_row(type(row), row, {"facts": {**row.facts, "load": facts(row.problem)["load"]}})


def require_rows(rows: list[T]) -> list[T]:
    """Return `rows`; raise QcqpbenchError if it is empty."""
    require(bool(rows), "the results file has no runs for this figure; without the option -r the command makes them")
    return rows
