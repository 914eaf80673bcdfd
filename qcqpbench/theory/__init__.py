"""Predictions of replica theory for the capacity of classical and covariance perceptrons."""

from .information import (
    bits_per_entry,
    classical_information,
    covariance_information,
    covariance_pattern_bits,
    information_ratio,
    per_synapse,
)
from .replica_symmetric import (
    classical_capacity,
    classical_kappa_bar,
    covariance_capacity,
    covariance_kappa_bar,
    margin_integral,
)

__all__ = [
    "bits_per_entry",
    "classical_capacity",
    "classical_information",
    "classical_kappa_bar",
    "covariance_capacity",
    "covariance_information",
    "covariance_kappa_bar",
    "covariance_pattern_bits",
    "information_ratio",
    "margin_integral",
    "per_synapse",
]
