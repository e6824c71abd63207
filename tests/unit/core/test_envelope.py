"""An envelope opens only for a trusted key, of its purpose, over exactly these bytes."""

import base64
import copy
import dataclasses
import hmac
import pickle
from collections.abc import Callable
from hashlib import sha256

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.bounds import ENVELOPE_BYTES_MAX
from counterfoil.core.canonical import encode
from counterfoil.core.envelope import (
    CHECKPOINT_TYPE,
    LEASE_TYPE,
    SIGNATURES_MAX,
    MacKey,
    key_ids,
    pre_authentication,
    seal,
    unseal,
)
from counterfoil.core.errors import FormatError, IntegrityError, SignatureError
from counterfoil.core.words import Json

PAYLOAD = b'{"a":1}'
SECRET = b"\x01\x02" * 16
KEY = MacKey(id="k1-a", secret=SECRET)
OTHER = MacKey(id="k1-b", secret=b"\x03\x04" * 16)
TRUSTED = {key.id: key for key in (KEY, OTHER)}
SEALED = seal(CHECKPOINT_TYPE, PAYLOAD, KEY)


def changed(**members: Json) -> bytes:
    """Return the sealed envelope with some of its members replaced or added."""
    return encode(msgspec.json.decode(SEALED) | members)


def signature(key: MacKey, *, keyid: str = "", kind: str = CHECKPOINT_TYPE) -> Json:
    code = key.sign(pre_authentication(kind, PAYLOAD))
    return {"keyid": keyid or key.id, "sig": base64.b64encode(code).decode()}


def opened(envelope: bytes) -> bytes:
    return unseal(envelope, CHECKPOINT_TYPE, TRUSTED)


def test_what_is_sealed_opens() -> None:
    assert opened(SEALED) == PAYLOAD


def test_what_is_signed_is_the_encoding_of_the_protocol() -> None:
    assert pre_authentication("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_lengths_are_counted_in_bytes() -> None:
    assert pre_authentication("é", "ü".encode()) == "DSSEv1 2 é 2 ü".encode()


def test_a_code_is_hmac_sha256_of_the_encoding() -> None:
    expected = hmac.digest(SECRET, pre_authentication(CHECKPOINT_TYPE, PAYLOAD), sha256)
    assert msgspec.json.decode(SEALED)["signatures"] == [
        {"keyid": "k1-a", "sig": base64.b64encode(expected).decode()}
    ]


def test_one_key_signs_many_messages() -> None:
    assert [KEY.sign(b"a"), KEY.sign(b"b"), KEY.sign(b"a")] == [
        hmac.digest(SECRET, message, sha256) for message in (b"a", b"b", b"a")
    ]


def test_a_key_named_in_an_envelope_can_be_listed_unopened() -> None:
    assert key_ids(SEALED) == ("k1-a",)


def test_two_trusted_keys_may_sign_one_envelope() -> None:
    assert opened(changed(signatures=[signature(KEY), signature(OTHER)])) == PAYLOAD


STRANGER = MacKey(id="k1-c", secret=b"\x05\x06" * 16)


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        pytest.param(changed(signatures=[]), "0 signatures", id="T8 an empty list"),
        pytest.param(
            changed(signatures=[signature(KEY), signature(KEY)]),
            "twice by one key",
            id="T8 one key",
        ),
        pytest.param(
            changed(signatures=[signature(KEY), signature(OTHER, keyid="k1-a")]),
            "twice by one key",
            id="T8 one key id with two codes",
        ),
        pytest.param(
            changed(signatures=[signature(KEY), signature(STRANGER)]),
            "no key 'k1-c' is trusted",
            id="T7 a stranger beside a trusted key",
        ),
        pytest.param(
            changed(signatures=[signature(STRANGER)]), "no key 'k1-c'", id="T7 an unknown key"
        ),
        pytest.param(
            changed(signatures=[signature(KEY, keyid="k1-b")]),
            "does not fit",
            id="T7 the key id changed to another valid key",
        ),
        pytest.param(
            changed(signatures=[signature(STRANGER, keyid="k1-a")]),
            "does not fit",
            id="T7 a stranger under a trusted name",
        ),
        pytest.param(
            changed(signatures=[{"keyid": "", "sig": signature(KEY)["sig"]}]),
            "no key ''",
            id="T7 no key id",
        ),
        pytest.param(
            changed(signatures=[{"keyid": "k1-a", "sig": ""}]), "does not fit", id="T8 no code"
        ),
        pytest.param(
            changed(signatures=[signature(KEY, kind=LEASE_TYPE)]),
            "does not fit",
            id="T7 a code of another purpose",
        ),
        pytest.param(changed(payloadType=LEASE_TYPE), "of type", id="T7 another type"),
        pytest.param(
            changed(payload=base64.b64encode(b'{"a":2}').decode()),
            "does not fit",
            id="T1 another payload",
        ),
        pytest.param(
            changed(signatures=[signature(MacKey(id=f"k{n}", secret=SECRET)) for n in range(17)]),
            f"{SIGNATURES_MAX + 1} signatures",
            id="T8 more signatures than anyone needs",
        ),
    ],
)
def test_an_envelope_is_refused_for_its_signature(envelope: bytes, reason: str) -> None:
    with pytest.raises(SignatureError, match=reason):
        opened(envelope)


@pytest.mark.parametrize(
    "envelope",
    [
        pytest.param(changed(alg="none"), id="T8 an algorithm named in the record"),
        pytest.param(
            changed(signatures=[signature(KEY) | {"alg": "none"}]),
            id="T8 an algorithm named in the signature",
        ),
        pytest.param(
            encode({"payload": "", "payloadType": CHECKPOINT_TYPE}), id="T8 no signature member"
        ),
        pytest.param(SEALED + b" ", id="T9 a trailing byte"),
        pytest.param(b"\xef\xbb\xbf" + SEALED, id="T9 byte order mark"),
        pytest.param(SEALED.replace(b'":', b'": '), id="T9 white space"),
        pytest.param(SEALED[:-1] + b',"payload":"x"}', id="T9 a member named twice"),
        pytest.param(changed(payload="eyJhIjoxfQ"), id="T9 base64 without padding"),
        pytest.param(changed(payload="eyJhIjoxfR=="), id="T9 base64 with loose bits"),
        pytest.param(changed(payload="eyJh IjoxfQ=="), id="T9 base64 with a space"),
        pytest.param(changed(payload="é"), id="T9 base64 outside ASCII"),
        pytest.param(changed(payload=None), id="T9 no payload"),
        pytest.param(
            changed(signatures=[{"keyid": "k1-a", "sig": "é"}]), id="T9 a code in no form"
        ),
        pytest.param(b" " * (ENVELOPE_BYTES_MAX + 1), id="T9 one byte too long"),
        pytest.param(b"", id="T9 nothing"),
        pytest.param(b"null", id="T9 null"),
    ],
)
def test_an_envelope_is_refused_for_its_form(envelope: bytes) -> None:
    with pytest.raises(FormatError):
        opened(envelope)


@pytest.mark.parametrize("at", [pytest.param(len(SEALED), id="T1 every bit of an envelope")])
def test_a_flipped_bit_is_refused_by_name(at: int) -> None:
    survivors = []
    for place in range(at):
        for bit in range(8):
            flipped = bytearray(SEALED)
            flipped[place] ^= 1 << bit
            try:
                opened(bytes(flipped))
            except IntegrityError:
                continue
            survivors.append((place, bit))
    assert survivors == []


@pytest.mark.parametrize("at", [pytest.param(len(SEALED), id="T1 cut at every byte")])
def test_a_cut_envelope_is_refused_by_name(at: int) -> None:
    survivors = []
    for length in range(at):
        try:
            opened(SEALED[:length])
        except FormatError:
            continue
        survivors.append(length)
    assert survivors == []


@given(st.binary(max_size=200))
@pytest.mark.parametrize("door", [pytest.param("unseal", id="acc-A17 T9 unseal")])
def test_only_integrity_errors_leave_the_door(door: str, envelope: bytes) -> None:
    with pytest.raises(IntegrityError):
        opened(envelope)


ODD = st.none() | st.integers() | st.text(st.characters(codec="utf-8")) | st.just([]) | st.just({})


@given(st.sampled_from(["payload", "payloadType", "signatures", "alg"]), ODD)
@pytest.mark.parametrize("door", [pytest.param("unseal", id="acc-A17 T9 unseal, nearly right")])
def test_only_integrity_errors_leave_the_door_for_what_is_nearly_right(
    door: str, member: str, value: Json
) -> None:
    try:
        opened(changed(**{member: value}))
    except IntegrityError:
        return
    assert changed(**{member: value}) == SEALED


@pytest.mark.parametrize(
    "length", [pytest.param(n, id=f"acc-077 T7 {n} bytes") for n in (0, 1, 31)]
)
def test_a_short_key_cannot_sign(length: int) -> None:
    with pytest.raises(
        SignatureError, match=f"a key of {length} bytes cannot sign, the bound is 32"
    ):
        MacKey(id="k1-a", secret=b"s" * length)


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(repr, id="acc-078 T23 repr"),
        pytest.param(str, id="acc-078 T23 str"),
        pytest.param(lambda key: f"{key!a}", id="acc-078 T23 format"),
        pytest.param(lambda key: str(dataclasses.fields(key)), id="acc-078 T23 fields"),
        pytest.param(lambda key: str([getattr(key, n) for n in key.__slots__]), id="T23 slots"),
        pytest.param(lambda key: str(copy.copy(key)), id="T23 copy"),
    ],
)
def test_a_key_does_not_show_its_secret(show: Callable[[MacKey], str]) -> None:
    shown = show(MacKey(id="k1-a", secret=b"Secret-Secret-Secret-Secret-1234"))
    assert not any(form in shown for form in ("Secret", b"Secret".hex(), "U2VjcmV0"))


@pytest.mark.parametrize(
    "take_out",
    [
        pytest.param(pickle.dumps, id="T23 pickle"),
        pytest.param(msgspec.json.encode, id="T23 JSON"),
        pytest.param(msgspec.msgpack.encode, id="T23 MessagePack"),
        pytest.param(copy.deepcopy, id="T23 deep copy"),
        pytest.param(dataclasses.asdict, id="T23 asdict"),
    ],
)
def test_a_key_cannot_be_taken_out(take_out: Callable[[MacKey], object]) -> None:
    with pytest.raises(TypeError) as refused:
        take_out(MacKey(id="k1-a", secret=b"Secret-Secret-Secret-Secret-1234"))
    assert "Secret" not in str(refused.value)


def test_two_keys_of_one_name_are_not_equal() -> None:
    assert MacKey(id="k1-a", secret=SECRET) != KEY
