"""Run the comparison of docs/comparison.md and print its table. Runs that are in the results file are not repeated.

python docs/comparison.py run [SOLVER…]     make the missing runs, one at a time, with a time limit of 120 s each
python docs/comparison.py table             print the table in Markdown
"""

import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import qcqpbench
from qcqpbench.catalog.registry import solver
from qcqpbench.run.attempt import random_start
from qcqpbench.run.isolation.worker import Worker

RESULTS = Path(__file__).parent / "results" / "comparison.jsonl"
TIME_LIMIT_SECONDS = 120.0
LOADS = (0.5, 1, 2, 3)
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
}


def read_rows() -> list[dict[str, Any]]:
    """Return the rows of the results file, or an empty list if the file does not exist."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(chosen: list[str]) -> None:
    """Make the missing runs of the `chosen` solvers (all by default) and append them to the results file."""
    done = {(row["label"], row["load"], row["seed"]) for row in read_rows()}
    with Worker() as worker:
        for load in LOADS:
            for label in chosen or SOLVERS:
                for seed in SOLVERS[label]:
                    if (label, load, seed) in done:
                        continue
                    task = qcqpbench.problem(f"covariance_perceptron[m=100,load={load},seed={seed}]")
                    attempt = worker.attempt(task, solver(label), random_start(task), TIME_LIMIT_SECONDS).attempt
                    row = {"label": label, "load": load, "seed": seed} | attempt.record()
                    del row["point"]
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(label, load, seed, attempt.termination, attempt.kappa_bar, attempt.solve_seconds, flush=True)


def table() -> None:
    """Print the table in Markdown."""
    rows = read_rows()
    theory = {row["load"]: row["kappa_bar_theory"] for row in rows}
    print("| solver |", " | ".join(f"P̂ = {load}" for load in LOADS), "|")
    print("|---|" + "---|" * len(LOADS))
    print("| theory (m → ∞) |", " | ".join(f"{theory[load]:.3f}" for load in LOADS), "|")
    for label in SOLVERS:
        cells = []
        for load in LOADS:
            runs = [row for row in rows if row["label"] == label and row["load"] == load]
            cells.append(cell(runs) if runs else "–")
        print(f"| `{label}` |", " | ".join(cells), "|")


def cell(runs: list[dict[str, Any]]) -> str:
    """Return the margins of the runs, their mean time, and the number of runs with each termination but success."""
    margins = " ".join("–" if row["kappa_bar"] is None else f"{row['kappa_bar']:.3f}" for row in runs)
    seconds = mean(row["solve_seconds"] or TIME_LIMIT_SECONDS for row in runs)
    ended = [row["termination"] for row in runs if row["termination"] not in ("locally_optimal", "finished")]
    remark = "".join(f"; {ended.count(status)}× {status}" for status in sorted(set(ended)))
    return f"{margins}; {seconds:.1f} s{remark}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", *chosen]:
            run(chosen)
        case ["table"]:
            table()
        case _:
            sys.exit(__doc__)
