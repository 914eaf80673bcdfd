"""The command line: parses, calls the package, prints."""

import argparse
import inspect
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from . import __version__, theory
from .errors import QcqpbenchError, require
from .formats import FORMATS, read, write
from .formulations import FORMULATIONS, formulation
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .registry import families, problem
from .spec import describe, parameters_of, spell

DONE, FAILED, USAGE = 0, 1, 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise QcqpbenchError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 a run or a check failed, 2 wrong usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parser().parse_args(words)
        code: int = options.command(options)
        sys.stdout.flush()
    except QcqpbenchError as error:
        if "--debug" in words:
            raise
        print(f"qcqpbench: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # The reader (head, less) has left; let the interpreter's last flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="qcqpbench", description="Benchmarks of QCQP solvers on problems whose answer theory predicts."
    )
    parser.add_argument("--version", action="version", version=f"qcqpbench {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("list", help="what there is: problems")
    command.add_argument("what", choices=["problems"])
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_list)

    command = commands.add_parser("theory", help="the margin a load allows, the load a margin allows")
    given = command.add_mutually_exclusive_group()
    given.add_argument("--load", type=float, nargs="+", help="patterns per synapse, P̂ = p/(nm)")
    given.add_argument("--p", type=float, nargs="+", help="numbers of patterns")
    given.add_argument("--kappa-bar", type=float, nargs="+", help="rescaled margins")
    command.add_argument("--m", type=int, default=100, help="inputs (100)")
    command.add_argument("--n", type=int, default=2, help="outputs (2)")
    command.add_argument("--f", type=float, default=1.0, help="sparseness of the patterns, for the information (1)")
    command.add_argument("--classical", action="store_true", help="n classical perceptrons on means instead")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_theory)

    command = commands.add_parser("convert", help="write a problem to a file")
    command.add_argument("source", metavar="IN", help="a spec such as covariance_perceptron[m=100,load=1], or a file")
    command.add_argument("target", metavar="OUT", help=f"a file: {', '.join(FORMATS)}")
    command.add_argument("--formulation", choices=list(FORMULATIONS), help="write the task as this QCQP")
    command.set_defaults(command=_convert)
    return parser


def _list(options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "about": (inspect.getmodule(kind).__doc__ or "").strip(),
            "parameters": {
                field.name: {"is": describe(hint), "default": field.default} for field, hint in parameters_of(kind)
            },
        }
        for name, kind in families().items()
    ]
    if options.json:
        print(json.dumps(rows, indent=2))
        return DONE
    for row in rows:
        print(f"{row['name']}\n  {row['about']}")
        for key, parameter in row["parameters"].items():
            default = "" if parameter["default"] is None else f" ({parameter['default']})"
            print(f"    {key:<10}{parameter['is']}{default}")
    return DONE


def _theory(options: argparse.Namespace) -> int:
    m, n = options.m, options.n
    synapses = n * m
    if options.kappa_bar:
        kappa_bar = np.array(options.kappa_bar)
        p = (
            theory.classical_capacity(kappa_bar, m)
            if options.classical
            else theory.covariance_capacity(kappa_bar, m, n)
        )
    else:
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
        rows = [dict(zip(columns, map(float, row), strict=True)) for row in zip(*columns.values(), strict=True)]
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
