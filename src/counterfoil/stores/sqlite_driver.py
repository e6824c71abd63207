"""The part of the SQLite driver that stores use, with types that hold.

The driver's own types name a protocol that Python has from 3.12 on. What its errors mean
to a caller stands here, and nowhere else.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import apsw
import msgspec

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    StaleHeadError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)

BUSY_WAIT_MS = 5_000
"""Longest wait for another process's transaction: many times what one takes."""

STATEMENTS_CACHED = 64
"""More than all statements of one store."""

LOG_PAGES_MAX = 1_000
"""Pages in the log after which a commit moves them into the file."""

PRAGMAS: dict[str, int | str] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "trusted_schema": 0,
    "wal_autocheckpoint": LOG_PAGES_MAX,
}
"""Each is set, read back, and refused when it did not take. `synchronous` 2 is FULL."""

WAITING = (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED)
HARMLESS = (*WAITING, apsw.SQLITE_CONSTRAINT, apsw.SQLITE_TOOBIG)
"""Errors after which the connection is as good as before."""

DAMAGED = (
    apsw.SQLITE_CORRUPT,
    apsw.SQLITE_NOTADB,
    apsw.SQLITE_FORMAT,
    apsw.SQLITE_ERROR,
    apsw.SQLITE_SCHEMA,
    apsw.SQLITE_MISMATCH,
)
"""Errors that say that the file is not what we wrote; a missing table is one of them."""

Value: TypeAlias = int | str | bytes | None
Row = TypeVar("Row")


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

    def changes(self) -> int:
        """Return how many rows the last statement changed."""
        ...

    def last_insert_rowid(self) -> int:
        """Return the number of the row inserted last."""
        ...

    def config(self, op: int, value: int, /) -> int:
        """Set an option of the connection."""
        ...

    def file_control(self, dbname: str, op: int, pointer: int, /) -> bool:
        """Set an option of the file."""
        ...

    def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
        """Move the log into the file."""
        ...

    def close(self, force: bool = False) -> None:
        """Let go of the file."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...


def connect(path: Path | None) -> Connection:
    """Open a file that exists and is no link, or a database in memory for None.

    Raises:
        apsw.Error: It cannot be opened.
    """
    connection = apsw.Connection(
        ":memory:" if path is None else str(path),
        flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW,
        statementcachesize=STATEMENTS_CACHED,
    )
    connection.set_busy_timeout(BUSY_WAIT_MS)
    return connection


def set_pragmas(connection: Connection, path: Path) -> None:
    """Set `PRAGMAS`, and keep the log beside the file when the last connection closes.

    Raises:
        ConfigError: One did not take.
        apsw.Error: As the driver says.
    """
    for name, value in PRAGMAS.items():
        connection.pragma(name, value)
        actual = connection.pragma(name)
        if actual != value:
            raise ConfigError(f"{path}: {name} stays {actual} where it must be {value}")
    persists = ctypes.c_int(1)
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(persists))


def keep_log(connection: Connection) -> None:
    """Let closing leave file and log as they are, as damage and doubt demand.

    Without it the last to close moves the log into the file.
    """
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


def log_frames(connection: Connection) -> int:
    """Return how many frames of the log SQLite believes, moving none of them.

    Raises:
        apsw.Error: As the driver says.
    """
    frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return max(0, frames)


def typed(row: object, kind: type[Row]) -> Row:
    """Return a row as the tuple or array-like struct that its query promises.

    Raises:
        FormatError: A column holds another type.
    """
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise FormatError("a row does not have the form that we write") from error


def code_of(error: apsw.Error) -> int:
    """Return the primary result code; misuse where the driver itself complains."""
    code: int = getattr(error, "result", apsw.SQLITE_MISUSE)
    return code


def translated(error: apsw.Error, path: Path, *, committing: bool) -> CounterfoilError:
    """Return what an error of the driver means to the caller; it names no value.

    Args:
        error: What the driver raised.
        path: The file.
        committing: Whether COMMIT raised it, so that nobody knows the outcome.
    """
    code = code_of(error)
    name = apsw.mapping_result_codes.get(code, str(code))
    if code in WAITING:
        return UnavailableError(f"{path} was locked by another process for {BUSY_WAIT_MS} ms")
    if committing:
        return UnknownOutcomeError(f"a commit to {path} failed with {name}")
    if code in DAMAGED:
        return FormatError(f"{path} is damaged ({name})")
    if code == apsw.SQLITE_CONSTRAINT:
        return StaleHeadError(f"a row of {path} stands in the way")
    if code == apsw.SQLITE_TOOBIG:
        return UsageError("a value is larger than a row can hold")
    return UnavailableError(f"{path} cannot be used now ({name})")
