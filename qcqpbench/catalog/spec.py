"""Specs of problems and solvers, ``name[parameter=value,…]``: parsing, writing and conversion of values.

Parameters are the fields of a frozen dataclass, with values of their annotated types (int, float, bool, str, Literal,
``X | None``); a class with a field of another type is refused when it is defined. A value that holds a comma, a bracket
or a quote is enclosed in double quotes, where ``""`` is a quote.
"""

import dataclasses
import inspect
import math
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar

from qcqpbench.errors import QcqpbenchError, describe_error, nearest, require

_SHAPE = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[(.*)\])?\s*", re.DOTALL)
_PARAMETER = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*("(?:[^"]|"")*"|[^,"\[\]]*?)\s*(?:,|$)', re.DOTALL)
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_ALLOWED_TYPES = "int, float, bool, str, a Literal of these, or one of them | None"
_MINIMUM = "minimum"

# A value of a parameter; None if it is not given.
ParameterValue = str | float | bool | None
T = TypeVar("T", bound="Parametrized")
V = TypeVar("V", int, float, int | None, float | None)


def parse(text: str) -> tuple[str, dict[str, str]]:
    """Split the spec ``name[a=1,b=x]`` into its name and a dict of its parameters as text.

    Raise QcqpbenchError if `text` does not have this form or gives a parameter twice.
    """
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


def spell(name: str, parameters: Mapping[str, ParameterValue]) -> str:
    """Return the spec of `name` and `parameters`, the inverse of `parse`; floats are written exactly."""
    inside = ",".join(f"{key}={_write(value)}" for key, value in parameters.items())
    return f"{name}[{inside}]" if inside else name


def parameter(default: V, *, minimum: float) -> V:
    """Declare a numeric parameter with its smallest allowed value.

    Without it, the numeric parameters of a solver must be positive (a ``seed`` may be 0), and those of a family may
    have any value.

    Parameters
    ----------
    default
        Default of the parameter.
    minimum
        Smallest allowed value; ``-math.inf`` allows every number.

    Returns
    -------
    float
        A field for the body of a dataclass, with the type of its default.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Damped(Parametrized):
    ...     damping: float = parameter(0.1, minimum=0)
    >>> Damped(damping=0).spec
    'Damped[damping=0.0]'
    """
    is_number = isinstance(minimum, int | float) and not math.isnan(minimum)
    require(is_number, f"minimum must be a number, got {minimum!r:.100}")
    declared: V = dataclasses.field(default=default, metadata={_MINIMUM: minimum})
    return declared


def minimum_of(field: dataclasses.Field[Any]) -> float | None:
    """Return the smallest allowed value that the field declares; None if it declares none."""
    minimum: float | None = field.metadata.get(_MINIMUM)
    return minimum


class Parametrized:
    """Base class of frozen dataclasses whose fields are parameters, converted to their annotated types."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        try:
            hints = typing.get_type_hints(cls)
        except Exception:
            # An annotation refers to a name that is defined after the class: `parameters_of` checks it at first use.
            return
        _check_types(cls, hints)

    def __new__(cls, *_values: Any, **_parameters: Any) -> Self:
        # Before __init__, which would only say that it does not know the parameter of a class without @dataclass.
        parameters_of(cls)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field, hint in parameters_of(type(self)):
            where = f"{_name(type(self))}: {field.name}"
            value = _convert(getattr(self, field.name), hint, where)
            minimum = minimum_of(field)
            if value is not None and minimum is not None:
                require(value >= minimum, f"{where} must be {minimum:g} or more, got {value}")
            object.__setattr__(self, field.name, value)

    @property
    def parameters(self) -> dict[str, ParameterValue]:
        """The parameters that are not None, in the order of their declaration."""
        values = {field.name: getattr(self, field.name) for field, _ in parameters_of(type(self))}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def spec(self) -> str:
        """The spec with all parameters that are not None written out, so that it is independent of the defaults."""
        return spell(_name(type(self)), self.parameters)


def parameters_of(kind: type) -> tuple[tuple[dataclasses.Field[Any], Any], ...]:
    """Return (field, annotation) for each parameter of the Parametrized class `kind`.

    Raises
    ------
    QcqpbenchError
        If `kind` is not a dataclass, declares a parameter that is not a field, or one whose type cannot be spelled.
    """
    return _checked_parameters(kind)


# mypy does not take a class for hashable.
@cache
def _checked_parameters(kind: Any) -> tuple[tuple[dataclasses.Field[Any], Any], ...]:
    """Return the parameters of `kind` after the checks that `parameters_of` states."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception as error:
        raise QcqpbenchError(f"{_name(kind)}: the annotations must be types, got {describe_error(error)}") from error
    _check_types(kind, hints)
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    missing = _declared(hints).keys() - {field.name for field in fields}
    if missing or not dataclasses.is_dataclass(kind):
        purpose = f" to have the parameters {', '.join(sorted(missing))}" if missing else ""
        raise QcqpbenchError(f"{kind.__name__}: the class must be decorated with @dataclass(frozen=True){purpose}")
    return tuple((field, hints[field.name]) for field in fields)


def _check_types(kind: type, hints: Mapping[str, Any]) -> None:
    """Raise QcqpbenchError unless the spec language can spell the types of all parameters of `kind`."""
    for name, hint in _declared(hints).items():
        where = f"{kind.__name__}: the type of the parameter {name}"
        require(_is_spellable(hint), f"{where} must be {_ALLOWED_TYPES}, got {_type_name(hint)}")


def _declared(hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations `hints` of a class without those of class variables."""
    return {
        name: hint
        for name, hint in hints.items()
        if ClassVar not in (hint, typing.get_origin(hint)) and hint is not dataclasses.KW_ONLY
    }


def _is_spellable(hint: Any) -> bool:
    """Return whether a spec can hold the values of the annotated type `hint`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
        return len(parts) == 1 and _is_spellable(parts[0])
    if typing.get_origin(hint) is Literal:
        return all(type(choice) in (str, int, bool) for choice in typing.get_args(hint))
    return hint in (int, float, bool, str)


def _type_name(hint: Any) -> str:
    """Return an annotation as it is written in Python."""
    is_plain = inspect.isclass(hint) and not typing.get_args(hint)
    return hint.__qualname__ if is_plain else str(hint).replace("typing.", "")


def configure(kind: type[T], parameters: Mapping[str, ParameterValue]) -> T:
    """Return an instance of the Parametrized class `kind` with `parameters`, given by name as text or as values.

    Raise QcqpbenchError if a parameter is unknown, missing or invalid.
    """
    allowed = [field.name for field, _ in parameters_of(kind)]
    for key in parameters:
        if key not in allowed:
            raise nearest(key, allowed, f"parameter of {_name(kind)}")
    for field, hint in parameters_of(kind):
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        given = has_default or field.name in parameters
        require(given, f"{_name(kind)}: {field.name} must be given, a {describe(hint)}, got none")
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
    default: ParameterValue


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
