"""Base classes of problem families, whose parameters and seed determine a problem bit for bit on every machine."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.errors import QcqpbenchError, describe_error, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import TheoryPrediction
from qcqpbench.problem.qcqp import QCQP

from .spec import Parametrized

# Number of float64 numbers that take 1 TiB.
_MAX_NUMBERS = 1 << 37


class Family(Parametrized, ABC):
    """Base class of problem families: frozen dataclasses, each in its own file in ``problems/``.

    The fields are the parameters of the family. The parameters and the seed determine the
    problem, bit for bit. Random numbers come from `qcqpbench.rng`, one stream per axis.

    Attributes
    ----------
    name
        Name of the family, the same as that of its file.
    stored
        Whether the family reads its problems from files, which may change.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Disc(Family):
    ...     name = "disc"
    ...     radius: float = 1.0
    ...
    ...     def generate(self):
    ...         return QCQP(q=[1.0, 1.0], quadratic_constraints=[(np.eye(2), None, None, self.radius**2)])
    >>> Disc(radius=2).spec
    'disc[radius=2.0]'
    """

    name: ClassVar[str]
    stored: ClassVar[bool] = False

    def members(self) -> list["Family"]:
        """Return one family for each problem that the spec denotes in a suite; by default only this family."""
        return [self]

    def theory(self) -> TheoryPrediction | None:
        """Return the margins that theory predicts for the problem, quickly; None, the default, if there is no theory.

        `generate` stores them by ``Metadata(notes=self.theory().notes())``.
        """
        return None

    @abstractmethod
    def generate(self) -> MaxMargin | QCQP:
        """Generate the problem that the parameters determine."""


def generated(family: Family) -> MaxMargin | QCQP:
    """Return the problem that `family` generates; raise QcqpbenchError with its spec if its code raises."""
    try:
        problem = family.generate()
    except QcqpbenchError:
        raise
    except Exception as error:
        raise QcqpbenchError(f"{family.spec}: generate raised {describe_error(error)}") from error
    is_problem = isinstance(problem, MaxMargin | QCQP)
    require(is_problem, f"{family.spec}: generate must return a MaxMargin or QCQP, got {type(problem).__name__}")
    return problem


class TaskFamily(Family):
    """Base class of families of max-margin tasks: p patterns of m inputs, with labels for the pairs of n outputs.

    Derived dataclasses must declare these fields.

    Parameters
    ----------
    m, n
        Numbers of inputs and outputs, at least 2.
    load, p
        The load P̂ = p/(nm), or the number of patterns p; load 1 if neither is given.
    seed
        Seed of the random numbers, 0 or more.
    """

    m: int
    n: int
    load: float | None
    p: int | None
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.m >= 2, f"m must be at least 2 for covariances, got {self.m}")
        require(self.n >= 2, f"n must be at least 2 for covariances, got {self.n}")
        require(self.seed >= 0, f"seed must be 0 or more, got {self.seed}")
        if self.load is None and self.p is None:
            object.__setattr__(self, "load", 1.0)
        self.pattern_count()

    def pattern_count(self) -> int:
        """Return the number of patterns, `p` or round(load · n · m)."""
        pairs = self.n * (self.n - 1) // 2
        return pattern_count(self.load, self.p, self.n * self.m, self.m**2 + pairs)

    def labels(self) -> NDArray[np.int8]:
        """Return random labels, ±1 with probability ½ each, shape (p, n(n−1)/2)."""
        shape = self.pattern_count(), self.n * (self.n - 1) // 2
        return rng.signs(rng.stream(self.seed, "labels"), shape[0] * shape[1]).reshape(shape)


def pattern_count(load: float | None, p: int | None, synapses: int, pattern_size: int) -> int:
    """Return the number of patterns, `p` or round(load · synapses).

    Parameters
    ----------
    load, p
        Number of patterns per synapse, or number of patterns; exactly one must be given.
    synapses
        Number of synapses, n·m.
    pattern_size
        Number of entries of a pattern and its labels, to reject problems of 1 TiB or more.

    Raises
    ------
    QcqpbenchError
        If both or neither of load and p are given, the number of patterns is 0, or the patterns take 1 TiB or more.
    """
    count = _count(load, p, synapses)
    size = count * pattern_size
    require(size < _MAX_NUMBERS, _too_large(size))
    return count


def _count(load: float | None, p: int | None, synapses: int) -> int:
    """Return `p` or round(load · synapses); raise QcqpbenchError unless exactly one of them is given, and valid."""
    if load is None:
        require(p is not None, "exactly one of load and p must be given, got neither")
        assert p is not None
        require(p >= 1, f"p must be at least 1, got {p}")
        return p
    require(p is None, f"exactly one of load and p must be given, got both, load={load} and p={p}")
    require(0 < load < np.inf, f"load must be positive and finite (patterns per synapse), got {load}")
    count = round(load * synapses)
    require(
        count >= 1, f"load must be at least {1 / synapses:.3g} for {synapses} synapses to give a pattern, got {load}"
    )
    return count


def allocate(*shape: int) -> NDArray[np.float64]:
    """Return an uninitialized float64 array of the given shape; raise QcqpbenchError if memory does not suffice."""
    try:
        return np.empty(shape)
    except (MemoryError, ValueError):
        raise QcqpbenchError(_too_large(math.prod(shape))) from None


def _too_large(numbers: int) -> str:
    """Return the error message for patterns of `numbers` float64 numbers."""
    return f"the patterns must fit into memory and be under 1 TiB, got {8e-9 * numbers:.3g} GB: make m, n or p smaller"
