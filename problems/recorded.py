"""Classification of recordings: the covariances of the trials are the patterns, their classes give the labels."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.family import Family
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.npz_archive import read_npz
from qcqpbench.problem.recordings.task import Feature, Normalize, recorded_task

SHIPPED = Path(__file__).parent / "data" / "japanesevowels.npz"

_NEEDED, _OPTIONAL = ("X", "y"), ("lengths", "train")
# Limit on the unpacked size of a file.
_MAX_BYTES = 1 << 31


@dataclass(frozen=True)
class Recorded(Family):
    """Classification task from the recorded trials in an .npz file.

    The file holds the arrays X, shape (trials, channels, time), and y, the class of each trial, and optionally
    `lengths` and `train` (docs/howto/recordings.md).

    Parameters
    ----------
    path
        Path of the file; a relative path is made absolute. The default is a file with two speakers of Japanese Vowels
        that comes with the package.
    classes
        Classes to separate, as a:b:…; by default all classes in the file.
    feature, max_lag, normalize
        As in `qcqpbench.recorded_task`.
    test_share, seed
        Share of the trials of each class that is held out for the test, and the seed that selects them. By default, the
        array `train` of the file determines the held-out trials; without this array, the share is 0.3.
    """

    name = "recorded"

    path: str | None = None
    classes: str | None = None
    feature: Feature = "zero_lag"
    max_lag: int | None = None
    normalize: Normalize = "channels"
    test_share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path is not None:
            # Rows store the spec, so the path must be valid in every working directory.
            object.__setattr__(self, "path", absolute(self.path))

    def generate(self) -> MaxMargin:
        path = SHIPPED if self.path is None else Path(self.path)
        arrays: dict[str, Any] = _arrays(path)
        choices: dict[str, Any] = {name: value for name, value in self.parameters.items() if name != "path"}
        if self.classes is not None:
            choices["classes"] = self.classes.split(":")
        try:
            task = recorded_task(**arrays, **choices)
        except QcqpbenchError as error:
            raise QcqpbenchError(f"{path}: {error}") from error
        return replace(task, metadata=replace(task.metadata, spec=self.spec, seed=self.seed))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in the file `path` by name."""
    arrays = read_npz(path, "an .npz file of recordings", _MAX_BYTES, (*_NEEDED, *_OPTIONAL))
    missing = [name for name in _NEEDED if name not in arrays]
    require(not missing, f"{path}: must hold the arrays X and y, got no {' and no '.join(missing)}")
    return arrays
