"""A solver with a tolerance of its own, which would make its points feasible."""

from dataclasses import dataclass

from qcqpbench import QCQP, QCQPSolver, RunFunction, Solution, Termination


@dataclass(frozen=True)
class Lenient(QCQPSolver):
    name = "lenient"
    drives = "nothing"
    citation = "none"
    tolerance = 0.05

    def build(self, problem: QCQP) -> RunFunction:
        def run(start, budget):  # type: ignore[no-untyped-def]
            x = start.copy()
            # Moves until just below its own tolerance.
            while problem.violation(x, relative=True) < 0.02:
                x -= 0.001
            return Solution(x, Termination.LOCALLY_OPTIMAL, float(problem.objective(x)))

        return run
