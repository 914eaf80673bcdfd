"""Index of the figures of Dahmen, Gilson, Helias, J. Phys. A 53 (2020) 354002, from runs of current solvers.

Each figure is drawn only from a table computed from the rows of a suite, so the table contains every number in it.
"""

from .base import Data, Figure, count_replaced, measured, mixed_versions
from .capacity import CAPACITY
from .information_capacity import INFORMATION_CAPACITY
from .overlap import OVERLAP
from .pattern_capacity import PATTERN_CAPACITY
from .style import FORMATS, prepare, save
from .training import OPTIMIZATION, TRAINING

__all__ = ["FIGURES", "FORMATS", "Data", "Figure", "count_replaced", "measured", "mixed_versions", "prepare", "save"]

# In the order of run time, shortest first.
FIGURES = {
    figure.name: figure
    for figure in (TRAINING, OVERLAP, OPTIMIZATION, PATTERN_CAPACITY, INFORMATION_CAPACITY, CAPACITY)
}
