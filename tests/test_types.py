"""Check with mypy --strict that the scripts of users find the types of the package, outside the checkout."""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.snippets import ROOT, check_types, link_numpy, type_check, write_scripts

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("types")]


@pytest.fixture(autouse=True, scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let mypy analyse the stubs of NumPy once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPY_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def test_types_are_found_in_the_editable_install(tmp_path: Path) -> None:
    """Check the environment of the tests, which tools/setup.sh made."""
    check_types(Path(sys.executable), tmp_path)


def test_types_are_found_through_the_links_to_the_checkout(tmp_path: Path) -> None:
    """Check the links that tools/types.sh makes, twice, in an empty environment."""
    venv.create(tmp_path / "environment", with_pip=False, symlinks=True)
    python = tmp_path / "environment" / "bin" / "python"
    link_numpy(python)
    for _ in range(2):
        command = [ROOT / "tools" / "types.sh"]
        subprocess.run(command, env={**os.environ, "VENV": str(tmp_path / "environment")}, check=True)
    check_types(python, tmp_path)


def test_links_for_type_checkers_are_invisible_to_python(tmp_path: Path) -> None:
    program = "import qcqpbench, qcqpbench.solvers; print(qcqpbench.__file__, *qcqpbench.solvers.__path__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "qcqpbench-stubs" not in done.stdout


def test_documentation_and_examples_type_check(tmp_path: Path) -> None:
    assert type_check(Path(sys.executable), *write_scripts(tmp_path)) == []
