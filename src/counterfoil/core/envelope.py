"""DSSE envelopes: sign exact bytes under a type, verify before parsing.

A key is an id with the power to sign or to verify. Which algorithm is used follows
from the key alone; nothing in a record can choose it.

Source: DSSE v1 protocol (secure-systems-lab/dsse), pre-authentication encoding.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Protocol

import msgspec

from counterfoil.core.bounds import ENVELOPE_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import FormatError, SignatureError

CHECKPOINT_TYPE = "application/vnd.counterfoil.checkpoint.v1+json"
LEASE_TYPE = "application/vnd.counterfoil.lease.v1+json"
ARCHIVE_TYPE = "application/vnd.counterfoil.archive.v1+json"
SIGNATURES_MAX = 16

MAC_SECRET_BYTES_MIN = 32
"""A shorter secret is weaker than SHA-256."""


class Signer(Protocol):
    """What can sign: an id and a function of bytes."""

    @property
    def id(self) -> str:
        """The key id that goes into the envelope."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`."""
        ...


class Verifier(Protocol):
    """What can tell whether a signature is its own."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` is this key's signature of `message`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MacKey:
    """HMAC-SHA256 under one secret; signs and verifies.

    The secret is taken in and not kept: what is kept is a started code, which shows in
    no listing of fields and can be neither pickled nor written as JSON.

    Raises:
        SignatureError: The secret has fewer than `MAC_SECRET_BYTES_MIN` bytes.
    """

    id: str
    secret: InitVar[bytes]
    _started: hmac.HMAC = field(init=False, repr=False)

    def __post_init__(self, secret: bytes) -> None:
        if len(secret) < MAC_SECRET_BYTES_MIN:
            raise SignatureError(
                f"a key of {len(secret)} bytes cannot sign, the bound is {MAC_SECRET_BYTES_MIN}"
            )
        object.__setattr__(self, "_started", hmac.new(secret, digestmod="sha256"))

    def sign(self, message: bytes) -> bytes:
        """Return the 32-byte code of `message`."""
        code = self._started.copy()
        code.update(message)
        return code.digest()

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(self.sign(message), signature)


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signature: the id of its key and base64 of its bytes."""

    keyid: str
    sig: str


class Envelope(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """A signed payload, as DSSE spells it."""

    payload: str
    payload_type: str
    signatures: list[Signature]


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: the type and the payload, each with its length."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def seal(payload_type: str, payload: bytes, signer: Signer) -> bytes:
    """Return the envelope bytes over `payload`."""
    code = signer.sign(pre_authentication(payload_type, payload))
    return encode(
        Envelope(
            payload=_written(payload),
            payload_type=payload_type,
            signatures=[Signature(keyid=signer.id, sig=_written(code))],
        )
    )


def unseal(envelope: bytes, payload_type: str, verifiers: Mapping[str, Verifier]) -> bytes:
    """Return the payload of an envelope that a trusted key signed under this type.

    Raises:
        FormatError: The bytes are no envelope in its one form.
        SignatureError: Another type, no signature, a key named twice, an unknown or
            retired key, or a code that does not fit.
    """
    opened = decode(envelope, Envelope, "envelope", bytes_max=ENVELOPE_BYTES_MAX)
    if opened.payload_type != payload_type:
        raise SignatureError(f"the envelope is of type {opened.payload_type!r:.80}")
    if not 1 <= len(opened.signatures) <= SIGNATURES_MAX:
        raise SignatureError(f"the envelope has {len(opened.signatures)} signatures")
    if len({signature.keyid for signature in opened.signatures}) != len(opened.signatures):
        raise SignatureError("the envelope is signed twice by one key")
    payload = _base64(opened.payload, "payload")
    message = pre_authentication(payload_type, payload)
    for signature in opened.signatures:
        verifier = verifiers.get(signature.keyid)
        if verifier is None:
            raise SignatureError(f"no key {signature.keyid!r:.80} is trusted to open this")
        if not verifier.verify(message, _base64(signature.sig, "signature")):
            raise SignatureError(f"the signature under key {signature.keyid!r:.80} does not fit")
    return payload


def key_ids(envelope: bytes) -> tuple[str, ...]:
    """Return the key ids an envelope names, unverified: for messages and listings.

    Raises:
        FormatError: The bytes are no envelope.
    """
    opened = decode(envelope, Envelope, "envelope", bytes_max=ENVELOPE_BYTES_MAX)
    return tuple(signature.keyid for signature in opened.signatures)


def payload_of(envelope: bytes) -> bytes:
    """Return the payload of an envelope without verifying it: for what was verified before.

    Raises:
        FormatError: The bytes are no envelope.
    """
    opened = decode(envelope, Envelope, "envelope", bytes_max=ENVELOPE_BYTES_MAX)
    return _base64(opened.payload, "payload")


def _written(raw: bytes) -> str:
    """Return the one base64 form of bytes."""
    return binascii.b2a_base64(raw, newline=False).decode("ascii")


def _base64(text: str, what: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"the {what} is not base64") from error
    if _written(raw) != text:
        raise FormatError(f"the {what} is not in its one base64 form")
    return raw
