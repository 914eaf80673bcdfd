"""Trust-region problems: a random quadratic function on the unit ball."""

from dataclasses import dataclass

import numpy as np

from qcqpbench import QCQP, Family, Metadata, parameter, rng


@dataclass(frozen=True)
class TrustRegion(Family):
    name = "trust_region"
    m: int = parameter(20, minimum=1)
    seed: int = parameter(0, minimum=0)

    def generate(self) -> QCQP:
        Q = rng.normals(rng.stream(self.seed, "patterns"), np.empty((self.m, self.m)))
        ball = (np.eye(self.m), None, None, 1.0)
        return QCQP(Q, quadratic_constraints=[ball], metadata=Metadata(spec=self.spec, seed=self.seed))
