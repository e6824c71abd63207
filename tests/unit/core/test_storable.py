"""A result comes back as it was, whatever a target answered: its effect has happened."""

import math
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.bounds import JSON_DEPTH_MAX, RESULT_BYTES_MAX
from counterfoil.core.canonical import (
    MARK,
    bounded,
    canonical,
    decode,
    encode,
    normalise,
    restored,
    storable,
)
from counterfoil.core.errors import ContractError
from counterfoil.core.words import Json


def trip(value: object) -> Json:
    """Return a value as a store gives it back."""
    return restored(decode(encode(storable(value)), object, "result", bytes_max=10**7))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("a\x00b", id="C14 a NUL"),
        pytest.param("\\u0000", id="C14 the six characters that spell a NUL"),
        pytest.param("half \ud83d", id="C14 half a surrogate pair"),
        pytest.param({"\ud83d": 1}, id="C14 half a pair in a name"),
        pytest.param(b"\x00\xff\xfe", id="C14 raw bytes"),
        pytest.param(bytearray(b"\x00\xff"), id="C14 bytes that can change"),
        pytest.param(2**53, id="C14 an integer beyond 2^53"),
        pytest.param(-(2**64) - 1, id="C14 an integer beyond 64 bits"),
        pytest.param(10**5_000, id="C14 an integer of more digits than Python prints"),
        pytest.param(math.inf, id="C14 infinity"),
        pytest.param(-math.inf, id="C14 minus infinity"),
        pytest.param(1e300, id="C14 a large float"),
        pytest.param(5e-324, id="C14 the least float"),
        pytest.param({MARK: "bytes", "base64": "AA=="}, id="C14 an object that looks like a mark"),
        pytest.param({MARK: "object", "items": []}, id="C14 an object that looks like an object"),
        pytest.param({MARK: None}, id="C14 an object with the marker alone"),
        pytest.param({"a": {MARK: [{MARK: 1}]}}, id="C14 markers inside markers"),
        pytest.param({1: "a", None: "b", 2.5: "c", b"d": "e"}, id="C14 names that are no text"),
        pytest.param({(1, ("a", b"b")): 2}, id="C14 a tuple as a name"),
        pytest.param({"": [], "a": {}}, id="C14 empty things"),
    ],
)
def test_a_result_comes_back_as_it_was(value: object) -> None:
    assert trip(value) == value


@pytest.mark.parametrize("value", [pytest.param(math.nan, id="C14 NaN")])
def test_nan_comes_back_as_nan(value: float) -> None:
    assert math.isnan(trip(value))


@pytest.mark.parametrize("value", [pytest.param(-0.0, id="C14 minus zero")])
def test_minus_zero_keeps_its_sign_in_a_result(value: float) -> None:
    assert math.copysign(1, trip(value)) == -1


class Shouting(str):
    """Text with other ideas of how it is shown."""

    def __str__(self) -> str:
        return "LOUD"


class Sized(float):
    def __repr__(self) -> str:
        return "sized"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        pytest.param(Shouting("quiet"), "quiet", id="C14 a class of text"),
        pytest.param({Shouting("name"): 1}, {"name": 1}, id="C14 a class of text as a name"),
        pytest.param(Sized("inf"), math.inf, id="C14 a class of float"),
        pytest.param((1, (2,)), [1, [2]], id="C14 tuples become lists"),
    ],
)
def test_a_result_comes_back_as_its_plain_value(value: object, plain: object) -> None:
    assert (trip(value), type(trip(value))) == (plain, type(plain))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(object(), id="C14 a thing without a form"),
        pytest.param({Decimal(1): 2}, id="C14 a name without a form"),
        pytest.param({frozenset({1}): 2}, id="C14 a set as a name"),
    ],
)
def test_of_a_thing_without_a_form_its_type_is_kept(value: object) -> None:
    assert '"unknown"' in encode(storable(trip(value))).decode()


def test_a_result_deeper_than_any_reader_is_cut() -> None:
    deep: Json = []
    for _ in range(10_000):
        deep = [deep]
    assert encode(storable(deep)).count(b"[") == JSON_DEPTH_MAX


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({MARK: "bytes"}, id="C14 a mark without its bytes"),
        pytest.param({MARK: "bytes", "base64": "?"}, id="C14 no base64"),
        pytest.param({MARK: "text", "base64": "/w=="}, id="C14 no UTF-8"),
        pytest.param({MARK: "integer", "hex": "no"}, id="C14 no integer"),
        pytest.param({MARK: "integer", "hex": None}, id="C14 an integer of no type"),
        pytest.param({MARK: "float", "text": []}, id="C14 no float"),
        pytest.param({MARK: "object", "items": 1}, id="C14 no items"),
        pytest.param({MARK: "object", "items": [[1]]}, id="C14 half an item"),
        pytest.param({MARK: "of tomorrow"}, id="C14 an unknown mark"),
        pytest.param({MARK: []}, id="C14 a mark that is no word"),
    ],
)
def test_a_mark_that_is_not_ours_stays_as_it_is(stored: Json) -> None:
    assert restored(stored) == stored


@pytest.mark.parametrize(
    "size", [pytest.param(32 * 2**20, id="C14 far more text than a row may hold")]
)
def test_a_large_result_is_kept_by_digest_and_size(size: int) -> None:
    kept = bounded("x" * size)
    assert (kept[MARK], kept["size"], len(encode(kept)) < 200) == ("large", size + 2, True)


def test_a_result_at_its_bound_is_kept_whole() -> None:
    assert bounded("x" * (RESULT_BYTES_MAX - 2)) == "x" * (RESULT_BYTES_MAX - 2)


keys = st.text() | st.integers() | st.booleans() | st.none() | st.binary() | st.just(MARK)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None, categories=None))
    | st.binary()
    | st.sampled_from(["\x00", "\ud800", "\\u0000", MARK, 2**53, -(2**70)])
)
results = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(results)
@pytest.mark.parametrize("part", [pytest.param("result", id="C14 any result")])
def test_any_result_comes_back_as_it_was(part: str, value: Json) -> None:
    assert trip(value) == value


@given(results)
@pytest.mark.parametrize("part", [pytest.param("result", id="C14 any result in plain JSON")])
def test_any_result_is_storable_in_a_strict_json_column(part: str, value: Json) -> None:
    normalised = msgspec.json.decode(encode(storable(value)))
    assert "\ud800" not in encode(normalised).decode("utf-8")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("\ud800", id="C14 half a character"),
        pytest.param(object(), id="C14 a thing"),
        pytest.param({1j: 2}, id="C14 an odd name"),
    ],
)
def test_what_has_no_json_form_is_refused_by_name(value: object) -> None:
    with pytest.raises(ContractError, match="no JSON form"):
        encode(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(2**60, id="T9 an integer that was never normalised"),
        pytest.param(math.nan, id="T9 NaN that was never normalised"),
        pytest.param("\ud800", id="T9 half a character that was never normalised"),
    ],
)
def test_what_has_no_canonical_form_is_refused_by_name(value: object) -> None:
    with pytest.raises(ContractError, match="no canonical form"):
        canonical(value)


@pytest.mark.parametrize("depth", [pytest.param(100_000, id="T9 deeper than the stack")])
def test_a_value_deeper_than_the_stack_has_no_canonical_form(depth: int) -> None:
    deep: Json = []
    for _ in range(depth):
        deep = [deep]
    with pytest.raises(ContractError, match="deeper"):
        normalise(deep, "value")
