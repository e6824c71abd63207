"""Files for one user alone: checked before they are believed, replaced whole or not at all.

A file that others may read, or a folder in which others may put another file, holds no
secret; it is refused with the command that mends it. Writers take turns by a lock, and
a reader finds the old file or the new one.
"""

import errno
import fcntl
import os
import shlex
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from counterfoil.core.errors import ConfigError, UnavailableError

LOCK_MS_MAX = 5_000
"""A writer holds the lock for one small write; longer means that something hangs."""

_LOCK_PAUSE_S = 0.01
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened_folder(path: Path) -> Generator[int]:
    """Hold the folder of `path` open, so that what was checked is what is used.

    Raises:
        ConfigError: There is none, another user owns it, or others may write to it.
    """
    with _translated(path):
        folder = os.open(path.parent, _FOLDER)
    try:
        _check_folder(path.parent, os.fstat(folder))
        yield folder
    finally:
        os.close(folder)


@contextmanager
def locked_folder(path: Path, *, make: bool = False, lock_ms: int = LOCK_MS_MAX) -> Generator[int]:
    """Hold the folder of `path` and the lock of its writers.

    The lock is a file beside it, which holds nothing and stays.

    Args:
        path: The file to be written.
        make: Whether to make the folder, with mode 0700, if there is none.
        lock_ms: Longest to wait for another writer.

    Raises:
        ConfigError: As `opened_folder`.
        UnavailableError: Another writer holds the lock all the time.
    """
    if make:
        _make_folder(path)
    with opened_folder(path) as folder:
        with _translated(path):
            lock = os.open(f".{path.name}.lock", _LOCK, 0o600, dir_fd=folder)
        try:
            _take(lock, path, lock_ms)
            yield folder
        finally:
            os.close(lock)


def is_there(path: Path, folder: int) -> bool:
    """Return whether anything has the name of `path`, a dangling link included."""
    with _translated(path):
        try:
            os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
    return True


def read(path: Path, folder: int, *, bytes_max: int, is_secret: bool = True) -> bytes:
    """Return at most one byte more than `bytes_max` of a file, once it is checked.

    Args:
        path: The file.
        folder: Its folder, as `opened_folder` gives it.
        bytes_max: What the file may have.
        is_secret: Whether others may not read it; they may never write to it.

    Raises:
        ConfigError: It is a link or no file, is not ours, or is open to others.
        UnavailableError: The disk gives it not.
    """
    with _translated(path), os.fdopen(os.open(path.name, _READ, dir_fd=folder), "rb") as file:
        _check_file(path, os.fstat(file.fileno()), is_secret=is_secret)
        return file.read(bytes_max + 1)


def write(path: Path, folder: int, content: bytes) -> None:
    """Replace a file; the lock is held, so one name for unfinished work is enough.

    Raises:
        UnavailableError: The disk did not take it; the former file is whole.
    """
    unfinished = f".{path.name}.unfinished"
    with _translated(path):
        _remove(unfinished, folder)
        try:
            with os.fdopen(os.open(unfinished, _FRESH, 0o600, dir_fd=folder), "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(unfinished, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _remove(unfinished, folder)
            raise
        os.fsync(folder)


def create(path: Path, folder: int, content: bytes) -> None:
    """Make a file for one user alone, where there is none.

    Raises:
        ConfigError: There is something of this name.
        UnavailableError: The disk did not take it; nothing is left.
    """
    with _translated(path):
        try:
            descriptor = os.open(path.name, _FRESH, 0o600, dir_fd=folder)
        except FileExistsError as error:
            raise ConfigError(
                f"there is a file at {path}; it is kept as it is", move="name another file"
            ) from error
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            _remove(path.name, folder)
            raise
        os.fsync(folder)


def _check_file(path: Path, status: os.stat_result, *, is_secret: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path} is no regular file")
    if status.st_uid != os.geteuid():
        raise _foreign(path, status)
    if not is_secret and status.st_mode & _OTHERS_WRITE:
        raise ConfigError(
            f"file {path} has mode {stat.S_IMODE(status.st_mode):04o}, so others may write to it",
            move=f"run `chmod 644 {shlex.quote(str(path))}`, and read what it says before it "
            "is used again",
        )
    if is_secret and status.st_mode & _OTHERS:
        raise ConfigError(
            f"file {path} has mode {stat.S_IMODE(status.st_mode):04o}, open to others",
            move=f"run `chmod 600 {shlex.quote(str(path))}`, and rotate if others may have read it",
        )


def _check_folder(folder: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise _foreign(folder, status)
    if status.st_mode & _OTHERS_WRITE:
        raise ConfigError(
            f"folder {folder} has mode {stat.S_IMODE(status.st_mode):04o}, so others may put "
            "another file there",
            move=f"run `chmod 700 {shlex.quote(str(folder))}`",
        )


def _foreign(path: Path, status: os.stat_result) -> ConfigError:
    return ConfigError(
        f"{path} belongs to user {status.st_uid}, and this is user {os.geteuid()}",
        move=f"run as that user, or `chown {os.geteuid()} {shlex.quote(str(path))}`",
    )


def _make_folder(path: Path) -> None:
    with _translated(path):
        if path.parent.exists():
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        above = os.open(path.parent.parent, _FOLDER)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def _take(lock: int, path: Path, lock_ms: int) -> None:
    deadline = monotonic() + lock_ms / 1000
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if monotonic() >= deadline:
                raise UnavailableError(f"another writer holds the lock of {path}") from error
            sleep(_LOCK_PAUSE_S)
        else:
            return


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


@contextmanager
def _translated(path: Path) -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no file {path}", move="correct the path, or make it: `counterfoil init`"
        ) from error
    except (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        raise ConfigError(f"file {path} cannot be used: {error.strerror}") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(
                f"file {path} is a symbolic link", move="name the file that it points to"
            ) from error
        raise UnavailableError(
            f"file {path} cannot be read or written: {error.strerror}",
            move="see that the disk is well and not full, then try again",
        ) from error
