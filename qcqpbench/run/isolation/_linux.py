"""Linux facilities that Python does not wrap: /proc, prctl, and CPU claims. Imports the standard library only."""

import contextlib
import ctypes
import fcntl
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

IS_LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(ancestor: int) -> list[int]:
    """Return the ids of all descendants of process `ancestor`, without zombies."""
    parents: dict[int, int] = {}
    for folder in _process_ids():
        with contextlib.suppress(OSError, ValueError):
            state, parent = _stat_fields(f"/proc/{folder}/stat")[:2]
            if state != "Z":
                parents[int(folder)] = int(parent)
    below, generation = set[int](), {ancestor}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        below |= generation
    return sorted(below)


def children(parent: int) -> list[int]:
    """Return the ids of all children of process `parent`, including adopted processes and zombies."""
    pids: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{parent}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                pids += map(int, Path(f"/proc/{parent}/task/{thread}/children").read_text(encoding="ascii").split())
    return pids


def _process_ids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()] if IS_LINUX else []  # noqa: PTH208


def _stat_fields(path: str) -> list[str]:
    """Return the fields of a /proc stat file after the process name: state, parent id, and so on."""
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()


def process_name(pid: int) -> str:
    """Return the name of process `pid`; "?" if it does not exist."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"


def resident_bytes(pid: int, shared: bool) -> int:
    """Return the resident memory of process `pid` in bytes, 0 if it does not exist.

    File-backed and shared memory are included if `shared`.
    """
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123
            _, resident, common = map(int, file.read().split()[:3])
    except (OSError, ValueError):
        return 0
    return (resident if shared else resident - common) * _PAGE_BYTES


def thread_ticks(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the id and the CPU time in clock ticks of each thread of process `pid`."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = _stat_fields(f"/proc/{pid}/task/{thread}/stat")
                yield int(thread), int(fields[11]) + int(fields[12])


def process_state(pid: int) -> str:
    """Return the state letter of process `pid`, such as R, S or T; empty if it does not exist."""
    try:
        return _stat_fields(f"/proc/{pid}/stat")[0]
    except (OSError, IndexError):
        return ""


def thread_ids() -> set[str]:
    """Return the ids of all threads of this process, including those not started by Python."""
    try:
        return set(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return set()


def is_busy(thread: str) -> bool:
    """Return whether a thread of this process is running or ready to run."""
    try:
        return _stat_fields(f"/proc/self/task/{thread}/stat")[0] == "R"
    except (OSError, IndexError):
        return False


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of process `pid`; 0 if it is unavailable."""
    try:
        # Linux derives the id of another process' CPU clock from its process id like this.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def prctl(option: int, value: int) -> None:
    """Call the system function prctl with `option` and `value`; do nothing on systems other than Linux."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(option, value)


def claim_cpus(count: int) -> tuple[set[int], list[int]]:
    """Claim `count` CPUs that no other process of this user has claimed; return them and the locked claim files.

    If too few CPUs are unclaimed, the rest are shared with other processes. Both results are empty if this process may
    use no more than `count` CPUs, or if its container has a quota of no more than `count` CPUs.
    """
    if not IS_LINUX or count >= min(len(os.sched_getaffinity(0)), _cpu_quota()):
        return set(), []
    claimed, claims = set[int](), list[int]()
    # In random order, because containers that do not see each other's claims would all claim the same CPU first.
    allowed = sorted(os.sched_getaffinity(0), key=lambda cpu: (_is_second(cpu), random.random()))
    with contextlib.suppress(OSError):
        folder = Path(tempfile.gettempdir(), f"qcqpbench-cpus-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        for cpu in allowed:
            claim = os.open(folder / str(cpu), os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(claim)
                continue
            claimed.add(cpu)
            claims.append(claim)
            if len(claimed) == count:
                break
    others = [cpu for cpu in allowed if cpu not in claimed]
    return claimed | set(random.sample(others, count - len(claimed))), claims


def _is_second(cpu: int) -> bool:
    """Return whether `cpu` shares its core with a CPU of lower number."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
        return cpu != int(text.replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return False


def _cpu_quota() -> float:
    """Return the CPU quota of the container as a number of CPUs; infinite without a quota."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return float(quota) / float(period)
    except (OSError, ValueError):
        return math.inf
