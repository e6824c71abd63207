"""The journal's tables in a SQLite file, which may be the service's own.

Write-ahead log and `synchronous=FULL` are set and read back: with them an acknowledged
commit outlives a power cut.
"""

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import apsw

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.integrations.asgi.database import WAIT_MS, Rows, Run, Value

DAMAGED = (
    apsw.SQLITE_CORRUPT,
    apsw.SQLITE_NOTADB,
    apsw.SQLITE_FORMAT,
    apsw.SQLITE_ERROR,
    apsw.SQLITE_SCHEMA,
    apsw.SQLITE_MISMATCH,
)
"""Results that say that the file is not what we wrote; a missing table is one of them."""

PRAGMAS = (("journal_mode", "wal"), ("synchronous", 2))
PAUSE_MS = 50
"""Between two tries to turn the write-ahead log on."""

SPELLINGS = {"at": "", "bytes": "BLOB", "long": "INTEGER", "skip": ""}


class Cursor(Protocol):
    """The answer to one statement."""

    def fetchall(self) -> Rows:
        """Return its rows."""
        ...


class Connection(Protocol):
    """The part of the driver's connection that the journal uses."""

    def execute(self, statements: str, bindings: Sequence[Value] | None = None, /) -> Cursor:
        """Run a statement."""
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


class SqliteDatabase:
    """One connection to a file, used by one thread at a time.

    Args:
        path: The file, for messages.
        connection: Open; `close` closes it.
    """

    threads = 1
    lock = ""

    def __init__(self, path: Path, connection: Connection) -> None:
        self._path = path
        self._connection = connection
        self._lock = threading.Lock()

    def spelt(self, statement: str) -> str:
        """Return a statement as SQLite has it."""
        return statement.format_map(SPELLINGS)

    def check(self, connection: object) -> None:
        """Accept a connection of apsw with a transaction open.

        Raises:
            UsageError: It is none. Another copy of SQLite in one process is dangerous: when it
                closes the file, this one's locks are gone.

        Source:
            sqlite.org, "How To Corrupt An SQLite Database File", 2.2.1.
        """
        if not isinstance(connection, apsw.Connection):
            raise UsageError(f"a receipt in SQLite is written by apsw, not by {connection!r:.60}")
        opened: Connection = connection
        if not opened.in_transaction:
            raise UsageError("no transaction is open that the receipt could be part of")

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[Run]:
        """Run statements, all or none.

        Raises:
            UnavailableError: Nothing happened; another program holds the file, for one.
            UnknownOutcomeError: The commit failed half-way.
            FormatError: The file is damaged, or has no such tables.
        """
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield self._run
            except apsw.Error as error:
                self._undo()
                raise translated(error, self._path) from error
            except BaseException:
                self._undo()
                raise
            try:
                self._connection.execute("COMMIT")
            except apsw.Error as error:
                self._undo()
                raise UnknownOutcomeError(f"a commit to {self._path} failed") from error

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        with self._lock:
            self._connection.close()

    def _run(self, statement: str, values: Sequence[Value]) -> Rows:
        return self._connection.execute(statement, values).fetchall()

    def _undo(self) -> None:
        with suppress(apsw.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def open_file(path: Path, *, create: bool) -> SqliteDatabase:
    """Open a file; its tables are looked at by whoever uses it.

    Args:
        path: The file.
        create: Whether to make it, for its owner alone, where there is none.

    Raises:
        ConfigError: There is no file, or it cannot be kept safely where it is.
        FormatError: It is no SQLite file.
        UnavailableError: It cannot be opened now.
    """
    try:
        if create and not path.exists():
            path.touch(mode=0o600)
        if not path.is_file():
            raise ConfigError(f"there is no journal of receipts at {path}", move=INSTALL)
    except OSError as error:
        raise ConfigError(f"{path} cannot be made ({error.strerror})") from error
    try:
        connection: Connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            _set_pragmas(connection, path)
        except BaseException:
            connection.close(force=True)
            raise
    except apsw.Error as error:
        raise translated(error, path) from error
    return SqliteDatabase(path, connection)


INSTALL = "make it once with `python -m counterfoil.integrations.asgi install PLACE`"
"""The next move where there is no journal."""


def _set_pragmas(connection: Connection, path: Path) -> None:
    connection.pragma("busy_timeout", WAIT_MS)
    for name, value in PRAGMAS:
        _set_when_free(connection, name, value)
        actual = connection.pragma(name)
        if actual != value:
            raise ConfigError(f"{path}: {name} stays {actual} where it must be {value}")


def _set_when_free(connection: Connection, name: str, value: int | str) -> None:
    """Set a pragma, which does not wait by itself for others that make the same file."""
    for _ in range(WAIT_MS // PAUSE_MS):
        try:
            connection.pragma(name, value)
            return
        except apsw.BusyError:
            time.sleep(PAUSE_MS / 1_000)
    connection.pragma(name, value)


def translated(error: apsw.Error, path: Path) -> CounterfoilError:
    """Return what an error of the driver means, before a commit; it names no value."""
    code: int = getattr(error, "result", apsw.SQLITE_MISUSE)
    name = apsw.mapping_result_codes.get(code, str(code))
    if code in (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED):
        return UnavailableError(f"{path} was locked by another transaction for {WAIT_MS} ms")
    if code in DAMAGED:
        return FormatError(
            f"{path} is no journal of receipts, or is damaged ({name})", move=INSTALL
        )
    return UnavailableError(f"{path} cannot be used now ({name})")
