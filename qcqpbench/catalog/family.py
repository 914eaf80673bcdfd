"""What a problem family must offer: parameters and a seed make a problem, the same bits on every machine."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .spec import Parametrized

# A terabyte of numbers.
_MOST = 1 << 37


class Family(Parametrized, ABC):
    """A problem family: a frozen dataclass in a file of its own in ``problems/``, whose fields are its parameters.

    ``name`` is the file's name. The parameters and the seed alone decide the problem, bit for bit; the random numbers
    come from `qcqpbench.rng`, one stream per axis. A family is ``stored`` if it reads its problems from files, which
    may change.
    """

    name: ClassVar[str]
    stored: ClassVar[bool] = False

    def members(self) -> list["Family"]:
        """The problems that a spec stands for in a suite, one family each: of most it is itself."""
        return [self]

    @abstractmethod
    def generate(self) -> MaxMargin | QCQP:
        """Make the problem."""


class TaskFamily(Family):
    """A family of max-margin tasks: p patterns of m inputs, labels for the pairs of n outputs.

    A dataclass derived from it declares the fields m, n, load, p and seed; load is P̂ = p/(nm), 1 if neither it nor p is
    given.
    """

    m: int
    n: int
    load: float | None
    p: int | None
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.m >= 2, f"m={self.m} is not allowed; a covariance needs at least 2 inputs")
        require(self.n >= 2, f"n={self.n} is not allowed; a covariance needs at least 2 outputs")
        require(self.seed >= 0, f"seed={self.seed} is not allowed; right is a whole number from 0 up")
        if self.load is None and self.p is None:
            object.__setattr__(self, "load", 1.0)
        self.pattern_count()

    def pattern_count(self) -> int:
        labels = self.n * (self.n - 1) // 2
        return pattern_count(self.load, self.p, self.n * self.m, self.m**2 + labels)

    def labels(self) -> NDArray[np.int8]:
        """±1 with probability ½ each, shape (p, n(n−1)/2)."""
        shape = self.pattern_count(), self.n * (self.n - 1) // 2
        return rng.signs(rng.stream(self.seed, "labels"), shape[0] * shape[1]).reshape(shape)


def pattern_count(load: float | None, p: int | None, synapses: int, pattern_size: int) -> int:
    """p as it is given, or round(load · synapses), the synapses being n·m; exactly one of load and p is to be given.

    pattern_size   numbers in a pattern and its labels: more than any machine holds is an error here already
    """
    count = _count(load, p, synapses)
    size = count * pattern_size
    require(size < _MOST, f"the patterns need {8e-9 * size:.3g} GB, more than there is; make m, n or p smaller")
    return count


def _count(load: float | None, p: int | None, synapses: int) -> int:
    if load is None:
        require(p is not None, "give the number of patterns by load or by p")
        assert p is not None
        require(p >= 1, f"p={p} is not allowed; right is at least one pattern")
        return p
    require(p is None, "give load or p, not both")
    require(0 < load < np.inf, f"load={load} is not allowed; right is a positive number of patterns per synapse")
    count = round(load * synapses)
    require(
        count >= 1,
        f"load={load} gives no pattern; right is at least {1 / synapses:.3g} for {synapses} synapses",
    )
    return count


def room(*shape: int) -> NDArray[np.float64]:
    """An array to fill; one that does not fit into memory is an error."""
    try:
        return np.empty(shape)
    except (MemoryError, ValueError):
        size = 8e-9 * math.prod(shape)
        raise QcqpbenchError(f"the patterns need {size:.3g} GB, more than there is; make m, n or p smaller") from None
