"""Synthetic rows for tests of reports, with all fields of a row of a report."""

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis.report.numbers.contents import ReportContents
from qcqpbench.analysis.report.numbers.sources import ReportInput, ReportMachine
from qcqpbench.analysis.report.pytest_benchmark import MicroBenchmark
from qcqpbench.analysis.report.tables.index import tables
from qcqpbench.analysis.rows import ReportRow
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.status import PointStatus, Scope, Termination

MACHINE = Machine(cpu="a CPU", python="3.11", packages={"numpy": "2.0", "nothing": None})
_MEMBERS = {"termination": Termination, "point_status": PointStatus, "scope": Scope}


def row(
    problem: str = "covariance_perceptron[m=10,n=2,load=1.0,seed=0]", solver: str = "a", **changes: Any
) -> ReportRow:
    """Return a successful run; kappa_bar is twice the margin. Statuses and scopes may be given by their values."""
    values: dict[str, Any] = {
        **{"id": 1, "invocation": 1, "number": 0, "key": "", "worker": "", "begun": 0.0, "machine": MACHINE},
        **{"problem": problem, "problem_id": hashlib.sha256(problem.encode()).hexdigest(), "problem_label": problem},
        **{"solver": solver, "label": solver, "version": "1", "formulation": None, "start": 0, "time_limit": 10.0},
        **{"termination": Termination.LOCALLY_OPTIMAL, "point_status": PointStatus.FEASIBLE},
        **{"build_seconds": 0.5, "solve_seconds": 1.0, "margin": 0.5, "kappa_bar": 1.0},
    }
    values |= changes
    for name, kind in _MEMBERS.items():
        if isinstance(values.get(name), str):
            values[name] = kind.stored(values[name])
    if "kappa_bar" in changes and "margin" not in changes and values["kappa_bar"] is not None:
        values["margin"] = values["kappa_bar"] / 2
    return ReportRow(**values)


def lost(**changes: Any) -> ReportRow:
    """Return a run without a point."""
    values = {"point_status": "none", "margin": None, "kappa_bar": None, "termination": "time_limit"}
    return row(**{**values, "solve_seconds": None, **changes})


def general(problem: str = "a.qplib", solver: str = "a", objective: float | None = 1.0, **changes: Any) -> ReportRow:
    """Return a run on a general QCQP that is minimized; without an objective, a run without a point."""
    values: dict[str, Any] = {"margin": None, "kappa_bar": None, "objective": objective, "sense": "minimize"}
    values |= {"variables": 3, "constraints": 2, "violation": 0.0, "relative_violation": 0.0}
    if objective is None:
        values |= {"point_status": "none", "termination": "time_limit", "violation": None, "relative_violation": None}
    return row(problem, solver, **(values | changes))


def results(rows: Sequence[ReportRow], micro: Sequence[MicroBenchmark] = ()) -> ReportInput:
    return ReportInput(("made.db",), tuple(rows), (ReportMachine(MACHINE, ("qcqpbench run",)),), tuple(micro))


def table(numbers: ReportContents, id: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the report, as dicts by column."""
    (report_table,) = (report_table for report_table in tables(numbers) if report_table.id == id)
    return [dict(zip(report_table.columns, line, strict=True)) for line in report_table.rows]


def number(value: float | None) -> float:
    """Return a value that is not missing."""
    assert value is not None
    return value


def feasible(rows: Sequence[ReportRow]) -> list[ReportRow]:
    return [row for row in rows if row.point_status is PointStatus.FEASIBLE]


def many(sizes: int, loads: int, seeds: int, solvers: int, starts: int) -> list[ReportRow]:
    """Return random results of solvers on a grid of problems, with traces and bounds."""
    rng = np.random.default_rng(0)
    rows = []
    for m, load, seed in itertools.product(range(10, 10 + 10 * sizes, 10), np.linspace(0.25, 4, loads), range(seeds)):
        problem = f"covariance_perceptron[m={m},n=2,f=0.2,c=0.5,load={load},ensemble=paper,seed={seed}]"
        full, symmetric = (float(theory.covariance_kappa_bar(2 * m * load, m, rsb=rsb)) for rsb in ("full", 0))
        best = float(symmetric - 0.1 + 0.05 * rng.standard_normal())
        for solver, start in itertools.product(range(solvers), range(starts)):
            common: dict[str, Any] = {
                "problem": problem,
                "solver": f"solver{solver}",
                "start": start,
                "kappa_bar_theory": full,
                "kappa_bar_rs": symmetric,
            }
            common["formulation"] = (None, "epigraph", "min_norm")[solver % 3]
            if rng.random() < 0.05:
                rows.append(lost(**common, message=f"stopped after {rng.integers(9)} steps"))
                continue
            value = float(best - abs(rng.standard_normal()) * 0.05 * solver)
            seconds = float(rng.lognormal()) * m**1.5 / 100 * (1 + solver)
            trace = tuple((seconds * k / 10, value - 0.5 + 0.05 * k) for k in range(1, 10))
            facts: dict[str, Any] = {
                "kappa_bar": value,
                "solve_seconds": seconds,
                "trace": trace,
                "iterations": int(seconds * 100),
            }
            facts |= {"violation": 1e-9, "objective": value / 2, "peak_memory_bytes": 10**8, "build_seconds": m / 1e4}
            rows.append(row(**common, **facts, bound=best / 2 + 0.1 if solver == 0 else None))
    return rows
