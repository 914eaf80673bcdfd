"""Command that computes the table of full replica-symmetry breaking (RSB).

    python -m qcqpbench.theory.tabulate_full_rsb OUTPUT

It takes some minutes on one core.
"""

import sys
from pathlib import Path

import numpy as np

from .broken_symmetry import break_exponent, full_refinements, grid_change
from .lookup import Entry, write
from .parisi import Evaluation

# The smaller number of steps serves the error bar and the extrapolation of the share.
_STEPS = (5, 10, 20)
# The error of ln α falls by at least a factor 3 when the number of steps doubles (docs/background/theory.md), so the
# error of the last value is at most half of the last difference.
_REMAINDER = 1 / 2
MARGINS = {
    1: [*np.arange(-2.5, -0.05, 0.1), -0.05, 0.0],
    2: [*np.arange(-2.5, 3.05, 0.1), *np.arange(3.25, 6.1, 0.25), *np.arange(6.5, 10.1, 0.5), 12.0, 14.0, 17.0, 20.0],
}


def tabulate(kappa_bar: float, power: int) -> Entry:
    """Return the entry of the table for one margin and kernel."""
    if power == 1 and kappa_bar == 0:
        # Replica symmetry is exact here: α = 2, I'/I = 4/√(2π).
        return Entry(1, 0.0, float(np.log(2)), -4 / float(np.sqrt(2 * np.pi)), 0.0, 1.0, 1.0, 1.0)
    coarse, fine = full_refinements(kappa_bar, power, _STEPS)[-2:]
    error = _REMAINDER * abs(coarse.log_alpha - fine.log_alpha) + grid_change(fine, power)
    lower, upper = sorted(fine.share_bracket)
    return Entry(power, kappa_bar, fine.log_alpha, fine.slope, error, _share(kappa_bar, coarse, fine), lower, upper)


def _share(kappa_bar: float, coarse: Evaluation, fine: Evaluation) -> float:
    """Return the share of active stabilities, extrapolated in the number of steps where that matters.

    Discretization changes the mean of the bracket by the square root of the length of the last interval. Above κ̄ = 1
    the upper end has converged, and the lower one depends on details of the profile that do not matter for α.
    """
    if kappa_bar <= 0:
        return 1.0
    if kappa_bar > 1:
        return fine.share_bracket[1]
    gain = 1 / (2 ** (break_exponent(kappa_bar) / 2) - 1)
    means = [sum(result.share_bracket) / 2 for result in (coarse, fine)]
    return float(np.clip(means[1] + gain * (means[1] - means[0]), *fine.share_bracket))


def main(arguments: list[str]) -> int:
    """Write the table to the file that `arguments` name."""
    if len(arguments) != 1:
        print("usage: python -m qcqpbench.theory.tabulate_full_rsb OUTPUT", file=sys.stderr)
        return 2
    entries = []
    for power, margins in MARGINS.items():
        for margin in margins:
            entries.append(tabulate(round(float(margin), 10), power))
            print(f"s = {power}, kappa_bar = {margin:.2f}: ln(alpha) = {entries[-1].log_alpha:.6f}", flush=True)
    write(entries, Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
