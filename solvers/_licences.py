"""Licences of commercial solvers: the variable that names one, and the end of runs that a licence does not allow."""

import os
from pathlib import Path

from qcqpbench.catalog.solver import Array, Budget, RunFunction, Solution
from qcqpbench.catalog.status import Availability, Termination


def licence_availability(variable: str, target: str) -> tuple[Availability, str]:
    """Return UNSUPPORTED and the reason if the environment variable is set and does not name a licence.

    Parameters
    ----------
    variable
        The environment variable.
    target
        The file or folder that it must name, in words. A relative path would depend on the directory of the process,
        and every solver runs in a directory of its own.
    """
    path = os.environ.get(variable)
    if path and not (Path(path).is_absolute() and Path(path).exists()):
        return Availability.UNSUPPORTED, f"{variable} must be the absolute path of {target}, got {path}"
    return Availability.AVAILABLE, ""


def refusal(reason: str) -> RunFunction:
    """Return a run function that ends as skipped with `reason`, because a licence does not allow the run."""

    def run(_start: Array, _budget: Budget) -> Solution:
        return Solution(None, Termination.SKIPPED, message=reason)

    return run


def first_line(message: object) -> str:
    """Return the first line of a message, without its final full stop."""
    return (str(message).strip().splitlines() or ["no reason given"])[0].rstrip(".")
