"""The part of the SQLite driver that the journal uses, with types that hold.

What the driver's errors mean to a caller stands here, and nowhere else in this adapter.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import apsw
import msgspec

from counterfoil.core.errors import ConfigError, FormatError, UnavailableError

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


@contextmanager
def translated(what: str) -> Generator[None]:
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
            raise FormatError(f"the journal of commands is damaged ({name}) at {what}") from error
        raise UnavailableError(f"the journal of commands failed with {name} at {what}") from error


@contextmanager
def transaction(connection: Connection, what: str) -> Generator[None]:
    """Do all of a block durably, or nothing of it.

    Raises:
        FormatError: The journal is damaged.
        UnavailableError: It cannot be written now. After a failed commit the rows may
            be there all the same; whoever comes next reads them.
    """
    with translated(what):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
