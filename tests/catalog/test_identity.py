"""Check that the hash of a solver's source changes with the code it runs, and with nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qcqpbench.analysis.report.numbers.sources import read
from qcqpbench.catalog import identity
from qcqpbench.catalog.identity import source_hash, source_hash_in


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    source_hash.cache_clear()


def write_package(folder: Path, line: str) -> None:
    (folder / "some_solvers" / "inner").mkdir(parents=True)
    (folder / "some_solvers" / "one.py").write_text(line)
    (folder / "some_solvers" / "inner" / "two.py").write_text("two = 2\n")


def write_single_module(folder: Path) -> None:
    """Write a solver module that imports a module and a package beside it; importing the package fails."""
    (folder / "onefile.py").write_text("import onehelper\nfrom onepackage.deep import value\nimport numpy, json\n")
    (folder / "onehelper.py").write_text("import onedeep\n")
    (folder / "onedeep.py").write_text("deep = 1\n")
    (folder / "oneother.py").write_text("never imported\n")
    (folder / "onepackage").mkdir()
    (folder / "onepackage" / "__init__.py").write_text("raise RuntimeError\n")
    (folder / "onepackage" / "deep.py").write_text("value = 1\n")


def record(folder: Path, *files: str) -> None:
    """Write the metadata of an installed distribution that records files."""
    metadata = folder / "onefile-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: onefile\nVersion: 1.0\n")
    (metadata / "top_level.txt").write_text("onefile\n")
    (metadata / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def hash_from(monkeypatch: pytest.MonkeyPatch, *folders: Path, module: str = "some_solvers.one") -> str:
    source_hash.cache_clear()
    monkeypatch.setattr(sys, "path", [*map(str, folders), *sys.path])
    return source_hash(module)


def test_folder_that_is_on_the_path_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a package without __init__.py, which has a portion for every entry of the path that holds it."""
    write_package(tmp_path, "one = 1\n")
    once = hash_from(monkeypatch, tmp_path)
    assert once != "unknown"
    assert hash_from(monkeypatch, tmp_path, tmp_path, tmp_path / "some_solvers" / "..") == once


def test_every_source_file_of_the_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_package(first, "one = 1\n")
    write_package(second, "one = 1.0\n")
    before = hash_from(monkeypatch, first)
    assert hash_from(monkeypatch, second) != before
    (first / "some_solvers" / "inner" / "two.py").write_text("two = 3\n")
    changed = hash_from(monkeypatch, first)
    assert changed != before
    (first / "some_solvers" / "inner" / "fast.cpython-311-x86_64-linux-gnu.so").write_bytes(b"library")
    assert hash_from(monkeypatch, first) != changed


def test_names_and_the_end_of_long_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a name that is not UTF-8, too."""
    write_package(tmp_path, "one = 1\n")
    package = tmp_path / "some_solvers"
    hashes = [hash_from(monkeypatch, tmp_path)]
    (package / "three.py").write_text("#" * 3_000_000)
    hashes.append(hash_from(monkeypatch, tmp_path))
    with (package / "three.py").open("a") as file:
        file.write("three = 3\n")
    hashes.append(hash_from(monkeypatch, tmp_path))
    for name in (b"four.py", b"four\xff.py"):
        (package / "three.py").rename(package / os.fsdecode(name))
        hashes.append(hash_from(monkeypatch, tmp_path))
        (package / os.fsdecode(name)).rename(package / "three.py")
    assert len(set(hashes)) == len(hashes)


def test_algorithms_of_the_core_that_a_shipped_solver_imports_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {name: f"qcqpbench.solvers.{name}" for name in ("certificate", "slsqp")}
    before = {name: source_hash(module) for name, module in modules.items()}
    find, changed = identity._find_file, tmp_path / "certificate.py"
    changed.write_text("changed = True\n")
    monkeypatch.setattr(
        identity, "_find_file", lambda name: changed if name == "qcqpbench.catalog.certificate.shor" else find(name)
    )
    source_hash.cache_clear()
    after = {name: source_hash(module) for name, module in modules.items()}
    source_hash.cache_clear()
    assert [name for name in modules if after[name] != before[name]] == ["certificate"]


def test_c_files_of_a_module_that_a_shipped_solver_imports_count(tmp_path: Path) -> None:
    """Change a header in a copy of the checkout; the copy has the hashes of the installed solvers before."""
    root, names = Path(__file__).parents[2], ("gip", "multistart", "branch_and_bound", "slsqp")
    shutil.copytree(root / "solvers", tmp_path / "solvers", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(root / "qcqpbench" / "catalog", tmp_path / "qcqpbench" / "catalog")
    before = {name: source_hash_in(tmp_path, name) for name in names}
    assert before == {name: source_hash(f"qcqpbench.solvers.{name}") for name in names}
    for file, unchanged in (
        ("_library/sets.h", ["slsqp"]),
        ("_gip_kernel/steps.h", ["slsqp"]),
        ("_bnb_kernel/kernel.c", ["gip", "multistart", "slsqp"]),
    ):
        with (tmp_path / "solvers" / file).open("a") as source:
            source.write("/* changed */\n")
        after = {name: source_hash_in(tmp_path, name) for name in names}
        assert [name for name in names if after[name] == before[name]] == unchanged
        before = after


def test_relative_imports_lead_to_modules_beside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a module that only the parent of the solver's package imports."""
    write_package(tmp_path, "import onehelper\n")
    (tmp_path / "some_solvers" / "inner" / "two.py").write_text("from .. import one\n")
    (tmp_path / "onehelper.py").write_text("helper = 1\n")
    before = hash_from(monkeypatch, tmp_path, module="some_solvers.inner.two")
    (tmp_path / "onehelper.py").write_text("helper = 2\n")
    assert hash_from(monkeypatch, tmp_path, module="some_solvers.inner.two") != before


def test_caches_and_data_in_the_package_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path, "one = 1\n")
    before = hash_from(monkeypatch, tmp_path)
    (tmp_path / "some_solvers" / "__pycache__").mkdir()
    for name in ("__pycache__/one.pyc", "__pycache__/one.py", "cache.npz", "log.txt", "license"):
        (tmp_path / "some_solvers" / name).write_bytes(b"written during a run")
    assert hash_from(monkeypatch, tmp_path) == before


def test_imported_modules_beside_a_single_module_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_single_module(tmp_path)
    hashes = [hash_from(monkeypatch, tmp_path, module="onefile")]
    for name in ("onefile.py", "onehelper.py", "onedeep.py", "onepackage/deep.py", "onepackage/__init__.py"):
        with (tmp_path / name).open("a") as file:
            file.write("changed = True\n")
        hashes.append(hash_from(monkeypatch, tmp_path, module="onefile"))
    assert len(set(hashes)) == len(hashes)
    (tmp_path / "oneother.py").write_text("changed = True\n")
    assert hash_from(monkeypatch, tmp_path, module="onefile") == hashes[-1]


@pytest.mark.parametrize("edited, counts", [("onehelper.py", True), ("oneother.py", True), ("onedeep.py", False)])
def test_recorded_files_of_a_distribution_count(
    edited: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_single_module(tmp_path)
    record(tmp_path, "onefile.py", "onehelper.py", "oneother.py", "gone.py", "onefile-1.0.dist-info/RECORD")
    before = hash_from(monkeypatch, tmp_path, module="onefile")
    (tmp_path / edited).write_text("changed = True\n")
    assert (hash_from(monkeypatch, tmp_path, module="onefile") != before) == counts


def test_editable_install_counts_the_files_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a distribution that records nothing but the file that leads to the checkout."""
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    checkout.mkdir()
    site.mkdir()
    write_single_module(checkout)
    record(site, "__editable__.onefile-1.0.pth")
    before = hash_from(monkeypatch, site, checkout, module="onefile")
    (checkout / "onehelper.py").write_text("changed = True\n")
    assert hash_from(monkeypatch, site, checkout, module="onefile") != before


def test_modules_of_other_distributions_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a module without a distribution in a folder where another distribution is installed."""
    (tmp_path / "lone.py").write_text("import onefile\n")
    write_single_module(tmp_path)
    record(tmp_path, "onefile.py")
    before = hash_from(monkeypatch, tmp_path, module="lone")
    assert before != "unknown"
    (tmp_path / "onefile.py").write_text("changed = True\n")
    assert hash_from(monkeypatch, tmp_path, module="lone") == before


SOLVER = """
from dataclasses import dataclass
from qcqpbench import MaxMargin, RunFunction, Solution, TaskSolver, Termination
from ._factor import FACTOR

@dataclass(frozen=True)
class Edited(TaskSolver):
    name = "edited"
    drives = "nothing"
    citation = "none"

    def build(self, problem: MaxMargin) -> RunFunction:
        return lambda start, budget: Solution(FACTOR * start, Termination.FINISHED)
"""


@pytest.mark.slow
def test_runs_of_changed_code_are_new_runs(tmp_path: Path) -> None:
    """Change a private module that a plug-in imports; neither the run nor the report takes its rows for the older."""
    package, metadata = tmp_path / "edited_solver", tmp_path / "edited_solver-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").touch()
    (package / "solver.py").write_text(SOLVER)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: edited-solver\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[qcqpbench.solvers]\nedited = edited_solver.solver:Edited\n")

    def run(factor: str, results: str) -> str:
        """Return the last line of the command."""
        (package / "_factor.py").write_text(f"FACTOR = {factor}\n")
        command = [str(Path(sys.executable).with_name("qcqpbench")), "run", "-p", "covariance_perceptron[m=3,p=3]"]
        command += ["-s", "edited", "-r", "1", "-j", "1", "-o", results]
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        printed = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return printed.stdout.splitlines()[-1]

    assert run("1.0", "a.db") == "a.db: 1 runs"
    assert run("1.0", "a.db") == "a.db: 1 runs, 1 of them done before"
    assert run("[[1.0], [-1.0]]", "a.db") == "a.db: 1 runs"
    assert run("[[1.0], [-1.0]]", "b.db") == "b.db: 1 runs"
    assert run("1.0", "c.db") == "c.db: 1 runs"
    for results in (["a.db"], ["b.db", "c.db"]):
        rows = read([tmp_path / name for name in results]).rows
        assert len({row.version for row in rows}) == len({row.label for row in rows}) == len(rows) == 2
        assert rows[0].margin != rows[1].margin
