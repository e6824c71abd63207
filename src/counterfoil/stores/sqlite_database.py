"""One SQLite file as stores use it: opened with care, written in transactions, closed.

The only place that knows the driver's errors. Before COMMIT an error means that nothing
happened. An error at COMMIT means that nobody knows: the connection is dropped, and the
file is opened again before its next use, since a failed sync is never asked again.
"""

import os
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

import apsw

from counterfoil.core.errors import (
    ConfigError,
    CounterfoilError,
    FormatError,
    UnavailableError,
    UsageError,
)
from counterfoil.stores import place
from counterfoil.stores.migrate import Schema, create, migrate
from counterfoil.stores.sqlite_driver import (
    HARMLESS,
    Connection,
    Row,
    Value,
    code_of,
    connect,
    translated,
    typed,
)

CHECKPOINT_PAGES = 1_000
"""Pages in the log after which a commit moves them into the file: 4 MB."""

PRAGMAS: dict[str, int | str] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    "trusted_schema": 0,
    "wal_autocheckpoint": CHECKPOINT_PAGES,
}
"""Each is set, read back, and refused when it did not take. `synchronous` 2 is FULL."""


class Database:
    """A database file and our one connection to it; safe to share by threads.

    `open_database` makes one. Between a failed commit and its next use it has no
    connection.
    """

    def __init__(self, path: Path, schema: Schema, mounts: Path = place.MOUNTS) -> None:
        self._path = path
        self._schema = schema
        self._mounts = mounts
        self._lock = RLock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._is_unsettled = False

    @contextmanager
    def transaction(self) -> Generator[Connection]:
        """Begin at once, commit at the end of the block, undo if it raises.

        Raises:
            UnavailableError: Nothing happened.
            FormatError: The file is damaged; nothing happened.
            StaleHeadError: A row breaks a constraint; nothing happened.
            UnknownOutcomeError: The commit failed; nobody knows what the disk holds.
        """
        with self._lock:
            connection, committing = self._live(), False
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                committing = True
                connection.execute("COMMIT")
            except apsw.Error as error:
                raise self._after(error, committing=committing) from error
            finally:
                self._undo()

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

    def close(self) -> None:
        """Let go of the file; a second time does nothing."""
        with self._lock:
            self._is_closed = True
            self._drop(keeps_log=False)

    def _live(self) -> Connection:
        if self._is_closed:
            raise UsageError(f"{self._path} was closed by its user")
        if self._connection is None:
            _check_files(self._path, self._mounts)
            try:
                self._connection = connect(self._path)
                self._prepare(self._connection)
            except apsw.Error as error:
                raise self._after(error, committing=False) from error
            except CounterfoilError:
                self._drop(keeps_log=True)
                raise
        return self._connection

    def _prepare(self, connection: Connection) -> None:
        _keep_log(connection, is_kept=True)
        if connection.readonly("main"):
            raise UnavailableError(f"{self._path} cannot be written")
        _set_pragmas(connection, self._path)
        migrate(connection, self._schema)
        if self._schema.is_small and not _is_whole(connection):
            raise FormatError(f"{self._path} is damaged")
        if self._is_unsettled:
            # What the failed sync left is in the log. It counts once the file holds it.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._is_unsettled = False
        _keep_log(connection, is_kept=False)

    def _after(self, error: apsw.Error, *, committing: bool) -> CounterfoilError:
        """Return what an error means, having dropped a connection it spoils."""
        if committing or code_of(error) not in HARMLESS:
            self._is_unsettled = self._is_unsettled or committing
            self._drop(keeps_log=True)
        return translated(error, self._path, committing=committing)

    def _undo(self) -> None:
        connection = self._connection
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except apsw.Error:
            self._drop(keeps_log=True)

    def _drop(self, *, keeps_log: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if keeps_log:
                _keep_log(connection, is_kept=True)
            connection.close(force=True)
        except apsw.Error as error:
            raise translated(error, self._path, committing=False) from error


def open_database(
    path: Path,
    schema: Schema,
    *,
    create_first: Callable[[Connection], None] | None,
    missing: CounterfoilError,
    mounts: Path = place.MOUNTS,
) -> Database:
    """Open a database file, creating it where that is asked for.

    A file appears under its name whole or not at all, so an empty or partial one is
    damage and is never filled.

    Args:
        path: The file; its folder is created with mode 700 along with it.
        schema: The kind of database.
        create_first: Writes the first rows of a created file; None creates nothing.
        missing: What to raise when there is no file and none is created.
        mounts: Table of mounts, in the form of /proc/self/mountinfo.

    Raises:
        ConfigError: The place, the file's mode, its kind, its version or a pragma is
            not as it must be.
        FormatError: The file is damaged; it and its log stay as they are.
        UnavailableError: It cannot be opened now.
    """
    path = place.resolved(path)
    if create_first is not None:
        place.make_folder(path.parent)
        place.check_folder(path.parent, mounts)
        if place.check_file(path) is None:
            _create(path, schema, create_first)
    elif place.check_file(path) is None:
        raise missing
    database = Database(path, schema, mounts)
    database.open()
    return database


def _check_files(path: Path, mounts: Path) -> None:
    place.check_folder(path.parent, mounts)
    size_bytes = place.check_file(path)
    if not size_bytes:
        # SQLite would take an empty file for a database to be filled, and delete its log.
        raise FormatError(f"{path} is {'gone' if size_bytes is None else 'empty'}")
    for suffix in ("-wal", "-shm"):
        place.check_file(path.with_name(path.name + suffix))


def _create(path: Path, schema: Schema, create_first: Callable[[Connection], None]) -> None:
    """Make the file under another name, and link it to its own unless one is there."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            made = Path(folder) / "new"
            os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            _fill(made, schema, create_first)
            try:
                path.hardlink_to(made)
            except FileExistsError:
                return
            _sync_folder(path.parent)
    except OSError as error:
        raise UnavailableError(f"cannot create {path}: {error.strerror}") from error


def _fill(path: Path, schema: Schema, create_first: Callable[[Connection], None]) -> None:
    try:
        connection = connect(path)
        try:
            _set_pragmas(connection, path)
            create(connection, schema)
            create_first(connection)
        finally:
            connection.close(force=True)
    except apsw.Error as error:
        raise translated(error, path, committing=False) from error


def _set_pragmas(connection: Connection, path: Path) -> None:
    for name, value in PRAGMAS.items():
        connection.pragma(name, value)
        actual = connection.pragma(name)
        if actual != value:
            raise ConfigError(f"{path}: {name} stays {actual} where it must be {value}")


def _is_whole(connection: Connection) -> bool:
    return connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)


def _keep_log(connection: Connection, *, is_kept: bool) -> None:
    """Say whether closing leaves file and log as they are, as damage and doubt demand."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(is_kept))


def _sync_folder(folder: Path) -> None:
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)
