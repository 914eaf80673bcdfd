"""Running of suites into results files: the loop behind `qcqpbench.run` and the command `run`."""

import os
import pickle
import shlex
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, Unpack

from qcqpbench.catalog.machine import machine
from qcqpbench.catalog.registry import check_type
from qcqpbench.catalog.solver import Solver
from qcqpbench.catalog.status import Termination
from qcqpbench.errors import QcqpbenchError, nearest, require
from qcqpbench.problem.formats.by_suffix import write
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import Outcome
from qcqpbench.run.isolation.description import problem_apart, solver_facts
from qcqpbench.run.pools.local_pool import LocalPool, Pool, Running
from qcqpbench.run.run_spec import OPTIONS, RunOptionArguments, RunSpec
from qcqpbench.run.suite import ProblemIdentity, Settings, Share, Suite, listed
from qcqpbench.run.suite_file import load_suite

from .results import Results
from .row import Row
from .store import Store

_ID_CHARACTERS = 16


class Monitor(Protocol):
    """Interface of the display of a suite's progress."""

    def watch(self, total: int, running: Callable[[], list[Running]]) -> AbstractContextManager[object]:
        """Show the progress during a `with` block: `total` runs, those in progress from `running`.

        The runs that `drop` has counted before are to be taken from `total`.
        """

    def drop(self, count: int) -> None:
        """Count `count` runs that will not take place.

        Once `watch` has begun, these are only runs equal to an earlier run of the suite.
        """

    def skip(self, count: int) -> None:
        """Count `count` runs that are in the file already."""

    def add(self, outcome: Outcome) -> None:
        """Count a run that has ended."""

    def add_earlier(self, row: Row) -> None:
        """Count the row of a run that was in the file already."""

    def say(self, text: str) -> None:
        """Show a line of text."""


class _Silence:
    """Monitor that shows warnings only."""

    def watch(self, total: int, running: Callable[[], list[Running]]) -> AbstractContextManager[object]:
        return nullcontext()

    def drop(self, count: int) -> None: ...

    def skip(self, count: int) -> None: ...

    def add(self, outcome: Outcome) -> None: ...

    def add_earlier(self, row: Row) -> None: ...

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)


@dataclass
class Counts:
    """Numbers of runs: new ones, new ones with a point and skipped ones, and those that the file had before."""

    new: int = 0
    points: int = 0
    skipped: int = 0
    earlier: int = 0


def run(
    suite: str | Path | Suite | None = None,
    *,
    problems: Iterable[str | Path | MaxMargin | QCQP] | None = None,
    solvers: Iterable[str | Solver] | None = None,
    starts: int | None = None,
    jobs: int | None = None,
    output: str | Path,
    dask: str | None = None,
    force: bool = False,
    share: str | None = None,
    **options: Unpack[RunOptionArguments],
) -> Results:
    """Run solvers on problems in isolated processes, and store a row for each run in a results file.

    Runs that the file contains are not repeated, so that the same call resumes after an interruption. Give either a
    suite or `problems` and `solvers`.

    Parameters
    ----------
    suite
        A suite, the name of one that comes with qcqpbench, or the path of a .toml file.
    problems
        Specs, files, folders of files, max-margin tasks or QCQPs. A problem that no spec denotes is written to a file
        in the folder ``<output>-problems``, from which its rows can be checked later.
    solvers
        Specs or solvers. The class of a solver must be importable by other processes: in a notebook, define it in a
        module.
    starts
        Number of random starts of each solver on each problem; by default that of the suite, or 1.
    jobs
        Number of simultaneous runs; by default one per CPU.
    output
        The results file; created if it does not exist.
    dask
        Address of a Dask scheduler, or ``local``; None for processes of this machine.
    force
        Whether to repeat the runs that the file contains.
    share
        The share of the runs to make: ``"3/10"`` is the third of ten. The shares together hold each run once.
    **options
        Options of each run: `start_seed`, `time_limit`, `memory_limit_bytes`, `threads`, `tolerance`, …, see
        `RunOptions`; by default those of the suite, or of `RunOptions`.

    Returns
    -------
    Results
        The results in the file, including those of earlier runs.

    Raises
    ------
    QcqpbenchError
        If an argument is invalid.

    Examples
    --------
    >>> results = run(problems=["parity[k=2]"], solvers=["gip"], output="parity.db")  # doctest: +SKIP
    """
    given = {"starts": starts, **options}
    for name in given.keys() - {"starts", *OPTIONS}:
        raise nearest(name, OPTIONS, "argument of run")
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings = Settings(**changes)
    _check_arguments(output, dask, force)
    if suite is not None:
        require(problems is None and solvers is None, "problems and solvers must not be given with a suite, got both")
        chosen = (suite if isinstance(suite, Suite) else load_suite(suite)).with_settings(**changes)
    else:
        if problems is None or solvers is None:
            needed = {"problems": problems, "solvers": solvers}
            missing = " and ".join(name for name, value in needed.items() if value is None)
            raise QcqpbenchError(f"run must be given a suite, or problems and solvers, got no {missing}")
        solver_list = listed("solvers", solvers)
        for solver in solver_list:
            _check_solver(solver)
        identities: dict[str, ProblemIdentity] = {}
        texts = [_problem_text(problem, Path(output), identities) for problem in listed("problems", problems)]
        chosen = replace(Suite.of(texts, solver_list, settings), identities=identities)
    if share is not None:
        chosen = replace(chosen, share=Share.of(share))
    name = chosen.name if isinstance(suite, Suite) else str(suite)
    command = "qcqpbench.run" if suite is None else f"qcqpbench.run({name!r})"
    collect(chosen, output, command, jobs, dask, force)
    return Results(output)


def _check_arguments(output: object, dask: object, force: object) -> None:
    require(isinstance(output, str | Path), f"output must be the path of a results file, got {output!r:.100}")
    folder = Path(str(output)).absolute().parent
    require(folder.is_dir(), f"output must be in an existing folder, got {output}")
    require(dask is None or isinstance(dask, str), f"dask must be 'local', an address or None, got {dask!r:.100}")
    require(isinstance(force, bool), f"force must be True or False, got {force!r:.100}")


def _check_solver(solver: str | Solver) -> None:
    """Raise QcqpbenchError unless other processes can import the class of a solver, and receive its parameters."""
    check_type("solvers", solver, Solver, "hold specs or solvers")
    if isinstance(solver, str):
        # An unknown name is an error before problems are written to files.
        solver_facts(solver)
        return
    interactive = getattr(sys.modules["__main__"], "__file__", None) is None
    try:
        require(type(solver).__module__ != "__main__" or not interactive, "it is defined in a notebook or a prompt")
        pickle.dumps(solver)
    except Exception as error:
        rule = "solvers must be of classes in modules, which other processes can import"
        raise QcqpbenchError(f"{rule}, got {type(solver).__qualname__}: {error}") from error


def _problem_text(problem: object, output: Path, identities: dict[str, ProblemIdentity]) -> str:
    """Return the spec or path of a problem; write a problem that has no spec to a file beside the results file.

    If the problem has a spec, add its identity to `identities`.
    """
    if isinstance(problem, str | Path):
        return str(problem)
    if not isinstance(problem, MaxMargin | QCQP):
        raise QcqpbenchError(f"problems must hold specs, files, MaxMargins or QCQPs, got {problem!r:.100}")
    spec = problem.metadata.spec
    try:
        # The code of a plug-in must not run here, even if the metadata of a file names its family.
        if spec is not None and problem_apart(spec).id == problem.id:
            identities[spec] = ProblemIdentity.of(problem)
            return spec
    except QcqpbenchError:
        # The family is not installed.
        pass
    folder = output.with_name(f"{output.name}-problems")
    folder.mkdir(exist_ok=True)
    path = folder / f"{problem.id[:_ID_CHARACTERS]}.npz"
    if not path.exists():
        write(problem, path)
    return str(path)


def collect(
    suite: Suite,
    output: str | Path,
    command: str | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    force: bool = False,
    monitor: Monitor | None = None,
    counts: Counts | None = None,
) -> Counts:
    """Make the runs of a suite that a results file does not contain, and store their rows.

    Parameters
    ----------
    suite
        The problems and solvers.
    output
        The results file.
    command
        Text that the file stores as the command; by default the command line of this process.
    jobs, dask, force
        As in `run`.
    monitor
        Display of the progress.
    counts
        Counts that are updated during the runs, so that they can be read after an interruption.

    Returns
    -------
    Counts
        The numbers of runs.
    """
    monitor, counts = monitor or _Silence(), counts or Counts()
    pool = _pool(suite, jobs, dask)
    with Store(output, write=True) as store:
        earlier_keys: set[str] = set()
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: monitor.say(f"qcqpbench: {message}")
            runs = suite.runs(monitor.drop)
            # Before its first run, a suite leaves out the runs of solvers that do not accept a problem.
            first_runs = list(islice(runs, 1))
            finished = set() if force else store.finished()
            specs = _new_runs(chain(first_runs, runs), finished, monitor, earlier_keys)
            store.begin(command or shlex.join(["qcqpbench", *sys.argv[1:]]), machine())
            with monitor.watch(suite.size, pool.running), closing(pool.outcomes(specs)) as outcomes:
                for outcome in outcomes:
                    store.add(outcome)
                    counts.new += 1
                    counts.points += outcome.attempt.point is not None
                    counts.skipped += outcome.attempt.termination is Termination.SKIPPED
                    monitor.add(outcome)
        counts.earlier = len(earlier_keys)
        for row in store.rows() if earlier_keys else ():
            if row.key in earlier_keys:
                monitor.add_earlier(row)
    return counts


def _pool(suite: Suite, jobs: int | None, dask: str | None) -> Pool:
    """Return the pool that makes the runs, with `jobs` simultaneous runs, by default the CPUs divided by the threads.

    `dask` is the address of a Dask scheduler; None for processes of this machine.
    """
    instances: Mapping[str, Solver] = {
        entry.solver.spec: entry.instance for entry in suite.entries if entry.instance is not None
    }
    threads = max(entry.settings.threads for entry in suite.entries)
    jobs = max(1, _available_cpus() // threads) if jobs is None else jobs
    valid = isinstance(jobs, Integral) and not isinstance(jobs, bool) and jobs >= 1
    require(valid, f"jobs must be a whole number, at least 1, got {jobs!r:.100}")
    if dask is None:
        return LocalPool(int(jobs), instances)
    from qcqpbench.run.pools.dask_pool import DaskPool  # noqa: PLC0415 (slow to import)

    objects = ", ".join(instances)
    require(not instances, f"solvers on a Dask cluster must be given by their specs, got objects: {objects}")
    return DaskPool(dask, int(jobs))


def _new_runs(
    runs: Iterable[RunSpec], finished: Container[str], monitor: Monitor, earlier_keys: set[str]
) -> Iterator[RunSpec]:
    """Yield the runs whose keys are not among `finished`; add the keys of the others to `earlier_keys`."""
    for spec in runs:
        if spec.key in finished:
            earlier_keys.add(spec.key)
            monitor.skip(1)
        else:
            yield spec


def _available_cpus() -> int:
    return len(os.sched_getaffinity(0))
