"""Index of the studies, which are sets of figures computed from the same runs.

The finite-size study is described in docs/finite-size.md.
"""

from qcqpbench.analysis.figures.base import Figure

from .active import ACTIVE
from .gaps import GAPS
from .margins import MARGINS
from .outputs import OUTPUTS
from .overlaps import OVERLAPS

__all__ = ["STUDIES"]

STUDIES: dict[str, dict[str, Figure]] = {
    "finite-size": {figure.name: figure for figure in (MARGINS, ACTIVE, GAPS, OVERLAPS, OUTPUTS)}
}
