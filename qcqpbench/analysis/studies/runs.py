"""The runs that the finite-size study is made from."""

from collections.abc import Iterator
from typing import NamedTuple

from qcqpbench.analysis.figures.base import grid
from qcqpbench.errors import require
from qcqpbench.results.store import Row
from qcqpbench.run.isolation.worker import solver_facts
from qcqpbench.run.suite import Entry, Settings, Suite, facts

ENSEMBLES = ("paper", "psd", "gaussian")
OF_OUTPUTS = ("paper", "gaussian")
# p (n−1)/(4m), by theory 1/I(κ̄) whatever n is: the loads 0.5, 1, 2 and 3 of n = 2.
FRACTIONS = (0.25, 0.5, 1, 1.5)
_LIMIT = 4 * 3600


class Size(NamedTuple):
    """How much is done at one number of inputs m.

    sets           pattern sets
    runs           of gip on each, which follows many paths in every one of them
    paths          runs of gip with a single path, for the overlaps between optima that were found independently
    certified      pattern sets with a certificate, at loads up to ``certified_to``
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


def runs(quick: bool) -> Suite:
    """Every ensemble, load, size and number of outputs; small problems first, so that a part of it is a study too."""
    problems, entries = [], list[Entry]()
    loads = _QUICK_LOADS if quick else _LOADS
    for size in _QUICK_SIZES if quick else _SIZES:
        problems += grid("covariance_perceptron", m=size.m, load=loads, ensemble=ENSEMBLES, seed=range(size.sets))
        entries += _entries(size)
    for size in _QUICK_OUTPUTS if quick else _OUTPUTS:
        for n in (3, 5):
            p = [round(4 * size.m * fraction / (n - 1)) for fraction in FRACTIONS]
            problems += grid("covariance_perceptron", m=size.m, n=n, p=p, ensemble=OF_OUTPUTS, seed=range(size.sets))
        entries += _entries(size)
    return Suite("finite-size", "", tuple(sorted(problems, key=lambda spec: facts(spec)["m"])), tuple(entries))


def _entries(size: Size) -> Iterator[Entry]:
    at = {"m": [size.m]}
    yield Entry(solver_facts("gip"), Settings(size.runs, time_limit=_LIMIT), at)
    if size.paths:
        some = at | {"load": _PATH_LOADS, "seed": range(_PATH_SETS)}
        yield Entry(solver_facts("gip[starts=1]"), Settings(size.paths, time_limit=_LIMIT), some)
    if size.certified:
        low = [load for load in _LOADS if load <= size.certified_to]
        some = at | {"load": low, "seed": range(size.certified)}
        yield Entry(solver_facts("certificate"), Settings(time_limit=_LIMIT), some)


def nominal(row: Row) -> Row:
    """The row with the load that was asked for, which p may have rounded."""
    return row | {"facts": row["facts"] | {"load": facts(row["problem"])["load"]}}


def there(rows: list[Row]) -> list[Row]:
    """The rows, of which a figure needs some."""
    require(bool(rows), "the runs that this figure is made of are not there yet; without -r they are made")
    return rows
