"""Processes that have a mark in their environment, wherever they are in the tree."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from qcqpbench.run.isolation.fork_server import close_servers, server_ids

MARK = "QCQPBENCH_TEST_MARK"


@contextlib.contextmanager
def marking(mark: str) -> Iterator[None]:
    """Give a mark to the processes that are started meanwhile, by fork servers of their own."""
    close_servers()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(MARK, mark)
        yield
    close_servers()


def marked(mark: str) -> dict[int, str]:
    """Return ids and names of the processes with MARK=mark in their environment, zombies left out."""
    names = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                names[int(folder.name)] = (folder / "comm").read_text().strip()
    return names


def children(parent: int) -> list[int]:
    """Return the ids of the children of a process."""
    pids = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                pids.append(int(folder.name))
    return pids


def is_running(process: int) -> bool:
    """Return whether there is such a process, zombies left out."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def none_left(mark: str, but: Iterable[int] = (), seconds: float = 20.0) -> dict[int, str]:
    """Return the marked processes that do not end in time, except those in `but` and this process' fork servers."""
    deadline = time.monotonic() + seconds
    allowed = {*but, *server_ids()}
    while left := {pid: name for pid, name in marked(mark).items() if pid not in allowed}:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return left
