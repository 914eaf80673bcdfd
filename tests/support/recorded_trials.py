"""Small labelled recordings, and independent covariances of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench import MaxMargin

Array = NDArray[np.float64]


def held_out(instance: MaxMargin) -> MaxMargin:
    """Return the held-out trials of a task as a task."""
    assert instance.held_out is not None
    return instance.held_out


def recordings(trials: int = 30, channels: int = 4, time: int = 20, classes: int = 3, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"X": rng.standard_normal((trials, channels, time)), "y": np.arange(trials) % classes}


def numpy_covariances(content: dict[str, Any]) -> Array:
    lengths = content.get("lengths", [content["X"].shape[2]] * len(content["X"]))
    cut = [np.asarray(x[:, :count], dtype=float) for x, count in zip(content["X"], lengths, strict=True)]
    return np.stack([np.cov(x, bias=True) for x in cut])
