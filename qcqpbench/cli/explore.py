"""list, theory, convert: what there is, and what theory says of it."""

import argparse
import json
import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from qcqpbench import theory
from qcqpbench.catalog.registry import families, solver_names
from qcqpbench.catalog.spec import ParameterFacts, describe_parameters, spell
from qcqpbench.catalog.status import Availability
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.formats.by_suffix import FORMATS, write
from qcqpbench.problem.formulations import FORMULATIONS, formulation
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.isolation.worker import solver_facts
from qcqpbench.run.suite import Suite, load_suite, suites

from .common import DONE, problem_of


def add_commands(commands: Any) -> None:
    command = commands.add_parser("list", help="what there is: problems, solvers, suites")
    command.add_argument("what", choices=["problems", "solvers", "suites"])
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

    command = commands.add_parser("convert", help="write a problem to a file")
    command.add_argument("source", metavar="IN", help="a spec such as covariance_perceptron[m=100,load=1], or a file")
    command.add_argument("target", metavar="OUT", help=f"a file: {', '.join(FORMATS)}")
    command.add_argument("--formulation", choices=list(FORMULATIONS), help="write the task as this QCQP")
    command.set_defaults(command=_convert)


def _list(options: argparse.Namespace) -> int:
    rows = [_describe_solver(name) for name in solver_names()] if options.what == "solvers" else []
    if options.what == "problems":
        rows = [
            {"name": name, "about": _about(kind), "parameters": _parameters(describe_parameters(kind))}
            for name, kind in families().items()
        ]
    if options.what == "suites":
        rows = [_describe_suite(load_suite(name)) for name in suites()]
    if options.json:
        print(json.dumps(rows, indent=2))
        return DONE
    for row in rows:
        print(row.pop("name"))
        parameters = row.pop("parameters", {})
        for key, value in row.items():
            print(f"  {key:<11} {value}")
        for number, (key, parameter) in enumerate(parameters.items()):
            default = "" if parameter["default"] is None else f" = {parameter['default']}"
            print(f"  {'' if number else 'parameters':<11} {key}{default} ({parameter['is']})")
    return DONE


def _describe_solver(name: str) -> dict[str, Any]:
    try:
        facts = solver_facts(name)
    except QcqpbenchError as error:
        return {"name": name, "version": f"{Availability.NOT_INSTALLED}: {error}"}
    available = facts.availability is Availability.AVAILABLE
    return {
        "name": facts.name,
        "drives": facts.drives,
        "version": facts.version if available else f"{facts.availability}: {facts.reason}",
        "scope": f"{facts.scope}: {facts.scope.message}",
        "accepts": "QCQP, MaxMargin" if facts.takes_qcqps else "MaxMargin",
        "citation": facts.citation,
        "parameters": _parameters(facts.parameters),
    }


def _describe_suite(suite: Suite) -> dict[str, Any]:
    names = dict.fromkeys(entry.solver.name for entry in suite.entries)
    return {
        "name": suite.name,
        "about": suite.about,
        "problems": len(suite.problems),
        "solvers": ", ".join(names),
        "runs": suite.size,
    }


def _about(kind: type) -> str:
    return (sys.modules[kind.__module__].__doc__ or "").strip()


def _parameters(parameters: Iterable[ParameterFacts]) -> dict[str, dict[str, Any]]:
    return {each.name: {"is": each.type, "default": each.default} for each in parameters}


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
    source = problem_of(options.source)
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
