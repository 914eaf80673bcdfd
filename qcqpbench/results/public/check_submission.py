"""Checks of submissions: every value that can be recomputed is, and rows that cannot be checked are refused.

docs/results/submissions/README.md lists the rules. Times, memory and texts are claims that no one can check; a row must
state its machine, so that its times are compared with those of the same machine only.
"""

import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qcqpbench.catalog.best_known import shipped_records
from qcqpbench.catalog.certificate.shor import proved_bound
from qcqpbench.catalog.certificate.tree import TreeCertificate
from qcqpbench.catalog.registry import family, family_plugin
from qcqpbench.catalog.spec import parse
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.formats.by_suffix import is_path
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.results.reverify import Difference, reverify
from qcqpbench.results.row import Row
from qcqpbench.results.store import Store
from qcqpbench.run.isolation.description import problem_apart
from qcqpbench.run.verify import FEASIBILITY_TOLERANCE, OF_QCQP, OF_TASK, optimality_gap

from .solver_versions import LIST, SolverVersion, read_versions, traced, version_of, write_versions
from .submission import Entry, Submission, read_folder

# Largest difference between a stored and a recomputed value, relative to the value: BLAS and LAPACK round differently
# on different machines. Values near 0 are differences of larger ones.
_ROUNDING_TOLERANCE = 1e-10
_ABSOLUTE_TOLERANCE = 1e-12
_ROUNDED = {*OF_TASK, *OF_QCQP, "gap"}
# Bounds of solvers hold up to their feasibility tolerances; relative to the bound, and at least to a hundredth of the
# scale of the problem.
_CLAIM_TOLERANCE = 1e-5
_LEAST_SCALE = 0.01
# Facts without which a time means nothing.
_MACHINE_FACTS = ("cpu", "logical_cores", "memory_bytes", "system", "python", "qcqpbench")
_CLOCK_TOLERANCE_SECONDS = 86_400.0
_MAX_SHOWN_CHARACTERS = 300


@dataclass
class Findings:
    """Result of checking a submission.

    Attributes
    ----------
    faults
        Reasons for which the submission is refused; none if it is accepted.
    versions
        The lines of the list of solver versions for its solvers.
    rows, points, proofs
        Numbers of rows, of points that were evaluated again, and of proofs of bounds that were checked.
    """

    faults: list[str] = field(default_factory=list)
    versions: set[SolverVersion] = field(default_factory=set)
    rows: int = 0
    points: int = 0
    proofs: int = 0


def submit(store: Store, folder: Path, keep: Callable[[Row], bool] = lambda _: True) -> tuple[Path, Findings]:
    """Check the rows of a results file, and write them to a folder of submissions if nothing is wrong with them.

    Parameters
    ----------
    store
        The open results file.
    folder
        The folder, whose list of solver versions is extended if necessary.
    keep
        Function that returns whether a row is to be submitted.

    Returns
    -------
    tuple
        The path of the submission, which is written only if there are no faults, and the findings.

    Raises
    ------
    QcqpbenchError
        If the results file is damaged, or has no row to submit.
    """
    store.check()
    others, listed = read_folder(folder), read_versions(folder)
    submission = Submission.of(store, keep)
    path = folder / submission.default_name()
    others.pop(path.name, None)
    findings = check(submission, listed | traced(folder, submission.rows), others)
    if not findings.faults:
        submission.write(path)
        if not findings.versions <= listed:
            write_versions(folder, listed | findings.versions)
    return path, findings


def check_folder(folder: Path) -> Iterator[tuple[str, Findings]]:
    """Check all submissions in a folder, and yield the name of each file with its findings.

    Unlike in `submit`, the versions of all solvers must be listed, because later versions replace installed ones.
    """
    submissions, listed = read_folder(folder), read_versions(folder)
    for place, (name, submission) in enumerate(submissions.items()):
        findings = check(submission, listed, dict(list(submissions.items())[:place]))
        unlisted = sorted(findings.versions - listed)
        findings.faults += [f"{LIST} must list the source {line.source} of {line.solver}" for line in unlisted]
        yield name, findings


def check(
    submission: Submission, listed: Iterable[SolverVersion], others: Mapping[str, Submission] | None = None
) -> Findings:
    """Check a submission.

    Parameters
    ----------
    listed
        The lines of the list of solver versions.
    others
        Other submissions by the names of their files, which must not hold the same runs.

    Returns
    -------
    Findings
        The reasons for which it is refused, if any.
    """
    findings, listed = Findings(rows=len(submission.entries)), list(listed)
    refused: set[int] = set()
    for entry in submission.entries:
        for reason in _faults_of_row(entry.row):
            findings.faults.append(_of_row(entry.row, reason))
        try:
            _check_problem(entry.row.problem)
        except QcqpbenchError as error:
            # A file of this machine must not be read because a submission names it.
            findings.faults.append(_of_row(entry.row, str(error)))
            refused.add(entry.row.id)
        try:
            findings.versions.add(version_of(entry.row, listed))
        except QcqpbenchError as error:
            findings.faults.append(_of_row(entry.row, str(error)))
    findings.faults += _repetitions(submission, others or {})
    rest = submission.without(refused)
    findings.faults += _reverified(rest, findings)
    findings.faults += _faults_of_bounds(rest, findings)
    return findings


def _of_row(row: Row, reason: str) -> str:
    """Return a message about a row, on one line."""
    run = f"row {row.id} ({row.solver_name} start {row.start} on {row.problem})"
    return " ".join(f"{run}: {reason}".split())[: _MAX_SHOWN_CHARACTERS + len(run)]


def _faults_of_row(row: Row) -> Iterator[str]:
    """Yield the reasons for which the columns of a row are refused, apart from its problem and its solver."""
    missing = [name for name in _MACHINE_FACTS if getattr(row.machine, name) is None]
    if missing:
        yield f"the machine of the row must state {', '.join(_MACHINE_FACTS)}, got no {', '.join(missing)}"
    if row.scope is None:
        yield "scope must be that of the solver, got none: the row is of an old version"
    now = time.time()
    if row.begun > now + _CLOCK_TOLERANCE_SECONDS:
        yield f"begun must be in the past, got {row.begun!r} at {now!r}"
    has_point = row.margin is not None or row.objective is not None
    if has_point and row.solve_seconds is None:
        yield "solve_seconds must be stated for a point, got none"
    gap = optimality_gap(row.bound, row.objective if row.margin is None else row.margin)
    if row.gap is not None and not _is_close(row.gap, gap):
        yield f"gap must be {gap!r}, that of the bound and the value of the row, got {row.gap!r}"


def _check_problem(problem: str) -> None:
    """Raise QcqpbenchError unless a problem is one that this package generates, without files of the submitter."""
    rule = "problem must be the full spec of a problem that qcqpbench generates"
    require(not is_path(problem), f"{rule}, got the file {problem}")
    name, parameters = parse(problem)
    require(family_plugin(name) is None, f"{rule}, got one of the plug-in {name}")
    require("path" not in parameters, f"{rule}, got one that is read from the file {parameters.get('path')}")
    spec = family(problem).spec
    require(spec == problem, f"{rule}, {spec}, got {problem}")


def _repetitions(submission: Submission, others: Mapping[str, Submission]) -> Iterator[str]:
    """Yield a message for each run that the submission holds twice, or that another submission holds."""
    counts = Counter(row.key for row in submission.rows)
    for row in submission.rows:
        if counts[row.key] > 1:
            yield _of_row(row, f"a run must be submitted once, got {counts[row.key]} rows with the key {row.key[:12]}")
    names = {run: name for name, other in others.items() for run in _runs(other)}
    for run, row in zip(_runs(submission), submission.rows, strict=True):
        if run in names:
            yield _of_row(row, f"a run must be submitted once, got it in {names[run]} too")


def _runs(submission: Submission) -> list[tuple[str, int]]:
    """Return what identifies each run in every file: the call of the program, and its number in the call."""
    return [(submission.calls[row.invocation].uid, row.number) for row in submission.rows]


def _reverified(submission: Submission, findings: Findings) -> Iterator[str]:
    """Evaluate all points again with `reverify`, and yield a message for each difference beyond rounding errors."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "submission.db", write=True) as store:
        rows = submission.add_to(store)
        for checked in reverify(store):
            findings.points += checked.points
            for difference in checked.differences:
                if not _is_rounding(difference):
                    stated = f"must be {difference.recomputed!r} as recomputed, got {difference.stored!r}"
                    yield _of_row(rows[difference.row.id], f"{difference.name} {stated}")
            for part in checked.unchecked:
                yield f"{checked.problem}: {part.rows} rows could not be checked: {part.reason[:_MAX_SHOWN_CHARACTERS]}"


def _is_rounding(difference: Difference) -> bool:
    stored, recomputed = difference.stored, difference.recomputed
    are_numbers = isinstance(stored, float) and isinstance(recomputed, float)
    return difference.name in _ROUNDED and are_numbers and _is_close(stored, recomputed)


def _is_close(stored: float | str | None, recomputed: float | str | None) -> bool:
    if not isinstance(stored, float) or not isinstance(recomputed, float):
        return stored is recomputed
    return math.isclose(stored, recomputed, rel_tol=_ROUNDING_TOLERANCE, abs_tol=_ABSOLUTE_TOLERANCE)


def _faults_of_bounds(submission: Submission, findings: Findings) -> Iterator[str]:
    """Yield a message for each proof that does not prove its bound, and each bound or point that refutes the other."""
    by_problem: dict[str, list[Entry]] = {}
    for entry in submission.entries:
        by_problem.setdefault(entry.row.problem, []).append(entry)
    for name, entries in by_problem.items():
        task = None
        for entry in entries:
            if "tree" in entry.arrays or "offsets" in entry.arrays:
                try:
                    task = task or problem_apart(name)
                    _check_proof(task, entry)
                    findings.proofs += 1
                except (QcqpbenchError, ArithmeticError, np.linalg.LinAlgError) as error:
                    yield _of_row(entry.row, str(error))
        yield from _refutations([entry.row for entry in entries])


def _check_proof(task: object, entry: Entry) -> None:
    """Raise QcqpbenchError unless the tree, or the multipliers and offsets, of a row prove its bound."""
    row, arrays = entry.row, entry.arrays
    if not isinstance(task, MaxMargin):
        raise QcqpbenchError("only bounds on margins of tasks have proofs, got one for a general QCQP")
    if row.bound is None:
        raise QcqpbenchError("a row with a proof must state the bound that it proves, got none")
    if "tree" in arrays:
        try:
            proved = TreeCertificate.from_vector(arrays["tree"]).verified_bound(task)
        except QcqpbenchError as error:
            raise QcqpbenchError(f"tree must prove the bound: {error}") from error
    else:
        require("multipliers" in arrays, "offsets must have multipliers, with which they prove a bound, got none")
        proved = proved_bound(task, arrays["multipliers"], arrays["offsets"])
    excess = proved - row.bound
    is_proved = excess <= _ROUNDING_TOLERANCE * max(abs(row.bound), task.scale)
    require(is_proved, f"bound must be at least {proved!r}, which the proof proves, got {row.bound!r}")


def _refutations(rows: list[Row]) -> Iterator[str]:
    """Yield a message for each row of one problem whose bound a point refutes, or whose margin a proof refutes."""
    record = shipped_records().get(rows[0].problem_id)
    sign = -1.0 if any(row.sense == "minimize" for row in rows) else 1.0
    # A run may have a larger tolerance, with which points can be better than optimal.
    feasible = [row for row in rows if row.success and (row.relative_violation or 0.0) <= FEASIBILITY_TOLERANCE]
    values = [row.margin if row.sense is None else row.objective for row in feasible]
    values += [row.best_known for row in rows] + ([] if record is None else [record.margin])
    best = max((sign * value for value in values if value is not None), default=None)
    for row in rows:
        if best is not None and row.bound is not None and best - sign * row.bound > _tolerance(row, best):
            yield _of_row(row, f"bound must not be refuted by the value {sign * best!r} of a point, got {row.bound!r}")
        if record is not None and row.margin is not None and row.margin - record.bound > _tolerance(row, record.bound):
            yield _of_row(row, f"margin must be at most {record.bound!r}, the proved bound, got {row.margin!r}")


def _tolerance(row: Row, value: float) -> float:
    # κ̄ is the margin over the scale of the task.
    scale = abs(row.margin / row.kappa_bar) if row.margin and row.kappa_bar else 1.0
    return _CLAIM_TOLERANCE * max(abs(value), _LEAST_SCALE * scale)
