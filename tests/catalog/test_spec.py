import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qcqpbench import QcqpbenchError
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
def test_values_are_converted(parameter: str, text: object, value: object) -> None:
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
def test_wrong_value_is_refused_with_the_requirement(parameter: str, value: object, requirement: str) -> None:
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
