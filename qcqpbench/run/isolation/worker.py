"""Runs in isolated processes, where a solver may print, crash, hang, exhaust its memory or change global state.

A `Worker` has one process per solver, and one process that evaluates points, in which no solver's code ever runs. Each
process has a supervisor, which enforces the limits.

time      The supervisor kills the process GRACE_SECONDS after the time limit, which counts from the solver's entry.
          Building the problem may take as long as the time limit, but at least BUILD_SECONDS; preparing and verifying
          may take PREPARE_SECONDS, cleaning up FINISH_SECONDS. If a supervisor fails or is stopped, the driver ends it
          and its processes.
memory    The supervisor samples the memory of the process and its descendants 20 times a second. RLIMIT_DATA at twice
          the limit stops faster growth. RLIMIT_AS is not used because libraries reserve much more than they use.
threads   Environment variables set the number of BLAS and OpenMP threads, and each run sets it again in the libraries
          that are loaded. The process is bound to as many CPUs, so more threads gain nothing. The attempt notes excess
          threads that run in more than half of the samples.
children  The supervisor adopts and kills processes that a solver leaves running, and the attempt notes them.
state     A process whose state a run has changed (timers, signal handlers, threads, error handling, …) is replaced.
"""

import math
import os
import pickle
from dataclasses import replace
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from qcqpbench.catalog.solver import Solver, SolverFacts
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.errors import MAX_MESSAGE_CHARACTERS
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import Attempt, Outcome, assemble, spec_of_objects
from qcqpbench.run.proposal import Proposal, RunReply
from qcqpbench.run.run_spec import RunOptions, RunSpec, check_start
from qcqpbench.run.verify import Evaluation, Finding

from ._linux import claim_cpus
from .description import is_plugin_problem, make_file, solver_facts
from .protocol import (
    BUILD_SECONDS,
    FINISH_SECONDS,
    GRACE_SECONDS,
    PREPARE_SECONDS,
    Message,
    RunRequest,
    VerifyRequest,
    decode_reply,
)
from .roles.solver_process import decode_reports, describe_left
from .shared_state import IDLE, PHASES, PREPARING, Limits, Usage
from .supervised_process import StoppedError, SupervisedProcess
from .supervisor import Ended

__all__ = ["StoppedError", "Worker"]

# Maximum number of solver processes that a worker keeps; the least recently used one is ended first.
_MAX_PROCESSES = 16
# A verifier that dies was killed from outside: the solver has no part in it.
_VERIFIER_TRIES = 5
# Fraction of samples with too many threads above which they are noted; one sample can catch threads taking turns.
_MIN_SHARE_OVER = 0.5
_ENDED_BY_SUITE = (
    Termination.TIME_LIMIT,
    Termination.MEMORY_LIMIT,
    Termination.ERROR,
    Termination.CRASHED,
    Termination.SKIPPED,
)
_NO_FINDING = Evaluation(Finding(PointStatus.NONE))


class Worker:
    """Sequential execution of runs, each solver in its own process, with one more process for verification.

    A process is reused unless its run was killed, crashed, used too much memory or too many threads, or left processes
    or changed state behind.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._interrupted = False
        # By solver, least recently used first.
        self._solvers: dict[Any, SupervisedProcess] = {}
        self._verifier: SupervisedProcess | None = None
        self._cpus: set[int] | None = None
        self._claims: list[int] = []
        # The spec of a plug-in's problem, and the path of the file that holds it.
        self._problem_file: tuple[str, str] | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def attempt(
        self,
        problem: MaxMargin | QCQP,
        solver: str | Solver,
        start: ArrayLike | None = None,
        options: RunOptions | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> Outcome:
        """Run a solver on a problem in memory from `start`, by default a random one, and return the outcome.

        `threads` of `options` is replaced by that of the worker. The supervisor kills the run `grace_seconds` after its
        time limit.
        """
        facts = solver_facts(solver) if isinstance(solver, str) else solver.facts()
        spec = spec_of_objects(problem, facts, replace(options or RunOptions(), threads=self.threads))
        point = None if start is None else check_start(problem, start)
        return self._attempt(RunRequest(spec, problem, solver, point, grace_seconds), facts)

    def run(self, spec: RunSpec, solver: Solver | None = None) -> Outcome:
        """Run a solver on a problem, which the processes generate or read themselves; each caches the last one.

        Parameters
        ----------
        spec
            The run.
        solver
            The solver, if it is an object of the caller and not one that its spec names.
        """
        if spec.threads != self.threads:
            self.stop()
            self.threads = spec.threads
        facts = solver_facts(spec.solver) if solver is None else solver.facts()
        request = RunRequest(spec, self._source(spec.problem), solver or spec.solver)
        return self._attempt(request, replace(facts, version=spec.version))

    def verify(self, spec: RunSpec, proposal: Proposal) -> Attempt:
        """Evaluate the proposal of a run that another process made, in the verifier's process."""
        request = VerifyRequest(spec, self._source(spec.problem), proposal)
        return assemble(spec, solver_facts(spec.solver).scope, *self._evaluate(request))

    def stop(self) -> None:
        """End all processes immediately and release the claimed CPUs."""
        for child in self.processes():
            child.stop()
        self._solvers, self._verifier = {}, None
        for claim in self._claims:
            os.close(claim)
        self._cpus, self._claims = None, []
        self._remove_problem_file()

    def interrupt(self) -> None:
        """End all processes permanently, from another thread; calls that wait for a reply raise StoppedError."""
        self._interrupted = True
        for child in self.processes():
            child.interrupt()

    def processes(self) -> list[SupervisedProcess]:
        """Return the solver processes, least recently used first, followed by the verifier process, if any."""
        return [*self._solvers.values(), *filter(None, [self._verifier])]

    def _attempt(self, request: RunRequest, facts: SolverFacts) -> Outcome:
        reply = self._ask_solver(request, facts)
        verify_request = VerifyRequest(request.spec, request.problem, reply.proposal)
        proposal, evaluation = (reply.proposal, _NO_FINDING) if reply.refused else self._evaluate(verify_request)
        peak = reply.peak_memory_bytes or None
        return Outcome(assemble(request.spec, facts.scope, proposal, evaluation, peak), reply)

    def _evaluate(self, request: VerifyRequest) -> tuple[Proposal, Evaluation]:
        """Evaluate a proposal; return it and its evaluation. If the evaluation fails, the termination is ERROR."""
        evaluation, proposal = self._ask_verifier(request), request.proposal
        if isinstance(evaluation, Evaluation):
            return proposal, evaluation
        message = "; ".join(filter(None, [f"could not be verified: {evaluation}", proposal.message]))
        return replace(proposal, termination=Termination.ERROR, message=message), _NO_FINDING

    def _ask_solver(self, request: RunRequest, facts: SolverFacts) -> RunReply:
        """Send a run request to the solver's process; return its reply, or a substitute if the process ended."""
        child = self._child(request.solver, facts)
        for _ in range(2):
            answer = child.ask(request, _limits(request), _read_run, _main_module(request.solver))
            if not (isinstance(answer, Ended) and answer.phase == PHASES[IDLE]):
                # Ask again only if the process died before it received the request.
                break
        if isinstance(answer, Ended):
            return _reply_of_ended(answer, request)
        reply: RunReply = answer if answer.refused else _checked(answer, request, child.usage)
        if reply.fresh:
            child.stop()
        return reply

    def _ask_verifier(self, request: VerifyRequest) -> Evaluation | str:
        if self._verifier is None:
            self._verifier = self._new_child("qcqpbench.run.isolation.roles.verifier_process")
            if self._interrupted:
                raise StoppedError
        for _ in range(_VERIFIER_TRIES):
            answer = self._verifier.ask(request, Limits(PREPARE_SECONDS), _read_evaluation)
            if not isinstance(answer, Ended):
                evaluation: Evaluation | str = answer
                return evaluation
            if answer.reason == "deadline":
                break
        return f"the verifier's process ended: {answer.reason}, {answer.how}"

    def _child(self, solver: Solver | str, facts: SolverFacts) -> SupervisedProcess:
        """Return the process of a solver; end the least recently used process if there are too many."""
        kind = (type(solver).__module__, type(solver).__qualname__) if isinstance(solver, Solver) else None
        key = (kind, facts.spec, facts.version)
        child = self._solvers.pop(key, None) or self._new_child("qcqpbench.run.isolation.roles.solver_process")
        if len(self._solvers) >= _MAX_PROCESSES:
            self._solvers.pop(next(iter(self._solvers))).stop()
        for other in self._solvers.values():
            # A busy process would slow down the run that begins now.
            other.stop_if_busy()
        self._solvers[key] = child
        if self._interrupted:
            raise StoppedError
        return child

    def _new_child(self, role: Any) -> SupervisedProcess:
        if self._interrupted:
            raise StoppedError
        if self._cpus is None:
            self._cpus, self._claims = claim_cpus(self.threads)
        return SupervisedProcess(role, self._cpus, self.threads)

    def _source(self, problem: str) -> str:
        """Return `problem`, or for a problem of a plug-in the path of a file that holds it; the last file is cached."""
        if not is_plugin_problem(problem):
            return problem
        if self._problem_file is None or self._problem_file[0] != problem:
            self._remove_problem_file()
            self._problem_file = problem, make_file(problem)
        return self._problem_file[1]

    def _remove_problem_file(self) -> None:
        if self._problem_file is not None:
            Path(self._problem_file[1]).unlink(missing_ok=True)
        self._problem_file = None


def _limits(request: RunRequest) -> Limits:
    """Return the limits that the supervisor enforces for a run request."""
    return Limits(
        PREPARE_SECONDS,
        max(request.spec.time_limit, BUILD_SECONDS),
        request.spec.time_limit + request.grace_seconds,
        FINISH_SECONDS,
        request.spec.memory_limit_bytes or math.inf,
        request.spec.threads,
    )


def _checked(reply: RunReply, request: RunRequest, usage: Usage) -> RunReply:
    """Add the observed usage to a reply, and set its termination to TIME_LIMIT if the run exceeded its time."""
    proposal, notes = reply.proposal, list(reply.notes)
    details, termination = dict(proposal.details), proposal.termination
    if usage.over > max(1, _MIN_SHARE_OVER * usage.looks):
        notes.append(f"ran {usage.threads:.0f} threads, was given {request.spec.threads}")
        details["threads_seen"] = usage.threads
    seconds, limit = proposal.solve_seconds or 0.0, request.spec.time_limit + request.grace_seconds
    if seconds > limit and termination not in _ENDED_BY_SUITE:
        notes.append(f"says {termination}, but returned {seconds - request.spec.time_limit:.3g} s past its limit")
        termination = Termination.TIME_LIMIT
    message = "; ".join(filter(None, [proposal.message, *notes]))[: 2 * MAX_MESSAGE_CHARACTERS]
    return replace(
        reply,
        proposal=replace(proposal, termination=termination, details=details, message=message),
        peak_memory_bytes=max(reply.peak_memory_bytes, int(usage.memory_bytes)),
        notes=tuple(notes),
        fresh=reply.fresh or len(notes) > len(reply.notes),
    )


def _read_run(frame: bytes) -> tuple[str, int, Any]:
    message = Message.from_bytes(frame)
    if "error" not in message.content:
        return message.id, message.process, decode_reply(message)
    text = str(message.content["error"])[:MAX_MESSAGE_CHARACTERS]
    other_version = bool(message.content.get("other_version"))
    reply = RunReply(Proposal(Termination.ERROR, message=text), refused=True, other_version=other_version)
    return message.id, message.process, reply


def _read_evaluation(frame: bytes) -> tuple[str, None, Any]:
    # Unpickling is safe, because no solver's code has run in the verifier's process.
    id, evaluation = pickle.loads(frame)
    return id, None, evaluation


def _reply_of_ended(ended: Ended, request: RunRequest) -> RunReply:
    """Return a substitute for the reply of an ended process."""
    termination, message = _verdict(ended, request)
    # Children that run when the suite kills a process were not left behind.
    notes = (describe_left(ended.left),) if ended.left and ended.reason == "died" else ()
    observed = ended.reason != "lost"
    begun = observed and ended.phase not in (PHASES[IDLE], PHASES[PREPARING])
    proposal = Proposal(
        termination,
        message="; ".join([message, *notes]),
        trace=tuple(decode_reports(ended.reports)) if begun else (),
        use_reported=begun,
        build_seconds=ended.seconds if observed and ended.phase == "building" else None,
        solve_seconds=ended.seconds if observed and ended.phase == "solving" else None,
        cpu_seconds=ended.cpu_seconds or None,
    )
    lost = not observed or (ended.reason == "died" and ended.how in ("SIGKILL", "SIGTERM"))
    return RunReply(proposal, ended.peak_memory_bytes, ended.output, notes=notes, lost=lost)


def _verdict(ended: Ended, request: RunRequest) -> tuple[Termination, str]:
    """Return the termination and the message for a run whose process ended."""
    match ended.reason, ended.phase:
        case "deadline", "building":
            limit = max(request.spec.time_limit, BUILD_SECONDS)
            return Termination.TIME_LIMIT, f"killed while building, after {limit:g} s"
        case "deadline", "solving":
            past = f"{request.grace_seconds:g} s past its limit of {request.spec.time_limit:g} s"
            return Termination.TIME_LIMIT, f"killed while solving, {past}"
        case "deadline", phase:
            limit = _limits(request).seconds(PHASES.index(phase))
            return Termination.TIME_LIMIT, f"killed while {phase}, after {limit:g} s"
        case "protocol", _:
            return Termination.ERROR, f"its process {ended.how}"
        case "memory", phase:
            used, given = ended.peak_memory_bytes / 1e9, (request.spec.memory_limit_bytes or 0) / 1e9
            return Termination.MEMORY_LIMIT, f"killed while {phase}: used {used:.3g} GB, was given {given:.3g} GB"
    return Termination.CRASHED, f"its process died: {ended.how}"


def _main_module(solver: Solver | str) -> dict[str, Any] | None:
    """Return the data for importing the user's script in another process; None if `solver` is not defined there."""
    if type(solver).__module__ != "__main__":
        return None
    return {key: value for key, value in spawn.get_preparation_data("").items() if key.startswith("init_main")}
