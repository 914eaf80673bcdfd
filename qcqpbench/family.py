"""What a problem family must offer: parameters and a seed make a problem, the same bits on every machine."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .errors import QcqpbenchError, require
from .maxmargin import MaxMargin
from .qcqp import QCQP
from .spec import Parametrized

# A terabyte of numbers.
_MOST = 1 << 37


class Family(Parametrized, ABC):
    """A problem family: a frozen dataclass in a file of its own in ``problems/``, whose fields are its parameters.

    ``name`` is the file's name. The parameters and the seed alone decide the problem, bit for bit; the random numbers
    come from `qcqpbench.random`, one stream per axis.
    """

    name: ClassVar[str]

    @abstractmethod
    def generate(self) -> MaxMargin | QCQP:
        """Make the problem."""


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
