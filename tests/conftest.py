import signal
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings

from qcqpbench import MaxMargin

settings.register_profile("qcqpbench", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("qcqpbench")

# Started in the background, we ignore it, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

MakeTask = Callable[..., MaxMargin]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--odd-tasks", type=int, default=100, help="how many odd tasks to try gip and the certificate on")


@pytest.fixture(scope="session")
def make_task() -> MakeTask:
    """A random task with patterns that are not symmetric, a share of their entries zero."""

    def make(p: int, m: int, n: int, seed: int = 0, zeros: float = 0.0) -> MaxMargin:
        rng = np.random.default_rng(seed)
        patterns = rng.standard_normal((p, m, m)) * (rng.random((p, m, m)) >= zeros)
        labels = rng.choice([-1, 1], (p, n * (n - 1) // 2))
        return MaxMargin(patterns, labels, scale=0.5)

    return make
