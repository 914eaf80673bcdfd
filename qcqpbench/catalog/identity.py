"""The identity of a solver's code: a hash of the source files it runs, found without importing them.

A solver that comes with qcqpbench runs its own module and the modules of ``qcqpbench.solvers`` that it imports,
directly or through each other, and `qcqpbench.catalog.certificate` where it imports that. A solver of another package
runs all files of that package.
"""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_OURS = "qcqpbench.solvers"
# The modules of the core that hold an algorithm, as files of qcqpbench.solvers do.
_ALGORITHMS = ("qcqpbench.catalog.certificate",)
_HASH_CHARACTERS = 12
_READ_BYTES = 1 << 20
_NOT_SOURCE = {"__pycache__", ".git"}


@cache
def source_hash(module: str) -> str:
    """Return a hash of the source that a solver defined in `module` runs; "unknown" if there are no files."""
    files = _solver_files(module) if module.startswith(f"{_OURS}.") else _package_files(module)
    sha = hashlib.sha256()
    count = 0
    for name, path in files:
        count += 1
        sha.update(f"{name}\0".encode(errors="surrogateescape"))
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                sha.update(block)
    return sha.hexdigest()[:_HASH_CHARACTERS] if count else "unknown"


def _solver_files(module: str) -> Iterator[tuple[str, Path]]:
    """Yield (module name, file) of a solver of ours and of the modules it imports, sorted by name."""
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if name not in files and path is not None:
            files[name] = path
            waiting += _imports(path)
    yield from sorted(files.items())


def _imports(path: Path) -> Iterator[str]:
    """Yield the names of the modules with solver code that a module imports."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names: Iterable[str] = ()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [_OURS if node.level else "", node.module or ""]))
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            if name in _ALGORITHMS or (name.startswith(f"{_OURS}.") and _file(name) is not None):
                yield name


def _package_files(module: str) -> Iterator[tuple[str, Path]]:
    """Yield (relative name, file) of the top-level package or module that a module belongs to, sorted by name."""
    top = module.partition(".")[0]
    if top == "__main__":
        main = getattr(sys.modules["__main__"], "__file__", None)
        yield from [(top, Path(main))] if main and Path(main).is_file() else []
        return
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        yield from [(top, Path(spec.origin))] if spec.origin and Path(spec.origin).is_file() else []
        return
    files: dict[str, Path] = {}
    for folder in map(Path, spec.submodule_search_locations):
        for path in folder.rglob("*"):
            name = path.relative_to(folder)
            if path.is_file() and not _NOT_SOURCE.intersection(name.parts):
                # A package without __init__.py may have several folders, or one twice; an import takes the first.
                files.setdefault(str(name), path)
    yield from sorted(files.items())


def _file(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin and Path(spec.origin).is_file() else None
