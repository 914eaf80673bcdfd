"""CPUs for runs: each worker of this user claims its own, so that runs side by side do not share one."""

import contextlib
import fcntl
import math
import os
import random
import sys
import tempfile
from pathlib import Path


def claim_cpus(count: int) -> tuple[set[int], list[int]]:
    """Return CPUs that no other claim of this user has, as long as there are enough, and the locked files that say so.

    Without CPUs to choose from, or with a quota that is no more than `count`, there is nothing to claim.
    """
    if sys.platform != "linux" or count >= min(len(os.sched_getaffinity(0)), _cpu_quota()):
        return set(), []
    claimed, claims = set[int](), list[int]()
    # In any order: in containers that do not see each other's claims, all would begin with the same CPU.
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
    """Return whether a CPU shares its core with a CPU of a lower number."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii")
        return cpu != int(text.replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return False


def _cpu_quota() -> float:
    """Return how many CPUs' time the container may use, by the clock and not by number."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return float(quota) / float(period)
    except (OSError, ValueError):
        return math.inf
