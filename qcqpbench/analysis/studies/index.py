"""Index of the studies, which are sets of figures computed from the same runs.

The finite-size study is described in docs/results/finite-size.md.
"""

from qcqpbench.analysis.figures.base import Figure

from .active import ACTIVE
from .exponents import EXPONENTS
from .margins import MARGINS
from .outputs import OUTPUTS
from .overlaps import OVERLAPS
from .search import SEARCH
from .stabilities import STABILITIES

__all__ = ["STUDIES"]

STUDIES: dict[str, dict[str, Figure]] = {
    "finite-size": {
        figure.name: figure for figure in (MARGINS, EXPONENTS, ACTIVE, STABILITIES, OVERLAPS, OUTPUTS, SEARCH)
    }
}
