"""Rows made up for tests of reports, with everything a results file has of them."""

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
    """A run that ended well; kappa_bar is twice the margin."""
    made: Row = dict.fromkeys(COLUMNS)
    made |= {"problem": problem, "problem_id": hashlib.sha256(problem.encode()).hexdigest(), "solver": solver}
    made |= {"label": solver, "version": "1", "start": 0, "seed": 0, "threads": 1, "time_limit": 10.0, "message": ""}
    made |= {"problem_label": problem}
    made |= {"termination": "locally_optimal", "point_status": "feasible", "begun": 0.0, "machine": 0}
    made |= {"build_seconds": 0.5, "solve_seconds": 1.0, "margin": 0.5, "kappa_bar": 1.0}
    made |= changes
    if "kappa_bar" in changes and "margin" not in changes and made["kappa_bar"] is not None:
        made["margin"] = made["kappa_bar"] / 2
    return made


def lost(**changes: Any) -> Row:
    """A run without a point."""
    given = {"point_status": "none", "margin": None, "kappa_bar": None, "termination": "time_limit"}
    return row(**{**given, "solve_seconds": None, **changes})


def general(problem: str = "a.qplib", solver: str = "a", objective: float | None = 1.0, **changes: Any) -> Row:
    """A run on a problem that is not max-margin, to be minimized; without an objective it gave no point."""
    facts: Row = {"margin": None, "kappa_bar": None, "objective": objective, "sense": "minimize", "variables": 3}
    facts |= {"constraints": 2, "violation": 0.0, "relative_violation": 0.0}
    if objective is None:
        facts |= {"point_status": "none", "termination": "time_limit", "violation": None, "relative_violation": None}
    return row(problem, solver, **(facts | changes))


def results(rows: list[Row], micro: list[dict[str, Any]] | None = None) -> Results:
    return Results(("made.db",), rows, [{"facts": MACHINE, "commands": ["qcqpbench run"]}], micro or [])


def table(found: dict[str, Any], id: str) -> list[dict[str, Any]]:
    (wanted,) = (each for each in tables(found) if each.id == id)
    return [dict(zip(wanted.columns, line, strict=True)) for line in wanted.rows]


def feasible(rows: list[Row]) -> list[Row]:
    return [each for each in rows if each["point_status"] == "feasible"]


def many(sizes: int, loads: int, seeds: int, solvers: int, starts: int) -> list[Row]:
    """Random results of solvers on a grid of problems, with traces and bounds."""
    rng = np.random.default_rng(0)
    made = []
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
                made.append(lost(**common, message=f"stopped after {rng.integers(9)} steps"))
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
            made.append(row(**common, **facts, bound=best / 2 + 0.1 if solver == 0 else None))
    return made
