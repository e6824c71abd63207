"""What the shell adapter remembers: fences, attempts, receipts and forbidden keys.

One SQLite file in the journal's folder. All functions are called under the lock; each
that writes is called inside a `transaction`. The sequence of the newest attempt is the
version of the environment, so an attempt that never ran is forgotten without a trace.
"""

from enum import StrEnum

import msgspec

from counterfoil.adapters.shell.driver import Connection, typed
from counterfoil.core.bounds import TASK_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import ConfigError, FencedError, FormatError
from counterfoil.core.receipt import Fence, Receipt, Served
from counterfoil.core.words import Digest, IntentDigest, Key, Level, RunId

APPLICATION_ID = 0x4366_5368
""""CfSh": marks the file as a journal of this adapter."""

SCHEMA_VERSION = 1

ROW_BYTES_MAX = TASK_BYTES_MAX
"""A receipt at its bound, escaped."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE fence (
    run_id TEXT PRIMARY KEY, lease_version INTEGER NOT NULL, nonce TEXT NOT NULL,
    generation INTEGER, checkpoint TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE attempt (
    sequence INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    claim BLOB NOT NULL, receipt BLOB
) STRICT;
CREATE INDEX attempt_open ON attempt (sequence) WHERE state = 'open';
CREATE TABLE forbidden (
    run_id TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
"""


class State(StrEnum):
    """Where an attempt stands: it may run, its end is known, or never will be."""

    OPEN = "open"
    DONE = "done"
    LOST = "lost"


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an attempt was begun for: all that its receipt will say besides its end.

    Attributes:
        kind: The kind of action.
        run_id: For which run.
        key: Under which key.
        digest: Digest of the intent.
        level: Level of the kind.
        served: Checkpoint that carried the intent.
        statement: Digest of the approval.
        token: Random; in the environment of the command, and in the state's fingerprint.
        begun_at_ms: When, UTC, by the adapter's clock.
        accepted: Exit codes that count as success.
        is_repeatable: Whether it may be begun again when its end is unknown.
    """

    kind: str
    run_id: RunId
    key: Key
    digest: IntentDigest
    level: Level
    served: Served | None
    statement: str
    token: str
    begun_at_ms: int
    accepted: tuple[int, ...]
    is_repeatable: bool


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One row: an attempt that was begun.

    Attributes:
        sequence: Its number, and that of its folder.
        state: Where it stands.
        claim: What it was begun for.
        receipt: Set once it is not open; of one that is lost, it has no id.
    """

    sequence: int
    state: State
    claim: Claim
    receipt: Receipt | None


def set_up(db: Connection) -> None:
    """Make the tables of an empty journal; refuse one that is not ours or is newer.

    Raises:
        ConfigError: Another program's file, or a newer schema than this code knows.
    """
    marks = (db.pragma("application_id"), db.pragma("user_version"))
    if marks == (0, 0):
        db.execute(_SCHEMA)
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", SCHEMA_VERSION)
    elif marks != (APPLICATION_ID, SCHEMA_VERSION):
        raise ConfigError(f"the journal of commands is of another program or version: {marks}")


def meta(db: Connection, name: str) -> str | None:
    """Return a lasting property of the journal."""
    row = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else typed(row, tuple[str])[0]


def set_meta(db: Connection, name: str, value: str) -> None:
    """Set a lasting property of the journal."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def check_fence(db: Connection, run_id: RunId, fence: Fence) -> None:
    """Refuse a token that is not the standing one, and not newer.

    Raises:
        FencedError: A newer lease stands, or another holder's of the same version.
    """
    row = db.execute(
        "SELECT lease_version, nonce FROM fence WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        return
    version, nonce = typed(row, tuple[int, str])
    if fence.lease_version < version:
        raise FencedError(f"lease {fence.lease_version} was followed by {version}", run_id)
    if fence.lease_version == version and fence.nonce != nonce:
        raise FencedError(f"lease {version} belongs to another holder", run_id)


def raise_fence(db: Connection, run_id: RunId, fence: Fence) -> None:
    """Record a token that `check_fence` let pass."""
    db.execute(
        "INSERT INTO fence (run_id, lease_version, nonce) VALUES (?, ?, ?) "
        "ON CONFLICT (run_id) DO UPDATE SET lease_version = excluded.lease_version, "
        "nonce = excluded.nonce",
        (run_id, fence.lease_version, fence.nonce),
    )


def served(db: Connection, run_id: RunId) -> Served | None:
    """Return the newest checkpoint that was served for a run."""
    row = db.execute(
        "SELECT generation, checkpoint FROM fence WHERE run_id = ? AND checkpoint IS NOT NULL",
        (run_id,),
    ).fetchone()
    if row is None:
        return None
    generation, checkpoint = typed(row, tuple[int, str])
    return Served(generation=generation, checkpoint=Digest(checkpoint))


def set_served(db: Connection, run_id: RunId, now_served: Served | None) -> None:
    """Record a checkpoint that was served; an older one changes nothing."""
    if now_served is None:
        return
    db.execute(
        "UPDATE fence SET generation = ?, checkpoint = ? "
        "WHERE run_id = ? AND (generation IS NULL OR generation <= ?)",
        (now_served.generation, now_served.checkpoint, run_id, now_served.generation),
    )


def newest(db: Connection) -> Attempt | None:
    """Return the newest attempt of the environment."""
    return _one(db, "ORDER BY sequence DESC LIMIT 1", ())


def attempt(db: Connection, key: Key) -> Attempt | None:
    """Return the attempt under a key, whichever run it belongs to."""
    return _one(db, "WHERE key = ?", (key,))


def open_attempts(db: Connection) -> tuple[Attempt, ...]:
    """Return the attempts that may run."""
    rows = db.execute(f"{_SELECT} WHERE state = 'open' ORDER BY sequence").fetchall()
    return tuple(_attempt(row) for row in rows)


def begin(db: Connection, sequence: int, claim: Claim) -> None:
    """Record an attempt that is about to start."""
    db.execute(
        "INSERT INTO attempt (sequence, key, state, claim) VALUES (?, ?, 'open', ?)",
        (sequence, claim.key, encode(claim)),
    )


def conclude(db: Connection, sequence: int, state: State, receipt: Receipt) -> None:
    """Record how an attempt ended."""
    db.execute(
        "UPDATE attempt SET state = ?, receipt = ? WHERE sequence = ?",
        (state.value, encode(receipt), sequence),
    )


def forget(db: Connection, sequence: int) -> None:
    """Drop an attempt that never ran, or that may be run again."""
    db.execute("DELETE FROM attempt WHERE sequence = ?", (sequence,))


def is_forbidden(db: Connection, run_id: RunId, key: Key) -> bool:
    """Return whether the key was made impossible for a run."""
    statement = "SELECT 1 FROM forbidden WHERE run_id = ? AND key = ?"
    return db.execute(statement, (run_id, key)).fetchone() is not None


def forbid(db: Connection, run_id: RunId, key: Key) -> None:
    """Make a key impossible for a run."""
    db.execute("INSERT OR IGNORE INTO forbidden VALUES (?, ?)", (run_id, key))


_SELECT = "SELECT sequence, state, claim, receipt FROM attempt"


def _one(db: Connection, which: str, bindings: tuple[str, ...]) -> Attempt | None:
    row = db.execute(f"{_SELECT} {which}", bindings).fetchone()
    return None if row is None else _attempt(row)


def _attempt(row: object) -> Attempt:
    sequence, state, claim, receipt = typed(row, tuple[int, str, bytes, bytes | None])
    if state not in tuple(State):
        raise FormatError(f"the journal of commands holds an attempt in state {state!r:.40}")
    return Attempt(
        sequence=sequence,
        state=State(state),
        claim=decode(claim, Claim, "a claim", bytes_max=ROW_BYTES_MAX),
        receipt=None
        if receipt is None
        else decode(receipt, Receipt, "a receipt", bytes_max=ROW_BYTES_MAX),
    )
