"""Messages between the driver and its child processes.

Requests of the driver are pickled. Replies of a process that has run a solver's code are never unpickled: they consist
of JSON and float64 arrays, whose sizes the driver checks. A reply carries the id of the request, which the driver draws
at random, and the id of the process that replies.
"""

import contextlib
import json
import math
import os
import pickle
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.registry import FamilyFacts, ProblemFacts
from qcqpbench.catalog.solver import Solver, SolverFacts
from qcqpbench.catalog.spec import ParameterFacts, ParameterValue
from qcqpbench.catalog.status import Availability, Scope, Termination
from qcqpbench.errors import MAX_MESSAGE_CHARACTERS, describe_error
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.proposal import MAX_TRACE_POINTS, Proposal, RunReply, plain_details
from qcqpbench.run.run_spec import RunSpec

from .shared_state import TAIL_BYTES

Array = NDArray[np.float64]

# How long after its time limit a solver may still return its best point before its process is killed.
GRACE_SECONDS = 0.3
# The least time to build a problem, which may include the first import of a large package.
BUILD_SECONDS = 30.0
# Time to import a solver and generate or read the problem, to evaluate a point, or to answer any other request.
PREPARE_SECONDS = 300.0
# Time to detect leftovers of a run, clean up, and send the reply.
FINISH_SECONDS = 30.0
# Version of a solver whose facts cannot be determined.
UNKNOWN_VERSION = "unknown"
# The driver checks replies against these limits, because a solver can send forged replies.
MAX_FILES = 20
MAX_REPORTED_POINTS = 1000
_MAX_NOTES = 10
_MAX_NAME_CHARACTERS = 1000
_MAX_FACT_CHARACTERS = 10_000
_MAX_COUNT = 1 << 63
_MAX_FRAME_BYTES = 1 << 30
_SIZE = struct.Struct("<q")
_CHUNK_BYTES = 1 << 20
_ARRAYS = ("x", "multipliers", "offsets", "tree")
_CLAIMS = ("objective", "bound", "iterations", "message", "build_seconds", "solve_seconds", "cpu_seconds")


@dataclass(frozen=True)
class RunRequest:
    """A request to run a solver.

    spec           the run; its problem id and version, if not empty, must be those that the process has
    problem        a problem, its spec or its file
    solver         a solver or its spec
    start          a point; None for the random start of the spec
    grace_seconds  time between the time limit and the kill by the supervisor
    """

    spec: RunSpec
    problem: MaxMargin | QCQP | str
    solver: Solver | str
    start: Array | None = None
    grace_seconds: float = GRACE_SECONDS


@dataclass(frozen=True)
class DescribeRequest:
    """A request for the facts about solvers, families or problems of a plug-in, given by their names or specs."""

    kind: Literal["solver", "family", "problem"]
    names: tuple[str, ...]


@dataclass(frozen=True)
class MakeRequest:
    """A request to generate the problem of a spec and write it to the file `path`."""

    problem: str
    path: str


@dataclass(frozen=True)
class VerifyRequest:
    """A request to evaluate the proposal for a run."""

    spec: RunSpec
    problem: MaxMargin | QCQP | str
    proposal: Proposal


Request = RunRequest | DescribeRequest | MakeRequest | VerifyRequest


class ProtocolError(Exception):
    """Raised for a message that violates the protocol."""


@dataclass(frozen=True)
class Message:
    """A reply in transit: JSON values and arrays by name, with the ids of the request and of the replying process."""

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
        with _readable("a reply"):
            (length,) = _SIZE.unpack_from(data)
            place = _SIZE.size + length
            header = json.loads(data[_SIZE.size : place])
            arrays: dict[str, Array] = {}
            for name, shape in header["arrays"].items():
                if not all(isinstance(axis, int) and axis >= 0 for axis in shape):
                    raise ValueError(f"a shape must hold whole numbers, at least 0, got {shape!r:.100}")
                size = math.prod(shape)
                arrays[str(name)] = np.frombuffer(data, "<f8", size, place).reshape(shape).astype(np.float64)
                place += 8 * size
            return cls(str(header["id"]), int(header["process"]), dict(header["content"]), arrays)


def encode_reply(id: str, reply: RunReply) -> bytes:
    """Encode a reply to the run request `id` as bytes."""
    proposal = reply.proposal
    arrays = {name: array for name in _ARRAYS if (array := getattr(proposal, name)) is not None}
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
    """Decode a reply to a run request and truncate its texts; raise ProtocolError for an invalid value."""
    content = message.content
    with _readable("a reply"):
        return RunReply(
            _decode_proposal(content, message.arrays),
            peak_memory_bytes=_count(content["peak_memory_bytes"]),
            output=str(content["output"])[-TAIL_BYTES:],
            files=_texts(content["files"], MAX_FILES + 1),
            notes=_texts(content["notes"], _MAX_NOTES),
            fresh=bool(content["fresh"]),
        )


def _decode_proposal(content: Mapping[str, Any], arrays: Mapping[str, Array]) -> Proposal:
    iterations = _optional(int, content["iterations"])
    seconds = list(content["seconds"])
    if len(seconds) > MAX_TRACE_POINTS:
        raise ValueError(f"a trace must have at most {MAX_TRACE_POINTS} points, got {len(seconds)}")
    return Proposal(
        termination=Termination.named(content["termination"]),
        x=arrays.get("x"),
        objective=_optional(float, content["objective"]),
        bound=_optional(float, content["bound"]),
        iterations=iterations if iterations is not None and abs(iterations) < _MAX_COUNT else None,
        multipliers=arrays.get("multipliers"),
        offsets=arrays.get("offsets"),
        tree=arrays.get("tree"),
        message=str(content["message"])[: 2 * MAX_MESSAGE_CHARACTERS],
        details=plain_details(content["details"]),
        trace=tuple((_seconds(at), arrays[f"trace {k}"]) for k, at in enumerate(seconds)),
        use_reported=bool(content["use_reported"]),
        build_seconds=_optional(_seconds, content["build_seconds"]),
        solve_seconds=_optional(_seconds, content["solve_seconds"]),
        cpu_seconds=_optional(_seconds, content["cpu_seconds"]),
    )


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    """Convert exceptions raised in the context by malformed content to a ProtocolError; `what` names the content."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, struct.error) as error:
        raise ProtocolError(f"sent {what} that cannot be read: {describe_error(error)}") from error


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"seconds must be finite and at least 0, got {seconds}")
    return seconds


def _count(value: Any) -> int:
    count = int(value)
    if not 0 <= count < _MAX_COUNT:
        raise ValueError(f"a number of bytes must be at least 0 and less than 2^63, got {count:.3g}")
    return count


def _texts(values: Any, max_count: int) -> tuple[str, ...]:
    return tuple(str(value)[:_MAX_NAME_CHARACTERS] for value in list(values)[:max_count])


def encode_facts(id: str, facts: Sequence[Any]) -> bytes:
    """Encode a reply to the describe request `id` as bytes."""
    return Message(id, os.getpid(), {"facts": facts}).to_bytes()


def plain_solver_facts(facts: SolverFacts) -> dict[str, Any]:
    """Return the facts about a solver as values that JSON supports."""
    return asdict(facts) | {"scope": str(facts.scope), "availability": str(facts.availability)}


def decode_solver_facts(content: Mapping[str, Any]) -> SolverFacts:
    """Decode the facts about a solver; raise ProtocolError for an invalid value."""
    with _readable("facts"):
        return SolverFacts(
            **{name: _fact(content[name]) for name in ("name", "spec", "version", "drives", "citation", "reason")},
            scope=Scope.named(content["scope"]),
            takes_qcqps=bool(content["takes_qcqps"]),
            formulation=_optional(_fact, content["formulation"]),
            availability=Availability.named(content["availability"]),
            tolerance=float(content["tolerance"]),
            accuracy=float(content["accuracy"]),
            parameters=_decode_parameters(content["parameters"]),
        )


def decode_family_facts(content: Mapping[str, Any]) -> FamilyFacts:
    """Decode the facts about a problem family; raise ProtocolError for an invalid value."""
    with _readable("facts"):
        return FamilyFacts(
            name=_fact(content["name"]),
            about=_fact(content["about"]),
            stored=bool(content["stored"]),
            parameters=_decode_parameters(content["parameters"]),
        )


def decode_problem_facts(content: Mapping[str, Any]) -> ProblemFacts:
    """Decode the facts about a problem; raise ProtocolError for an invalid value."""
    with _readable("facts"):
        return ProblemFacts(
            spec=_fact(content["spec"]),
            parameters={_fact(name): _scalar(value) for name, value in content["parameters"].items()},
        )


def _decode_parameters(parameters: Any) -> tuple[ParameterFacts, ...]:
    return tuple(
        ParameterFacts(_fact(content["name"]), _fact(content["type"]), _scalar(content["default"]))
        for content in parameters
    )


def _fact(value: Any) -> str:
    text = str(value)
    if len(text) > _MAX_FACT_CHARACTERS:
        raise ValueError(f"a fact must have at most {_MAX_FACT_CHARACTERS} characters, got {len(text)}")
    return text


def encode_error(id: str, message: str, other_version: bool = False) -> bytes:
    """Encode an error reply to the request `id`; `message` says why the request could not be served."""
    return Message(id, os.getpid(), {"error": message, "other_version": other_version}).to_bytes()


def _scalar(value: Any) -> ParameterValue:
    return value if value is None or isinstance(value, int | float) else _fact(value)


def _optional(kind: Any, value: Any) -> Any:
    return None if value is None else kind(value)


def new_id() -> str:
    """Return a random request id that other processes cannot guess."""
    return secrets.token_hex(8)


class Channel:
    """One end of a socket that carries frames, each a 64-bit size followed by that many bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Send `data` as a frame; raise OSError if the other end is closed or does not read it in `timeout` seconds."""
        self._socket.settimeout(timeout)
        self._socket.sendall(_SIZE.pack(len(data)) + data)

    def receive(self) -> bytes:
        """Wait for a frame and return it; raise EOFError if the other end is closed."""
        self._socket.settimeout(None)
        while (frame := self._frame()) is None:
            self._read(0)
        return frame

    def poll(self) -> bytes | None:
        """Read the available bytes without blocking; return the next complete frame, or None."""
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
            raise ProtocolError(f"sent a message whose size must be 0 to {_MAX_FRAME_BYTES} bytes, got {size}")
        end = _SIZE.size + size
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_SIZE.size : end])
        del self._buffer[:end]
        return frame


def pack_request(id: str, main: Mapping[str, Any] | None, request: Request) -> bytes:
    """Encode a request as bytes; `main` says how to import the user's script if the solver is defined there."""
    return pickle.dumps((id, main, pickle.dumps(request)))


def unpack_request(data: bytes) -> tuple[str, Mapping[str, Any] | None, bytes]:
    """Decode `id`, `main` and the pickled request; unpickling the request may require importing `main` first."""
    id, main, request = pickle.loads(data)
    return id, main, request
