"""Runs in processes of their own: a solver may print, crash, hang, take all memory or change anything there.

A `Worker` has a process for each solver that it runs, and one in which points are judged, where no solver's code ever
runs; each has a supervisor, which ends it when it must.

time      the supervisor kills the process GRACE_SECONDS after the deadline, which counts from the solver's entry. Building
          the problem has the same time, at least BUILD_SECONDS, counted apart; preparing and judging have
          PREPARE_SECONDS. The driver ends what its supervisor does not end, and a supervisor that was stopped.
memory    the supervisor looks at the memory in use by the process and its children 20 times a second; RLIMIT_DATA at twice
          the limit stops what would come faster. Not RLIMIT_AS: libraries reserve much more than they use.
threads   environment variables say how many BLAS and OpenMP should start; the process is bound to as many CPUs, so more
          threads gain nothing. They are noted if the supervisor sees them run in more than half of its looks.
children  the supervisor adopts and kills what a solver leaves running, and the attempt says so.
state     a process that a run has left changed (timers, signal handlers, threads, error handling, …) is replaced.
"""

import contextlib
import math
import os
import pickle
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from qcqpbench.catalog.registry import solver as named_solver
from qcqpbench.catalog.registry import solver_plugin
from qcqpbench.catalog.solver import Solver, SolverFacts
from qcqpbench.catalog.spec import parse
from qcqpbench.catalog.status import PointStatus, Termination
from qcqpbench.errors import MAX_MESSAGE_CHARACTERS, QcqpbenchError
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.qcqp import QCQP
from qcqpbench.run.attempt import Attempt, assemble, check_accepts, check_start
from qcqpbench.run.job import Job, is_plugin_problem, load_problem
from qcqpbench.run.proposal import Proposal
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE, Evaluation, Finding

from ._linux import claim_cpus
from .protocol import (
    BUILD_SECONDS,
    GRACE_SECONDS,
    PREPARE_SECONDS,
    DescribeRequest,
    MakeRequest,
    Message,
    RunReply,
    RunRequest,
    VerifyRequest,
    decode_facts,
    decode_reply,
)
from .solver_process import describe_left, read_reports
from .supervised_process import StoppedError, SupervisedProcess
from .supervisor import IDLE, PHASES, PREPARING, Ended

__all__ = ["Isolated", "StoppedError", "Worker", "problem_apart", "solver_facts"]

# Solvers that a worker keeps a process for; more are started anew when their turn comes.
_MAX_PROCESSES = 16
# A judge that dies was killed by somebody: the solver has no part in it.
_VERIFIER_TRIES = 5
_NO_FINDING = Evaluation(Finding(PointStatus.NONE))


@dataclass(frozen=True)
class Isolated:
    """An attempt made in a process of its own.

    output   the end of what the solver printed
    files    names of files it left in its working directory
    notes    misbehaviour: too many threads, processes left behind, state left changed, too much memory
    lost     the process was killed, and not by the suite
    """

    attempt: Attempt
    output: str = ""
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lost: bool = False


class Worker:
    """Makes attempts one after the other, each solver in a process of its own, judged in another.

    Processes are reused; only a run that was ended, crashed or left something behind costs one.
    """

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self._interrupted = False
        # By solver, the one used last at the end.
        self._solvers: dict[Any, SupervisedProcess] = {}
        self._verifier: SupervisedProcess | None = None
        self._cpus: set[int] | None = None
        self._claims: list[int] = []
        self._made: tuple[str, str] | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def attempt(
        self,
        problem: MaxMargin | QCQP,
        solver: str | Solver,
        start: ArrayLike | None = None,
        time_limit: float = math.inf,
        memory_limit_bytes: int | None = None,
        tolerance: float = FEASIBILITY_TOLERANCE,
        grace_seconds: float = GRACE_SECONDS,
    ) -> Isolated:
        """Run a solver on a problem; see `qcqpbench.solve`."""
        facts = solver_facts(solver) if isinstance(solver, str) else solver.facts()
        check_accepts(facts, problem)
        request = RunRequest(
            problem,
            solver,
            None if start is None else check_start(problem, start),
            time_limit=time_limit,
            memory_limit_bytes=memory_limit_bytes,
            threads=self.threads,
            grace_seconds=grace_seconds,
        )
        formulation = facts.formulation if isinstance(problem, MaxMargin) else None
        return self._attempt(request, problem.metadata.spec or "", problem.id, facts, formulation, tolerance)

    def run(self, job: Job) -> Isolated:
        """Do a job; its processes make or read the problem themselves, and keep the last one."""
        if job.threads != self.threads:
            self.stop()
            self.threads = job.threads
        request = RunRequest(
            problem=self._source(job.problem),
            solver=job.solver,
            start=job.start,
            seed=job.seed,
            problem_id=job.problem_id,
            version=job.version,
            time_limit=job.time_limit,
            memory_limit_bytes=job.memory_limit,
            threads=job.threads,
        )
        facts = replace(solver_facts(job.solver), version=job.version)
        return self._attempt(request, job.problem, job.problem_id, facts, job.formulation, job.tolerance)

    def stop(self) -> None:
        """End all processes, at once."""
        for child in [*self._solvers.values(), *filter(None, [self._verifier])]:
            child.stop()
        self._solvers, self._verifier = {}, None
        for claim in self._claims:
            os.close(claim)
        self._cpus, self._claims = None, []
        self._forget_made()

    def interrupt(self) -> None:
        """End the processes for good, from another thread than the one that waits; that gets a StoppedError."""
        self._interrupted = True
        for child in [*self._solvers.values(), *filter(None, [self._verifier])]:
            child.interrupt()

    def processes(self) -> list[SupervisedProcess]:
        """Return the processes of the solvers, the one used last at the end, then the judge's."""
        return [*self._solvers.values(), *filter(None, [self._verifier])]

    def _attempt(
        self,
        request: RunRequest,
        problem: str,
        problem_id: str,
        facts: SolverFacts,
        formulation: str | None,
        tolerance: float,
    ) -> Isolated:
        answer = self._ask_solver(request, facts)
        if isinstance(answer, str):
            proposal = Proposal(Termination.ERROR, message=answer)
            return Isolated(assemble(problem, problem_id, facts, proposal, _NO_FINDING, formulation))
        reply, lost = (answer, False) if isinstance(answer, RunReply) else _reply_of_ended(answer, request)
        proposal = reply.proposal
        evaluation = self._ask_verifier(VerifyRequest(request.problem, problem_id, formulation, proposal, tolerance))
        if isinstance(evaluation, str):
            message = "; ".join(filter(None, [f"could not be verified: {evaluation}", proposal.message]))
            proposal, evaluation = replace(proposal, termination=Termination.ERROR, message=message), _NO_FINDING
        peak = reply.peak_memory_bytes or None
        attempt = assemble(problem, problem_id, facts, proposal, evaluation, formulation, peak)
        return Isolated(attempt, reply.output, reply.files, reply.notes, lost)

    def _ask_solver(self, request: RunRequest, facts: SolverFacts) -> RunReply | Ended | str:
        """Return the reply of the solver's process, how it ended, or why it could not begin."""
        child = self._child(request.solver, facts)
        # The supervisor's own deadlines, added up, and some time to enforce them.
        seconds = (
            2 * PREPARE_SECONDS
            + max(request.time_limit, BUILD_SECONDS)
            + request.time_limit
            + request.grace_seconds
            + 60.0
        )
        for _ in range(2):
            answer = child.ask(request, _read_run, _main_module(request.solver), seconds)
            if not (isinstance(answer, Ended) and answer.phase == PHASES[IDLE]):
                # Otherwise it died before it had the request; that says nothing about this run.
                break
        if isinstance(answer, QcqpbenchError):
            raise answer
        if isinstance(answer, RunReply) and answer.fresh:
            child.stop()
        result: RunReply | Ended | str = answer
        return result

    def _ask_verifier(self, request: VerifyRequest) -> Evaluation | str:
        if self._verifier is None:
            self._verifier = self._new_child("qcqpbench.run.isolation.verifier_process")
            if self._interrupted:
                raise StoppedError
        for _ in range(_VERIFIER_TRIES):
            answer = self._verifier.ask(request, _read_evaluation, None, PREPARE_SECONDS + 60.0)
            if not isinstance(answer, Ended):
                evaluation: Evaluation | str = answer
                return evaluation
            if answer.reason == "deadline":
                break
        return f"the judge's process ended: {answer.reason}, {answer.how}"

    def _child(self, solver: Solver | str, facts: SolverFacts) -> SupervisedProcess:
        """Return the process of a solver; of those that are not used, the oldest goes if there are too many."""
        kind = (type(solver).__module__, type(solver).__qualname__) if isinstance(solver, Solver) else None
        key = (kind, facts.spec, facts.version)
        child = self._solvers.pop(key, None) or self._new_child("qcqpbench.run.isolation.solver_process")
        if len(self._solvers) >= _MAX_PROCESSES:
            self._solvers.pop(next(iter(self._solvers))).stop()
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
        """Return a spec or a file that makes a problem without a plug-in's code; the last file made for it is kept."""
        if not is_plugin_problem(problem):
            return problem
        if self._made is None or self._made[0] != problem:
            self._forget_made()
            self._made = problem, make_file(problem)
        return self._made[1]

    def _forget_made(self) -> None:
        if self._made is not None:
            Path(self._made[1]).unlink(missing_ok=True)
        self._made = None


@cache
def solver_facts(spec: str) -> SolverFacts:
    """Return the facts about the solver of a spec; a plug-in is described by a process of its own."""
    if solver_plugin(parse(spec)[0]) is None:
        return named_solver(spec).facts()
    return decode_facts(_ask_once(DescribeRequest(spec)))


def problem_apart(text: str) -> MaxMargin | QCQP:
    """Return the problem of a spec or a file; a plug-in makes its problem in a process of its own."""
    if not is_plugin_problem(text):
        return load_problem(text)
    path = make_file(text)
    try:
        return load_problem(path)
    finally:
        Path(path).unlink(missing_ok=True)


def make_file(spec: str) -> str:
    """Let a plug-in make a problem in a process of its own; return the file it is in."""
    handle, path = tempfile.mkstemp(suffix=".npz", prefix="qcqpbench-")
    os.close(handle)
    try:
        _ask_once(MakeRequest(spec, path))
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise
    return path


def _ask_once(request: DescribeRequest | MakeRequest) -> Message:
    """Return the reply of a process that answers this request alone; raise an error if it does not."""
    name = request.solver if isinstance(request, DescribeRequest) else request.problem
    child = SupervisedProcess("qcqpbench.run.isolation.solver_process", set(), 1)
    try:
        answer = child.ask(request, _read_message, None, PREPARE_SECONDS + 60.0)
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


def _read_run(frame: bytes) -> tuple[str, int, Any]:
    message = Message.from_bytes(frame)
    if "error" not in message.content:
        return message.id, message.process, decode_reply(message)
    text = str(message.content["error"])[:MAX_MESSAGE_CHARACTERS]
    return message.id, message.process, QcqpbenchError(text) if message.content.get("fatal") else text


def _read_evaluation(frame: bytes) -> tuple[str, None, Any]:
    # The judge has run no code but ours.
    id, evaluation = pickle.loads(frame)
    return id, None, evaluation


def _reply_of_ended(ended: Ended, request: RunRequest) -> tuple[RunReply, bool]:
    """Return what stands for the reply of a process that ended, and whether it was killed by others."""
    termination, message = _verdict(ended, request)
    # Where the suite has ended it, its children were at work with it.
    notes = (describe_left(ended.left),) if ended.left and ended.reason == "died" else ()
    known = ended.reason != "lost"
    begun = known and ended.phase not in (PHASES[IDLE], PHASES[PREPARING])
    proposal = Proposal(
        termination,
        message="; ".join([message, *notes]),
        trace=tuple(read_reports(ended.reports)) if begun else (),
        use_reported=begun,
        build_seconds=ended.seconds if known and ended.phase == "building" else None,
        solve_seconds=ended.seconds if known and ended.phase == "solving" else None,
        cpu_seconds=ended.cpu_seconds or None,
    )
    lost = not known or (ended.reason == "died" and ended.how in ("SIGKILL", "SIGTERM"))
    return RunReply(proposal, ended.peak_memory_bytes, ended.output, (), notes), lost


def _verdict(ended: Ended, request: RunRequest) -> tuple[Termination, str]:
    match ended.reason, ended.phase:
        case "deadline", "building":
            limit = max(request.time_limit, BUILD_SECONDS)
            return Termination.TIME_LIMIT, f"killed while building, after {limit:g} s"
        case "deadline", "solving":
            past = f"{request.grace_seconds:g} s past its limit of {request.time_limit:g} s"
            return Termination.TIME_LIMIT, f"killed while solving, {past}"
        case "deadline", phase:
            return Termination.TIME_LIMIT, f"killed while {phase}, after {PREPARE_SECONDS:g} s"
        case "memory", phase:
            used, given = ended.peak_memory_bytes / 1e9, (request.memory_limit_bytes or 0) / 1e9
            return Termination.MEMORY_LIMIT, f"killed while {phase}: used {used:.3g} GB, was given {given:.3g} GB"
    return Termination.CRASHED, f"its process died: {ended.how}"


def _main_module(solver: Solver | str) -> dict[str, Any] | None:
    """Return what a process needs to import the user's script, if the solver is defined there."""
    if type(solver).__module__ != "__main__":
        return None
    return {key: value for key, value in spawn.get_preparation_data("").items() if key.startswith("init_main")}
