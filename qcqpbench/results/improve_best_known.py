"""A list of best known margins checked, and improved by what others found: every number is computed again."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qcqpbench.catalog.best_known import Proof, Record, read_list, write_list
from qcqpbench.catalog.certificate import proved_bound
from qcqpbench.catalog.family import TaskFamily
from qcqpbench.catalog.registry import family
from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.run.suite import load_suite
from qcqpbench.run.verify import verify

from .store import Row, Store

Array = NDArray[np.float64]

# Relative to the value or to the task's scale, whichever is more. BLAS and LAPACK differ from machine to machine:
_ROUNDING = 1e-12
# What is better by less is the same point, or the same bound, found once more.
_IMPROVEMENT = 1e-9
# That a file of points may unpack to; points of all instances are less than 1 MB.
_MOST_BYTES = 1 << 24


def check(path: Path) -> Iterator[tuple[Record, str]]:
    """Each record of a list, and what is wrong with it, empty if nothing is: its problem is made anew, its margin and
    its bound are computed from its proof."""
    records, proofs = read_list(path)
    for id, record in records.items():
        yield record, _fault(record, proofs[id])


def _fault(record: Record, proof: Proof) -> str:
    try:
        task = _task(record.problem)
    except QcqpbenchError as error:
        return f"its problem cannot be made: {error}"
    if task.id != record.problem_id or task.metadata.spec != record.problem:
        return f"problem_id is {record.problem_id}, the problem is {task.metadata.spec} with {task.id}"
    found = verify(task, proof.point)
    if found.margin is None:
        return "a row of its point has no direction"
    if record.margin > record.bound:
        return f"margin {record.margin!r} is above bound {record.bound!r}"
    for name, value, has in (
        ("margin", found.margin, "point has"),
        ("kappa_bar", found.margin / task.scale, "point has"),
        ("bound", proved_bound(task, proof.multipliers, proof.offsets), "multipliers prove"),
    ):
        stored = getattr(record, name)
        if not abs(stored - value) <= _ROUNDING * max(abs(stored), task.scale):
            return f"{name} is {stored!r}, its {has} {value!r}"
    return ""


@dataclass(frozen=True, eq=False)
class Offer:
    """What somebody has for an instance. margin and bound are claims: who claims nothing better is not looked at; of
    multipliers without a claim it is computed what they prove."""

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


@dataclass(frozen=True)
class Change:
    """A record as it was, None if it is new, and as it is."""

    before: Record | None
    after: Record


def update(path: Path, sources: Sequence[Path]) -> tuple[dict[str, Record], list[Change]]:
    """Take what is better into a list, made if it is missing: from results files, and from .npz files with points W by
    the specs of their problems, perhaps with texts `solver` and `command` that say what found them.
    Returns the records and what changed; without a change nothing is written."""
    records, proofs = read_list(path) if path.exists() else ({}, {})
    before = dict(records)
    places = {spec: place for place, spec in enumerate(load_suite("best_known").problems)}
    ids = {record.problem: id for id, record in records.items()}
    for source in sources:
        offers = _points(source, places) if source.suffix == ".npz" else _results(source, records, places)
        ordered = sorted(offers, key=lambda offer: places[offer.problem])
        for problem, group in groupby(ordered, key=lambda offer: offer.problem):
            old = records.get(ids.get(problem, ""))
            tempting = [each for each in group if old is None or each.margin > old.margin or each.bound < old.bound]
            if not tempting:
                continue
            task = _task(problem)
            record, proof = _unknown(task) if old is None else (old, proofs[old.problem_id])
            require(record.problem_id == task.id, f"{path}: the problem_id of {problem} is wrong; check says more")
            record, proof = _improved(task, record, proof, tempting)
            if record.margin > -np.inf:
                ids[problem] = task.id
                records[task.id], proofs[task.id] = record, proof
    records = dict(sorted(records.items(), key=lambda item: places.get(item[1].problem, len(places))))
    changes = [Change(before.get(id), record) for id, record in records.items() if before.get(id) != record]
    if changes:
        write_list(path, records, proofs)
    return records, changes


def _unknown(task: MaxMargin) -> tuple[Record, Proof]:
    """Before anybody has found anything; equal multipliers prove something always."""
    equal = np.ones(task.labels.shape, np.float32)
    shape, none = (task.n, task.m, task.p), ("", "", "", "")
    bound = proved_bound(task, equal)
    record = Record(task.metadata.spec or "", *shape, -np.inf, -np.inf, bound, *none, "equal multipliers", task.id)
    return record, Proof(np.zeros((task.n, task.m)), np.zeros(task.n), equal)


def _improved(task: MaxMargin, record: Record, proof: Proof, offers: Sequence[Offer]) -> tuple[Record, Proof]:
    for offer in offers:
        found = verify(task, offer.point)
        if found.margin is not None and _is_more(found.margin, record.margin, task):
            assert found.kappa_bar is not None and offer.point is not None
            names = ("solver", "version", "commit", "command")
            source = {name: getattr(offer, name) for name in names}
            # Plus 0.0: never -0.0.
            record = replace(record, margin=found.margin + 0.0, kappa_bar=found.kappa_bar + 0.0, **source)
            proof = replace(proof, point=offer.point)
        given = offer.multipliers
        fits = offer.offsets is None or offer.offsets.shape == (task.n,)
        if given is not None and given.shape == task.labels.shape and fits and offer.bound < record.bound:
            multipliers = given.astype(np.float32)
            bound = proved_bound(task, multipliers, offer.offsets)
            if _is_more(-bound, -record.bound, task):
                record = replace(record, bound=bound, bound_solver=offer.solver)
                offsets = np.zeros(task.n) if offer.offsets is None else offer.offsets
                proof = replace(proof, offsets=offsets, multipliers=multipliers)
    require(record.margin <= record.bound, f"{record.problem}: the margin {record.margin!r} is above the bound")
    return record, proof


def _is_more(value: float, known: float, task: MaxMargin) -> bool:
    return value - known > _IMPROVEMENT * max(abs(value), task.scale)


def _task(problem: str) -> MaxMargin:
    made = family(problem).generate()
    if not isinstance(made, MaxMargin):
        raise QcqpbenchError(f"{problem} is a general QCQP; best known margins are of max-margin tasks")
    return made


def _results(path: Path, records: dict[str, Record], canonical: dict[str, int]) -> Iterator[Offer]:
    with Store(path) as store:
        for row in store.rows(all_rows=True):
            known = records.get(row["problem_id"])
            problem = row["problem"] if known is None else known.problem
            if problem in canonical and row["margin"] is not None:
                multipliers = store.multipliers(row["id"])
                yield Offer(
                    problem,
                    row["solver"],
                    row["version"],
                    _commit(row["machine"]),
                    _command(row, problem),
                    row["margin"],
                    np.inf if multipliers is None else -np.inf if row["bound"] is None else row["bound"],
                    store.point(row["id"]),
                    _offsets(row["details"] or {}),
                    multipliers,
                )


def _commit(machine: dict[str, Any]) -> str:
    return f"{str(machine.get('commit') or '')[:12]}{'+' if machine.get('dirty') else ''}"


def _command(row: Row, problem: str) -> str:
    words = ["-p", problem, "-s", row["solver"], "-r", row["start"] + 1, "--seed", row["seed"]]
    return shlex.join(["qcqpbench", "run", "best_known", *map(str, words)])


def _offsets(details: dict[str, Any]) -> Array | None:
    """Return the offsets among a row's details; None if there are none, or one of them is no finite number."""
    values = [value for name, value in details.items() if name.startswith("offset_")]
    usable = all(isinstance(value, int | float) and np.isfinite(value) for value in values)
    return np.array(values, dtype=np.float64) if values and usable else None


def _points(path: Path, canonical: dict[str, int]) -> Iterator[Offer]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            size = sum(member.file_size for member in archive.zip.infolist())
            require(size <= _MOST_BYTES, f"holds {size} bytes when unpacked; read are up to {_MOST_BYTES}")
            content = {name: np.asarray(archive[name]) for name in archive.files}
        source: dict[str, Any] = {
            "solver": path.name,
            "command": shlex.join(["qcqpbench", "best-known", "update", path.name]),
        }
        for name in source.keys() & content.keys():
            source[name] = _line(name, content.pop(name))
        for name, point in content.items():
            made = family(name)
            require(made.spec in canonical, f"{made.spec} is none of the instances of the suite best_known")
            assert isinstance(made, TaskFamily)
            yield Offer(made.spec, **source, point=_usable(point, (made.n, made.m), f"the point of {made.spec}"))
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        # Whatever zipfile and NumPy raise on bytes that nobody wrote on purpose.
        raise QcqpbenchError(f"{path}: is no .npz file of points") from error


def _line(name: str, given: NDArray[Any]) -> str:
    text = str(given)
    require(given.dtype.kind == "U" and given.shape == () and text.isprintable(), f"its {name} is no line of text")
    return text


def _usable(point: NDArray[Any], shape: tuple[int, int], what: str) -> Array:
    require(point.dtype.kind in "iuf", f"{what} holds {point.dtype}, needed: real numbers")
    require(point.shape == shape, f"{what} has shape {point.shape}, needed: {shape}")
    W = point.astype(np.float64)
    require(bool(np.isfinite(W).all()), f"{what} holds a value that is not finite")
    require(bool(W.any(axis=1).all()), f"{what} has a row of zeros, which has no direction")
    return W
