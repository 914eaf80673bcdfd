"""One spelling for problems and solvers everywhere: ``name[parameter=value,…]``.

Parameters are the fields of a frozen dataclass; their annotations (int, float, bool, str, Literal, ``X | None``) say
what a value may be. A value that holds a comma, a bracket or a quote stands in double quotes, with ``""`` for one.
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
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


T = TypeVar("T", bound="Parametrized")


def parse(text: str) -> tuple[str, dict[str, str]]:
    """Split ``name[a=1,b=x]`` into its name and its parameters as written."""
    shape = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    if shape is None:
        raise QcqpbenchError(f"cannot read the spec {text!r}; a spec looks like name[parameter=value,…]")
    inside = shape[2] or ""
    parameters: dict[str, str] = {}
    position = 0
    while position < len(inside.rstrip()):
        found = _PARAMETER.match(inside, position)
        if found is None:
            raise QcqpbenchError(
                f"cannot read {inside[position:]!r} in the spec {text!r}; parameters look like m=100,seed=3"
            )
        key, value = found[1], found[2]
        require(key not in parameters, f"the spec {text!r} gives {key} twice")
        parameters[key] = value[1:-1].replace('""', '"') if value.startswith('"') else value
        position = found.end()
    return shape[1], parameters


def spell(name: str, parameters: dict[str, Any]) -> str:
    """The inverse of parse; floats are written so that they read back exactly."""
    inside = ",".join(f"{key}={_write(value)}" for key, value in parameters.items())
    return f"{name}[{inside}]" if inside else name


class Parametrized:
    """A frozen dataclass whose fields are its parameters, checked against their annotations when it is made."""

    def __post_init__(self) -> None:
        for field, hint in parameters_of(type(self)):
            value = _convert(getattr(self, field.name), hint, f"{_name(type(self))}: {field.name}")
            object.__setattr__(self, field.name, value)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that are set, in the order of their declaration."""
        values = {field.name: getattr(self, field.name) for field, _ in parameters_of(type(self))}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def spec(self) -> str:
        """The full spelling, with every parameter that is set: makes the same object whatever the defaults become."""
        return spell(_name(type(self)), self.parameters)


def parameters_of(kind: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """The parameters of a Parametrized class: (field, annotation)."""
    hints = _hints(kind)
    return [(field, hints[field.name]) for field in dataclasses.fields(kind)]


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def configure(kind: type[T], parameters: dict[str, Any]) -> T:
    """Make an object of a Parametrized class from parameters as text or as values."""
    allowed = [field.name for field, _ in parameters_of(kind)]
    for key in parameters:
        if key not in allowed:
            raise nearest(key, allowed, f"parameter of {_name(kind)}")
    return kind(**parameters)


def describe(hint: Any) -> str:
    """An annotation in words, for listings and errors."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(describe(part) for part in typing.get_args(hint) if part is not types.NoneType)
    if typing.get_origin(hint) is Literal:
        return "|".join(map(str, typing.get_args(hint)))
    return {int: "whole number", float: "number", bool: "true|false", str: "text"}[hint]


@dataclasses.dataclass(frozen=True)
class ParameterFacts:
    """A parameter as listings show it: its name, its type in words, and its default, if it has one."""

    name: str
    type: str
    default: str | float | bool | None


def describe_parameters(kind: type) -> tuple[ParameterFacts, ...]:
    """Return the parameters of a Parametrized class."""
    return tuple(
        ParameterFacts(
            field.name,
            describe(hint),
            None if field.default is dataclasses.MISSING else field.default,
        )
        for field, hint in parameters_of(kind)
    )


def _name(kind: type) -> str:
    return str(getattr(kind, "name", kind.__name__))


def _write(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\[\]]|^\s|\s$|^$', text) else text


def _convert(value: Any, hint: Any, where: str) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        if value is None:
            return None
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    try:
        return _as(value, hint)
    except (TypeError, ValueError, OverflowError, KeyError, StopIteration):
        raise QcqpbenchError(f"{where}={value} is not allowed; right is: {describe(hint)}") from None


def _as(value: Any, hint: Any) -> Any:
    if typing.get_origin(hint) is Literal:
        return next(choice for choice in typing.get_args(hint) if str(choice) == str(value))
    if hint is bool:
        return value if isinstance(value, bool) else _TRUTH[str(value).lower()]
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
