"""Every solver on one small task: its time, its memory, and how far its margins are from what could be.

A solver that is not available is "n/a". Those that would run for long, such as scip, take all of the time limit.
"""

from qcqpbench import random_start, solve
from qcqpbench.catalog.registry import solver, solvers
from qcqpbench.catalog.status import Availability, PointStatus
from qcqpbench.run.attempt import Attempt
from qcqpbench.run.isolation.worker import Worker

from .core import make_task

SPEC = "covariance_perceptron[m=20,load=1]"
TIME_LIMIT = 2.0
STARTS = 3
# The largest κ̄ known of SPEC: slsqp from start 1; multistart and scip find the same point.
BEST_KNOWN = 0.7913007924530633

Attempts = dict[str, list[Attempt]]


def is_available(name: str) -> bool:
    return name in solvers() and solver(name).availability()[0] is Availability.AVAILABLE


class Solve:
    params = tuple(solvers())
    param_names = ("solver",)
    number, repeat, rounds, warmup_time = 1, (1, 5, 4.0), 1, 0.0

    def setup(self, name: str) -> None:
        if not is_available(name):
            raise NotImplementedError
        # Imports the solver's packages.
        solve(make_task("covariance_perceptron[m=3,load=1]"), name, time_limit=TIME_LIMIT)
        self.task = make_task(SPEC)

    def time_solve(self, name: str) -> None:
        solve(self.task, name, time_limit=TIME_LIMIT)

    def peakmem_solve(self, name: str) -> None:
        solve(self.task, name, time_limit=TIME_LIMIT)


class Gaps:
    """Larger is worse. A point that is infeasible or has no positive margin counts as κ̄ = 0.

    To four digits: the others are rounding, which near 0 asv would take for changes of many per cent.
    """

    unit = "kappa_bar"
    params = tuple(solvers())
    param_names = ("solver",)

    def setup_cache(self) -> Attempts:
        """All that is tracked comes from the same runs, in a process of their own: one that crashes is one failure."""
        task = make_task(SPEC)
        starts = [random_start(task, number) for number in range(STARTS)]
        with Worker() as worker:
            return {
                name: [worker.attempt(task, name, start, TIME_LIMIT).attempt for start in starts]
                for name in filter(is_available, solvers())
            }

    setup_cache.timeout = 600  # type: ignore[attr-defined]

    def setup(self, attempts: Attempts, name: str) -> None:
        if name not in attempts:
            raise NotImplementedError
        self.kappa_bars = [
            max(0.0, each.kappa_bar or 0.0) if each.point_status is PointStatus.FEASIBLE else 0.0
            for each in attempts[name]
        ]
        self.theory = attempts[name][0].kappa_bar_theory

    def track_gap_to_theory(self, attempts: Attempts, name: str) -> float:
        assert self.theory is not None
        return round(self.theory - max(self.kappa_bars), 4)

    def track_gap_to_best_known(self, attempts: Attempts, name: str) -> float:
        return round(BEST_KNOWN - max(self.kappa_bars), 4)

    def track_unsolved(self, attempts: Attempts, name: str) -> float:
        """The share of starts without a feasible point of positive margin."""
        return sum(each == 0.0 for each in self.kappa_bars) / len(self.kappa_bars)

    track_unsolved.unit = "share"  # type: ignore[attr-defined]
