import json
import os
import platform
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import qcqpbench
from qcqpbench.catalog import machine as module
from qcqpbench.catalog.machine import machine

ROOT = Path(__file__).parents[2]


def test_facts_agree_with_other_sources() -> None:
    facts = machine()
    assert facts.python == platform.python_version()
    assert facts.qcqpbench == qcqpbench.__version__
    assert facts.packages["numpy"] == np.__version__
    assert facts.cpu and facts.system and facts.kernel and facts.kernel in " ".join(os.uname())
    assert facts.usable_cores == len(os.sched_getaffinity(0))
    assert facts.logical_cores and facts.physical_cores
    assert facts.usable_cores <= facts.logical_cores
    assert facts.physical_cores <= facts.logical_cores
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert facts.memory_bytes == int(total.split()[1]) * 1024
    assert facts.blas and facts.blas_version


def test_facts_name_no_person_and_no_host() -> None:
    text = json.dumps(asdict(machine()))
    names = {socket.gethostname(), os.environ.get("USER", ""), str(Path.home()), str(ROOT)} - {"", "localhost", "root"}
    # A host may have a name such as "x86" or "main".
    assert not [name for name in names if len(name) > 4 and name in text]


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_follow_the_environment(threads: int) -> None:
    code = "from qcqpbench.catalog.machine import machine; m = machine(); print(m.blas_threads, m.thread_variables)"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_PROC_BIND": "true", "OMP_SECRET": "x"}
    environment = {
        name: value for name, value in environment.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }
    output = subprocess.check_output([sys.executable, "-c", code], env=environment, cwd=ROOT, text=True)
    # OpenBLAS uses no more threads than cores.
    expected = min(threads, len(os.sched_getaffinity(0))) if "openblas" in (machine().blas or "") else None
    assert output == f"{expected} {{'OMP_PROC_BIND': 'true', 'OPENBLAS_NUM_THREADS': '{threads}'}}\n"


def test_threads_are_those_of_numpys_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["/a/scipy.libs/libopenblas.so", "/a/numpy.libs/libopenblas.so", "/a/libgomp.so"]
    libraries = [
        {"user_api": "openmp" if "gomp" in file else "blas", "filepath": file, "num_threads": place}
        for place, file in enumerate(files)
    ]
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: libraries)
    assert machine().blas_threads == 1
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: libraries[:1])
    assert machine().blas_threads == 0
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: libraries[2:])
    assert machine().blas_threads is None


def git(folder: Path, *words: str) -> str:
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    environment = {**os.environ, **names}
    return subprocess.check_output(["git", *words], cwd=folder, env=environment, text=True).strip()


def test_commit_is_that_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        git(tmp_path, "init", "-q")
    except FileNotFoundError:
        pytest.skip("there is no git")
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    git(tmp_path, "commit", "-qm", "first", "--allow-empty")
    # Inside a checkout, but not part of it, as a virtual environment in another project.
    assert module._commit(folder) == (None, None)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "second")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert module._commit(folder) == (commit, False)
    (folder / "new.py").write_text("")
    assert module._commit(folder) == (commit, False)
    (folder / "__init__.py").write_text("changed")
    assert module._commit(folder) == (commit, True)
    # A git hook sets these for its own repository.
    monkeypatch.setenv("GIT_DIR", str(ROOT / ".git"))
    assert module._commit(folder) == (commit, True)
    monkeypatch.setenv("PATH", "")
    assert module._commit(folder) == (None, None)


def test_unknown_facts_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_text", lambda path: "")
    monkeypatch.setattr("threadpoolctl.threadpool_info", list)
    monkeypatch.delattr(os, "sched_getaffinity")
    facts = machine()
    assert facts.cpu
    assert {facts.physical_cores, facts.usable_cores, facts.governor, facts.blas_threads} == {None}


def test_physical_cores_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two sockets of two cores of two threads."""
    blocks = [
        f"processor\t: {k}\nmodel name\t: A  CPU @ 3 GHz\nphysical id\t: {k // 2 % 2}\ncore id\t\t: {k % 2}\n"
        for k in range(8)
    ]
    monkeypatch.setattr(module, "_text", lambda path: "\n".join(blocks) if path == "/proc/cpuinfo" else "")
    facts = machine()
    assert (facts.cpu, facts.physical_cores) == ("A  CPU @ 3 GHz", 4)
