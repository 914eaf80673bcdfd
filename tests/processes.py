"""Processes that have a mark in their environment, wherever they hang in the tree."""

import contextlib
import time
from collections.abc import Container
from pathlib import Path

MARK = "QCQPBENCH_TEST_MARK"


def marked(mark: str) -> dict[int, str]:
    """Process ids and names of all that run with MARK=mark in their environment, zombies left out."""
    found = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
    return found


def children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(folder.name))
    return found


def none_left(mark: str, but: Container[int] = (), seconds: float = 20.0) -> dict[int, str]:
    """What still runs with the mark once there was time to end, but for those that may."""
    deadline = time.monotonic() + seconds
    while (left := {pid: name for pid, name in marked(mark).items() if pid not in but}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
