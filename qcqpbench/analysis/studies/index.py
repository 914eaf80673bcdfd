"""Studies: questions that many runs of a solver answer, as figures and tables. docs/finite-size.md

A study is figures made from the same runs, each with a table that has every number it shows.
"""

from qcqpbench.analysis.figures.base import Figure

from .margins import MARGINS
from .optima import ACTIVE, GAPS, OVERLAPS
from .outputs import OUTPUTS

__all__ = ["STUDIES"]

STUDIES: dict[str, dict[str, Figure]] = {
    "finite-size": {figure.name: figure for figure in (MARGINS, ACTIVE, GAPS, OVERLAPS, OUTPUTS)}
}
