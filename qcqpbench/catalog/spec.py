"""Specs of problems and solvers, ``name[parameter=value,…]``: parsing, writing and conversion of values.

Parameters are the fields of a frozen dataclass, with values of their annotated types (int, float, bool, str, Literal,
``X | None``). A value that holds a comma, a bracket or a quote is enclosed in double quotes, where ``""`` is a quote.
"""

import dataclasses
import math
import re
import types
import typing
from functools import cache
from typing import Any, Literal, TypeVar

from qcqpbench.errors import QcqpbenchError, nearest, require

_SHAPE = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[(.*)\])?\s*", re.DOTALL)
_PARAMETER = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"]|"")*"|[^,"\[\]]*?)\s*(?:,|$)', re.DOTALL)
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

T = TypeVar("T", bound="Parametrized")


def parse(text: str) -> tuple[str, dict[str, str]]:
    """Split ``name[a=1,b=x]`` into the name and the parameters as text."""
    shape = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    if shape is None:
        raise QcqpbenchError(f"a spec must look like name[parameter=value,…], got {text!r:.100}")
    inside = shape[2] or ""
    parameters: dict[str, str] = {}
    position = 0
    while position < len(inside.rstrip()):
        match = _PARAMETER.match(inside, position)
        if match is None:
            raise QcqpbenchError(
                f"parameters must look like m=100,seed=3, got {inside[position:]!r:.100} in the spec {text!r:.100}"
            )
        key, value = match[1], match[2]
        require(key not in parameters, f"{key} must be given once, got it twice in the spec {text!r:.100}")
        parameters[key] = value[1:-1].replace('""', '"') if value.startswith('"') else value
        position = match.end()
    return shape[1], parameters


def spell(name: str, parameters: dict[str, Any]) -> str:
    """Return the spec of `name` and `parameters`, the inverse of `parse`; floats are written exactly."""
    inside = ",".join(f"{key}={_write(value)}" for key, value in parameters.items())
    return f"{name}[{inside}]" if inside else name


class Parametrized:
    """Base class of frozen dataclasses whose fields are parameters, converted to their annotated types."""

    def __post_init__(self) -> None:
        for field, hint in parameters_of(type(self)):
            value = _convert(getattr(self, field.name), hint, f"{_name(type(self))}: {field.name}")
            object.__setattr__(self, field.name, value)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are not None, in the order of their declaration."""
        values = {field.name: getattr(self, field.name) for field, _ in parameters_of(type(self))}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def spec(self) -> str:
        """The spec with all parameters that are not None written out, so that it is independent of the defaults."""
        return spell(_name(type(self)), self.parameters)


def parameters_of(kind: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Return (field, annotation) for each parameter of the Parametrized class `kind`."""
    hints = _hints(kind)
    return [(field, hints[field.name]) for field in dataclasses.fields(kind)]


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def configure(kind: type[T], parameters: dict[str, Any]) -> T:
    """Return an instance of the Parametrized class `kind` from parameters given as text or as values."""
    allowed = [field.name for field, _ in parameters_of(kind)]
    for key in parameters:
        if key not in allowed:
            raise nearest(key, allowed, f"parameter of {_name(kind)}")
    return kind(**parameters)


def describe(hint: Any) -> str:
    """Return a type annotation in words, for listings and error messages."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(describe(part) for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is Literal:
        return "|".join(map(str, typing.get_args(hint)))
    return {int: "whole number", float: "number", bool: "true|false", str: "text"}[hint]


@dataclasses.dataclass(frozen=True)
class ParameterFacts:
    """Name, type in words and default of a parameter, for listings; the default is None if there is none."""

    name: str
    type: str
    default: str | float | bool | None


def describe_parameters(kind: type) -> tuple[ParameterFacts, ...]:
    """Return the facts about each parameter of the Parametrized class `kind`."""
    return tuple(
        ParameterFacts(
            field.name,
            describe(hint),
            None if field.default is dataclasses.MISSING else field.default,
        )
        for field, hint in parameters_of(kind)
    )


def _name(kind: type) -> str:
    """Return the name of the Parametrized class `kind` in specs."""
    return str(getattr(kind, "name", kind.__name__))


def _write(value: Any) -> str:
    """Return `value` as text, in quotes if a spec requires them."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\[\]]|^\s|\s$|^$', text) else text


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Convert `value` to the annotated type `hint`; raise a QcqpbenchError that begins with `where` on failure."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None:
            return None
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    try:
        return _as(value, hint)
    except (TypeError, ValueError, OverflowError, KeyError, StopIteration):
        article = "a " if hint in (int, float) else ""
        raise QcqpbenchError(f"{where} must be {article}{describe(hint)}, got {value!s:.100}") from None


def _as(value: Any, hint: Any) -> Any:
    """Convert `value` to the annotated type `hint`; raise an exception if the conversion fails."""
    if typing.get_origin(hint) is Literal:
        return next(choice for choice in typing.get_args(hint) if str(choice) == str(value))
    if hint is bool:
        return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
    if hint is int:
        if isinstance(value, str):
            return int(value)
        if value != int(value) or isinstance(value, bool):
            raise ValueError
        return int(value)
    if hint is float:
        number = float(value)
        if math.isnan(number):
            raise ValueError
        return number
    return str(value)
