"""Status enums of runs, points and solvers; each member has a message that explains it."""

from enum import Enum
from functools import cache
from typing import Any, Self


class _Status(Enum):
    """Base class of enums whose values are stored in rows and JSON, and whose members have a `message`."""

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
        """Return the member with this value; raise KeyError if there is none."""
        return {member.value: member for member in cls}[value]

    @classmethod
    @cache
    def stored(cls, value: str) -> Self:
        """Return the member with this value; for an unknown value of a newer version, an object that is no member."""
        for member in cls:
            if member.value == value:
                return member
        unknown = object.__new__(cls)
        unknown._name_, unknown._value_, unknown.message = value, value, value
        return unknown

    def __reduce_ex__(self, _: object) -> tuple[Any, ...]:
        return type(self).stored, (self.value,)


class Termination(_Status):
    """Reason why a run ended: claimed by the solver, or observed by the suite if the solver could not report."""

    OPTIMAL = "optimal", "the solver proved its point globally optimal"
    LOCALLY_OPTIMAL = "locally_optimal", "the solver's optimality conditions hold to its tolerance"
    STALLED = "stalled", "the solver could not improve further, short of its tolerance"
    FINISHED = "finished", "the solver completed its procedure, and claims nothing about optimality"
    ITERATION_LIMIT = "iteration_limit", "the solver reached its iteration limit"
    TIME_LIMIT = "time_limit", "the run reached its time limit"
    MEMORY_LIMIT = "memory_limit", "the run exceeded its memory limit"
    INFEASIBLE = "infeasible", "the solver proved that there is no feasible point"
    LOCALLY_INFEASIBLE = "locally_infeasible", "the solver converged to a point where infeasibility is locally least"
    UNBOUNDED = "unbounded", "the solver found the objective to be unbounded"
    FAILED = "failed", "the solver gave up"
    ERROR = "error", "the adapter or the solver raised an exception"
    CRASHED = "crashed", "the process of the solver died"
    SKIPPED = "skipped", "the solver cannot run here"

    @property
    def claims_a_solution(self) -> bool:
        """True if the solver claims a globally or locally optimal point."""
        return self in (Termination.OPTIMAL, Termination.LOCALLY_OPTIMAL)

    @property
    def is_regular(self) -> bool:
        """True if the solver ended as intended, so that its message needs no attention."""
        return self.claims_a_solution or self is Termination.FINISHED


class PointStatus(_Status):
    """The status of a returned point, as verified by the suite."""

    FEASIBLE = "feasible", "every constraint holds to the tolerance"
    INFEASIBLE = "infeasible", "a constraint is violated by more than the tolerance"
    INVALID = "invalid", "the point has a wrong shape, holds a value that is not finite, or a direction that is zero"
    NONE = "none", "no point was returned"


class Availability(_Status):
    """The availability of a solver on this machine."""

    AVAILABLE = "available", "can run"
    NOT_INSTALLED = "not_installed", "a package it needs is missing"
    UNSUPPORTED = "unsupported", "what these parameters ask for does not work"


class Scope(_Status):
    """The kind of answer that a solver gives."""

    LOCAL = "local", "a locally good point"
    GLOBAL = "global", "a point and a proven bound that meet, given enough time"
    BOUND = "bound", "a certified bound, and a point rounded from it"
