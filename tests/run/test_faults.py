"""A suite of 200 runs whose driver or workers are killed repeatedly: no row is missing, double or different."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qcqpbench.results.store import Store
from tests.support.hostile import install
from tests.support.processes import MARK, marked, none_left

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("faults")]

SCRIPT = Path(sys.executable).with_name("qcqpbench")
SUITE = """
time_limit = 60
starts = 20

[[problem]]
name = "covariance_perceptron"
m = 3
p = 3
seed = [0, 1, 2, 3, 4]

[[solver]]
name = ["hostile[kind=nap,seconds=0.01]", "slsqp"]
"""
RUNS = 200
Rows = dict[str, tuple[object, ...]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    install(folder)
    (folder / "suite.toml").write_text(SUITE)
    return folder


def start(folder: Path, file: str, mark: str) -> subprocess.Popen[bytes]:
    """Start the program in a process group of its own."""
    variables = os.environ | {"PYTHONPATH": f"{folder}:{Path(__file__).parents[2]}", MARK: mark}
    return subprocess.Popen(
        [SCRIPT, "run", "suite.toml", "-j", "2", "-o", file],
        cwd=folder,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[bytes]) -> str:
    """Wait for the program, and return its last line if it failed."""
    _, text = process.communicate()
    return text.decode().splitlines()[-1] if process.returncode else ""


def rows(path: Path) -> Rows:
    """Return the values of every row by its key; check that each key has one row, and that the file is sound."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Store(path) as store:
        stored = list(store.rows(all_rows=True))
        assert len({row.key for row in stored}) == len(stored)
        names = ("problem", "solver", "start", "termination", "margin", "kappa_bar", "objective", "violation")
        values: Rows = {}
        for row in stored:
            point = store.point(row.id)
            values[row.key] = (*(getattr(row, name) for name in names), None if point is None else point.tobytes())
        return values


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Rows:
    assert finish(start(folder, "undisturbed.db", "undisturbed")) == ""
    expected = rows(folder / "undisturbed.db")
    assert len(expected) == RUNS
    return expected


def test_rows_survive_a_driver_killed_at_twenty_moments(folder: Path, undisturbed: Rows) -> None:
    """Kill it while it starts, or a moment after some more runs have finished, however slow the machine is."""
    dice = random.Random(0)
    mark = f"driver-{os.getpid()}"
    reached = [0]
    for number in range(20):
        process = start(folder, "driver.db", mark)
        assert process.stderr is not None
        if number % 2 == 0:
            time.sleep(dice.uniform(0, 1))
        else:
            for _ in range(dice.randrange(1, 15)):
                process.stderr.readline()
            time.sleep(dice.uniform(0, 0.05))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        # Also the workers, which are in other process groups.
        assert none_left(mark) == {}
        if (folder / "driver.db").exists():
            with Store(folder / "driver.db") as store:
                reached.append(len(store.finished()))
    assert reached == sorted(reached) and 10 < reached[-1] < RUNS
    assert finish(start(folder, "driver.db", mark)) == ""
    resumed = rows(folder / "driver.db")
    assert {key: row for key, row in resumed.items() if row != undisturbed[key]} == {}
    assert len(resumed) == RUNS


def test_rows_survive_killed_workers(folder: Path, undisturbed: Rows) -> None:
    dice = random.Random(0)
    mark = f"workers-{os.getpid()}"
    process = start(folder, "workers.db", mark)
    kills, pause = 0, 5
    line = b""
    with process:
        assert process.stderr is not None
        while next_line := process.stderr.readline():
            line = next_line
            # The pauses are in runs, not in seconds: a run that is killed three times counts as a crash.
            pause -= 1
            if pause == 0:
                time.sleep(dice.uniform(0, 0.05))
                others = sorted(set(marked(mark)) - {process.pid})
                with contextlib.suppress(ProcessLookupError, IndexError):
                    os.kill(dice.choice(others), signal.SIGKILL)
                    kills += 1
                pause = dice.randrange(8, 20)
    assert process.returncode == 0, line
    assert kills >= 8 and none_left(mark) == {}
    disturbed = rows(folder / "workers.db")
    assert {key: row for key, row in disturbed.items() if row != undisturbed[key]} == {}
    assert len(disturbed) == RUNS
