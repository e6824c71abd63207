"""One value has one digest, however it is spelt; two values never share one."""

import math
import os
import subprocess
import sys
from collections import OrderedDict
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import IntEnum, StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.bounds import INTEGER_MAX, JSON_DEPTH_MAX
from counterfoil.core.canonical import canonical, native, normalise, strict_json
from counterfoil.core.errors import ContractError
from counterfoil.core.intent import intent_digest
from counterfoil.core.judge import form_intent
from counterfoil.core.words import IntentDigest, Json
from tests.support.runs import PUT, intent

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class Count(IntEnum):
    ONE = 1


class Nowhere(tzinfo):
    """A zone that knows no offset, so that its times are naive."""

    def utcoffset(self, at: datetime | None) -> None:
        return None


def digest_of(value: object) -> IntentDigest:
    return intent_digest(intent(normalise(value, "arguments")))


def nested(depth: int) -> Json:
    value: Json = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(5, 5.0, id="C10 a whole float and its integer"),
        pytest.param(0, -0.0, id="C10 zero and minus zero"),
        pytest.param(
            {"a": 1, "b": [2, {"c": 3, "d": 4}]},
            OrderedDict([("b", [2, {"d": 4, "c": 3}]), ("a", 1)]),
            id="C10 order of members",
        ),
        pytest.param(
            NOON, NOON.astimezone(timezone(timedelta(hours=5))), id="C10 one instant in two offsets"
        ),
        pytest.param((1, 2), [1, 2], id="C10 tuple and list"),
        pytest.param("red", Colour.RED, id="C10 text and its enumeration"),
        pytest.param(1, Count.ONE, id="C10 integer and its enumeration"),
    ],
)
def test_two_spellings_of_a_value_have_one_digest(one: object, other: object) -> None:
    assert digest_of(one) == digest_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(1, True, id="C10 one and true"),
        pytest.param(0, False, id="C10 zero and false"),
        pytest.param(1, "1", id="C10 number and text"),
        pytest.param([1, 2], [2, 1], id="C10 order of a list"),
        pytest.param({}, {"a": None}, id="C10 missing and null"),
        pytest.param({"a": None}, {"a": []}, id="C10 null and empty list"),
        pytest.param({"a": []}, {"a": {}}, id="C10 empty list and empty object"),
        pytest.param(0.1 + 0.2, 0.3, id="C10 two neighbouring floats"),
        pytest.param(INTEGER_MAX, INTEGER_MAX - 1, id="C10 the two largest integers"),
        pytest.param("caf\u00e9", "cafe\u0301", id="C10 two Unicode forms of one name"),
        pytest.param(b"ab", "ab", id="C10 bytes and text"),
        pytest.param(b"ab", "YWI=", id="C10 bytes and their base64"),
        pytest.param(NOON, NOON + timedelta(microseconds=1), id="C10 two instants"),
        pytest.param("a", "a ", id="C10 text with a space"),
        pytest.param("\x00", "\\u0000", id="C10 C14 a NUL and the text that spells it"),
    ],
)
def test_two_values_have_two_digests(one: object, other: object) -> None:
    assert digest_of(one) != digest_of(other)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(math.nan, "not a finite number", id="C10 T9 NaN"),
        pytest.param(math.inf, "not a finite number", id="C10 T9 infinity"),
        pytest.param(-math.inf, "not a finite number", id="C10 T9 minus infinity"),
        pytest.param(1e20, "beyond", id="C10 1e20 is refused in both spellings, here the float"),
        pytest.param(10**20, "beyond", id="C10 1e20 is refused in both spellings, here the digits"),
        pytest.param(2**53, "beyond", id="C10 T9 the first integer that has a neighbour"),
        pytest.param(2.0**53, "beyond", id="C10 T9 the same as a float"),
        pytest.param(-(2**53), "beyond", id="C10 T9 its negative"),
        pytest.param(NOON.replace(tzinfo=None), "without a time zone", id="C10 naive datetime"),
        pytest.param(
            datetime(2026, 1, 2, tzinfo=Nowhere()),
            "without a time zone",
            id="C10 zone of no offset",
        ),
        pytest.param(
            datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
            "no UTC form",
            id="C10 an instant before the first year",
        ),
        pytest.param("half \ud83d", "half a character", id="C10 T9 half a surrogate pair"),
        pytest.param({"\udc00": 1}, "half a character", id="C10 T9 half a pair in a name"),
        pytest.param({1: "a"}, "no text", id="C10 a member name that is no text"),
        pytest.param({1, 2}, "no JSON form", id="C10 a set has no order"),
        pytest.param(1j, "no JSON form", id="C10 a complex number"),
        pytest.param(nested(JSON_DEPTH_MAX + 1), "deeper than 64", id="T9 depth 65"),
        pytest.param({"$counterfoil": "bytes"}, "reserved", id="C10 a forged mark"),
        pytest.param(
            {"$counterfoil": "bytes", "base64": "!"}, "not base64", id="C10 a mark with no bytes"
        ),
    ],
)
def test_a_value_without_one_form_is_refused(value: object, reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        digest_of(value)


def test_the_deepest_allowed_value_has_a_form() -> None:
    assert canonical(normalise(nested(JSON_DEPTH_MAX), "value")) == b"[" * 64 + b"]" * 64


def test_a_refusal_names_the_field_and_not_the_value() -> None:
    with pytest.raises(ContractError, match=r"^arguments holds half a character") as refused:
        digest_of("secret \ud800")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("token", [pytest.param("t-2", id="C10 a credential that changes")])
def test_a_volatile_argument_is_in_no_digest(token: str) -> None:
    before, _ = form_intent(PUT, {"item": "a", "token": "t-1"}, "box-1")
    after, volatile = form_intent(PUT, {"item": "a", "token": token}, "box-1")
    assert (intent_digest(before), volatile) == (intent_digest(after), {"token": token})


@pytest.mark.parametrize("prefix", [pytest.param("i1:", id="C10 version of the digest")])
def test_a_digest_names_its_canonical_form(prefix: str) -> None:
    assert digest_of(1).startswith(prefix)


@pytest.mark.parametrize("seed", [pytest.param(s, id=f"C10 hash seed {s}") for s in (0, 1, 4242)])
def test_a_digest_does_not_depend_on_the_hash_seed(seed: int) -> None:
    program = (
        "from counterfoil.core.canonical import canonical, normalise\n"
        "names = {'alpha', 'beta', 'gamma', 'delta', 'epsilon'}\n"
        "print(canonical(normalise({name: {n: 1.0 for n in names} for name in names}, 'v')))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        check=True,
        capture_output=True,
        text=True,
    )
    names = ("alpha", "beta", "delta", "epsilon", "gamma")
    assert answer.stdout.strip() == str(
        canonical({name: dict.fromkeys(names, 1) for name in names})
    )


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"a": b"\x00\xff"}, id="C10 bytes come back as bytes"),
        pytest.param({"a": [1, None, {"b": "c"}]}, id="C10 plain values come back"),
    ],
)
def test_a_program_gets_back_what_it_gave(value: Json) -> None:
    assert native(normalise(value, "value")) == value


numbers = st.integers(-INTEGER_MAX, INTEGER_MAX) | st.floats(-1e15, 1e15)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_normalising_twice_changes_nothing(value: Json) -> None:
    once = normalise({"value": value} if "$counterfoil" not in str(value) else {}, "value")
    assert normalise(once, "value") == once


@given(values)
def test_the_canonical_form_is_read_back_as_the_same_value(value: Json) -> None:
    once = normalise([value] if "$counterfoil" not in str(value) else [], "value")
    assert strict_json(canonical(once), "value", bytes_max=10**6) == once


@given(values, values)
def test_equal_digests_mean_equal_values(one: Json, other: Json) -> None:
    if "$counterfoil" in f"{one}{other}":
        return
    first, second = normalise(one, "value"), normalise(other, "value")
    assert (digest_of(one) == digest_of(other)) == (canonical(first) == canonical(second))
