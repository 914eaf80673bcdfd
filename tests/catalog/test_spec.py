import dataclasses
import math
import pickle
import types
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench import MaxMargin, QcqpbenchError, RunFunction, TaskSolver, parameter
from qcqpbench.catalog.spec import Parametrized, configure, describe, parameters_of, parse, spell
from qcqpbench.errors import nearest


@dataclass(frozen=True)
class Thing(Parametrized):
    name = "thing"

    size: int = 3
    rate: float = 0.5
    fast: bool = False
    mode: Literal["left", "right"] = "left"
    title: str = ""
    limit: float | None = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thing", ("thing", {})),
        ("thing[]", ("thing", {})),
        ("  thing [ size = 4 , mode=left ] ", ("thing", {"size": "4", "mode": "left"})),
        ("thing[size=4,]", ("thing", {"size": "4"})),
        ('thing[title="a,b]=""c"""]', ("thing", {"title": 'a,b]="c"'})),
        ("thing[title=a=b c]", ("thing", {"title": "a=b c"})),
        ("thing[title=]", ("thing", {"title": ""})),
    ],
)
def test_parse_splits_name_and_parameters(text: str, expected: tuple[str, dict[str, str]]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "a b", "thing[", "thing]", "thing[size]", "thing[=3]", "thing[,]", "thing[a=1,,b=2]"),
        *("thing[a=1][b=2]", "thing[size=3]x", "thing[a=[1]]", 'thing[title="a]', 'thing[title="a"b]'),
    ],
)
def test_parse_refuses_other_text(text: str) -> None:
    with pytest.raises(QcqpbenchError, match="must look like"):
        parse(text)


def test_parameter_must_be_given_once() -> None:
    with pytest.raises(QcqpbenchError, match="size must be given once, got it twice"):
        parse("thing[size=3,size=3]")


words = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]*", fullmatch=True)


@given(words, st.dictionaries(words, st.text()))
def test_spelled_text_reads_back(name: str, parameters: dict[str, str]) -> None:
    assert parse(spell(name, parameters)) == (name, parameters)


@given(st.integers(), st.floats(allow_nan=False), st.booleans(), st.sampled_from(["left", "right"]), st.text())
def test_spelled_values_read_back(size: int, rate: float, fast: bool, mode: Any, title: str) -> None:
    thing = Thing(size, rate, fast, mode, title)
    name, parameters = parse(thing.spec)
    again = configure(Thing, parameters)
    assert name == "thing"
    assert again == thing
    assert math.copysign(1, again.rate) == math.copysign(1, rate)


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        ("size", "-7", -7),
        ("size", 4.0, 4),
        ("rate", "1e-3", 0.001),
        ("rate", 2, 2.0),
        ("rate", "inf", math.inf),
        ("fast", "yes", True),
        ("fast", "False", False),
        ("mode", "right", "right"),
        ("limit", "2", 2.0),
        ("limit", None, None),
    ],
)
def test_values_are_converted(parameter: str, text: Any, value: object) -> None:
    converted = getattr(configure(Thing, {parameter: text}), parameter)
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(
    ("parameter", "value", "requirement"),
    [
        ("size", "2.5", "a whole number"),
        ("size", 2.5, "a whole number"),
        ("size", True, "a whole number"),
        ("size", math.inf, "a whole number"),
        ("size", "many", "a whole number"),
        ("size", None, "a whole number"),
        ("rate", "fast", "a number"),
        ("rate", "nan", "a number"),
        ("rate", [1], "a number"),
        ("fast", "maybe", "true\\|false"),
        ("mode", "up", "left\\|right"),
        ("limit", "x", "a number"),
    ],
)
def test_wrong_value_is_refused_with_the_requirement(parameter: str, value: Any, requirement: str) -> None:
    with pytest.raises(QcqpbenchError, match=rf"^thing: {parameter} must be {requirement}, got "):
        configure(Thing, {parameter: value})


def test_unknown_parameter_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(QcqpbenchError, match=r"'sizes'; did you mean 'size'\? allowed: fast, limit, mode, rate, size"):
        configure(Thing, {"sizes": 3})
    assert "did you mean" not in str(nearest("xyz", ["size"], "parameter"))


def test_error_is_one_line() -> None:
    with pytest.raises(QcqpbenchError) as caught:
        configure(Thing, {"mode": "a\nb"})
    assert "\n" not in str(caught.value)


def test_spec_has_the_parameters_that_are_set() -> None:
    assert Thing().spec == 'thing[size=3,rate=0.5,fast=false,mode=left,title=""]'
    assert Thing(limit=1).parameters["limit"] == 1.0


def test_parameters_are_described_in_words() -> None:
    words = [describe(hint) for _, hint in parameters_of(Thing)]
    assert words == ["whole number", "number", "true|false", "left|right", "text", "number"]


def define(annotation: Any) -> type[Parametrized]:
    """Define a class with one field of the given annotation."""

    def fill(body: dict[str, Any]) -> None:
        body["__annotations__"] = {"sizes": annotation}
        body["__module__"] = __name__

    return dataclass(frozen=True)(types.new_class("Odd", (Parametrized,), exec_body=fill))


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (tuple[int, ...], "tuple[int, ...]"),
        ("tuple[int, ...]", "tuple[int, ...]"),
        (dict, "dict"),
        (list[float], "list[float]"),
        (Any, "Any"),
        (object, "object"),
        (None, "NoneType"),
        (complex, "complex"),
        (int | str, "int | str"),
        ("int | str | None", "int | str | None"),
        (Literal["a", None], "Literal['a', None]"),
        (Literal[b"a"], "Literal[b'a']"),
        (dataclasses.InitVar[int], "dataclasses.InitVar[int]"),
    ],
)
def test_type_that_a_spec_cannot_spell_is_refused_when_the_class_is_defined(annotation: Any, shown: str) -> None:
    with pytest.raises(QcqpbenchError) as caught:
        define(annotation)
    allowed = "int, float, bool, str, a Literal of these, or one of them | None"
    assert str(caught.value) == f"Odd: the type of the parameter sizes must be {allowed}, got {shown}"


@pytest.mark.parametrize(
    "annotation",
    [
        *(int, float, bool, str, Literal["a", 1, True], int | None, Literal["a"] | None),
        *("int", "float | None", "Literal['a', 'b']"),
    ],
)
def test_types_that_a_spec_can_spell_are_allowed(annotation: Any) -> None:
    assert [field.name for field, _ in parameters_of(define(annotation))] == ["sizes"]


@pytest.mark.parametrize("annotation", [ClassVar[tuple[int, ...]], "ClassVar[tuple[int, ...]]", ClassVar])
def test_class_variables_may_have_any_type(annotation: Any) -> None:
    assert parameters_of(define(annotation)) == ()


def test_name_that_is_defined_after_the_class_is_checked_at_first_use() -> None:
    kind = define("LaterAlias")
    with pytest.raises(QcqpbenchError, match=r"^Odd: the annotations must be types, got NameError: name 'LaterAlias'"):
        configure(kind, {"sizes": 1})
    globals()["LaterAlias"] = list[int]
    with pytest.raises(QcqpbenchError, match=r"^Odd: the type of the parameter sizes must be .*, got list\[int\]$"):
        configure(kind, {"sizes": 1})
    globals()["LaterAlias"] = Literal["a", "b"]
    assert configure(kind, {"sizes": "b"}).spec == "Odd[sizes=b]"
    del globals()["LaterAlias"]


class Undecorated(TaskSolver):
    name, drives, citation = "undecorated", "nothing", "none"
    steps: int = 10

    def build(self, problem: MaxMargin) -> RunFunction:
        raise NotImplementedError


@pytest.mark.parametrize("parameters", [{}, {"steps": 3}])
def test_class_with_parameters_must_be_a_dataclass(parameters: dict[str, int]) -> None:
    message = r"^Undecorated: the class must be decorated with @dataclass\(frozen=True\) to have the parameters steps$"
    with pytest.raises(QcqpbenchError, match=message):
        Undecorated(**parameters)
    with pytest.raises(QcqpbenchError, match=message):
        configure(Undecorated, parameters)


def test_class_without_own_parameters_may_inherit_those_of_a_dataclass() -> None:
    class Renamed(Thing):
        name = "renamed"

    assert Renamed(size=4).spec.startswith("renamed[size=4,")


@dataclass(frozen=True)
class Sized(Parametrized):
    name = "sized"
    size: int
    kind: str = "round"


def test_missing_parameter_is_named() -> None:
    with pytest.raises(QcqpbenchError, match=r"^sized: size must be given, a whole number, got none$"):
        configure(Sized, {})


@dataclass(frozen=True)
class Damped(TaskSolver):
    name, drives, citation = "damped", "nothing", "none"
    damping: float = parameter(0.1, minimum=0)
    shift: float = parameter(0.0, minimum=-math.inf)
    rounds: int = parameter(3, minimum=2)
    limit: float | None = parameter(None, minimum=0.0)
    rate: float = 1.0
    seed: int = 0

    def build(self, problem: MaxMargin) -> RunFunction:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"damping": 0}, "damping=0.0"),
        ({"damping": "0"}, "damping=0.0"),
        ({"shift": -3}, "shift=-3.0"),
        ({"rounds": 2}, "rounds=2"),
        ({"limit": 0}, "limit=0.0"),
        ({"seed": 0}, "seed=0"),
    ],
)
def test_number_may_have_its_declared_minimum(parameters: dict[str, Any], shown: str) -> None:
    assert shown in configure(Damped, parameters).spec
    assert pickle.loads(pickle.dumps(configure(Damped, parameters))) == configure(Damped, parameters)


@pytest.mark.parametrize(
    ("parameter", "value", "requirement"),
    [
        ("damping", -1e-9, "0 or more"),
        ("rounds", 1, "2 or more"),
        ("limit", -1, "0 or more"),
        ("rate", 0, "a positive number"),
        ("seed", -1, "0 or more"),
    ],
)
def test_number_below_its_minimum_is_refused(parameter: str, value: float, requirement: str) -> None:
    with pytest.raises(QcqpbenchError, match=rf"^damped: {parameter} must be {requirement}, got {float(value):g}"):
        configure(Damped, {parameter: value})


def test_default_of_a_number_with_a_minimum_is_listed() -> None:
    defaults = {field.name: field.default for field, _ in parameters_of(Damped)}
    assert defaults == {"damping": 0.1, "shift": 0.0, "rounds": 3, "limit": None, "rate": 1.0, "seed": 0}
