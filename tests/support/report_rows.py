"""Synthetic rows for tests of reports, with all columns of a results file."""

import hashlib
import itertools
from typing import Any

import numpy as np

from qcqpbench import theory
from qcqpbench.analysis.report.numbers.sources import Results
from qcqpbench.analysis.report.numbers.tables import tables
from qcqpbench.results.store import COLUMNS

Row = dict[str, Any]
MACHINE = {"cpu": "a CPU", "python": "3.11", "packages": {"numpy": "2.0", "nothing": None}, "thread_variables": {}}


def row(problem: str = "covariance_perceptron[m=10,n=2,load=1.0,seed=0]", solver: str = "a", **changes: Any) -> Row:
    """Return a successful run; kappa_bar is twice the margin."""
    columns: Row = dict.fromkeys(COLUMNS)
    columns |= {"problem": problem, "problem_id": hashlib.sha256(problem.encode()).hexdigest(), "solver": solver}
    columns |= {"label": solver, "version": "1", "start": 0, "seed": 0, "threads": 1, "time_limit": 10.0, "message": ""}
    columns |= {"problem_label": problem}
    columns |= {"termination": "locally_optimal", "point_status": "feasible", "begun": 0.0, "machine": 0}
    columns |= {"build_seconds": 0.5, "solve_seconds": 1.0, "margin": 0.5, "kappa_bar": 1.0}
    columns |= changes
    if "kappa_bar" in changes and "margin" not in changes and columns["kappa_bar"] is not None:
        columns["margin"] = columns["kappa_bar"] / 2
    return columns


def lost(**changes: Any) -> Row:
    """Return a run without a point."""
    columns = {"point_status": "none", "margin": None, "kappa_bar": None, "termination": "time_limit"}
    return row(**{**columns, "solve_seconds": None, **changes})


def general(problem: str = "a.qplib", solver: str = "a", objective: float | None = 1.0, **changes: Any) -> Row:
    """Return a run on a general QCQP that is minimized; without an objective, a run without a point."""
    columns: Row = {"margin": None, "kappa_bar": None, "objective": objective, "sense": "minimize", "variables": 3}
    columns |= {"constraints": 2, "violation": 0.0, "relative_violation": 0.0}
    if objective is None:
        columns |= {"point_status": "none", "termination": "time_limit", "violation": None, "relative_violation": None}
    return row(problem, solver, **(columns | changes))


def results(rows: list[Row], micro: list[dict[str, Any]] | None = None) -> Results:
    return Results(("made.db",), rows, [{"facts": MACHINE, "commands": ["qcqpbench run"]}], micro or [])


def table(numbers: dict[str, Any], id: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the report, as dicts by column."""
    (report_table,) = (report_table for report_table in tables(numbers) if report_table.id == id)
    return [dict(zip(report_table.columns, line, strict=True)) for line in report_table.rows]


def feasible(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["point_status"] == "feasible"]


def many(sizes: int, loads: int, seeds: int, solvers: int, starts: int) -> list[Row]:
    """Return random results of solvers on a grid of problems, with traces and bounds."""
    rng = np.random.default_rng(0)
    rows = []
    for m, load, seed in itertools.product(range(10, 10 + 10 * sizes, 10), np.linspace(0.25, 4, loads), range(seeds)):
        problem = f"covariance_perceptron[m={m},n=2,f=0.2,c=0.5,load={load},ensemble=paper,seed={seed}]"
        predicted = float(theory.covariance_kappa_bar(2 * m * load, m))
        best = predicted - 0.1 + 0.05 * rng.standard_normal()
        for solver, start in itertools.product(range(solvers), range(starts)):
            common: Row = {
                "problem": problem,
                "solver": f"solver{solver}",
                "start": start,
                "kappa_bar_theory": predicted,
            }
            common["formulation"] = (None, "epigraph", "min_norm")[solver % 3]
            if rng.random() < 0.05:
                rows.append(lost(**common, message=f"stopped after {rng.integers(9)} steps"))
                continue
            value = best - abs(rng.standard_normal()) * 0.05 * solver
            seconds = float(rng.lognormal()) * m**1.5 / 100 * (1 + solver)
            trace = [(seconds * k / 10, value - 0.5 + 0.05 * k) for k in range(1, 10)]
            facts: Row = {
                "kappa_bar": value,
                "solve_seconds": seconds,
                "trace": trace,
                "iterations": int(seconds * 100),
            }
            facts |= {"violation": 1e-9, "objective": value / 2, "peak_memory_bytes": 10**8, "build_seconds": m / 1e4}
            rows.append(row(**common, **facts, bound=best / 2 + 0.1 if solver == 0 else None))
    return rows
