"""What the shell adapter remembers: fences, attempts, receipts and forbidden keys.

One SQLite file in the journal's folder. All functions are called under the lock; each
that writes is called inside a `transaction`. The sequence of the newest attempt is the
version of the environment, so an attempt that never ran is forgotten without a trace.
"""

from enum import StrEnum

import msgspec

from counterfoil.core.bounds import TASK_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import FormatError
from counterfoil.core.receipt import Receipt, Served
from counterfoil.core.words import IntentDigest, Key, Level, RunId
from counterfoil.journals import Connection, Journal, typed

APPLICATION_ID = 0x4366_5368
""""CfSh": marks the file as a journal of this adapter."""

SCHEMA_VERSION = 1

ROW_BYTES_MAX = TASK_BYTES_MAX
"""A receipt at its bound, escaped."""

_SCHEMA = """
CREATE TABLE attempt (
    sequence INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, state TEXT NOT NULL,
    claim BLOB NOT NULL, receipt BLOB
) STRICT;
CREATE INDEX attempt_open ON attempt (sequence) WHERE state = 'open';
"""

_JOURNAL = Journal(
    "journal of commands",
    application_id=APPLICATION_ID,
    version=SCHEMA_VERSION,
    schema=_SCHEMA,
)
set_up, transaction, translated = _JOURNAL.set_up, _JOURNAL.transaction, _JOURNAL.translated


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


_SELECT = "SELECT sequence, state, claim, receipt FROM attempt"


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
