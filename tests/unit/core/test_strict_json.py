"""JSON from outside is read in one way or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.canonical import decode, shaped, strict_json
from counterfoil.core.errors import ContractError, FormatError
from counterfoil.core.words import Json


def read(text: str | bytes) -> Json:
    return strict_json(text, "action", bytes_max=1_000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param('{"a": 1, "a": 2}', "named twice", id="acc-002 T9 a member named twice"),
        pytest.param(
            '{"a": {"b": 1, "b": 1}}', "named twice", id="acc-002 T9 the same, further in"
        ),
        pytest.param('{"a": 1, "\\u0061": 2}', "named twice", id="T9 one name in two spellings"),
        pytest.param('{"a": NaN}', "NaN is no JSON number", id="acc-003 T9 NaN"),
        pytest.param("[Infinity]", "no JSON number", id="acc-003 T9 Infinity"),
        pytest.param("[-Infinity]", "no JSON number", id="acc-003 T9 minus Infinity"),
        pytest.param("[1e999]", "not a finite number", id="acc-A16 T9 a literal that overflows"),
        pytest.param("[-1e999]", "not a finite number", id="acc-A16 T9 the same below zero"),
        pytest.param("[9007199254740992]", "beyond", id="T9 2^53"),
        pytest.param("[1e20]", "beyond", id="T9 a whole float beyond 2^53"),
        pytest.param("[" + "9" * 900 + "]", "beyond", id="T9 900 digits"),
        pytest.param("\ufeff{}", "not strict JSON", id="T9 byte order mark"),
        pytest.param(b"\xef\xbb\xbf{}", "not strict JSON", id="T9 byte order mark in bytes"),
        pytest.param(b'"\xff"', "not strict JSON", id="T9 invalid UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', "not strict JSON", id="T9 a surrogate in UTF-8"),
        pytest.param('"\ud800"', "not strict JSON", id="T9 half a character in the text"),
        pytest.param('"\\ud800"', "half a character", id="T9 half a character, escaped"),
        pytest.param("{} {}", "not strict JSON", id="T9 trailing value"),
        pytest.param("{}\x00", "not strict JSON", id="T9 trailing NUL"),
        pytest.param("[1,]", "not strict JSON", id="T9 trailing comma"),
        pytest.param("{'a': 1}", "not strict JSON", id="T9 single quotes"),
        pytest.param('{"a": 01}', "not strict JSON", id="T9 leading zero"),
        pytest.param('"a\nb"', "not strict JSON", id="T9 a raw control character"),
        pytest.param("", "not strict JSON", id="T9 nothing"),
        pytest.param("[" * 65 + "]" * 65, "deeper than 64", id="T9 depth 65"),
        pytest.param("[" * 1_000, "deeper than 64|not strict", id="T9 brackets to the bound"),
        pytest.param(" " * 1_001, "1001 bytes, the bound is 1000", id="T9 one byte too long"),
    ],
)
def test_text_that_two_readers_may_read_apart_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        read(text)


@pytest.mark.parametrize(
    "text",
    [pytest.param("[" * 5_000_000, id="T9 10 MB"), pytest.param("9" * 10**7, id="T9 digits")],
)
def test_a_large_text_is_refused_by_its_size_alone(text: str) -> None:
    with pytest.raises(ContractError, match="the bound is 1000"):
        read(text)


@pytest.mark.parametrize("depth", [pytest.param(100_000, id="T9 deeper than any stack")])
def test_a_deep_text_within_its_size_is_refused(depth: int) -> None:
    with pytest.raises(ContractError, match="deeper than 64"):
        strict_json("[" * depth + "]" * depth, "action", bytes_max=10**6)


@pytest.mark.parametrize("digits", [pytest.param(5_000, id="T9 more digits than Python converts")])
def test_a_long_number_within_its_size_is_refused(digits: int) -> None:
    with pytest.raises(ContractError):
        strict_json("9" * digits, "action", bytes_max=10**6)


def test_what_is_well_formed_is_read() -> None:
    assert read('{"a": [1, 2.5, true, null, "\\u00e9"]}') == {"a": [1, 2.5, True, None, "é"]}


def test_minus_zero_is_zero() -> None:
    assert str(read("[-0.0, -0]")) == "[0, 0]"


@given(st.text() | st.binary())
@pytest.mark.parametrize("door", [pytest.param("strict_json", id="acc-A17 T9 strict_json")])
def test_only_a_contract_error_leaves_the_door(door: str, text: str | bytes) -> None:
    try:
        read(text)
    except ContractError:
        return


ALPHABET = st.sampled_from(list('{}[]",:0123456789eE+-.\\u truefalsn\ud800\ufeff\x00'))


@given(st.text(ALPHABET, max_size=60))
@pytest.mark.parametrize("door", [pytest.param("strict_json", id="acc-A17 T9 nearly JSON")])
def test_only_a_contract_error_leaves_the_door_for_what_is_nearly_json(
    door: str, text: str
) -> None:
    try:
        read(text)
    except ContractError:
        return


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b" 1", id="T9 white space"),
        pytest.param(b"1 ", id="T9 white space after"),
        pytest.param(b"1.0", id="T9 a whole float where an integer stands"),
        pytest.param(b"1e0", id="T9 an exponent"),
        pytest.param(b"-0", id="T9 minus zero"),
        pytest.param(b"01", id="T9 a leading zero"),
        pytest.param(b"true", id="T9 a bool where an integer stands"),
        pytest.param(b"1\x00", id="T9 a trailing byte"),
        pytest.param(b"\xef\xbb\xbf1", id="T9 byte order mark"),
    ],
)
def test_a_record_of_ours_has_one_form(raw: bytes) -> None:
    with pytest.raises(FormatError):
        decode(raw, int, "state", bytes_max=100)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'"\\u0041"', id="T9 an escape that is not needed"),
        pytest.param(b'"\\u00e9"', id="T9 an escaped letter"),
        pytest.param(b'"\\/"', id="T9 an escaped slash"),
        pytest.param(b'"\\ud800"', id="T9 half a character"),
        pytest.param(b'"\xff"', id="T9 invalid UTF-8"),
        pytest.param(b'"a', id="T9 cut"),
    ],
)
def test_a_text_of_ours_has_one_form(raw: bytes) -> None:
    with pytest.raises(FormatError):
        decode(raw, str, "state", bytes_max=100)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"1" * 101, "101 bytes, the bound is 100", id="T9 one byte too long"),
        pytest.param(b"[" * 100, "cannot be read|deeper", id="T9 only brackets"),
    ],
)
def test_a_record_out_of_bounds_is_refused_with_the_bound(raw: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode(raw, object, "state", bytes_max=100)


@given(st.binary(max_size=80))
@pytest.mark.parametrize("door", [pytest.param("decode", id="acc-A17 T9 decode")])
def test_only_a_format_error_leaves_the_decoder(door: str, raw: bytes) -> None:
    try:
        decode(raw, object, "state", bytes_max=60)
    except FormatError:
        return


def test_a_mistyped_value_is_named_by_its_place() -> None:
    with pytest.raises(ContractError, match=r"action: .*\$\[0\]"):
        shaped(["a"], list[int], "action")
