"""Benchmarks of solvers for airspeed velocity (asv), to be subclassed in the benchmarks of a solver's own repository.

A module of the author's benchmarks holds subclasses, which asv finds by themselves::

    from qcqpbench.integrations.asv import SolverGaps, SolverTimes


    class Setting:
        solvers = ["my_solver", "ipopt"]
        problems = ["covariance_perceptron[m=10,load=1]", "covariance_perceptron[m=20,load=1]"]
        time_limit = 5.0


    class Gaps(Setting, SolverGaps):
        starts = 3


    class Times(Setting, SolverTimes):
        pass

asv takes larger values as worse, so every benchmark is a gap, a share of failures, a time or a size. A solver that is
not installed or does not accept a problem is "n/a".

asv runs each benchmark in a process of its own. All of them make the verified runs that they need with `qcqpbench.run`,
in one results file, so that each run is made once in a call of asv: in a separate process, which is killed at the
limits, and with points that are evaluated in a process in which no solver's code runs.
"""

import hashlib
import math
import statistics
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from inspect import getattr_static
from pathlib import Path
from typing import ClassVar

from qcqpbench.analysis.metrics import PROVED_GAP, SAME, is_solved
from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.catalog.status import Availability
from qcqpbench.errors import require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.results.collect import run
from qcqpbench.results.row import Row
from qcqpbench.run.isolation.description import problem_apart, solver_facts
from qcqpbench.run.run_spec import OPTIONS
from qcqpbench.run.suite import Settings, Suite, listed
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE

from ._runs import TimedRun, ended_by_itself, gap_to_best_known

# In the folder that asv gives to all benchmarks with the same `setup_cache`, those of other classes included.
_RESULTS_FILE = "runs.db"
# A run in a new process takes about a second more than the solver.
_SECONDS_PER_RUN = 5.0
_BASE_SECONDS = 60.0
# To be increased when the same runs give other values, which asv must not compare with the earlier ones.
_VERSION = 1
_TINY_TASK = "covariance_perceptron[m=3,load=1]"
# asv would take the rounding errors of a gap close to 0 for changes of many per cent.
_DIGITS = 4


class SolverBenchmarks(ABC):
    """Base class of benchmarks of solvers on groups of problems.

    Attributes
    ----------
    solvers
        Specs of the solvers.
    problems
        Specs or files of problems, each a group of its own, or a dict of lists of them by the name of the group.
    starts, time_limit, memory_limit_bytes, threads, tolerance
        Number of random starts, and the options of each run, see `RunOptions`.
    """

    starts: ClassVar[int] = 1
    time_limit: ClassVar[float] = 10.0
    memory_limit_bytes: ClassVar[int | None] = None
    threads: ClassVar[int] = 1
    tolerance: ClassVar[float] = FEASIBILITY_TOLERANCE

    settings: ClassVar[Settings]
    groups: ClassVar[Mapping[str, tuple[str, ...]]]
    rows: Sequence[Row]

    # Read by asv.
    params: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]]
    param_names = ("solver", "problems")
    timeout: ClassVar[float]
    version: ClassVar[str]

    @property
    @abstractmethod
    def solvers(self) -> Sequence[str]: ...

    @property
    @abstractmethod
    def problems(self) -> Sequence[str] | Mapping[str, Sequence[str]]: ...

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        solvers, problems = (getattr_static(cls, name) for name in ("solvers", "problems"))
        if isinstance(solvers, property) or isinstance(problems, property):
            # An abstract subclass, which asv leaves out.
            return
        if not isinstance(problems, Mapping):
            problems = {spec: [spec] for spec in listed("problems", problems)}
        cls.settings = Settings(
            starts=cls.starts, **{name: getattr(cls, name) for name in OPTIONS if hasattr(cls, name)}
        )
        cls.groups = {name: tuple(listed(f"problems[{name!r}]", specs)) for name, specs in problems.items()}
        require(bool(cls.groups), "problems must hold at least one group, got none")
        cls.params = (tuple(listed("solvers", solvers)), tuple(cls.groups))
        runs = (cls.settings.starts + 2) * max(map(len, cls.groups.values()))
        cls.timeout = _BASE_SECONDS + runs * (cls.settings.time_limit + _SECONDS_PER_RUN)
        setting = repr((_VERSION, cls.settings, sorted(cls.groups.items())))
        cls.version = hashlib.sha256(setting.encode()).hexdigest()

    def setup_cache(self) -> None:
        """Begin a new results file in the current folder.

        asv calls this once, and then runs all benchmarks with the same `setup_cache` in the same folder.
        """
        Path(_RESULTS_FILE).unlink(missing_ok=True)

    def setup(self, solver: str, problems: str) -> None:
        """Make the runs of a solver on a group of problems, or read their rows if they were made before."""
        self.rows = _verified_rows(solver, self.groups[problems], self.settings)

    def rows_by_problem(self) -> list[list[Row]]:
        """Return the rows of each problem."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[row.problem_id].append(row)
        return list(groups.values())


class SolverGaps(SolverBenchmarks):
    """Optimality gaps of solvers, and shares of failures.

    A gap is that of the best start, averaged over the problems of a group. A start without a feasible point has the
    gap 1, or κ̄ = 0. Values are rounded to four digits.
    """

    def track_gap(self, solver: str, problems: str) -> float:
        """Return the relative gap to the best known value, of the problems that have one."""
        return _mean([min(gaps) for rows in self.rows_by_problem() if (gaps := _gaps(rows))])

    track_gap.unit = "relative gap"  # type: ignore[attr-defined]

    def track_gap_to_theory(self, solver: str, problems: str) -> float:
        """Return the difference of κ̄ to the margin that the best theory predicts, of tasks with a prediction."""
        return _mean(
            [
                rows[0].kappa_bar_theory - max((row.kappa_bar or 0.0) if is_solved(row) else 0.0 for row in rows)
                for rows in self.rows_by_problem()
                if rows[0].kappa_bar_theory is not None
            ]
        )

    track_gap_to_theory.unit = "kappa_bar"  # type: ignore[attr-defined]

    def track_missed_optima(self, solver: str, problems: str) -> float:
        """Return the share of problems with a proved optimum that no start reaches to a relative gap of 1e-4."""
        proved = [rows for rows in self.rows_by_problem() if _has_proved_optimum(rows[0])]
        return _mean([float(min(_gaps(rows)) > SAME) for rows in proved])

    track_missed_optima.unit = "share"  # type: ignore[attr-defined]

    def track_unsolved(self, solver: str, problems: str) -> float:
        """Return the share of runs without a feasible point or, on a task, without a positive margin."""
        return _mean([float(not is_solved(row)) for row in self.rows])

    track_unsolved.unit = "share"  # type: ignore[attr-defined]


class SolverTimes(SolverBenchmarks):
    """Times and memory of solvers. A solver that does not solve a group of problems is "n/a".

    asv repeats the timed part up to five times; set `repeat` or `warmup_time` to change this.
    """

    number, repeat, rounds, warmup_time = 1, (1, 5, 4.0), 1, 0.0

    def setup(self, solver: str, problems: str) -> None:
        super().setup(solver, problems)
        for row in self.rows:
            if row.start == 0 and not (row.success and ended_by_itself(row, self.settings.time_limit)):
                reason = row.message or f"{row.termination}, {row.point_status} point"
                raise NotImplementedError(f"{solver} must solve {row.problem} to be timed: {reason}")
        self.timed_runs = _timed_runs(solver, self.groups[problems], self.settings)

    def time_solve(self, solver: str, problems: str) -> None:
        """Build and solve the problems of a group one after another, from start 0, in the process of the benchmark."""
        for timed in self.timed_runs:
            timed()

    def track_peak_memory(self, solver: str, problems: str) -> int:
        """Return the largest peak memory of the solver's process in the verified runs."""
        return max(row.peak_memory_bytes or 0 for row in self.rows)

    track_peak_memory.unit = "bytes"  # type: ignore[attr-defined]


@cache
def _suite(solver: str, problems: tuple[str, ...], settings: Settings) -> Suite:
    """Return the suite of a solver on problems.

    Raise NotImplementedError, which asv shows as "n/a", if the solver is not available or does not accept a problem.
    """
    facts = solver_facts(solver)
    if facts.availability is not Availability.AVAILABLE:
        raise NotImplementedError(f"{solver}: {facts.reason}")
    suite = Suite.of(problems, [solver], settings)
    if not facts.takes_qcqps and not all(isinstance(problem_apart(spec), MaxMargin) for spec in suite.problems):
        raise NotImplementedError(f"{solver} accepts only max-margin tasks")
    return suite


@cache
def _verified_rows(solver: str, problems: tuple[str, ...], settings: Settings) -> tuple[Row, ...]:
    """Return the rows of a solver on problems; make the runs that the results file does not contain.

    The result is cached, because asv repeats `setup` before each sample.
    """
    suite = _suite(solver, problems, settings)
    keys = {spec.key for spec in suite.runs()}
    return tuple(row for row in run(suite, jobs=1, output=_RESULTS_FILE) if row.key in keys)


@cache
def _timed_runs(solver: str, problems: tuple[str, ...], settings: Settings) -> tuple[TimedRun, ...]:
    """Return the runs to be timed, after one on a tiny task, which imports the solver's packages."""
    for spec in _suite(solver, (_TINY_TASK,), replace(settings, starts=1)).runs():
        TimedRun(spec)()
    return tuple(TimedRun(spec) for spec in _suite(solver, problems, settings).runs() if spec.start == 0)


def _gaps(rows: Sequence[Row]) -> list[float]:
    """Return the gaps of rows of the same problem to its best known value; empty if none is known."""
    return [gap for row in rows if (gap := gap_to_best_known(row)) is not None]


def _has_proved_optimum(row: Row) -> bool:
    """Return whether the list of best known margins proves that the best known value of the problem is optimal."""
    record = shipped_records().get(row.problem_id)
    return record is not None and record.gap <= PROVED_GAP and row.best_known is not None


def _mean(values: Sequence[float]) -> float:
    """Return the mean rounded to four digits; NaN, which asv shows as "n/a", if there are no values."""
    return round(statistics.fmean(values), _DIGITS) if values else math.nan
