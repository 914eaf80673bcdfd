"""Ground states of the Sherrington-Kirkpatrick spin glass, whose energy per spin replica theory predicts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qcqpbench import rng
from qcqpbench.catalog.family import Family, allocate
from qcqpbench.catalog.spec import parameter
from qcqpbench.errors import require
from qcqpbench.problem.metadata import BestKnown, Bound, Metadata, TheoryPrediction
from qcqpbench.problem.qcqp import QCQP

Array = NDArray[np.float64]

# Energies per spin as n → ∞. Full RSB: Oppermann, Schmidt, Phys. Rev. E 78 (2008) 061124. Replica symmetry: −√(2/π),
# Sherrington, Kirkpatrick, Phys. Rev. Lett. 35 (1975) 1792.
FULL_RSB_ENERGY = -0.763167
REPLICA_SYMMETRIC_ENERGY = -0.7978845608028654
# Enumeration of 2^(n−1) states takes about 20 ms at this number of spins.
MAX_ENUMERATED_SPINS = 20
_MAX_SPINS = 5000


@dataclass(frozen=True)
class SpinGlass(Family):
    """Sherrington-Kirkpatrick spin glass: minimize −(1/n) Σ_{i<j} J_ij x_i x_j subject to x_i² = 1.

    The couplings J_ij are independent normal random numbers of variance 1/n. The objective is the energy per spin. Its
    minimum tends to −0.763167 as n → ∞ (full RSB); up to n = 20, the mean minimum is larger by about 0.75 n^(−2/3). For
    n ≤ 20, the metadata has a ground state. It was found by enumerating all states, which proves its energy optimal.

    Parameters
    ----------
    n
        Number of spins, at least 2.
    seed
        Seed of the couplings.
    """

    name = "spin_glass"

    n: int = parameter(50, minimum=2)
    seed: int = parameter(0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.n <= _MAX_SPINS, f"spin_glass: n must be at most {_MAX_SPINS}, got {self.n}")

    def theory(self) -> TheoryPrediction:
        """Return the energy per spin as n → ∞."""
        return TheoryPrediction(objective=FULL_RSB_ENERGY, objective_rs=REPLICA_SYMMETRIC_ENERGY)

    def generate(self) -> QCQP:
        n, spins = self.n, np.arange(self.n)
        row, column = np.tril_indices(n, -1)
        couplings = rng.normals(
            rng.stream(self.seed, "patterns"), allocate(len(row)), deviation=float(np.sqrt(1.0 / n))
        )
        problem = QCQP.from_terms(
            n,
            quadratic=(
                np.concatenate([np.zeros(len(row), dtype=int), 1 + spins]),
                np.concatenate([row, spins]),
                np.concatenate([column, spins]),
                np.concatenate([couplings / -n, np.ones(n)]),
            ),
            lower=np.ones(n),
            upper=np.ones(n),
            x_lower=np.full(n, -1.0),
            x_upper=np.ones(n),
            metadata=Metadata(spec=self.spec, seed=self.seed, notes=self.theory().notes()),
        )
        return _with_ground_state(problem, couplings) if n <= MAX_ENUMERATED_SPINS else problem


def _with_ground_state(problem: QCQP, couplings: Array) -> QCQP:
    """Return `problem` with a ground state, its energy and the proof of optimality in the metadata."""
    state = ground_state(couplings, problem.n_variables)
    energy = float(problem.objective(state))
    old = problem.metadata
    return problem.replace(
        metadata=Metadata(
            spec=old.spec,
            seed=old.seed,
            reference=state,
            best_known=BestKnown(energy, "enumeration of all states"),
            bounds=(Bound(energy, "enumeration"),),
            notes=old.notes,
        )
    )


def ground_state(couplings: Array, n: int) -> Array:
    """Return the x ∈ {−1, 1}ⁿ with the largest Σ_{i<j} J_ij x_i x_j and x_0 = 1, by enumeration.

    Parameters
    ----------
    couplings
        J_ij of the pairs in the order of ``np.tril_indices(n, -1)``.
    n
        Number of spins.
    """
    J = np.zeros((n, n))
    J[np.tril_indices(n, -1)] = couplings
    J += J.T
    half = n // 2
    # A state is a pair of states of both halves, so that all energies are one matrix product.
    left, right = _states(half), _states(n - half)
    left = left[: max(1, len(left) // 2)]
    energies = left @ J[:half, half:] @ right.T
    energies += 0.5 * np.einsum("si,ij,sj->s", left, J[:half, :half], left)[:, None]
    energies += 0.5 * np.einsum("si,ij,sj->s", right, J[half:, half:], right)
    first, second = np.unravel_index(int(np.argmax(energies)), energies.shape)
    return np.concatenate([left[first], right[second]])


def _states(count: int) -> Array:
    """Return all 2^count states of `count` spins, one per row; the first spin of the first half of the rows is 1."""
    bits = (np.arange(2**count)[:, None] >> np.arange(count)[::-1]) & 1
    return np.asarray(1 - 2 * bits, dtype=np.float64)
