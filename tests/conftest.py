import os
import signal
from collections.abc import Callable

# As in the Makefile, for a pytest started by hand: BLAS reads them when it is loaded, and several processes with as
# many threads as there are cores each take ten times as long. Processes started by tests inherit them.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from qcqpbench import MaxMargin  # noqa: E402

settings.register_profile("qcqpbench", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("qcqpbench")

# Started in the background, we ignore it, and so would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

MakeTask = Callable[..., MaxMargin]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--odd-tasks", type=int, default=36, help="how many odd tasks, of six kinds, to solve")


@pytest.fixture(scope="session")
def make_task() -> MakeTask:
    """Return a maker of random tasks with patterns that are not symmetric, a share of their entries zero."""

    def make(p: int, m: int, n: int, seed: int = 0, zeros: float = 0.0) -> MaxMargin:
        rng = np.random.default_rng(seed)
        patterns = rng.standard_normal((p, m, m)) * (rng.random((p, m, m)) >= zeros)
        labels = rng.choice([-1, 1], (p, n * (n - 1) // 2))
        return MaxMargin(patterns, labels, scale=0.5)

    return make
