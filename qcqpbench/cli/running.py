"""Command `run`: run a suite on this machine or on a cluster, and store the results in a file."""

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any

from qcqpbench.catalog.machine import machine
from qcqpbench.catalog.spec import parse
from qcqpbench.errors import require
from qcqpbench.results.store import Store
from qcqpbench.run.isolation.description import solver_facts
from qcqpbench.run.job import Job, labels
from qcqpbench.run.pools.local_pool import LocalPool, Pool
from qcqpbench.run.suite import Entry, Suite, expand_problem
from qcqpbench.run.suite_file import load_suite

from ._progress import Progress, table
from .common import DONE, FAILED, INTERRUPTED


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
    command.add_argument("--timeout", type=float, metavar="S", help="time limit of a run in seconds")
    command.add_argument("--memory", type=float, metavar="GB", help="memory limit of a run in GB")
    command.add_argument("--threads", type=int, metavar="N", help="BLAS and OpenMP threads of a run")
    command.add_argument("--tolerance", type=float, metavar="T", help="relative feasibility tolerance")
    command.add_argument("--seed", type=int, metavar="N", help="seed of the random starts")
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
    """Run the jobs of a suite that are not in a results file, show the progress, and print a table of the solvers.

    Parameters
    ----------
    output
        The results file.
    suite
        The problems and solvers.
    title
        The title of the live view.
    jobs
        Number of simultaneous runs; one per CPU by default.
    dask
        The address of a Dask scheduler, or ``local``; None for worker processes of this machine.
    force
        If True, repeat the runs that are in the file.
    spellings
        Names of solvers as the user wrote them, by spec.

    Returns
    -------
    int
        The exit code.
    """
    pool = _pool(suite, jobs, dask)
    specs = [entry.solver.spec for entry in suite.entries]
    names = labels(specs) | labels(suite.problems) | dict(spellings or {})
    progress = Progress(title, suite.size, names, [names[spec] for spec in specs], pool.running)
    earlier_keys: set[str] = set()
    with Store(output, write=True) as store:
        jobs_to_run = _jobs_to_run(suite, set() if force else store.finished(), progress, earlier_keys)
        store.begin(
            shlex.join(["qcqpbench", *sys.argv[1:]]), asdict(machine()) | ({} if dask is None else {"dask": dask})
        )
        try:
            points = _store_outcomes(pool, jobs_to_run, store, progress)
        except KeyboardInterrupt:
            print(
                f"qcqpbench: interrupted; {progress.done} new runs are in {output}; the same command resumes",
                file=sys.stderr,
            )
            return INTERRUPTED
        for row in store.rows() if earlier_keys else ():
            if row["key"] in earlier_keys:
                progress.tally(row["solver"], row)
    print("\n".join(table(progress.tallies)))
    earlier = f", {len(earlier_keys)} of them done before" if earlier_keys else ""
    print(f"{output}: {progress.done + len(earlier_keys)} runs{earlier}")
    return DONE if points or not progress.done else FAILED


def _pool(suite: Suite, jobs: int | None, dask: str | None) -> Pool:
    """Return the pool that runs the jobs, by default with as many simultaneous runs as CPUs divided by threads."""
    threads = max(entry.settings.threads for entry in suite.entries)
    jobs = max(1, _available_cpus() // threads) if jobs is None else jobs
    require(jobs >= 1, f"-j must be at least 1, got {jobs}")
    if dask is None:
        return LocalPool(jobs)
    from qcqpbench.run.pools.dask_pool import DaskPool  # noqa: PLC0415 (slow to import)

    return DaskPool(dask, jobs)


def _jobs_to_run(suite: Suite, finished: Container[str], progress: Progress, earlier_keys: set[str]) -> Iterator[Job]:
    """Yield the jobs whose keys are not among `finished`; add the keys of the others to `earlier_keys`."""
    for job in suite.jobs(progress.drop):
        if job.key in finished:
            earlier_keys.add(job.key)
            progress.skip()
        else:
            yield job


def _store_outcomes(pool: Pool, jobs: Iterator[Job], store: Store, progress: Progress) -> int:
    """Run the jobs, store and show each outcome, and return the number of outcomes with a point."""
    points = 0
    with progress, closing(pool.outcomes(jobs)) as outcomes:
        warnings.showwarning = lambda message, *_, **__: progress.say(f"qcqpbench: {message}")
        for outcome in outcomes:
            store.add(outcome)
            progress.add(outcome)
            points += outcome.attempt.point is not None
    return points


def _suite(options: argparse.Namespace) -> Suite:
    """Return the suite, with problems, solvers and settings replaced by those in `options`."""
    # Describing a plug-in's solver starts a process, so only the solvers that are to run are described.
    suite = load_suite(options.suite, [parse(spec)[0] for spec in options.solver] if options.solver else None)
    if options.problem:
        problems = [problem for text in options.problem for problem in expand_problem(text)]
        # The conditions of the entries refer to the suite's own problems.
        entries = tuple(replace(entry, where={}) for entry in suite.entries)
        suite = replace(suite, problems=tuple(dict.fromkeys(problems)), entries=entries)
    if options.solver:
        suite = replace(suite, entries=tuple(_entry(spec, suite) for spec in options.solver))
    settings = {
        "starts": options.starts,
        "seed": options.seed,
        "time_limit": options.timeout,
        "memory_limit": options.memory,
        "threads": options.threads,
        "tolerance": options.tolerance,
    }
    changes = {name: value for name, value in settings.items() if value is not None}
    return replace(
        suite,
        entries=tuple(replace(entry, settings=replace(entry.settings, **changes)) for entry in suite.entries),
    )


def _entry(spec: str, suite: Suite) -> Entry:
    """Return the suite's entry for the solver `spec`, or a new entry with the settings of the suite's first one."""
    facts = solver_facts(spec)
    for entry in suite.entries:
        if entry.solver.spec == facts.spec:
            return replace(entry, named=True)
    return Entry(facts, suite.entries[0].settings)


def _available_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
