"""Jobs on a Dask cluster: the rows are the same as on this machine alone."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qcqpbench.results.store import Store
from tests.support.hostile import install
from tests.support.processes import MARK, none_left

pytest.importorskip("distributed")

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.xdist_group("dask")]

SCRIPT = Path(sys.executable).with_name("qcqpbench")
MARKED = f"dask-{os.getpid()}"
SUITE = """
time_limit = 1
memory_limit = 1
starts = {starts}

[[problem]]
name = "covariance_perceptron"
m = 3
p = 3
seed = [0, 1]

[[solver]]
name = ["slsqp", "hostile[kind=nap,seconds=0.02]"]

[[solver]]
name = ["hostile[kind=segfault]", "hostile[kind=spin_in_c]", "hostile[kind=daemon]"]
starts = 1
"""
Rows = dict[str, tuple[object, ...]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("dask")
    install(folder)
    (folder / "suite.toml").write_text(SUITE.format(starts=8))
    yield folder
    assert none_left(MARKED) == {}


def start(folder: Path, *command: str | Path, **further: str) -> subprocess.Popen[str]:
    variables = os.environ | {"PYTHONPATH": f"{folder}:{Path(__file__).parents[3]}", MARK: MARKED} | further
    return subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def rows(path: Path) -> Rows:
    with Store(path) as store:
        stored = list(store.rows(all_rows=True))
    assert len({row.key for row in stored}) == len(stored)
    names = ("problem", "solver", "start", "termination", "margin", "kappa_bar", "message")
    return {row.key: tuple(getattr(row, name) for name in names) for row in stored}


@pytest.fixture(scope="module")
def local(folder: Path) -> Rows:
    process = start(folder, SCRIPT, "run", "suite.toml", "-j", "2", "-o", "local.db")
    _, text = process.communicate()
    assert process.returncode == 0, text
    return rows(folder / "local.db")


def test_rows_of_a_cluster_on_this_machine_are_the_same(folder: Path, local: Rows) -> None:
    process = start(folder, SCRIPT, "run", "suite.toml", "--dask", "local", "-j", "2", "-o", "cluster.db")
    _, text = process.communicate()
    assert process.returncode == 0, text
    assert rows(folder / "cluster.db") == local
    with Store(folder / "cluster.db") as store:
        assert len({row.worker for row in store.rows() if row.worker.startswith("tcp://127.0.0.1:")}) == 2


def test_rows_have_the_machine_of_their_worker(folder: Path) -> None:
    """Tell the worker from the driver by an environment variable that is one of the facts about a machine."""
    (folder / "scheduler.json").unlink(missing_ok=True)
    options = ("--scheduler-file", "scheduler.json", "--no-dashboard", "--host", "127.0.0.1")
    dask = (sys.executable, "-m")
    with contextlib.ExitStack() as stack:
        scheduler = stack.enter_context(start(folder, *dask, "distributed.cli.dask_scheduler", *options, "--port", "0"))
        stack.callback(kill, scheduler)
        address = wait_for_address(folder / "scheduler.json", scheduler)
        worker = start(folder, *dask, "distributed.cli.dask_worker", *options, "--nthreads", "1", BLIS_NUM_THREADS="7")
        stack.callback(kill, stack.enter_context(worker))
        words = ("-p", "covariance_perceptron[m=3,p=3]", "-s", "slsqp", "-r", "2", "-o", "machine.db")
        driver = stack.enter_context(start(folder, SCRIPT, "run", *words, "--dask", address))
        _, text = driver.communicate()
        assert driver.returncode == 0, text
    with Store(folder / "machine.db") as store:
        of_rows = [row.machine.thread_variables.get("BLIS_NUM_THREADS") for row in store.rows()]
        (invocation,) = store.invocations().values()
    assert of_rows == ["7", "7"]
    assert "BLIS_NUM_THREADS" not in invocation.machine.thread_variables


@pytest.mark.parametrize("failures", [3, 0], ids=["dask tries again", "the driver tries again"])
def test_rows_are_the_same_if_one_of_two_workers_is_killed(
    folder: Path, local: Rows, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", str(failures))
    (folder / "scheduler.json").unlink(missing_ok=True)
    file = f"tcp{failures}.db"
    with contextlib.ExitStack() as stack:

        def dask(role: str, *options: str) -> subprocess.Popen[str]:
            words = (sys.executable, "-m", f"distributed.cli.dask_{role}", "--scheduler-file", "scheduler.json")
            process = stack.enter_context(start(folder, *words, "--no-dashboard", *options))
            stack.callback(kill, process)
            return process

        scheduler = dask("scheduler", "--host", "127.0.0.1", "--port", "0")
        address = wait_for_address(folder / "scheduler.json", scheduler)
        workers = [dask("worker", "--nthreads", "1", "--host", "127.0.0.1") for _ in range(2)]
        driver = stack.enter_context(start(folder, SCRIPT, "run", "suite.toml", "--dask", address, "-o", file))
        assert driver.stderr is not None
        line = ""
        while next_line := driver.stderr.readline():
            line = next_line
            if line.startswith("[12/"):
                # Also its nanny, which would start another one.
                kill(workers[0])
        assert driver.wait() == 0, line
    assert rows(folder / file) == local


def test_an_interrupted_driver_resumes(folder: Path, local: Rows) -> None:
    command = (SCRIPT, "run", "suite.toml", "--dask", "local", "-j", "2", "-o", "again.db")
    with start(folder, *command) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("[5/"):
            pass
        os.killpg(process.pid, signal.SIGINT)
        assert "the same command resumes" in process.stderr.read()
    assert process.returncode == 130 and none_left(MARKED) == {}
    with start(folder, *command) as process:
        _, text = process.communicate()
    assert process.returncode == 0, text
    assert rows(folder / "again.db") == local


def kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def wait_for_address(path: Path, scheduler: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and scheduler.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(path.read_text())["address"])
        time.sleep(0.05)
    raise AssertionError("the scheduler does not start")
