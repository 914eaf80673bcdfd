"""Predictions of replica theory for the capacity of classical and covariance perceptrons."""

from .capacity import (
    ShareBracket,
    StabilityDistribution,
    active_share,
    active_share_bracket,
    classical_capacity,
    classical_kappa_bar,
    covariance_capacity,
    covariance_kappa_bar,
    covariance_kappa_bar_error,
    ergodic_margin,
    overlap_profile,
    stability_density,
)
from .closed_forms import replicon
from .information import (
    bits_per_entry,
    classical_information,
    covariance_information,
    covariance_pattern_bits,
    information_ratio,
    per_synapse,
)
from .lookup import full_rsb_from_table
from .parisi import Profile
from .replica_symmetric import margin_integral

__all__ = [
    "Profile",
    "ShareBracket",
    "StabilityDistribution",
    "active_share",
    "active_share_bracket",
    "bits_per_entry",
    "classical_capacity",
    "classical_information",
    "classical_kappa_bar",
    "covariance_capacity",
    "covariance_information",
    "covariance_kappa_bar",
    "covariance_kappa_bar_error",
    "covariance_pattern_bits",
    "ergodic_margin",
    "full_rsb_from_table",
    "information_ratio",
    "margin_integral",
    "overlap_profile",
    "per_synapse",
    "replicon",
    "stability_density",
]
