"""What was last seen below the root, and the sum of each realm, kept in step.

Every change of an entry goes through `change`, which brings up to date each realm
that covers it. So a realm's version rises with every change that anybody saw, whether
it was a write of ours, of another run, or of another program.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from counterfoil import journals
from counterfoil.adapters.files import realm
from counterfoil.adapters.files.realm import Entry
from counterfoil.core.words import Digest
from counterfoil.journals import Connection, typed

REALMS_MAX = 64
"""Scopes that are kept up to date: each write pays for those that cover it."""

FLOOR = "version_floor"
"""Name of the version at which a realm starts: above every one that was dropped."""

_UNSIGNED = 2**64

_SELECT = "SELECT path, kind, sha256, dev, inode, size, mtime_ns, ctime_ns, is_settled FROM entry"


class _EntryRow(NamedTuple):
    path: bytes
    kind: str
    sha256: str
    dev: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    is_settled: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RealmState:
    """Where a realm stands."""

    version: int
    fingerprint: Digest


def raw_path(path: str) -> bytes:
    """Return a path as the file system spells it."""
    return path.encode("utf-8", "surrogateescape")


def entry(db: Connection, path: str) -> Entry | None:
    """Return what was last seen at a path."""
    row = db.execute(f"{_SELECT} WHERE path = ?", (raw_path(path),)).fetchone()
    return None if row is None else _entry(typed(row, _EntryRow))


def entries(db: Connection, patterns: tuple[str, ...]) -> dict[str, Entry]:
    """Return everything that was last seen under some scope entries, by path."""
    found: dict[str, Entry] = {}
    for row in db.execute(f"{_SELECT} ORDER BY path").fetchall():
        kept = typed(row, _EntryRow)
        path = kept.path.decode("utf-8", "surrogateescape")
        if realm.is_covered(patterns, path):
            found[path] = _entry(kept)
    return found


def spellings(db: Connection, inode: int) -> tuple[str, ...]:
    """Return the paths at which an object was last seen."""
    rows = db.execute(
        "SELECT path FROM entry WHERE inode = ? ORDER BY path", (_signed(inode),)
    ).fetchall()
    return tuple(typed(row, tuple[bytes])[0].decode("utf-8", "surrogateescape") for row in rows)


def _entry(row: _EntryRow) -> Entry:
    return Entry(
        kind=row.kind,
        sha256=row.sha256,
        dev=row.dev % _UNSIGNED,
        inode=row.inode % _UNSIGNED,
        size=row.size,
        mtime_ns=row.mtime_ns,
        ctime_ns=row.ctime_ns,
        is_settled=bool(row.is_settled),
    )


def state(db: Connection, patterns: tuple[str, ...]) -> RealmState | None:
    """Return where a realm stands, or None if it was never observed."""
    name = realm.realm_id(patterns)
    row = db.execute("SELECT version, sum FROM realm WHERE id = ?", (name,)).fetchone()
    if row is None:
        return None
    version, raw = typed(row, tuple[int, bytes])
    return RealmState(version=version, fingerprint=realm.fingerprint(raw))


def change(db: Connection, changes: Mapping[str, Entry | None], *, is_ours: bool = False) -> None:
    """Record what stands at some paths, None for nothing, and move the realms along.

    A look at a path whose kind and content stayed the same moves no realm; a change of
    ours always does.
    """
    before = {path: entry(db, path) for path in changes}
    for path, after in changes.items():
        _put(db, path, after)
    moved = [path for path, after in changes.items() if is_ours or _differ(before[path], after)]
    if not moved:
        return
    for name, patterns in _realms(db):
        steps = [
            _step(path, before[path], changes[path])
            for path in moved
            if realm.is_covered(patterns, path)
        ]
        if steps:
            _move(db, name, sum(steps))


def _signed(number: int) -> int:
    """Return a number of the kernel as the journal holds it: with 64 bits and a sign."""
    return number - _UNSIGNED if number >= _UNSIGNED // 2 else number


def _differ(before: Entry | None, after: Entry | None) -> bool:
    if before is None or after is None:
        return before is not after
    return (before.kind, before.sha256) != (after.kind, after.sha256)


def _step(path: str, before: Entry | None, after: Entry | None) -> int:
    lost = 0 if before is None else realm.term(path, before)
    won = 0 if after is None else realm.term(path, after)
    return won - lost


def _put(db: Connection, path: str, after: Entry | None) -> None:
    if after is None:
        db.execute("DELETE FROM entry WHERE path = ?", (raw_path(path),))
        return
    db.execute(
        "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            raw_path(path),
            after.kind,
            after.sha256,
            _signed(after.dev),
            _signed(after.inode),
            after.size,
            after.mtime_ns,
            after.ctime_ns,
            int(after.is_settled),
        ),
    )


def _realms(db: Connection) -> list[tuple[str, tuple[str, ...]]]:
    rows = db.execute("SELECT id, patterns FROM realm").fetchall()
    named = (typed(row, tuple[str, str]) for row in rows)
    return [(name, typed(json.loads(text), tuple[str, ...])) for name, text in named]


def _move(db: Connection, name: str, step: int) -> None:
    row = db.execute("SELECT sum FROM realm WHERE id = ?", (name,)).fetchone()
    number = realm.total((realm.from_bytes(typed(row, tuple[bytes])[0]), step))
    db.execute(
        "UPDATE realm SET version = version + 1, sum = ? WHERE id = ?",
        (realm.to_bytes(number), name),
    )


def add_realm(db: Connection, patterns: tuple[str, ...], seen: Mapping[str, Entry]) -> None:
    """Start a realm with what was seen in it; the one used longest ago may go."""
    _make_room(db)
    number = realm.total(realm.term(path, found) for path, found in seen.items())
    version = int(journals.meta(db, FLOOR) or 0)
    db.execute(
        "INSERT INTO realm SELECT ?, ?, ?, coalesce(max(used), 0) + 1, ? FROM realm",
        (realm.realm_id(patterns), json.dumps(patterns), version, realm.to_bytes(number)),
    )


def _make_room(db: Connection) -> None:
    rows = db.execute("SELECT id, version FROM realm ORDER BY used DESC").fetchall()
    for row in rows[REALMS_MAX - 1 :]:
        name, version = typed(row, tuple[str, int])
        floor = max(int(journals.meta(db, FLOOR) or 0), version + 1)
        journals.set_meta(db, FLOOR, str(floor))
        db.execute("DELETE FROM realm WHERE id = ?", (name,))


def is_newest(db: Connection, patterns: tuple[str, ...]) -> bool:
    """Return whether no realm was used after this one."""
    row = db.execute("SELECT id FROM realm ORDER BY used DESC LIMIT 1").fetchone()
    return row is not None and typed(row, tuple[str])[0] == realm.realm_id(patterns)


def use(db: Connection, patterns: tuple[str, ...]) -> None:
    """Record that a realm was used last."""
    db.execute(
        "UPDATE realm SET used = (SELECT max(used) + 1 FROM realm) WHERE id = ?",
        (realm.realm_id(patterns),),
    )


def forget(db: Connection) -> None:
    """Drop everything that was seen: the root is another one."""
    db.execute("DELETE FROM entry")
    db.execute("DELETE FROM realm")
