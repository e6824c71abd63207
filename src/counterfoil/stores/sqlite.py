"""Open stores over SQLite: one file each, so that they can lie in different places.

A head register beside its store is restored along with it, and then cannot tell that
time was turned back: keep it in another folder.
"""

from collections.abc import Callable
from pathlib import Path

from counterfoil.core.errors import ConfigError, HeadMissingError, RollbackError
from counterfoil.stores import place
from counterfoil.stores.sqlite_driver import Connection
from counterfoil.stores.sqlite_file import open_database
from counterfoil.stores.sqlite_heads import HEADS_SCHEMA, SqliteHeads, never_dead
from counterfoil.stores.sqlite_inbox import INBOX_SCHEMA, SqliteInbox
from counterfoil.stores.sqlite_store import STORE_SCHEMA, SqliteStore

__all__ = ["SqliteHeads", "SqliteInbox", "SqliteStore", "open_heads", "open_inbox", "open_store"]


def open_store(path: Path, *, create: bool, mounts: Path = place.MOUNTS) -> SqliteStore:
    """Open the checkpoint store in the file `path`.

    Args:
        path: The file. Its mode is 600; a folder that is missing gets mode 700.
        create: Whether to create the file if it is missing; never over a damaged one.
        mounts: Table of mounts, in the form of /proc/self/mountinfo.

    Raises:
        RollbackError: It is missing and not to be created: the checkpoints of the runs
            that are expected in it are gone.
        ConfigError: The place, the file's mode, its kind, its version or a pragma is
            not as it must be.
        FormatError: It is damaged; file and log stay as they are.
        UnavailableError: It cannot be opened now.
    """
    missing = RollbackError(f"there is no checkpoint store at {path}")
    first = _nothing if create else None
    return SqliteStore(
        open_database(Path(path), STORE_SCHEMA, create_first=first, missing=missing, mounts=mounts)
    )


def open_heads(
    path: Path,
    *,
    create: bool,
    now_ms: Callable[[], int],
    incarnation: Callable[[], str],
    is_dead: Callable[[str], bool] = never_dead,
    mounts: Path = place.MOUNTS,
) -> SqliteHeads:
    """Open the head register in the file `path`.

    Args:
        path: The file. Its mode is 600; a folder that is missing gets mode 700.
        create: Whether to create the file if it is missing; never over a damaged one.
        now_ms: The machine's wall clock, UTC, in milliseconds.
        incarnation: Gives random text; called once in the life of the file.
        is_dead: Whether the holder of this name is known to have died.
        mounts: Table of mounts, in the form of /proc/self/mountinfo.

    Raises:
        HeadMissingError: It is missing and not to be created.
        ConfigError, FormatError, UnavailableError: As for `open_store`.
    """

    def first(connection: Connection) -> None:
        connection.execute("INSERT INTO register VALUES (1, ?, 0)", (incarnation(),))

    missing = HeadMissingError(f"there is no head register at {path}")
    database = open_database(
        Path(path),
        HEADS_SCHEMA,
        create_first=first if create else None,
        missing=missing,
        mounts=mounts,
    )
    return SqliteHeads(database, now_ms, is_dead)


def open_inbox(path: Path, *, create: bool, mounts: Path = place.MOUNTS) -> SqliteInbox:
    """Open the inbox in the file `path`.

    Args:
        path: The file. Its mode is 600; a folder that is missing gets mode 700.
        create: Whether to create the file if it is missing; never over a damaged one.
        mounts: Table of mounts, in the form of /proc/self/mountinfo.

    Raises:
        ConfigError: It is missing and not to be created, or as for `open_store`.
        FormatError, UnavailableError: As for `open_store`.
    """
    missing = ConfigError(f"there is no inbox at {path}")
    first = _nothing if create else None
    return SqliteInbox(
        open_database(Path(path), INBOX_SCHEMA, create_first=first, missing=missing, mounts=mounts)
    )


def _nothing(connection: Connection) -> None:
    """Write no first row."""
