"""Keys of people: made, loaded, and used to sign statements away from any store.

A private key lies in a file for one user alone, and is never shown. What it signs is
built here from the request or the case itself, so that a statement binds exactly that.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from counterfoil.core.approval import (
    APPROVAL_TYPE,
    FORMAT,
    REVOCATION_TYPE,
    Approval,
    Request,
    Revocation,
)
from counterfoil.core.canonical import encode
from counterfoil.core.envelope import Signer, seal
from counterfoil.core.errors import ConfigError
from counterfoil.core.review import (
    DECISION_TYPE,
    MIGRATION_TYPE,
    Decision,
    Migration,
)
from counterfoil.core.trust import PrivateKey, Role, signer_key_id
from counterfoil.core.words import Digest, RunId
from counterfoil.keys.keyring import Purpose, clean
from counterfoil.keys.private import create, opened_folder, read
from counterfoil.keys.source import SourceKind, open_source, parse_source

KEY_BYTES_MAX = 16 * 1024
"""A PEM file of one key has a few hundred bytes."""

Passphrase = Callable[[], bytes]
"""Gives the passphrase of a key; called only where the key has one."""


def make_key(path: Path, *, passphrase: bytes | None = None) -> PrivateKey:
    """Make an Ed25519 key in a file for one user alone, and return it.

    Args:
        path: Where; there is no file yet, and its folder is there.
        passphrase: Encrypts the file; None for none.

    Raises:
        ConfigError: There is a file, the folder is open to others, or the passphrase is
            empty.
        UnavailableError: The disk does not take it.
    """
    if passphrase == b"":
        raise ConfigError("the passphrase is empty", move="give one, or make the key without")
    key = Ed25519PrivateKey.generate()
    locked = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    path = path.absolute()
    with opened_folder(path) as folder:
        create(path, folder, pem)
    return _named(key)


@clean
def load_key(path: Path, passphrase: Passphrase) -> PrivateKey:
    """Return the Ed25519 key of a PEM file.

    Args:
        path: The file, with mode 0600.
        passphrase: Called when the key is encrypted.

    Raises:
        ConfigError: There is no such file, others may read it, it is a link or another
            user's, it holds no Ed25519 key, or the passphrase is wrong.
    """
    path = path.absolute()
    with opened_folder(path) as folder:
        raw = read(path, folder, bytes_max=KEY_BYTES_MAX)
    is_locked = b"ENCRYPTED" in raw
    try:
        key = load_pem_private_key(raw, passphrase() if is_locked else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        why = "the passphrase is wrong, or it is no key" if is_locked else "it is no key in PEM"
        raise ConfigError(
            f"{path} cannot be used: {why}", move="make a key with `counterfoil keygen`"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"{path} holds no Ed25519 key", move="make a key with `counterfoil keygen`"
        )
    return _named(key)


def load_signer(text: str, role: Role, passphrase: Passphrase) -> Signer:
    """Return what signs: the key of a PEM file, or an HMAC key by its source.

    Args:
        text: Path of a PEM file; or "file:PATH", "env:NAME" or "command:ARGV".
        role: What is to be signed; an HMAC key is derived for it.
        passphrase: As for `load_key`.

    Raises:
        ConfigError, UnavailableError: As `load_key` and `open_source`.
    """
    if text.partition(":")[0] in tuple(SourceKind):
        purpose = Purpose.APPROVER if role is Role.APPROVER else Purpose.REVIEWER
        return open_source(parse_source(text)).signer(purpose)
    return load_key(Path(text).expanduser(), passphrase)


def public_text(key: PrivateKey) -> str:
    """Return the public key as a trust file holds it: base64."""
    return base64.b64encode(_public(key.key)).decode("ascii")


def sign_approval(
    request: Request,
    key: Signer,
    *,
    signer: str,
    verdict: Literal["approve", "deny"],
    issued_at_ms: int,
    expires_at_ms: int,
    last_proposal: int,
    note: str = "",
) -> bytes:
    """Return a signed approval or denial of exactly this request."""
    approval = Approval(
        format=FORMAT,
        verdict=verdict,
        signer=signer,
        run=request.run,
        task=request.task,
        policy_version=request.policy_version,
        action_id=request.action_id,
        key=request.key,
        digest=request.digest,
        environment=request.environment,
        challenge=request.challenge,
        issued_at_ms=issued_at_ms,
        expires_at_ms=expires_at_ms,
        last_proposal=last_proposal,
        note=note,
    )
    return seal(APPROVAL_TYPE, encode(approval), key)


def sign_revocation(
    request: Request,
    key: Signer,
    *,
    signer: str,
    approval: Digest,
    issued_at_ms: int,
    note: str = "",
) -> bytes:
    """Return a signed revocation of an approval of this request, by the approval's digest."""
    revocation = Revocation(
        format=FORMAT,
        signer=signer,
        run=request.run,
        challenge=request.challenge,
        approval=approval,
        issued_at_ms=issued_at_ms,
        note=note,
    )
    return seal(REVOCATION_TYPE, encode(revocation), key)


def sign_decision(decision: Decision, key: Signer) -> bytes:
    """Return a signed decision, as `core.review.decision_for` builds it."""
    return seal(DECISION_TYPE, encode(decision), key)


def sign_migration(
    key: Signer,
    *,
    signer: str,
    run_id: RunId,
    checkpoint: Digest,
    from_task: Digest,
    to_task: Digest,
    issued_at_ms: int,
    expires_at_ms: int,
    note: str = "",
) -> bytes:
    """Return a signed leave for a run to go on from one head under another task."""
    migration = Migration(
        format=FORMAT,
        signer=signer,
        run=run_id,
        checkpoint=checkpoint,
        from_task=from_task,
        to_task=to_task,
        issued_at_ms=issued_at_ms,
        expires_at_ms=expires_at_ms,
        note=note,
    )
    return seal(MIGRATION_TYPE, encode(migration), key)


def _named(key: Ed25519PrivateKey) -> PrivateKey:
    return PrivateKey(id=signer_key_id(_public(key)), key=key)


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
