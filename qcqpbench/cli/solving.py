"""Commands `solve`, `certify` and `check` for a single problem or solver."""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from qcqpbench.catalog.solver import SolverFacts
from qcqpbench.catalog.status import Scope
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import Attempt, certify_attempt, certify_attempt_globally, spec_of_objects
from qcqpbench.run.conformance import checks_of_solver, tolerance_notice
from qcqpbench.run.isolation.description import problem_apart, solver_facts
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.run_spec import RunOptions, random_start

from .common import DONE, FAILED, add_run_options, align, cell, given_run_options, width


def add_commands(commands: Any) -> None:
    """Add the commands `solve`, `certify` and `check` to the subparsers `commands`."""
    command = commands.add_parser(
        "solve",
        help="run solvers on one problem and verify their points",
        description="Run solvers on one problem, verify their points, and print a line for each run. kappa_bar is the "
        "rescaled margin; kappa_bar_theory is its prediction by the best theory, full replica-symmetry breaking, for "
        "m → ∞. --json prints all columns, including kappa_bar_rs, the prediction by replica symmetry.",
    )
    command.add_argument(
        "problem", metavar="PROBLEM", help="a spec such as covariance_perceptron[m=100,load=1], or a file"
    )
    command.add_argument("-s", "--solver", action="append", required=True, help="a solver's spec; may be repeated")
    command.add_argument("-r", "--starts", type=int, default=1, help="number of random starts (default: 1)")
    add_run_options(command, show_defaults=True)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_solve)

    command = commands.add_parser(
        "certify",
        help="solve a task and prove an upper bound on its margin",
        description="Solve a task and prove an upper bound on its margin: by the semidefinite relaxation, or with "
        "--global by branch and bound, which proves the optimum of small tasks.",
    )
    command.add_argument(
        "problem", metavar="PROBLEM", help="a spec such as covariance_perceptron[m=100,load=0.1], or a file"
    )
    command.add_argument("-s", "--solver", help="the solver that finds the point (default: gip)")
    command.add_argument(
        "--timeout",
        type=float,
        default=math.inf,
        metavar="S",
        help="time limit in seconds of the solver, and again of the search for the bound (default: none); with "
        "--global, of both together",
    )
    command.add_argument(
        "--global",
        dest="globally",
        action="store_true",
        help="search for the optimum by branch and bound, and prove it; -s must then be a solver that returns a tree "
        "(default: branch_and_bound[certificate=true])",
    )
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="with --global: write the certificate to an .npz file, which `qcqpbench best-known check` checks and "
        "`best-known update` adds to the list",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_certify)

    command = commands.add_parser(
        "check",
        help="test a solver on problems with known answers",
        description="Run a solver on small problems with known answers, and check its answers, its claims and its "
        "behaviour. The exit code is 1 if a case fails.",
    )
    command.add_argument("solver", metavar="SOLVER", help="a solver's spec")
    command.add_argument("--case", metavar="TEXT", help="run only the cases whose names contain this text")
    command.set_defaults(command=_check)


def _solve(options: argparse.Namespace) -> int:
    require(options.starts >= 1, f"-r must be at least 1, got {options.starts}")
    run_options = RunOptions(**given_run_options(options))
    problem = problem_apart(options.problem)
    solvers = [(text, solver_facts(text)) for text in options.solver]
    for _, facts in solvers:
        # Raises an error for a solver that does not accept the problem, before any solver runs.
        spec_of_objects(problem, facts, run_options)
    columns = _columns(problem, [facts for _, facts in solvers])
    widths = [max(map(len, ["solver", *options.solver])), *map(width, columns)]
    attempts: list[Attempt] = []
    if not options.json:
        print(*align([["solver", *columns]], widths=widths))
    try:
        with Worker(run_options.threads) as worker:
            for (text, facts), number in itertools.product(solvers, range(options.starts)):
                start = random_start(problem, number, run_options.start_seed)
                outcome = worker.attempt(problem, facts.spec, start, run_options)
                spec = replace(outcome.spec, problem=outcome.spec.problem or options.problem, start=number)
                attempts.append(replace(outcome.attempt, spec=spec))
                if not options.json:
                    _print_attempt(text, attempts[-1], columns, widths)
    finally:
        if options.json:
            print(json.dumps([attempt.record() for attempt in attempts], indent=2))
    return DONE if any(attempt.point is not None for attempt in attempts) else FAILED


def _columns(problem: MaxMargin | QCQP, solvers: Iterable[SolverFacts]) -> list[str]:
    """Return the names of the columns that can have values for this problem and these solvers."""
    values = ["margin", "kappa_bar", "kappa_bar_theory"] if isinstance(problem, MaxMargin) else ["objective"]
    if isinstance(problem, MaxMargin) and problem.held_out is not None:
        values.append("test_accuracy")
    values += ["best_known"] if problem.metadata.best_known else []
    bounds = ["bound", "gap"] if any(facts.scope is not Scope.LOCAL for facts in solvers) else []
    return [
        *("start", "termination", "point_status"),
        *values,
        *bounds,
        *("violation", "overlap", "iterations", "build_seconds", "solve_seconds"),
    ]


def _print_attempt(solver: str, attempt: Attempt, columns: list[str], widths: list[int]) -> None:
    record = attempt.record()
    print(*align([[solver, *(cell(record[name]) for name in columns)]], widths=widths))
    if attempt.point is None:
        print(f"  {attempt.message or attempt.termination.message}")
    sys.stdout.flush()


def _certify(options: argparse.Namespace) -> int:
    task = problem_apart(options.problem)
    if not isinstance(task, MaxMargin):
        raise QcqpbenchError(f"PROBLEM must be a max-margin task, got the general QCQP {options.problem}")
    require(options.globally or not options.output, "-o must be used with --global, got it without")
    name = options.solver or ("branch_and_bound[certificate=true]" if options.globally else "gip")
    with Worker() as worker:
        attempt = worker.attempt(task, name, options=RunOptions(time_limit=options.timeout)).attempt
    record: dict[str, Any]
    if options.globally:
        proof = certify_attempt_globally(task, attempt, options.problem)
        if options.output:
            proof.write(options.output)
        record = {name: getattr(proof, name) for name in ("bound", "margin", "gap")}
        record |= {"termination": str(attempt.termination), "leaves": len(proof.tree.bounds)}
        record |= {"iterations": attempt.iterations, "seconds": attempt.solve_seconds}
    else:
        certificate = certify_attempt(task, attempt, options.timeout)
        names = ("bound", "margin", "gap", "proved_optimal", "iterations", "seconds")
        record = {name: getattr(certificate, name) for name in names}
    if options.json:
        print(json.dumps(record, indent=2))
    else:
        print("\n".join(align([[name, cell(value)] for name, value in record.items()], left=(0, 1))))
    return DONE


def _check(options: argparse.Namespace) -> int:
    if notice := tolerance_notice(solver_facts(options.solver)):
        print(f"{options.solver} {notice}")
    passed = failed = 0
    for check in checks_of_solver(options.solver, options.case):
        passed, failed = passed + check.passed, failed + (not check.passed)
        text = ": ".join(filter(None, [check.case, check.message]))
        print("ok    " if check.passed else "FAILED", text, flush=True)
    print(f"{options.solver}: {passed} passed, {failed} failed")
    return FAILED if failed else DONE
