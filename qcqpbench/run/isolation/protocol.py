"""Messages between the driver and its child processes.

The driver's requests are pickled: the driver trusts itself. What comes back from a process that has run a solver's code
is never unpickled: a reply is JSON and arrays of float64, of limited size. It carries the id of the request, which the
driver draws at random, and the number of the process that was asked.
"""

import contextlib
import json
import math
import os
import pickle
import secrets
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qcqpbench.catalog.solver import Solver, SolverFacts
from qcqpbench.catalog.spec import ParameterFacts
from qcqpbench.catalog.status import Availability, Scope, Termination
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.proposal import Proposal

Array = NDArray[np.float64]

# How long after its time limit a solver may still return its best point before its process is killed.
GRACE_SECONDS = 0.3
# The least time to build a problem, which may include the first import of a large package.
BUILD_SECONDS = 30.0
# To import a solver and to make or read the problem; to judge a point; to answer any other request.
PREPARE_SECONDS = 300.0
_MAX_FRAME_BYTES = 1 << 30
_SIZE = struct.Struct("<q")
_CHUNK_BYTES = 1 << 20
_CLAIMS = ("objective", "bound", "iterations", "message", "build_seconds", "solve_seconds", "cpu_seconds")


@dataclass(frozen=True)
class RunRequest:
    """A request to run a solver.

    problem        the problem, a spec or a file; with the id that it must have
    version        identity of the solver that is asked for, if it matters
    start          a point, or the number of a random start of `seed`
    grace_seconds  time after the limit until the supervisor kills the process
    """

    problem: MaxMargin | QCQP | str
    solver: Solver | str
    start: ArrayLike | int | None = None
    seed: int = 0
    problem_id: str | None = None
    version: str | None = None
    time_limit: float = math.inf
    memory_limit_bytes: int | None = None
    threads: int = 1
    grace_seconds: float = GRACE_SECONDS


@dataclass(frozen=True)
class DescribeRequest:
    """A request for the facts about a solver."""

    solver: str


@dataclass(frozen=True)
class MakeRequest:
    """A request to make the problem of a spec and to write it to a file."""

    problem: str
    path: str


@dataclass(frozen=True)
class VerifyRequest:
    """A request to judge a proposal."""

    problem: MaxMargin | QCQP | str
    problem_id: str | None
    formulation: str | None
    proposal: Proposal
    tolerance: float


Request = RunRequest | DescribeRequest | MakeRequest | VerifyRequest


@dataclass(frozen=True)
class RunReply:
    """A worker's reply to a run request.

    output   the end of what the solver printed
    files    names of files it left in its working directory
    notes    misbehaviour: too many threads, processes left behind, state left changed, too much memory
    fresh    the next run needs a new process
    """

    proposal: Proposal
    peak_memory_bytes: int = 0
    output: str = ""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fresh: bool = False


class ProtocolError(Exception):
    """A message that is not what the protocol allows; the process that sent it cannot be used any more."""


@dataclass(frozen=True)
class Message:
    """A reply on its way: plain values, and arrays by name."""

    id: str
    process: int
    content: Mapping[str, Any]
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        shapes = {name: array.shape for name, array in self.arrays.items()}
        header = {"id": self.id, "process": self.process, "content": self.content, "arrays": shapes}
        text = json.dumps(header).encode()
        body = b"".join(array.astype("<f8", copy=False).tobytes() for array in self.arrays.values())
        return _SIZE.pack(len(text)) + text + body

    @classmethod
    def from_bytes(cls, data: bytes) -> "Message":
        try:
            (length,) = _SIZE.unpack_from(data)
            place = _SIZE.size + length
            header = json.loads(data[_SIZE.size : place])
            arrays: dict[str, Array] = {}
            for name, shape in header["arrays"].items():
                size = math.prod(shape)
                if not all(isinstance(axis, int) and axis >= 0 for axis in shape):
                    raise ValueError("a shape is wrong")
                arrays[str(name)] = np.frombuffer(data, "<f8", size, place).reshape(shape).astype(np.float64)
                place += 8 * size
            return cls(str(header["id"]), int(header["process"]), dict(header["content"]), arrays)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, struct.error) as error:
            raise ProtocolError(f"sent a reply that cannot be read: {type(error).__name__}") from error


def encode_reply(id: str, reply: RunReply) -> bytes:
    """Return the bytes of a reply to a run request."""
    proposal = reply.proposal
    arrays = {name: array for name in ("x", "multipliers") if (array := getattr(proposal, name)) is not None}
    arrays |= {f"trace {k}": point for k, (_, point) in enumerate(proposal.trace)}
    content: dict[str, Any] = {name: getattr(proposal, name) for name in _CLAIMS}
    content |= {
        "termination": str(proposal.termination),
        "details": dict(proposal.details),
        "use_reported": proposal.use_reported,
        "seconds": [seconds for seconds, _ in proposal.trace],
        "peak_memory_bytes": reply.peak_memory_bytes,
        "output": reply.output,
        "files": reply.files,
        "notes": reply.notes,
        "fresh": reply.fresh,
    }
    return Message(id, os.getpid(), content, arrays).to_bytes()


def decode_reply(message: Message) -> RunReply:
    """Return the reply that a message holds; a wrong value in it raises ProtocolError."""
    content, arrays = message.content, message.arrays
    try:
        claims: dict[str, Any] = {
            name: _optional(float, content[name])
            for name in ("objective", "bound", "build_seconds", "solve_seconds", "cpu_seconds")
        }
        details = {
            str(key): value if isinstance(value, str) else float(value) for key, value in content["details"].items()
        }
        return RunReply(
            Proposal(
                termination=Termination.named(content["termination"]),
                x=arrays.get("x"),
                multipliers=arrays.get("multipliers"),
                iterations=_optional(int, content["iterations"]),
                message=str(content["message"]),
                details=details,
                trace=tuple((float(at), arrays[f"trace {k}"]) for k, at in enumerate(content["seconds"])),
                use_reported=bool(content["use_reported"]),
                **claims,
            ),
            peak_memory_bytes=int(content["peak_memory_bytes"]),
            output=str(content["output"]),
            files=tuple(map(str, content["files"])),
            notes=tuple(map(str, content["notes"])),
            fresh=bool(content["fresh"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ProtocolError(f"sent a reply that cannot be read: {type(error).__name__}") from error


def encode_facts(id: str, facts: SolverFacts) -> bytes:
    """Return the bytes of a reply to a describe request."""
    content = asdict(facts) | {"scope": str(facts.scope), "availability": str(facts.availability)}
    return Message(id, os.getpid(), content).to_bytes()


def decode_facts(message: Message) -> SolverFacts:
    """Return the facts that a message holds."""
    try:
        content = dict(message.content)
        content |= {"scope": Scope.named(content["scope"]), "availability": Availability.named(content["availability"])}
        for name in ("name", "spec", "version", "drives", "citation", "reason"):
            content[name] = str(content[name])
        content |= {name: float(content[name]) for name in ("tolerance", "accuracy")}
        content["takes_qcqps"] = bool(content["takes_qcqps"])
        content["formulation"] = _optional(str, content["formulation"])
        content["parameters"] = tuple(
            ParameterFacts(str(each["name"]), str(each["type"]), _scalar(each["default"]))
            for each in content["parameters"]
        )
        return SolverFacts(**content)
    except (ValueError, TypeError, KeyError) as error:
        raise ProtocolError(f"sent facts that cannot be read: {type(error).__name__}") from error


def encode_error(id: str, message: str, fatal: bool = False) -> bytes:
    """Return the bytes of a reply that says why a request could not be served; a fatal error ends the whole run."""
    return Message(id, os.getpid(), {"error": message, "fatal": fatal}).to_bytes()


def _scalar(value: Any) -> str | float | bool | None:
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _optional(kind: Any, value: Any) -> Any:
    return None if value is None else kind(value)


def new_id() -> str:
    """Return an id for a request that no process can guess."""
    return secrets.token_hex(8)


class Channel:
    """One end of a socket between two processes, for frames: a size, then as many bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Send a frame; raise OSError if the other end is gone or does not read within the timeout."""
        self._socket.settimeout(timeout)
        self._socket.sendall(_SIZE.pack(len(data)) + data)

    def receive(self) -> bytes:
        """Wait for a frame; raise EOFError if the other end is gone."""
        self._socket.settimeout(None)
        while (frame := self._frame()) is None:
            self._read(0)
        return frame

    def poll(self) -> bytes | None:
        """Take what has arrived, without waiting; return a frame once it is complete."""
        with contextlib.suppress(BlockingIOError):
            while (frame := self._frame()) is None:
                self._read(socket.MSG_DONTWAIT)
            return frame
        return None

    def _read(self, flags: int) -> None:
        try:
            data = self._socket.recv(_CHUNK_BYTES, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        self._buffer += data

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer)
        if not 0 <= size <= _MAX_FRAME_BYTES:
            raise ProtocolError("sent a message of a wrong size")
        end = _SIZE.size + size
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_SIZE.size : end])
        del self._buffer[:end]
        return frame


def pack_request(id: str, main: Mapping[str, Any] | None, request: Request) -> bytes:
    """Return the bytes of a request; `main` says how to import the user's script, if the solver is defined there."""
    return pickle.dumps((id, main, pickle.dumps(request)))


def unpack_request(data: bytes) -> tuple[str, Mapping[str, Any] | None, bytes]:
    """Return id, main and the pickled request, which may need main to be imported first."""
    id, main, request = pickle.loads(data)
    return id, main, request
