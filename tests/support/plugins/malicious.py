"""A solver that misbehaves as plug-ins have done, by malice or by accident."""

import contextlib
import ctypes
import io
import mmap
import os
import platform
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from qcqpbench import Budget, MaxMargin, QcqpbenchError, RunFunction, Solution, TaskSolver, Termination
from qcqpbench.catalog.status import PointStatus
from qcqpbench.results.store import Store
from qcqpbench.run import verify as verify_module
from qcqpbench.run.isolation.protocol import Message, encode_reply
from qcqpbench.run.isolation.shared_state import FINISHING
from qcqpbench.run.proposal import Proposal, RunReply

Array = NDArray[np.float64]
Kind = Literal[
    "honest",
    "patch_verify",
    "change_problem",
    "fork_and_return",
    "fork_and_reply",
    "fork_and_end_child",
    "forge_replies",
    "object_array",
    "complex_array",
    "text_array",
    "lazy_array",
    "lazy_list",
    "endless_array",
    "wrong_shape",
    "long_message",
    "large_multipliers",
    "odd_multipliers",
    "odd_reports",
    "odd_solution",
    "remove_folder",
    "build_error",
    "timer",
    "float_errors",
    "patched_scipy",
    "thread",
    "closed_stdout",
    "environment",
    "signal_handler",
    "resource_limits",
    "import_path",
    "lazy_trace",
    "change_trace_late",
    "drain_phases",
    "native_thread",
    "spin_late",
    "forge_sizes",
    "replace_output_by_pipe",
    "replace_output_by_link",
    "replace_output_by_folder",
    "forge_times",
    "replace_reports_by_pipe",
    "replace_reports_by_link",
    "replace_reports_by_folder",
    "lift_time_limit",
    "finish_in_the_future",
    "lift_memory_limit",
    "forge_late_reply",
    "hide_child_and_kill_supervisor",
    "hide_child_and_wait",
    "stop_supervisor",
]
LAZY_SECONDS = 0.3
# A variable with the seconds that a hidden child sleeps, by which a test tells it from other processes.
HIDDEN_SECONDS = "QCQPBENCH_TEST_HIDDEN_SECONDS"
# A variable with the path of a named pipe; a thread of `_spin_late` waits until the pipe is opened for writing.
SPIN_PIPE = "QCQPBENCH_TEST_SPIN_PIPE"


class _Lazy:
    """An array that does its work only when it is converted."""

    def __init__(self, values: Array, seconds: float = LAZY_SECONDS) -> None:
        self.values, self.seconds = values, seconds

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        time.sleep(self.seconds)
        return self.values


class _Number(float):
    def __float__(self) -> float:
        time.sleep(LAZY_SECONDS / 6)
        return 1.0


class _OddSolution(Solution):
    """A solution that would run code where it is unpickled."""

    def __reduce__(self) -> Any:
        return os._exit, (7,)


@dataclass(frozen=True)
class Malicious(TaskSolver):
    name = "malicious"
    drives = "nothing"
    citation = "none"

    kind: Kind = "honest"

    def build(self, problem: MaxMargin) -> RunFunction:
        if self.kind == "build_error":
            raise QcqpbenchError("this plug-in does not like the problem")

        def run(start: Array, budget: Budget) -> Solution:
            solution = Solution(start, Termination.FINISHED, float(problem.margin(start)))
            mischief: Callable[[MaxMargin, Budget, Solution], Any] = globals()[f"_{self.kind}"]
            return mischief(problem, budget, solution) or solution

        return run


def _honest(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    pass


def _patch_verify(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    forty = verify_module.Finding(PointStatus.FEASIBLE, margin=40.0, kappa_bar=40.0)
    verify_module.verify = lambda *_, **__: forty
    MaxMargin.margin = lambda *_: np.float64(40.0)  # type: ignore[method-assign]
    Store.add = lambda *_: 1  # type: ignore[method-assign]


def _change_problem(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    patterns = problem.patterns
    patterns.flags.writeable = True
    patterns *= 100.0
    ctypes.memset(problem.labels.ctypes.data, 1, problem.labels.nbytes)


def _fork_and_return(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution | None:
    if os.fork() == 0:
        return replace(solution, x=100 * np.ones_like(solution.x), objective=40.0, message="the child")
    time.sleep(0.1)
    return None


def _fork_and_end_child(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution | None:
    """Fork a child that returns first, and end it, so that the parent's reply is one too many and none is left."""
    child = os.fork()
    if child == 0:
        return replace(solution, x=100 * np.ones_like(solution.x), objective=40.0, message="the child")
    time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _forge_replies(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Write replies of its own to every socket there is."""
    forged = encode_reply("0" * 16, RunReply(Proposal(Termination.OPTIMAL, objective=40.0, bound=40.0)))
    for number in range(3, 64):
        try:
            connection = socket.socket(fileno=os.dup(number))
        except OSError:
            continue
        for content in (forged, Message("", 1, {"error": "forged"}).to_bytes()):
            connection.sendall(len(content).to_bytes(8, "little") + content)
        connection.close()


def _object_array(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, x=np.asarray(solution.x).astype(object))


def _complex_array(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, x=np.asarray(solution.x) * (1 + 1j))  # type: ignore[arg-type]


def _text_array(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, x=np.asarray(solution.x).astype(str))


def _lazy_array(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, x=_Lazy(np.asarray(solution.x)))  # type: ignore[arg-type]


def _lazy_list(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, objective=_Number(1.0), bound=_Number(1.0), iterations=3)


def _endless_array(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, x=_Lazy(np.asarray(solution.x), 1000.0))  # type: ignore[arg-type]


def _wrong_shape(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, x=np.ones(10_000_000))


def _long_message(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, message="x" * 50_000_000, details={f"{k}": "y" * 100_000 for k in range(2000)})


def _large_multipliers(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, multipliers=np.ones((5_000_000, 2)))


def _odd_multipliers(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return replace(solution, multipliers=np.array([lambda: None], dtype=object))


def _odd_reports(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    for odd in (np.ones(3), np.ones((2, 2), dtype=complex), "text", None, np.array([object()])):
        budget.report(odd)  # type: ignore[arg-type]


def _odd_solution(problem: MaxMargin, budget: Budget, solution: Solution) -> Solution:
    return _OddSolution(solution.x, solution.termination, solution.objective)


def _remove_folder(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    shutil.rmtree(os.getcwd())  # noqa: PTH109


def _timer(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)


def _float_errors(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    np.seterr(all="raise")


def _patched_scipy(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    scipy.optimize.minimize = lambda *_, **__: None


def _thread(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    threading.Thread(target=time.sleep, args=(100,), daemon=True).start()


def _closed_stdout(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    sys.stdout.close()
    for number in (0, 1, 2):
        os.close(number)


def _environment(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    os.environ["OMP_NUM_THREADS"] = "64"


def _signal_handler(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _resource_limits(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))


def _import_path(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    sys.path.insert(0, "/nowhere")


class _LazyPoint:
    """A reported point that does its work only when it is converted."""

    def __init__(self, values: Array) -> None:
        self.values, self.shape, self.size = values, values.shape, values.size

    def astype(self, *_: Any, **__: Any) -> Array:
        time.sleep(100 * LAZY_SECONDS)
        return self.values


def _lazy_trace(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    budget.report(np.asarray(solution.x))
    budget.trace.append((0.0, _LazyPoint(np.asarray(solution.x))))  # type: ignore[arg-type]
    raise MemoryError


class _LateStream(io.StringIO):
    """A stream that changes a reported point when it is flushed."""

    def __init__(self, point: Array) -> None:
        super().__init__()
        self.point = point

    def flush(self) -> None:
        self.point[:] = 100 * np.eye(*self.point.shape)


def _change_trace_late(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Let the end of the run change a point of the trace, after the clock has stopped."""
    budget.report(np.asarray(solution.x))
    late = _LateStream(budget.trace[-1][1])
    sys.stdout.flush = late.flush  # type: ignore[method-assign]
    sys.stderr = late
    raise MemoryError


def _drain_phases(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Take back the phases that the process has announced, then wait."""
    phases = _from_stack("phases")
    for number in {phases._reader, *range(3, 64)}:
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            os.read(number, 4096)
    time.sleep(1000)


_code: Any = None


def _native_thread(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Leave a thread that Python does not know, in an endless loop."""
    global _code  # noqa: PLW0603
    if platform.machine() != "x86_64":
        raise MemoryError("this thread is for x86-64")
    _code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # A jump to itself.
    _code.write(b"\xeb\xfe")
    address = ctypes.addressof(ctypes.c_char.from_buffer(_code))
    ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, ctypes.c_void_p(address), None)


def _spin_late(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Leave a thread that `threading` does not list, which sleeps at the end of the run and computes later."""
    if SPIN_PIPE not in os.environ:
        return
    started = threading.Event()

    def spin() -> None:
        started.set()
        os.open(os.environ[SPIN_PIPE], os.O_RDONLY)
        while True:
            pass

    start_new_thread(spin, ())
    started.wait()


def _from_stack(name: str) -> Any:
    """Return a variable of a function that has called this one."""
    frame: Any = sys._getframe()
    while name not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals[name]


def _send_reply(reply: RunReply) -> None:
    """Send a reply with the right id through the right connection, before the suite does."""
    _from_stack("channel").send(encode_reply(_from_stack("id"), reply))


def _fork_and_reply(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Let a child reply in the name of this process' request, with a point of its own."""
    child = os.fork()
    if child == 0:
        _send_reply(RunReply(Proposal(Termination.OPTIMAL, x=-np.asarray(solution.x), objective=40.0, bound=40.0)))
        os._exit(0)
    os.waitpid(child, 0)


def _forge_sizes(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    proposal = Proposal(
        Termination.FINISHED,
        x=np.asarray(solution.x),
        multipliers=np.ones(1_000_000),
        message="m" * 30_000_000,
        details={str(k): "v" * 1000 for k in range(50_000)},
        trace=((0.0, np.ones(1_000_000)),),
    )
    _send_reply(RunReply(proposal, output="o" * 30_000_000, files=("f" * 10**6,) * 100, notes=("n" * 10**6,) * 100))


def _forge_times(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    proposal = Proposal(Termination.FINISHED, x=np.asarray(solution.x), solve_seconds=-5.0, build_seconds=float("inf"))
    _send_reply(RunReply(proposal))


def _forge_late_reply(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    _send_reply(RunReply(Proposal(Termination.OPTIMAL, x=np.asarray(solution.x), solve_seconds=1000.0)))


def _replace(name: str, how: str) -> None:
    """Put something else in the place of a file that the supervisor reads."""
    path = Path("..", name)
    path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "link":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


def _replace_output_by_pipe(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    _replace("output", "pipe")


def _replace_output_by_link(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    _replace("output", "link")


def _replace_output_by_folder(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    _replace("output", "folder")


def _replace_reports_by_pipe(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    budget.report(np.asarray(solution.x))
    _replace("reports", "pipe")
    os._exit(3)


def _replace_reports_by_link(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    budget.report(np.asarray(solution.x))
    _replace("reports", "link")
    os._exit(3)


def _replace_reports_by_folder(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    budget.report(np.asarray(solution.x))
    _replace("reports", "folder")
    os._exit(3)


def _lift_time_limit(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Announce phases that there are not, earlier ones, and the same one later, then wait."""
    phases = _from_stack("phases")
    for phase in (99.0, float("nan"), -1.0, 0.5, 3.0, 0.0, float("inf"), 1.0):
        os.write(phases._writer, struct.pack("<dd", phase, float("inf")))
        phases.announce(phase)
    os.write(phases._writer, b"odd")
    time.sleep(1000)


def _finish_in_the_future(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    """Announce that the last phase begins at the end of time, then wait."""
    os.write(_from_stack("phases")._writer, struct.pack("<dd", FINISHING, float("inf")))
    time.sleep(1000)


def _lift_memory_limit(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    hoard = np.ones(80_000_000)
    time.sleep(1000)
    hoard += 1


def _hide_child() -> None:
    """Start a child without environment variables, in a session of its own."""
    subprocess.Popen(["sleep", os.environ[HIDDEN_SECONDS]], env={}, start_new_session=True)


def _hide_child_and_kill_supervisor(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    _hide_child()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def _hide_child_and_wait(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    _hide_child()
    time.sleep(1000)


def _stop_supervisor(problem: MaxMargin, budget: Budget, solution: Solution) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(1000)
