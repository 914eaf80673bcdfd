"""Identity of a solver's code: a hash of its source files, which are located without importing them.

The source of a solver that is shipped with qcqpbench is its own module, the modules of ``qcqpbench.solvers`` that it
imports directly or indirectly, and those modules of `qcqpbench.catalog.certificate` that one of these imports. A folder
with the name of such a module has C files, which count too: the module loads what is compiled from them.

The source of a plug-in is the source files that its installed distribution records. Without such a record (a checkout,
an editable install, a script), it is the source files of the top-level package or module, and those of the top-level
modules in the same folder that the plug-in imports. Modules of other distributions do not count: `Solver.version` gives
their versions.

Source files have one of `_SOURCE_SUFFIXES`. Other files do not count, because a run may write caches and data into the
folder of a package.
"""

import ast
import hashlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path

_SHIPPED = "qcqpbench.solvers"
# Package outside qcqpbench.solvers that implements algorithms.
_ALGORITHMS = "qcqpbench.catalog.certificate"
_HASH_CHARACTERS = 12
_READ_BYTES = 1 << 20
_NOT_SOURCE = {"__pycache__", ".git"}
# Suffixes of Python, of compiled libraries, and of languages that are compiled or interpreted at run time.
_SOURCE_SUFFIXES = {
    *(".py", ".so", ".pyd", ".dll", ".dylib", ".pyx", ".pxd"),
    *(".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".f", ".f90", ".rs", ".jl", ".r", ".m"),
}


@cache
def source_hash(module: str) -> str:
    """Return a hash of the source files of a solver defined in `module`; "unknown" if there are none."""
    # In other processes `multiprocessing` imports the user's script under this name.
    module = "__main__" if module == "__mp_main__" else module
    if module.startswith(f"{_SHIPPED}."):
        return _hash(_shipped_files(module, _find_file))
    return _hash(_recorded_files(module) or _plugin_files(module))


def source_hash_in(checkout: Path, solver: str) -> str:
    """Return the hash of the source files of a shipped solver in the files of another checkout; "unknown" if none."""

    def locate(module: str) -> Path | None:
        # solvers/ is beside the core in a checkout.
        name = module.removeprefix("qcqpbench.") if module.startswith(f"{_SHIPPED}.") else module
        path = checkout.joinpath(*name.split(".")).with_suffix(".py")
        return path if path.is_file() else None

    return _hash(_shipped_files(f"{_SHIPPED}.{solver}", locate))


def _shipped_files(module: str, locate: Callable[[str], Path | None]) -> dict[str, Path]:
    """Return the source files of a shipped solver defined in `module`, by name."""
    files = dict(_reach(module, locate, _is_solver_code))
    compiled = ((name, path.with_suffix("").glob("*.[ch]")) for name, path in files.items())
    return files | {f"{name}/{source.name}": source for name, sources in compiled for source in sources}


def _hash(files: Mapping[str, Path]) -> str:
    """Return a hash of files and their names; "unknown" if there are none."""
    sha = hashlib.sha256()
    for name, path in sorted(files.items()):
        sha.update(f"{name}\0".encode(errors="surrogateescape"))
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                sha.update(block)
    return sha.hexdigest()[:_HASH_CHARACTERS] if files else "unknown"


def _is_solver_code(module: str) -> bool:
    return module.startswith((f"{_SHIPPED}.", f"{_ALGORITHMS}."))


def _reach(
    module: str, locate: Callable[[str], Path | None], follow: Callable[[str], bool]
) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of `module` and of the modules accepted by `follow` that it imports, directly or not."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = None if name in seen else locate(name)
        seen.add(name)
        if path is not None:
            yield name, path
            waiting += filter(follow, _imports(name, path))


def _imports(module: str, path: Path) -> Iterator[str]:
    """Yield the names that `module` imports; ``from a import b`` yields ``a`` and ``a.b``, a module or not."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        # The module is compiled, or written for another version of Python.
        return
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: -(node.level - 1) or None] if node.level else []
            base = ".".join(filter(None, [*parents, node.module or ""]))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _recorded_files(module: str) -> dict[str, Path]:
    """Return the source files that the distribution of `module` records, by name; empty if `module` is not one of them.

    An editable install, for example, records only a reference to the checkout.
    """
    top = module.partition(".")[0]
    files = {
        str(file): Path(str(file.locate()))
        for distribution in _distributions(tuple(sys.path)).get(top, ())
        for file in importlib.metadata.files(distribution) or ()
        if _is_source(Path(file))
    }
    files = {name: path for name, path in files.items() if path.is_file()}
    file = _locate(module)
    return files if file is not None and any(path.samefile(file) for path in files.values()) else {}


def _plugin_files(module: str) -> dict[str, Path]:
    """Return the source files of the top-level package of `module` and of the imported modules beside it, by name."""
    top = module.partition(".")[0]
    distributions = _distributions(tuple(sys.path))
    folders = _folders(top)

    def is_beside(name: str) -> bool:
        other = name.partition(".")[0]
        same = other not in distributions or distributions[other] == distributions.get(top)
        return other == top or (same and other != "qcqpbench" and not folders.isdisjoint(_folders(other)))

    files = _top_level_files(top)
    for name, _ in _reach(module, _locate, is_beside):
        other = name.partition(".")[0]
        if other != top:
            files |= {f"{other}:{file}": path for file, path in _top_level_files(other).items()}
    return files


def _top_level_files(top: str) -> dict[str, Path]:
    """Return the source files of the top-level package or module `top`, by name."""
    spec = _find(top)
    if spec is None or spec.submodule_search_locations is None:
        file = _locate(top)
        return {} if file is None else {top: file}
    files: dict[str, Path] = {}
    for folder in map(Path, spec.submodule_search_locations):
        for path in folder.rglob("*"):
            name = path.relative_to(folder)
            if path.is_file() and _is_source(name):
                # A package without __init__.py may have several folders, or one twice; an import takes the first.
                files.setdefault(str(name), path)
    return files


def _folders(top: str) -> set[Path]:
    """Return the parent folders of the top-level package or module `top`."""
    spec, file = _find(top), _locate(top)
    places: Iterable[str | Path] = () if file is None else (file,)
    if spec is not None and spec.submodule_search_locations is not None:
        places = spec.submodule_search_locations
    return {Path(place).resolve().parent for place in places}


def _locate(module: str) -> Path | None:
    """Return the file of `module` without importing its parent packages, unlike `importlib.util.find_spec`."""
    top, *parts = module.split(".")
    if top == "__main__":
        main = getattr(sys.modules[top], "__file__", None)
        return Path(main) if main and Path(main).is_file() else None
    spec = _find(top)
    if spec is None:
        return None
    candidates = [Path(spec.origin)] if not parts and spec.origin else []
    for folder in (spec.submodule_search_locations or ()) if parts else ():
        place = Path(folder, *parts)
        candidates += [place.with_name(f"{place.name}.py"), place / "__init__.py"]
    return next((path for path in candidates if path.is_file()), None)


def _find_file(module: str) -> Path | None:
    spec = _find(module)
    return Path(spec.origin) if spec is not None and spec.origin and Path(spec.origin).is_file() else None


def _find(module: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _is_source(path: Path) -> bool:
    # All suffixes count, because the name of a library may end in .so.1.
    return not _NOT_SOURCE.intersection(path.parts) and not _SOURCE_SUFFIXES.isdisjoint(map(str.lower, path.suffixes))


@cache
def _distributions(_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the distributions that provide each top-level module, cached for each import path `_path`."""
    return importlib.metadata.packages_distributions()
