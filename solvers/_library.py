"""Compiled libraries of solvers, which installation builds from C files if there is a compiler."""

import ctypes
import importlib.util
from functools import cache
from pathlib import Path


def library_path(name: str) -> Path | None:
    """Return the file of a library; None if there is none, or if its C files have changed since."""
    spec = importlib.util.find_spec(f"{__package__}.{name}_library")
    if spec is None or spec.origin is None:
        return None
    path, folder = Path(spec.origin), Path(__file__).parent
    # Only in a checkout can a source be newer than the library: an installer may write them in any order.
    if not (folder.parent / "pyproject.toml").is_file():
        return path
    sources = [*folder.glob(f"{name}_kernel/*.[ch]"), *folder.glob("_library/*.h")]
    changed = max(file.stat().st_mtime for file in sources)
    return path if path.stat().st_mtime >= changed else None


@cache
def load(name: str) -> ctypes.CDLL | None:
    """Return the library of the C files in `{name}_kernel`; None if there is none."""
    path = library_path(name)
    try:
        return None if path is None else ctypes.CDLL(str(path))
    except OSError:
        return None


def steps_version(*libraries: ctypes.CDLL | None) -> str:
    """Return the part of a solver's version that tells whether its steps are compiled, which are much faster."""
    return "steps NumPy" if None in libraries else "steps compiled"
