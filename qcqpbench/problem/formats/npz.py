"""The native format: a NumPy .npz archive, exact to the last bit.

``header`` holds JSON as bytes: format, schema, kind, id, names and metadata; the other members are the arrays by their
names in `QCQP` or `MaxMargin`. Nothing is pickled, so reading a file executes nothing. The id is recomputed on reading,
and a file that states another one is refused.
"""

import json
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import THEORY_NOTES, BestKnown, Bound, Metadata
from qcqpbench.problem.npz_archive import header_kind, read_npz
from qcqpbench.problem.qcqp import QCQP

FORMAT = "qcqpbench"
SCHEMA = 1
_MAX_BYTES = 1 << 32

_FAMILIES_WITH_THEORY = ("classical_perceptron[", "covariance_perceptron[")
_HELD_OUT = ("held_out_patterns", "held_out_labels")
_MATRICES = ("quadratic", "linear")
_NAMES = ("variable_names", "constraint_names")
_VECTORS = ("lower", "upper", "x_lower", "x_upper")

_Claim = TypeVar("_Claim", BestKnown, Bound)


KIND = header_kind("a problem in qcqpbench's .npz format", FORMAT)


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open .npz file."""
    metadata = problem.metadata
    header: dict[str, Any] = {
        "format": FORMAT,
        "schema": SCHEMA,
        "id": problem.id,
        "spec": metadata.spec,
        "seed": metadata.seed,
        "best_known": metadata.best_known and vars(metadata.best_known),
        "bounds": [vars(bound) for bound in metadata.bounds],
        "notes": dict(metadata.notes),
    }
    arrays: dict[str, NDArray[Any]] = {}
    if metadata.reference is not None:
        arrays["reference"] = metadata.reference
    if isinstance(problem, MaxMargin):
        header |= {"kind": "maxmargin", "scale": problem.scale}
        header["notes"]["smallest_eigenvalue"] = problem.smallest_eigenvalue
        arrays |= _task_arrays(problem)
    else:
        header |= {"kind": "qcqp", "sense": problem.sense, "constant": problem.constant}
        header |= {name: getattr(problem, name) for name in _NAMES}
        arrays |= _qcqp_arrays(problem)
    text = json.dumps(header, ensure_ascii=False).encode()
    np.savez_compressed(file, allow_pickle=False, header=np.frombuffer(text, dtype=np.uint8), **arrays)


def _task_arrays(task: MaxMargin) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task by member name."""
    arrays: dict[str, NDArray[Any]] = {"patterns": task.patterns, "labels": task.labels}
    if task.held_out is not None:
        arrays |= dict(zip(_HELD_OUT, (task.held_out.patterns, task.held_out.labels), strict=True))
    return arrays


def _qcqp_arrays(problem: QCQP) -> dict[str, NDArray[Any]]:
    """Return the arrays of a QCQP by member name."""
    arrays: dict[str, NDArray[Any]] = {"products": problem.products}
    arrays |= {name: getattr(problem, name) for name in _VECTORS}
    if problem.start is not None:
        arrays["start"] = problem.start
    for name in _MATRICES:
        matrix = getattr(problem, name)
        arrays |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
    return arrays


def read(path: Path) -> MaxMargin | QCQP:
    """Read a problem from an .npz file."""
    arrays = read_npz(path, "a qcqpbench problem", _MAX_BYTES)
    try:
        header = json.loads(arrays["header"].tobytes().decode())
        require(header["format"] == FORMAT, f"format must be {FORMAT!r}, got {header['format']!r:.40}")
        require(
            header["schema"] <= SCHEMA,
            f"schema must be at most {SCHEMA} for this version of qcqpbench, got {header['schema']}: update qcqpbench",
        )
        problem = _problem(header, arrays)
        is_intact = problem.id == header["id"]
        require(
            is_intact,
            f"id must be that of the content, {problem.id:.12}…, got {header['id']!r:.13}…: the file is damaged",
        )
        reference = problem.metadata.reference
        shape = (problem.n, problem.m) if isinstance(problem, MaxMargin) else (problem.n_variables,)
        fits = reference is None or reference.shape == shape
        require(fits, f"reference must have shape {shape}, got {reference if reference is None else reference.shape}")
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error
    except Exception as error:
        # JSON, NumPy and SciPy raise many exception types for damaged content.
        raise QcqpbenchError(
            f"{path}: must be a qcqpbench problem, got a damaged or different file: {error}"
        ) from error
    return problem


def _problem(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> MaxMargin | QCQP:
    """Return the problem with this header and these arrays, which become read-only."""
    for name, array in arrays.items():
        require(array.dtype.kind in "iuf", f"{name} must hold numbers, got {array.dtype}")
        array.flags.writeable = False
    metadata = _metadata(header, arrays.get("reference"))
    if header["kind"] == "maxmargin":
        trials = [arrays[name] for name in _HELD_OUT if name in arrays]
        held_out = MaxMargin(trials[0], trials[1], header["scale"]) if trials else None
        return MaxMargin(arrays["patterns"], arrays["labels"], header["scale"], metadata, held_out=held_out)
    require(header["kind"] == "qcqp", f"kind must be 'maxmargin' or 'qcqp', got {header['kind']!r:.40}")
    return _qcqp(header, arrays, metadata)


def _qcqp(header: dict[str, Any], arrays: dict[str, NDArray[Any]], metadata: Metadata) -> QCQP:
    """Return the QCQP with this header, these arrays and this metadata."""
    parts: dict[str, Any] = {name: arrays[name] for name in _VECTORS}
    for key in _NAMES:
        names = header[key]
        is_text = isinstance(names, list) and all(isinstance(name, str) for name in names)
        require(names is None or is_text, f"{key} must be a list of text, got {names!r:.40}")
        parts[key] = None if names is None else tuple(names)
    c, n = len(parts["lower"]), len(parts["x_lower"])
    for name, shape in {"quadratic": (1 + c, len(arrays["products"])), "linear": (1 + c, n)}.items():
        matrix = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
        parts[name] = sparse.csr_array(matrix, shape=shape)
        parts[name].check_format(full_check=True)
    return QCQP._canonical(
        sense=header["sense"],
        products=arrays["products"],
        constant=header["constant"],
        start=arrays.get("start"),
        metadata=metadata,
        **parts,
    )


def _metadata(header: dict[str, Any], reference: NDArray[Any] | None) -> Metadata:
    """Return the metadata in `header`; each value is checked, because the id does not cover metadata."""
    spec, seed, notes, best_known = (header[name] for name in ("spec", "seed", "notes", "best_known"))
    require(spec is None or isinstance(spec, str), f"spec must be text or null, got {spec!r:.40}")
    require(seed is None or isinstance(seed, int), f"seed must be a whole number or null, got {seed!r:.40}")
    fits = isinstance(notes, dict) and all(isinstance(note, str | int | float) for note in notes.values())
    require(fits, f"notes must be numbers and text by name, got {notes!r:.40}")
    for name in THEORY_NOTES:
        _check_number(name, notes.get(name, 0.0))
    if "kappa_bar_rs" not in notes and (spec or "").startswith(_FAMILIES_WITH_THEORY):
        # Older versions stored the replica-symmetric prediction of these families as kappa_bar_theory.
        notes = {"kappa_bar_rs" if name == "kappa_bar_theory" else name: note for name, note in notes.items()}
    return Metadata(
        spec=spec,
        seed=seed,
        reference=reference,
        best_known=None if best_known is None else _claim(BestKnown(**best_known), "best_known"),
        bounds=tuple(_claim(Bound(**bound), "bound") for bound in header["bounds"]),
        notes=notes,
    )


def _claim(claim: _Claim, name: str) -> _Claim:
    """Return `claim` after checking that its value is a number and its origin is text."""
    _check_number(name, claim.value)
    origin = claim.source if isinstance(claim, BestKnown) else claim.kind
    require(isinstance(origin, str), f"the origin of {name} must be text, got {origin!r:.40}")
    return claim


def _check_number(name: str, value: Any) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not np.isnan(float(value))
    require(is_number, f"{name} must be a number, got {value!r:.40}")
