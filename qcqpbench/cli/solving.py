"""solve, certify, check: one problem or one solver at a time."""

import argparse
import itertools
import json
import math
import sys
from typing import Any

from qcqpbench.catalog.status import Scope
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.run.attempt import Attempt, certify, check_accepts, random_start
from qcqpbench.run.conformance import check_solver
from qcqpbench.run.isolation.worker import Worker, solver_facts
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE

from .common import DONE, FAILED, cell, problem_of, width


def add_commands(commands: Any) -> None:
    command = commands.add_parser("solve", help="run a solver on one problem and verify what it returns")
    command.add_argument(
        "problem", metavar="PROBLEM", help="a spec such as covariance_perceptron[m=100,load=1], or a file"
    )
    command.add_argument("-s", "--solver", action="append", required=True, help="a solver's spec; may be repeated")
    command.add_argument("-r", "--starts", type=int, default=1, help="number of random starts (1)")
    command.add_argument(
        "--timeout", type=float, default=math.inf, metavar="S", help="seconds a run may take (no limit)"
    )
    command.add_argument(
        "--tolerance",
        type=float,
        default=FEASIBILITY_TOLERANCE,
        metavar="T",
        help=f"relative violation up to which a point is feasible ({FEASIBILITY_TOLERANCE:g})",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_solve)

    command = commands.add_parser("certify", help="solve a task and prove how good the point is")
    command.add_argument(
        "problem", metavar="PROBLEM", help="a spec such as covariance_perceptron[m=100,load=0.1], or a file"
    )
    command.add_argument("-s", "--solver", default="gip", help="what finds the point (gip)")
    command.add_argument(
        "--timeout", type=float, default=math.inf, metavar="S", help="seconds for each of the two parts"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_certify)

    command = commands.add_parser("check", help="test a solver on problems with known answers")
    command.add_argument("solver", metavar="SOLVER", help="a solver's spec")
    command.set_defaults(command=_check)


def _solve(options: argparse.Namespace) -> int:
    require(options.starts >= 1, f"-r {options.starts} is not allowed; right is at least one start")
    require(options.timeout > 0, f"--timeout {options.timeout} is not allowed; right is a positive number of seconds")
    require(options.tolerance >= 0, f"--tolerance must be 0 or more, got {options.tolerance}")
    task = problem_of(options.problem)
    chosen = [(spec, solver_facts(spec)) for spec in options.solver]
    for _, facts in chosen:
        check_accepts(facts, task)
    attempts: list[Attempt] = []
    values = ["margin", "kappa_bar", "kappa_bar_theory"] if isinstance(task, MaxMargin) else ["objective"]
    if isinstance(task, MaxMargin) and task.held_out is not None:
        values.append("test_accuracy")
    values += ["best_known"] if task.metadata.best_known else []
    proofs = ["bound", "gap"] if any(each.scope is not Scope.LOCAL for _, each in chosen) else []
    columns = ["start", "termination", "point_status", *values, *proofs, "violation", "overlap", "iterations"]
    columns += ["build_seconds", "solve_seconds"]
    wide = max(map(len, ["solver", *options.solver]))
    if not options.json:
        print(f"{'solver':<{wide}}", *(f"{name:>{width(name)}}" for name in columns))
    try:
        with Worker() as worker:
            for (spec, facts), number in itertools.product(chosen, range(options.starts)):
                isolated = worker.attempt(
                    task, facts.spec, random_start(task, number), options.timeout, tolerance=options.tolerance
                )
                attempt = isolated.attempt
                attempts.append(attempt)
                if not options.json:
                    row = attempt.record() | {"start": number}
                    print(f"{spec:<{wide}}", *(f"{cell(row[name]):>{width(name)}}" for name in columns))
                    if attempt.point is None:
                        print(f"  {attempt.message or attempt.termination.message}")
                    sys.stdout.flush()
    finally:
        if options.json:
            print(json.dumps([attempt.record() for attempt in attempts], indent=2))
    return DONE if any(attempt.point is not None for attempt in attempts) else FAILED


def _certify(options: argparse.Namespace) -> int:
    task = problem_of(options.problem)
    if not isinstance(task, MaxMargin):
        raise QcqpbenchError(f"{options.problem} is a general QCQP; certificates are for max-margin tasks")
    proof = certify(task, options.solver, options.timeout)
    names = ("bound", "margin", "gap", "proved_optimal", "iterations", "seconds")
    record = {name: getattr(proof, name) for name in names}
    if options.json:
        print(json.dumps(record, indent=2))
        return DONE
    for name, value in record.items():
        print(f"{name:<15} {cell(value)}")
    return DONE


def _check(options: argparse.Namespace) -> int:
    outcomes = check_solver(options.solver)
    for outcome in outcomes:
        print("ok    " if outcome.passed else "FAILED", ": ".join(filter(None, [outcome.case, outcome.message])))
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"{options.solver}: {len(outcomes) - failed} passed, {failed} failed")
    return FAILED if failed else DONE
