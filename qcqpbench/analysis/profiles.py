"""Performance and data profiles of solvers, and curves on logarithmic grids."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from . import metrics

Curves = Mapping[str, tuple[float, ...]]

# Levels at which tables show the profiles and anytime curves.
RATIOS = (1, 2, 5, 10, 100)
SECONDS = (0.01, 0.1, 1, 10, 100)
_CURVE_POINTS = 48
_MAX_RATIO = 1e4
_MIN_LEAST_SECONDS = 1e-9


class PairProfile(NamedTuple):
    """Performance profiles of two solvers among only these two."""

    first: str
    second: str
    first_shares: tuple[float, ...]
    second_shares: tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    """Performance and data profiles for one target.

    Attributes
    ----------
    quality
        The target, a fraction of the best known score.
    ratios, all, pairs
        Multiples of the shortest time, and the shares of problems solved within them: among all solvers, and pairwise.
    budgets, data
        Seconds, and the shares of problems solved within them.
    levels
        Shares at the multiples RATIOS, followed by those at the seconds SECONDS.
    """

    quality: float
    ratios: tuple[float, ...]
    all: Curves
    pairs: tuple[PairProfile, ...]
    budgets: tuple[float, ...]
    data: Curves
    levels: Curves


def profile(quality: float, times: metrics.Times, problems: Sequence[str]) -> Profile:
    """Return the data profiles, and the performance profiles of all solvers and of each pair, for the target `quality`.

    `times` are the seconds to the target by solver and problem; `problems` are the ids of all problems.
    """
    finite = [time for by_problem in times.values() for time in by_problem.values() if math.isfinite(time)]
    spread = max(finite) / max(min(finite), _MIN_LEAST_SECONDS) if finite else 1.0
    ratios = _short(np.geomspace(1, max(10.0, min(_MAX_RATIO, spread)), _CURVE_POINTS))
    budgets = log_grid(finite)

    def performance(names: Sequence[str], at: Sequence[float] = ratios) -> dict[str, tuple[float, ...]]:
        shares = metrics.performance_profile({name: times[name] for name in names}, problems, at)
        return {name: rounded(values) for name, values in shares.items()}

    def data(at: Sequence[float]) -> dict[str, tuple[float, ...]]:
        return {name: rounded(values) for name, values in metrics.data_profile(times, problems, at).items()}

    names = list(times)
    within = data(SECONDS)
    return Profile(
        quality=quality,
        ratios=ratios,
        all=performance(names),
        pairs=tuple(PairProfile(a, b, *performance([a, b]).values()) for a, b in itertools.combinations(names, 2)),
        budgets=budgets,
        data=data(budgets),
        levels={name: (*shares, *within[name]) for name, shares in performance(names, RATIOS).items()},
    )


def log_grid(values: Iterable[float]) -> tuple[float, ...]:
    """Return logarithmically spaced levels that cover the finite positive values; empty if there are none."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    if not finite:
        return ()
    return _short(np.geomspace(min(finite) * 0.9, max(finite) * 1.1, _CURVE_POINTS))


def _short(values: Iterable[float]) -> tuple[float, ...]:
    """Round the values to four significant digits."""
    return tuple(float(f"{value:.4g}") for value in values)


def rounded(values: Iterable[float]) -> tuple[float, ...]:
    """Round the values to four decimals."""
    return tuple(round(float(value), 4) for value in values)
