"""Rules for the layout and the prose of the repository."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "qcqpbench"
SOURCES = ("qcqpbench", "problems", "solvers")
FOLDERS = (*SOURCES, "tests", "benchmarks", "docs", "examples")
MAX_ENTRIES, MAX_TOP_ENTRIES, MAX_LINES, MAX_LAYERS = 9, 12, 400, 10
UNCOUNTED_ENTRIES = ("__init__.py", "py.typed", "__pycache__")
NON_EMPTY_INITS = (PACKAGE / "__init__.py", PACKAGE / "theory" / "__init__.py")
FORBIDDEN_OPENING = re.compile(r"\s*(What|Whether|Of|Who|Those|Where)\b")
# Written so that the test does not match itself.
FORBIDDEN_WORDS = re.compile(r"\bright[ ]is\b")


def python_files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def layers() -> list[set[str]]:
    """Return the modules of each layer of the import contract, from the top down."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = configuration["tool"]["importlinter"]["contracts"]
    return [set(re.split(r"\s*[|:]\s*", layer)) for layer in contract["layers"]]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text


def test_folders_have_few_entries() -> None:
    folders = [PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    counts = {
        name(folder): sum(path.name not in UNCOUNTED_ENTRIES for path in folder.iterdir()) for folder in sorted(folders)
    }
    limits = {folder: MAX_TOP_ENTRIES if folder == PACKAGE.name else MAX_ENTRIES for folder in counts}
    assert {folder: count for folder, count in counts.items() if count > limits[folder]} == {}


def test_modules_are_short() -> None:
    lines = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*SOURCES)}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_the_import_contract_has_few_layers() -> None:
    assert len(layers()) <= MAX_LAYERS


def test_every_module_belongs_to_a_layer() -> None:
    layered = set().union(*layers())
    outside = []
    for path in python_files(*SOURCES):
        parts = path.relative_to(ROOT).with_suffix("").parts
        parents = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        if path != PACKAGE / "__init__.py" and not parents & layered:
            outside.append(name(path))
    assert outside == []


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    offenders = [
        f"{name(path)}:{line}"
        for path in python_files(*FOLDERS)
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if FORBIDDEN_OPENING.match(text)
    ]
    assert offenders == []


def test_errors_state_requirement_and_value() -> None:
    """Check that no string holds the words of the old error messages."""
    offenders = [
        f"{name(path)}:{node.lineno}"
        for path in python_files(*FOLDERS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FORBIDDEN_WORDS.search(node.value)
    ]
    assert offenders == []


def test_init_files_are_empty() -> None:
    """Check that importing a sub-package imports nothing: the supervisor needs the standard library only."""
    offenders = [
        name(path)
        for path in sorted(PACKAGE.rglob("__init__.py"))
        if path not in NON_EMPTY_INITS and path.read_text(encoding="utf-8").strip()
    ]
    assert offenders == []
