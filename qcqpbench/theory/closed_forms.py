"""Closed forms for a spherical perceptron with α constraints per direction and the kernel q^s.

They are the one-step solution with q_0 = 0, the replicon of the replica-symmetric solution at capacity, and the margin
up to which the space of solutions is ergodic.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .parisi import LastStep
from .replica_symmetric import margin_integral

# Values of ln y among which the minimum is bracketed. At the lowest one α is replica symmetric to a relative 1e-5.
_LOG_HEIGHTS = np.linspace(-12.0, 12.0, 97)


@lru_cache(maxsize=1024)
def one_step(kappa: float, power: int) -> tuple[float, float]:
    """Return α and the height y of one step of RSB on the whole interval, that is with q_0 = 0.

    α = min over y of ½ ln(1+y) / (−ln[Φ(−κ) + √(s/A) e^{−yκ²/(2A)} Φ(κ√(s/A))]) with A = s + y for s = `power`.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415 (slow to import)

    def log_alpha(log_y: float) -> float:
        height = float(np.exp(log_y))
        step = LastStep.of(np.array([kappa]), height, 1.0, float(power))
        return float(np.log(0.5 * np.log1p(height) / -step.log_total[0]))

    best = int(np.argmin([log_alpha(log_y) for log_y in _LOG_HEIGHTS]))
    bounds = _LOG_HEIGHTS[max(best - 1, 0)], _LOG_HEIGHTS[min(best + 1, len(_LOG_HEIGHTS) - 1)]
    result = minimize_scalar(log_alpha, bounds=bounds, method="bounded", options={"xatol": 1e-10})
    return float(np.exp(result.fun)), float(np.exp(result.x))


def replicon(kappa_bar: ArrayLike, power: int) -> Any:
    """Return the replicon of the replica-symmetric solution at capacity; the solution is unstable where it is positive.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.
    power
        Exponent s of the kernel: 1 for the classical perceptron, 2 for the covariance perceptron.

    Returns
    -------
    float or array
        s − 2 + s Φ(κ̄)/I(κ̄), in units in which the entropic part is −1. For s = 1 it is negative where κ̄ > 0; for
        s = 2 it is positive at every margin.

    Examples
    --------
    >>> float(replicon(0.0, power=2))
    2.0
    """
    from scipy.special import ndtr  # noqa: PLC0415 (slow to import)

    kappa = np.asarray(kappa_bar, dtype=np.float64)
    return power - 2 + power * ndtr(kappa) / margin_integral(kappa)


def ergodic_limit(alpha: ArrayLike) -> Any:
    """Return κ_AT, at which the solution q = 0 of the covariance perceptron becomes unstable: 2α (φ(κ)/Φ(−κ))² = 1."""
    from scipy.special import log_ndtr  # noqa: PLC0415 (slow to import)

    target = -0.5 * np.log(2 * np.asarray(alpha, dtype=np.float64))
    # The hazard φ(κ)/Φ(−κ) is convex, near κ for large κ, and its logarithm is near −κ²/2 for very negative κ.
    kappa = np.where(target > 0.0, np.exp(np.clip(target, 0.0, 300.0)), -np.sqrt(2 * np.maximum(-target, 0.0)))
    for _ in range(60):
        log_hazard = -0.5 * kappa**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(-kappa)
        step = (target - log_hazard) / np.maximum(np.exp(log_hazard) - kappa, 1e-12)
        kappa = kappa + np.clip(step, -2.0, 2.0)
        if np.all(np.abs(step) <= 1e-13 * np.maximum(1.0, np.abs(kappa))):
            break
    return kappa[()]
