"""Run the comparison of docs/results/comparison.md and print its table. Stored runs are not repeated.

python docs/comparison.py run [SOLVER…]     make the missing runs, one at a time, with a time limit of 120 s each
python docs/comparison.py table             print the table in Markdown
python docs/comparison.py default FILE      print the table of docs/reference/solvers.md from a run of the suite default
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from statistics import mean, median

import qcqpbench
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Termination
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.run_spec import RunOptions, random_start
from qcqpbench.theory import covariance_kappa_bar

RESULTS = Path(__file__).parent / "results" / "comparison.jsonl"
TIME_LIMIT_SECONDS = 120.0
LOADS = (0.5, 1, 2, 3)
# Factor from a margin to κ̄ for patterns of density 0.2 and size 0.5.
SCALE = 1 / (0.5 * 0.2**0.5)
SEEDS = (0, 1, 2)
SOLVERS = {
    "ipopt[formulation=epigraph]": SEEDS,
    "ipopt[formulation=min_norm]": SEEDS,
    "soft_margin": SEEDS,
    "soft_margin[eta_max=1000]": SEEDS,
    "soft_margin[method=lbfgs,eta_max=1000]": SEEDS,
    "cvxpy_alternating": SEEDS,
    "slsqp": SEEDS,
    "trust_constr": SEEDS,
    "pyomo": SEEDS[:1],
    "uno": SEEDS,
    "uno[preset=filtersqp]": SEEDS,
    "copt": SEEDS,
    "pounce": SEEDS,
    "casadi": SEEDS,
    "casadi[plugin=fatrop]": SEEDS[:1],
    "casadi[plugin=alpaqa]": SEEDS[:1],
    "casadi[plugin=sleqp]": SEEDS[:1],
    "gip": SEEDS[:1],
    "multistart": SEEDS[:1],
    "certificate": SEEDS[:1],
}
# Run at loads up to 1 only. The licence of gurobipy allows 200 variables: the epigraph form has 201.
GLOBAL_SOLVERS = {
    "sdr": SEEDS[:1],
    "branch_and_bound": SEEDS[:1],
    "scip": SEEDS[:1],
    "gurobi[formulation=min_norm]": SEEDS[:1],
    "copt[nonconvex=true]": SEEDS[:1],
}


@dataclass(frozen=True)
class Run:
    """Values of a line of the results file that the table needs."""

    label: str
    load: float
    seed: int
    termination: Termination
    kappa_bar: float | None
    bound: float | None
    solve_seconds: float | None

    @classmethod
    def from_json(cls, line: str) -> "Run":
        """Return the run in a line of the results file."""
        record = json.loads(line)
        record["termination"] = Termination.stored(record["termination"])
        return cls(**{field.name: record[field.name] for field in fields(cls)})


def read_runs() -> list[Run]:
    """Return the runs in the results file, or an empty list if the file does not exist."""
    return [Run.from_json(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(chosen: list[str]) -> None:
    """Make the missing runs of the `chosen` solvers (all by default) and append them to the results file."""
    done = {(run.label, run.load, run.seed) for run in read_runs()}
    seeds = SOLVERS | GLOBAL_SOLVERS
    options = RunOptions(time_limit=TIME_LIMIT_SECONDS)
    with Worker() as worker:
        for load in LOADS:
            for label in chosen or seeds:
                for seed in seeds[label]:
                    if (label, load, seed) in done or (label in GLOBAL_SOLVERS and load > 1):
                        continue
                    task = qcqpbench.problem(f"covariance_perceptron[m=100,load={load},seed={seed}]")
                    attempt = worker.attempt(task, solver(label), random_start(task), options).attempt
                    record = {"label": label, "load": load, "seed": seed} | attempt.record()
                    del record["point"]
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(record) + "\n")
                    print(label, load, seed, attempt.termination, attempt.kappa_bar, attempt.solve_seconds, flush=True)


def table() -> None:
    """Print the table in Markdown."""
    runs = read_runs()
    print("| solver |", " | ".join(f"P̂ = {load}" for load in LOADS), "|")
    print("|---|" + "---|" * len(LOADS))
    for name, rsb in (("theory (full RSB, m → ∞)", "full"), ("replica symmetry (paper, m → ∞)", 0)):
        margins = (covariance_kappa_bar(2 * float(load), 1, rsb=rsb) for load in LOADS)
        print(f"| {name} |", " | ".join(f"{margin:.3f}" for margin in margins), "|")
    for label in SOLVERS | GLOBAL_SOLVERS:
        cells = []
        for load in LOADS:
            of_cell = [run for run in runs if run.label == label and run.load == load]
            cells.append(cell(of_cell) if of_cell else "–")
        print(f"| `{label}` |", " | ".join(cells), "|")


def cell(runs: Sequence[Run]) -> str:
    """Return the margins of the runs, their bounds, mean time, and the number of runs with each unsuccessful end."""
    margins = " ".join("–" if run.kappa_bar is None else f"{run.kappa_bar:.3f}" for run in runs)
    seconds = mean(run.solve_seconds or TIME_LIMIT_SECONDS for run in runs)
    successes = Termination.LOCALLY_OPTIMAL, Termination.OPTIMAL, Termination.FINISHED
    ended = [str(run.termination) for run in runs if run.termination not in successes]
    remark = "".join(f"; {ended.count(status)}× {status}" for status in sorted(set(ended)))
    bounds = "".join(f"; bound {run.bound * SCALE:.3f}" for run in runs if run.bound is not None)
    return f"{margins}{bounds}; {seconds:.1f} s{remark}"


def default_table(path: str) -> None:
    """Print a table of the results `path` of the suite `default`: a line for each solver, tasks with m = 20."""
    rows = [row for row in qcqpbench.Results.open(path).rows() if row.problem_parameters["m"] == 20]
    best = {row.problem_id: max(r.margin or -inf for r in rows if r.problem_id == row.problem_id) for row in rows}
    print("| solver | κ̄ at P̂ = 0.5, 1, 2, 3 | best point | median s | proved | bound on κ̄ at P̂ = 0.5, 1, 2, 3 |")
    print("|---|---|---|---|---|---|")
    for label in dict.fromkeys(_label(row) for row in rows):
        of_solver = [row for row in rows if _label(row) == label and row.termination is not Termination.SKIPPED]
        reached = sum(_is_best(row, best[row.problem_id]) for row in of_solver)
        proved = sum(row.termination is Termination.OPTIMAL for row in of_solver)
        by_load = [[row for row in of_solver if f"load={float(load)}," in row.problem] for load in LOADS]
        margins = [[row.kappa_bar for row in group if row.kappa_bar is not None] for group in by_load]
        bounds = [[row.bound * SCALE for row in group if row.bound is not None] for group in by_load]
        cells = (
            " ".join(f"{mean(group):.3f}" if group else "–" for group in margins),
            f"{reached} of {len(of_solver)}",
            f"{median(row.solve_seconds or 0.0 for row in of_solver):.2g}",
            str(proved or ""),
            " ".join(f"{mean(group):.3f}" for group in bounds if group),
        )
        print(f"| `{label}` |", " | ".join(cells), "|")


def _label(row: qcqpbench.Row) -> str:
    is_variant = row.solver_name == "ipopt" and "min_norm" in row.solver
    return "ipopt[formulation=min_norm]" if is_variant else row.solver_name


def _is_best(row: qcqpbench.Row, best: float) -> bool:
    """Return whether a run found the best margin of its problem in the file, to a ten-thousandth."""
    return row.margin is not None and row.margin >= best - 1e-4 * max(abs(best), 1e-2)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", *chosen]:
            run(chosen)
        case ["table"]:
            table()
        case ["default", path]:
            default_table(path)
        case _:
            sys.exit(__doc__)
