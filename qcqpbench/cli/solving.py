"""Commands `solve`, `certify` and `check` for a single problem or solver."""

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterable
from typing import Any

from qcqpbench.catalog.solver import SolverFacts
from qcqpbench.catalog.status import Scope
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import Attempt, certify_attempt, check_accepts, random_start
from qcqpbench.run.conformance import check_solver
from qcqpbench.run.isolation.description import problem_apart, solver_facts
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE

from .common import DONE, FAILED, align, cell, width


def add_commands(commands: Any) -> None:
    """Add the commands `solve`, `certify` and `check` to the subparsers `commands`."""
    command = commands.add_parser("solve", help="run solvers on one problem and verify their points")
    command.add_argument(
        "problem", metavar="PROBLEM", help="a spec such as covariance_perceptron[m=100,load=1], or a file"
    )
    command.add_argument("-s", "--solver", action="append", required=True, help="a solver's spec; may be repeated")
    command.add_argument("-r", "--starts", type=int, default=1, help="number of random starts (default: 1)")
    command.add_argument(
        "--timeout", type=float, default=math.inf, metavar="S", help="time limit of a run in seconds (default: none)"
    )
    command.add_argument(
        "--tolerance",
        type=float,
        default=FEASIBILITY_TOLERANCE,
        metavar="T",
        help=f"relative feasibility tolerance (default: {FEASIBILITY_TOLERANCE:g})",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_solve)

    command = commands.add_parser("certify", help="solve a task and prove an upper bound on its margin")
    command.add_argument(
        "problem", metavar="PROBLEM", help="a spec such as covariance_perceptron[m=100,load=0.1], or a file"
    )
    command.add_argument("-s", "--solver", default="gip", help="the solver that finds the point (default: gip)")
    command.add_argument(
        "--timeout",
        type=float,
        default=math.inf,
        metavar="S",
        help="time limit in seconds of the solver, and again of the search for the bound (default: none)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_certify)

    command = commands.add_parser("check", help="test a solver on problems with known answers")
    command.add_argument("solver", metavar="SOLVER", help="a solver's spec")
    command.set_defaults(command=_check)


def _solve(options: argparse.Namespace) -> int:
    require(options.starts >= 1, f"-r must be at least 1, got {options.starts}")
    require(options.timeout > 0, f"--timeout must be a positive number of seconds, got {options.timeout}")
    finite_tolerance = 0 <= options.tolerance < math.inf
    require(finite_tolerance, f"--tolerance must be a finite number, 0 or more, got {options.tolerance}")
    problem = problem_apart(options.problem)
    solvers = [(text, solver_facts(text)) for text in options.solver]
    for _, facts in solvers:
        check_accepts(facts, problem)
    columns = _columns(problem, [facts for _, facts in solvers])
    widths = [max(map(len, ["solver", *options.solver])), *map(width, columns)]
    attempts: list[Attempt] = []
    if not options.json:
        print(*align([["solver", *columns]], widths=widths))
    try:
        with Worker() as worker:
            for (text, facts), number in itertools.product(solvers, range(options.starts)):
                start = random_start(problem, number)
                isolated = worker.attempt(problem, facts.spec, start, options.timeout, tolerance=options.tolerance)
                attempts.append(isolated.attempt)
                if not options.json:
                    _print_attempt(text, number, isolated.attempt, columns, widths)
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


def _print_attempt(solver: str, start: int, attempt: Attempt, columns: list[str], widths: list[int]) -> None:
    row = attempt.record() | {"start": start}
    print(*align([[solver, *(cell(row[name]) for name in columns)]], widths=widths))
    if attempt.point is None:
        print(f"  {attempt.message or attempt.termination.message}")
    sys.stdout.flush()


def _certify(options: argparse.Namespace) -> int:
    task = problem_apart(options.problem)
    if not isinstance(task, MaxMargin):
        raise QcqpbenchError(f"PROBLEM must be a max-margin task, got the general QCQP {options.problem}")
    with Worker() as worker:
        attempt = worker.attempt(task, options.solver, time_limit=options.timeout).attempt
    certificate = certify_attempt(task, attempt, options.timeout)
    names = ("bound", "margin", "gap", "proved_optimal", "iterations", "seconds")
    record = {name: getattr(certificate, name) for name in names}
    if options.json:
        print(json.dumps(record, indent=2))
    else:
        print("\n".join(align([[name, cell(value)] for name, value in record.items()], left=(0, 1))))
    return DONE


def _check(options: argparse.Namespace) -> int:
    checks = check_solver(options.solver)
    for check in checks:
        print("ok    " if check.passed else "FAILED", ": ".join(filter(None, [check.case, check.message])))
    failed = sum(not check.passed for check in checks)
    print(f"{options.solver}: {len(checks) - failed} passed, {failed} failed")
    return FAILED if failed else DONE
