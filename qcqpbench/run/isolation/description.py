"""Facts about solvers, families and problems by name or spec; the code of a plug-in runs in a process of its own.

The driver, the verifier and `verify` use these functions, so no plug-in is imported where rows are made or checked.
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
    solver,
    solver_plugin,
)
from qcqpbench.catalog.solver import SolverFacts
from qcqpbench.catalog.spec import parse
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.job import is_file, load_problem

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
# By spec, of plug-ins: the problems that it stands for, or why there are none.
_members: dict[str, tuple[ProblemFacts, ...] | QcqpbenchError] = {}
# By their own specs, of plug-ins.
_parameters: dict[str, Mapping[str, Any]] = {}


@cache
def solver_facts(spec: str) -> SolverFacts:
    """Return the facts about the solver of a spec."""
    name = parse(spec)[0]
    if solver_plugin(name) is None:
        return solver(spec).facts()
    (content,) = _describe(DescribeRequest("solver", (spec,)))
    facts = _decode(decode_solver_facts, content, name)
    _require_name(name, facts.name, facts.spec)
    return facts


@cache
def family_facts(name: str) -> FamilyFacts:
    """Return the facts about a problem family."""
    if family_plugin(name) is None:
        return describe_family(name)
    (content,) = _describe(DescribeRequest("family", (name,)))
    facts = _decode(decode_family_facts, content, name)
    _require_name(name, facts.name)
    return facts


def problem_members(spec: str) -> tuple[ProblemFacts, ...]:
    """Return the facts about the problems that a spec stands for in a suite."""
    if not is_plugin_problem(spec):
        return describe_members(spec)
    describe_problems([spec])
    members = _members[spec]
    if isinstance(members, QcqpbenchError):
        raise members
    return members


def check_problem(spec: str) -> None:
    """Raise an error if a spec has a wrong name or parameter."""
    if is_plugin_problem(spec):
        problem_members(spec)
    else:
        family(spec)


def problem_parameters(spec: str) -> Mapping[str, Any]:
    """Return the values of a problem's parameters."""
    if not is_plugin_problem(spec):
        return family(spec).parameters
    if spec not in _parameters:
        problem_members(spec)
    return _parameters.get(spec, {})


def describe_problems(specs: Iterable[str]) -> None:
    """Ask for the facts about problems of plug-ins, all of a family at once; errors are kept until they are used."""
    unknown: dict[str, list[str]] = {}
    for spec in dict.fromkeys(specs):
        if is_plugin_problem(spec) and spec not in _members:
            unknown.setdefault(parse(spec)[0], []).append(spec)
    for name, group in unknown.items():
        contents = _describe(DescribeRequest("problem", tuple(group)))
        require(len(contents) == len(group), f"{name}: sent facts about {len(contents)} problems, not {len(group)}")
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


def is_plugin_problem(problem: str) -> bool:
    """Return whether a plug-in makes the problem of a spec."""
    return not is_file(problem) and family_plugin(parse(problem)[0]) is not None


def is_stored(problem: str) -> bool:
    """Return whether a problem is read from files that people write, rather than generated."""
    return is_file(problem) or family_facts(parse(problem)[0]).stored


def problem_apart(text: str) -> MaxMargin | QCQP:
    """Return the problem of a spec or a file."""
    if not is_plugin_problem(text):
        return load_problem(text)
    path = make_file(text)
    try:
        return load_problem(path)
    finally:
        Path(path).unlink(missing_ok=True)


def make_file(spec: str) -> str:
    """Let a plug-in make a problem and write it to a file; return the path."""
    handle, path = tempfile.mkstemp(suffix=".npz", prefix="qcqpbench-")
    os.close(handle)
    try:
        _ask_once(spec, MakeRequest(spec, path))
        require(stat.S_ISREG(os.lstat(path).st_mode), f"{spec}: its plug-in wrote no file")
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise
    return path


def _require_name(name: str, *specs: str) -> None:
    """Refuse facts of a plug-in that name another solver or family."""
    for spec in specs:
        require(parse(spec)[0] == name, f"{name}: sent facts about {spec!r:.100}")


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
        raise QcqpbenchError(f"{name}: sent facts that cannot be read") from None


def _ask_once(name: str, request: DescribeRequest | MakeRequest) -> Message:
    """Return the reply of a process that answers this request alone; raise an error if it does not."""
    child = SupervisedProcess("qcqpbench.run.isolation.roles.solver_process", set(), 1)
    try:
        answer = child.ask(request, Limits(PREPARE_SECONDS), _read_message)
    finally:
        with contextlib.suppress(OSError):
            child.stop()
    if isinstance(answer, Ended):
        raise QcqpbenchError(f"{name}: its process ended ({answer.reason}: {answer.how}) before it was described")
    if "error" in answer.content:
        raise QcqpbenchError(str(answer.content["error"]))
    message: Message = answer
    return message


def _read_message(frame: bytes) -> tuple[str, int, Any]:
    message = Message.from_bytes(frame)
    return message.id, message.process, message
