"""Every solver on one small task: time, memory, and optimality gaps.

A solver that is not available is "n/a". Solvers that would run for long, such as scip, use the whole time limit.
"""

from qcqpbench import random_start, solve
from qcqpbench.catalog.registry import solver, solvers
from qcqpbench.catalog.status import Availability, PointStatus
from qcqpbench.run.attempt import Attempt
from qcqpbench.run.isolation.worker import Worker
from qcqpbench.run.run_spec import RunOptions

from .core import make_task

SPEC = "covariance_perceptron[m=20,load=1]"
TIME_LIMIT_SECONDS = 2.0
STARTS = 3
# The largest known κ̄ of SPEC, by slsqp from start 1; multistart and scip reach the same point.
BEST_KNOWN = 0.7913007924530633

Attempts = dict[str, list[Attempt]]


def is_available(name: str) -> bool:
    return name in solvers() and solver(name).availability()[0] is Availability.AVAILABLE


class Solve:
    """Time and memory of one run."""

    params = tuple(solvers())
    param_names = ("solver",)
    number, repeat, rounds, warmup_time = 1, (1, 5, 4.0), 1, 0.0

    def setup(self, name: str) -> None:
        if not is_available(name):
            raise NotImplementedError
        # The first run imports the solver's packages.
        solve(make_task("covariance_perceptron[m=3,load=1]"), name, time_limit=TIME_LIMIT_SECONDS)
        self.task = make_task(SPEC)

    def time_solve(self, name: str) -> None:
        solve(self.task, name, time_limit=TIME_LIMIT_SECONDS)

    def peakmem_solve(self, name: str) -> None:
        solve(self.task, name, time_limit=TIME_LIMIT_SECONDS)


class Gaps:
    """Optimality gaps of κ̄, the larger the worse; an infeasible point or a margin that is not positive counts as 0.

    Rounded to four digits: asv would take the rounding errors of a gap close to 0 for changes of many per cent.
    """

    unit = "kappa_bar"
    params = tuple(solvers())
    param_names = ("solver",)

    def setup_cache(self) -> Attempts:
        """Run the solvers once for all that is tracked, in a worker process: a crash is one failed run."""
        task = make_task(SPEC)
        starts = [random_start(task, number) for number in range(STARTS)]
        options = RunOptions(time_limit=TIME_LIMIT_SECONDS)
        with Worker() as worker:
            return {
                name: [worker.attempt(task, name, start, options).attempt for start in starts]
                for name in filter(is_available, solvers())
            }

    setup_cache.timeout = 600  # type: ignore[attr-defined]

    def setup(self, attempts: Attempts, name: str) -> None:
        if name not in attempts:
            raise NotImplementedError
        self.kappa_bars = [
            max(0.0, attempt.kappa_bar or 0.0) if attempt.point_status is PointStatus.FEASIBLE else 0.0
            for attempt in attempts[name]
        ]
        self.theory = attempts[name][0].kappa_bar_theory

    def track_gap_to_full_rsb(self, attempts: Attempts, name: str) -> float:
        """Return the gap to the margin that full replica-symmetry breaking (RSB) predicts as m → ∞."""
        assert self.theory is not None
        return round(self.theory - max(self.kappa_bars), 4)

    def track_gap_to_best_known(self, attempts: Attempts, name: str) -> float:
        return round(BEST_KNOWN - max(self.kappa_bars), 4)

    def track_unsolved(self, attempts: Attempts, name: str) -> float:
        """Return the share of starts without a feasible point of positive margin."""
        return sum(kappa_bar == 0.0 for kappa_bar in self.kappa_bars) / len(self.kappa_bars)

    track_unsolved.unit = "share"  # type: ignore[attr-defined]
