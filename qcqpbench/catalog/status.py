"""Why a solver stopped, what its point is worth, whether it can run: enums whose members carry their message."""

from enum import Enum
from typing import Self


class _Status(Enum):
    """A member is spelled by its value in rows and JSON; `message` says what it means."""

    message: str

    def __new__(cls, value: str, message: str) -> "_Status":
        member = object.__new__(cls)
        member._value_ = value
        member.message = message
        return member

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def named(cls, value: str) -> Self:
        """Return the member that is spelled so; raise KeyError if there is none."""
        return {member.value: member for member in cls}[value]


class Termination(_Status):
    """Why a run ended, as the solver claims it, or as the suite saw it where the solver could not say."""

    OPTIMAL = "optimal", "the solver proved its point globally optimal"
    LOCALLY_OPTIMAL = "locally_optimal", "the solver's optimality conditions hold to its tolerance"
    STALLED = "stalled", "the solver could not improve further, short of its tolerance"
    FINISHED = "finished", "the solver did what it was asked to, and claims nothing about optimality"
    ITERATION_LIMIT = "iteration_limit", "the solver used up its iterations"
    TIME_LIMIT = "time_limit", "the time was used up"
    MEMORY_LIMIT = "memory_limit", "more memory was needed than it was given"
    INFEASIBLE = "infeasible", "the solver proved that there is no feasible point"
    LOCALLY_INFEASIBLE = "locally_infeasible", "the solver converged to a point where infeasibility is locally least"
    UNBOUNDED = "unbounded", "the solver found the objective to be without bound"
    FAILED = "failed", "the solver gave up"
    ERROR = "error", "the adapter or the solver raised an exception"
    CRASHED = "crashed", "the process of the solver died"
    SKIPPED = "skipped", "the solver cannot run here"

    @property
    def claims_a_solution(self) -> bool:
        return self in (Termination.OPTIMAL, Termination.LOCALLY_OPTIMAL)


class PointStatus(_Status):
    """What the suite found the returned point to be."""

    FEASIBLE = "feasible", "every constraint holds to the tolerance"
    INFEASIBLE = "infeasible", "a constraint is violated by more than the tolerance"
    INVALID = "invalid", "the point has a wrong shape, holds a value that is not finite, or a direction that is zero"
    NONE = "none", "no point was returned"


class Availability(_Status):
    """Whether a solver can run on this machine."""

    AVAILABLE = "available", "can run"
    NOT_INSTALLED = "not_installed", "a package it needs is missing"
    UNSUPPORTED = "unsupported", "what these parameters ask for does not work"


class Scope(_Status):
    """What kind of answer a solver gives."""

    LOCAL = "local", "a point, good nearby"
    GLOBAL = "global", "a point and a proven bound that meet, given time"
    BOUND = "bound", "a certified bound, and a point rounded from it"
