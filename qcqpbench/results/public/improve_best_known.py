"""Check and improve a list of best known margins. All values are recomputed from points, multipliers and trees."""

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.best_known import Proof, Record, read_list, tree_path, write_list
from qcqpbench.catalog.certificate.global_certificate import GlobalCertificate, is_certificate, read_certificate
from qcqpbench.catalog.certificate.shor import proved_bound
from qcqpbench.catalog.certificate.tree import TreeCertificate
from qcqpbench.catalog.family import TaskFamily
from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.registry import family
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.npz_archive import read_npz
from qcqpbench.results.row import Row
from qcqpbench.results.store import Store
from qcqpbench.run.isolation.description import is_plugin_problem, problem_apart
from qcqpbench.run.suite_file import load_suite
from qcqpbench.run.verify import verify

Array = NDArray[np.float64]

# The suites of the instances that a list may contain.
_SUITES = ("best_known", "proved")
_NAMES = " and ".join(_SUITES)
# Tolerances are relative to the larger of the value and the task's scale.
# BLAS and LAPACK round differently on different machines.
_ROUNDING_TOLERANCE = 1e-12
# A smaller improvement is the same point, or the same bound, found again.
_MIN_IMPROVEMENT = 1e-9
# Limit of the unpacked size of a file of points; the points of all instances have less than 1 MB.
_MAX_UNPACKED_BYTES = 1 << 24


def check(path: Path) -> Iterator[tuple[Record, str]]:
    """Recompute the margin and the bound of each record in the list at `path` from its proof.

    Yield each record with an error message, which is "" if the recomputed values agree.
    """
    records, proofs = read_list(path)
    for id, record in records.items():
        yield record, _fault(path, record, proofs[id])


def check_certificate(path: Path) -> GlobalCertificate:
    """Read a global certificate, generate its task, and recompute its margin and its bound.

    Raises
    ------
    QcqpbenchError
        If the file cannot be read, or does not prove what it states.
    """
    certificate = read_certificate(path)
    try:
        certificate.check(_task(certificate.problem))
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error
    return certificate


def _fault(path: Path, record: Record, proof: Proof) -> str:
    try:
        task = _task(record.problem)
    except QcqpbenchError as error:
        return f"problem must be the spec of a task that can be generated: {error}"
    if task.id != record.problem_id or task.metadata.spec != record.problem:
        return (
            f"problem_id must be {task.id}, that of {task.metadata.spec}, got {record.problem_id} of {record.problem}"
        )
    margin = verify(task, proof.point).margin
    if margin is None:
        return "point must be a finite matrix without rows of zeros, got one that has no margin"
    if record.margin > record.bound:
        return f"margin must be at most the bound {record.bound!r}, got {record.margin!r}"
    try:
        bound = _proved_bound(path, task, record, proof)
    except QcqpbenchError as error:
        return f"tree must prove the bound: {error}"
    for name, value, source in (
        ("margin", margin, "point"),
        ("kappa_bar", margin / task.scale, "point"),
        ("bound", bound, "tree" if record.tree else "multipliers"),
    ):
        stored = getattr(record, name)
        if not abs(stored - value) <= _ROUNDING_TOLERANCE * max(abs(stored), task.scale):
            return f"{name} must be {value!r} according to the {source}, got {stored!r}"
    return ""


def _proved_bound(path: Path, task: MaxMargin, record: Record, proof: Proof) -> float:
    """Return the upper bound that the proof of a record proves; raise QcqpbenchError if its tree is no proof."""
    if proof.multipliers is not None:
        return proved_bound(task, proof.multipliers, proof.offsets)
    certificate = read_certificate(tree_path(path, record))
    require(certificate.problem_id == task.id, f"problem_id must be {task.id}, got {certificate.problem_id}")
    return certificate.tree.verified_bound(task)


@dataclass(frozen=True, eq=False)
class Offer:
    """A point, multipliers and a tree that may improve the record of an instance.

    `margin` and `bound` are claims: an offer whose claims do not improve on the record is not evaluated.
    """

    problem: str
    solver: str
    version: str = ""
    commit: str = ""
    command: str = ""
    margin: float = np.inf
    bound: float = np.inf
    point: Array | None = None
    offsets: Array | None = None
    multipliers: Array | None = None
    tree: TreeCertificate | None = None


@dataclass(frozen=True)
class Change:
    """A record before and after an update; `before` is None for a new record."""

    before: Record | None
    after: Record


def update(path: Path, sources: Sequence[Path]) -> tuple[dict[str, Record], list[Change]]:
    """Improve a list of best known margins with points and proofs from other files; write it if it changed.

    Parameters
    ----------
    path
        The list; created if it is missing.
    sources
        Results files, global certificates, and .npz files that hold points W, each under the spec of its problem. An
        .npz file of points may also hold the texts `solver` and `command`, which say how its points were computed.

    Returns
    -------
    tuple
        The records by problem_id, and the list of changes.

    Raises
    ------
    QcqpbenchError
        If a file cannot be read, or if it holds a point that does not fit its problem.
    """
    records, proofs = read_list(path) if path.exists() else ({}, {})
    before = dict(records)
    problems = [spec for suite in _SUITES for spec in load_suite(suite).problems]
    places = {spec: place for place, spec in enumerate(dict.fromkeys(problems))}
    ids = {record.problem: id for id, record in records.items()}
    certificates: dict[str, GlobalCertificate] = {}
    for source in sources:
        ordered = sorted(_offers(source, records, places), key=lambda offer: places[offer.problem])
        for problem, group in groupby(ordered, key=lambda offer: offer.problem):
            old = records.get(ids.get(problem, ""))
            promising = [
                offer for offer in group if old is None or offer.margin > old.margin or offer.bound < old.bound
            ]
            if not promising:
                continue
            task = _task(problem)
            record, proof = _empty_record(task) if old is None else (old, proofs[old.problem_id])
            same = record.problem_id == task.id
            require(same, f"{path}: the problem_id of {problem} must be {task.id}, got {record.problem_id}")
            record, proof, certificate = _improved(task, record, proof, promising)
            if certificate is not None:
                certificates[record.tree] = certificate
            if record.margin > -np.inf:
                ids[problem] = task.id
                records[task.id], proofs[task.id] = record, proof
    records = dict(sorted(records.items(), key=lambda item: places.get(item[1].problem, len(places))))
    changes = [Change(before.get(id), record) for id, record in records.items() if before.get(id) != record]
    if changes:
        _write(path, records, proofs, certificates)
    return records, changes


def _write(
    path: Path, records: dict[str, Record], proofs: dict[str, Proof], certificates: dict[str, GlobalCertificate]
) -> None:
    """Write new trees, then the list that names them.

    Trees that no line names any more are kept, because another list in the same folder may name them.
    """
    for record in records.values():
        if record.tree in certificates:
            file = tree_path(path, record)
            file.parent.mkdir(exist_ok=True)
            certificates[record.tree].write(file)
    write_list(path, records, proofs)


def _empty_record(task: MaxMargin) -> tuple[Record, Proof]:
    """Return a record and a proof without a point, with the upper bound proved by equal multipliers."""
    equal = np.ones(task.labels.shape, np.float32)
    shape, none = (task.n, task.m, task.p), ("", "", "", "")
    bound = proved_bound(task, equal)
    record = Record(task.metadata.spec or "", *shape, -np.inf, -np.inf, bound, *none, "equal multipliers", task.id)
    return record, Proof(np.zeros((task.n, task.m)), np.zeros(task.n), equal)


def _improved(
    task: MaxMargin, record: Record, proof: Proof, offers: Sequence[Offer]
) -> tuple[Record, Proof, GlobalCertificate | None]:
    """Return the record and the proof, updated with the best of the `offers`, and a new certificate, if it has one."""
    certificate = None
    for offer in offers:
        record, proof = _with_point(task, record, proof, offer)
        record, proof = _with_multipliers(task, record, proof, offer)
        if offer.tree is not None and (better := _better_tree(task, record, offer)) is not None:
            digest = hashlib.sha256(better.tree.to_vector().tobytes()).hexdigest()
            name = f"{task.id[:16]}-{digest[:8]}.npz"
            record = replace(record, bound=better.bound, bound_solver=offer.solver, tree=name)
            proof, certificate = replace(proof, offsets=None, multipliers=None), better
    bounded = record.margin <= record.bound
    require(bounded, f"{record.problem}: margin must be at most the bound {record.bound!r}, got {record.margin!r}")
    return record, proof, certificate if record.tree else None


def _better_tree(task: MaxMargin, record: Record, offer: Offer) -> GlobalCertificate | None:
    """Return the certificate of an offer, None if the bound that it proves is not better than that of the record."""
    if offer.bound >= record.bound or offer.tree is None or offer.point is None:
        return None
    origin = {"problem": record.problem, "solver": offer.solver, "version": offer.version, "command": offer.command}
    certificate = GlobalCertificate.of(task, offer.point, offer.tree, **origin)
    return certificate if _is_more(-certificate.bound, -record.bound, task) else None


def _with_point(task: MaxMargin, record: Record, proof: Proof, offer: Offer) -> tuple[Record, Proof]:
    finding = verify(task, offer.point)
    if finding.margin is None or not _is_more(finding.margin, record.margin, task):
        return record, proof
    assert finding.kappa_bar is not None and offer.point is not None
    source = {name: getattr(offer, name) for name in ("solver", "version", "commit", "command")}
    # Adding 0.0 changes -0.0 to 0.0.
    record = replace(record, margin=finding.margin + 0.0, kappa_bar=finding.kappa_bar + 0.0, **source)
    return record, replace(proof, point=offer.point)


def _with_multipliers(task: MaxMargin, record: Record, proof: Proof, offer: Offer) -> tuple[Record, Proof]:
    fits = offer.offsets is None or offer.offsets.shape == (task.n,)
    if offer.multipliers is None or offer.multipliers.shape != task.labels.shape or not fits:
        return record, proof
    if offer.bound >= record.bound:
        return record, proof
    multipliers = offer.multipliers.astype(np.float32)
    bound = proved_bound(task, multipliers, offer.offsets)
    if not _is_more(-bound, -record.bound, task):
        return record, proof
    offsets = np.zeros(task.n) if offer.offsets is None else offer.offsets
    record = replace(record, bound=bound, bound_solver=offer.solver, tree="")
    return record, replace(proof, offsets=offsets, multipliers=multipliers)


def _is_more(value: float, best: float, task: MaxMargin) -> bool:
    return value - best > _MIN_IMPROVEMENT * max(abs(value), task.scale)


def _task(problem: str) -> MaxMargin:
    task = problem_apart(problem)
    if not isinstance(task, MaxMargin):
        raise QcqpbenchError(f"best known margins must be of max-margin tasks, got the general QCQP {problem}")
    return task


def _offers(path: Path, records: dict[str, Record], canonical: dict[str, int]) -> Iterator[Offer]:
    """Return the offers of a results file, a global certificate or a file of points."""
    if path.suffix != ".npz":
        return _results(path, records, canonical)
    return _certificate(path, canonical) if is_certificate(path) else _points(path, canonical)


def _certificate(path: Path, canonical: dict[str, int]) -> Iterator[Offer]:
    """Yield the offer of a global certificate."""
    proof = read_certificate(path)
    allowed = f"a certificate must be of an instance of the suites {_NAMES}"
    require(proof.problem in canonical, f"{path}: {allowed}, got {proof.problem}")
    origin = proof.solver, proof.version, "", proof.command
    yield Offer(proof.problem, *origin, proof.margin, proof.bound, point=proof.point, tree=proof.tree)


def _results(path: Path, records: dict[str, Record], canonical: dict[str, int]) -> Iterator[Offer]:
    """Yield an offer for each row of a results file that has a margin and whose problem is in `canonical`."""
    with Store(path) as store:
        for row in store.rows(all_rows=True):
            record = records.get(row.problem_id)
            problem = row.problem if record is None else record.problem
            if problem in canonical and row.margin is not None:
                multipliers, offsets, tree = (read(row.id) for read in (store.multipliers, store.offsets, store.tree))
                yield Offer(
                    problem,
                    row.solver,
                    row.version,
                    _commit(row.machine),
                    _command(row, problem),
                    row.margin,
                    np.inf if multipliers is tree is None else -np.inf if row.bound is None else row.bound,
                    store.point(row.id),
                    _offsets_in_details(row.details or {}) if offsets is None else offsets,
                    multipliers,
                    None if tree is None else TreeCertificate.from_vector(tree),
                )


def _commit(machine: Machine) -> str:
    return f"{(machine.commit or '')[:12]}{'+' if machine.dirty else ''}"


def _command(row: Row, problem: str) -> str:
    words = ["-p", problem, "-s", row.solver, "-r", row.start + 1, "--seed", row.start_seed]
    return shlex.join(["qcqpbench", "run", "best_known", *map(str, words)])


def _offsets_in_details(details: Mapping[str, Any]) -> Array | None:
    """Return the values of the `offset_…` entries of `details`, which files before schema 7 have instead of `offsets`.

    Return None if there are none or one is not finite.
    """
    values = [value for name, value in details.items() if name.startswith("offset_")]
    usable = all(isinstance(value, int | float) and np.isfinite(value) for value in values)
    return np.array(values, dtype=np.float64) if values and usable else None


def _points(path: Path, canonical: dict[str, int]) -> Iterator[Offer]:
    """Yield an offer for each point of an .npz file."""
    content = read_npz(path, "an .npz file of points", _MAX_UNPACKED_BYTES)
    try:
        source: dict[str, Any] = {
            "solver": path.name,
            "command": shlex.join(["qcqpbench", "best-known", "update", path.name]),
        }
        for name in source.keys() & content.keys():
            source[name] = _line(name, content.pop(name))
        for name, point in content.items():
            # The code of a plug-in must not run here.
            instance = None if is_plugin_problem(name) else family(name)
            spec = name if instance is None else instance.spec
            require(spec in canonical, f"points must be of instances of the suites {_NAMES}, got {spec}")
            assert isinstance(instance, TaskFamily)
            yield Offer(spec, **source, point=_usable(point, (instance.n, instance.m), f"the point of {spec}"))
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error


def _line(name: str, value: NDArray[Any]) -> str:
    text = str(value)
    is_line = value.dtype.kind == "U" and value.shape == () and text.isprintable()
    require(is_line, f"{name} must be one line of printable text, got {value!r:.100}")
    return text


def _usable(point: NDArray[Any], shape: tuple[int, int], name: str) -> Array:
    require(point.dtype.kind in "iuf", f"{name} must hold real numbers, got {point.dtype}")
    require(point.shape == shape, f"{name} must have the shape {shape}, got {point.shape}")
    W = point.astype(np.float64)
    require(bool(np.isfinite(W).all()), f"{name} must hold finite numbers, got {W[~np.isfinite(W)][:3].tolist()}")
    zero_rows = np.flatnonzero(~W.any(axis=1)).tolist()
    require(not zero_rows, f"{name} must have a nonzero value in each row, got zeros in the rows {zero_rows[:3]}")
    return W
