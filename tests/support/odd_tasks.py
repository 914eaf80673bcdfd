"""Small tasks with unusual patterns and scales."""

import numpy as np

from qcqpbench.problem.maxmargin import MaxMargin
from tests.conftest import MakeTask


def odd_task(make_task: MakeTask, seed: int) -> MaxMargin:
    """Return a small task with duplicates, contradictions, zeros, rank one or symmetric patterns, at any scale."""
    rng = np.random.default_rng(seed)
    p, m, n = rng.integers(1, 61), rng.integers(2, 13), rng.integers(2, 5)
    task = make_task(p=int(p), m=int(m), n=int(n), seed=seed, zeros=float(rng.choice([0.0, 0.8])))
    patterns, labels = task.patterns.copy(), task.labels.copy()
    match seed % 6:
        case 1:
            patterns[: p // 2] = patterns[0]
        case 2:
            patterns[-1], labels[-1] = patterns[0], -labels[0]
        case 3:
            patterns[: 1 + p // 2] = 0.0
        case 4:
            x = rng.choice([-1.0, 1.0], (p, m))
            patterns = x[:, :, None] * x[:, None, :]
        case 5:
            patterns += patterns.swapaxes(1, 2)
    scale = 10.0 ** rng.integers(-8, 9)
    return MaxMargin(patterns * scale, labels, scale=scale)
