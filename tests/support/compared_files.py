"""Results files with made-up runs for tests of comparisons."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.results.store import Store
from qcqpbench.run.attempt import Outcome
from tests.support.results_files import BEGUN, SPEC, outcome

MACHINE = Machine(cpu="fast", physical_cores=2, logical_cores=4, system="Linux", python="3.11")
OLD, NEW = "scipy 1, source 0a", "scipy 1, source 0b"


def run(number: int, kappa_bar: float | None, seconds: float = 1.0, /, **changes: Any) -> Outcome:
    """Return a run on the task `number`; without κ̄, one that reached its time limit without a point."""
    spec = {name: changes.pop(name) for name in [*changes] if hasattr(SPEC, name)}
    spec = {"problem": f"parity[m={number}]", "problem_id": f"task {number}", "version": OLD, **spec}
    values: dict[str, Any] = {"solve_seconds": seconds, "scope": Scope.LOCAL}
    if kappa_bar is None:
        values |= {"point_status": PointStatus.NONE, "termination": Termination.TIME_LIMIT}
    else:
        values |= {"kappa_bar": kappa_bar, "margin": kappa_bar / 2}
    return outcome(replace(SPEC, **spec), **{**values, **changes})


def general_run(number: int, objective: float | None) -> Outcome:
    """Return a run on a general QCQP that is minimized; without an objective, one without a point."""
    values: dict[str, Any] = {"sense": "minimize", "problem": f"p{number}.qplib", "problem_id": f"qcqp {number}"}
    if objective is not None:
        values |= {"objective": objective, "violation": 0.0, "relative_violation": 0.0}
        values |= {"point_status": PointStatus.FEASIBLE, "termination": Termination.FINISHED}
    return run(number, None, **values)


def runs(kappa_bars: Iterable[float | None], seconds: Sequence[float] = (), **changes: Any) -> list[Outcome]:
    """Return one run for each κ̄, on the problems 2, 3, …, with these seconds or one second each."""
    values = list(kappa_bars)
    times = seconds or [1.0] * len(values)
    return [
        run(number, value, time, **changes) for number, (value, time) in enumerate(zip(values, times, strict=True), 2)
    ]


def write_runs(path: Path, outcomes: Iterable[Outcome], machine: Machine = MACHINE) -> Path:
    """Add runs to a results file, one second after the other, and return its path."""
    with Store(path, write=True) as store:
        store.begin("run", machine)
        for number, item in enumerate(outcomes):
            store.add(replace(item, begun=BEGUN + store.count() + number))
    return path
