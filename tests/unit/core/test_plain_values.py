"""The fast way for plain values gives what the rules, one by one, give."""

from collections import OrderedDict
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core import canonical as forms
from counterfoil.core.bounds import INTEGER_MAX, JSON_DEPTH_MAX
from counterfoil.core.errors import ContractError

texts = st.text() | st.sampled_from(["$counterfoil", "\ud800", "\U0001f600", "\ufeff", "\x7f"])
names = st.text(max_size=4) | st.sampled_from(["$counterfoil", "\U00010000", "\uffff", "\ue000"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(INTEGER_MAX - 2, INTEGER_MAX + 2)
    | st.integers(-INTEGER_MAX - 2, -INTEGER_MAX + 2)
    | st.floats()
    | st.sampled_from([1.0, -0.0, 1e21, 1e-7, 0.1])
    | texts
    | st.binary(max_size=4)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(names, inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


class Word(StrEnum):
    A = "a"


class Number(IntEnum):
    ONE = 1


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


odd_values = [
    pytest.param(Word.A, id="a word of an enumeration"),
    pytest.param([Number.ONE], id="a number of an enumeration"),
    pytest.param(OrderedDict(b=1, a=2), id="another kind of mapping"),
    pytest.param({1: "a"}, id="a member name that is no text"),
    pytest.param({"a": 1.0}, id="a whole float"),
    pytest.param(datetime(2026, 1, 1, tzinfo=UTC), id="a moment"),
    pytest.param({"a": (1, 2)}, id="a tuple"),
    pytest.param(nested(JSON_DEPTH_MAX), id="as deep as may be"),
    pytest.param(nested(JSON_DEPTH_MAX + 1), id="too deep"),
    pytest.param([[] for _ in range(100)], id="many lists side by side"),
    pytest.param({"$counterfoil": "bytes", "base64": "AA=="}, id="marked bytes"),
    pytest.param({"$counterfoil": 1}, id="the reserved member"),
]


def came_to(function: Any, *arguments: object) -> object:
    """Return the answer with its types, or the refusal."""
    try:
        return repr(function(*arguments))
    except ContractError as error:
        return error.message


@given(value=values)
def test_generated_values_have_one_normal_form(value: object) -> None:
    by_rule = came_to(forms._normalise, value, "field", JSON_DEPTH_MAX)
    assert came_to(forms.normalise, value, "field") == by_rule


@pytest.mark.parametrize("value", odd_values)
def test_odd_values_have_one_normal_form(value: object) -> None:
    by_rule = came_to(forms._normalise, value, "field", JSON_DEPTH_MAX)
    assert came_to(forms.normalise, value, "field") == by_rule


@given(value=values)
def test_generated_values_are_kept_as_the_rules_keep_them(value: object) -> None:
    assert came_to(forms.storable, value) == came_to(forms._storable, value, JSON_DEPTH_MAX)


@pytest.mark.parametrize("value", odd_values)
def test_odd_values_are_kept_as_the_rules_keep_them(value: object) -> None:
    assert came_to(forms.storable, value) == came_to(forms._storable, value, JSON_DEPTH_MAX)


@given(value=values)
def test_canonical_bytes_are_those_of_the_standard(value: Any) -> None:
    try:
        by_standard = rfc8785.dumps(value)
    except ValueError:
        with pytest.raises(ContractError):
            forms.canonical(value)
    else:
        assert forms.canonical(value) == by_standard


@pytest.mark.parametrize("function", [forms.storable, forms.restored, forms.native])
def test_a_copy_shares_nothing_with_the_original(function: Any) -> None:
    original = {"list": [1, {"a": "b"}]}
    copy = function(original)
    copy["list"][1]["a"] = "c"
    assert original == {"list": [1, {"a": "b"}]}
