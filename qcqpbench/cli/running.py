"""Command `run`: run a suite on this machine or on a cluster, and store the results in a file."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from qcqpbench.catalog.spec import parse
from qcqpbench.errors import require
from qcqpbench.problem.formats.by_suffix import is_file
from qcqpbench.results.collect import Counts, collect
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.suite import Entry, Share, Suite, expand_problem, problem_labels, solver_labels
from qcqpbench.run.suite_file import load_suite

from ._progress import Progress
from .common import DONE, FAILED, INTERRUPTED, add_run_options, given_run_options


def add_commands(commands: Any) -> None:
    """Add the command `run` to the subparsers `commands`."""
    command = commands.add_parser(
        "run",
        help="run a suite into a results file, or resume it",
        description="Run every solver of a suite on each of its problems, in separate processes, and store a row for "
        "each run in a results file. Runs that are in the file are not repeated, so the same command resumes after an "
        "interruption. The exit code is 1 if no run returned a point.",
    )
    command.add_argument(
        "suite", metavar="SUITE", nargs="?", default="default", help="a name or a .toml file (default: default)"
    )
    command.add_argument(
        "-p",
        "--problem",
        action="append",
        metavar="PROBLEM",
        help="a spec, a file or a folder, instead of the suite's problems; may be repeated",
    )
    command.add_argument(
        "-s",
        "--solver",
        action="append",
        metavar="SOLVER",
        help="a spec, instead of the suite's solvers; may be repeated",
    )
    command.add_argument("-r", "--starts", type=int, metavar="N", help="number of random starts per solver and problem")
    add_run_options(command)
    command.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="number of simultaneous runs (default: one per CPU)"
    )
    command.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="run on a Dask cluster: the address of its scheduler, or `local` for a cluster of -j processes",
    )
    command.add_argument(
        "-o", "--output", default="results.db", metavar="FILE", help="the results file (default: results.db)"
    )
    command.add_argument(
        "--share",
        metavar="I/N",
        help="make only the I-th of N shares of the runs, into a file of its own; merge combines the files",
    )
    command.add_argument("-f", "--force", action="store_true", help="repeat the runs that are in the file")
    command.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    suite = _suite(options)
    spellings = {solver_facts(text).spec: text for text in options.solver or ()}
    title = f"{suite.name if not options.problem else 'run'} → {options.output}"
    return run_suite(options.output, suite, title, options.jobs, options.dask, options.force, spellings)


def run_suite(
    output: str,
    suite: Suite,
    title: str,
    jobs: int | None = None,
    dask: str | None = None,
    force: bool = False,
    spellings: Mapping[str, str] | None = None,
) -> int:
    """Make the runs of a suite that are not in a results file, show the progress, and print a table of the solvers.

    Parameters
    ----------
    output
        The results file.
    suite
        The problems and solvers.
    title
        The title of the live view.
    jobs, dask, force
        As in `qcqpbench.run`.
    spellings
        Specs of solvers as the user wrote them, by full spec.

    Returns
    -------
    int
        The exit code.
    """
    specs = [entry.solver.spec for entry in suite.entries]
    labels = problem_labels(suite.problems) | solver_labels(specs) | dict(spellings or {})
    progress, counts = Progress(title, labels, [labels[spec] for spec in specs]), Counts()
    try:
        collect(suite, output, jobs=jobs, dask=dask, force=force, monitor=progress, counts=counts)
    except KeyboardInterrupt:
        notice = f"interrupted; {counts.new} new runs are in {output}; the same command resumes"
        print(f"qcqpbench: {notice}", file=sys.stderr)
        return INTERRUPTED
    print("\n".join(progress.table()))
    earlier = f", {counts.earlier} of them done before" if counts.earlier else ""
    print(f"{output}: {counts.new + counts.earlier} runs{earlier}")
    # Skipped runs are tried again by every call, and are no failure of a suite that has been run.
    is_done_before = counts.earlier and counts.skipped == counts.new
    return DONE if counts.points or is_done_before or not counts.new else FAILED


def _suite(options: argparse.Namespace) -> Suite:
    """Return the suite, with problems, solvers and settings replaced by those in `options`."""
    require(
        not is_file(options.suite), f"SUITE must be a name or a .toml file, got a problem; -p {options.suite} runs it"
    )
    # Describing a plug-in's solver starts a process, so only the solvers that are to run are described.
    suite = load_suite(options.suite, [parse(spec)[0] for spec in options.solver] if options.solver else None)
    if options.problem:
        problems = [problem for text in options.problem for problem in expand_problem(text)]
        # The conditions of the entries refer to the suite's own problems.
        entries = tuple(replace(entry, where={}) for entry in suite.entries)
        suite = replace(suite, problems=tuple(dict.fromkeys(problems)), entries=entries)
    if options.solver:
        suite = replace(suite, entries=tuple(_entry(spec, suite) for spec in options.solver))
    changes = given_run_options(options) | ({} if options.starts is None else {"starts": options.starts})
    suite = suite.with_settings(**changes)
    return suite if options.share is None else replace(suite, share=Share.of(options.share))


def _entry(spec: str, suite: Suite) -> Entry:
    """Return the suite's entry for the solver `spec`, or a new entry with the settings of the suite's first one."""
    facts = solver_facts(spec)
    for entry in suite.entries:
        if entry.solver.spec == facts.spec:
            return replace(entry, named=True)
    return Entry(facts, suite.entries[0].settings)
