"""One SQLite file as stores use it: opened with care, written in transactions, closed.

Before COMMIT an error means that nothing happened. An error at COMMIT means that nobody
knows: the connection is dropped, and the file is opened again before its next use, since
a failed sync is never asked again.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from types import TracebackType

import apsw

from counterfoil.core.errors import (
    CounterfoilError,
    FormatError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from counterfoil.stores import place
from counterfoil.stores.migrate import Schema, migrate
from counterfoil.stores.sqlite_driver import (
    HARMLESS,
    PRAGMAS,
    Connection,
    Row,
    Value,
    code_of,
    connect,
    keep_log,
    log_frames,
    set_pragmas,
    translated,
    typed,
)
from counterfoil.stores.sqlite_guard import check_log, guard_of, lower_guard, raise_guard
from counterfoil.stores.sqlite_log import has_lost_commits, log_of

LOOKS_MAX = 3
"""Looks at a log that others write to, before it counts as in use and so as sound."""


class Database:
    """A database file and our one connection to it; safe to share by threads.

    The log beside the file, `PATH-wal`, is part of the database. Between a failed commit
    and its next use there is no connection.
    """

    def __init__(self, path: Path, schema: Schema, mounts: Path = place.MOUNTS) -> None:
        self._path = path
        self._schema = schema
        self._mounts = mounts
        self._lock = RLock()
        self._connection: Connection | None = None
        self._names = str(path), str(log_of(path)), str(guard_of(path))
        self._identity: tuple[int, int] | None = None
        self._process_id = 0
        self._is_closed = False
        self._is_unsettled = False

    def transaction(self) -> "Transaction":
        """Begin at once, commit at the end of the block, undo if it raises.

        Raises:
            UnavailableError: Nothing happened.
            FormatError: The file is damaged, gone or replaced; nothing happened.
            StaleHeadError: A row breaks a constraint; nothing happened.
            UnknownOutcomeError: The commit failed; nobody knows what the disk holds.
        """
        return Transaction(self)

    def rows(self, kind: type[Row], query: str, bindings: Sequence[Value]) -> list[Row]:
        """Return the rows of a query, each as a `kind` of tuple.

        Raises:
            UnavailableError: The file cannot be read now.
            FormatError: The file is damaged.
        """
        with self._lock:
            connection = self._live()
            try:
                found = connection.execute(query, bindings).fetchall()
            except apsw.Error as error:
                raise self._after(error, committing=False) from error
        return [typed(row, kind) for row in found]

    def open(self) -> None:
        """Open the connection, if there is none.

        Raises:
            ConfigError: The place, the file's mode or a pragma is not as it must be.
            FormatError: The file is damaged.
            UnavailableError: It cannot be opened now.
        """
        with self._lock:
            self._live()

    def pragmas(self) -> dict[str, str]:
        """Return every pragma that is set, as the connection has it.

        Raises:
            FormatError, UnavailableError: As `rows`.
        """
        with self._lock:
            connection = self._live()
            try:
                return {name: str(connection.pragma(name)) for name in PRAGMAS}
            except apsw.Error as error:
                raise self._after(error, committing=False) from error

    def pages(self) -> tuple[int, int, int]:
        """Return how many pages the file has, how many of them are free, and the size of one.

        Raises:
            FormatError, UnavailableError: As `rows`.
        """
        query = "SELECT page_count, freelist_count, page_size FROM pragma_page_count, "
        query += "pragma_freelist_count, pragma_page_size"
        return self.rows(tuple[int, int, int], query, ())[0]

    def rewrite(self) -> None:
        """Write the file anew without its free pages; others who write wait meanwhile.

        Raises:
            UnavailableError: Another process writes; nothing happened.
            UnknownOutcomeError: The commit failed; what the file holds is the same.
        """
        with self._lock:
            connection = self._live()
            self._check_names()
            try:
                connection.execute("VACUUM")
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.Error as error:
                raise self._after(error, committing=code_of(error) not in HARMLESS) from error

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._drop(empties_log=True)
                lower_guard(self._path)

    def begin(self) -> Connection:
        """Begin a transaction, and keep other threads out until `end`.

        Raises:
            FormatError, UnavailableError: As `transaction`.
        """
        self._lock.acquire()
        try:
            connection = self._live()
            self._check_names()
            try:
                connection.execute("BEGIN IMMEDIATE")
            except apsw.Error as error:
                raise self._after(error, committing=False) from error
        except BaseException:
            self._end()
            raise
        return connection

    def commit(self) -> None:
        """Commit what was begun.

        Raises:
            UnknownOutcomeError, UnavailableError: As `transaction`.
        """
        connection = self._connection
        try:
            if connection is None:
                raise UnknownOutcomeError(f"{self._path} was let go before its commit")
            connection.execute("COMMIT")
        except apsw.Error as error:
            raise self._after(error, committing=True) from error
        finally:
            self._end()

    def undo(self, error: BaseException | None) -> None:
        """Undo what was begun, and raise what an error of the driver means.

        Raises:
            CounterfoilError: As `transaction`.
        """
        try:
            if isinstance(error, apsw.Error):
                raise self._after(error, committing=False) from error
        finally:
            self._end()

    def _live(self) -> Connection:
        if self._is_closed:
            raise UsageError(f"{self._path} was closed by its user")
        if self._connection is not None:
            if self._process_id != os.getpid():
                raise UsageError(f"{self._path} was opened before a fork; open it again after it")
            return self._connection
        _check_files(self._path, self._mounts)
        is_first, connection = raise_guard(self._path), None
        try:
            connection = self._opened()
        except apsw.Error as error:
            raise translated(error, self._path, committing=False) from error
        finally:
            if is_first and connection is None:
                lower_guard(self._path)
        self._connection, self._process_id = connection, os.getpid()
        return connection

    def _opened(self) -> Connection:
        connection = connect(self._path)
        try:
            self._prepare(connection)
        except BaseException:
            keep_log(connection)
            connection.close(force=True)
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        """Make the connection fit for use."""
        set_pragmas(connection, self._path)
        _check_frames(connection, self._path)
        migrate(connection, self._schema)
        if self._schema.is_small and not _is_whole(connection):
            raise FormatError(f"{self._path} is damaged")
        if self._is_unsettled:
            # What the failed sync left is in the log. It counts once the file holds it.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._is_unsettled = False
        self._identity = place.identity(self._names[0])

    def _check_names(self) -> None:
        """Refuse to write to a file that has lost its name, since nobody would read it."""
        path, log, guard = self._names
        if place.identity(path) != self._identity or not os.access(log, os.F_OK):
            self._drop_as_it_is()
            raise FormatError(f"{path} or its log was replaced while it was open")
        if not os.access(guard, os.F_OK):
            raise_guard(self._path)

    def _after(self, error: apsw.Error, *, committing: bool) -> CounterfoilError:
        """Return what an error means, having dropped a connection it spoils."""
        if committing or code_of(error) not in HARMLESS:
            self._is_unsettled = self._is_unsettled or committing
            self._drop_as_it_is()
        return translated(error, self._path, committing=committing)

    def _end(self) -> None:
        """Leave no transaction open, and let other threads in."""
        connection = self._connection
        try:
            if connection is not None and connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error:
            self._drop_as_it_is()
        finally:
            self._lock.release()

    def _drop_as_it_is(self) -> None:
        """Let go of the file, and leave it and its log as they are."""
        if self._connection is not None:
            keep_log(self._connection)
        self._drop()

    def _drop(self, *, empties_log: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if empties_log:
                connection.pragma("journal_size_limit", 0)
            connection.close(force=True)
        except apsw.Error as error:
            raise translated(error, self._path, committing=False) from error


class Transaction:
    """A block of statements that happen together or not at all."""

    __slots__ = ("_database",)

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Connection:
        return self._database.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._database.commit()
        else:
            self._database.undo(error)


def _check_files(path: Path, mounts: Path) -> None:
    place.check_folder(path.parent, mounts)
    size_bytes = place.check_file(path)
    if not size_bytes:
        # SQLite would take an empty file for a database to be filled, and delete its log.
        raise FormatError(f"{path} is {'gone' if size_bytes is None else 'empty'}")
    check_log(path)
    place.check_file(log_of(path))
    place.check_file(path.with_name(path.name + "-shm"))


def _check_frames(connection: Connection, path: Path) -> None:
    """Refuse a log that was damaged after its commits were acknowledged.

    Others may write meanwhile, so a look counts only if nothing moved under it.
    """
    for _ in range(LOOKS_MAX):
        before = log_frames(connection)
        try:
            log = log_of(path).read_bytes()
        except OSError as error:
            raise UnavailableError(f"cannot read {log_of(path)}: {error.strerror}") from error
        page_bytes = connection.pragma("page_size")
        if not isinstance(page_bytes, int) or not has_lost_commits(
            log, page_bytes=page_bytes, believed=before
        ):
            return
        if before == log_frames(connection):
            raise FormatError(f"{log_of(path)} is damaged, and commits are lost")


def _is_whole(connection: Connection) -> bool:
    return connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
