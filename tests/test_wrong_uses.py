"""Wrong uses of the Python API: each raises a ValueError or a TypeError whose message is one clear line."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcqpbench
from qcqpbench import QCQP, MaxMargin, Results, RunOptions
from qcqpbench.solvers.gip import Gip
from tests.support.results_files import CONVEX, TASK
from tests.support.wrong_use_inputs import (
    GIP,
    SQUARE,
    Disc,
    Inputs,
    Nameless,
    Start,
    Undecorated,
    dataframe,
    dataframe_without_pandas,
    declare_tuple,
    plot_without_matplotlib,
    several_axes,
)

# Longer messages are no longer one line for a reader; the list of all solvers takes about 200 characters.
_MAX_CHARACTERS = 320
_PATTERNS, _LABELS = np.eye(3)[None], [[1]]
_X = np.random.default_rng(0).standard_normal((4, 3, 50))
# Calls with wrong types are the subject, so they are not type-checked.
q: Any = qcqpbench
WrongUse = tuple[Callable[[Inputs], object], str]

PROBLEM: dict[str, WrongUse] = {
    "a list for a spec": (lambda u: q.problem([TASK]), r"spec must be text .* or the path of a file, got \['cov"),
    "None for a spec": (lambda u: q.problem(None), "spec must be text .* got None"),
    "a dict for a spec": (lambda u: q.problem({"m": 4}), "spec must be text .* got {'m': 4}"),
    "a task for a spec": (lambda u: q.problem(u.task), "spec must be text .* got <MaxMargin"),
    "a table for a spec": (lambda u: q.problem(dataframe()), "spec must be text .* got"),
    "a Path for a name": (lambda u: q.problem(Path("parity")), "parity: unknown file format ''; allowed: .npz, "),
    "unknown family": (lambda u: q.problem("paritty"), r"unknown problem 'paritty'; did you mean 'parity'\? allowed"),
    "unknown parameter": (lambda u: q.problem("parity[loda=2]"), "'loda'; did you mean 'load'. allowed: "),
    "text for a parameter": (lambda u: q.problem("parity[m=two]"), "parity: m must be a whole number, got two"),
    "half a spec": (lambda u: q.problem("parity[m=2"), r"must look like name\[parameter=value,…\], got 'parity\[m=2'"),
    "parameters as keywords": (lambda u: q.problem("parity", m=2), "unexpected keyword argument 'm'"),
    "missing file": (lambda u: q.problem("missing.lp"), "missing.lp: no such file"),
    "file of unknown type": (lambda u: q.problem("notes.txt"), "notes.txt: unknown file format '.txt'; allowed: .npz"),
}

QCQPS: dict[str, WrongUse] = {
    "nothing": (lambda u: QCQP(), "n_variables must be given if no .* is given, got None"),
    "vector for a matrix": (lambda u: QCQP([1, 2]), r"Q must have shape \(2, 2\), got \(2,\)"),
    "text for a matrix": (lambda u: q.QCQP("eye"), "Q must be an array of numbers, got entries of type <U3"),
    "NaN in a matrix": (lambda u: QCQP([[math.nan]]), "Q must be finite, got nan"),
    "q of wrong length": (lambda u: QCQP(SQUARE, q=[1]), r"q must have shape \(2,\), got \(1,\)"),
    "short sense": (lambda u: q.QCQP(SQUARE, sense="max"), "sense must be 'minimize' or 'maximize', got 'max'"),
    "matrix for constraints": (
        lambda u: q.QCQP(SQUARE, quadratic_constraints=[np.eye(2)]),
        r"quadratic_constraints\[0\] must be a tuple \(Q, q, lower, upper\), got ndarray",
    ),
    "linear constraints without bounds": (
        lambda u: q.QCQP(SQUARE, linear_constraints=[[1, 1]]),
        r"linear_constraints must be a tuple \(A, lower, upper\), got 1 entries",
    ),
    "bounds the wrong way round": (
        lambda u: QCQP(SQUARE, x_lower=1, x_upper=0),
        r"range of variable 0 \(x_lower, x_upper\) must contain a number, got \[1.0, 0.0\]",
    ),
    "start of wrong shape": (lambda u: QCQP(SQUARE, start=[1]), r"start must have shape \(2,\), got \(1,\)"),
    "misspelt bound": (lambda u: q.QCQP(SQUARE, lower_x=0), "unexpected keyword argument 'lower_x'"),
    "dict for metadata": (lambda u: q.QCQP(SQUARE, metadata={}), "metadata must be a Metadata, got dict"),
    "point of wrong shape": (lambda u: u.qcqp.objective([1, 2, 3]), r"x must have shape \(…, 2\), got \(3,\)"),
    "text for a point": (lambda u: u.qcqp.objective("x"), "x must be an array of numbers, got .*<U1"),
    "ragged point": (lambda u: u.qcqp.values([[1], [1, 2]]), r"x must be an array of numbers, got \[\[1\]"),
    "batch for a violation": (lambda u: u.qcqp.violation(np.eye(2)), r"x must have shape \(2,\), got \(2, 2\)"),
    "batch for a gradient": (lambda u: u.qcqp.gradient(np.eye(2)), r"x must have shape \(2,\), got \(2, 2\)"),
    "text for multipliers": (lambda u: u.qcqp.hessian("a"), "multipliers must be an array of numbers, got .*<U1"),
    "text for a factor": (lambda u: u.qcqp.hessian([], "a"), "objective_factor must be a real number, got 'a'"),
    "misspelt attribute": (lambda u: u.qcqp.replace(strt=[0, 0]), "'strt'; did you mean 'start'. allowed: "),
    "dense coefficients": (
        lambda u: u.qcqp.replace(quadratic=[[1]]),
        "quadratic must be a scipy.sparse.csr_array, got list",
    ),
    "three arrays of quadratic terms": (
        lambda u: QCQP.from_terms(2, quadratic=([0], [0], [1.0])),
        r"quadratic must be 4 arrays \(rows, i, j, values\), got 3",
    ),
    "number for linear terms": (
        lambda u: q.QCQP.from_terms(2, linear=5),
        r"linear must be 3 arrays \(rows, i, values\), got 5",
    ),
    "True for a number of variables": (lambda u: QCQP.from_terms(True), "variables must be a whole number.* got True"),
    "number for a best known value": (
        lambda u: q.Metadata(best_known=0.5),
        "best_known must be a BestKnown or None, got 0.5",
    ),
    "number for a spec in metadata": (lambda u: q.Metadata(5), "spec must be text or None, got 5"),
}

TASKS: dict[str, WrongUse] = {
    "one pattern for many": (lambda u: MaxMargin(np.eye(3), [1]), r"patterns must have shape \(p, m, m\), got \(3, 3"),
    "flat labels": (
        lambda u: MaxMargin(_PATTERNS, [1]),
        r"labels must have shape \(1, n\(n-1\)/2\), got \(1,\); use l",
    ),
    "labels 0 and 1": (lambda u: MaxMargin(_PATTERNS, [[0]]), r"labels must be \+1 or -1, got 0"),
    "NaN in a pattern": (lambda u: MaxMargin(_PATTERNS * math.nan, _LABELS), "patterns must be finite, got inf or NaN"),
    "no scale": (lambda u: MaxMargin(_PATTERNS, _LABELS, scale=0), "scale must be positive and finite, got 0"),
    "weights of wrong shape": (lambda u: u.task.margin(np.eye(3)), r"W must have shape \(2, 4\) .* got \(3, 3\)"),
    "text for weights": (lambda u: u.task.margin("W"), "W must be an array of numbers, got .*<U1"),
    "complex weights": (lambda u: u.task.margin(1j * u.W), "W must be an array of real numbers, got complex"),
    "text for eta": (lambda u: u.task.soft_margin(u.W, "1"), "eta must be a real number, got '1'"),
    "text for a tolerance": (lambda u: u.task.active(u.W, "small"), "tolerance must be a real number, got 'small'"),
    "negative tolerance": (lambda u: u.task.active(u.W, -1), "tolerance must be 0 or more, got -1"),
    "misspelt field": (lambda u: u.task.replace(label=[[1]]), "unexpected keyword argument 'label'"),
    "row of zeros": (lambda u: q.unit_rows(np.zeros((2, 3))), "every row of W must be finite and not zero, got .* 0.0"),
    "text for rows": (lambda u: q.unit_rows("rows"), "W must be an array of numbers, got .*<U4"),
    "number for rows": (lambda u: q.unit_rows(5), r"W must have rows of at least one number, got shape \(\)"),
    "no rows": (lambda u: q.unit_rows([]), r"W must have rows of at least one number, got shape \(0,\)"),
    "unknown formulation": (
        lambda u: q.formulation("epigraf"),
        "unknown formulation 'epigraf'; did you mean 'epigraph'",
    ),
    "None for a formulation": (lambda u: q.formulation(None), "name must be one of min_norm, epigraph, got None"),
    "QCQP for a formulation": (
        lambda u: q.formulation("epigraph").encode(u.qcqp),
        "task must be a MaxMargin, got <QCQP",
    ),
    "text for a formulation's point": (
        lambda u: q.formulation("epigraph").decode(u.task, "x"),
        "x must be an array of numbers, got .*<U1",
    ),
}

SOLVE: dict[str, WrongUse] = {
    "spec for a problem": (lambda u: u.solve(problem=TASK), "problem must be a MaxMargin or a QCQP, got 'cov.*returns"),
    "list of problems": (lambda u: u.solve(problem=[u.task]), r"problem must be a MaxMargin or a QCQP, got \[<Max"),
    "class for a solver": (lambda u: u.solve(solver=Gip), r"solver must be .*, got .*Gip'>; did you mean Gip\(\)"),
    "None for a solver": (lambda u: u.solve(solver=None), "solver must be a spec such as .* or a solver, got None"),
    "list of solvers": (lambda u: u.solve(solver=["gip"]), r"solver must be a spec .* or a solver, got \['gip'\]"),
    "no solver": (lambda u: q.solve(u.task), "missing 1 required positional argument: 'solver'"),
    "unknown solver": (lambda u: u.solve(solver="gpi"), "unknown solver 'gpi'; did you mean 'gip'. allowed: .*scip"),
    "unknown parameter of a solver": (lambda u: u.solve(solver="gip[start=1]"), "'start'; did you mean 'starts'"),
    "zero for a parameter": (lambda u: Gip(starts=0), "gip: starts must be a positive number, got 0"),
    "text for a parameter of a solver": (lambda u: q.solve(u.task, "gip[tol=low]"), "tol must be a number, got low"),
    "solver without @dataclass": (
        lambda u: u.solve(solver=Undecorated()),
        r"Undecorated: the class must be decorated with @dataclass\(frozen=True\) to have the parameters step",
    ),
    "solver without a name": (lambda u: u.solve(solver=Nameless()), "Nameless: name must be text, got None"),
    "abstract solver": (lambda u: q.QCQPSolver(), "Can't instantiate abstract class QCQPSolver"),
    "tuple for a parameter": (lambda u: declare_tuple(), "Tuple: the type of the parameter sizes must be int, .*tuple"),
    "text for a minimum": (lambda u: q.parameter(1, minimum="0"), "minimum must be a number, got '0'"),
    "QCQP for a task solver": (lambda u: u.solve(problem=u.qcqp), "must be a max-margin task for gip, got a gen"),
    "transposed start": (lambda u: u.solve(start=u.W.T), r"start must have the shape \(2, 4\), got \(4, 2\)"),
    "NaN start": (lambda u: u.solve(start=u.W * math.nan), "start must hold finite numbers, got .nan"),
    "text for a start": (lambda u: u.solve(start="random"), r"start must be an array of .*\(2, 4\), got 'random'"),
    "no time": (lambda u: u.solve(time_limit=0), "time_limit must be a positive number of seconds, got 0"),
    "text for a time": (lambda u: u.solve(time_limit="5"), "time_limit must be a positive number of seconds, got '5'"),
    "None for a time": (lambda u: u.solve(time_limit=None), "time_limit must be a positive number.* got None"),
    "NaN for a time": (lambda u: u.solve(time_limit=math.nan), "time_limit must be a positive number.* got nan"),
    "misspelt time limit": (lambda u: u.solve(timelimit=5), "unexpected keyword argument 'timelimit'"),
    "half a thread": (lambda u: u.solve(threads=0.5), "threads must be a whole number, at least 1, got 0.5"),
    "negative tolerance of a run": (lambda u: u.solve(tolerance=-1), "tolerance must be .* at least 0, got -1"),
    "function for callbacks": (lambda u: u.solve(callbacks=print), "callbacks must be a RunCallbacks or None, got <b"),
    "unknown field of a solution": (lambda u: q.Solution(None, None, iters=3), "unexpected keyword argument 'iters'"),
    "solution without termination": (lambda u: q.Solution([1.0]), "missing 1 .* argument: 'termination'"),
    "text for a budget": (lambda u: q.Budget("10"), "time_limit must be a number of seconds, got '10'"),
    "NaN for a budget": (lambda u: q.Budget(math.nan), "time_limit must be a number of seconds, got nan"),
    "options by position": (lambda u: q.RunOptions(5), "takes 1 positional argument but 2 were given"),
    "memory in words": (lambda u: q.RunOptions(memory_limit_bytes="1 GB"), "memory_limit_bytes must be .* got '1 GB'"),
    "certificate of a QCQP": (lambda u: q.certify(u.qcqp), "task must be a MaxMargin, got <QCQP"),
    "time for a solver": (lambda u: q.certify(u.task, 10), "solver must be a spec .* or a solver, got 10"),
    "start of a spec": (lambda u: q.random_start(TASK), "problem must be a MaxMargin or a QCQP, got 'covariance"),
    "negative start": (lambda u: q.random_start(u.task, -1), "number must be a whole number, at least 0, got -1"),
    "text for a start number": (lambda u: q.random_start(u.task, "1"), "number must be a whole number.* got '1'"),
    "half a seed": (lambda u: q.random_start(u.task, seed=0.5), "seed must be .*whole number.* got 0.5"),
    "unknown stream": (lambda u: q.rng.stream(0, "start"), "axis must be one of patterns, .*starts.* got 'start'"),
}

CHECKS: dict[str, WrongUse] = {
    "unknown solver to check": (lambda u: q.check_solver("gpi"), "unknown solver 'gpi'; did you mean 'gip'"),
    "class to check": (lambda u: q.check_solver(Start), r"solver must be .* got .*Start'>; did you mean Start\(\)"),
    "None to check": (lambda u: q.check_solver(None), "solver must be a spec such as .* or a solver, got None"),
    "unknown case": (lambda u: q.check_solver(GIP, "none such"), "case must be part of the name of a case, got 'none"),
    "number for a case": (lambda u: q.check_solver(GIP, 5), "case must be text or None, got 5"),
    "unknown family to check": (
        lambda u: q.check_family("paritty"),
        "unknown problem 'paritty'; did you mean 'parity'",
    ),
    "class of a family": (lambda u: q.check_family(Disc), r"family must be .* got .*Disc'>; did you mean Disc\(\)"),
    "problem for a family": (lambda u: q.check_family(u.task), "family must be a spec or a Family, got <MaxMargin"),
}

FILES: dict[str, WrongUse] = {
    "missing problem": (lambda u: q.read("missing.npz"), "missing.npz: no such file"),
    "unknown format": (lambda u: q.read("notes.txt"), "notes.txt: unknown file format '.txt'; allowed: .npz, .qplib"),
    "text as .npz": (
        lambda u: q.read("notes.npz"),
        "notes.npz: must be a qcqpbench problem, got a damaged or different",
    ),
    "None for a file": (lambda u: q.read(None), "path must be the path of a file, got None"),
    "list of files": (lambda u: q.read(["a.npz"]), r"path must be the path of a file, got \['a.npz'\]"),
    "task as .lp": (lambda u: q.write(u.task, "new.lp"), "a .lp file must hold a QCQP, got a max-margin task"),
    "swapped arguments": (lambda u: q.write("new.npz", u.task), "problem must be a MaxMargin or a QCQP, got 'new.npz'"),
    "array for a problem": (lambda u: q.write(np.eye(2), "new.lp"), "problem must be a MaxMargin or a QCQP, got array"),
    "no path": (lambda u: q.write(u.task, None), "path must be the path of a file, got None"),
    "file of another kind": (
        lambda u: q.write(u.task, "notes.npz"),
        "notes.npz: must be a new file or .*, got text of",
    ),
    "missing folder": (lambda u: q.write(u.task, "none/new.npz"), "none/new.npz: cannot be written: No such file"),
}

RECORDINGS: dict[str, WrongUse] = {
    "too few labels": (lambda u: q.recorded_task(_X, [0, 1]), "y must hold one label for each of 4 trials, got 2"),
    "one class": (lambda u: q.recorded_task(_X, [0] * 4), "classes must be two or more, all different, got '0'"),
    "number for recordings": (lambda u: q.recorded_task(5, [0, 1]), "X must hold real numbers of shape .*, got 5"),
    "unknown normalization": (
        lambda u: q.recorded_task(_X, [0, 0, 1, 1], normalize="zscore"),
        "normalize must be one of channels, whiten, trial, none, got 'zscore'",
    ),
    "text for a share": (
        lambda u: q.recorded_task(_X, [0, 0, 1, 1], test_share="half"),
        "test_share must be 0 or more and less than 1, got 'half'",
    ),
    "text for a seed": (lambda u: q.recorded_task(_X, [0, 0, 1, 1], seed="a"), "seed must be .*whole number.* got 'a'"),
    "number for classes": (lambda u: q.recorded_task(_X, [0, 0, 1, 1], classes=2), "classes must be a list.* got 2"),
    "matrix for recordings": (lambda u: q.features.means(_X[0]), r"must have shape \(trials, channels, time\), got "),
    "None for recordings": (lambda u: q.features.zero_lag(None), "recordings must hold numbers of shape .* got None"),
    "text for a lag": (lambda u: q.features.lag_integrated(_X, "3"), "max_lag must be a whole number.* got '3'"),
}

SUITES: dict[str, WrongUse] = {
    "text for problems": (lambda u: q.Suite.of(TASK, [GIP]), "problems must be a list, got 'covariance_perceptron"),
    "text for solvers": (lambda u: q.Suite.of([TASK], GIP), "solvers must be a list, got 'gip"),
    "task in a suite": (lambda u: q.Suite.of([u.task], [GIP]), "problems must hold specs or paths of files, got <Max"),
    "class in a suite": (
        lambda u: q.Suite.of([TASK], [Gip]),
        r"solvers must hold .* got .*Gip'>; did you mean Gip\(\)",
    ),
    "dict for settings": (lambda u: q.Suite.of([TASK], [GIP], {"starts": 3}), "settings must be a Settings, got {'st"),
    "specs for entries": (lambda u: q.Suite("", "", (TASK,), (GIP,)), "entries must hold Entry objects, got 'gip"),
}

RUN: dict[str, WrongUse] = {
    "nothing to run": (
        lambda u: q.run(output="new.db"),
        "run must be given a suite, or problems and solvers, got no problems and sol",
    ),
    "no output": (lambda u: q.run("smoke"), "missing 1 required keyword-only argument: 'output'"),
    "unknown suite": (
        lambda u: q.run("smok", output="new.db"),
        "unknown suite 'smok'; did you mean 'smoke'. allowed: ",
    ),
    "missing suite": (lambda u: q.run("none.toml", output="new.db"), "none.toml: cannot be read: No such file"),
    "suite and problems": (
        lambda u: u.run(suite="smoke"),
        "problems and solvers must not be given with a suite, got both",
    ),
    "no starts of a suite": (
        lambda u: q.run("smoke", starts=0, output="new.db"),
        "starts must be a whole number, at least 1, got 0",
    ),
    "one problem": (lambda u: u.run(problems=TASK), "problems must be a list, got 'covariance_perceptron"),
    "one task": (lambda u: u.run(problems=u.task), "problems must be a list, got <MaxMargin"),
    "dict of problems": (lambda u: u.run(problems={"a": TASK}), "problems must be a list, got {'a': 'cov"),
    "no problems": (lambda u: u.run(problems=[]), "problems must hold at least one entry, got none"),
    "None among problems": (lambda u: u.run(problems=[None]), "problems must hold specs, files, .*, got None"),
    "folder without problems": (lambda u: u.run(problems=["./folder"]), "folder: must hold at least one problem file"),
    "one solver": (lambda u: u.run(solvers=GIP), "solvers must be a list, got 'gip"),
    "class of a solver": (lambda u: u.run(solvers=[Gip]), r"solvers must hold .* got .*Gip'>; did you mean Gip\(\)"),
    "solvers that accept no problem": (
        lambda u: u.run(problems=[CONVEX], output="tasks.db"),
        "at least one run, got none: no solver acc",
    ),
    "no starts": (lambda u: u.run(starts=0), "starts must be a whole number, at least 1, got 0"),
    "text for a limit": (lambda u: u.run(time_limit="1m"), "time_limit must be a positive number of seconds, got '1m'"),
    "no jobs": (lambda u: u.run(jobs=0), "jobs must be a whole number, at least 1, got 0"),
    "None for an output": (lambda u: u.run(output=None), "output must be the path of a results file, got None"),
    "output in a missing folder": (lambda u: u.run(output="none/a.db"), "output must be in an existing folder, got n"),
    "output is a folder": (lambda u: u.run(output="folder"), "folder: must be a qcqpbench results file, got a folder"),
    "output is text": (lambda u: u.run(output="text.db"), "text.db: must be a qcqpbench results file, got another"),
    "misspelt option": (lambda u: u.run(time_limt=5), "did you mean 'time_limit'"),
}

RESULTS: dict[str, WrongUse] = {
    "missing results": (lambda u: Results.open("none.db"), "none.db: no such file"),
    "results are a folder": (lambda u: Results("folder"), "folder: must be a qcqpbench results file, got a folder"),
    "results are text": (lambda u: Results("text.db"), "text.db: must be a qcqpbench results file, got another kind"),
    "None for results": (lambda u: q.Results(None), "path must be the path of a results file, got None"),
    "results of results": (lambda u: q.Results(u.results), "path must be the path of a results file, got <Results"),
    "number for a row": (lambda u: u.results.point(0), "row must be a Row of these results, got 0"),
    "row of another file": (lambda u: u.results.trace(u.other_row), "row must be a Row of .*tasks.db, got one of an"),
    "row by position": (lambda u: u.results[0], "'Results' object is not subscriptable"),
    "solver for rows": (lambda u: u.results.rows("gip"), "all_rows must be True or False, got 'gip'"),
    "misspelt all_rows": (lambda u: u.results.to_dataframe(all=True), "unexpected keyword argument 'all'"),
    "table without pandas": (
        dataframe_without_pandas,
        r"to_dataframe needs the package pandas: pip install 'qcqpbench\[",
    ),
    "report of unknown type": (lambda u: u.results.report("new.pdf"), "must be an .html or .md file, got 'new.pdf'"),
    "report over a page": (lambda u: u.results.report("page.html"), "page.html: must be a new file or .*, got text of"),
    "report to None": (lambda u: u.results.report(None), "path must be the path of an .html or .md file, got None"),
    "report in a missing folder": (
        lambda u: u.results.report("none/new.md"),
        "none/new.md: cannot be written: No such",
    ),
    "plot without matplotlib": (plot_without_matplotlib, "matplotlib.*pip install 'qcqpbench"),
    "plot without tasks": (lambda u: u.other.plot_capacity(), "rows must hold a run with a margin on .*, got none"),
    "array of axes": (lambda u: u.results.plot_capacity(several_axes()), r"ax must be matplotlib axes, got array\("),
    "row of nothing": (lambda u: q.Row(), "missing 14 required keyword-only arguments: 'termination', "),
}

THEORY: dict[str, WrongUse] = {
    "text for a number of patterns": (
        lambda u: q.theory.covariance_kappa_bar("many", 100),
        "p must be a number or an array of numbers, got 'many'",
    ),
    "digits as text": (lambda u: q.theory.covariance_kappa_bar(100, "100"), "m must be a number .*, got '100'"),
    "nothing for a margin": (lambda u: q.theory.classical_capacity(None, 100), "kappa_bar must be a number .* None"),
    "complex share": (lambda u: q.theory.active_share(1j, 100), "p must be a number or an array of numbers, got 1j"),
}

GROUPS = (PROBLEM, QCQPS, TASKS, SOLVE, CHECKS, FILES, RECORDINGS, SUITES, RUN, RESULTS, THEORY)
WRONG_USES = {name: wrong_use for group in GROUPS for name, wrong_use in group.items()}


@pytest.fixture(scope="module")
def use(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    folder = tmp_path_factory.mktemp("wrong_uses")
    with contextlib.chdir(folder):
        yield Inputs(folder)


def test_names_of_wrong_uses_differ() -> None:
    assert len(WRONG_USES) == sum(map(len, GROUPS)) >= 40


@pytest.mark.filterwarnings("ignore:gip accepts only max-margin tasks")
@pytest.mark.parametrize("name", WRONG_USES)
def test_wrong_use_is_refused_in_one_line(name: str, use: Inputs) -> None:
    call, pattern = WRONG_USES[name]
    files = sorted(Path().iterdir())
    with pytest.raises((ValueError, TypeError)) as caught:
        call(use)
    message = str(caught.value)
    assert re.search(pattern, message) and "\n" not in message and len(message) <= _MAX_CHARACTERS, message
    assert sorted(Path().iterdir()) == files


def test_numbers_of_numpy_and_empty_batches_are_allowed(use: Inputs, tmp_path: Path) -> None:
    attempt = q.solve(use.task, GIP, time_limit=np.float32(5), threads=np.int64(1), tolerance=np.float64(1e-6))
    assert attempt.success and attempt.spec.time_limit == 5.0
    options = q.RunOptions(time_limit=np.float32(0.5), start_seed=np.uint8(3), memory_limit_bytes=np.int64(10**9))
    assert options == RunOptions(time_limit=0.5, start_seed=3, memory_limit_bytes=10**9)
    start = q.random_start(use.task, np.int64(2), np.int32(3))
    np.testing.assert_array_equal(start, q.random_start(use.task, 2, 3))
    assert q.QCQP.from_terms(np.int64(2)) == q.QCQP(n_variables=np.int32(2))
    assert q.unit_rows(np.empty((0, 2, 4), dtype=np.float32)).shape == (0, 2, 4)
    assert q.Budget(np.float32(5)).time_limit == 5
    output = tmp_path / "a.db"
    results = q.run(
        problems=[TASK], solvers=[GIP], starts=np.int64(1), time_limit=np.float32(5), jobs=np.int64(1), output=output
    )
    assert [row.time_limit for row in results] == [5.0]
