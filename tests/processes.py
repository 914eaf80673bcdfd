"""Processes that have a mark in their environment, wherever they hang in the tree."""

import contextlib
import time
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


def none_left(mark: str, seconds: float = 20.0) -> dict[int, str]:
    """What still runs with the mark once there was time to end."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
