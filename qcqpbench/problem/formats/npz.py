"""The native format: a NumPy .npz archive, exact to the last bit.

``header`` holds JSON as bytes: format, schema, kind, id, names and what is known of the problem; the other members are
the arrays by their names in `QCQP` or `MaxMargin`. Nothing is pickled, so reading a file executes nothing. The id is
computed again on reading: a file that says another one is refused.
"""

import json
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from qcqpbench.errors import QcqpbenchError, require
from qcqpbench.problem.maxmargin import MaxMargin
from qcqpbench.problem.metadata import BestKnown, Bound, Metadata
from qcqpbench.problem.qcqp import QCQP

FORMAT = "qcqpbench"
SCHEMA = 1
# Zeros shrink to a thousandth: a file of some MB could fill a machine.
MOST_BYTES = 1 << 32

_HELD_OUT = ("held_out_patterns", "held_out_labels")
_MATRICES = ("quadratic", "linear")
_NAMES = ("variable_names", "constraint_names")
_VECTORS = ("lower", "upper", "x_lower", "x_upper")

_Claim = TypeVar("_Claim", BestKnown, Bound)


def write(problem: MaxMargin | QCQP, file: IO[bytes]) -> None:
    """Write a problem to an open file."""
    known = problem.metadata
    header: dict[str, Any] = {
        "format": FORMAT,
        "schema": SCHEMA,
        "id": problem.id,
        "spec": known.spec,
        "seed": known.seed,
        "best_known": known.best_known and vars(known.best_known),
        "bounds": [vars(bound) for bound in known.bounds],
        "notes": dict(known.notes),
    }
    arrays: dict[str, NDArray[Any]] = {}
    if known.reference is not None:
        arrays["reference"] = known.reference
    if isinstance(problem, MaxMargin):
        header |= {"kind": "maxmargin", "scale": problem.scale}
        header["notes"]["smallest_eigenvalue"] = problem.smallest_eigenvalue
        arrays |= {"patterns": problem.patterns, "labels": problem.labels}
        if problem.held_out is not None:
            rest = problem.held_out.patterns, problem.held_out.labels
            arrays |= dict(zip(_HELD_OUT, rest, strict=True))
    else:
        header |= {
            "kind": "qcqp",
            "sense": problem.sense,
            "constant": problem.constant,
        } | {name: getattr(problem, name) for name in _NAMES}
        arrays |= {"products": problem.products} | {name: getattr(problem, name) for name in _VECTORS}
        if problem.start is not None:
            arrays["start"] = problem.start
        for name in _MATRICES:
            matrix = getattr(problem, name)
            arrays |= {f"{name}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
    text = json.dumps(header, ensure_ascii=False).encode()
    np.savez_compressed(file, allow_pickle=False, header=np.frombuffer(text, dtype=np.uint8), **arrays)


def read(path: Path) -> MaxMargin | QCQP:
    """The problem in a file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            size = sum(member.file_size for member in archive.zip.infolist())
            require(size <= MOST_BYTES, f"holds {size} bytes when unpacked; read are up to {MOST_BYTES}")
            content = {name: archive[name] for name in archive.files}
        header = json.loads(content["header"].tobytes().decode())
        require(header["format"] == FORMAT, "is not a qcqpbench problem")
        require(
            header["schema"] <= SCHEMA,
            f"has schema {header['schema']}, this qcqpbench reads up to {SCHEMA}: update it",
        )
        problem = _problem(header, content)
        require(problem.id == header["id"], "is damaged: its content does not have the id it states")
        reference = problem.metadata.reference
        shape = (problem.n, problem.m) if isinstance(problem, MaxMargin) else (problem.n_variables,)
        fits = reference is None or reference.shape == shape
        require(fits, f"its reference is no point of the problem; right is an array of shape {shape}")
    except QcqpbenchError as error:
        raise QcqpbenchError(f"{path}: {error}") from error
    except OSError as error:
        raise QcqpbenchError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        # Whatever zipfile, NumPy and JSON raise on bytes that nobody wrote on purpose.
        # NumPy advises to allow pickles, which is the last thing to do with such a file.
        reason = "" if "pickle" in str(error) else f" ({error})"
        raise QcqpbenchError(f"{path}: is damaged or not a qcqpbench problem{reason}") from error
    return problem


def _problem(header: dict[str, Any], content: dict[str, NDArray[Any]]) -> MaxMargin | QCQP:
    for name, array in content.items():
        require(array.dtype.kind in "iuf", f"its {name} holds no numbers")
        array.flags.writeable = False
    metadata = _metadata(header, content.get("reference"))
    if header["kind"] == "maxmargin":
        rest = [content[name] for name in _HELD_OUT if name in content]
        held_out = MaxMargin(rest[0], rest[1], header["scale"]) if rest else None
        return MaxMargin(content["patterns"], content["labels"], header["scale"], metadata, held_out=held_out)
    require(header["kind"] == "qcqp", f"holds a {header['kind']}, this qcqpbench reads maxmargin and qcqp")
    vectors = {name: content[name] for name in _VECTORS}
    c, n = len(vectors["lower"]), len(vectors["x_lower"])
    shapes = {"quadratic": (1 + c, len(content["products"])), "linear": (1 + c, n)}
    for names in (header[key] or () for key in _NAMES):
        require(
            isinstance(names, list | tuple) and all(isinstance(name, str) for name in names), "its names are no text"
        )
    parts: dict[str, Any] = {
        **vectors,
        **{key: header[key] if header[key] is None else tuple(header[key]) for key in _NAMES},
    }
    for name, shape in shapes.items():
        matrix = tuple(content[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
        parts[name] = sparse.csr_array(matrix, shape=shape)
        parts[name].check_format(full_check=True)
    return QCQP(
        sense=header["sense"],
        products=content["products"],
        constant=header["constant"],
        start=content.get("start"),
        metadata=metadata,
        **parts,
    )


def _metadata(header: dict[str, Any], reference: NDArray[Any] | None) -> Metadata:
    """What is known of the problem; the id does not cover it, so each value is looked at."""
    spec, seed, notes, known = (header[name] for name in ("spec", "seed", "notes", "best_known"))
    require(spec is None or isinstance(spec, str), f"its spec is {spec!r:.40}; right is text, or null")
    require(seed is None or isinstance(seed, int), f"its seed is {seed!r:.40}; right is a whole number, or null")
    fits = isinstance(notes, dict) and all(isinstance(note, str | int | float) for note in notes.values())
    require(fits, f"its notes are {notes!r:.40}; right are numbers and texts by name")
    _number("kappa_bar_theory", notes.get("kappa_bar_theory", 0.0))
    return Metadata(
        spec=spec,
        seed=seed,
        reference=reference,
        best_known=None if known is None else _claim(BestKnown(**known), "best_known"),
        bounds=tuple(_claim(Bound(**bound), "bound") for bound in header["bounds"]),
        notes=notes,
    )


def _claim(claim: _Claim, what: str) -> _Claim:
    """A value and a word on where it is from."""
    _number(what, claim.value)
    word = claim.source if isinstance(claim, BestKnown) else claim.kind
    require(isinstance(word, str), f"its {what} is from {word!r:.40}; right is text")
    return claim


def _number(what: str, value: Any) -> None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and not np.isnan(float(value))
    require(right, f"its {what} is {value!r:.40}; right is a number")
