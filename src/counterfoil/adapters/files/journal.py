"""What the files adapter remembers: fences, receipts, forbidden keys, and one plan.

One SQLite file beside the root. All methods are called under the lock, so at most one
plan is open at a time; each that writes is called inside a `transaction`.
"""

from enum import StrEnum
from typing import NamedTuple

from counterfoil.adapters.files.driver import Connection, typed
from counterfoil.adapters.files.plan import Plan
from counterfoil.core.bounds import TASK_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import ConfigError, FencedError, FormatError
from counterfoil.core.receipt import Fence, Receipt, Served
from counterfoil.core.words import Digest, Key, RunId

APPLICATION_ID = 0x4366_4A6E
""""CfJn": marks the file as a journal of this adapter."""

SCHEMA_VERSION = 1

ROW_BYTES_MAX = 4 * TASK_BYTES_MAX
"""A plan holds the scope entries of its run, escaped; a receipt is far smaller."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE fence (
    run_id TEXT PRIMARY KEY, lease_version INTEGER NOT NULL, nonce TEXT NOT NULL,
    generation INTEGER, checkpoint TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE receipt (
    sequence INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE forbidden (
    run_id TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE plan (
    one INTEGER PRIMARY KEY CHECK (one = 1), state TEXT NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE TABLE entry (
    path BLOB PRIMARY KEY, kind TEXT NOT NULL, sha256 TEXT NOT NULL, dev INTEGER NOT NULL,
    inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL, is_settled INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE realm (
    id TEXT PRIMARY KEY, patterns TEXT NOT NULL, version INTEGER NOT NULL,
    used INTEGER NOT NULL, sum BLOB NOT NULL
) STRICT;
"""


class _FenceRow(NamedTuple):
    version: int
    nonce: str
    generation: int | None
    checkpoint: str | None


class PlanState(StrEnum):
    """Where a plan stands; once it is decided, only spares may be left to clear."""

    OPEN = "open"
    DONE = "done"
    NOT_DONE = "not_done"


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
        raise ConfigError(f"the journal of files is of another program or version: {marks}")


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
    row = _fence(db, run_id)
    if row is None:
        return
    if fence.lease_version < row.version:
        raise FencedError(f"lease {fence.lease_version} was followed by {row.version}", run_id)
    if fence.lease_version == row.version and fence.nonce != row.nonce:
        raise FencedError(f"lease {row.version} belongs to another holder", run_id)


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
    row = _fence(db, run_id)
    if row is None or row.generation is None or row.checkpoint is None:
        return None
    return Served(generation=row.generation, checkpoint=Digest(row.checkpoint))


def set_served(db: Connection, run_id: RunId, now_served: Served | None) -> None:
    """Record a checkpoint that was served; an older one changes nothing."""
    if now_served is None:
        return
    db.execute(
        "UPDATE fence SET generation = ?, checkpoint = ? "
        "WHERE run_id = ? AND (generation IS NULL OR generation <= ?)",
        (now_served.generation, now_served.checkpoint, run_id, now_served.generation),
    )


def _fence(db: Connection, run_id: RunId) -> _FenceRow | None:
    row = db.execute(
        "SELECT lease_version, nonce, generation, checkpoint FROM fence WHERE run_id = ?",
        (run_id,),
    ).fetchone()
    return None if row is None else typed(row, _FenceRow)


def receipt(db: Connection, key: Key) -> Receipt | None:
    """Return the receipt under a key, whichever run it belongs to."""
    row = db.execute("SELECT body FROM receipt WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    body = typed(row, tuple[bytes])[0]
    return decode(body, Receipt, "a receipt", bytes_max=ROW_BYTES_MAX)


def next_sequence(db: Connection) -> int:
    """Return the number of the change to come: above every receipt, and above the last plan.

    Reserved names carry it, so clearing what one plan left never meets another's files.
    """
    row = db.execute("SELECT coalesce(max(sequence), 0) FROM receipt").fetchone()
    last = plan(db)
    return max(typed(row, tuple[int])[0], 0 if last is None else last[1].sequence) + 1


def add_receipt(db: Connection, sequence: int, added: Receipt) -> None:
    """Record an effect."""
    db.execute(
        "INSERT INTO receipt VALUES (?, ?, ?, ?)",
        (sequence, added.key, added.run_id, encode(added)),
    )


def is_forbidden(db: Connection, run_id: RunId, key: Key) -> bool:
    """Return whether the key was made impossible for a run."""
    statement = "SELECT 1 FROM forbidden WHERE run_id = ? AND key = ?"
    return db.execute(statement, (run_id, key)).fetchone() is not None


def forbid(db: Connection, run_id: RunId, key: Key) -> None:
    """Make a key impossible for a run."""
    db.execute("INSERT OR IGNORE INTO forbidden VALUES (?, ?)", (run_id, key))


def plan(db: Connection) -> tuple[PlanState, Plan] | None:
    """Return the plan of the last change, and where it stands."""
    row = db.execute("SELECT state, body FROM plan").fetchone()
    if row is None:
        return None
    state, body = typed(row, tuple[str, bytes])
    if state not in tuple(PlanState):
        raise FormatError(f"the journal of files holds a plan in state {state!r:.40}")
    return PlanState(state), decode(body, Plan, "a plan", bytes_max=ROW_BYTES_MAX)


def set_plan(db: Connection, state: PlanState, kept: Plan) -> None:
    """Record where a change stands, in place of the one before it."""
    db.execute("INSERT OR REPLACE INTO plan VALUES (1, ?, ?)", (state.value, encode(kept)))
