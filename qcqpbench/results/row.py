"""Rows of results files as typed records, with the same names as the columns."""

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from typing import Any

from qcqpbench.catalog.machine import Machine
from qcqpbench.catalog.spec import parse
from qcqpbench.catalog.status import PointStatus, Scope, Termination
from qcqpbench.errors import QcqpbenchError
from qcqpbench.problem.formats.by_suffix import is_path
from qcqpbench.run.attempt import RunValues
from qcqpbench.run.run_spec import RunOptions, RunSpec

_SECONDS = ("build_seconds", "solve_seconds", "cpu_seconds")
_MAX_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Row(RunValues, RunOptions):
    """One attempt in a results file. The other fields are those of `RunValues` and `RunOptions`.

    A column of results files is a field of one of the three classes. The documentation has a table of all columns, made
    from their docstrings and that of `Finding`: units follow the colon.

    Attributes
    ----------
    id : number
        Number of the row in its file.
    invocation : number
        Number, in its file, of the call of the program that made the run.
    number : number
        Number of the run in that call.
    key
        Key of the run, a sha256: runs of the same solver, problem, start and options have the same key.
    worker
        Name of the worker process, such as ``local-0``, or the address of a cluster worker.
    begun : seconds since 1970
        Start time of the run.
    problem
        Spec or file of the problem.
    problem_id
        The sha256 of the problem's content.
    solver
        Spec of the solver with all its parameters.
    version
        Version of the solver: of its packages, and a hash of its source.
    formulation
        Name of the QCQP formulation in which the solver was given a task; None if it was given the problem itself.
    start : number
        Number of the start: 0, 1, …
    machine
        Hardware and software that the run used.
    """

    id: int
    invocation: int
    number: int
    key: str
    worker: str
    begun: float
    problem: str
    problem_id: str
    solver: str
    version: str
    formulation: str | None
    start: int
    machine: Machine

    # By identity: equality of RunOptions would make rows with the same options equal.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        """Do nothing: the store checks values."""

    @property
    def spec(self) -> RunSpec:
        """The spec of the run."""
        return RunSpec(**{field.name: getattr(self, field.name) for field in fields(RunSpec)})

    @property
    def problem_name(self) -> str:
        """Name of the problem's family; of a file, its path."""
        return name_and_parameters(self.problem)[0]

    @property
    def problem_parameters(self) -> Mapping[str, str | float | bool]:
        """Parameters in the spec of the problem, by name."""
        return name_and_parameters(self.problem)[1]

    @property
    def solver_name(self) -> str:
        """Name of the solver."""
        return name_and_parameters(self.solver)[0]

    @property
    def solver_parameters(self) -> Mapping[str, str | float | bool]:
        """Parameters in the spec of the solver, by name."""
        return name_and_parameters(self.solver)[1]

    def __repr__(self) -> str:
        value = "objective" if self.sense is not None else "kappa_bar"
        number = getattr(self, value)
        result = "" if number is None else f", {value}={number:.6g}"
        return f"<Row {self.id}: {self.solver} on {self.problem}, start {self.start}, {self.termination}{result}>"


_OWN = tuple(name for name in Row.__annotations__ if name != "machine")
_INHERITED = tuple(field.name for field in fields(Row) if field.name not in Row.__annotations__)
COLUMNS = (*_OWN, *_INHERITED, "machine")
_ENUMS: dict[str, type[Termination] | type[PointStatus] | type[Scope]] = {
    "termination": Termination,
    "point_status": PointStatus,
    "scope": Scope,
}


def _stored_type(hint: Any) -> tuple[type, bool]:
    """Return the type of a column's values in the file, and whether NULL is allowed."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [option for option in options if option is not types.NoneType]
    kind = kinds[0]
    stored = str if isinstance(kind, type) and issubclass(kind, Enum) else kind
    return stored, len(kinds) < len(options)


_HINTS = typing.get_type_hints(Row)
# The Python type of each column's values, and whether NULL is allowed, without columns that hold JSON.
STORED_TYPES = {name: _stored_type(_HINTS[name]) for name in COLUMNS if name not in ("details", "machine")}
_WORDS = {int: "a whole number", float: "a number", str: "text"}


# Tuples of the types of all columns of rows that were found to be valid: most rows of a file have the same.
_valid_types: set[tuple[type, ...]] = set()
_MAX_VALID_TYPES = 10_000


def find_fault(values: Mapping[str, Any]) -> str | None:
    """Return a message about the first of `values`, by column, whose type or range is wrong; None if all are valid."""
    kinds = tuple(map(type, values.values()))
    if kinds in _valid_types:
        numbers = [number for name in _SECONDS if (number := values[name]) is not None]
        limit = values["time_limit"]
        if (limit is None or limit > 0) and (not numbers or 0 <= min(numbers) <= max(numbers) < math.inf):
            return None
    fault = _find_fault(values)
    if fault is None and len(_valid_types) < _MAX_VALID_TYPES:
        _valid_types.add(kinds)
    return fault


def _find_fault(values: Mapping[str, Any]) -> str | None:
    for name, (kind, _) in STORED_TYPES.items():
        value = values[name]
        if value is not None and (type(value) is not kind or not _in_range(name, value)):
            requirement = (
                "a finite number, 0 or more" if name in _SECONDS
                else "a positive number" if name == "time_limit" else _WORDS[kind]
            )  # fmt: skip
            return f"{name} must be {requirement}, got {repr(value)[:_MAX_SHOWN_CHARACTERS]}"
    return None


def _in_range(name: str, value: Any) -> bool:
    if name in _SECONDS:
        return is_duration(value)
    return name != "time_limit" or value > 0


def is_duration(value: float | None) -> bool:
    """Return whether `value` is a finite number of seconds, 0 or more."""
    return value is not None and 0 <= value < math.inf


def make_row(values: dict[str, Any]) -> Row:
    """Return the row with these values by column: as stored in a file, except that details and machine are decoded."""
    for name, kind in _ENUMS.items():
        if values[name] is not None:
            values[name] = kind.stored(values[name])
    if values["time_limit"] is None:
        values["time_limit"] = math.inf
    row = object.__new__(Row)
    # The constructor of a frozen dataclass takes five times as long.
    object.__setattr__(row, "__dict__", values)
    return row


@cache
def name_and_parameters(spec: str) -> tuple[str, Mapping[str, str | float | bool]]:
    """Return the name in a spec and its parameters by name, converted to int, float or bool where possible.

    For the path of a file, return the path and no parameters.
    """
    try:
        name, parameters = (spec, {}) if is_path(spec) else parse(spec)
    except QcqpbenchError:
        name, parameters = spec, {}
    return name, types.MappingProxyType({key: _value(text) for key, text in parameters.items()})


def _value(text: str) -> str | float | bool:
    readers: tuple[Callable[[str], str | float | bool], ...] = (int, float, {"true": True, "false": False}.__getitem__)
    for read in readers:
        try:
            return read(text)
        except (ValueError, KeyError):
            continue
    return text
