"""The hash of a solver's source: the same for the same files, another for changed ones."""

import sys
from pathlib import Path

import pytest

from qcqpbench.catalog.identity import source_hash


@pytest.fixture(autouse=True)
def without_cache() -> None:
    source_hash.cache_clear()


def write_package(folder: Path, line: str) -> None:
    (folder / "some_solvers" / "inner").mkdir(parents=True)
    (folder / "some_solvers" / "one.py").write_text(line)
    (folder / "some_solvers" / "inner" / "two.py").write_text("two = 2\n")


def hash_from(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> str:
    source_hash.cache_clear()
    monkeypatch.setattr(sys, "path", [*map(str, folders), *sys.path])
    return source_hash("some_solvers.one")


def test_a_folder_that_is_on_the_path_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package without __init__.py has a portion for every entry of the path that holds it."""
    write_package(tmp_path, "one = 1\n")
    once = hash_from(monkeypatch, tmp_path)
    assert once != "unknown"
    assert hash_from(monkeypatch, tmp_path, tmp_path, tmp_path / "some_solvers" / "..") == once


def test_every_file_of_the_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_package(first, "one = 1\n")
    write_package(second, "one = 1.0\n")
    before = hash_from(monkeypatch, first)
    assert hash_from(monkeypatch, second) != before
    (first / "some_solvers" / "inner" / "two.py").write_text("two = 3\n")
    assert hash_from(monkeypatch, first) != before


def test_what_is_compiled_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path, "one = 1\n")
    before = hash_from(monkeypatch, tmp_path)
    (tmp_path / "some_solvers" / "__pycache__").mkdir()
    (tmp_path / "some_solvers" / "__pycache__" / "one.pyc").write_bytes(b"compiled")
    assert hash_from(monkeypatch, tmp_path) == before
