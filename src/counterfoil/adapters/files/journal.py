"""What the files adapter remembers: fences, receipts, forbidden keys, and one plan.

One SQLite file beside the root. All methods are called under the lock, so at most one
plan is open at a time; each that writes is called inside a `transaction`.
"""

from enum import StrEnum

from counterfoil.adapters.files.plan import Plan
from counterfoil.core.bounds import TASK_BYTES_MAX
from counterfoil.core.canonical import decode, encode
from counterfoil.core.errors import FormatError
from counterfoil.core.receipt import Receipt
from counterfoil.core.words import Key
from counterfoil.journals import Connection, Journal, typed

APPLICATION_ID = 0x4366_4A6E
""""CfJn": marks the file as a journal of this adapter."""

SCHEMA_VERSION = 1

ROW_BYTES_MAX = 4 * TASK_BYTES_MAX
"""A plan holds the scope entries of its run, escaped; a receipt is far smaller."""

_SCHEMA = """
CREATE TABLE receipt (
    sequence INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL,
    body BLOB NOT NULL
) STRICT;
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

_JOURNAL = Journal(
    "journal of files",
    application_id=APPLICATION_ID,
    version=SCHEMA_VERSION,
    schema=_SCHEMA,
)
set_up, transaction, translated = _JOURNAL.set_up, _JOURNAL.transaction, _JOURNAL.translated


class PlanState(StrEnum):
    """Where a plan stands; once it is decided, only spares may be left to clear."""

    OPEN = "open"
    DONE = "done"
    NOT_DONE = "not_done"


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
