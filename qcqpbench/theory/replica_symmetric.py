"""Replica-symmetric predictions for the capacity of classical and covariance perceptrons as m → ∞.

See Dahmen, Gilson, Helias, J. Phys. A 53 (2020) 354002. With the integral

    I(κ̄) = ∫_{−κ̄}^∞ Dt (t+κ̄)² = (1+κ̄²) Φ(κ̄) + κ̄ φ(κ̄),   Dt = φ(t) dt the standard normal measure,

the capacities are

    classical    P = m / I(κ̄) for any number of outputs n
    covariance   P = 4m / ((n−1) I(κ̄)),   n ≥ 2

κ̄ = κ/√(f c²) is the rescaled margin, P the number of patterns, P̂ = P/(nm) the load per synapse. The prediction is for
typical large instances and is not a bound for a finite one. For covariance perceptrons replica symmetry is unstable at
every load; `qcqpbench.theory.capacity` has the prediction with broken symmetry. All functions are vectorized.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.errors import QcqpbenchError, require

Array = NDArray[np.float64]

# Depth of the continued fraction. At κ̄ = −2, where it converges slowest, 60 levels reach rounding error.
_CONTINUED_FRACTION_LEVELS = 80


def margin_integral(kappa_bar: ArrayLike) -> Any:
    """Return the integral I(κ̄) that the capacities depend on.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.

    Returns
    -------
    float or array
        I(κ̄) of the module docstring, with a relative error of about 1e-14 for κ̄ ≥ −37.

    Raises
    ------
    QcqpbenchError
        If κ̄ is NaN.

    Examples
    --------
    >>> float(margin_integral(0.0))
    0.5
    """
    return _integrals(kappa_bar)[0][()]


def classical_capacity(kappa_bar: ArrayLike, m: ArrayLike) -> Any:
    """Return the number of patterns that classical perceptrons classify at a margin.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.
    m
        Number of inputs.

    Returns
    -------
    float or array
        P = m / I(κ̄), independent of the number of outputs; inf where I(κ̄) underflows to 0.

    Raises
    ------
    QcqpbenchError
        If m < 1 or κ̄ is NaN.
    """
    _check(m)
    return _over(np.asarray(m), margin_integral(kappa_bar))


def covariance_capacity(kappa_bar: ArrayLike, m: ArrayLike, n: ArrayLike = 2) -> Any:
    """Return the number of patterns that a covariance perceptron classifies at a margin.

    Parameters
    ----------
    kappa_bar
        Rescaled margin κ̄.
    m, n
        Numbers of inputs and outputs.

    Returns
    -------
    float or array
        P = 4m / ((n−1) I(κ̄)); inf where I(κ̄) underflows to 0.

    Raises
    ------
    QcqpbenchError
        If m < 1, n < 2 or κ̄ is NaN.

    Examples
    --------
    >>> float(covariance_capacity(0.0, m=100))
    800.0
    """
    _check(m, n)
    return _over(4 * np.asarray(m), (np.asarray(n) - 1) * margin_integral(kappa_bar))


def classical_kappa_bar(p: ArrayLike, m: ArrayLike) -> Any:
    """Return the largest margin of a classical perceptron with p patterns, the inverse of `classical_capacity`.

    Parameters
    ----------
    p
        Number of patterns.
    m
        Number of inputs.

    Returns
    -------
    float or array
        The rescaled margin κ̄, negative above capacity.

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite, or m < 1.
    """
    _check(m)
    return _inverse_integral(np.asarray(m) / _positive(p))


def covariance_kappa_bar(p: ArrayLike, m: ArrayLike, n: ArrayLike = 2) -> Any:
    """Return the largest margin of a covariance perceptron with p patterns, the inverse of `covariance_capacity`.

    Parameters
    ----------
    p
        Number of patterns.
    m, n
        Numbers of inputs and outputs.

    Returns
    -------
    float or array
        The rescaled margin κ̄, negative where P̂ > 8/(n(n−1)).

    Raises
    ------
    QcqpbenchError
        If p is not positive and finite, m < 1 or n < 2.

    Examples
    --------
    >>> float(covariance_kappa_bar(800, m=100))
    0.0
    """
    _check(m, n)
    return _inverse_integral(4 * np.asarray(m) / ((np.asarray(n) - 1) * _positive(p)))


def _check(m: ArrayLike, n: ArrayLike = 2) -> None:
    """Raise QcqpbenchError unless all `m` are at least 1 and all `n` at least 2."""
    require(bool((_numbers("m", m) >= 1).all()), f"m must be at least 1, got {m!s:.80}")
    require(bool((_numbers("n", n) >= 2).all()), f"n must be at least 2 for covariances, got {n!s:.80}")


def _numbers(name: str, values: ArrayLike) -> Array:
    """Return the argument `name` as a float64 array; raise QcqpbenchError unless it holds numbers."""
    try:
        # Otherwise texts such as "100" would become numbers.
        return np.asarray(values).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise QcqpbenchError(f"{name} must be a number or an array of numbers, got {values!r:.80}") from error


def _over(count: Any, integral: Any) -> Any:
    """Return `count` / `integral`, infinite where the integral underflows to 0."""
    with np.errstate(divide="ignore"):
        return count / np.asarray(integral)


def _positive(p: ArrayLike) -> Array:
    """Return `p` as a float64 array; raise QcqpbenchError unless all of it is positive and finite."""
    p = _numbers("p", p)
    require(bool(((p > 0) & (p < np.inf)).all()), f"p must be positive and finite, got {p!s:.80}")
    return p


def _integrals(kappa_bar: ArrayLike) -> tuple[Array, Array]:
    """Return I(κ̄) and its derivative I'(κ̄) = 2 ∫_{−κ̄}^∞ Dt (t+κ̄).

    Below −2 the closed form cancels. There, with x = −κ̄ and h_k = ∫_0^∞ t^k/k! φ(t+x) dt, I = 2 h_2 and I' = 2 h_1.
    From k h_k = h_{k−2} − x h_{k−1} the ratios obey h_k/h_{k−1} = 1/(x + (k+1) h_{k+1}/h_k): a continued fraction of
    positive terms, which starts from h_{−1} = φ(x) and has no cancellation.
    """
    from scipy.special import ndtr  # noqa: PLC0415 (slow to import)

    kappa = _numbers("kappa_bar", kappa_bar)
    require(not np.isnan(kappa).any(), "kappa_bar must be a number, got NaN")
    # Beyond these limits, I is 0 or inf in float64.
    kappa = np.clip(kappa, -1e3, 1e200)
    with np.errstate(over="ignore"):
        square = kappa**2
    density = np.exp(-square / 2) / np.sqrt(2 * np.pi)
    above = np.maximum(kappa, -2.0)
    x = np.maximum(-kappa, 2.0)
    ratios = [np.zeros(())] * 3
    ratio = 2 / (x + np.sqrt(x**2 + 4 * _CONTINUED_FRACTION_LEVELS))
    for k in range(_CONTINUED_FRACTION_LEVELS - 1, -1, -1):
        ratio = 1 / (x + (k + 1) * ratio)
        if k < 3:
            ratios[k] = ratio
    tail = 2 * density * ratios[0] * ratios[1]
    far = kappa < -2.0
    cumulative = ndtr(above)
    first = np.where(far, tail, 2 * (above * cumulative + density))
    second = np.where(far, tail * ratios[2], (1 + square) * cumulative + above * density)
    return second, first


def _inverse_integral(value: Array) -> Any:
    """Return κ̄ with I(κ̄) = value > 0 by Newton's method on ln I.

    ln I is concave and increasing, so after its first step the iteration climbs to the root without overshooting.
    """
    value = np.asarray(value, dtype=np.float64)
    kappa = np.where(value > 0.5, np.sqrt(np.maximum(value, 0.5)) - 0.5, -np.sqrt(np.maximum(-2 * np.log(value), 0.0)))
    for _ in range(100):
        integral, slope = _integrals(kappa)
        step = np.log(value / integral) * integral / slope
        kappa = kappa + step
        if np.all(np.abs(step) <= 1e-14 * np.maximum(1.0, np.abs(kappa))):
            break
    # At capacity κ̄ is exactly 0, without the rounding error of the iteration.
    return np.where(np.abs(kappa) < 1e-15, 0.0, kappa)[()]
