"""Every solver: optimality gaps and failures on sets of small tasks, time and memory on one task.

The classes are those that qcqpbench offers to other solvers. A solver that is not available is "n/a". Solvers that
would run for long, such as scip, use the whole time limit.
"""

from qcqpbench.catalog.registry import solver_names
from qcqpbench.integrations.asv import SolverGaps, SolverTimes

# Tasks of the suites of these names.
TASKS = {
    "proved": [
        *(
            f"covariance_perceptron[m={m},load={load},ensemble={ensemble},seed=1]"
            for m, load in ((8, 0.5), (8, 1), (12, 0.5), (12, 1))
            for ensemble in ("paper", "gaussian")
        ),
        "covariance_perceptron[n=3,m=6,p=3,ensemble=gaussian,seed=1]",
    ],
    "best_known": [
        *(f"covariance_perceptron[m=20,load={load}]" for load in (0.5, 1, 2)),
        "covariance_perceptron[n=3,m=20,p=20]",
    ],
}


class EverySolver:
    """Solvers of all benchmarks."""

    solvers = tuple(solver_names())


class Gaps(EverySolver, SolverGaps):
    """Gaps and failures on sets of tasks."""

    problems = TASKS
    # gip needs up to a second, and its gaps must not depend on the load of the machine.
    time_limit = 3.0


class Times(EverySolver, SolverTimes):
    """Time and memory on one task."""

    problems = ("covariance_perceptron[m=20,load=1]",)
    time_limit = 2.0
