"""Gaps, times and memory of the solver."""

from qcqpbench.integrations.asv import SolverGaps, SolverTimes


class Setting:
    """The solver, the problems and the limit of all benchmarks."""

    solvers = ("ascent",)
    problems = ("covariance_perceptron[m=8,load=0.5,seed=1]", "covariance_perceptron[m=10,load=0.5]")
    time_limit = 10.0


class Gaps(Setting, SolverGaps):
    """Gaps of the best of two starts."""

    starts = 2


class Times(Setting, SolverTimes):
    """Time and memory of one run."""
