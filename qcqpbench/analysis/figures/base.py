"""What a figure is, the runs it is made from, and what figures share: means over pattern sets, words for captions."""

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from qcqpbench.analysis.metrics import was_run
from qcqpbench.catalog.family import pattern_count
from qcqpbench.catalog.registry import family
from qcqpbench.catalog.spec import parse, spell
from qcqpbench.errors import QcqpbenchError
from qcqpbench.results.store import Row, Store
from qcqpbench.run.isolation.worker import solver_facts
from qcqpbench.run.job import is_file
from qcqpbench.run.suite import Entry, Settings, Suite, facts

if TYPE_CHECKING:
    import matplotlib.axes

Axes: TypeAlias = "matplotlib.axes.Axes"
Table = list[dict[str, Any]]

# gip, which follows many paths in a run, with a single one.
ONE_PATH = "gip, one path"


@dataclass(frozen=True)
class Data:
    """What a figure shows: a table, whose lines may differ in their columns, and a caption that says what it means."""

    table: Table
    caption: str

    def of(self, **wanted: Any) -> Table:
        """The lines that have these values."""
        return [line for line in self.table if all(line.get(name) == value for name, value in wanted.items())]

    def having(self, name: str) -> Table:
        """The lines that have this column."""
        return [line for line in self.table if name in line]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    suite   the runs it is made from, the quick ones or all; None if it needs none
    data    from the rows of those runs, as `measured` gives them, to what is shown
    paint   what is shown, into the panels of a picture
    panels  how many of them stand side by side
    """

    name: str
    suite: Callable[[bool], Suite] | None
    data: Callable[[Sequence[Row]], Data]
    paint: Callable[[Sequence[Axes], Data], None]
    panels: int = 2


def grid(name: str, **parameters: Any) -> list[str]:
    """The specs of a grid of problems: each parameter a value or several."""
    values = [value if isinstance(value, list | tuple | range) else [value] for value in parameters.values()]
    points = itertools.product(*values)
    return [family(spell(name, dict(zip(parameters, point, strict=True)))).spec for point in points]


def entry(spec: str, settings: Settings, **where: Any) -> Entry:
    """A solver, on those problems alone whose parameters have these values."""
    return Entry(solver_facts(spec), settings, {name: [value] for name, value in where.items()})


def measured(store: Store, suite: Suite) -> list[Row]:
    """The rows of a suite's solvers on its problems, from however many starts, of each run the newest.

    Solvers go by their series, so that rows count whose settings are no longer those of the suite; specs without a
    parameter that was added since count as if they had its default. Each row has its series, the solver's scope, the
    run's point, and as facts the problem's name and parameters, p, n and the load among them.
    """
    newest = {_run(row): row for row in _of_suite(store, suite)}
    return [row | {"facts": _facts(row["problem"]), "point": store.point(row["id"])} for row in newest.values()]


def count_replaced(store: Store, suite: Suite) -> int:
    """Return how many rows of a suite `measured` leaves out because there are newer ones of the same runs."""
    runs = list(map(_run, _of_suite(store, suite)))
    return len(runs) - len(set(runs))


def _of_suite(store: Store, suite: Suite) -> Iterator[Row]:
    """Yield all rows of a suite's solvers on its problems that were run, the oldest first."""
    scopes = {
        (text, series(each.solver.spec)): each.solver.scope
        for each in suite.entries
        for text in suite.problems
        if each.takes(text)
    }
    spellings = _Spellings(suite)
    for row in store.rows(all_rows=True, order="begun"):
        kind = spellings.problem(row["problem"]), series(spellings.solver(row["solver"]))
        if kind in scopes and was_run(row):
            yield row | {"problem": kind[0], "series": kind[1], "scope": scopes[kind]}


def _run(row: Row) -> tuple[Any, ...]:
    return row["problem"], row["series"], row["seed"], row["start"]


def mixed_versions(rows: Iterable[Row]) -> str:
    """Return a sentence on the series whose rows are of several versions of a solver; empty if there are none."""
    versions: dict[str, set[str]] = {}
    for row in rows:
        versions.setdefault(row["series"], set()).add(row["version"])
    several = [f"{name} ({'; '.join(sorted(each))})" for name, each in versions.items() if len(each) > 1]
    return f"Runs of several versions, the newest of each run: {', '.join(several)}." if several else ""


class _Spellings:
    """The specs of rows as the classes of a suite spell them now; what they do not know stays as it is."""

    def __init__(self, suite: Suite) -> None:
        self._solvers = {entry.solver.name for entry in suite.entries}
        self._families = {parse(text)[0] for text in suite.problems if not is_file(text)}
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
    known = {"n": 1} | facts(problem)
    synapses = known["m"] * known["n"]
    p = pattern_count(known.get("load"), known.get("p"), synapses, 1)
    return known | {"p": p, "load": p / synapses}


def by(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values of columns and facts of these names, in the order of those values."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row["facts"].get(name, row.get(name)) for name in names), []).append(row)
    return dict(sorted(found.items()))


def best_of_sets(rows: Iterable[Row]) -> list[float]:
    """The largest κ̄ over the starts, of each pattern set that has a point."""
    sets = by((row for row in rows if row["kappa_bar"] is not None), "problem").values()
    return [max(row["kappa_bar"] for row in each) for each in sets]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Columns for a value of each pattern set: their mean and their range."""
    if not values:
        return {"sets": 0}
    ends = {f"{name}_low": min(values), f"{name}_high": max(values)}
    return {"sets": len(values), name: statistics.fmean(values), **ends}


def series(spec: str) -> str:
    """Return what pictures call a solver; a spec that cannot be read is its own name."""
    try:
        name, parameters = parse(spec)
    except QcqpbenchError:
        return spec
    names = {"soft_margin": "soft margin", "qcqp": parameters.get("improve", "").upper()}
    names["ipopt"] = f"IPOPT {parameters.get('formulation', '').replace('_', '-')}"
    names["gip"] = ONE_PATH if parameters.get("starts") == "1" else "gip"
    return names.get(name, name)


def counted(values: Iterable[Any], what: str) -> str:
    """How many different values there are, in words."""
    count = len(set(values))
    return f"{count} {what}{'' if count == 1 else 's'}"


def set_count(rows: Iterable[Row]) -> str:
    return counted((row["facts"]["seed"] for row in rows), "pattern set")


def parameters(row: Row, *names: str) -> str:
    """Facts of a row in words."""
    return "Parameters: " + ", ".join(f"{name} = {row['facts'][name]:g}" for name in names)
