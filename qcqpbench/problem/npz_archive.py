"""Reading of .npz files from untrusted sources: the unpacked size is limited, and no code is executed.

Archives that qcqpbench writes begin with the member ``header``, which holds JSON as bytes with the name of the format.
"""

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.atomic_files import Kind
from qcqpbench.errors import QcqpbenchError, require, system_reason


def read_npz(path: Path, kind: str, max_bytes: int, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read arrays of an .npz file and return them by name.

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
        If the file cannot be read, is damaged, contains pickled objects, or is too large when unpacked.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            sizes = {member.filename.removesuffix(".npy"): member.file_size for member in archive.infolist()}
            chosen = [name for name in sizes if names is None or name in names]
            size = sum(sizes[name] for name in chosen)
            require(size <= max_bytes, f"the arrays must unpack to at most {max_bytes} bytes, got {size}")
            return {name: _read_member(archive, name) for name in chosen}
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {system_reason(error)}") from error
    except Exception as error:
        # zipfile, zlib and NumPy raise many exception types for damaged files.
        raise QcqpbenchError(f"{path}: must be {kind}, got a damaged or different file: {error}") from error


def _read_member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Read the array `name`; raise QcqpbenchError if it contains pickled objects."""
    with archive.open(f"{name}.npy") as member:
        try:
            array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        except ValueError as error:
            # NumPy's message advises to allow pickles, which would execute code in the file.
            if "Object arrays" in str(error):
                raise QcqpbenchError(f"{name} must hold numbers or text, got Python objects") from error
            raise
    return array


def header_kind(name: str, format: str) -> Kind:
    """Return the kind of .npz archives that begin with a header in which `format` is stated."""

    def recognize(head: bytes) -> bool:
        if not head.startswith(b"PK\x03\x04") or head[30:40] != b"header.npy":
            return False
        compression, name_bytes, extra_bytes = (int.from_bytes(head[at : at + 2], "little") for at in (8, 26, 28))
        content = head[30 + name_bytes + extra_bytes :]
        try:
            content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, len(head)) if compression else content
        except zlib.error:
            return False
        return f'"format": "{format}"'.encode() in content

    return Kind(name, recognize)
