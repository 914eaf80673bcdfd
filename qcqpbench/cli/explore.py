"""Commands `list`, `theory` and `convert`: show the catalog and predictions of theory, and write problem files."""

import argparse
import contextlib
import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench import theory
from qcqpbench.catalog.registry import family_names, solver_names
from qcqpbench.catalog.spec import ParameterFacts, ParameterValue, spell
from qcqpbench.catalog.status import Availability
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.formats.by_suffix import FORMATS, write
from qcqpbench.problem.formulations import FORMULATIONS, formulation
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.isolation.description import family_facts, problem_apart, solver_facts
from qcqpbench.run.suite import Suite
from qcqpbench.run.suite_file import load_suite, suites
from qcqpbench.theory.broken_symmetry import one_step_margin
from qcqpbench.theory.closed_forms import one_step

from .common import DONE, align

_DEFAULT_LOADS = (0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4)
# The exponent s of the kernel q^s of covariances, see `theory.closed_forms`.
_COVARIANCE_POWER = 2
_RS, _FULL = "replica symmetry, the paper's prediction", "full replica-symmetry breaking (RSB), the best theory"
# One step with a free q_0 takes half a second per load; up to a load of 4 its margin is at most 0.002 smaller.
_ONE_STEP = "one step of RSB in closed form, with q_0 = 0"
_MARGIN_LEGEND = {"kappa_bar_rs": _RS, "kappa_bar_1rsb_q0": _ONE_STEP, "kappa_bar_theory": _FULL}
_CAPACITY_LEGEND = {"load_rs, p_rs": _RS, "load_1rsb_q0, p_1rsb_q0": _ONE_STEP, "load, p": _FULL}
_COMMON_LEGEND = {
    "active_share": "number of stabilities equal to the margin, per weight; full RSB",
    "kappa_at": "margin up to which the weights of that margin are one ergodic component",
}


def add_commands(commands: Any) -> None:
    """Add the commands `list`, `theory` and `convert` to the subparsers `commands`."""
    command = commands.add_parser("list", help="list the problems, solvers or suites with their parameters")
    command.add_argument("what", choices=["problems", "solvers", "suites"], help="kind of entries to list")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_list)

    command = commands.add_parser(
        "theory",
        help="print the margin that theory predicts for a load, or the load for a margin",
        description="Print the largest margin κ̄ at a load, or the load at a margin, as predicted by replica symmetry "
        "(the paper), by one step of replica-symmetry breaking (RSB), and by full RSB, the best theory there is.",
    )
    argument = command.add_mutually_exclusive_group()
    argument.add_argument("--load", type=float, nargs="+", help="loads: patterns per synapse, P̂ = p/(nm)")
    argument.add_argument("--p", type=float, nargs="+", help="numbers of patterns")
    argument.add_argument("--kappa-bar", type=float, nargs="+", help="rescaled margins κ̄")
    command.add_argument("--m", type=int, default=100, help="number of inputs (default: 100)")
    command.add_argument("--n", type=int, help="number of outputs (default: 2; with --classical 1)")
    command.add_argument(
        "--f", type=float, default=1.0, help="sparseness of the patterns, for the information (default: 1)"
    )
    command.add_argument(
        "--classical", action="store_true", help="predict for n classical perceptrons, which classify means"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(command=_theory)

    command = commands.add_parser("convert", help="write a problem to a file")
    command.add_argument("source", metavar="IN", help="a spec such as covariance_perceptron[m=100,load=1], or a file")
    command.add_argument("target", metavar="OUT", help=f"a file: {', '.join(FORMATS)}")
    command.add_argument(
        "--formulation", choices=list(FORMULATIONS), help="write a max-margin task as a QCQP in this formulation"
    )
    command.set_defaults(command=_convert)


def _list(options: argparse.Namespace) -> int:
    rows: list[dict[str, Any]]
    if options.what == "problems":
        rows = [_describe_family(name) for name in family_names()]
    elif options.what == "solvers":
        rows = [_describe_solver(name) for name in solver_names()]
    else:
        rows = [_describe_suite(load_suite(name)) for name in suites()]
    if options.json:
        print(json.dumps(rows, indent=2))
        return DONE
    for row in rows:
        print(row.pop("name"))
        parameters = row.pop("parameters", {})
        unavailable = row.pop("unavailable", {})
        for key, value in row.items():
            print(f"  {key:<11} {value}")
        for number, (key, parameter) in enumerate(parameters.items()):
            default = "" if parameter["default"] is None else f" = {parameter['default']}"
            print(f"  {'' if number else 'parameters':<11} {key}{default} ({parameter['is']})")
        for number, (spec, reason) in enumerate(unavailable.items()):
            print(f"  {'' if number else 'unavailable':<11} {spec}: {reason}")
    return DONE


def _describe_family(name: str) -> dict[str, Any]:
    try:
        facts = family_facts(name)
    except QcqpbenchError as error:
        return {"name": name, "about": f"{Availability.NOT_INSTALLED}: {error}"}
    return {"name": facts.name, "about": facts.about, "parameters": _parameters(facts.parameters)}


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
        "unavailable": _unavailable_choices(name, facts.parameters) if available else {},
    }


def _unavailable_choices(name: str, parameters: Iterable[ParameterFacts]) -> dict[str, str]:
    """Return the specs with one value of a parameter that cannot run here, and the reasons."""
    choices = [
        spell(name, {parameter.name: value})
        for parameter in parameters
        if parameter.type != "true|false" and "|" in parameter.type
        for value in parameter.type.split("|")
    ]
    reasons = {}
    for spec in choices:
        # A value may require values of other parameters.
        with contextlib.suppress(QcqpbenchError):
            reasons[spec] = solver_facts(spec).reason
    return {spec: reason for spec, reason in reasons.items() if reason}


def _describe_suite(suite: Suite) -> dict[str, Any]:
    names = dict.fromkeys(entry.solver.name for entry in suite.entries)
    return {
        "name": suite.name,
        "about": suite.about,
        "problems": len(suite.problems),
        "solvers": ", ".join(names),
        "runs": suite.size,
    }


def _parameters(parameters: Iterable[ParameterFacts]) -> dict[str, dict[str, Any]]:
    return {parameter.name: {"is": parameter.type, "default": parameter.default} for parameter in parameters}


def _theory(options: argparse.Namespace) -> int:
    n = (1 if options.classical else 2) if options.n is None else options.n
    columns = _predictions(options, options.m, n)
    if options.json:
        finite = [[float(value) if np.isfinite(value) else None for value in column] for column in columns.values()]
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*finite, strict=True)]
        print(json.dumps(rows, indent=2))
        return DONE
    print(f"{'classical' if options.classical else 'covariance'} perceptron, m={options.m}, n={n}; information in bits")
    cells = [[f"{value:.6g}" for value in row] for row in zip(*columns.values(), strict=True)]
    print("\n".join(align([list(columns), *cells], left=())))
    legend = (_CAPACITY_LEGEND if options.kappa_bar else _MARGIN_LEGEND) | _COMMON_LEGEND
    print("\n".join(f"{names}: {text}" for names, text in legend.items() if names.split(", ")[0] in columns))
    return DONE


def _predictions(options: argparse.Namespace, m: int, n: int) -> dict[str, Any]:
    """Return the columns, by name, of the table of predictions for m inputs and n outputs."""
    for name, value in (("m", m), ("n", n)):
        require(value >= 1, f"--{name} must be at least 1, got {value}")
    if options.kappa_bar:
        columns = _capacities(np.array(options.kappa_bar), m, n, options.classical)
    else:
        for value in options.load or ():
            require(0 < value < math.inf, f"--load must be a finite positive number, got {value}")
        p = np.array(options.p) if options.p else np.array(options.load or _DEFAULT_LOADS) * (n * m)
        columns = {"load": theory.per_synapse(p, m, n), "p": p, **_margins(p, m, n, options.classical)}
    p = columns["p"]
    if not options.classical:
        columns["active_share"] = theory.active_share(p, m, n)
        columns["kappa_at"] = theory.ergodic_margin(p, m, n)
    information = p * (m + n if options.classical else theory.covariance_pattern_bits(m, n, options.f))
    return columns | {"information": information, "information_per_synapse": theory.per_synapse(information, m, n)}


def _margins(p: NDArray[np.float64], m: int, n: int, is_classical: bool) -> dict[str, Any]:
    """Return the margins of p patterns by theory, each a column."""
    if is_classical:
        return {
            "kappa_bar_rs": theory.classical_kappa_bar(p, m),
            "kappa_bar_theory": theory.classical_kappa_bar(p, m, rsb="full"),
        }
    replica_symmetric, full = (theory.covariance_kappa_bar(p, m, n, rsb=rsb) for rsb in (0, "full"))
    one_step = [one_step_margin(alpha, _COVARIANCE_POWER) for alpha in p * (n - 1) / (2 * m)]
    return {"kappa_bar_rs": replica_symmetric, "kappa_bar_1rsb_q0": np.array(one_step), "kappa_bar_theory": full}


def _capacities(kappa_bar: NDArray[np.float64], m: int, n: int, is_classical: bool) -> dict[str, Any]:
    """Return the numbers of patterns and loads at margins by theory, each a column."""
    if is_classical:
        p_by_theory = {
            "p_rs": theory.classical_capacity(kappa_bar, m),
            "p": theory.classical_capacity(kappa_bar, m, rsb="full"),
        }
    else:
        replica_symmetric, full = (theory.covariance_capacity(kappa_bar, m, n, rsb=rsb) for rsb in (0, "full"))
        alphas = np.array([one_step(kappa, _COVARIANCE_POWER)[0] for kappa in kappa_bar.tolist()])
        p_by_theory = {"p_rs": replica_symmetric, "p_1rsb_q0": 2 * m * alphas / (n - 1), "p": full}
    loads = {name.replace("p", "load", 1): theory.per_synapse(p, m, n) for name, p in p_by_theory.items()}
    return {"kappa_bar": kappa_bar, **loads, **p_by_theory}


def _convert(options: argparse.Namespace) -> int:
    problem = problem_apart(options.source)
    if options.formulation:
        if not isinstance(problem, MaxMargin):
            raise QcqpbenchError(
                f"IN must be a max-margin task with --formulation, got the general QCQP {options.source}"
            )
        problem = formulation(options.formulation).encode(problem)
    write(problem, options.target)
    print(f"{options.target}: {_summary(problem)}")
    return DONE


def _summary(problem: MaxMargin | QCQP) -> str:
    """Return one line with the type, size and id of a problem."""
    if isinstance(problem, MaxMargin):
        eigenvalue = f"{problem.smallest_eigenvalue:.6g}"
        sizes: dict[str, ParameterValue] = {
            "p": problem.p,
            "m": problem.m,
            "n": problem.n,
            "smallest_eigenvalue": eigenvalue,
        }
        return f"{spell('MaxMargin', sizes)} id {problem.id}"
    sizes = {
        "variables": problem.n_variables,
        "constraints": problem.n_constraints,
        "nonzeros": problem.quadratic.nnz,
    }
    return f"{spell('QCQP', sizes)} id {problem.id}"
