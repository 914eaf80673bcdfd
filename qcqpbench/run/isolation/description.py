"""Facts about solvers, families and problems, by name or spec. Code of plug-ins runs in separate processes.

The driver and `qcqpbench.results.reverify` use these functions, so no plug-in is imported where rows are written or
checked.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from qcqpbench.catalog.registry import (
    FamilyFacts,
    ProblemFacts,
    describe_family,
    describe_members,
    family,
    family_plugin,
    problem,
    solver,
    solver_plugin,
)
from qcqpbench.catalog.solver import SolverFacts
from qcqpbench.catalog.spec import ParameterValue, parse
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.formats.by_suffix import is_file, is_path
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP

from .protocol import (
    PREPARE_SECONDS,
    DescribeRequest,
    MakeRequest,
    Message,
    ProtocolError,
    decode_family_facts,
    decode_problem_facts,
    decode_solver_facts,
)
from .shared_state import Limits
from .supervised_process import SupervisedProcess
from .supervisor import Ended

_Facts = TypeVar("_Facts")
# Facts about the problems that a plug-in's spec expands to, or the error, by spec.
_members: dict[str, tuple[ProblemFacts, ...] | QcqpbenchError] = {}
# Parameter values of plug-in problems by spec.
_parameters: dict[str, Mapping[str, ParameterValue]] = {}


@cache
def solver_facts(spec: str) -> SolverFacts:
    """Return the facts about the solver that `spec` names."""
    name = parse(spec)[0]
    if solver_plugin(name) is None:
        return solver(spec).facts()
    (content,) = _describe(DescribeRequest("solver", (spec,)))
    facts = _decode(decode_solver_facts, content, name)
    _require_name(name, facts.name, facts.spec)
    return facts


@cache
def family_facts(name: str) -> FamilyFacts:
    """Return the facts about the problem family `name`."""
    if family_plugin(name) is None:
        return describe_family(name)
    (content,) = _describe(DescribeRequest("family", (name,)))
    facts = _decode(decode_family_facts, content, name)
    _require_name(name, facts.name)
    return facts


def problem_members(spec: str) -> tuple[ProblemFacts, ...]:
    """Return the facts about each problem that `spec` expands to in a suite."""
    if not is_plugin_problem(spec):
        return describe_members(spec)
    describe_problems([spec])
    members = _members[spec]
    if isinstance(members, QcqpbenchError):
        raise members
    return members


def check_problem(spec: str) -> None:
    """Raise QcqpbenchError if the family or a parameter of `spec` is invalid."""
    if is_plugin_problem(spec):
        problem_members(spec)
    else:
        family(spec)


def problem_parameters(spec: str) -> Mapping[str, ParameterValue]:
    """Return the parameter values of the problem `spec` by name."""
    if not is_plugin_problem(spec):
        return family(spec).parameters
    if spec not in _parameters:
        problem_members(spec)
    return _parameters.get(spec, {})


def describe_problems(specs: Iterable[str]) -> None:
    """Cache the facts, or the errors, of the plug-in problems among `specs`, with one request per family."""
    unknown: dict[str, list[str]] = {}
    for spec in dict.fromkeys(specs):
        if is_plugin_problem(spec) and spec not in _members:
            unknown.setdefault(parse(spec)[0], []).append(spec)
    for name, group in unknown.items():
        contents = _describe(DescribeRequest("problem", tuple(group)))
        require(len(contents) == len(group), f"{name}: must describe {len(group)} problems, got {len(contents)}")
        for spec, content in zip(group, contents, strict=True):
            _members[spec] = _decode_members(name, content)


def _decode_members(name: str, content: Any) -> tuple[ProblemFacts, ...] | QcqpbenchError:
    if isinstance(content, str):
        return QcqpbenchError(content)
    members = tuple(_decode(decode_problem_facts, each, name) for each in content)
    for member in members:
        _require_name(name, member.spec)
        _parameters[member.spec] = member.parameters
    return members


def is_plugin_problem(text: str) -> bool:
    """Return whether `text` is a spec of a family that a plug-in provides."""
    return not is_path(text) and family_plugin(parse(text)[0]) is not None


def is_stored(text: str) -> bool:
    """Return whether the problem `text` is read from a file or belongs to a family of stored problems."""
    return is_file(text) or family_facts(parse(text)[0]).stored


def problem_apart(text: str) -> MaxMargin | QCQP:
    """Return the problem of a spec or file; problems of plug-ins are generated in a separate process."""
    if not is_plugin_problem(text):
        return problem(text)
    path = make_file(text)
    try:
        return problem(path)
    finally:
        Path(path).unlink(missing_ok=True)


def make_file(spec: str) -> str:
    """Generate a plug-in's problem in a separate process, write it to a temporary .npz file and return its path."""
    handle, path = tempfile.mkstemp(suffix=".npz", prefix="qcqpbench-")
    os.close(handle)
    try:
        _ask_once(spec, MakeRequest(spec, path))
        require(
            stat.S_ISREG(os.lstat(path).st_mode),
            f"{spec}: its plug-in must leave a regular file at {path}, got another file type",
        )
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise
    return path


def _require_name(name: str, *specs: str) -> None:
    """Raise QcqpbenchError unless every spec in `specs` has the name `name` of the plug-in's solver or family."""
    for spec in specs:
        require(parse(spec)[0] == name, f"{name}: must describe itself, got facts about {spec!r:.100}")


def _decode(decode: Callable[[Any], _Facts], content: Any, name: str) -> _Facts:
    try:
        return decode(content)
    except ProtocolError as error:
        raise QcqpbenchError(f"{name}: {error}") from error


def _describe(request: DescribeRequest) -> Sequence[Any]:
    name = parse(request.names[0])[0]
    try:
        return list(_ask_once(name, request).content["facts"])
    except (KeyError, TypeError):
        raise QcqpbenchError(f"{name}: must send a list of facts, got a reply without one") from None


def _ask_once(name: str, request: DescribeRequest | MakeRequest) -> Message:
    """Start a process for this one request and return its reply; raise QcqpbenchError if the request fails."""
    child = SupervisedProcess("qcqpbench.run.isolation.roles.solver_process", set(), 1)
    try:
        answer = child.ask(request, Limits(PREPARE_SECONDS), _read_message)
    finally:
        with contextlib.suppress(OSError):
            child.stop()
    if isinstance(answer, Ended):
        raise QcqpbenchError(f"{name}: its process must reply, but it ended first ({answer.reason}: {answer.how})")
    if "error" in answer.content:
        raise QcqpbenchError(str(answer.content["error"]))
    message: Message = answer
    return message


def _read_message(frame: bytes) -> tuple[str, int, Any]:
    message = Message.from_bytes(frame)
    return message.id, message.process, message
