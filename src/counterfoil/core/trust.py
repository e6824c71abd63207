"""Trust roots: who may sign statements, for what, and until when.

Approvers and reviewers are two roots. A root that is missing trusts nobody, and no
root ever stands in for the other. What a signer's key signed stays readable after the
key is retired; it lets nothing new happen.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from counterfoil.core.envelope import Verifier
from counterfoil.core.errors import ConfigError
from counterfoil.core.words import Risk, identifier

SIGNERS_MAX = 256
"""Signers of one file: people, not devices."""


class Role(StrEnum):
    """What a signer may sign."""

    APPROVER = "approver"
    REVIEWER = "reviewer"


class SignerScope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a signer may decide on; an empty list means everything of its sort."""

    tasks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    risks: tuple[Risk, ...] = ()
    adapters: tuple[str, ...] = ()


class SignerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signer of a trust file.

    Attributes:
        id: Name of the person or authority.
        role: What it may sign.
        algorithm: "ed25519", or "hmac-sha256", which the runtime itself could forge.
        key: Public key in base64; for HMAC, the source of the secret.
        scope: What it may decide on.
        valid_from_ms: UTC; statements issued before do not count.
        valid_until_ms: UTC, exclusive; 0 means without end.
        revoked_at_ms: UTC; 0 means not revoked.
    """

    id: str
    role: Role
    algorithm: Literal["ed25519", "hmac-sha256"] = "ed25519"
    key: str
    scope: SignerScope = SignerScope()
    valid_from_ms: int = 0
    valid_until_ms: int = 0
    revoked_at_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedSigner:
    """A signer with the power to verify what it signed."""

    entry: SignerEntry
    key_id: str
    verifier: Verifier = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustRoots:
    """Signers by key id, one mapping per role."""

    approvers: Mapping[str, TrustedSigner]
    reviewers: Mapping[str, TrustedSigner]

    def of(self, role: Role) -> Mapping[str, TrustedSigner]:
        """Return the signers of a role."""
        return self.approvers if role is Role.APPROVER else self.reviewers


NOBODY = TrustRoots(approvers={}, reviewers={})
"""The roots of a project without a trust file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """Verifies Ed25519 signatures."""

    raw: bytes

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return whether `signature` is this key's signature of `message`."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateKey:
    """Signs with Ed25519; the key is never shown."""

    id: str
    key: Ed25519PrivateKey = field(repr=False)

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of `message`."""
        return self.key.sign(message)


def signer_key_id(public: bytes) -> str:
    """Return the key id of a signer: "s1-" and the first 16 digits of the key's hash."""
    return f"s1-{sha256(b'counterfoil/v1/signer' + public).hexdigest()[:16]}"


def public_key(entry: SignerEntry) -> PublicKey:
    """Return the public key of an Ed25519 entry.

    Raises:
        ConfigError: It is not 32 bytes of base64.
    """
    try:
        raw = base64.b64decode(entry.key, validate=True)
    except ValueError as error:
        raise ConfigError(f"the key of signer {entry.id} is not base64") from error
    if len(raw) != 32:
        raise ConfigError(f"the key of signer {entry.id} has {len(raw)} bytes, it must have 32")
    return PublicKey(raw=raw)


def roots_of(signers: tuple[TrustedSigner, ...]) -> TrustRoots:
    """Return the roots of a list of signers.

    Raises:
        ConfigError: An id is no identifier or named twice, a key stands twice, or there
            are more than `SIGNERS_MAX`.
    """
    if len(signers) > SIGNERS_MAX:
        raise ConfigError(
            f"the trust file names {len(signers)} signers, the bound is {SIGNERS_MAX}"
        )
    for what, names in (
        ("signer", [signer.entry.id for signer in signers]),
        ("key", [signer.key_id for signer in signers]),
    ):
        for name in names:
            identifier(name, what)
        if len(set(names)) != len(names):
            raise ConfigError(
                f"the trust file names a {what} twice",
                move="give each signer a name, a role and a key of its own",
            )
    by_role = {
        role: {signer.key_id: signer for signer in signers if signer.entry.role is role}
        for role in Role
    }
    return TrustRoots(approvers=by_role[Role.APPROVER], reviewers=by_role[Role.REVIEWER])


def standing_problem(
    entry: SignerEntry,
    *,
    issued_at_ms: int,
    now_ms: int,
    task: str,
    kind: str,
    risk: Risk | None,
    adapter: str,
) -> str:
    """Return why a signer may not decide on this now, or an empty string.

    Args:
        entry: The signer.
        issued_at_ms: When the statement was signed, as it says itself.
        now_ms: UTC, never before the run's floor.
        task: Task of the run.
        kind: Kind of the action; empty when the matter has none.
        risk: Its risk class; None when the matter has none.
        adapter: Its adapter; empty when the matter has none.
    """
    if entry.revoked_at_ms and now_ms >= entry.revoked_at_ms:
        return f"signer {entry.id} was revoked at {entry.revoked_at_ms}"
    if issued_at_ms < entry.valid_from_ms or now_ms < entry.valid_from_ms:
        return f"signer {entry.id} is valid from {entry.valid_from_ms}"
    if entry.valid_until_ms and now_ms >= entry.valid_until_ms:
        return f"signer {entry.id} was valid until {entry.valid_until_ms}"
    scope = entry.scope
    for what, allowed, value in (
        ("task", scope.tasks, task),
        ("kind", scope.kinds, kind),
        ("risk", tuple(scope.risks), risk or ""),
        ("adapter", scope.adapters, adapter),
    ):
        if allowed and value not in allowed:
            return f"signer {entry.id} may decide on {what} {', '.join(allowed)}, not {value!r}"
    return ""
