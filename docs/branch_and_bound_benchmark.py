"""Measure which tasks global solvers prove optimal within a minute.

Usage: python docs/branch_and_bound_benchmark.py run SOLVER | table | nodes

`run` solves the tasks of the grid by one of the solvers branch_and_bound, scip and gurobi, and adds a line for each to
docs/results/branch_and_bound.csv; it can be resumed. For each load and ensemble it begins with the smallest tasks, and
ends after the first size at which no task was proved optimal. `table` prints how many tasks are proved, for
docs/background/branch-and-bound.md. `nodes` prints the time of a node with compiled steps and with those in NumPy.
"""

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import csv
import sys
import time
from pathlib import Path

import qcqpbench
from qcqpbench import Budget, MaxMargin, QCQPSolver, Termination, formulation, random_start
from qcqpbench.catalog.registry import solver as named_solver
from qcqpbench.solvers._bnb_interior_point import InteriorPoint
from qcqpbench.solvers._bnb_node import Settings
from qcqpbench.solvers._bnb_relaxation import StackedRelaxation, SymmetricRelaxation
from qcqpbench.solvers._bnb_tree import Incumbent, Tree

SIZES = (6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40)
LOADS = (0.25, 0.5, 1.0, 2.0)
ENSEMBLES = ("paper", "gaussian")
SEEDS = 0, 1, 2
SOLVERS = ("branch_and_bound", "scip", "gurobi")
TIME_LIMIT_SECONDS = 60.0
# The default of branch_and_bound.
GAP = 1e-4
MEASURED_NODES = 300
OUTPUT = Path(__file__).parent / "results" / "branch_and_bound.csv"
COLUMNS = ("solver", "ensemble", "load", "m", "seed", "termination", "margin", "bound", "nodes", "cpu_seconds")


class CpuBudget(Budget):
    """Budget that counts the CPU time of this process, because other processes may use the same cores."""

    def __init__(self, time_limit: float) -> None:
        self._begin = time.process_time()
        super().__init__(time_limit)

    def seconds(self) -> float:
        return time.process_time() - self._begin


def measure(name: str, task: MaxMargin) -> dict[str, object]:
    """Run a solver on a task with one thread; return the columns of the result."""
    spec = name if name == "branch_and_bound" else f"{name}[gap={GAP}]"
    solver, start = named_solver(spec), random_start(task)
    seen: object = task
    if isinstance(solver, QCQPSolver):
        form = formulation(solver.formulation)
        seen, start = form.encode(task), form.encode_start(task, start)
    run, begin = solver.build(seen), time.process_time()
    # The clocks of other packages are their own.
    solution = run(start, CpuBudget(TIME_LIMIT_SECONDS) if name == "branch_and_bound" else Budget(TIME_LIMIT_SECONDS))
    margin = None if solution.x is None else solution.objective
    seconds = time.process_time() - begin
    columns = {"termination": str(solution.termination), "margin": margin, "bound": solution.bound}
    return columns | {"nodes": solution.iterations, "cpu_seconds": round(seconds, 3)}


def read() -> dict[tuple[str, ...], dict[str, str]]:
    """Return the measured lines by solver, ensemble, load, m and seed."""
    if not OUTPUT.exists():
        return {}
    with OUTPUT.open(encoding="utf-8", newline="") as file:
        return {tuple(line[name] for name in COLUMNS[:5]): line for line in csv.DictReader(file)}


def run(name: str) -> None:
    """Measure the tasks of the grid that are not measured yet."""
    for ensemble in ENSEMBLES:
        for load in LOADS:
            for m in SIZES:
                if not sum(is_proved(name, ensemble, load, m, seed) for seed in SEEDS):
                    break


def is_proved(name: str, ensemble: str, load: float, m: int, seed: int) -> bool:
    """Measure a task, unless it is measured already, and return whether it was proved optimal."""
    place = {"solver": name, "ensemble": ensemble, "load": load, "m": m, "seed": seed}
    line = read().get(tuple(str(value) for value in place.values()))
    if line is None:
        task = qcqpbench.problem(f"covariance_perceptron[m={m},load={load},ensemble={ensemble},seed={seed}]")
        assert isinstance(task, MaxMargin)
        columns = place | measure(name, task)
        line = {key: str(value) for key, value in columns.items()}
        is_new = not OUTPUT.exists()
        with OUTPUT.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(columns)
        print(*line.values(), flush=True)
    return line["termination"] == str(Termination.OPTIMAL)


def table() -> None:
    """Print the number of proved tasks and the CPU time of the slowest proof, by solver, size and load."""
    lines = read()
    for ensemble in ENSEMBLES:
        print(f"\n| {ensemble}: load | solver | " + " | ".join(f"m = {m}" for m in SIZES) + " |")
        print("|---|---|" + "---|" * len(SIZES))
        for load in LOADS:
            for name in SOLVERS:
                cells = [
                    _cell([lines.get((name, ensemble, str(load), str(m), str(seed))) for seed in SEEDS]) for m in SIZES
                ]
                print(f"| {load:g} | `{name}` | " + " | ".join(cells) + " |")


def nodes() -> None:
    """Print the CPU time of a node, with the interior-point method in NumPy and compiled, of the same trees."""
    print("| ensemble | m | load | steps of a node | NumPy, ms | compiled, ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for m, load in ((8, 1), (10, 1), (16, 1), (24, 1), (36, 0.5)):
        for ensemble in ENSEMBLES:
            task = qcqpbench.problem(f"covariance_perceptron[m={m},load={load},ensemble={ensemble},seed=100]")
            assert isinstance(task, MaxMargin)
            W = qcqpbench.solve(task, "gip").point
            assert W is not None
            milliseconds = []
            for is_compiled in (False, True):
                incumbent = Incumbent(task, 1e-4, Budget())
                incumbent.update(W)
                relaxation = SymmetricRelaxation(task) if ensemble == "paper" else StackedRelaxation(task)
                tree = Tree(relaxation, incumbent)
                if not is_compiled:
                    tree.solver = InteriorPoint(relaxation, Settings())
                begin = time.process_time()
                tree.run(MEASURED_NODES)
                milliseconds.append(1000 * (time.process_time() - begin) / tree.node_count)
            numpy, compiled = milliseconds
            steps = tree.step_count / tree.node_count
            print(
                f"| {ensemble} | {m} | {load:g} | {steps:.1f} | {numpy:.2f} | {compiled:.2f} | {numpy / compiled:.1f} |"
            )


def _cell(lines: list[dict[str, str] | None]) -> str:
    known = [line for line in lines if line is not None]
    if not known:
        return ""
    proved = [line for line in known if line["termination"] == str(Termination.OPTIMAL)]
    if not proved:
        return f"0 of {len(known)}"
    slowest = max(float(line["cpu_seconds"]) for line in proved)
    return f"{len(proved)} of {len(known)}, {slowest:.2g} s"


if __name__ == "__main__":
    if sys.argv[1:] == ["table"]:
        table()
    elif sys.argv[1:] == ["nodes"]:
        nodes()
    elif len(sys.argv) == 3 and sys.argv[1] == "run" and sys.argv[2] in SOLVERS:
        run(sys.argv[2])
    else:
        sys.exit(__doc__)
