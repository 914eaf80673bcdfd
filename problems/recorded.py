"""Recordings with labels as a task: their covariances are the patterns, their classes the labels."""

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.atomic_files import absolute
from qcqpbench.catalog.family import Family
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.recordings.task import Feature, Normalize, recorded_task

SHIPPED = Path(__file__).parent / "data" / "japanesevowels.npz"

_NEEDED, _OPTIONAL = ("X", "y"), ("lengths", "train")
# Bytes that a file may unpack to.
_MOST = 1 << 31


@dataclass(frozen=True)
class Recorded(Family):
    """The trials of a .npz file: X (trials, channels, time), y, and perhaps lengths and train (docs/recorded.md).

    path becomes an absolute path; without it, two speakers of JapaneseVowels, which come with the package.
    classes=a:b:… are those to tell apart, by default all in the file. test_share and seed draw the trials that are held
    out; by default they are those the file says, or 0.3 of each class if it does not. The rest is as in
    `qcqpbench.recorded_task`.
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
            # Rows keep the spec: it must lead to the file from wherever it is read.
            object.__setattr__(self, "path", absolute(self.path))

    def generate(self) -> MaxMargin:
        path = SHIPPED if self.path is None else Path(self.path)
        arrays: dict[str, Any] = _arrays(path)
        choices = {name: value for name, value in self.parameters.items() if name != "path"}
        if self.classes is not None:
            choices["classes"] = self.classes.split(":")
        try:
            task = recorded_task(**arrays, **choices)
        except QcqpbenchError as error:
            raise QcqpbenchError(f"{path}: {error}") from error
        return replace(task, metadata=replace(task.metadata, spec=self.spec, seed=self.seed))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.infolist()}
            missing = [name for name in _NEEDED if name not in sizes]
            require(not missing, f"has no array {' and no '.join(missing)}; right are X, y, and perhaps lengths, train")
            names = [name for name in (*_NEEDED, *_OPTIONAL) if name in sizes]
            size = sum(sizes[name] for name in names)
            require(size <= _MOST, f"unpacks to {1e-9 * size:.3g} GB; right is at most {1e-9 * _MOST:.3g}")
            return {name: _array(archive, name) for name in names}
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        # Whatever zipfile and zlib raise on bytes that nobody wrote on purpose.
        raise QcqpbenchError(f"{path}: is damaged or no .npz file ({error})") from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        try:
            array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        except ValueError as error:
            # NumPy advises to allow pickles, which is the last thing to do with such a file.
            pickled = "Object arrays" in str(error)
            reason = "holds Python objects; right are numbers or text" if pickled else f"cannot be read: {error}"
            raise QcqpbenchError(f"its {name} {reason}") from error
    return array
