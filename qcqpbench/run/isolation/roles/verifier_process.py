"""The verifier: a process that evaluates points and never runs code of solvers or plug-ins."""

import contextlib
import math
import os
import pickle
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.registry import problem as named_problem
from qcqpbench.errors import describe_error, require
from qcqpbench.problem.formulations import Formulation, formulation
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.isolation.protocol import Channel, Message, VerifyRequest, unpack_request
from qcqpbench.run.isolation.shared_state import PREPARING, Phases
from qcqpbench.run.verify import Evaluation, evaluate

Array = NDArray[np.float64]


def serve(pipe: int, phases: Phases, _: Path) -> None:
    """Answer verify requests until the driver closes the connection."""
    channel, verifier = Channel(socket.socket(fileno=pipe)), _Verifier()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        channel.send(Message("", os.getpid(), {}).to_bytes())
        while True:
            id, _main, content = unpack_request(channel.receive())
            phases.announce(PREPARING)
            reply: Evaluation | str
            try:
                reply = verifier.evaluate(pickle.loads(content))
            except Exception as error:
                reply = describe_error(error)
            channel.send(pickle.dumps((id, reply)))


class _Verifier:
    """Evaluation of verify requests, with the last problem and its last encoding cached."""

    def __init__(self) -> None:
        self._problem: tuple[str, MaxMargin | QCQP] | None = None
        self._encoded: tuple[str, str, QCQP] | None = None

    def evaluate(self, request: VerifyRequest) -> Evaluation:
        problem = self._load(request.problem) if isinstance(request.problem, str) else request.problem
        spec = request.spec
        same = spec.problem_id == problem.id
        require(same, f"{spec.problem} must have the id {spec.problem_id}, the verifier got {problem.id}")
        proposal = request.proposal
        if proposal.use_reported:
            shape = self._shape(problem, spec.formulation)
            fitting = [(at, x.reshape(shape)) for at, x in proposal.trace if x.size == math.prod(shape)]
            proposal = replace(proposal, trace=tuple(fitting))
        return evaluate(problem, spec.formulation, proposal, spec.tolerance, self._encode)

    def _load(self, text: str) -> MaxMargin | QCQP:
        if self._problem is None or self._problem[0] != text:
            self._problem = self._encoded = None
            self._problem = text, named_problem(text)
        return self._problem[1]

    def _encode(self, form: Formulation, task: MaxMargin) -> QCQP:
        if self._encoded is None or self._encoded[:2] != (form.name, task.id):
            self._encoded = None
            self._encoded = form.name, task.id, form.encode(task)
        return self._encoded[2]

    def _shape(self, problem: MaxMargin | QCQP, formulation_name: str | None) -> tuple[int, ...]:
        """Return the shape of the points of the problem in the formulation that the solver was given."""
        if isinstance(problem, QCQP):
            return (problem.n_variables,)
        if formulation_name is None:
            return problem.n, problem.m
        return (self._encode(formulation(formulation_name), problem).n_variables,)
