"""Reading of .npz files from untrusted sources: the unpacked size is limited, and no code is executed."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.errors import QcqpbenchError, require, system_reason


def read_npz(path: Path, kind: str, max_bytes: int, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read arrays of an .npz file by name; refuse pickled objects.

    Parameters
    ----------
    path
        The file.
    kind
        The kind of file with its article, for messages.
    max_bytes
        Limit of the unpacked size; a small file can unpack to a very large one.
    names
        Names of the arrays to read if the file has them; all by default.

    Raises
    ------
    QcqpbenchError
        If the file cannot be read, is damaged, or is too large when unpacked.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            sizes = {member.filename.removesuffix(".npy"): member.file_size for member in archive.infolist()}
            chosen = [name for name in sizes if names is None or name in names]
            size = sum(sizes[name] for name in chosen)
            require(size <= max_bytes, f"must unpack to at most {max_bytes} bytes, got {size}")
            return {name: _read_member(archive, name) for name in chosen}
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    except Exception as error:
        # zipfile, zlib and NumPy raise many types on damaged bytes.
        raise QcqpbenchError(f"{path}: is damaged or not {kind} ({error})") from error


def _read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as member:
        try:
            array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        except ValueError as error:
            # NumPy advises to allow pickles, which would execute code of the file.
            if "Object arrays" in str(error):
                raise QcqpbenchError(f"{name} must hold numbers or text, got Python objects") from error
            raise
    return array
