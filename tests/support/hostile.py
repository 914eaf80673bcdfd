"""A solver that crashes, hangs, fills the memory and leaves processes behind; a plug-in, found by its spec."""

import collections
import ctypes
import itertools
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.solver import Budget, RunFunction, Solution, TaskSolver
from qcqpbench.catalog.status import Termination
from qcqpbench.problem.maxmargin import MaxMargin

Array = NDArray[np.float64]
Kind = Literal[
    "fine",
    "nap",
    "segfault",
    "exit",
    "abort",
    "spin",
    "spin_in_c",
    "sleep_in_c",
    "stop",
    "grab",
    "grab_less",
    "fill",
    "fill_a_little",
    "threads",
    "child",
    "daemon",
    "daemon_and_crash",
    "daemon_and_spin",
    "chatter",
    "kill_supervisor",
    "count_and_die",
    "say_threads",
    "build",
    "build_error",
]


def install(folder: Path) -> None:
    """Make `hostile` available to every process that has the folder on its path."""
    info = folder / "hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[qcqpbench.solvers]\nhostile = tests.support.hostile:Hostile\n")


@dataclass(frozen=True)
class Hostile(TaskSolver):
    name = "hostile"
    drives = "nothing"
    citation = "none"

    kind: Kind = "fine"
    seconds: float = 1000.0

    def build(self, problem: MaxMargin) -> RunFunction:
        if self.kind == "build":
            time.sleep(self.seconds)
        if self.kind == "build_error":
            raise ValueError("cannot build")

        def run(start: Array, budget: Budget) -> Solution:
            print("begun", flush=True)
            budget.report(start)
            self._misbehave(budget)
            return Solution(start, Termination.FINISHED, float(problem.margin(start)))

        return run

    def _misbehave(self, budget: Budget) -> None:  # noqa: PLR0912, PLR0915
        match self.kind:
            case "nap":
                time.sleep(self.seconds)
            case "say_threads":
                print(os.environ["OMP_NUM_THREADS"], budget.threads)
            case "count_and_die":
                home = os.environ["PYTHONPATH"].split(":")[0]
                with Path(home, "tries").open("a") as file:
                    file.write("x")
                os.kill(os.getpid(), signal.SIGKILL)
            case "segfault":
                ctypes.string_at(0)
            case "exit":
                os._exit(3)
            case "abort":
                os.abort()
            case "spin":
                while True:
                    pass
            case "spin_in_c":
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                collections.deque(itertools.repeat(None), maxlen=0)
            case "sleep_in_c":
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                ctypes.PyDLL(None).pause()
            case "stop":
                os.kill(0, signal.SIGSTOP)
            case "grab":
                np.empty(50_000_000_000, dtype=np.int8)
            case "grab_less":
                np.empty(3_000_000_000, dtype=np.int8)
            case "fill":
                hoard: list[bytearray] = []
                while len(hoard) < 5000:
                    hoard.append(bytearray(b"1") * 10_000_000)
            case "fill_a_little":
                bytearray(b"1") * 200_000_000
            case "threads":
                until = time.monotonic() + self.seconds
                threads = [threading.Thread(target=_multiply, args=(until,)) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            case "child":
                subprocess.Popen(["sleep", str(self.seconds)])
            case "daemon":
                _daemon(self.seconds)
            case "daemon_and_crash":
                _daemon(self.seconds)
                ctypes.string_at(0)
            case "daemon_and_spin":
                _daemon(self.seconds)
                collections.deque(itertools.repeat(None), maxlen=0)
            case "chatter":
                while True:
                    print("chatter" * 1000)
            case "kill_supervisor":
                os.kill(os.getppid(), signal.SIGKILL)
                time.sleep(self.seconds)


def _multiply(until: float) -> None:
    # Large, so that the threads are almost always in BLAS and hardly ever wait for each other in Python.
    A = np.ones((1000, 1000))
    while time.monotonic() < until:
        A @ A


def _daemon(seconds: float) -> None:
    """Fork twice with a new session in between, as daemons do; return once the daemon has its name."""
    ready, closed_by_exec = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", str(seconds)])
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(closed_by_exec)
    os.read(ready, 1)
    os.close(ready)
