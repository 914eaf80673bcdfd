"""The command line: parses, calls the package, prints."""

import argparse
import itertools
import json
import math
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from . import __version__, theory
from .attempt import Attempt, blank, certify, random_start
from .conformance import check_solver
from .errors import QcqpbenchError, require
from .formats import FORMATS, read, write
from .formulations import FORMULATIONS, formulation
from .isolate import Worker
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .registry import families, problem, solver, solvers
from .solver import Solver
from .spec import describe, parameters_of, spell
from .status import Availability, Scope

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise QcqpbenchError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 a run or a check failed, 2 wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    warnings.formatwarning = lambda message, *_, **__: f"qcqpbench: {message}\n"
    try:
        options = _parser().parse_args(words)
        code: int = options.command(options)
        sys.stdout.flush()
    except QcqpbenchError as error:
        if "--debug" in words:
            raise
        print(f"qcqpbench: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("qcqpbench: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has left; let the interpreter's last flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"qcqpbench: {error.strerror or error}", file=sys.stderr)
        return FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="qcqpbench", description="Benchmarks of QCQP solvers on problems whose answer theory predicts."
    )
    parser.add_argument("--version", action="version", version=f"qcqpbench {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("list", help="what there is: problems, solvers")
    command.add_argument("what", choices=["problems", "solvers"])
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_list)

    command = commands.add_parser("theory", help="the margin a load allows, the load a margin allows")
    given = command.add_mutually_exclusive_group()
    given.add_argument("--load", type=float, nargs="+", help="patterns per synapse, P̂ = p/(nm)")
    given.add_argument("--p", type=float, nargs="+", help="numbers of patterns")
    given.add_argument("--kappa-bar", type=float, nargs="+", help="rescaled margins")
    command.add_argument("--m", type=int, default=100, help="inputs (100)")
    command.add_argument("--n", type=int, help="outputs (2; classical: 1)")
    command.add_argument("--f", type=float, default=1.0, help="sparseness of the patterns, for the information (1)")
    command.add_argument("--classical", action="store_true", help="n classical perceptrons on means instead")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_theory)

    command = commands.add_parser("solve", help="run a solver on one problem and verify what it returns")
    command.add_argument(
        "problem", metavar="PROBLEM", help="a spec such as covariance_perceptron[m=100,load=1], or a file"
    )
    command.add_argument("-s", "--solver", action="append", required=True, help="a solver's spec; may be repeated")
    command.add_argument("-r", "--starts", type=int, default=1, help="number of random starts (1)")
    command.add_argument(
        "--timeout", type=float, default=math.inf, metavar="S", help="seconds a run may take (no limit)"
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

    command = commands.add_parser("convert", help="write a problem to a file")
    command.add_argument("source", metavar="IN", help="a spec such as covariance_perceptron[m=100,load=1], or a file")
    command.add_argument("target", metavar="OUT", help=f"a file: {', '.join(FORMATS)}")
    command.add_argument("--formulation", choices=list(FORMULATIONS), help="write the task as this QCQP")
    command.set_defaults(command=_convert)
    return parser


def _list(options: argparse.Namespace) -> int:
    rows = [_describe_solver(kind) for kind in solvers().values()] if options.what == "solvers" else []
    if options.what == "problems":
        rows = [
            {"name": name, "about": _about(kind), "parameters": _parameters(kind)} for name, kind in families().items()
        ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return DONE
    for row in rows:
        print(row.pop("name"))
        parameters = row.pop("parameters")
        for key, value in row.items():
            print(f"  {key:<11} {value}")
        for number, (key, parameter) in enumerate(parameters.items()):
            default = "" if parameter["default"] is None else f" = {parameter['default']}"
            print(f"  {'' if number else 'parameters':<11} {key}{default} ({parameter['is']})")
    return DONE


def _describe_solver(kind: type[Solver]) -> dict[str, Any]:
    solver = kind()
    status, reason = solver.availability()
    available = status is Availability.AVAILABLE
    return {
        "name": kind.name,
        "drives": kind.drives,
        "version": solver.version() if available else f"{status}: {reason}",
        "scope": f"{kind.scope}: {kind.scope.message}",
        "accepts": "QCQP, MaxMargin" if kind.accepts is QCQP else "MaxMargin",
        "citation": kind.citation,
        "parameters": _parameters(kind),
    }


def _about(kind: type) -> str:
    return (sys.modules[kind.__module__].__doc__ or "").strip()


def _parameters(kind: type) -> dict[str, dict[str, Any]]:
    return {field.name: {"is": describe(hint), "default": field.default} for field, hint in parameters_of(kind)}


def _solve(options: argparse.Namespace) -> int:
    require(options.starts >= 1, f"-r {options.starts} is not allowed; right is at least one start")
    require(options.timeout > 0, f"--timeout {options.timeout} is not allowed; right is a positive number of seconds")
    task = _problem(options.problem)
    chosen = [(spec, solver(spec)) for spec in options.solver]
    for _, each in chosen:
        blank(task, each)
    attempts: list[Attempt] = []
    values = ["margin", "kappa_bar", "kappa_bar_theory"] if isinstance(task, MaxMargin) else ["objective"]
    proofs = ["bound", "gap"] if any(each.scope is not Scope.LOCAL for _, each in chosen) else []
    columns = ["start", "termination", "point_status", *values, *proofs, "violation", "overlap", "iterations"]
    columns += ["build_seconds", "solve_seconds"]
    width = max(map(len, ["solver", *options.solver]))
    if not options.json:
        print(f"{'solver':<{width}}", *(f"{name:>{_width(name)}}" for name in columns))
    try:
        with Worker() as worker:
            for (spec, each), number in itertools.product(chosen, range(options.starts)):
                attempt = worker.attempt(task, each, random_start(task, number), options.timeout).attempt
                attempts.append(attempt)
                if not options.json:
                    row = attempt.record() | {"start": number}
                    print(f"{spec:<{width}}", *(f"{_cell(row[name]):>{_width(name)}}" for name in columns))
                    if attempt.point is None:
                        print(f"  {attempt.message or attempt.termination.message}")
                    sys.stdout.flush()
    finally:
        if options.json:
            print(json.dumps([attempt.record() for attempt in attempts], indent=2))
    return DONE if any(attempt.point is not None for attempt in attempts) else FAILED


def _width(column: str) -> int:
    return max(len(column), {"termination": 18}.get(column, 8))


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def _certify(options: argparse.Namespace) -> int:
    task = _problem(options.problem)
    if not isinstance(task, MaxMargin):
        raise QcqpbenchError(f"{options.problem} is a general QCQP; certificates are for max-margin tasks")
    proof = certify(task, options.solver, options.timeout)
    names = ("bound", "margin", "gap", "proved_optimal", "iterations", "seconds")
    record = {name: getattr(proof, name) for name in names}
    if options.json:
        print(json.dumps(record, indent=2))
        return DONE
    for name, value in record.items():
        print(f"{name:<15} {_cell(value)}")
    return DONE


def _check(options: argparse.Namespace) -> int:
    outcomes = check_solver(options.solver)
    for outcome in outcomes:
        print("ok    " if outcome.passed else "FAILED", ": ".join(filter(None, [outcome.case, outcome.message])))
    failed = sum(not outcome.passed for outcome in outcomes)
    print(f"{options.solver}: {len(outcomes) - failed} passed, {failed} failed")
    return FAILED if failed else DONE


def _theory(options: argparse.Namespace) -> int:
    m, n = options.m, (1 if options.classical else 2) if options.n is None else options.n
    for name, value in (("m", m), ("n", n)):
        require(value >= 1, f"{name}={value} is not allowed; right is at least 1")
    synapses = n * m
    if options.kappa_bar:
        kappa_bar = np.array(options.kappa_bar)
        p = (
            theory.classical_capacity(kappa_bar, m)
            if options.classical
            else theory.covariance_capacity(kappa_bar, m, n)
        )
    else:
        for value in options.load or ():
            require(0 < value < math.inf, f"--load {value} is not allowed; right is a positive number")
        loads = options.load or [0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
        p = np.array(options.p) if options.p else np.array(loads) * synapses
        kappa_bar = theory.classical_kappa_bar(p, m) if options.classical else theory.covariance_kappa_bar(p, m, n)
    bits = m + n if options.classical else theory.covariance_pattern_bits(m, n, options.f)
    information = p * bits
    columns = {
        "load": theory.per_synapse(p, m, n),
        "p": p,
        "kappa_bar_theory": kappa_bar,
        "information": information,
        "information_per_synapse": theory.per_synapse(information, m, n),
    }
    if options.json:
        finite = [[float(value) if np.isfinite(value) else None for value in column] for column in columns.values()]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*finite, strict=True)]
        print(json.dumps(rows, indent=2))
        return DONE
    print(f"{'classical' if options.classical else 'covariance'} perceptron, m={m}, n={n}; information in bits")
    print(" ".join(f"{name:>16}" for name in columns))
    for row in zip(*columns.values(), strict=True):
        print(" ".join(f"{value:>16.6g}" for value in row))
    return DONE


def _convert(options: argparse.Namespace) -> int:
    source = _problem(options.source)
    if options.formulation:
        require(
            isinstance(source, MaxMargin),
            f"{options.source} is a QCQP already; a formulation is for a max-margin task",
        )
        assert isinstance(source, MaxMargin)
        source = formulation(options.formulation).encode(source)
    write(source, options.target)
    print(f"{options.target}: {_summary(source)}")
    return DONE


def _problem(text: str) -> MaxMargin | QCQP:
    """A problem from a spec or a file: what has a known file suffix is a file."""
    return read(text) if text.endswith(tuple(FORMATS)) and "[" not in text else problem(text)


def _summary(source: MaxMargin | QCQP) -> str:
    if isinstance(source, MaxMargin):
        facts: dict[str, Any] = {
            "p": source.p,
            "m": source.m,
            "n": source.n,
            "smallest_eigenvalue": f"{source.smallest_eigenvalue:.6g}",
        }
        return f"{spell('MaxMargin', facts)} id {source.id}"
    facts = {
        "variables": source.n_variables,
        "constraints": source.n_constraints,
        "nonzeros": source.quadratic.nnz,
    }
    return f"{spell('QCQP', facts)} id {source.id}"
