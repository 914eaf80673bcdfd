"""The suite of the finite-size study, and helpers for its rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from qcqpbench.analysis.figures.base import SLOW_SHRINK, MeasuredRow, entry, grid
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
    sets, main_sets
        Numbers of pattern sets at most loads, and at the main loads, whose limits are determined most precisely.
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
    main_sets: int
    runs: int
    paths: int = 0
    certified: int = 0
    certified_to: float = 4.0


# Only small sizes have runs of the psd ensemble, and the largest problems would not fit into memory.
_LARGEST_PSD_M, _LARGEST_STABILITIES_AND_M = 100, 400 * 2400
_LOADS, _MAIN_LOADS = (0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5), (1, 2, 2.5, 3)
_SIZES = (
    Size(25, 20, 60, 8, 8, 3),
    Size(50, 12, 60, 4, 8, 3),
    Size(100, 8, 40, 2, 8, 3),
    Size(200, 3, 12, 1, 4, 1, 1),
    Size(400, 1, 3, 1),
)
_PATH_LOADS, _PATH_SETS = (0.25, 0.5, 1, 2, 3), 3
# Sizes of the runs with n = 3 and n = 5 outputs.
_OUTPUTS = {
    3: (Size(24, 12, 12, 2), Size(48, 8, 8, 2), Size(96, 5, 5, 1), Size(192, 2, 2, 1)),
    5: (Size(24, 12, 12, 2), Size(48, 8, 8, 2), Size(96, 4, 4, 1)),
}

_QUICK_LOADS = (0.25, 1, 2, 3)
_QUICK_SIZES = (Size(12, 4, 4, 1, 4, 2), Size(25, 3, 3, 1, 4, 1), Size(50, 2, 2, 1, 4, 1, 1))
_QUICK_OUTPUTS = {n: (Size(16, 3, 3, 1), Size(24, 2, 2, 1), Size(40, 1, 1, 1)) for n in (3, 5)}


def finite_size_suite(quick: bool) -> Suite:
    """Return the suite with all ensembles, loads, sizes and numbers of outputs, small problems first."""
    problems, entries = [], list[Entry]()
    for size in _QUICK_SIZES if quick else _SIZES:
        for load in _QUICK_LOADS if quick else _LOADS:
            if size.m * 2 * size.m * load <= _LARGEST_STABILITIES_AND_M:
                problems += _problems_at(size, load)
        entries += _entries(size)
    for n, sizes in (_QUICK_OUTPUTS if quick else _OUTPUTS).items():
        for size in sizes:
            p = [round(4 * size.m * fraction / (n - 1)) for fraction in FRACTIONS]
            seeds = range(size.sets)
            problems += grid("covariance_perceptron", m=size.m, n=n, p=p, ensemble=OUTPUT_ENSEMBLES, seed=seeds)
            entries += _entries(size, n=[n])
    return Suite("finite-size", "", tuple(sorted(problems, key=_inputs)), tuple(entries))


def _problems_at(size: Size, load: float) -> list[str]:
    is_main = load in _MAIN_LOADS
    problems = []
    for ensemble in ENSEMBLES:
        if ensemble != "psd" or size.m <= _LARGEST_PSD_M:
            seeds = range(size.main_sets if is_main and ensemble != "psd" else size.sets)
            problems += grid("covariance_perceptron", m=size.m, load=load, ensemble=ensemble, seed=seeds)
    return problems


# Seeds of the instances on which solvers are compared; the other runs of the study have smaller ones.
_SEARCH_SEED = 300
_SEARCH_LOADS = (2, 3)


def search_suite(quick: bool) -> Suite:
    """Return a suite that looks for larger margins than gip's: more rounds, slower paths, and IPOPT."""
    problems, entries = [], list[Entry]()
    for m, sets, rounds, ipopt_starts in ((12, 2, 2, 2), (20, 2, 2, 2)) if quick else _SEARCHES:
        seeds = range(_SEARCH_SEED, _SEARCH_SEED + sets)
        problems += grid("covariance_perceptron", m=m, load=_SEARCH_LOADS, ensemble="gaussian", seed=seeds)
        for spec, starts in (
            ("gip", 1),
            (f"gip[starts=128,mu0=1,shrink={SLOW_SHRINK}]", 1),
            (f"multistart[rounds={rounds}]", 1),
            ("ipopt", ipopt_starts),
        ):
            if starts:
                entries.append(entry(spec, Settings(starts=starts, time_limit=_TIME_LIMIT_SECONDS), m=m))
    return Suite("finite-size-search", "", tuple(problems), tuple(entries))


# m, pattern sets, rounds of multistart, starts of IPOPT.
_SEARCHES = ((50, 8, 16, 10), (100, 4, 16, 10), (200, 3, 4, 0))


def _inputs(spec: str) -> float:
    return float(facts(spec)["m"] or 0)


def _entries(size: Size, **where: Any) -> Iterator[Entry]:
    """Yield the entries of the solvers at one size, on problems with the parameters `where`."""
    at = {"m": [size.m], "n": [2], **where}
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
