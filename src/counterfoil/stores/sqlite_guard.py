"""A small file beside a database that says: commits may be in the log alone.

SQLite takes a log that is gone for an empty one, and so the newest commits vanish in
silence. The guard, `PATH-open`, stands while anybody has the database open and after a
crash. A log that is gone under a guard is damage; without one, whoever closed the
database moved every commit into the file before the log went.
"""

import os
from pathlib import Path

from counterfoil.core.errors import FormatError, UnavailableError
from counterfoil.stores import place
from counterfoil.stores.sqlite_log import log_of

CREATE_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def guard_of(path: Path) -> Path:
    """Return where the guard of a database file lies."""
    return path.with_name(path.name + "-open")


def make_empty(path: Path) -> bool:
    """Create an empty file of mode 600, and return whether it was not there.

    Raises:
        ConfigError: What is there is not a file for us alone.
        OSError: It cannot be created.
    """
    try:
        os.close(os.open(path, CREATE_NEW, 0o600))
    except FileExistsError:
        place.check_file(path)
        return False
    return True


def check_log(path: Path) -> None:
    """Refuse a database whose log is gone under its guard.

    Raises:
        FormatError: It is.
        ConfigError: Log or guard is not a file for us alone.
    """
    log, guard = log_of(path), guard_of(path)
    if place.check_file(guard) is not None and place.check_file(log) is None:
        raise FormatError(
            f"{log} is gone, and with it the newest commits",
            move=f"stop and bring {log} back; only if a tool that closed the database in good "
            f"order took it away, remove {guard}",
        )


def raise_guard(path: Path) -> bool:
    """Set up the guard, after a log for it to guard, and return whether it was not there.

    Both are durable on return.

    Raises:
        ConfigError: What is there is not a file for us alone.
        UnavailableError: They cannot be created.
    """
    is_new = False
    try:
        for each in (log_of(path), guard_of(path)):
            is_new = make_empty(each)
            if is_new:
                place.make_durable(each)
    except OSError as error:
        raise UnavailableError(f"cannot guard {path}: {error.strerror}") from error
    return is_new


def lower_guard(path: Path) -> None:
    """Take the guard away if the log is empty, as the last to close leaves it.

    Others who have the database open raise it again before their next commit.
    """
    try:
        if log_of(path).stat().st_size == 0:
            guard_of(path).unlink(missing_ok=True)
    except OSError:
        return
