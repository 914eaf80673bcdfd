"""The paper's figures, computed anew: Dahmen, Gilson, Helias, J. Phys. A 53 (2020) 354002.

A figure names the runs it needs as a suite; from their rows it makes a table, and the picture is drawn from that table
alone, so that the table has every number the picture shows.
"""

from .base import Data, Figure, count_replaced, measured, mixed_versions
from .capacity import CAPACITY
from .information_capacity import INFORMATION_CAPACITY
from .optimization import OPTIMIZATION
from .overlap import OVERLAP
from .pattern_capacity import PATTERN_CAPACITY
from .style import FORMATS, prepare, save
from .training import TRAINING

__all__ = ["FIGURES", "FORMATS", "Data", "Figure", "count_replaced", "measured", "mixed_versions", "prepare", "save"]

# The longest runs come last.
FIGURES = {
    figure.name: figure
    for figure in (TRAINING, OVERLAP, OPTIMIZATION, PATTERN_CAPACITY, INFORMATION_CAPACITY, CAPACITY)
}
