"""Results files for the tests of this folder."""

import shutil
from pathlib import Path

import pytest

from tests.support.results_files import CONVEX, TASK, add_runs


@pytest.fixture(scope="session")
def three_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of three rows: of a task by its own solver and by a formulation, and of a QCQP."""
    path = tmp_path_factory.mktemp("three") / "three.db"
    add_runs(path, [TASK], ["gip[starts=1]", "slsqp[formulation=min_norm]"])
    add_runs(path, [CONVEX], ["slsqp"])
    return path


@pytest.fixture
def results(three_rows: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(three_rows, tmp_path / "results.db"))
