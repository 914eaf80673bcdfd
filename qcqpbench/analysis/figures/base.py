"""Definition of a figure, selection of its rows, and helpers for tables and captions."""

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench.analysis.metrics import was_run
from qcqpbench.analysis.rows import AnalysisRow, extend_row
from qcqpbench.catalog.family import pattern_count
from qcqpbench.catalog.registry import family
from qcqpbench.catalog.spec import parse, spell
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.formats.by_suffix import is_file
from qcqpbench.results.row import Row
from qcqpbench.results.store import Store
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.suite import Entry, Settings, Suite, facts

if TYPE_CHECKING:
    import matplotlib.axes

Axes: TypeAlias = "matplotlib.axes.Axes"
Table = list[dict[str, Any]]
Array = NDArray[np.float64]

# Series of gip runs that follow a single path, and of those whose paths lose their smoothing slowly.
ONE_PATH, SLOW_PATHS = "gip, one path", "gip, slow paths"
SLOW_SHRINK = "0.8"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MeasuredRow(AnalysisRow):
    """Row of a figure. `label` is the name of the solver in the figure, see `series_name`.

    Attributes
    ----------
    facts
        Name and parameters of the problem, including p, n and the load.
    point
        The solver's best point; None if there is none.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    point: Array | None = None

    @property
    def series(self) -> str:
        """Name of the solver in the figure."""
        return self.label


M = TypeVar("M", bound=MeasuredRow)


@dataclass(frozen=True)
class Data:
    """Table and caption of a figure. Lines of the table may have different columns."""

    table: Table
    caption: str

    def where(self, **values: Any) -> Table:
        """Return the lines of the table whose columns have the given values."""
        return [line for line in self.table if all(line.get(name) == value for name, value in values.items())]

    def with_column(self, name: str) -> Table:
        """Return the lines of the table that have the column `name`."""
        return [line for line in self.table if name in line]


@dataclass(frozen=True)
class Figure:
    """Figure of the paper or of a study.

    Parameters
    ----------
    name
        Name of the figure on the command line and of its files.
    suite
        Function that returns the suite to run: the quick one if its argument is True, else the full one. None if the
        figure needs no runs.
    data
        Function that computes table and caption from the rows that `measured` returns.
    paint
        Function that draws the data into the panels.
    panels
        Number of panels side by side.
    """

    name: str
    suite: Callable[[bool], Suite] | None
    data: Callable[[Sequence[MeasuredRow]], Data]
    paint: Callable[[Sequence[Axes], Data], None]
    panels: int = 2


def grid(name: str, **parameters: Any) -> list[str]:
    """Return the specs of family `name` for all combinations of parameters, each a value or a list of values."""
    values = [value if isinstance(value, list | tuple | range) else [value] for value in parameters.values()]
    points = itertools.product(*values)
    return [family(spell(name, dict(zip(parameters, point, strict=True)))).spec for point in points]


def entry(spec: str, settings: Settings, **parameters: Any) -> Entry:
    """Return a suite entry for the solver `spec`, restricted to problems with the given parameters."""
    return Entry(solver_facts(spec), settings, {name: [value] for name, value in parameters.items()})


def measured(store: Store, suite: Suite) -> list[MeasuredRow]:
    """Return the newest row of each run of a suite's solvers on its problems, for all starts in the store.

    Solvers are matched by `series_name`, so rows with other settings of a solver count too. Parameters missing from a
    stored spec have their defaults.
    """
    newest = {_run(row): row for row in _of_suite(store, suite)}
    return [
        extend_row(MeasuredRow, row, {"facts": _facts(row.problem), "point": store.point(row.id)})
        for row in newest.values()
    ]


def count_replaced(store: Store, suite: Suite) -> int:
    """Return the number of rows that `measured` leaves out because newer rows of the same runs exist."""
    runs = list(map(_run, _of_suite(store, suite)))
    return len(runs) - len(set(runs))


def _of_suite(store: Store, suite: Suite) -> Iterator[AnalysisRow]:
    """Yield the rows of a suite's solvers on its problems, oldest first, without skipped runs."""
    scopes = {
        (problem, series_name(entry.solver.spec)): entry.solver.scope
        for entry in suite.entries
        for problem in suite.problems
        if entry.takes(problem)
    }
    spellings = _Spellings(suite)
    for row in store.rows(all_rows=True, order="begun"):
        problem, series = spellings.problem(row.problem), series_name(spellings.solver(row.solver))
        if (problem, series) in scopes and was_run(row):
            names = {"problem": problem, "problem_label": problem, "label": series}
            yield extend_row(AnalysisRow, row, {**names, "scope": scopes[problem, series]})


def _run(row: AnalysisRow) -> tuple[str, str, int, int]:
    return row.problem, row.label, row.start_seed, row.start


def mixed_versions(rows: Iterable[MeasuredRow]) -> str:
    """Return a sentence that names the series with several solver versions; empty if there are none."""
    versions: dict[str, set[str]] = {}
    for row in rows:
        versions.setdefault(row.series, set()).add(row.version)
    mixed = [f"{series} ({'; '.join(sorted(names))})" for series, names in versions.items() if len(names) > 1]
    return f"Runs of several versions, the newest of each run: {', '.join(mixed)}." if mixed else ""


class _Spellings:
    """Conversion of stored specs to their current spelling, for the families and solvers of a suite."""

    def __init__(self, suite: Suite) -> None:
        self._solvers = {entry.solver.name for entry in suite.entries}
        self._families = {parse(problem)[0] for problem in suite.problems if not is_file(problem)}
        self.problem = cache(self._problem)
        self.solver = cache(self._solver)

    def _problem(self, spec: str) -> str:
        with contextlib.suppress(QcqpbenchError):
            if not is_file(spec) and parse(spec)[0] in self._families:
                return family(spec).spec
        return spec

    def _solver(self, spec: str) -> str:
        with contextlib.suppress(QcqpbenchError):
            return solver_facts(spec).spec if parse(spec)[0] in self._solvers else spec
        return spec


def _facts(problem: str) -> dict[str, Any]:
    parameters: dict[str, Any] = {"n": 1} | facts(problem)
    synapses = parameters["m"] * parameters["n"]
    p = pattern_count(parameters.get("load"), parameters.get("p"), synapses, 1)
    return parameters | {"p": p, "load": p / synapses}


def group_by(rows: Iterable[M], *names: str) -> dict[tuple[Any, ...], list[M]]:
    """Return the rows by their values of `names`, each a fact or else a column of the row, sorted by these values."""
    groups: dict[tuple[Any, ...], list[M]] = {}
    for row in rows:
        key = tuple(row.facts[name] if name in row.facts else getattr(row, name) for name in names)
        groups.setdefault(key, []).append(row)
    return dict(sorted(groups.items()))


def with_points(rows: Iterable[M]) -> list[M]:
    """Return the rows that have a point."""
    return [row for row in rows if row.point is not None]


def point_of(row: MeasuredRow) -> Array:
    """Return the point of a row that has one."""
    assert row.point is not None
    return row.point


def kappa_bars(rows: Iterable[Row]) -> list[float]:
    """Return κ̄ of the rows that have one."""
    return [row.kappa_bar for row in rows if row.kappa_bar is not None]


def best_of_sets(rows: Iterable[MeasuredRow]) -> list[float]:
    """Return the largest κ̄ over the rows of each problem, for problems with any κ̄."""
    sets = group_by(rows, "problem").values()
    return [max(values) for group in sets if (values := kappa_bars(group))]


def mean_and_range(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return number, mean, minimum and maximum of `values` as columns: for name x these are sets, x, x_low, x_high."""
    if not values:
        return {"sets": 0}
    ends = {f"{name}_low": min(values), f"{name}_high": max(values)}
    return {"sets": len(values), name: statistics.fmean(values), **ends}


def series_name(spec: str) -> str:
    """Return the name of a solver in figures, or `spec` itself if it cannot be parsed."""
    try:
        name, parameters = parse(spec)
    except QcqpbenchError:
        return spec
    names = {"soft_margin": "soft margin", "qcqp": parameters.get("improve", "").upper()}
    names["ipopt"] = f"IPOPT {parameters.get('formulation', '').replace('_', '-')}"
    is_slow = parameters.get("shrink") == SLOW_SHRINK
    names["gip"] = ONE_PATH if parameters.get("starts") == "1" else SLOW_PATHS if is_slow else "gip"
    return names.get(name, name)


def count_distinct(values: Iterable[Any], noun: str) -> str:
    """Return a text with the number of distinct values and the noun, in the plural unless the number is 1."""
    count = len(set(values))
    return f"{count} {noun}{'' if count == 1 else 's'}"


def count_pattern_sets(rows: Iterable[MeasuredRow]) -> str:
    return count_distinct((row.facts["seed"] for row in rows), "pattern set")


def describe_parameters(row: MeasuredRow, *names: str) -> str:
    """Return a text with the parameters `names` of the row's problem and their values."""
    return "Parameters: " + ", ".join(f"{name} = {row.facts[name]:g}" for name in names)
