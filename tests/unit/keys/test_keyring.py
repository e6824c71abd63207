"""A keyring signs with one key, opens with several, and gives none away."""

import copy
import dataclasses
import hmac
import os
import pickle
from collections.abc import Callable
from hashlib import sha256

import msgspec
import pytest

from counterfoil.core.envelope import CHECKPOINT_TYPE, LEASE_TYPE, seal, unseal
from counterfoil.core.errors import ConfigError, SignatureError
from counterfoil.keys import SECRET_BYTES, Keyring, KeyStatus, Purpose, keyring_of
from counterfoil.keys.keyring import KEYS_MAX, RootKey, made
from tests.support.runs import checkpoint, fresh
from tests.support.secrecy import forms

OLD = bytes(range(32))
NEW = bytes(range(32, 64))
PAYLOAD = b"{}"


def hkdf(secret: bytes, label: str) -> bytes:
    """Return 32 bytes by RFC 5869, written a second time from its two steps."""
    extracted = hmac.digest(b"\x00" * 32, secret, sha256)
    return hmac.digest(extracted, f"counterfoil/v1/{label}".encode() + b"\x01", sha256)


def sealed(ring: Keyring, purpose: Purpose = Purpose.CHECKPOINT) -> bytes:
    return seal(CHECKPOINT_TYPE, PAYLOAD, ring.signer(purpose))


def opened(envelope: bytes, ring: Keyring, purpose: Purpose = Purpose.CHECKPOINT) -> bytes:
    return unseal(envelope, CHECKPOINT_TYPE, ring.verifiers(purpose))


def with_status(status: KeyStatus) -> Keyring:
    """Return a ring that signs with the new key and holds the old one in some status."""
    return made(
        [
            RootKey(secret=NEW, status=KeyStatus.ACTIVE),
            RootKey(secret=OLD, status=status),
        ],
        "the test",
    )


def test_what_a_ring_seals_it_opens() -> None:
    ring = keyring_of(OLD)
    assert opened(sealed(ring), ring) == PAYLOAD


@pytest.mark.parametrize("purpose", Purpose)
def test_a_derived_key_is_the_one_of_rfc_5869(purpose: Purpose) -> None:
    expected = hmac.digest(hkdf(OLD, purpose.value), b"message", sha256)
    assert keyring_of(OLD).signer(purpose).sign(b"message") == expected


def test_a_key_id_is_derived_under_a_label_of_its_own() -> None:
    assert keyring_of(OLD).rows[0].id == f"k1-{hkdf(OLD, 'key-id').hex()[:16]}"


def test_a_key_has_one_id_for_every_purpose() -> None:
    ring = keyring_of(OLD)
    assert {ring.signer(purpose).id for purpose in Purpose} == {ring.rows[0].id}


@pytest.mark.parametrize(
    ("made_for", "opened_for"),
    [
        pytest.param(Purpose.LEASE, Purpose.CHECKPOINT, id="T7 a lease key on a checkpoint"),
        pytest.param(Purpose.CHECKPOINT, Purpose.LEASE, id="T7 a checkpoint key on a lease"),
    ],
)
def test_a_key_of_another_purpose_opens_nothing(made_for: Purpose, opened_for: Purpose) -> None:
    ring = keyring_of(OLD)
    with pytest.raises(SignatureError, match="does not fit"):
        opened(sealed(ring, made_for), ring, opened_for)


@pytest.mark.parametrize("kind", [pytest.param(LEASE_TYPE, id="T7 a lease record")])
def test_a_lease_record_is_no_checkpoint(kind: str) -> None:
    ring = keyring_of(OLD)
    with pytest.raises(SignatureError):
        opened(seal(kind, PAYLOAD, ring.signer(Purpose.LEASE)), ring)


@pytest.mark.parametrize("status", [pytest.param(KeyStatus.OPENING, id="acc-A18 after rotation")])
def test_an_opening_key_opens_what_it_sealed_before(status: KeyStatus) -> None:
    assert opened(sealed(keyring_of(OLD)), with_status(status)) == PAYLOAD


@pytest.mark.parametrize("status", [pytest.param(KeyStatus.RETIRED, id="acc-A18 T7 retired")])
def test_a_retired_key_opens_nothing(status: KeyStatus) -> None:
    with pytest.raises(SignatureError, match=r"no key 'k1-.*' is trusted"):
        opened(sealed(keyring_of(OLD)), with_status(status))


@pytest.mark.parametrize("status", [KeyStatus.OPENING, KeyStatus.RETIRED])
def test_only_the_active_key_signs(status: KeyStatus) -> None:
    assert with_status(status).signer(Purpose.CHECKPOINT).id == keyring_of(NEW).rows[0].id


@pytest.mark.parametrize("other", [pytest.param(NEW, id="acc-071 T7 another ring")])
def test_a_checkpoint_of_another_ring_does_not_open(other: bytes) -> None:
    with pytest.raises(SignatureError):
        opened(sealed(keyring_of(OLD)), keyring_of(other))


@pytest.mark.parametrize("swapped", [pytest.param(True, id="T7 the id of the other valid key")])
def test_a_key_id_does_not_stand_for_another_key(swapped: bool) -> None:
    ring = keyring_of(OLD, NEW)
    envelope = sealed(ring).replace(ring.rows[0].id.encode(), ring.rows[1].id.encode())
    with pytest.raises(SignatureError, match="does not fit"):
        opened(envelope, ring)


def test_keys_are_derived_once() -> None:
    ring = keyring_of(OLD)
    assert ring.signer(Purpose.CHECKPOINT) is ring.signer(Purpose.CHECKPOINT)


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        pytest.param(b"", "has 0 bytes, exactly 32", id="acc-077 no secret"),
        pytest.param(OLD[:31], "has 31 bytes, exactly 32", id="acc-077 T7 one byte short"),
        pytest.param(OLD[:16], "has 16 bytes, exactly 32", id="acc-077 half a secret"),
        pytest.param(OLD + b"x", "has 33 bytes, exactly 32", id="acc-077 one byte long"),
        pytest.param(bytes(32), "one byte repeated", id="acc-077 only zeros"),
        pytest.param(b"k" * 32, "one byte repeated", id="acc-077 one letter"),
    ],
)
def test_a_weak_secret_is_refused(secret: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        keyring_of(secret)


def test_a_secret_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="one key twice"):
        keyring_of(OLD, OLD)


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        pytest.param((), "0 active keys", id="no key"),
        pytest.param((KeyStatus.OPENING,), "0 active keys", id="no key that signs"),
        pytest.param((KeyStatus.RETIRED,), "0 active keys", id="only a retired key"),
        pytest.param((KeyStatus.ACTIVE, KeyStatus.ACTIVE), "2 active keys", id="two that sign"),
        pytest.param(
            (KeyStatus.ACTIVE, *[KeyStatus.RETIRED] * KEYS_MAX), "the bound is 64", id="too many"
        ),
    ],
)
def test_a_ring_is_refused_with(statuses: tuple[KeyStatus, ...], reason: str) -> None:
    roots = [RootKey(secret=os.urandom(SECRET_BYTES), status=status) for status in statuses]
    with pytest.raises(ConfigError, match=reason):
        made(roots, "the test")


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(repr, id="acc-078 T23 repr"),
        pytest.param(str, id="acc-078 T23 str"),
        pytest.param(lambda ring: repr(ring.rows), id="acc-078 T23 a listing"),
        pytest.param(lambda ring: repr(ring.signers), id="acc-078 T23 its signers"),
        pytest.param(lambda ring: repr(ring.openers), id="acc-078 T23 its openers"),
        pytest.param(lambda ring: msgspec.json.encode(ring.rows).decode(), id="T23 rows as JSON"),
        pytest.param(
            lambda ring: repr([getattr(ring, n) for n in ring.__slots__]), id="T23 every slot"
        ),
        pytest.param(
            lambda ring: repr(RootKey(secret=OLD, status=KeyStatus.ACTIVE)), id="T23 a root"
        ),
    ],
)
def test_a_ring_does_not_show_its_secret(show: Callable[[Keyring], str]) -> None:
    text = show(keyring_of(OLD))
    hidden = [*forms(OLD), *forms(hkdf(OLD, "checkpoint")), *forms(hkdf(OLD, "lease"))]
    assert [form for form in hidden if form in text] == []


@pytest.mark.parametrize(
    "take_out",
    [
        pytest.param(pickle.dumps, id="T23 pickle"),
        pytest.param(copy.deepcopy, id="T23 deep copy"),
        pytest.param(copy.copy, id="T23 copy"),
        pytest.param(msgspec.json.encode, id="T23 JSON"),
        pytest.param(msgspec.msgpack.encode, id="T23 MessagePack"),
        pytest.param(dataclasses.asdict, id="T23 asdict"),
    ],
)
def test_a_ring_cannot_be_taken_out(take_out: Callable[[Keyring], object]) -> None:
    with pytest.raises(TypeError) as refused:
        take_out(keyring_of(OLD))
    assert [form for form in forms(OLD) if form in str(refused.value)] == []


@pytest.mark.parametrize("hidden", [pytest.param(OLD, id="acc-078 T23 a sealed checkpoint")])
def test_a_checkpoint_does_not_hold_the_key_it_was_sealed_with(hidden: bytes) -> None:
    row = checkpoint(fresh())
    sealed_row = sealed(keyring_of(hidden))
    written = repr(row.envelope + row.state + row.events + sealed_row)
    assert [form for form in forms(hidden) if form in written] == []
