"""What an adapter on this machine remembers beside its target, in one SQLite file.

The fence of each run and what it was served last, forbidden keys, and lasting properties;
an adapter adds tables of its own. What the driver's errors mean to a caller stands here.
All is called under the adapter's lock, and what writes inside a `transaction`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import apsw
import msgspec

from counterfoil.core.errors import ConfigError, FencedError, FormatError, UnavailableError
from counterfoil.core.receipt import Fence, Served
from counterfoil.core.words import Digest, Key, RunId

BUSY_WAIT_MS = 5_000
"""Longest wait for a reader from outside: workers wait for the lock instead."""

Value: TypeAlias = int | str | bytes | None
Row = TypeVar("Row")

_DAMAGED = (
    apsw.SQLITE_CORRUPT,
    apsw.SQLITE_NOTADB,
    apsw.SQLITE_FORMAT,
    apsw.SQLITE_ERROR,
    apsw.SQLITE_SCHEMA,
    apsw.SQLITE_MISMATCH,
    apsw.SQLITE_CONSTRAINT,
)
"""Results that say that the file is not what we wrote."""

_SETTINGS = (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 0))
"""Pragmas, read back: WAL with `synchronous=FULL` keeps a commit through a power cut."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE fence (
    run_id TEXT PRIMARY KEY, lease_version INTEGER NOT NULL, nonce TEXT NOT NULL,
    generation INTEGER, checkpoint TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE forbidden (
    run_id TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;
"""


class Cursor(Protocol):
    """The answer to one statement."""

    def fetchone(self) -> tuple[object, ...] | None:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> Sequence[tuple[object, ...]]:
        """Return the rows that are left."""
        ...


class Connection(Protocol):
    """One connection of the driver."""

    def execute(self, statements: str, bindings: Sequence[Value] | None = None, /) -> Cursor:
        """Run statements."""
        ...

    def pragma(self, name: str, value: int | str | None = None, /) -> object:
        """Set or read a pragma."""
        ...

    def close(self, force: bool = False) -> None:
        """Let go of the file."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...


def connect(path: Path) -> Connection:
    """Open a database file that exists, with settings that keep commits.

    Raises:
        ConfigError: A setting does not hold: the file system cannot keep a journal.
        apsw.Error: It cannot be opened.
    """
    connection = _opened(path)
    for name, wanted in _SETTINGS:
        connection.pragma(name, wanted)
        held = connection.pragma(name)
        if held != wanted:
            connection.close()
            raise ConfigError(f"{path} does not keep {name}={wanted}, it says {held}")
    return connection


def _opened(path: Path) -> Connection:
    connection = apsw.Connection(
        str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    )
    connection.set_busy_timeout(BUSY_WAIT_MS)
    return connection


def typed(row: object, kind: type[Row]) -> Row:
    """Return a row as the tuple that its query promises.

    Raises:
        FormatError: A column holds another type.
    """
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise FormatError("a row of the journal does not have the form that we write") from error


class _FenceRow(NamedTuple):
    version: int
    nonce: str
    generation: int | None
    checkpoint: str | None


class Journal:
    """A kind of journal: how it is named for people, and which file is one.

    Args:
        name: Such as "journal of files".
        application_id: Marks the file.
        version: Of its tables.
        schema: Makes the tables of the adapter's own.
    """

    def __init__(self, name: str, *, application_id: int, version: int, schema: str) -> None:
        self.name = name
        self._marks = (application_id, version)
        self._schema = schema

    def set_up(self, db: Connection) -> None:
        """Make the tables of an empty journal; refuse one that is not ours or is newer.

        Raises:
            ConfigError: Another program's file, or a newer schema than this code knows.
        """
        marks = (db.pragma("application_id"), db.pragma("user_version"))
        if marks == (0, 0):
            db.execute(_SCHEMA + self._schema)
            for mark, value in zip(("application_id", "user_version"), self._marks, strict=True):
                db.pragma(mark, value)
        elif marks != self._marks:
            raise ConfigError(f"the {self.name} is of another program or version: {marks}")

    @contextmanager
    def translated(self, what: str) -> Generator[None]:
        """Turn errors of the driver into those of the taxonomy.

        Raises:
            FormatError: The journal is damaged.
            UnavailableError: It cannot be read or written now.
        """
        try:
            yield
        except apsw.Error as error:
            code: int = getattr(error, "result", apsw.SQLITE_MISUSE)
            name = apsw.mapping_result_codes.get(code, str(code))
            if code in _DAMAGED:
                raise FormatError(f"the {self.name} is damaged ({name}) at {what}") from error
            raise UnavailableError(f"the {self.name} failed with {name} at {what}") from error

    @contextmanager
    def transaction(self, connection: Connection, what: str) -> Generator[None]:
        """Do all of a block durably, or nothing of it.

        Raises:
            FormatError: The journal is damaged.
            UnavailableError: It cannot be written now. After a failed commit the rows may
                be there all the same; whoever comes next reads them.
        """
        with self.translated(what):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise


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


def is_forbidden(db: Connection, run_id: RunId, key: Key) -> bool:
    """Return whether the key was made impossible for a run."""
    statement = "SELECT 1 FROM forbidden WHERE run_id = ? AND key = ?"
    return db.execute(statement, (run_id, key)).fetchone() is not None


def forbid(db: Connection, run_id: RunId, key: Key) -> None:
    """Make a key impossible for a run."""
    db.execute("INSERT OR IGNORE INTO forbidden VALUES (?, ?)", (run_id, key))


def _fence(db: Connection, run_id: RunId) -> _FenceRow | None:
    row = db.execute(
        "SELECT lease_version, nonce, generation, checkpoint FROM fence WHERE run_id = ?",
        (run_id,),
    ).fetchone()
    return None if row is None else typed(row, _FenceRow)
