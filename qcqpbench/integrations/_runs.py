"""Runs in the process of a benchmark, and gaps, for both asv and pytest."""

from qcqpbench.analysis.metrics import gap, score, sign
from qcqpbench.catalog.registry import solver
from qcqpbench.catalog.status import Termination
from qcqpbench.run.attempt import RunValues
from qcqpbench.run.isolation.description import problem_apart
from qcqpbench.run.isolation.protocol import GRACE_SECONDS
from qcqpbench.run.proposal import Proposal, limit_threads, propose
from qcqpbench.run.run_spec import RunSpec, random_start

# Gap of a run without a feasible point, and the largest gap of any run. A margin of 0 has this gap too.
LARGEST_GAP = 1.0


class TimedRun:
    """Run of a solver in this process, to be timed. The problem and the start are made beforehand."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec, self._solver, self._problem = spec, solver(spec.solver), problem_apart(spec.problem)
        self._start = random_start(self._problem, spec.start, spec.start_seed)

    def __call__(self) -> Proposal:
        """Build the problem for the solver, and run the solver on it."""
        with limit_threads(self._spec.threads):
            return propose(self._problem, self._solver, self._start, self._spec.time_limit, self._spec.threads)


def ended_by_itself(run: RunValues, time_limit: float) -> bool:
    """Return whether an isolated run neither broke off nor had to be killed, so that it may run in this process."""
    broken = run.termination in (Termination.ERROR, Termination.CRASHED, Termination.MEMORY_LIMIT, Termination.SKIPPED)
    return not broken and run.solve_seconds is not None and run.solve_seconds <= time_limit + GRACE_SECONDS


def gap_to_best_known(run: RunValues) -> float | None:
    """Return the relative gap of a run to the best known value of its problem, or None if no value is known.

    The gap is (best − value) / max(|best|, 0.01), in κ̄ for a task and in the objective for a QCQP; a value better than
    the best known one has a negative gap. A run without a feasible point has the largest gap, 1.
    """
    if run.best_known is None:
        return None
    run_score, factor = score(run), sign(run)
    if run_score is None or factor is None:
        return LARGEST_GAP
    if run.margin is not None and run.kappa_bar is not None:
        factor = run.kappa_bar / run.margin if run.margin else 1.0
    return min(LARGEST_GAP, gap(run_score, factor * run.best_known))
