"""Capacities and margins of classical and covariance perceptrons at a chosen level of replica-symmetry breaking (RSB).

Both are spherical perceptrons with α constraints per direction and the kernel q^s: α = p/m and s = 1 for the classical
one, α = p(n−1)/(2m) and s = 2 for the covariance perceptron. The argument `rsb` selects the theory: 0 is
replica symmetry, k = 1, 2, … is k steps of RSB with free break points, "full" is full RSB. More steps give a smaller
margin, and full RSB is the prediction. All functions are vectorized.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from qcqpbench.errors import require

from . import replica_symmetric
from .closed_forms import ergodic_limit
from .lookup import RSB, check_rsb, constraints, from_table, margins, solution_at_load, table
from .parisi import Array, Evaluation, Profile

_CLASSICAL, _COVARIANCE = 1, 2
# Replica symmetry is exact for classical perceptrons with at most this many patterns per input, where κ̄ ≥ 0.
_CLASSICAL_STABLE_LOAD = 2.0


class ShareBracket(NamedTuple):
    """Lower and upper estimates of the share of active stabilities."""

    lower: Any
    upper: Any


class StabilityDistribution:
    """Distribution of the stabilities at the optimum, predicted by full RSB.

    A share of the stabilities equals κ̄, the others are above it.

    Attributes
    ----------
    kappa_bar
        Rescaled margin κ̄.
    mass
        Probability that a stability equals κ̄.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self.kappa_bar = evaluation.kappa
        self.mass = evaluation.active_probability

    def __repr__(self) -> str:
        return f"StabilityDistribution(kappa_bar={self.kappa_bar:.5f}, mass={self.mass:.4f})"

    def tail(self, stability: ArrayLike) -> Any:
        """Return the probability of a larger stability."""
        return self._at(stability, self._evaluation.tail, below=1.0)

    def density(self, stability: ArrayLike) -> Any:
        """Return the density of the stabilities above κ̄, which integrates to 1 − `mass`; it is 0 below κ̄."""
        return self._at(stability, self._evaluation.density_above, below=0.0)

    def _at(self, stability: ArrayLike, function: Callable[[float], float], below: float) -> Any:
        """Return `function` of the distances from κ̄, and `below` for stabilities under κ̄."""
        excess = np.asarray(stability, dtype=np.float64) - self.kappa_bar
        values = [function(x) if x >= 0 else below for x in excess.ravel().tolist()]
        return np.array(values).reshape(excess.shape)[()]


def classical_capacity(kappa_bar: ArrayLike, m: ArrayLike, rsb: RSB = 0) -> Any:
    """Return the number of patterns that classical perceptrons classify at a margin.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.
    m
        Number of inputs.
    rsb
        0 for replica symmetry, k for k steps of RSB, "full" for full RSB. They agree for κ̄ ≥ 0.

    Returns
    -------
    float or array
        P, independent of the number of outputs; m / I(κ̄) for replica symmetry.

    Raises
    ------
    QcqpbenchError
        If m < 1, κ̄ is NaN or out of the range of broken replica symmetry, or rsb is unknown.
    """
    check_rsb(rsb)
    symmetric = replica_symmetric.classical_capacity(kappa_bar, m)
    if rsb == 0:
        return symmetric
    kappa, m = np.broadcast_arrays(np.asarray(kappa_bar, dtype=np.float64), np.asarray(m))
    result, broken = np.array(symmetric), kappa < 0
    result[broken] = m[broken] * constraints(kappa[broken], _CLASSICAL, rsb)
    return result[()]


def covariance_capacity(kappa_bar: ArrayLike, m: ArrayLike, n: ArrayLike = 2, rsb: RSB = 0) -> Any:
    """Return the number of patterns that a covariance perceptron classifies at a margin.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.
    m, n
        Numbers of inputs and outputs.
    rsb
        0 for replica symmetry, k for k steps of RSB, "full" for full RSB.

    Returns
    -------
    float or array
        P; for replica symmetry 4m / ((n−1) I(κ̄)).

    Raises
    ------
    QcqpbenchError
        If m < 1, n < 2, κ̄ is NaN or out of the range of broken replica symmetry, or rsb is unknown.

    Examples
    --------
    >>> float(covariance_capacity(0.0, m=100))
    800.0
    >>> round(float(covariance_capacity(0.0, m=100, rsb="full")), 1)
    672.9
    """
    check_rsb(rsb)
    symmetric = replica_symmetric.covariance_capacity(kappa_bar, m, n)
    if rsb == 0:
        return symmetric
    alpha = constraints(np.asarray(kappa_bar, dtype=np.float64), _COVARIANCE, rsb)
    return 2 * np.asarray(m) * alpha / (np.asarray(n) - 1)


def classical_kappa_bar(p: ArrayLike, m: ArrayLike, rsb: RSB = 0) -> Any:
    """Return the largest margin of a classical perceptron with p patterns, the inverse of `classical_capacity`.

    Parameters
    ----------
    p
        Number of patterns.
    m
        Number of inputs.
    rsb
        0 for replica symmetry, k for k steps of RSB, "full" for full RSB. They agree for p ≤ 2m.

    Returns
    -------
    float or array
        The rescaled margin κ̄, negative above capacity.

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite or beyond the range of broken replica symmetry, m < 1, or rsb is unknown.
    """
    check_rsb(rsb)
    symmetric = replica_symmetric.classical_kappa_bar(p, m)
    if rsb == 0:
        return symmetric
    alpha = np.asarray(p, dtype=np.float64) / np.asarray(m)
    result, broken = np.array(symmetric), alpha > _CLASSICAL_STABLE_LOAD
    result[broken] = margins(alpha[broken], _CLASSICAL, rsb)
    return result[()]


def covariance_kappa_bar(p: ArrayLike, m: ArrayLike, n: ArrayLike = 2, rsb: RSB = 0) -> Any:
    """Return the largest margin of a covariance perceptron with p patterns, the inverse of `covariance_capacity`.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.
    rsb
        0 for replica symmetry, k for k steps of RSB, "full" for full RSB.

    Returns
    -------
    float or array
        The rescaled margin κ̄, for replica symmetry negative where P̂ > 8/(n(n−1)).

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite or out of the range of broken replica symmetry, m < 1, n < 2, or rsb is unknown.

    Examples
    --------
    >>> float(covariance_kappa_bar(800, m=100))
    0.0
    >>> round(float(covariance_kappa_bar(400, m=100, rsb="full")), 4)
    0.3938
    """
    check_rsb(rsb)
    symmetric = replica_symmetric.covariance_kappa_bar(p, m, n)
    return symmetric if rsb == 0 else margins(_constraints(p, m, n), _COVARIANCE, rsb)


def covariance_kappa_bar_error(p: ArrayLike, m: ArrayLike, n: ArrayLike = 2) -> Any:
    """Return the numerical error bar of `covariance_kappa_bar` with full RSB, at loads within the shipped table.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.

    Returns
    -------
    float or array
        Error bar of κ̄; NaN outside the table.

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite, m < 1 or n < 2.
    """
    logs = np.log(_constraints(p, m, n))
    entries = table(_COVARIANCE)
    low, high = entries.log_alpha_range
    kappa = entries.margin(np.clip(logs, low, high))
    error = entries.error(kappa) / -entries.log_alpha(kappa)[1]
    return np.where((logs >= low) & (logs <= high), error, np.nan)[()]


def active_share(p: ArrayLike, m: ArrayLike, n: ArrayLike = 2, rsb: RSB = "full") -> Any:
    """Return the number of active stabilities per direction of a covariance perceptron.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.
    rsb
        0 for replica symmetry, k for k steps of RSB, "full" for full RSB.

    Returns
    -------
    float or array
        Number of stabilities that equal the margin, divided by the number nm of weights. At most 1 for full RSB, and 1
        where κ̄ ≤ 0; the approximations exceed 1 at high loads, which shows that they are unstable.

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite or out of the range of broken replica symmetry, m < 1, n < 2, or rsb is unknown.
    """
    from scipy.special import ndtr  # noqa: PLC0415 (slow to import)

    check_rsb(rsb)
    alpha = _constraints(p, m, n)
    if rsb == 0:
        return alpha * ndtr(replica_symmetric.covariance_kappa_bar(p, m, n))

    def computed(load: float) -> float:
        result = solution_at_load(load, _COVARIANCE, rsb)
        return 1.0 if rsb == "full" and result.kappa <= 0 else result.share_bracket[1]

    return from_table(alpha, _COVARIANCE, rsb, lambda entries, kappa: entries.share(kappa), computed)


def active_share_bracket(p: ArrayLike, m: ArrayLike, n: ArrayLike = 2) -> ShareBracket:
    """Return two estimates of the full-RSB share of active stabilities that approach it from either side.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.

    Returns
    -------
    ShareBracket
        Lower and upper estimate for the number of steps that approximates full RSB.

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite or out of the range of broken replica symmetry, m < 1 or n < 2.
    """
    alpha = _constraints(p, m, n)
    return ShareBracket(*(_bracket_end(alpha, side) for side in (0, 1)))


def stability_density(p: float, m: int, n: int = 2) -> StabilityDistribution:
    """Return the full-RSB distribution of the stabilities at the optimum of a covariance perceptron.

    It is computed, which takes some seconds.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.

    Returns
    -------
    StabilityDistribution
        The margin, the mass at the margin, and the density and tail above it.

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite or out of the range of broken replica symmetry, m < 1 or n < 2.
    """
    return StabilityDistribution(solution_at_load(float(_constraints(p, m, n)), _COVARIANCE, "full"))


def overlap_profile(p: float, m: int, n: int = 2, rsb: RSB = "full") -> Profile:
    """Return the step function y(q) of a covariance perceptron; it is computed, which takes some seconds.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.
    rsb
        k = 1, 2, … for k steps of RSB, "full" for full RSB.

    Returns
    -------
    Profile
        Break points q from 0 to 1 and the values y between them.

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite or out of the range of broken replica symmetry, m < 1, n < 2, or rsb is unknown.
    """
    check_rsb(rsb)
    require(rsb != 0, "rsb must be 'full' or at least 1 for a profile, got 0")
    return solution_at_load(float(_constraints(p, m, n)), _COVARIANCE, rsb).profile


def ergodic_margin(p: ArrayLike, m: ArrayLike, n: ArrayLike = 2) -> Any:
    """Return κ_AT, the margin above which the weights of that margin are no longer one ergodic component.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.

    Returns
    -------
    float or array
        κ̄ with 2α (φ(κ̄)/Φ(−κ̄))² = 1 for α = p(n−1)/(2m).

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite, m < 1 or n < 2.
    """
    return ergodic_limit(_constraints(p, m, n))


def _bracket_end(alpha: Array, side: int) -> Any:
    """Return the lower (`side` 0) or upper (1) estimate of the share of active stabilities."""
    return from_table(
        alpha,
        _COVARIANCE,
        "full",
        lambda entries, kappa: entries.interpolated(("share_lower", "share_upper")[side], kappa),
        lambda load: sorted(solution_at_load(load, _COVARIANCE, "full").share_bracket)[side],
    )


def _constraints(p: ArrayLike, m: ArrayLike, n: ArrayLike) -> Array:
    """Return the number α = p(n−1)/(2m) of constraints per direction after checking the arguments."""
    replica_symmetric.covariance_kappa_bar(p, m, n)
    return np.asarray(p, dtype=np.float64) * (np.asarray(n) - 1) / (2 * np.asarray(m))
