"""The key file: root secrets on disk, with one that signs at every moment.

Only this module writes it, whole each time. Retired secrets stay in it, so that a file
shows all that ever signed; nothing is opened with them.
"""

import base64
import binascii
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from time import time_ns
from typing import Literal

import msgspec
from msgspec.structs import replace

from counterfoil.core.canonical import encode, shaped, strict_json
from counterfoil.core.codec import rfc3339
from counterfoil.core.errors import ConfigError, ContractError
from counterfoil.keys.keyring import (
    SECRET_BYTES,
    Keyring,
    KeyRow,
    KeyStatus,
    RootKey,
    clean,
    key_id,
    made,
)
from counterfoil.keys.private import is_there, locked_folder, opened_folder, read, write

FILE_BYTES_MAX = 64 * 1024
"""A full ring takes a quarter of this."""

_PLACE = re.compile(r" - at `(\$[\w.\[\]]*)`$")


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key as the file holds it."""

    id: str
    secret: str
    created_at: str
    status: KeyStatus

    def __repr__(self) -> str:
        return f"_Entry({self.id})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("id", self.id)]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file; another format is another shape."""

    format: Literal[1]
    keys: tuple[_Entry, ...]


@clean
def create_keyring(path: Path, *, now_ms: int | None = None) -> Keyring:
    """Make a key file with one active key, and the folder for it.

    Args:
        path: Where; there is no file yet.
        now_ms: Moment of creation, UTC; the wall clock by default.

    Raises:
        ConfigError: There is a file, or the folder is open to others.
        UnavailableError: The disk takes no file, or the lock is held too long.
    """
    with locked_folder(path, make=True) as folder:
        if is_there(path, folder):
            raise ConfigError(f"there is a key file at {path}; it is kept as it is")
        roots = [_fresh(KeyStatus.ACTIVE, now_ms)]
        ring = made(roots, str(path))
        _keep(path, folder, [_entry(root) for root in roots])
    return ring


@clean
def load_keyring(path: Path) -> Keyring:
    """Return the keys of a key file.

    Raises:
        ConfigError: There is no such file, it or its folder is open to others, belongs
            to another user or is a link, or the file is not in its strict form.
        UnavailableError: It cannot be read just then.
    """
    with opened_folder(path) as folder:
        return made([_root(entry, path) for entry in _stored(path, folder)], str(path))


def add_key(path: Path, *, now_ms: int | None = None) -> KeyRow:
    """Add a fresh key that opens and does not sign yet, and return its row.

    Where several hosts share a ring, all must know a key before one of them signs.

    Raises:
        ConfigError: As `load_keyring`, or the ring is full.
        UnavailableError: As `create_keyring`.
    """
    fresh = _entry(_fresh(KeyStatus.OPENING, now_ms))
    return _changed(path, lambda entries: [*entries, fresh], fresh.id)


def rotate(path: Path, *, to: str | None = None, now_ms: int | None = None) -> KeyRow:
    """Sign with another key from here on, and return its row; the former one still opens.

    Args:
        path: The key file.
        to: Id of an opening key; a fresh one is made by default.
        now_ms: Moment of creation of a fresh key, UTC; the wall clock by default.

    Raises:
        ConfigError: As `load_keyring`, or there is no opening key of this id.
        UnavailableError: As `create_keyring`.
    """
    fresh = [] if to else [_entry(_fresh(KeyStatus.OPENING, now_ms))]
    name = to or fresh[0].id

    def change(entries: Sequence[_Entry]) -> list[_Entry]:
        entries = [*entries, *fresh]
        _require(entries, name, KeyStatus.OPENING, path)
        former = [_with(entry, KeyStatus.ACTIVE, KeyStatus.OPENING) for entry in entries]
        return [replace(e, status=KeyStatus.ACTIVE) if e.id == name else e for e in former]

    return _changed(path, change, name)


def retire(path: Path, key: str) -> KeyRow:
    """Have a key open nothing any more, for good, and return its row.

    Args:
        path: The key file.
        key: Id of an opening key; the active one must be rotated away first.

    Raises:
        ConfigError: As `load_keyring`, or there is no opening key of this id.
        UnavailableError: As `create_keyring`.
    """

    def change(entries: Sequence[_Entry]) -> list[_Entry]:
        _require(entries, key, KeyStatus.OPENING, path)
        return [replace(e, status=KeyStatus.RETIRED) if e.id == key else e for e in entries]

    return _changed(path, change, key)


def check_apart(path: Path, project: Path, what: str = "key file") -> None:
    """Refuse a key or trust file inside the project: copies of the project would carry it.

    Raises:
        ConfigError: `path` lies below `project`, links followed.
    """
    if path.expanduser().resolve().is_relative_to(project.resolve()):
        raise ConfigError(
            f"{what} {path} lies inside the project {project}",
            move="keep it where copies and backups of the project do not reach",
        )


@clean
def _changed(path: Path, change: Callable[[Sequence[_Entry]], list[_Entry]], name: str) -> KeyRow:
    with locked_folder(path) as folder:
        entries = change(_stored(path, folder))
        ring = made([_root(entry, path) for entry in entries], str(path))
        _keep(path, folder, entries)
    return next(row for row in ring.rows if row.id == name)


def _require(entries: Sequence[_Entry], name: str, status: KeyStatus, path: Path) -> None:
    found = next((entry for entry in entries if entry.id == name), None)
    if found is None:
        raise ConfigError(f"{path} has no key of this id", move="see `counterfoil keys list`")
    if found.status is not status:
        raise ConfigError(
            f"key {name} is {found.status}, and this takes one that is {status}",
            move="see `counterfoil keys list`, and rotate before the active key is retired",
        )


def _with(entry: _Entry, old: KeyStatus, new: KeyStatus) -> _Entry:
    return replace(entry, status=new) if entry.status is old else entry


def _fresh(status: KeyStatus, now_ms: int | None) -> RootKey:
    at_ms = time_ns() // 1_000_000 if now_ms is None else now_ms
    secret = secrets.token_bytes(SECRET_BYTES)
    return RootKey(secret=secret, status=status, created_at=rfc3339(at_ms))


def _entry(root: RootKey) -> _Entry:
    return _Entry(
        id=key_id(root.secret),
        secret=base64.b64encode(root.secret).decode("ascii"),
        created_at=root.created_at,
        status=root.status,
    )


def _root(entry: _Entry, path: Path) -> RootKey:
    try:
        secret = base64.b64decode(entry.secret, validate=True)
        is_dated = datetime.fromisoformat(entry.created_at).tzinfo is not None
    except (binascii.Error, ValueError) as error:
        raise _malformed(path, "a secret or a date is none") from error
    root = RootKey(secret=secret, status=entry.status, created_at=entry.created_at)
    if len(secret) == SECRET_BYTES and (_entry(root) != entry or not is_dated):
        raise _malformed(path, "a key does not carry its own id, or its date has no zone")
    return root


def _stored(path: Path, folder: int) -> tuple[_Entry, ...]:
    """Return what the file holds; reasons of decoders quote the text, so they end here."""
    raw = read(path, folder, bytes_max=FILE_BYTES_MAX)
    try:
        value = strict_json(raw, "key file", bytes_max=FILE_BYTES_MAX)
        return shaped(value, _File, "key file").keys
    except ContractError as error:
        place = _PLACE.search(error.message)
        raise _malformed(path, f"at {place[1]}" if place else "no strict JSON") from error


def _keep(path: Path, folder: int, entries: Sequence[_Entry]) -> None:
    write(path, folder, encode(_File(format=1, keys=tuple(entries))) + b"\n")


def _malformed(path: Path, where: str) -> ConfigError:
    return ConfigError(
        f"{path} is no key file of format 1: {where}",
        move="put back a copy of the file; `counterfoil keys` writes it, nobody edits it",
    )
