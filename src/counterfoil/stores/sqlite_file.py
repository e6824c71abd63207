"""How a database file comes to be: whole, for us alone, or not at all.

The file is made under another name and linked to its own, so an empty or partial file
under that name is damage, and is never filled.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import apsw

from counterfoil.core.errors import CounterfoilError, UnavailableError
from counterfoil.stores import place
from counterfoil.stores.migrate import Schema, create
from counterfoil.stores.sqlite_database import Database
from counterfoil.stores.sqlite_driver import Connection, connect, set_pragmas, translated
from counterfoil.stores.sqlite_guard import guard_of, make_empty
from counterfoil.stores.sqlite_log import log_of


def open_database(
    path: Path,
    schema: Schema,
    *,
    create_first: Callable[[Connection], None] | None,
    missing: CounterfoilError,
    mounts: Path = place.MOUNTS,
) -> Database:
    """Open a database file, creating it where that is asked for.

    Args:
        path: The file; its folder is created with mode 700 along with it.
        schema: The kind of database.
        create_first: Writes the first rows of a created file; None creates nothing.
        missing: What to raise when there is no file and none is created, or when its log
            or guard shows that there was one.
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
        if create_first is None or _was_there(path):
            raise missing
        _create(path, schema, create_first)
    database = Database(path, schema, mounts)
    database.open()
    return database


def _was_there(path: Path) -> bool:
    """Return whether a log or a guard without its file shows that there was one.

    They are created after the file, so a look at the file again tells a file that is gone
    from one that another process has created meanwhile.
    """
    leaves = place.check_file(log_of(path)) or place.check_file(guard_of(path)) is not None
    return bool(leaves) and place.check_file(path) is None


def _create(path: Path, schema: Schema, create_first: Callable[[Connection], None]) -> None:
    """Make the file and give it its name, unless another process is first.

    The name is durable once the guard is, which comes before the first commit.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            made = Path(folder) / "new"
            make_empty(made)
            _fill(made, schema, create_first)
            try:
                path.hardlink_to(made)
            except FileExistsError:
                return
    except OSError as error:
        raise UnavailableError(f"cannot create {path}: {error.strerror}") from error


def _fill(path: Path, schema: Schema, create_first: Callable[[Connection], None]) -> None:
    try:
        connection = connect(path)
        try:
            connection.pragma("page_size", schema.page_bytes)
            set_pragmas(connection, path)
            create(connection, schema)
            create_first(connection)
            # Closing would do this as well, and tell nobody that it failed half-way.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.close(force=True)
    except apsw.Error as error:
        raise translated(error, path, committing=False) from error
