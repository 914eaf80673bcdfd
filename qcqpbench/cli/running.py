"""run: a suite, on this machine or on a cluster, into a results file."""

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from qcqpbench.catalog.machine import machine
from qcqpbench.catalog.spec import parse
from qcqpbench.errors import require
from qcqpbench.results.store import Store
from qcqpbench.run.isolation.worker import solver_facts
from qcqpbench.run.job import Job, labels
from qcqpbench.run.local_pool import LocalPool, Pool
from qcqpbench.run.suite import Entry, Suite, expand_problem, load_suite

from ._progress import Progress, table
from .common import DONE, FAILED, INTERRUPTED


def add_commands(commands: Any) -> None:
    command = commands.add_parser(
        "run",
        help="run a suite, or go on with one, into a results file",
        description="Run every solver of a suite on every problem of it, each in a process of its own, and keep a row "
        "of each run in a results file. What is in the file is not run again, so the same command goes on after an "
        "interruption. Exit code 1: no run gave a point.",
    )
    command.add_argument(
        "suite", metavar="SUITE", nargs="?", default="default", help="a name or a .toml file (default)"
    )
    command.add_argument(
        "-p", "--problem", action="append", metavar="PROBLEM", help="instead of the suite's: a spec, a file, a folder"
    )
    command.add_argument("-s", "--solver", action="append", metavar="SOLVER", help="instead of the suite's: a spec")
    command.add_argument("-r", "--starts", type=int, metavar="N", help="random starts of each solver on each problem")
    command.add_argument("--timeout", type=float, metavar="S", help="seconds a run may take")
    command.add_argument("--memory", type=float, metavar="GB", help="memory a run may use")
    command.add_argument("--threads", type=int, metavar="N", help="BLAS and OpenMP threads of a run")
    command.add_argument(
        "--tolerance", type=float, metavar="T", help="relative violation up to which a point is feasible"
    )
    command.add_argument("--seed", type=int, metavar="N", help="seed of the random starts")
    command.add_argument("-j", "--jobs", type=int, metavar="N", help="runs at a time (as many as there are CPUs)")
    command.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="run on a Dask cluster: its scheduler, or `local` for one of -j processes here",
    )
    command.add_argument("-o", "--output", default="results.db", metavar="FILE", help="the results file (results.db)")
    command.add_argument("-f", "--force", action="store_true", help="repeat runs that are in the file")
    command.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    suite = _suite(options)
    given = {solver_facts(text).spec: text for text in options.solver or ()}
    title = f"{suite.name if not options.problem else 'run'} → {options.output}"
    return fill(options.output, suite, title, options.jobs, options.dask, options.force, given)


def _dask_pool(address: str, jobs: int) -> Pool:
    from qcqpbench.run.dask_pool import DaskPool  # noqa: PLC0415 (slow to import)

    return DaskPool(address, jobs)


def fill(
    output: str,
    suite: Suite,
    title: str,
    jobs: int | None = None,
    dask: str | None = None,
    force: bool = False,
    given: Mapping[str, str] | None = None,
) -> int:
    """Run what a suite asks for and a results file does not have yet; returns the exit code.

    given   what to call solvers, by spec
    """
    threads = max(entry.settings.threads for entry in suite.entries)
    jobs = max(1, _cpus() // threads) if jobs is None else jobs
    require(jobs >= 1, f"-j {jobs} is not allowed; right is at least one")
    pool: Pool = LocalPool(jobs) if dask is None else _dask_pool(dask, jobs)
    specs = [entry.solver.spec for entry in suite.entries]
    names = labels(specs) | labels(suite.problems) | dict(given or {})
    before: set[str] = set()
    points = 0
    with Store(output, write=True) as store:
        finished = set() if force else store.finished()
        progress = Progress(title, suite.size, names, [names[spec] for spec in specs], pool.running)

        def todo() -> Iterator[Job]:
            for job in suite.jobs(progress.drop):
                if job.key in finished:
                    before.add(job.key)
                    progress.skip()
                else:
                    yield job

        facts = asdict(machine()) | ({} if dask is None else {"dask": dask})
        store.begin(shlex.join(["qcqpbench", *sys.argv[1:]]), facts)
        try:
            with progress, closing(pool.run(todo())) as outcomes:
                warnings.showwarning = lambda message, *_, **__: progress.say(f"qcqpbench: {message}")
                for outcome in outcomes:
                    store.add(outcome)
                    progress.add(outcome)
                    points += outcome.attempt.point is not None
        except KeyboardInterrupt:
            print(
                f"qcqpbench: interrupted; {progress.done} new runs in {output}, the same command goes on",
                file=sys.stderr,
            )
            return INTERRUPTED
        for row in store.rows() if before else ():
            if row["key"] in before:
                progress.tallies[names[row["solver"]]].add(row)
    print("\n".join(table(progress.tallies)))
    repeated = f", {len(before)} of them done before" if before else ""
    print(f"{output}: {progress.done + len(before)} runs{repeated}")
    return DONE if points or not progress.done else FAILED


def _suite(options: argparse.Namespace) -> Suite:
    """The suite, with what the options put in place of its parts."""
    # A solver of another package is described by a process of its own: only those that are to run.
    suite = load_suite(options.suite, [parse(spec)[0] for spec in options.solver] if options.solver else None)
    if options.problem:
        found = [each for text in options.problem for each in expand_problem(text)]
        # What solvers are left out on is said of the suite's own problems.
        entries = tuple(replace(entry, where={}) for entry in suite.entries)
        suite = replace(suite, problems=tuple(dict.fromkeys(found)), entries=entries)
    if options.solver:
        suite = replace(suite, entries=tuple(_entry(spec, suite) for spec in options.solver))
    given = {
        "starts": options.starts,
        "seed": options.seed,
        "time_limit": options.timeout,
        "memory_limit": options.memory,
        "threads": options.threads,
        "tolerance": options.tolerance,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    return replace(
        suite,
        entries=tuple(replace(entry, settings=replace(entry.settings, **changes)) for entry in suite.entries),
    )


def _entry(spec: str, suite: Suite) -> Entry:
    """A solver with the settings it has in the suite, or else those of the suite's first."""
    chosen = solver_facts(spec)
    for entry in suite.entries:
        if entry.solver.spec == chosen.spec:
            return replace(entry, named=True)
    return Entry(chosen, suite.entries[0].settings)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
