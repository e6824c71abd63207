"""The trust file: who may sign statements, kept where no planner can write.

It holds no secret, so others may read it; whoever can write to it decides who approves.
Only this module writes it, whole each time. A signer who is revoked stays in it, so that
what was signed before can still be read. Where there is no file, nobody is trusted.
"""

import re
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Literal

import msgspec
from msgspec.structs import replace

from counterfoil.core.canonical import encode, shaped, strict_json
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.core.trust import (
    NOBODY,
    SIGNERS_MAX,
    Role,
    SignerEntry,
    TrustedSigner,
    TrustRoots,
    public_key,
    roots_of,
    signer_key_id,
)
from counterfoil.core.words import identifier
from counterfoil.keys.keyring import Purpose
from counterfoil.keys.private import locked_folder, opened_folder, read, write
from counterfoil.keys.source import open_source, parse_source

FILE_BYTES_MAX = 1024 * 1024
"""A full file takes a few hundred bytes for each signer, scopes included."""

HMAC = "hmac-sha256"

_PLACE = re.compile(r" - at `(\$[\w.\[\]]*)`$")
_PURPOSES = {Role.APPROVER: Purpose.APPROVER, Role.REVIEWER: Purpose.REVIEWER}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; another format is another shape."""

    format: Literal[1]
    signers: tuple[SignerEntry, ...]


def load_trust(path: Path) -> TrustRoots:
    """Return the roots that a trust file names; nobody where there is no file.

    Raises:
        ConfigError: Others may write to the file or its folder, it is a link or another
            user's, it is not in its strict form, or a signer in it cannot be used.
        UnavailableError: It, or a key that it refers to, cannot be read just then.
    """
    signers = list_signers(path)
    return roots_of(tuple(trusted(entry) for entry in signers)) if signers else NOBODY


def list_signers(path: Path) -> tuple[SignerEntry, ...]:
    """Return every signer of a trust file, revoked ones included.

    Raises:
        ConfigError, UnavailableError: As `load_trust`.
    """
    if not path.is_symlink() and not path.exists():
        return ()
    with opened_folder(path) as folder:
        return _stored(path, folder)


def add_signer(path: Path, entry: SignerEntry) -> SignerEntry:
    """Trust one more signer, and return the entry.

    Args:
        path: The trust file; made, with its folder, if there is none.
        entry: Whom to trust, with what.

    Raises:
        ConfigError: As `load_trust`, the name or the key is there already, the key is
            none, or the file is full.
        UnavailableError: The disk does not take it, or another writer holds the lock.
    """
    trusted(entry)

    def change(entries: tuple[SignerEntry, ...]) -> tuple[SignerEntry, ...]:
        if any(known.id == entry.id for known in entries):
            raise ConfigError(
                f"{path} names a signer {entry.id} already",
                move="choose another name: what was signed under the first one keeps it",
            )
        added = (*entries, entry)
        roots_of(tuple(trusted(each) for each in added))
        return added

    _change(path, change)
    return entry


def revoke_signer(path: Path, name: str, *, now_ms: int | None = None) -> SignerEntry:
    """Have a signer decide nothing any more, and return the entry, which stays.

    Args:
        path: The trust file.
        name: The signer.
        now_ms: From when, UTC; the wall clock by default.

    Raises:
        ConfigError: As `load_trust`, or there is no such signer, or one revoked before.
        UnavailableError: The disk does not take it, or another writer holds the lock.
    """
    at_ms = time_ns() // 1_000_000 if now_ms is None else now_ms

    def change(entries: tuple[SignerEntry, ...]) -> tuple[SignerEntry, ...]:
        found = next((entry for entry in entries if entry.id == name), None)
        if found is None:
            raise ConfigError(
                f"{path} names no signer {name!r:.80}", move="see `counterfoil trust list`"
            )
        if found.revoked_at_ms:
            raise ConfigError(f"signer {name} was revoked before", move="nothing is left to do")
        return tuple(replace(e, revoked_at_ms=at_ms) if e is found else e for e in entries)

    return next(entry for entry in _change(path, change) if entry.id == name)


def trusted(entry: SignerEntry) -> TrustedSigner:
    """Return a signer with the power to verify what it signed.

    An HMAC key is derived for the role, so that one secret never stands in for another
    role, nor for a checkpoint.

    Raises:
        ConfigError: Name, times or key cannot be used, or a secret is not there.
        UnavailableError: A secret cannot be read just then.
    """
    try:
        identifier(entry.id, "signer")
    except ContractError as error:
        raise ConfigError(f"a signer of the trust file: {error.message}") from error
    times = (entry.valid_from_ms, entry.valid_until_ms, entry.revoked_at_ms)
    if min(times) < 0 or 0 < entry.valid_until_ms <= entry.valid_from_ms:
        raise ConfigError(f"signer {entry.id} is valid until before it is valid from")
    if entry.algorithm == HMAC:
        key = open_source(parse_source(entry.key)).signer(_PURPOSES[entry.role])
        return TrustedSigner(entry=entry, key_id=key.id, verifier=key)
    public = public_key(entry)
    return TrustedSigner(entry=entry, key_id=signer_key_id(public.raw), verifier=public)


def _change(
    path: Path, change: Callable[[tuple[SignerEntry, ...]], tuple[SignerEntry, ...]]
) -> tuple[SignerEntry, ...]:
    with locked_folder(path, make=True) as folder:
        known = _stored(path, folder) if path.is_symlink() or path.exists() else ()
        entries = change(known)
        raw = encode(_File(format=1, signers=entries))
        write(path, folder, msgspec.json.format(raw, indent=2) + b"\n")
    return entries


def _stored(path: Path, folder: int) -> tuple[SignerEntry, ...]:
    raw = read(path, folder, bytes_max=FILE_BYTES_MAX, is_secret=False)
    try:
        value = strict_json(raw, "trust file", bytes_max=FILE_BYTES_MAX)
        entries = shaped(value, _File, "trust file").signers
    except ContractError as error:
        place = _PLACE.search(error.message)
        where = f"at {place[1]}" if place else "no strict JSON"
        raise ConfigError(
            f"{path} is no trust file of format 1: {where}",
            move="put back a copy of the file; `counterfoil trust` writes it",
        ) from error
    if len(entries) > SIGNERS_MAX:
        raise ConfigError(f"{path} names {len(entries)} signers, the bound is {SIGNERS_MAX}")
    return entries
